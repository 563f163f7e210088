//! Slices: a range cut into the parts that one compaction each takes.
//!
//! Cut at the borders of the files of that level which holds most of the range's bytes, so that no file is
//! rewritten for a sliver of it; neighbours are put together again where that costs no more than apart and
//! stays within the limit. Parts without tombstones are in no slice.

use crate::facts::evidence::SstFile;
use crate::facts::options::CompactionStyle;
use crate::facts::range::KeyRange;
use crate::lsm::cost::{Bottommost, Levels, Prediction};
use crate::lsm::share::split;
use crate::plan::remedy::are_in_memtables;
use crate::rank::RangeAssessment;
use crate::rank::candidate::shares;
use serde::{Deserialize, Serialize};

/// Most parts that a range is cut into before neighbours are put together: in slices of the default size that
/// is 64 GiB, more than any budget pays for in one plan.
pub const PARTS_MAX: usize = 1024;

/// What one compaction takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub range: KeyRange,
    /// What is done with the bottommost level's files.
    pub bottommost: Bottommost,
    /// Bytes that are rewritten, over all levels.
    pub cost_bytes: u64,
    /// Bytes that the largest job rewrites: so much room on the disk is needed meanwhile.
    pub largest_job_bytes: u64,
    /// Bytes that stay on the disk although they are rewritten: hard links elsewhere keep them.
    pub linked_bytes: u64,
    /// Deletions in it, estimated.
    pub deletions: u64,
}

/// What slices are cut from.
#[derive(Clone, Copy, Debug)]
pub struct SliceInput<'a> {
    /// The column family's files.
    pub levels: &'a Levels,
    /// The same for the statistics, see [`mod@crate::lsm::tombstone_placement`].
    pub parts: &'a [&'a SstFile],
    /// The range to cut.
    pub range: &'a KeyRange,
    /// Most bytes that a slice rewrites, but for one that no border divides.
    pub slice_bytes_max: u64,
    /// Whether the tombstones lie in memtables: then those that nothing lies below are flushed and moved down
    /// as they are, and only forcing the bottommost level removes them.
    pub are_in_memtables: bool,
}

/// Slices in the order of their keys: disjoint, inside the range, and together they cover every part of it in
/// which deletions are known to be, or all of it where none are known.
///
/// None costs more than the limit, unless it is a part between two neighbouring borders or costs no more than
/// one of its parts does by itself. With universal compaction there is one slice, all keys; with FIFO none.
pub fn slices(input: &SliceInput<'_>) -> Vec<Slice> {
    let whole = match input.levels.style() {
        CompactionStyle::Level => input.range.clone(),
        CompactionStyle::Universal => return vec![universal(input)],
        CompactionStyle::Fifo => return Vec::new(),
    };
    let borders = input.levels.borders(&whole);
    let step = (borders.len() + 1).div_ceil(PARTS_MAX).max(1);
    let borders: Vec<_> = borders.into_iter().skip(step - 1).step_by(step).collect();
    let ranges = split(&whole, &borders);
    let deletions: Vec<u64> = shares(&ranges, input.parts).into_iter().map(|share| share.deletions).collect();
    let are_known = deletions.iter().any(|deletions| *deletions > 0);
    let parts = ranges.into_iter().zip(deletions).filter(|(_, deletions)| *deletions > 0 || !are_known);
    let mut slices: Vec<Slice> = Vec::new();
    for (range, deletions) in parts {
        let part = slice(input, range, deletions);
        match slices.last_mut() {
            Some(last) => match together(input, last, &part) {
                Some(both) => *last = both,
                None => slices.push(part),
            },
            None => slices.push(part),
        }
    }
    slices
}

/// The one slice of whoever compacts the whole column family, whatever the range, and forces its bottommost
/// level: all keys, at what all files cost, for the range's deletions.
pub fn column_family(levels: &Levels, parts: &[&SstFile], range: &KeyRange) -> Slice {
    let everything = KeyRange::everything();
    let prediction = levels.predict(&everything, Bottommost::Force);
    Slice {
        range: everything,
        bottommost: Bottommost::Force,
        cost_bytes: prediction.read_bytes.max(levels.size_bytes()),
        largest_job_bytes: prediction.largest_job_bytes,
        linked_bytes: prediction.linked_bytes,
        deletions: deletions_in(range, parts),
    }
}

