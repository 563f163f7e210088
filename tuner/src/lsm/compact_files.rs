//! What RocksDB's `CompactFiles` takes, and what it costs (level style).
//!
//! It merges the files that it is given into one level, each read once: without a flush, and without the
//! levels on the way. So that levels stay consistent RocksDB adds to them
//! (`CompactionPicker::SanitizeCompactionInputFilesForAllLevels`): in L0 whatever is older, in each other
//! level what lies between the first and the last of them, and down to the output level what shares keys with
//! all of that. Here the files are chosen so that it adds none.
//!
//! A tombstone goes only where nothing is left below it. So from some height on everything is taken that
//! overlaps the keys, down to the deepest level that has any of it. What lies above that height stays as it
//! is, tombstones and all.

use crate::facts::evidence::SstFile;
use crate::facts::options::ColumnFamilyOptions;
use crate::lsm::cost::{Levels, Prediction};
use crate::lsm::placed::{File, Span};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Most files in one call: its list goes through a frame of the hook's protocol.
pub const FILES_MAX: usize = 256;

/// Most bytes that one call reads. Nothing stops it once it runs, and whoever closes the database waits for
/// its end: as much as two slices of the default size, a second or two of most disks.
pub const BYTES_MAX: u64 = 128 << 20;

/// Most heights in L0 that are looked at: a column family with more files there is about to stall.
const HEIGHTS_MAX: usize = 16;

/// The files of one call, and where they go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactFiles {
    /// Their numbers, in order.
    pub files: Vec<u64>,
    pub output_level: u32,
    /// Most bytes of a file that it writes: without a limit it writes one.
    pub output_file_bytes: u64,
}

/// Files that go together.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    pub compact: CompactFiles,
    pub prediction: Prediction,
    /// What goes with the deletions in these files.
    pub relief: f64,
}

/// Keys, and what is relieved when the deletions in them go, whichever files have them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) span: Span,
    pub(crate) relief: f64,
}

/// From where on downwards files are taken.
#[derive(Clone, Copy)]
enum Height {
    /// From this file of L0 on, which has that number.
    Level0(u64),
    Level(usize),
}

/// A column family's levels, L0 first; from L1 on by smallest key and disjoint.
#[derive(Clone, Copy)]
pub(super) struct Tree<'l> {
    pub(super) levels: &'l [Vec<File>],
    pub(super) options: &'l ColumnFamilyOptions,
    /// Where L0 is compacted into.
    pub(super) base_level: usize,
}

impl<'l> Tree<'l> {
    /// One for each height from which on there are deletions in these keys; none that takes too much.
    pub(super) fn all_of(self, span: &Span, parts: &[Part]) -> Vec<Taken> {
        let taken = self.heights(span).into_iter().filter_map(|height| self.from(height, span));
        let taken = taken.filter_map(|(output, files)| taken_of(self, output, &files));
        let relieving =
            taken.map(|taken| Taken { relief: self.relief(parts, &taken.compact.files), ..taken });
        relieving.collect()
    }

    fn heights(self, span: &Span) -> Vec<Height> {
        let of_level0 = self.files(0).iter().filter(|file| file.deletions > 0 && span.overlaps(file));
        let mut newest_first: Vec<u64> = of_level0.map(|file| file.number).collect();
        newest_first.sort_unstable_by(|one, two| two.cmp(one));
        let step = newest_first.len().div_ceil(HEIGHTS_MAX).max(1);
        let of_level0 = newest_first.into_iter().step_by(step).map(Height::Level0);
        let levels = (1..self.levels.len()).filter(|level| {
            self.own(*level, self.overlapping(*level, span)).iter().any(|file| file.deletions > 0)
        });
        of_level0.chain(levels.map(Height::Level)).collect()
    }

