//! What was counted in one stretch of time, by column family and keys.

use super::amounts::{Amounts, Metric};
use super::cell::{Cell, after, beside};
use crate::facts::waits::Times;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most intervals of keys that are stored of one stretch of time, of all targets: twice what is drawn.
pub const INTERVALS_MAX: usize = 3_072;

/// Most column families whose times are stored of one stretch of time.
pub const TIMES_MAX: usize = 512;

/// A column family of a database in a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub target: String,
    pub database: String,
    pub column_family: String,
}

/// A stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bucket {
    /// By column family, in the order of keys; none overlap.
    pub(super) cells: BTreeMap<Arc<Place>, Vec<Cell>>,
    /// How long operations took, by column family.
    pub(super) times: BTreeMap<Arc<Place>, Times>,
}

impl Bucket {
    /// What was counted at one time. Where cells of a column family overlap, all of them count.
    pub fn of(cells: impl IntoIterator<Item = (Place, Cell)>) -> Bucket {
        let mut by_place: BTreeMap<Arc<Place>, Vec<Cell>> = BTreeMap::new();
        for (place, cell) in cells {
            by_place.entry(Arc::new(place)).or_default().push(cell);
        }
        for cells in by_place.values_mut() {
            cells.sort_by(|one, two| one.range.begin.cmp(&two.range.begin));
            let all = std::mem::take(cells);
            // Cells of one plan do not overlap; then nothing is to be cut.
            let mut overlapping = Vec::new();
            for cell in all {
                match cells.last().is_some_and(|last| last.range.overlaps(&cell.range)) {
                    true => overlapping.push(cell),
                    false => cells.push(cell),
                }
            }
            for cell in overlapping.into_iter().take(INTERVALS_MAX) {
                *cells = beside(std::mem::take(cells), vec![cell]);
            }
        }
        let mut bucket = Bucket { cells: by_place, times: BTreeMap::new() };
        bucket.shrink(INTERVALS_MAX);
        bucket
    }

    /// The same with what operations took at that time.
    #[must_use]
    pub fn with_times(mut self, times: impl IntoIterator<Item = (Place, Times)>) -> Bucket {
        for (place, more) in times.into_iter().filter(|(_, times)| !times.is_empty()) {
            self.times.entry(Arc::new(place)).or_default().merge(&more);
        }
        self.leave_out_times(TIMES_MAX);
        self
    }

    /// Takes in what was counted later, or earlier.
    pub(super) fn merge(&mut self, other: Bucket) {
        for (place, cells) in other.cells {
            let known = self.cells.entry(place).or_default();
            *known = after(std::mem::take(known), cells);
        }
        for (place, times) in other.times {
            self.times.entry(place).or_default().merge(&times);
        }
        self.shrink(INTERVALS_MAX);
        self.leave_out_times(TIMES_MAX);
    }

    /// How long operations took, by column family.
    pub fn times(&self) -> impl Iterator<Item = (&Place, &Times)> {
        self.times.iter().map(|(place, times)| (&**place, times))
    }

    /// Of more column families than that, those with the fewest operations are left out.
    pub(super) fn leave_out_times(&mut self, times_max: usize) {
        leave_out(&mut self.times, times_max, |times| times.lists.count() as f64);
    }

    /// How many cells it has.
    pub fn len(&self) -> usize {
        self.cells.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.times.is_empty()
    }

    /// All cells, by column family and key.
    pub fn cells(&self) -> impl Iterator<Item = (&Place, &Cell)> {
        self.cells.iter().flat_map(|(place, cells)| cells.iter().map(move |cell| (&**place, cell)))
    }

    /// How many cells it has at least, however much is merged.
    pub(super) fn places(&self) -> usize {
        self.cells.len()
    }

