//! The intervals of keys that a picture of the history has: those of all its stretches, cut where one of them
//! begins or ends, and as many of them merged as there are too many.
//!
//! Thousands of cells of many stretches begin and end at the same few keys. So each key is looked up once and
//! has a number from then on, and what a cell has is spread over the intervals from one number to another.

use super::amounts::Amounts;
use super::bucket::{Bucket, Place};
use super::cell::Cell;
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// The intervals, and which of them each cell has.
pub(super) struct Axis<'a> {
    /// With what was counted in them.
    intervals: Bucket,
    parts: BTreeMap<&'a Arc<Place>, Part<'a>>,
}

/// Cells of a column family.
#[derive(Default)]
struct Part<'a> {
    /// Keys at which cells begin and end, in their order.
    keys: Vec<&'a Key>,
    lists: Vec<List<'a>>,
}

/// Those of one stretch.
struct List<'a> {
    stretch: usize,
    cells: &'a [Cell],
    /// For each of them the numbers of the keys at which it begins and ends; behind the last one: never.
    spans: Vec<Range<usize>>,
}

/// A column family's rows.
pub(super) struct Rows<'a> {
    pub(super) place: &'a Arc<Place>,
    pub(super) intervals: &'a [Cell],
    part: &'a Part<'a>,
    /// For the interval that begins at a key its row.
    numbers: Vec<usize>,
}

impl<'a> Axis<'a> {
    /// The intervals of the places that are wanted.
    pub(super) fn of(
        stretches: impl Iterator<Item = &'a Arc<Bucket>>,
        wants: impl Fn(&Place) -> bool,
    ) -> Axis<'a> {
        let mut lists: BTreeMap<&Arc<Place>, Vec<(usize, &[Cell])>> = BTreeMap::new();
        for (stretch, bucket) in stretches.enumerate() {
            for (place, cells) in bucket.cells.iter().filter(|(place, _)| wants(place)) {
                lists.entry(place).or_default().push((stretch, cells));
            }
        }
        let parts: BTreeMap<_, _> =
            lists.into_iter().map(|(place, lists)| (place, Part::of(lists))).collect();
        let cells = parts.iter().map(|(place, part)| (Arc::clone(place), part.intervals()));
        Axis { intervals: Bucket { cells: cells.collect(), ..Bucket::default() }, parts }
    }

    /// Merges intervals until there are at most so many.
    pub(super) fn shrink(&mut self, rows_max: usize) {
        self.intervals.shrink(rows_max);
    }

    /// By column family.
    pub(super) fn rows(&self) -> impl Iterator<Item = Rows<'_>> {
        self.intervals.cells.iter().filter_map(|(place, intervals)| {
            let part = self.parts.get(place)?;
            Some(Rows { place, intervals, part, numbers: part.rows(intervals) })
        })
    }
}

impl Rows<'_> {
    /// The cells of all stretches: the stretch's number, the cell, and the rows that it has.
    pub(super) fn cells(&self) -> impl Iterator<Item = (usize, &Cell, Range<usize>)> {
        let row = |key: usize| self.numbers.get(key).copied().unwrap_or_default();
        self.part.lists.iter().flat_map(move |list| {
            let cells = list.cells.iter().zip(&list.spans);
            cells.map(move |(cell, span)| {
                (list.stretch, cell, row(span.start)..row(span.end.saturating_sub(1)) + 1)
            })
        })
    }
}

