//! The history as a picture: intervals of keys by stretches of time.

use super::amounts::Metric;
use super::axis::Axis;
use super::bucket::{Bucket, Place};
use super::cell::Cell;
use super::layers::History;
use crate::facts::range::KeyRange;
use crate::facts::waits::Times;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Most intervals of keys that are drawn: more than a screen has lines.
pub const ROWS_MAX: usize = 1_536;

/// Most cells that are drawn, some megabytes of JSON; where there are more, there are fewer rows.
const DRAWN_CELLS_MAX: usize = 262_144;

/// What is drawn of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The greatest rate that a part of it had, per second: it is comparable between stretches of different
    /// lengths.
    #[default]
    Max,
    /// All that was counted in it.
    Sum,
}

/// What is to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// `None`: of all.
    pub target: Option<String>,
    pub database: Option<String>,
    pub column_family: Option<String>,
    pub metric: Metric,
    pub statistic: Statistic,
    /// Stretches that end after it, seconds since the Unix epoch.
    pub since_s: i64,
    /// At most [`ROWS_MAX`].
    pub rows_max: usize,
}

/// An interval of keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub place: Place,
    pub range: KeyRange,
}

/// A stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Seconds since the Unix epoch.
    pub begin_s: i64,
    pub length_s: i64,
    /// What was counted, with the number of the row, in their order; rows without are left out.
    pub values: Vec<(usize, f64)>,
    /// Rows in which actions ended.
    pub acted_on: Vec<usize>,
}

/// What was counted in a stretch of time, by column family.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Seconds since the Unix epoch.
    pub begin_s: i64,
    pub length_s: i64,
    /// All keys of a column family together; those in which nothing was counted are left out.
    pub counted: BTreeMap<Arc<Place>, Cell>,
    /// How long operations took; column families in which no window has seen any are left out.
    pub times: BTreeMap<Arc<Place>, Times>,
}

/// Intervals of keys by stretches of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heatmap {
    /// By column family and key.
    pub rows: Vec<Row>,
    /// Oldest first.
    pub columns: Vec<Column>,
}

impl History {
    /// Draws what is asked for.
    pub fn heatmap(&self, drawn: &Drawn) -> Heatmap {
        let stretches = self.since(drawn.since_s);
        let wants = |place: &Place| drawn.wants(place);
        let mut axis = Axis::of(stretches.iter().map(|(_, _, bucket)| *bucket), wants);
        let mut rows_max = drawn.rows_max.clamp(1, ROWS_MAX);
        loop {
            axis.shrink(rows_max);
            let heatmap = draw(&axis, &stretches, drawn);
            let cells: usize = heatmap.columns.iter().map(|column| column.values.len()).sum();
            if cells <= DRAWN_CELLS_MAX || rows_max <= 1 {
                return heatmap;
            }
            rows_max /= 2;
        }
    }

    /// What was counted since `since_s` in each stretch and column family, its keys together.
    pub fn by_column_family(&self, drawn: &Drawn) -> Vec<Stretch> {
        let stretches = self.since(drawn.since_s).into_iter().map(|(begin_s, length_s, bucket)| {
            let cells = bucket.cells.iter().filter(|(place, _)| drawn.wants(place));
            let joined = cells.filter_map(|(place, cells)| {
                let cell = cells.iter().cloned().reduce(Cell::joined)?;
                Some((Arc::clone(place), cell))
            });
            let times = bucket.times.iter().filter(|(place, _)| drawn.wants(place));
            let times = times.map(|(place, times)| (Arc::clone(place), times.clone()));
            Stretch { begin_s, length_s, counted: joined.collect(), times: times.collect() }
        });
        stretches.collect()
    }
}

