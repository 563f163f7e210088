//! What was counted in one interval of keys, and how cells are cut and merged.

use super::amounts::Amounts;
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use std::cmp::Ordering;

/// Longest key that a cell's border has: RocksDB's can have megabytes, and what is shown are some bytes.
pub const KEY_BYTES_MAX: usize = 64;

/// One interval of keys of a column family in one stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    pub range: KeyRange,
    /// What was counted in it.
    pub sums: Amounts,
    /// The greatest rates that one of its parts had, per second.
    pub peaks: Amounts,
}

impl Cell {
    /// A cell in which so much was counted within `seconds`.
    pub fn new(range: &KeyRange, sums: Amounts, seconds: f64) -> Cell {
        Cell { range: bounded(range), sums, peaks: sums.times(1.0 / seconds.max(f64::MIN_POSITIVE)) }
    }

    /// This cell and the next one in the order of keys, as one.
    pub(super) fn joined(self, next: Cell) -> Cell {
        let range = KeyRange { begin: self.range.begin, end: next.range.end };
        Cell { range, sums: self.sums.plus(next.sums), peaks: self.peaks.at_least(next.peaks) }
    }

    /// The cell in parts, cut at `borders`, which lie inside of it in their order. Nobody knows where in it
    /// something was counted, so each part has as much as the others.
    fn cut(self, borders: Vec<Key>) -> impl Iterator<Item = Cell> {
        let parts = (borders.len() + 1) as f64;
        let (sums, peaks) = (self.sums.times(1.0 / parts), self.peaks.times(1.0 / parts));
        let last_sums = borders.iter().fold(self.sums, |rest, _| rest.minus(sums));
        let (mut begin, mut end, mut borders) =
            (Some(self.range.begin), Some(self.range.end), borders.into_iter());
        std::iter::from_fn(move || {
            let from = begin.take()?;
            let Some(border) = borders.next() else {
                let range = KeyRange { begin: from, end: end.take()? };
                return Some(Cell { range, sums: last_sums, peaks });
            };
            begin = Some(border.clone());
            Some(Cell { range: KeyRange { begin: from, end: Some(border) }, sums, peaks })
        })
    }
}

/// The range with keys of at most [`KEY_BYTES_MAX`] bytes, or one more.
fn bounded(range: &KeyRange) -> KeyRange {
    let cut = |key: &Key| Key::new(key.as_bytes().get(..KEY_BYTES_MAX).unwrap_or(key.as_bytes()));
    let begin = cut(&range.begin);
    let end = range.end.as_ref().map(|end| cut(end).max(begin.successor()));
    KeyRange { begin, end }
}

/// Cells of one column family at the same time.
pub(super) fn beside(one: Vec<Cell>, two: Vec<Cell>) -> Vec<Cell> {
    overlay(one, two, Amounts::plus)
}

/// Cells of one column family, one after the other.
pub(super) fn after(one: Vec<Cell>, two: Vec<Cell>) -> Vec<Cell> {
    overlay(one, two, Amounts::at_least)
}

/// Cells in the order of keys that do not overlap, cut where one of either list begins or ends. Both lists
/// are such cells already, so one walk along both is enough.
fn overlay(one: Vec<Cell>, two: Vec<Cell>, peaks: fn(Amounts, Amounts) -> Amounts) -> Vec<Cell> {
    if one.is_empty() || two.is_empty() {
        return if one.is_empty() { two } else { one };
    }
    let (cuts_of_one, cuts_of_two) = (cuts(&one, &two), cuts(&two, &one));
    let parts = |cells: Vec<Cell>, cuts: Vec<Vec<Key>>| {
        cells.into_iter().zip(cuts).flat_map(|(cell, borders)| cell.cut(borders)).peekable()
    };
    let (mut one, mut two) = (parts(one, cuts_of_one), parts(two, cuts_of_two));
    let mut cells = Vec::new();
    loop {
        let order = match (one.peek(), two.peek()) {
            (Some(of_one), Some(of_two)) => of_one.range.begin.cmp(&of_two.range.begin),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return cells,
        };
        match order {
            Ordering::Less => cells.extend(one.next()),
            Ordering::Greater => cells.extend(two.next()),
            // Both begin here and were cut at the same borders, so both end at the same key.
            Ordering::Equal => cells.extend(one.next().zip(two.next()).map(|(of_one, of_two)| Cell {
                range: of_one.range,
                sums: of_one.sums.plus(of_two.sums),
                peaks: peaks(of_one.peaks, of_two.peaks),
            })),
        }
    }
}

/// For each cell, where cells of the other list begin or end inside of it.
fn cuts(cells: &[Cell], others: &[Cell]) -> Vec<Vec<Key>> {
    let mut rest = others;
    let inside = cells.iter().map(|cell| {
        let is_before = |other: &Cell| other.range.end.as_ref().is_some_and(|end| *end <= cell.range.begin);
        let passed = rest.iter().take_while(|other| is_before(other)).count();
        rest = rest.get(passed..).unwrap_or_default();
        let is_behind = |key: &Key| cell.range.end.as_ref().is_some_and(|end| end <= key);
        let met = rest.iter().take_while(|other| !is_behind(&other.range.begin));
        let borders = met.flat_map(|other| std::iter::once(&other.range.begin).chain(&other.range.end));
        let mut borders: Vec<Key> =
            borders.filter(|key| cell.range.begin < **key && !is_behind(key)).cloned().collect();
        borders.dedup();
        borders
    });
    inside.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::amounts::Metric;
    use super::*;

    fn cell(begin: &str, end: Option<&str>, pain: f64) -> Cell {
        let range = KeyRange::new(Key::new(begin), end.map(Key::new)).unwrap();
        Cell::new(&range, Amounts::default().with(Metric::Pain, pain), 2.0)
    }

    fn shown(cells: &[Cell]) -> Vec<(String, String, f64, f64)> {
        let end = |cell: &Cell| cell.range.end.as_ref().map(Key::escaped).unwrap_or_default();
        let pain = |amounts: &Amounts| amounts.get(Metric::Pain);
        cells.iter().map(|it| (it.range.begin.escaped(), end(it), pain(&it.sums), pain(&it.peaks))).collect()
    }

    #[test]
    fn a_cell_is_cut_where_another_one_begins_and_ends() {
        let (wide, narrow) = (vec![cell("a", None, 6.0)], vec![cell("c", Some("d"), 8.0)]);
        let row = |begin: &str, end: &str, sum, peak| (begin.to_owned(), end.to_owned(), sum, peak);
        let expected = [row("a", "c", 2.0, 1.0), row("c", "d", 10.0, 4.0), row("d", "", 2.0, 1.0)];
        assert_eq!(shown(&after(wide.clone(), narrow.clone())), expected);
        let at_once = [row("a", "c", 2.0, 1.0), row("c", "d", 10.0, 5.0), row("d", "", 2.0, 1.0)];
        assert_eq!(shown(&beside(wide, narrow)), at_once);
    }

    #[test]
    fn long_keys_are_cut_and_still_enclose_something() {
        let long = |last: u8| Key::new([vec![b'k'; 200], vec![last]].concat());
        let range = KeyRange::new(long(1), Some(long(2))).unwrap();
        let range = Cell::new(&range, Amounts::default(), 1.0).range;
        assert!(range.begin.as_bytes().len() == KEY_BYTES_MAX && range.contains(&range.begin));
        assert!(range.end.unwrap().as_bytes().len() <= KEY_BYTES_MAX + 1);
    }
}
