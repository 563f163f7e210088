//! The picture of a workload: reader time lost against bytes that compactions wrote, both logarithmic. Those
//! of one kind at several settings are joined.

use crate::summary::{Row, Table};
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const MARGIN: f64 = 70.0;
/// What is less is drawn there: a logarithm has no zero.
const BYTES_MIN: f64 = 1_048_576.0;
const LOST_SECONDS_MIN: f64 = 1e-3;

/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A logarithmic axis.
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    /// From one power of ten to another, so that all values are inside.
    fn of(values: impl Iterator<Item = f64>) -> Axis {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.map(f64::log10) {
            (least, most) = (least.min(value.floor()), most.max(value.ceil()));
        }
        if least.is_finite() {
            Axis { least, most: most.max(least + 1.0) }
        } else {
            Axis { least: 0.0, most: 1.0 }
        }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.log10() - self.least) / (self.most - self.least)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        ((self.least as i32)..=(self.most as i32)).map(|power| 10f64.powi(power))
    }
}

/// Bytes written and time lost.
fn point(row: &Row) -> Option<(f64, f64)> {
    let bytes = row.median("compaction_written_bytes")?.max(BYTES_MIN);
    Some((bytes, row.median("reader_seconds_lost")?.max(LOST_SECONDS_MIN)))
}

/// As SVG.
pub fn picture(table: &Table) -> String {
    let points: Vec<(&Row, (f64, f64))> =
        table.rows.iter().filter_map(|row| Some((row, point(row)?))).collect();
    let bytes = Axis::of(points.iter().map(|(_, point)| point.0));
    let lost = Axis::of(points.iter().map(|(_, point)| point.1));
    let place = |(x, y): (f64, f64)| {
        let (width, height) = (WIDTH - MARGIN * 3.0, HEIGHT - MARGIN * 2.0);
        (MARGIN + bytes.place(x) * width, HEIGHT - MARGIN - lost.place(y) * height)
    };
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT}' font-family='sans-serif' font-size='12'>\n\
         <rect width='100%' height='100%' fill='white'/>\n<text x='{MARGIN}' y='24' font-size='16'>{}: {}</text>\n\
         <text x='{MARGIN}' y='44'>reader seconds lost, by bytes that compactions wrote</text>\n",
        table.workload.name, table.workload.what
    );
    for tick in bytes.ticks() {
        let (x, y) = place((tick, 10f64.powf(lost.least)));
        let _ = writeln!(
            svg,
            "<text x='{x:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            y + 20.0,
            bytes_words(tick)
        );
    }
    for tick in lost.ticks() {
        let (x, y) = place((10f64.powf(bytes.least), tick));
        let right = WIDTH - MARGIN * 2.0;
        let _ = writeln!(
            svg,
            "<text x='{:.1}' y='{:.1}' text-anchor='end'>{tick} s</text><path d='M{x:.1} {y:.1}H{right:.1}' stroke='#ddd'/>",
            x - 6.0,
            y + 4.0
        );
    }
    let mut kinds: Vec<&str> = points.iter().map(|(row, _)| row.contender.kind).collect();
    kinds.dedup();
    kinds.sort_unstable();
    kinds.dedup();
    for (kind, colour) in kinds.iter().zip(COLOURS.iter().cycle()) {
        let mut own: Vec<_> = points.iter().filter(|(row, _)| row.contender.kind == *kind).collect();
        own.sort_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
        let line: Vec<String> =
            own.iter().map(|(_, point)| place(*point)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(svg, "<polyline points='{}' fill='none' stroke='{colour}'/>", line.join(" "));
        for (row, point) in own {
            let (x, y) = place(*point);
            let _ = writeln!(
                svg,
                "<circle cx='{x:.1}' cy='{y:.1}' r='3.5' fill='{colour}'/><text x='{:.1}' y='{:.1}' fill='{colour}'>{}</text>",
                x + 6.0,
                y - 4.0,
                row.contender.name
            );
        }
    }
    svg + "</svg>\n"
}

fn bytes_words(bytes: f64) -> String {
    if bytes >= 1e9 { format!("{} GB", bytes / 1e9) } else { format!("{} MB", bytes / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_its_values() {
        let axis = Axis::of([3.0, 250.0].into_iter());
        assert_eq!((axis.least, axis.most), (0.0, 3.0));
        assert_eq!(axis.ticks().collect::<Vec<_>>(), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(Axis::of(std::iter::once(10.0)).place(10.0), 0.0);
        assert_eq!(Axis::of(std::iter::empty()).ticks().count(), 2);
    }
}
