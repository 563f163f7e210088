//! What compacting a range costs: bytes that RocksDB rewrites, over all levels it goes through.

use crate::facts::evidence::SstFile;
use crate::facts::key::Key;
use crate::facts::options::{ColumnFamilyOptions, CompactionStyle};
use crate::facts::range::KeyRange;
use crate::lsm::compact_files::{CompactFiles, Part, Taken, Tree};
use crate::lsm::compaction_simulator::{Walk, Whole};
use crate::lsm::layout::{IndexMarksByFile, Layout};
use crate::lsm::placed::{File, Span};
use crate::lsm::ruler::Ruler;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most levels that are told apart; files below them count as in the last.
const LEVELS_MAX: usize = 64;

/// What is done with the files of the bottommost level that `CompactRange` arrives at, which hold tombstones
/// that nothing else removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottommost {
    /// `kIfHaveCompactionFilter`, RocksDB's default: nothing, where there is no filter.
    #[default]
    Default,
    /// `kForceOptimized`: those that the compaction has not just written are rewritten, but only up to the
    /// first that it has.
    ForceOptimized,
    /// `kForce`: all of them are rewritten.
    Force,
}

/// What a compaction would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Bytes of the files that its jobs read, and write again but for what they drop. A file that one job
    /// writes and the next one reads counts each time; a file that is only moved does not.
    pub read_bytes: u64,
    /// Bytes that the largest of its jobs reads: so much room on the disk it needs meanwhile.
    pub largest_job_bytes: u64,
    /// Bytes of the live files among these that hard links elsewhere keep on the disk when they are replaced.
    #[serde(default)]
    pub linked_bytes: u64,
    /// How many jobs it takes.
    pub jobs: u32,
    /// Deletions in the range's bottommost files that it leaves as they are.
    pub deletions_left: u64,
}

/// A column family's files, ready to be asked what a range costs.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    options: ColumnFamilyOptions,
    /// L0 first; from L1 on by smallest key.
    levels: Vec<Vec<File>>,
    ruler: Arc<Ruler>,
    /// The files' largest keys, in order.
    largest: Vec<Key>,
    whole: Whole,
    /// Whether files from L1 on do not overlap, as RocksDB promises.
    is_sound: bool,
    size_bytes: u64,
}

impl Levels {
    /// Sorts the files of one column family into their levels.
    pub fn of(files: &[&SstFile], options: &ColumnFamilyOptions) -> Levels {
        Levels::of_linked(files, options, &BTreeSet::new())
    }

    /// The same, where the files of these numbers have hard links elsewhere.
    pub fn of_linked(
        files: &[&SstFile],
        options: &ColumnFamilyOptions,
        linked_files: &BTreeSet<u64>,
    ) -> Levels {
        Levels::on(&Layout::of(files, &IndexMarksByFile::new(), []), files, options, linked_files)
    }

    /// The same of files that are laid out already.
    pub(crate) fn on(
        layout: &Layout,
        files: &[&SstFile],
        options: &ColumnFamilyOptions,
        linked_files: &BTreeSet<u64>,
    ) -> Levels {
        let place = |file: &SstFile| usize::try_from(file.level).unwrap_or(LEVELS_MAX).min(LEVELS_MAX - 1);
        let deepest = files.iter().map(|file| place(file)).max().unwrap_or(0);
        let stated = usize::try_from(options.num_levels).unwrap_or(LEVELS_MAX);
        let mut levels: Vec<Vec<File>> = vec![Vec::new(); stated.clamp(2, LEVELS_MAX).max(deepest + 1)];
        for (file, span) in files.iter().zip(&layout.places) {
            if let Some(level) = levels.get_mut(place(file)) {
                level.push(File::of(file, *span).linked(linked_files.contains(&file.number)));
            }
        }
        let order =
            |one: &File, two: &File| one.begin.total_cmp(&two.begin).then(one.end.total_cmp(&two.end));
        levels.iter_mut().for_each(|level| level.sort_by(order));
        let apart = |pair: &[File]| matches!(pair, [one, two] if one.end <= two.begin);
        let is_level0_disjoint = levels.first().is_none_or(|level| level.windows(2).all(apart));
        let size_bytes = files.iter().map(|file| file.size_bytes).fold(0, u64::saturating_add);
        let base_level = base_level(&levels, options);
        let whole = Whole { base_level, deepest, is_level0_disjoint };
        let is_sound = is_sound(files);
        let mut largest: Vec<Key> =
            files.iter().map(|file| (&file.largest).max(&file.smallest).clone()).collect();
        largest.sort();
        largest.dedup();
        let ruler = Arc::clone(&layout.ruler);
        Levels { options: options.clone(), levels, ruler, largest, whole, is_sound, size_bytes }
    }

