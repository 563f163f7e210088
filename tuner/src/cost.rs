//! What compacting a range costs: bytes rewritten over all levels.

use crate::{evidence::SstFile, key::Key, range::KeyRange};
use std::collections::BTreeMap;

/// Bytes of the files that `CompactRange` over `range` rewrites, each counted once.
///
/// RocksDB goes down level by level. At each it takes the files that overlap the range, whole, and
/// merges them with every file of the next level that overlaps any of them. In L0 a file that overlaps
/// one that is taken is taken too, until nothing is added. The end of the range is inclusive, as it is
/// in RocksDB.
pub fn compaction_cost_bytes(files: &[&SstFile], range: &KeyRange) -> u64 {
    let mut levels: BTreeMap<u32, Vec<&SstFile>> = BTreeMap::new();
    for file in files {
        levels.entry(file.level).or_default().push(file);
    }
    let wanted = Span { smallest: range.begin.clone(), largest: range.end.clone() };
    let mut from_above: Option<Span> = None;
    let mut cost_bytes: u64 = 0;
    for (level, files) in &levels {
        let inputs = if *level == 0 { expanded(files, &wanted) } else { wanted.clone() };
        let mut next: Option<Span> = None;
        for file in files {
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
        compaction_cost_bytes(&files, &KeyRange::new(Key::new(begin), Some(Key::new(end))).unwrap())
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
}