    /// Merges neighbours within column families until there are at most `cells_max`: those that matter least.
    /// Of more column families than that, those in which readers lost least are left out.
    pub(super) fn shrink(&mut self, cells_max: usize) {
        if self.len() <= cells_max {
            return;
        }
        let pain = |cells: &Vec<Cell>| cells.iter().map(|cell| cell.sums.get(Metric::Pain)).sum();
        leave_out(&mut self.cells, cells_max.max(1), pain);
        let weights = Weights::of(self);
        // Two neighbours together are heavier than this limit, so that there are fewer than twice the weight
        // of everything by the limit, and one more in each column family.
        let limit = 2.0 / (cells_max.saturating_sub(self.places()).max(1)) as f64;
        for cells in self.cells.values_mut() {
            let mut merged: Vec<Cell> = Vec::new();
            let mut weight = f64::INFINITY;
            for cell in std::mem::take(cells) {
                let more = weights.of_cell(&cell);
                match merged.pop() {
                    Some(last) if weight + more <= limit => {
                        merged.push(last.joined(cell));
                        weight += more;
                    }
                    last => {
                        merged.extend(last);
                        merged.push(cell);
                        weight = more;
                    }
                }
            }
            *cells = merged;
        }
        // The sum of weights is not exact.
        while self.len() > cells_max {
            let Some(cells) = self.cells.values_mut().max_by_key(|cells| cells.len()) else { return };
            let (Some(last), Some(before)) = (cells.pop(), cells.pop()) else { return };
            cells.push(before.joined(last));
        }
    }

    /// What was counted in all cells.
    #[cfg(test)]
    pub(super) fn total(&self) -> Amounts {
        self.cells().fold(Amounts::default(), |sum, (_, cell)| sum.plus(cell.sums))
    }
}

/// Of more column families than `places_max`, those that matter least are left out.
fn leave_out<T>(of: &mut BTreeMap<Arc<Place>, T>, places_max: usize, weight: impl Fn(&T) -> f64) {
    let excess = of.len().saturating_sub(places_max);
    if excess == 0 {
        return;
    }
    let mut lightest: Vec<(f64, Arc<Place>)> =
        of.iter().map(|(place, value)| (weight(value), Arc::clone(place))).collect();
    lightest.sort_by(|one, two| one.0.total_cmp(&two.0).then_with(|| two.1.cmp(&one.1)));
    for (_, place) in lightest.into_iter().take(excess) {
        of.remove(&place);
    }
}

/// How much cells matter: half by what was counted in them, half all alike. Together 1.
struct Weights {
    /// For each metric, what a unit of it weighs.
    units: Amounts,
    each: f64,
}

impl Weights {
    fn of(bucket: &Bucket) -> Weights {
        let total = bucket.cells().fold(Amounts::default(), |sum, (_, cell)| sum.plus(cell.sums));
        let counted: Vec<Metric> =
            Metric::ALL.into_iter().filter(|metric| total.get(*metric) > 0.0).collect();
        let share = 0.5 / counted.len().max(1) as f64;
        let units = counted
            .iter()
            .fold(Amounts::default(), |units, metric| units.with(*metric, share / total.get(*metric)));
        Weights { units, each: 0.5 / bucket.len().max(1) as f64 }
    }

    fn of_cell(&self, cell: &Cell) -> f64 {
        let by_metric = Metric::ALL.iter().map(|metric| self.units.get(*metric) * cell.sums.get(*metric));
        self.each + by_metric.sum::<f64>()
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::key::Key;
    use crate::facts::range::KeyRange;
    use proptest::prelude::*;

    pub fn place(number: u8) -> Place {
        Place { target: "java-1".into(), database: "/db".into(), column_family: format!("family{number:03}") }
    }

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(0u8..6, 0..3).prop_map(Key::new)
    }

    /// A cell whose counts are whole numbers, so that sums of whole cells are exact.
    pub fn cell() -> impl Strategy<Value = Cell> {
        let range = (key(), proptest::option::of(key())).prop_map(|(one, two)| match two {
            None => KeyRange { begin: one, end: None },
            Some(two) if one == two => KeyRange { end: Some(one.successor()), begin: one },
            Some(two) => KeyRange { begin: one.clone().min(two.clone()), end: Some(one.max(two)) },
        });
        (range, 0u16..1_000, 0u16..1_000, 0u8..2).prop_map(|(range, pain, tombstones, actions)| {
            let sums = Amounts::default()
                .with(Metric::Pain, f64::from(pain))
                .with(Metric::TombstonesSkipped, f64::from(tombstones))
                .with(Metric::Actions, f64::from(actions));
            Cell::new(&range, sums, 2.0)
        })
    }

    pub fn counted() -> impl Strategy<Value = Vec<(Place, Cell)>> {
        proptest::collection::vec(((0u8..5).prop_map(place), cell()), 0..40)
    }

    pub fn is_close(one: Amounts, two: Amounts) -> bool {
        Metric::ALL.iter().all(|metric| {
            let (one, two) = (one.get(*metric), two.get(*metric));
            (one - two).abs() <= 1e-9 * one.abs().max(two.abs()).max(1.0)
        })
    }