    /// What goes with the deletions in files of these numbers, which are in order.
    fn relief(self, parts: &[Part], taken: &[u64]) -> f64 {
        let of_part = |part: &Part| {
            let below =
                (1..self.levels.len()).flat_map(|level| self.own(level, self.overlapping(level, &part.span)));
            let of_level0 = self.files(0).iter().filter(|file| part.span.overlaps(file));
            let (mut in_taken, mut in_all) = (0.0, 0.0);
            for file in of_level0.chain(below) {
                let deletions = deletions_in(file, &part.span);
                in_all += deletions;
                in_taken += if taken.binary_search(&file.number).is_ok() { deletions } else { 0.0 };
            }
            if in_all > 0.0 { part.relief * (in_taken / in_all) } else { 0.0 }
        };
        parts.iter().map(of_part).sum()
    }

    /// The files of these numbers, and what RocksDB adds to them; `None` where one is gone.
    pub(super) fn again(self, compact: &CompactFiles) -> Option<Taken> {
        let is_planned = |file: &File| compact.files.binary_search(&file.number).is_ok();
        let output = usize::try_from(compact.output_level).ok().filter(|level| *level < self.levels.len())?;
        let there = self.levels.iter().take(output + 1).flatten().filter(|file| is_planned(file)).count();
        let newest = self.files(0).iter().filter(|file| is_planned(file)).map(|file| file.number).max();
        let runs = (1..=output).map(|level| {
            let files = self.files(level);
            let first = files.iter().position(is_planned);
            let last = files.iter().rposition(is_planned);
            first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
        });
        let files = self.consistent(newest, runs.collect())?.1;
        let taken = taken_of(self, output, &files)?;
        (there == compact.files.len()).then_some(taken)
    }

    /// What is taken from a height on, and the level that it goes to: the deepest that has any of it.
    fn from(self, height: Height, span: &Span) -> Option<(usize, Vec<&'l File>)> {
        let (newest, first) = match height {
            Height::Level0(number) => (Some(number), 1),
            Height::Level(level) => (None, level),
        };
        let deepest = |span: &Span| {
            let below = (1..self.levels.len()).rev();
            below.into_iter().find(|level| !self.overlapping(*level, span).is_empty()).unwrap_or(0)
        };
        let least = if newest.is_some() { self.base_level.min(self.levels.len() - 1) } else { 1 };
        let mut output = deepest(span).max(least);
        loop {
            let seeds =
                (1..=output).map(|level| if level < first { 0..0 } else { self.overlapping(level, span) });
            let (hull, files) = self.consistent(newest, seeds.collect())?;
            match deepest(&hull) {
                deeper if deeper > output => output = deeper,
                _ => return Some((output, files)),
            }
        }
    }

    /// The files of L0 up to a number and runs of the levels from L1 on, with what has to go with them; and
    /// all keys from the first to the last.
    fn consistent(self, newest: Option<u64>, mut runs: Vec<Range<usize>>) -> Option<(Span, Vec<&'l File>)> {
        let is_taken = |file: &&File| newest.is_some_and(|newest| file.number <= newest);
        let mut files: Vec<&File> = self.files(0).iter().filter(is_taken).collect();
        let mut hull = Span::hull(files.iter().copied());
        let add = |runs: &mut [Range<usize>], from: usize, hull: &Span| {
            for (level, run) in (1..).zip(runs).skip(from - 1) {
                *run = joined(run, &self.overlapping(level, hull));
            }
        };
        hull.iter().for_each(|hull| add(&mut runs, 1, hull));
        for level in 1..=runs.len() {
            let run = runs.get(level - 1).filter(|run| !run.is_empty()).cloned();
            let Some(run) = run.map(|run| touching(self.files(level), run)) else { continue };
            let own = Span::hull(self.own(level, run.clone()))?;
            let all = hull
                .map_or(own, |hull| Span { begin: hull.begin.min(own.begin), end: hull.end.max(own.end) });
            *runs.get_mut(level - 1)? = run;
            add(&mut runs, level, &all);
            hull = Some(all);
        }
        for (level, run) in (1..).zip(runs) {
            files.extend(self.own(level, run));
        }
        Some((hull?, files))
    }

    fn files(self, level: usize) -> &'l [File] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    fn own(self, level: usize, run: Range<usize>) -> &'l [File] {
        self.files(level).get(run).unwrap_or(&[])
    }