impl<'a> Part<'a> {
    fn of(lists: Vec<(usize, &'a [Cell])>) -> Part<'a> {
        let mut numbers: HashMap<&Key, usize> = HashMap::new();
        let mut number = |key: &'a Key| {
            let next = numbers.len();
            *numbers.entry(key).or_insert(next)
        };
        let lists = lists.into_iter().map(|(stretch, cells)| {
            let spans = cells.iter().map(|cell| {
                let begin = number(&cell.range.begin);
                begin..cell.range.end.as_ref().map_or(usize::MAX, &mut number)
            });
            List { stretch, cells, spans: spans.collect() }
        });
        let lists: Vec<List<'_>> = lists.collect();
        let mut keys: Vec<(&Key, usize)> = numbers.into_iter().collect();
        keys.sort_unstable();
        let mut in_order = vec![0; keys.len()];
        for (place, (_, number)) in keys.iter().enumerate() {
            in_order.get_mut(*number).into_iter().for_each(|known| *known = place);
        }
        let mut part = Part { keys: keys.into_iter().map(|(key, _)| key).collect(), lists };
        let place = |number: usize| in_order.get(number).copied().unwrap_or(in_order.len());
        for span in part.lists.iter_mut().flat_map(|list| &mut list.spans) {
            *span = place(span.start)..place(span.end);
        }
        part
    }

    /// One list of cells that do not overlap. Nobody knows where in a cell something was counted, so each of
    /// its intervals has as much as the others.
    fn intervals(&self) -> Vec<Cell> {
        let mut borders = vec![Border::default(); self.keys.len() + 1];
        for (cell, span) in self.lists.iter().flat_map(|list| list.cells.iter().zip(&list.spans)) {
            let share = cell.sums.times(1.0 / span.len().max(1) as f64);
            if let Some(border) = borders.get_mut(span.start) {
                (border.begun, border.cells_begun) = (border.begun.plus(share), border.cells_begun + 1);
            }
            if let Some(border) = borders.get_mut(span.end) {
                (border.ended, border.cells_ended) = (border.ended.plus(share), border.cells_ended + 1);
            }
        }
        let (mut sums, mut covering) = (Amounts::default(), 0_usize);
        let ends = self.keys.iter().skip(1).map(|end| Some((*end).clone())).chain([None]);
        let intervals = self.keys.iter().zip(ends).zip(&borders).filter_map(|((begin, end), border)| {
            sums = sums.plus(border.begun).minus(border.ended);
            covering = (covering + border.cells_begun).saturating_sub(border.cells_ended);
            let range = KeyRange { begin: (*begin).clone(), end };
            (covering > 0).then(|| Cell { range, sums, peaks: Amounts::default() })
        });
        intervals.collect()
    }

    /// For each key the interval that it lies in; each of them begins at one of the keys.
    fn rows(&self, intervals: &[Cell]) -> Vec<usize> {
        let mut row = 0;
        let rows = self.keys.iter().map(|key| {
            while intervals.get(row + 1).is_some_and(|next| next.range.begin <= **key) {
                row += 1;
            }
            row
        });
        rows.collect()
    }
}

/// What begins and ends at a key.
#[derive(Clone, Copy, Debug, Default)]
struct Border {
    begun: Amounts,
    ended: Amounts,
    cells_begun: usize,
    cells_ended: usize,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::bucket::tests::{counted, is_close, is_in_order};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn intervals_are_those_of_cells_merged_one_after_the_other(
            stretches in proptest::collection::vec(counted(), 1..6),
        ) {
            let buckets: Vec<Arc<Bucket>> =
                stretches.into_iter().map(|counted| Arc::new(Bucket::of(counted))).collect();
            let axis = Axis::of(buckets.iter(), |_| true).intervals;
            let mut merged = Bucket::default();
            buckets.iter().for_each(|bucket| merged.merge((**bucket).clone()));
            prop_assert!(is_in_order(&axis));
            let ranges = |bucket: &Bucket| -> Vec<(Place, KeyRange)> {
                bucket.cells().map(|(place, cell)| (place.clone(), cell.range.clone())).collect()
            };
            prop_assert_eq!(ranges(&axis), ranges(&merged));
            let (sum, expected) = (axis.total(), merged.total());
            prop_assert!(is_close(sum, expected), "{:?} of {:?}", sum, expected);
        }

        #[test]
        fn only_what_is_wanted_is_there(counted in counted()) {
            let bucket = Arc::new(Bucket::of(counted));
            let axis = Axis::of([&bucket].into_iter(), |place| place.column_family == "family001").intervals;
            prop_assert!(axis.cells().all(|(place, _)| place.column_family == "family001"));
        }
    }
}