    /// Cells of each column family are in order, none overlap, none is empty.
    pub fn is_in_order(bucket: &Bucket) -> bool {
        bucket.cells.values().all(|cells| {
            let apart = cells.windows(2).all(|two| match two {
                [one, two] => one.range.end.as_ref().is_some_and(|end| *end <= two.range.begin),
                _ => true,
            });
            let full = |cell: &Cell| cell.range.end.as_ref().is_none_or(|end| cell.range.begin < *end);
            apart && !cells.is_empty() && cells.iter().all(full)
        })
    }

    fn of_place(bucket: &Bucket, number: u8) -> Amounts {
        let cells = bucket.cells.get(&place(number)).into_iter().flatten();
        cells.fold(Amounts::default(), |sum, cell| sum.plus(cell.sums))
    }

    fn greatest(bucket: &Bucket) -> Amounts {
        bucket.cells().fold(Amounts::default(), |peak, (_, cell)| peak.at_least(cell.peaks))
    }

    proptest! {
        #[test]
        fn merging_keeps_each_column_familys_sums(one in counted(), two in counted(), cells_max in 0usize..60) {
            let expected = one.iter().chain(&two).cloned().collect::<Vec<_>>();
            let (mut merged, other) = (Bucket::of(one), Bucket::of(two));
            prop_assert!(is_in_order(&merged));
            merged.merge(other);
            prop_assert!(is_in_order(&merged));
            let peak = greatest(&merged);
            merged.shrink(cells_max.max(merged.places()));
            prop_assert!(merged.len() <= cells_max.max(merged.places()));
            prop_assert!(is_in_order(&merged));
            prop_assert_eq!(greatest(&merged), peak, "merging neighbours keeps the greatest");
            for number in 0..5 {
                let cells = expected.iter().filter(|(of, _)| *of == place(number));
                let sum = cells.fold(Amounts::default(), |sum, (_, cell)| sum.plus(cell.sums));
                prop_assert!(is_close(of_place(&merged, number), sum));
            }
        }

        #[test]
        fn in_either_order_the_same(one in counted(), two in counted()) {
            let (one, two) = (Bucket::of(one), Bucket::of(two));
            let (mut forth, mut back) = (one.clone(), two.clone());
            forth.merge(two.clone());
            back.merge(one);
            prop_assert_eq!(forth.len(), back.len());
            prop_assert!(is_close(forth.total(), back.total()));
        }
    }

    #[test]
    fn the_hot_interval_stays_alone() {
        let range = |number: u16| {
            let begin = Key::new(format!("{number:05}"));
            KeyRange::new(begin.clone(), Some(begin.successor())).unwrap()
        };
        let pain = |number: u16| if number == 700 { 1e6 } else { 1.0 };
        let cell =
            |number| Cell::new(&range(number), Amounts::default().with(Metric::Pain, pain(number)), 1.0);
        let mut bucket = Bucket::of((0..2_000).map(|number| (place(0), cell(number))));
        bucket.shrink(100);
        assert!(bucket.len() <= 100 && bucket.len() > 20, "{}", bucket.len());
        assert!(bucket.cells().any(|(_, cell)| cell.range == range(700)));
    }

    #[test]
    fn times_add_up_and_the_busiest_column_families_stay() {
        let times = |count| Times::new(&[count], &[0, count]);
        let one = Bucket::default().with_times([(place(1), times(4)), (place(2), times(0))]);
        assert_eq!(one.times().count(), 1, "nothing is no time");
        let mut both = one.clone();
        both.merge(Bucket::default().with_times([(place(1), times(1)), (place(3), times(9))]));
        assert!(both.times().eq([(&place(1), &times(5)), (&place(3), &times(9))]));
        both.leave_out_times(1);
        assert!(both.times().eq([(&place(3), &times(9))]));
        assert!(!one.is_empty() && one.cells().next().is_none());
    }

    #[test]
    fn more_column_families_than_cells_leave_out_the_painless() {
        let everything = KeyRange::everything();
        let cell = |pain| Cell::new(&everything, Amounts::default().with(Metric::Pain, pain), 1.0);
        let mut bucket = Bucket::of((0..9).map(|number| (place(number), cell(f64::from(number)))));
        bucket.shrink(3);
        let left: Vec<&Place> = bucket.cells().map(|(place, _)| place).collect();
        assert_eq!(left, [&place(6), &place(7), &place(8)]);
    }
}