impl History {
    /// What was counted since `since_s` in the cells of a column family that a range meets, in each stretch
    /// in which there are any: beginning and length in seconds.
    pub fn in_range(&self, place: &Place, range: &KeyRange, since_s: i64) -> Vec<(i64, i64, Cell)> {
        let met = |bucket: &Bucket| {
            let cells = bucket.cells.get(place)?;
            cells.get(overlapped(cells, range))?.iter().cloned().reduce(Cell::joined)
        };
        let stretches = self.since(since_s).into_iter();
        stretches.filter_map(|(begin, length, bucket)| Some((begin, length, met(bucket)?))).collect()
    }
}

impl Drawn {
    fn wants(&self, place: &Place) -> bool {
        let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        is(&self.target, &place.target)
            && is(&self.database, &place.database)
            && is(&self.column_family, &place.column_family)
    }

    fn value(&self, cell: &Cell) -> f64 {
        match self.statistic {
            Statistic::Max => cell.peaks.get(self.metric),
            Statistic::Sum => cell.sums.get(self.metric),
        }
    }
}

/// Of each stretch the cells that have rows.
fn draw(axis: &Axis<'_>, stretches: &[(i64, i64, &Arc<Bucket>)], drawn: &Drawn) -> Heatmap {
    let column = |(begin_s, length_s, _): &(i64, i64, _)| Column {
        begin_s: *begin_s,
        length_s: *length_s,
        ..Column::default()
    };
    let mut columns: Vec<Column> = stretches.iter().map(column).collect();
    let mut rows = Vec::new();
    for of_place in axis.rows() {
        for (stretch, cell, numbers) in of_place.cells() {
            if let Some(column) = columns.get_mut(stretch) {
                column.take(cell, numbers, rows.len(), drawn);
            }
        }
        let ranges = of_place.intervals.iter().map(|cell| cell.range.clone());
        rows.extend(ranges.map(|range| Row { place: (**of_place.place).clone(), range }));
    }
    columns.iter_mut().for_each(|column| column.acted_on.dedup());
    Heatmap { columns, rows }
}

impl Column {
    /// A cell that reaches over several rows is shared between them. Cells come in the order of their rows.
    fn take(&mut self, cell: &Cell, rows: Range<usize>, first: usize, drawn: &Drawn) {
        let value = drawn.value(cell) / rows.len().max(1) as f64;
        let acted_on = cell.sums.get(Metric::Actions) > 0.0;
        for row in rows.map(|row| first + row) {
            if value > 0.0 {
                self.add(row, value, drawn.statistic);
            }
            if acted_on {
                self.acted_on.push(row);
            }
        }
    }

    fn add(&mut self, row: usize, value: f64, statistic: Statistic) {
        match self.values.last_mut().filter(|last| last.0 == row) {
            Some((_, known)) if statistic == Statistic::Max => *known = known.max(value),
            Some((_, known)) => *known += value,
            None => self.values.push((row, value)),
        }
    }
}

