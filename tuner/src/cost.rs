//! What compacting a range costs: bytes rewritten over all levels.

use crate::{evidence::SstFile, key::Key, range::KeyRange};
use std::collections::BTreeMap;

/// A column family's files, ready to be asked what a range costs.
#[derive(Clone, Debug, Default)]
pub struct Levels<'a> {
    levels: Vec<Level<'a>>,
}

#[derive(Clone, Debug)]
struct Level<'a> {
    number: u32,
    /// By smallest key.
    files: Vec<&'a SstFile>,
    /// Whether no two overlap, as RocksDB promises below L0; then they can be searched.
    disjoint: bool,
}

impl<'a> Levels<'a> {
    /// Sorts the files of one column family into their levels.
    pub fn of(files: &[&'a SstFile]) -> Levels<'a> {
        let mut by_number: BTreeMap<u32, Vec<&SstFile>> = BTreeMap::new();
        for file in files {
            by_number.entry(file.level).or_default().push(file);
        }
        let level = |(number, mut files): (u32, Vec<&'a SstFile>)| {
            files.sort_by(|one, two| one.smallest.cmp(&two.smallest));
            let apart = |pair: &[&SstFile]| matches!(pair, [one, two] if one.largest < two.smallest);
            let in_order = files.iter().all(|file| file.smallest <= file.largest);
            let disjoint = in_order && files.windows(2).all(apart);
            Level { number, files, disjoint }
        };
        Levels { levels: by_number.into_iter().map(level).collect() }
    }

    /// Bytes of the files that `CompactRange` over `range` rewrites, each counted once.
    ///
    /// RocksDB goes down level by level. At each it takes the files that overlap the range, whole, and
    /// merges them with every file of the next level that overlaps any of them. In L0 a file that
    /// overlaps one that is taken is taken too, until nothing is added. The end of the range is
    /// inclusive, as it is in RocksDB.
    pub fn compaction_cost_bytes(&self, range: &KeyRange) -> u64 {
        let wanted = Span { smallest: range.begin.clone(), largest: range.end.clone() };
        let mut from_above: Option<Span> = None;
        let mut cost_bytes: u64 = 0;
        for level in &self.levels {
            let inputs = if level.number == 0 { expanded(&level.files, &wanted) } else { wanted.clone() };
            let mut next: Option<Span> = None;
            for file in level.near(&inputs, from_above.as_ref()) {
                let taken = inputs.overlaps(file);
                if taken || from_above.as_ref().is_some_and(|span| span.overlaps(file)) {
                    cost_bytes = cost_bytes.saturating_add(file.size_bytes);
                }
                if taken {
                    next.get_or_insert_with(|| Span::of(file)).extend(file);
                }
            }
            from_above = next;
        }
        cost_bytes
    }
}

impl<'a> Level<'a> {
    /// At least the files that overlap one of the spans.
    fn near(&self, one: &Span, other: Option<&Span>) -> &[&'a SstFile] {
        if !self.disjoint {
            return &self.files;
        }
        let hull = other.map_or(one.clone(), |other| one.hull(other));
        let first = self.files.partition_point(|file| file.largest < hull.smallest);
        let behind =
            self.files.partition_point(|file| hull.largest.as_ref().is_none_or(|end| file.smallest <= *end));
        self.files.get(first..behind).unwrap_or(&[])
    }
}

/// A closed interval of keys; `largest: None` is unbounded.
#[derive(Clone)]
struct Span {
    smallest: Key,
    largest: Option<Key>,
}

impl Span {
    fn of(file: &SstFile) -> Span {
        Span { smallest: file.smallest.clone(), largest: Some(file.largest.clone()) }
    }

    fn overlaps(&self, file: &SstFile) -> bool {
        file.largest >= self.smallest && self.largest.as_ref().is_none_or(|largest| file.smallest <= *largest)
    }

    fn hull(&self, other: &Span) -> Span {
        let largest = match (&self.largest, &other.largest) {
            (Some(one), Some(two)) => Some(one.max(two).clone()),
            _ => None,
        };
        Span { smallest: self.smallest.clone().min(other.smallest.clone()), largest }
    }

    fn extend(&mut self, file: &SstFile) {
        if file.smallest < self.smallest {
            self.smallest.clone_from(&file.smallest);
        }
        if self.largest.as_ref().is_some_and(|largest| *largest < file.largest) {
            self.largest = Some(file.largest.clone());
        }
    }
}

/// The span that L0's overlapping files grow to.
fn expanded(files: &[&SstFile], wanted: &Span) -> Span {
    let mut span = wanted.clone();
    let mut rest: Vec<&SstFile> = files.to_vec();
    loop {
        let (overlapping, others): (Vec<&SstFile>, Vec<&SstFile>) =
            rest.iter().copied().partition(|file| span.overlaps(file));
        if overlapping.is_empty() {
            return span;
        }
        overlapping.iter().for_each(|file| span.extend(file));
        rest = others;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn file(level: u32, smallest: &str, largest: &str, size_bytes: u64) -> SstFile {
        SstFile {
            number: 1,
            column_family: "default".to_owned(),
            level,
            size_bytes,
            entries: 0,
            deletions: 0,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    fn cost(files: &[SstFile], begin: &str, end: &str) -> u64 {
        let files: Vec<&SstFile> = files.iter().collect();
        let range = KeyRange::new(Key::new(begin), Some(Key::new(end))).unwrap();
        Levels::of(&files).compaction_cost_bytes(&range)
    }

    #[test]
    fn whole_files_of_all_levels_count() {
        let files =
            [file(0, "a", "c", 1), file(5, "b", "d", 10), file(6, "a", "b", 100), file(6, "c", "d", 1000)];
        assert_eq!(cost(&files, "c", "c0"), 1 + 10 + 100 + 1000);
        assert_eq!(cost(&files, "d0", "e"), 0);
    }

    #[test]
    fn a_wide_file_pulls_in_what_lies_below_it_but_not_below_that() {
        let files = [
            file(4, "a", "m", 1),
            file(5, "a", "b", 10),
            file(5, "c", "z", 100),
            file(6, "a", "m", 1000),
            file(6, "n", "z", 10_000),
        ];
        // The L4 file overlaps both L5 files; of these only the second overlaps the range and goes on down.
        assert_eq!(cost(&files, "d", "e"), 1 + 10 + 100 + 1000 + 10_000);
        assert_eq!(cost(&files, "a", "a0"), 1 + 10 + 100 + 1000);
    }

    #[test]
    fn overlapping_files_of_l0_are_drawn_in() {
        let files =
            [file(0, "a", "c", 1), file(0, "b", "f", 10), file(0, "e", "g", 100), file(0, "x", "z", 1000)];
        assert_eq!(cost(&files, "a", "a0"), 111);
    }

    #[test]
    fn the_end_is_inclusive() {
        assert_eq!(cost(&[file(6, "c", "d", 1)], "a", "c"), 1);
        assert_eq!(cost(&[file(6, "c", "d", 1)], "a", "b"), 0);
    }

    /// Disjoint files in some levels, now and then with a gap.
    fn levels_of_files() -> impl Strategy<Value = Vec<SstFile>> {
        let level = (1u32..4, proptest::collection::vec((0u8..4, 0u8..4), 0..12));
        proptest::collection::vec(level, 0..4).prop_map(|levels| {
            let mut files = Vec::new();
            for (number, level) in (0u32..).zip(levels) {
                let mut at = 0u8;
                for (index, (gap, length)) in level.1.into_iter().enumerate() {
                    let (smallest, largest) = (at + gap, at + gap + length);
                    let mut next = file(number + level.0, "", "", 1 << index);
                    (next.smallest, next.largest) = (Key::new([smallest]), Key::new([largest]));
                    files.push(next);
                    at = largest + 1;
                }
            }
            files
        })
    }

    proptest! {
        #[test]
        fn a_range_costs_at_least_what_overlaps_it_and_a_wider_one_not_less(
            files in levels_of_files(),
            begin in 0u8..90,
            length in 1u8..20,
            wider in 0u8..9,
        ) {
            let levels = files.iter().collect::<Vec<_>>();
            let levels = Levels::of(&levels);
            let range = |begin: u8, end: u8| KeyRange::new(Key::new([begin]), Some(Key::new([end]))).unwrap();
            let narrow = range(begin, begin + length);
            let cost = levels.compaction_cost_bytes(&narrow);
            let overlaps = |file: &&SstFile| narrow.overlaps_closed(&file.smallest, &file.largest);
            prop_assert!(cost >= files.iter().filter(overlaps).map(|file| file.size_bytes).sum());
            prop_assert!(cost <= files.iter().map(|file| file.size_bytes).sum());
            let wide = range(begin.saturating_sub(wider), begin + length + wider);
            prop_assert!(levels.compaction_cost_bytes(&wide) >= cost);
        }

        #[test]
        fn searching_finds_what_scanning_does(
            files in levels_of_files(),
            begin in 0u8..90,
            length in 1u8..20,
        ) {
            let range = KeyRange::new(Key::new([begin]), Some(Key::new([begin + length]))).unwrap();
            let levels = files.iter().collect::<Vec<_>>();
            let searched = Levels::of(&levels);
            let mut scanned = searched.clone();
            scanned.levels.iter_mut().for_each(|level| level.disjoint = false);
            prop_assert_eq!(searched.compaction_cost_bytes(&range), scanned.compaction_cost_bytes(&range));
        }
    }
}