    /// How the column family is compacted.
    pub fn style(&self) -> CompactionStyle {
        self.options.compaction_style
    }

    /// Bytes of all its files.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn options(&self) -> &ColumnFamilyOptions {
        &self.options
    }

    /// L0 first.
    pub(super) fn levels(&self) -> &[Vec<File>] {
        &self.levels
    }

    pub(super) fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// What `CompactRange` over `range` does in the way that `bottommost` says, going by the live files: what
    /// is in memtables it writes first, and that is not counted. The end of the range is inclusive, as it is
    /// in RocksDB.
    pub fn predict(&self, range: &KeyRange, bottommost: Bottommost) -> Prediction {
        match self.options.compaction_style {
            CompactionStyle::Level if self.is_sound => {
                Walk::new(&self.options, &self.levels, self.whole).compact(self.span(range), bottommost)
            }
            CompactionStyle::Level => self.all_that_overlap(range),
            CompactionStyle::Universal if self.size_bytes > 0 => Prediction {
                read_bytes: self.size_bytes,
                largest_job_bytes: self.size_bytes,
                linked_bytes: linked_bytes(self.levels.iter().flatten()),
                jobs: 1,
                deletions_left: 0,
            },
            CompactionStyle::Universal | CompactionStyle::Fifo => Prediction::default(),
        }
    }

    /// The cheapest way of compacting the range that leaves no deletion in its bottommost files as it is:
    /// these are forced only where they hold some, and plainly only where `kForceOptimized` would not reach
    /// them all.
    pub fn compaction(&self, range: &KeyRange) -> (Bottommost, Prediction) {
        self.least(range, &[Bottommost::Default, Bottommost::ForceOptimized])
    }

    /// The cheapest way that also removes what a flush brings down to the bottommost level: tombstones in
    /// memtables that nothing lies below are moved there as they are. Where files there hold others already,
    /// the flush can come to lie between them, and so all are forced.
    pub fn compaction_of_memtables(&self, range: &KeyRange) -> (Bottommost, Prediction) {
        match self.predict(range, Bottommost::Default).deletions_left {
            0 => self.least(range, &[Bottommost::ForceOptimized]),
            _ => self.least(range, &[]),
        }
    }

    /// The first of these ways that leaves no deletion, or plain force.
    fn least(&self, range: &KeyRange, ways: &[Bottommost]) -> (Bottommost, Prediction) {
        let predictions = ways.iter().map(|way| (*way, self.predict(range, *way)));
        let mut enough =
            predictions.filter(|(_, prediction)| prediction.deletions_left == 0 && self.is_sound);
        enough.next().unwrap_or_else(|| (Bottommost::Force, self.predict(range, Bottommost::Force)))
    }

    /// What `CompactFiles` can take of files with deletions in these keys: from each height on downwards.
    pub(crate) fn compact_files(&self, range: &KeyRange, parts: &[Part]) -> Vec<Taken> {
        self.tree().map_or_else(Vec::new, |tree| tree.all_of(&self.span(range), parts))
    }

    /// Where a range lies among the files.
    pub(crate) fn span(&self, range: &KeyRange) -> Span {
        Span::of_range(range, &self.ruler)
    }

    /// What a call of `CompactFiles` that was planned earlier takes now; `None` where one of its files is
    /// gone.
    pub fn compact_files_again(&self, compact: &CompactFiles) -> Option<Taken> {
        self.tree()?.again(compact)
    }

    /// Only where the rules are known by which RocksDB adds files.
    fn tree(&self) -> Option<Tree<'_>> {
        let is_known = self.options.compaction_style == CompactionStyle::Level && self.is_sound;
        let (levels, options, base_level) = (&self.levels, &self.options, self.whole.base_level);
        is_known.then_some(Tree { levels, options, base_level })
    }

    /// Bytes that [`Levels::compaction`] reads.
    pub fn compaction_cost_bytes(&self, range: &KeyRange) -> u64 {
        self.compaction(range).1.read_bytes
    }

    /// Keys behind the files of all levels, in order.
    ///
    /// Behind a file's largest key and not at the next one's smallest: RocksDB takes the end of a range to
    /// compact as inclusive and would draw the next file in.
    pub fn borders(&self) -> Vec<Key> {
        self.largest.iter().map(Key::successor).collect()
    }

    /// For files whose ends contradict each other (keys that were cut to a bound do): each that overlaps the
    /// range, once.
    fn all_that_overlap(&self, range: &KeyRange) -> Prediction {
        let span = self.span(range);
        let files = self.levels.iter().flatten().filter(|file| span.overlaps(file));
        let read_bytes = files.clone().map(File::size_bytes).fold(0, u64::saturating_add);
        let jobs = u32::from(read_bytes > 0);
        let linked_bytes = linked_bytes(files);
        Prediction { read_bytes, largest_job_bytes: read_bytes, linked_bytes, jobs, deletions_left: 0 }
    }
}