    /// From L1 on: where those lie that overlap a span.
    fn overlapping(self, level: usize, span: &Span) -> Range<usize> {
        let files = self.files(level);
        let first = files.partition_point(|file| file.end <= span.begin);
        let behind = files.partition_point(|file| file.begin < span.end);
        first..behind.max(first)
    }
}

/// With neighbours that begin or end at the same key.
fn touching(files: &[File], run: Range<usize>) -> Range<usize> {
    let touches = |at: usize| match (files.get(at), files.get(at + 1)) {
        (Some(one), Some(next)) => one.end > next.begin,
        _ => false,
    };
    let (mut first, mut behind) = (run.start, run.end);
    while first > 0 && touches(first - 1) {
        first -= 1;
    }
    while touches(behind - 1) {
        behind += 1;
    }
    first..behind
}

/// From the first of two runs to the last.
fn joined(one: &Range<usize>, two: &Range<usize>) -> Range<usize> {
    match (one.is_empty(), two.is_empty()) {
        (true, _) => two.clone(),
        (_, true) => one.clone(),
        _ => one.start.min(two.start)..one.end.max(two.end),
    }
}

/// A file's deletions in some keys, as if they lay evenly among its entries.
fn deletions_in(file: &File, span: &Span) -> f64 {
    let length = (file.end - file.begin).max(f64::MIN_POSITIVE);
    let inside = (file.end.min(span.end) - file.begin.max(span.begin)).clamp(0.0, length);
    file.deletions as f64 * (inside / length)
}

/// The call for these files; `None` where it is too large, or there is nothing to do.
fn taken_of(tree: Tree<'_>, output: usize, files: &[&File]) -> Option<Taken> {
    let sum = |of: fn(&File) -> u64| files.iter().map(|file| of(file)).fold(0, u64::saturating_add);
    let read_bytes = sum(File::size_bytes);
    if files.is_empty() || files.len() > FILES_MAX || read_bytes > BYTES_MAX {
        return None;
    }
    let mut numbers: Vec<u64> = files.iter().map(|file| file.number).collect();
    numbers.sort_unstable();
    Some(Taken {
        compact: CompactFiles {
            files: numbers,
            output_level: u32::try_from(output).ok()?,
            output_file_bytes: tree.options.target_file_size(output, tree.base_level),
        },
        prediction: Prediction {
            read_bytes,
            largest_job_bytes: read_bytes,
            linked_bytes: sum(File::linked_bytes),
            jobs: 1,
            deletions_left: 0,
        },
        relief: 0.0,
    })
}

