//! The picture of played workloads: pain, bytes and actions over time.

use super::Played;
use sexton_tuner::simulation::workload::Sample;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const PANEL_HEIGHT: f64 = 180.0;
const MARGIN: f64 = 60.0;

/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// One row of the picture: its title, and the value of a sample, or of all up to it.
type Panel = (&'static str, fn(&Sample) -> f64, bool);

const PANELS: [Panel; 3] = [
    ("pain, seconds per second", |sample| sample.pain_seconds_per_second, false),
    ("bytes rewritten so far, MiB", |sample| sample.written_bytes as f64 / f64::from(1 << 20), true),
    ("actions so far", |sample| sample.actions as f64, true),
];

/// As SVG.
pub(super) fn picture(title: &str, all: &[Played]) -> String {
    let height = PANEL_HEIGHT * PANELS.len() as f64 + MARGIN * 2.0 + 20.0 * all.len() as f64;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' font-family='sans-serif' \
         font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n<text x='{MARGIN}' y='24' \
         font-size='16'>{}</text>\n",
        escaped(title)
    );
    for (number, panel) in PANELS.iter().enumerate() {
        draw(&mut svg, panel, all, MARGIN + PANEL_HEIGHT * number as f64);
    }
    for (number, (played, colour)) in all.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let y = MARGIN + PANEL_HEIGHT * PANELS.len() as f64 + 20.0 * (number as f64 + 1.0);
        let name = escaped(&played.policy);
        let _ = writeln!(
            svg,
            "<rect x='{MARGIN}' y='{}' width='24' height='4' fill='{colour}'/><text x='{}' y='{y}'>{name}</text>",
            y - 6.0,
            MARGIN + 32.0
        );
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, (title, value, is_sum): &Panel, all: &[Played], top: f64) {
    let series: Vec<Vec<(f64, f64)>> =
        all.iter().map(|played| points(&played.report.samples, *value, *is_sum)).collect();
    let greatest = |of: fn(&(f64, f64)) -> f64| series.iter().flatten().map(of).fold(0.0, f64::max);
    let (seconds, most) =
        (greatest(|point| point.0).max(1.0), greatest(|point| point.1).max(f64::MIN_POSITIVE));
    let (width, height) = (WIDTH - MARGIN * 2.0, PANEL_HEIGHT - 40.0);
    let _ = writeln!(
        svg,
        "<text x='{MARGIN}' y='{}'>{title}; most {most:.3}, {:.0} s</text>\n<rect x='{MARGIN}' y='{top}' \
         width='{width}' height='{height}' fill='none' stroke='#999'/>",
        top - 5.0,
        seconds
    );
    for (points, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let place = |(at, value): &(f64, f64)| {
            format!("{:.1},{:.1}", MARGIN + at / seconds * width, top + height - value / most * height)
        };
        let line: Vec<String> = points.iter().map(place).collect();
        let _ = writeln!(
            svg,
            "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='1.5'/>",
            line.join(" ")
        );
    }
}

fn points(samples: &[Sample], value: fn(&Sample) -> f64, is_sum: bool) -> Vec<(f64, f64)> {
    let mut sum = 0.0;
    let point = |sample: &Sample| {
        sum = if is_sum { sum + value(sample) } else { value(sample) };
        (sample.at_seconds as f64, sum)
    };
    samples.iter().map(point).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sexton_tuner::simulation::workload::Report;

    #[test]
    fn a_picture_has_a_line_for_each_policy_in_each_panel() {
        let sample = |at_seconds| Sample { at_seconds, pain_seconds_per_second: 0.5, ..Sample::default() };
        let report = Report { samples: vec![sample(5), sample(10)], ..Report::default() };
        let played = |policy: &str| Played { policy: policy.to_owned(), report: report.clone() };
        let svg = picture("a < b", &[played("one"), played("two")]);
        assert_eq!(svg.matches("<polyline").count(), 2 * PANELS.len());
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN"), "{svg}");
        assert!(!picture("nothing", &[]).contains("NaN"));
    }
}