/// Whether files from L1 on share no more than a key with the next one.
fn is_sound(files: &[&SstFile]) -> bool {
    let mut deeper: Vec<(u32, &Key, &Key)> = files
        .iter()
        .filter(|file| file.level > 0)
        .map(|file| (file.level, &file.smallest, &file.largest))
        .collect();
    deeper.sort();
    deeper.windows(2).all(|pair| match pair {
        [one, two] => one.0 != two.0 || one.2.max(one.1) <= two.1.min(two.2),
        _ => true,
    })
}

/// Bytes of files that hard links elsewhere keep on the disk.
fn linked_bytes<'f>(files: impl Iterator<Item = &'f File>) -> u64 {
    files.map(File::linked_bytes).fold(0, u64::saturating_add)
}

/// Where L0 is compacted into (`VersionStorageInfo::CalculateBaseBytes`): L1, or, with dynamic level sizes,
/// the first level in use, and the one above it where that has grown out of its size.
pub(super) fn base_level(levels: &[Vec<File>], options: &ColumnFamilyOptions) -> usize {
    if !options.level_compaction_dynamic_level_bytes {
        return 1;
    }
    let bytes = |level: &Vec<File>| level.iter().map(File::size_bytes).fold(0, u64::saturating_add);
    let sizes: Vec<u64> = levels.iter().skip(1).map(bytes).collect();
    let Some(first) = sizes.iter().position(|bytes| *bytes > 0).map(|place| place + 1) else {
        return levels.len() - 1;
    };
    let multiplier = options.max_bytes_for_level_multiplier.max(1);
    let mut level_bytes = sizes.iter().copied().max().unwrap_or(0);
    for _ in first..levels.len() - 1 {
        level_bytes /= multiplier;
    }
    let mut base_level = first;
    while base_level > 1 && level_bytes > options.max_bytes_for_level_base {
        base_level -= 1;
        level_bytes /= multiplier;
    }
    base_level
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

    fn dying(level: u32, smallest: &str, largest: &str, size_bytes: u64) -> SstFile {
        SstFile { entries: 100, deletions: 50, ..file(level, smallest, largest, size_bytes) }
    }

    fn range(begin: &str, end: &str) -> KeyRange {
        KeyRange::new(Key::new(begin), Some(Key::new(end))).unwrap()
    }

    fn predict(files: &[SstFile], begin: &str, end: &str, bottommost: Bottommost) -> Prediction {
        let files: Vec<&SstFile> = files.iter().collect();
        Levels::of(&files, &ColumnFamilyOptions::default()).predict(&range(begin, end), bottommost)
    }

    fn cost(files: &[SstFile], begin: &str, end: &str) -> u64 {
        predict(files, begin, end, Bottommost::Force).read_bytes
    }

    #[test]
    fn a_bottommost_file_is_rewritten_only_where_that_is_forced() {
        let files = [file(6, "c", "d", 100)];
        assert_eq!(predict(&files, "c", "c0", Bottommost::Default).read_bytes, 0);
        assert_eq!(predict(&files, "c", "c0", Bottommost::ForceOptimized).read_bytes, 100);
        assert_eq!(cost(&files, "c", "c0"), 100);
        assert_eq!(cost(&files, "d0", "e"), 0);
    }

    #[test]
    fn what_was_written_on_the_way_down_is_read_again_only_by_plain_force() {
        let live = SstFile { entries: 1000, ..file(6, "c", "d", 1000) };
        let files = [dying(5, "a", "c", 10), file(6, "a", "b", 100), live];
        let walk = predict(&files, "a", "a0", Bottommost::Default);
        assert_eq!((walk.read_bytes, walk.jobs, walk.deletions_left), (1110, 1, 0));
        assert_eq!(predict(&files, "a", "a0", Bottommost::ForceOptimized).read_bytes, 1110);
        let forced = predict(&files, "a", "a0", Bottommost::Force);
        assert!(forced.read_bytes > 1110 && forced.jobs == 2, "{forced:?}");
    }

    #[test]
    fn a_wide_file_pulls_in_what_lies_below_it_and_what_comes_of_that_goes_on_down() {
        let files = [
            file(4, "a", "m", 1),
            file(5, "a", "b", 10),
            file(5, "c", "z", 100),
            file(6, "a", "m", 1000),
            file(6, "n", "z", 10_000),
        ];
        // The L4 file merges with both of L5 into one file, and that with both of L6.
        let walk = predict(&files, "d", "e", Bottommost::Default);
        assert_eq!((walk.jobs, walk.read_bytes), (2, 111 + 111 + 11_000));
        assert_eq!(walk.largest_job_bytes, 11_111);
    }

    /// A file that the compaction has written itself has no link yet, and a file that is only moved is not
    /// replaced.
    #[test]
    fn files_that_hard_links_keep_are_counted_once() {
        let numbered = |number, level, smallest, largest, size_bytes| SstFile {
            number,
            ..file(level, smallest, largest, size_bytes)
        };
        let files = [
            numbered(1, 4, "a", "m", 1),
            numbered(2, 5, "a", "z", 10),
            numbered(3, 6, "a", "z", 1000),
            numbered(4, 6, "zz", "zzz", 10_000),
        ];
        let files: Vec<&SstFile> = files.iter().collect();
        let options = ColumnFamilyOptions::default();
        let predict = |linked: &[u64]| {
            let linked = linked.iter().copied().collect();
            Levels::of_linked(&files, &options, &linked).predict(&range("a", "b"), Bottommost::Default)
        };
        let both = predict(&[2, 3, 4]);
        assert_eq!((both.read_bytes, both.linked_bytes), (11 + 11 + 1000, 1010));
        assert_eq!(predict(&[]).linked_bytes, 0);
        let moved = [numbered(1, 5, "a", "c", 100)];
        let moved: Vec<&SstFile> = moved.iter().collect();
        let levels = Levels::of_linked(&moved, &options, &[1].into());
        assert_eq!(levels.predict(&range("a", "b"), Bottommost::Default).linked_bytes, 0);
        assert_eq!(levels.predict(&range("a", "b"), Bottommost::Force).linked_bytes, 100);
    }

    #[test]
    fn overlapping_files_of_l0_are_drawn_in() {
        let files =
            [file(0, "a", "c", 1), file(0, "b", "f", 10), file(0, "e", "g", 100), file(0, "x", "z", 1000)];
        assert_eq!(predict(&files, "a", "a0", Bottommost::Default).read_bytes, 111);
    }

    #[test]
    fn files_with_nothing_below_are_moved_for_nothing_and_keep_their_tombstones() {
        let files = [dying(5, "a", "c", 1 << 20)];
        let moved = predict(&files, "a", "b", Bottommost::Default);
        assert_eq!((moved.read_bytes, moved.jobs, moved.deletions_left), (0, 0, 50));
        let files: Vec<&SstFile> = files.iter().collect();
        let levels = Levels::of(&files, &ColumnFamilyOptions::default());
        assert_eq!(levels.compaction(&range("a", "b")).0, Bottommost::ForceOptimized);
        assert_eq!(levels.compaction_cost_bytes(&range("a", "b")), 1 << 20);
        // With a compaction filter they are rewritten instead, and lose them on the way.
        let options = ColumnFamilyOptions { has_compaction_filter: true, ..ColumnFamilyOptions::default() };
        let filtered = Levels::of(&files, &options).predict(&range("a", "b"), Bottommost::Default);
        assert_eq!((filtered.read_bytes, filtered.deletions_left), (1 << 20, 0));
    }

    /// As RocksDB does it: a larger one is rewritten on its way, but for the last step.
    #[test]
    fn a_file_larger_than_a_job_is_moved_only_into_the_last_level() {
        let files = [dying(4, "a", "c", 1 << 20)];
        let files: Vec<&SstFile> = files.iter().collect();
        let jobs = |max_compaction_bytes| {
            let options = ColumnFamilyOptions {
                max_compaction_bytes,
                level_compaction_dynamic_level_bytes: true,
                ..ColumnFamilyOptions::default()
            };
            Levels::of(&files, &options).predict(&range("a", "b"), Bottommost::Default).jobs
        };
        assert_eq!((jobs(1 << 20), jobs((1 << 20) - 1)), (0, 1));
    }

    /// `kForceOptimized` stops at the first file that the compaction has written.
    #[test]
    fn plain_force_is_taken_where_what_was_written_lies_between_tombstones() {
        let live = SstFile { entries: 1000, ..file(6, "c", "d", 1000) };
        let files = [dying(6, "a", "b", 100), dying(5, "c", "d", 10), live];
        let (before, between) = (&files[..], &[&files[..], &[dying(6, "e", "f", 100)]].concat()[..]);
        let way = |files: &[SstFile]| {
            let files: Vec<&SstFile> = files.iter().collect();
            Levels::of(&files, &ColumnFamilyOptions::default()).compaction(&range("a", "f"))
        };
        assert_eq!((way(before).0, way(before).1.deletions_left), (Bottommost::ForceOptimized, 0));
        assert_eq!(predict(between, "a", "f", Bottommost::ForceOptimized).deletions_left, 50);
        assert_eq!((way(between).0, way(between).1.deletions_left), (Bottommost::Force, 0));
    }

    /// The job that meets the tombstones drops them all: there is nothing left for a second one to rewrite.
    #[test]
    fn a_file_of_nothing_but_tombstones_leaves_nothing() {
        let tombstones = SstFile { entries: 1000, deletions: 1000, ..file(0, "x0", "x9", 1 << 22) };
        let other = SstFile { entries: 1000, deletions: 1000, ..file(0, "x5", "z", 1 << 22) };
        let forced = predict(&[tombstones, other], "x0", "x1", Bottommost::Force);
        assert_eq!((forced.read_bytes, forced.jobs, forced.deletions_left), (2 << 22, 1, 0));
    }

    #[test]
    fn what_memtables_hold_is_forced_out() {
        let way = |files: &[SstFile]| {
            let files: Vec<&SstFile> = files.iter().collect();
            Levels::of(&files, &ColumnFamilyOptions::default()).compaction_of_memtables(&range("a", "b")).0
        };
        assert_eq!(way(&[file(6, "a", "b", 100)]), Bottommost::ForceOptimized);
        assert_eq!(way(&[dying(6, "a", "b", 100)]), Bottommost::Force);
    }

    #[test]
    fn a_compaction_is_done_in_jobs_of_a_limited_size() {
        let files: Vec<SstFile> = (0..8)
            .flat_map(|at| {
                let (from, to) = (format!("{at}0"), format!("{at}9"));
                [file(5, &from, &to, 10), file(6, &from, &to, 100)]
            })
            .collect();
        let files: Vec<&SstFile> = files.iter().collect();
        let options = ColumnFamilyOptions { max_compaction_bytes: 250, ..ColumnFamilyOptions::default() };
        let limited = Levels::of(&files, &options).predict(&range("0", "9"), Bottommost::Default);
        assert_eq!((limited.read_bytes, limited.jobs, limited.largest_job_bytes), (880, 4, 220));
    }

    #[test]
    fn universal_compaction_takes_everything_and_fifo_nothing() {
        let files = [file(0, "a", "b", 1), file(6, "x", "z", 10)];
        let files: Vec<&SstFile> = files.iter().collect();
        let with = |compaction_style| {
            let options = ColumnFamilyOptions { compaction_style, ..ColumnFamilyOptions::default() };
            Levels::of(&files, &options).compaction_cost_bytes(&range("a", "b"))
        };
        assert_eq!(with(CompactionStyle::Universal), 11);
        assert_eq!(with(CompactionStyle::Fifo), 0);
    }

    #[test]
    fn l0_goes_into_the_first_level_in_use_or_above_it() {
        let base = |files: &[SstFile], is_dynamic| {
            let files: Vec<&SstFile> = files.iter().collect();
            let options = ColumnFamilyOptions {
                level_compaction_dynamic_level_bytes: is_dynamic,
                ..Default::default()
            };
            Levels::of(&files, &options).whole.base_level
        };
        assert_eq!(base(&[], true), 6);
        assert_eq!(base(&[file(6, "a", "b", 1 << 20)], true), 6);
        assert_eq!(base(&[file(5, "a", "b", 1), file(6, "a", "b", 1 << 20)], true), 5);
        // 1 GiB at the bottom wants a level above it.
        assert_eq!(base(&[file(6, "a", "b", 1 << 30)], true), 5);
        assert_eq!(base(&[file(6, "a", "b", 1 << 30)], false), 1);
    }

    #[test]
    fn borders_lie_behind_the_files_of_all_levels() {
        let files =
            [file(5, "a", "e", 1), file(5, "f", "g", 1), file(6, "a", "b", 100), file(6, "c", "e", 100)];
        let files: Vec<&SstFile> = files.iter().collect();
        let levels = Levels::of(&files, &ColumnFamilyOptions::default());
        assert_eq!(levels.borders(), ["b", "e", "g"].map(|key| Key::new(key).successor()));
    }

    /// Disjoint files in some levels, now and then with a gap.
    fn levels_of_files() -> impl Strategy<Value = Vec<SstFile>> {
        let level = (1u32..4, proptest::collection::vec((0u8..4, 0u8..4, 0u64..50), 0..12));
        proptest::collection::vec(level, 0..4).prop_map(|levels| {
            let mut files = Vec::new();
            for (number, level) in (0u32..).zip(levels) {
                let mut at = 0u8;
                for (index, (gap, length, deletions)) in level.1.into_iter().enumerate() {
                    let (smallest, largest) = (at + gap, at + gap + length);
                    let mut next = file(number + level.0, "", "", 1000 << index);
                    (next.smallest, next.largest) = (Key::new([smallest]), Key::new([largest]));
                    (next.entries, next.deletions) = (100, deletions);
                    files.push(next);
                    at = largest + 1;
                }
            }
            files
        })
    }

    proptest! {
        #[test]
        fn a_compaction_leaves_no_deletion_behind_and_forcing_costs_no_less(
            files in levels_of_files(),
            begin in 0u8..90,
            length in 1u8..20,
            is_dynamic: bool,
            max_compaction_bytes in prop_oneof![Just(u64::MAX), 1u64..100_000],
        ) {
            let options = ColumnFamilyOptions {
                level_compaction_dynamic_level_bytes: is_dynamic,
                max_compaction_bytes,
                target_file_size_base: 10_000,
                ..ColumnFamilyOptions::default()
            };
            let files: Vec<&SstFile> = files.iter().collect();
            let levels = Levels::of(&files, &options);
            let range = KeyRange::new(Key::new([begin]), Some(Key::new([begin + length]))).unwrap();
            let gentle = levels.predict(&range, Bottommost::Default);
            let optimized = levels.predict(&range, Bottommost::ForceOptimized);
            let forced = levels.predict(&range, Bottommost::Force);
            prop_assert!(gentle.read_bytes <= optimized.read_bytes && optimized.read_bytes <= forced.read_bytes);
            prop_assert_eq!(levels.compaction(&range).1.deletions_left, 0);
            for prediction in [gentle, optimized, forced] {
                prop_assert!(prediction.largest_job_bytes <= prediction.read_bytes);
                prop_assert_eq!(prediction.jobs == 0, prediction.read_bytes == 0);
            }
            // Forced, every file that overlaps the range is read.
            let closed = |file: &&&SstFile| file.smallest <= Key::new([begin + length]) && file.largest >= range.begin;
            let overlapping: u64 = files.iter().filter(closed).map(|file| file.size_bytes).sum();
            prop_assert!(forced.read_bytes >= overlapping);
        }
    }
}