/// Whether `CompactFiles` would take exactly these files of a column family as they are now: all are there,
/// and nothing has come to lie among them.
pub fn is_as_planned(files: &[&SstFile], compact: &CompactFiles) -> bool {
    // Which files go together is no matter of options.
    let now = Levels::of(files, &ColumnFamilyOptions::default()).compact_files_again(compact);
    now.is_some_and(|now| now.compact.files == compact.files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::key::Key;
    use crate::facts::range::KeyRange;

    fn file(number: u64, level: u32, keys: (u8, u8), deletions: u64) -> SstFile {
        SstFile {
            number,
            column_family: "cf".to_owned(),
            level,
            size_bytes: 1 << number,
            entries: 100,
            deletions,
            smallest: Key::new([keys.0]),
            largest: Key::new([keys.1]),
        }
    }

    fn levels(files: &[SstFile]) -> Levels {
        Levels::of(&files.iter().collect::<Vec<_>>(), &ColumnFamilyOptions::default())
    }

    fn taken(files: &[SstFile], begin: u8, end: u8) -> Vec<(Vec<u64>, u32)> {
        let range = KeyRange::new(Key::new([begin]), Some(Key::new([end]))).unwrap();
        let taken = levels(files).compact_files(&range, &[]);
        taken.into_iter().map(|taken| (taken.compact.files, taken.compact.output_level)).collect()
    }

    /// Two files of L0 over three levels.
    fn tree() -> Vec<SstFile> {
        vec![
            file(9, 0, (10, 30), 10),
            file(8, 0, (60, 90), 0),
            file(7, 0, (20, 25), 10),
            file(6, 5, (0, 21), 0),
            file(5, 6, (0, 9), 0),
            file(4, 6, (10, 24), 0),
            file(3, 6, (25, 40), 0),
            file(2, 6, (50, 99), 50),
        ]
    }

    #[test]
    fn from_each_height_on_everything_is_taken_that_overlaps() {
        // The newest file of L0 takes along the older ones, and with these all there is.
        let all = (vec![2, 3, 4, 5, 6, 7, 8, 9], 6);
        assert_eq!(taken(&tree(), 22, 24), [all, (vec![3, 4, 5, 6, 7], 6)]);
        assert_eq!(taken(&tree(), 26, 28), [(vec![2, 3, 4, 5, 6, 7, 8, 9], 6)]);
        assert_eq!(taken(&tree(), 60, 70), [(vec![2], 6)]);
        assert_eq!(taken(&tree(), 100, 110), []);
    }

    #[test]
    fn files_that_share_a_key_stay_together() {
        let files = [file(1, 6, (0, 10), 1), file(2, 6, (10, 20), 0), file(3, 6, (21, 30), 0)];
        assert_eq!(taken(&files, 1, 2), [(vec![1, 2], 6)]);
    }

    #[test]
    fn what_is_too_large_to_run_to_its_end_is_left() {
        let wide = SstFile { size_bytes: BYTES_MAX, ..file(3, 6, (0, 5), 1) };
        assert_eq!(taken(std::slice::from_ref(&wide), 0, 5).len(), 1);
        assert_eq!(taken(&[wide, file(4, 6, (6, 9), 1), file(5, 5, (4, 7), 1)], 0, 5), [(vec![3], 6)]);
    }

    /// Into the level that L0 goes to where nothing lies below.
    #[test]
    fn tombstones_with_nothing_below_leave_l0() {
        assert_eq!(taken(&[file(1, 0, (0, 9), 5)], 0, 5), [(vec![1], 6)]);
        let options =
            ColumnFamilyOptions { level_compaction_dynamic_level_bytes: false, ..Default::default() };
        let range = KeyRange::everything();
        let level = |files: &[&SstFile]| {
            Levels::of(files, &options).compact_files(&range, &[])[0].compact.output_level
        };
        assert_eq!(level(&[&file(1, 0, (0, 9), 5)]), 1);
        assert_eq!(level(&[&file(2, 0, (0, 9), 5), &file(1, 3, (0, 9), 5)]), 3);
    }

    /// Part by part: what hurts in keys of one file goes with that one.
    #[test]
    fn the_relief_is_that_of_the_deletions_in_the_files_taken() {
        let files = [file(3, 5, (0, 9), 30), file(2, 6, (0, 9), 10), file(1, 6, (20, 29), 10)];
        let levels = levels(&files);
        let part = |begin: u8, end: u8, relief: f64| {
            let range = KeyRange::new(Key::new([begin]), Some(Key::new([end]))).unwrap();
            Part { span: levels.span(&range), relief }
        };
        let taken = levels.compact_files(&KeyRange::everything(), &[part(0, 9, 4.0), part(20, 29, 8.0)]);
        assert_eq!(taken.iter().map(|taken| taken.relief).collect::<Vec<_>>(), [12.0, 9.0]);
    }

    #[test]
    fn what_has_changed_since_is_seen() {
        let before = tree();
        let planned = CompactFiles { files: vec![3, 4, 5, 6, 7], output_level: 6, output_file_bytes: 1 };
        let is_as_planned = |files: &[SstFile]| {
            let files: Vec<&SstFile> = files.iter().collect();
            is_as_planned(&files, &planned)
        };
        assert!(is_as_planned(&before));
        let without = |number: u64| before.iter().filter(|file| file.number != number).cloned().collect();
        let gone: Vec<SstFile> = without(4);
        assert!(!is_as_planned(&gone), "a file is gone");
        let newer: Vec<SstFile> = [&before[..], &[file(20, 0, (0, 99), 1)]].concat();
        assert!(is_as_planned(&newer), "what is newer stays above");
        let among: Vec<SstFile> = [&before[..], &[file(20, 5, (22, 30), 1)]].concat();
        assert!(!is_as_planned(&among), "what lies between is taken along");
    }
}
