//! What was counted in one interval of keys, and how cells are cut and merged.

use super::amounts::Amounts;
use crate::facts::key::Key;
use crate::facts::range::KeyRange;

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
    fn cut(self, borders: &[&Key]) -> Vec<Cell> {
        let share = 1.0 / (borders.len() + 1) as f64;
        let (sums, peaks) = (self.sums.times(share), self.peaks.times(share));
        let KeyRange { mut begin, end } = self.range;
        let mut rest = self.sums;
        let mut parts = Vec::with_capacity(borders.len() + 1);
        for border in borders {
            let range = KeyRange { begin: std::mem::replace(&mut begin, (*border).clone()), end: None };
            parts.push(Cell { range: KeyRange { end: Some((*border).clone()), ..range }, sums, peaks });
            rest = rest.minus(sums);
        }
        parts.push(Cell { range: KeyRange { begin, end }, sums: rest, peaks });
        parts
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

/// Cells in the order of keys that do not overlap, cut where one of either list begins or ends.
fn overlay(one: Vec<Cell>, two: Vec<Cell>, peaks: fn(Amounts, Amounts) -> Amounts) -> Vec<Cell> {
    if one.is_empty() || two.is_empty() {
        return if one.is_empty() { two } else { one };
    }
    let mut borders: Vec<Key> = Vec::with_capacity(2 * (one.len() + two.len()));
    for cell in one.iter().chain(&two) {
        borders.push(cell.range.begin.clone());
        borders.extend(cell.range.end.clone());
    }
    borders.sort();
    borders.dedup();
    let mut parts: Vec<Cell> = Vec::with_capacity(borders.len());
    for cell in one.into_iter().chain(two) {
        let inside = borders_inside(&borders, &cell.range);
        parts.extend(cell.cut(&inside));
    }
    parts.sort_by(|one, two| one.range.begin.cmp(&two.range.begin));
    let mut cells: Vec<Cell> = Vec::with_capacity(parts.len());
    for part in parts {
        match cells.last_mut().filter(|last| last.range.begin == part.range.begin) {
            Some(last) => {
                last.sums = last.sums.plus(part.sums);
                last.peaks = peaks(last.peaks, part.peaks);
            }
            None => cells.push(part),
        }
    }
    cells
}

/// Those of the borders, which are in order, that lie inside of a range.
pub(super) fn borders_inside<'k>(borders: &'k [Key], range: &KeyRange) -> Vec<&'k Key> {
    let first = borders.partition_point(|border| *border <= range.begin);
    let behind = match &range.end {
        Some(end) => borders.partition_point(|border| border < end),
        None => borders.len(),
    };
    borders.get(first..behind).unwrap_or_default().iter().collect()
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