/// All files, in one job, whatever the range is.
fn universal(input: &SliceInput<'_>) -> Slice {
    slice(input, KeyRange::everything(), deletions_in(input.range, input.parts))
}

fn deletions_in(range: &KeyRange, parts: &[&SstFile]) -> u64 {
    shares(std::slice::from_ref(range), parts).first().map_or(0, |share| share.deletions)
}

fn slice(input: &SliceInput<'_>, range: KeyRange, deletions: u64) -> Slice {
    let (bottommost, prediction) = compaction(input.levels, &range, input.are_in_memtables);
    Slice {
        range,
        bottommost,
        cost_bytes: prediction.read_bytes,
        largest_job_bytes: prediction.largest_job_bytes,
        linked_bytes: prediction.linked_bytes,
        deletions,
    }
}

/// What compacting a slice takes with these files, and in which way it is done. `of` is the range that it was
/// cut from.
pub(crate) fn prediction_of(
    levels: &Levels,
    slice: &KeyRange,
    of: &RangeAssessment,
) -> (Bottommost, Prediction) {
    compaction(levels, slice, are_in_memtables(of))
}

fn compaction(levels: &Levels, range: &KeyRange, are_in_memtables: bool) -> (Bottommost, Prediction) {
    if are_in_memtables { levels.compaction_of_memtables(range) } else { levels.compaction(range) }
}