/// Which of the cells, which are in order, a range overlaps.
fn overlapped(cells: &[Cell], range: &KeyRange) -> Range<usize> {
    let is_before = |cell: &Cell| cell.range.end.as_ref().is_some_and(|end| *end <= range.begin);
    let first = cells.partition_point(is_before);
    let behind = cells.partition_point(|cell| range.end.as_ref().is_none_or(|end| cell.range.begin < *end));
    first..behind.max(first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::amounts::Amounts;
    use super::super::bucket::tests::{counted, place};
    use super::*;
    use crate::facts::key::Key;
    use proptest::prelude::*;

    fn bucket(cells: &[(&str, &str, f64)]) -> Bucket {
        Bucket::of(cells.iter().map(|(begin, end, pain)| {
            let range = KeyRange::new(Key::new(*begin), Some(Key::new(*end))).unwrap();
            (place(0), Cell::new(&range, Amounts::default().with(Metric::Pain, *pain), 1.0))
        }))
    }

    #[test]
    fn a_hot_band_that_cools() {
        let mut history = History::default();
        history.record(600, &bucket(&[("a", "b", 8.0), ("m", "n", 1.0)]));
        history.record(660, &bucket(&[("a", "b", 2.0), ("m", "n", 1.0)]));
        history.record(720, &bucket(&[("m", "n", 1.0)]));
        let drawn = Drawn { rows_max: 10, ..Drawn::default() };
        let heatmap = history.heatmap(&drawn);
        assert_eq!(heatmap.rows.len(), 2);
        let values: Vec<Vec<(usize, f64)>> =
            heatmap.columns.iter().map(|column| column.values.clone()).collect();
        assert_eq!(values, [vec![(0, 8.0), (1, 1.0)], vec![(0, 2.0), (1, 1.0)], vec![(1, 1.0)]]);
        let late = history.heatmap(&Drawn { since_s: 700, ..drawn.clone() });
        assert_eq!(late.columns.iter().map(|column| column.begin_s).collect::<Vec<_>>(), [660, 720]);
        let other = history.heatmap(&Drawn { target: Some("none".to_owned()), ..drawn });
        assert!(other.rows.is_empty() && other.columns.len() == 3);
    }

    #[test]
    fn of_a_whole_column_family_the_sums_are_told() {
        let mut history = History::default();
        history.record(600, &bucket(&[("a", "b", 8.0), ("m", "n", 1.0)]));
        let rows = history.by_column_family(&Drawn::default());
        let [Stretch { begin_s: 600, length_s: 60, counted, times }] = rows.as_slice() else {
            unreachable!("{rows:?}")
        };
        let cell = counted.values().next().unwrap();
        assert_eq!((cell.sums.get(Metric::Pain), cell.peaks.get(Metric::Pain)), (9.0, 8.0));
        assert!(times.is_empty());
    }

    #[test]
    fn a_column_family_whose_readers_lose_nothing_has_its_times() {
        let mut history = History::default();
        let times = Times::new(&[], &[0, 3]);
        let healthy = Place { column_family: "healthy".into(), ..Place::default() };
        history.record(600, &Bucket::default().with_times([(healthy.clone(), times.clone())]));
        let of = |column_family: &str| {
            let drawn = Drawn { column_family: Some(column_family.to_owned()), ..Drawn::default() };
            history.by_column_family(&drawn).pop().unwrap()
        };
        assert_eq!(of("healthy").times, [(Arc::new(healthy), times)].into());
        assert!(of("other").times.is_empty() && of("healthy").counted.is_empty());
    }

    proptest! {
        #[test]
        fn what_is_drawn_is_all_there_is(
            moments in proptest::collection::vec((0i64..2_000, counted()), 1..12),
            rows_max in 5usize..40,
        ) {
            let mut history = History::default();
            let mut now = 1_790_000_000;
            for (step, counted) in moments {
                now += step;
                history.record(now, &Bucket::of(counted));
            }
            let drawn =
                Drawn { rows_max, metric: Metric::TombstonesSkipped, statistic: Statistic::Sum, ..Drawn::default() };
            let heatmap = history.heatmap(&drawn);
            prop_assert!(heatmap.rows.len() <= rows_max);
            let stretches = history.since(0);
            prop_assert_eq!(heatmap.columns.len(), stretches.len());
            for ((_, _, bucket), column) in stretches.iter().zip(&heatmap.columns) {
                let sum: f64 = column.values.iter().map(|(_, value)| value).sum();
                let expected = bucket.total().get(Metric::TombstonesSkipped);
                prop_assert!((sum - expected).abs() <= 1e-6 * expected.max(1.0), "{} of {}", sum, expected);
                prop_assert!(column.values.iter().all(|(row, _)| *row < heatmap.rows.len()));
            }
            let apart = heatmap.rows.windows(2).all(|two| match two {
                [one, two] if one.place == two.place => {
                    one.range.end.as_ref().is_some_and(|end| *end <= two.range.begin)
                }
                [one, two] => one.place < two.place,
                _ => true,
            });
            prop_assert!(apart);
        }
    }
}
