//! The intervals of keys that a picture of the history can have: those of all its stretches, cut where one of
//! them begins or ends.
//!
//! Thousands of cells of many stretches begin and end at the same few keys. So each key is looked up once, and
//! what a cell has is spread over the intervals from its number to that of its end, without a cell being cut.

use super::amounts::Amounts;
use super::bucket::{Bucket, Place};
use super::cell::Cell;
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What begins or ends at a key.
#[derive(Clone, Copy, Debug, Default)]
struct Border {
    begun: Amounts,
    ended: Amounts,
    cells_begun: usize,
    cells_ended: usize,
}

/// The intervals with what was counted in them, of the places that are wanted.
pub(super) fn axis<'a>(
    buckets: impl Iterator<Item = &'a Arc<Bucket>>,
    wants: impl Fn(&Place) -> bool,
) -> Bucket {
    let mut lists: BTreeMap<&Arc<Place>, Vec<&[Cell]>> = BTreeMap::new();
    for (place, cells) in buckets.flat_map(|bucket| &bucket.cells) {
        if wants(place) {
            lists.entry(place).or_default().push(cells);
        }
    }
    let cells = lists.into_iter().map(|(place, lists)| (Arc::clone(place), intervals(&lists)));
    Bucket { cells: cells.collect(), ..Bucket::default() }
}

/// The cells of a column family as one list of cells that do not overlap. Nobody knows where in a cell
/// something was counted, so each of its intervals has as much as the others.
fn intervals(lists: &[&[Cell]]) -> Vec<Cell> {
    let cells = || lists.iter().copied().flatten();
    let (keys, numbers) = in_order(cells());
    let number = |key: &Key| numbers.get(key).copied().unwrap_or_default();
    let mut borders = vec![Border::default(); keys.len() + 1];
    for cell in cells() {
        let begin = number(&cell.range.begin);
        let end = cell.range.end.as_ref().map_or(keys.len(), number);
        let share = cell.sums.times(1.0 / end.saturating_sub(begin).max(1) as f64);
        if let Some(border) = borders.get_mut(begin) {
            (border.begun, border.cells_begun) = (border.begun.plus(share), border.cells_begun + 1);
        }
        if let Some(border) = borders.get_mut(end) {
            (border.ended, border.cells_ended) = (border.ended.plus(share), border.cells_ended + 1);
        }
    }
    let (mut sums, mut covering) = (Amounts::default(), 0_usize);
    let ends = keys.iter().skip(1).map(|end| Some((*end).clone())).chain([None]);
    let intervals = keys.iter().zip(ends).zip(&borders).filter_map(|((begin, end), border)| {
        sums = sums.plus(border.begun).minus(border.ended);
        covering = (covering + border.cells_begun).saturating_sub(border.cells_ended);
        let range = KeyRange { begin: (*begin).clone(), end };
        (covering > 0).then(|| Cell { range, sums, peaks: Amounts::default() })
    });
    intervals.collect()
}

/// The keys at which cells begin and end, in their order, and the place of each among them.
fn in_order<'a>(cells: impl Iterator<Item = &'a Cell>) -> (Vec<&'a Key>, HashMap<&'a Key, usize>) {
    let mut numbers: HashMap<&Key, usize> = HashMap::new();
    for cell in cells {
        numbers.insert(&cell.range.begin, 0);
        numbers.extend(cell.range.end.as_ref().map(|end| (end, 0)));
    }
    let mut keys: Vec<&Key> = numbers.keys().copied().collect();
    keys.sort_unstable();
    numbers.extend(keys.iter().enumerate().map(|(number, key)| (*key, number)));
    (keys, numbers)
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
            let axis = axis(buckets.iter(), |_| true);
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
            let axis = axis([&bucket].into_iter(), |place| place.column_family == "family001");
            prop_assert!(axis.cells().all(|(place, _)| place.column_family == "family001"));
        }
    }
}