/// Two neighbours as one slice, where that is better: it costs no more, and is no larger than it may be or
/// than the larger of the two is anyway.
fn together(input: &SliceInput<'_>, one: &Slice, two: &Slice) -> Option<Slice> {
    let range = KeyRange { begin: one.range.begin.clone(), end: two.range.end.clone() };
    let both = slice(input, range, one.deletions.saturating_add(two.deletions));
    let most_bytes = input.slice_bytes_max.max(one.cost_bytes).max(two.cost_bytes);
    let apart_bytes = one.cost_bytes.saturating_add(two.cost_bytes);
    (both.cost_bytes <= apart_bytes && both.cost_bytes <= most_bytes).then_some(both)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::key::Key;
    use crate::facts::options::ColumnFamilyOptions;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;

    fn file(level: u32, smallest: u8, largest: u8, size_bytes: u64, deletions: u64) -> SstFile {
        SstFile {
            number: 1,
            column_family: "default".to_owned(),
            level,
            size_bytes,
            entries: 100,
            deletions,
            smallest: Key::new([smallest]),
            largest: Key::new([largest]),
        }
    }

    fn cut(files: &[SstFile], begin: u8, end: u8, slice_bytes_max: u64) -> Vec<Slice> {
        let files: Vec<&SstFile> = files.iter().collect();
        let levels = Levels::of(&files, &ColumnFamilyOptions::default());
        let range = KeyRange::new(Key::new([begin]), Some(Key::new([end]))).unwrap();
        let input = SliceInput {
            levels: &levels,
            parts: &files,
            range: &range,
            slice_bytes_max,
            are_in_memtables: false,
        };
        slices(&input)
    }

    /// Ten files of 64 KiB in the bottommost level.
    fn bottom() -> Vec<SstFile> {
        (0..10).map(|at| file(6, at * 10, at * 10 + 9, 64 * KIB, 50)).collect()
    }

    #[test]
    fn neighbours_go_together_up_to_the_limit() {
        let slices = cut(&bottom(), 0, 100, 192 * KIB);
        let costs: Vec<u64> = slices.iter().map(|slice| slice.cost_bytes / KIB).collect();
        assert_eq!(costs, [192, 192, 192, 64]);
        assert!(
            slices.iter().all(|slice| slice.bottommost == Bottommost::ForceOptimized && slice.deletions > 0)
        );
    }

    #[test]
    fn a_file_larger_than_the_limit_is_a_slice_by_itself() {
        let slices = cut(&bottom(), 0, 100, KIB);
        assert_eq!(slices.len(), 10);
        assert!(slices.iter().all(|slice| slice.cost_bytes == 64 * KIB));
    }

    #[test]
    fn neighbours_below_one_large_file_go_together_although_that_is_over_the_limit() {
        let mut files: Vec<SstFile> = (0..10).map(|at| file(6, at * 10, at * 10 + 9, KIB, 0)).collect();
        files.push(file(5, 0, 99, 512 * KIB, 50));
        assert_eq!(cut(&files, 0, 100, KIB).len(), 1);
    }

    #[test]
    fn parts_without_tombstones_are_left_out() {
        let mut files = bottom();
        files.iter_mut().filter(|file| file.smallest >= Key::new([30])).for_each(|file| file.deletions = 0);
        let slices = cut(&files, 0, 100, 1 << 20);
        assert_eq!(slices.len(), 1);
        assert_eq!(slices[0].range.end, Some(Key::new([29]).successor()));
        assert_eq!(slices[0].cost_bytes, 192 * KIB);
    }

    /// A part of the range's tombstones lies in one file of ten: all of them are paid for.
    #[test]
    fn a_column_family_costs_all_of_its_files() {
        let files = bottom();
        let files: Vec<&SstFile> = files.iter().collect();
        let levels = Levels::of(&files, &ColumnFamilyOptions::default());
        let range = KeyRange::new(Key::new([0]), Some(Key::new([10]))).unwrap();
        let whole = column_family(&levels, &files, &range);
        assert_eq!((whole.range, whole.bottommost), (KeyRange::everything(), Bottommost::Force));
        assert_eq!((whole.cost_bytes, whole.deletions), (640 * KIB, 50));
    }

    prop_compose! {
        fn files()(
            rows in proptest::collection::vec((0u8..8, 1u8..12, 1u64..1 << 20, 0u64..100, 1u32..7), 0..40),
        ) -> Vec<SstFile> {
            let mut ends = [0u8; 7];
            let mut files = Vec::new();
            for (gap, length, size_bytes, deletions, level) in rows {
                let end = &mut ends[usize::try_from(level).unwrap()];
                if let Some(next) = end.checked_add(gap + length + 1) {
                    files.push(file(level, *end + gap, *end + gap + length, size_bytes, deletions));
                    *end = next;
                }
            }
            files
        }
    }

    proptest! {
        #[test]
        fn slices_are_disjoint_cover_the_tombstones_and_keep_to_the_limit(
            files in files(),
            begin in 0u8..120,
            length in 1u8..120,
            slice_bytes_max in 1u64..1 << 22,
        ) {
            let range = KeyRange::new(Key::new([begin]), Some(Key::new([begin + length]))).unwrap();
            let slices = cut(&files, begin, begin + length, slice_bytes_max);
            prop_assert_eq!(&slices, &cut(&files, begin, begin + length, slice_bytes_max));
            let all: Vec<&SstFile> = files.iter().collect();
            let levels = Levels::of(&all, &ColumnFamilyOptions::default());
            let size_bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
            prop_assert!(column_family(&levels, &all, &range).cost_bytes >= size_bytes);
            for pair in slices.windows(2) {
                prop_assert!(pair[0].range.end.as_ref().is_some_and(|end| *end <= pair[1].range.begin));
            }
            for slice in &slices {
                prop_assert!(slice.range.begin >= range.begin);
                let (end, whole) = (slice.range.end.as_ref(), range.end.as_ref());
                prop_assert!(whole.is_none() || end.is_some_and(|end| Some(end) <= whole));
                prop_assert!(slice.largest_job_bytes <= slice.cost_bytes);
            }
            // No deletion of the range is outside of its slices.
            let inside = shares(std::slice::from_ref(&range), &all)[0].deletions;
            let sliced: u64 = slices.iter().map(|slice| slice.deletions).sum();
            prop_assert_eq!(sliced, inside);
            // What is over the limit is one part between two borders, or no dearer than one.
            let borders = levels.borders(&range);
            for slice in slices.iter().filter(|slice| slice.cost_bytes > slice_bytes_max) {
                let parts = split(&slice.range, &borders);
                let dearest = parts.iter().map(|part| levels.compaction_cost_bytes(part)).max();
                prop_assert!(dearest.is_some_and(|dearest| slice.cost_bytes <= dearest), "{slice:?}");
            }
        }
    }
}
