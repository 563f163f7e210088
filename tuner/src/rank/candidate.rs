//! Candidate ranges: how a column family's keys are cut.
//!
//! Cuts are made at the borders of prefixes that were observed, then at the SST borders of the level
//! that holds most bytes; neighbours are merged again while they are alike and small. So a range is
//! one thing to its owner (a bucket, a directory), and compacting it rewrites whole files, not slivers
//! of them. The file that painful operations came to an end in is a range by itself: tombstones that no
//! file knows yet lie there, and files around it have nothing to do with them.

use crate::facts::evidence::{Observation, SstFile};
use crate::facts::prefix::PrefixRule;
use crate::facts::{key::Key, range::KeyRange};
use crate::loss::read_time::events;
use crate::lsm::share::{Share, split};
use crate::lsm::tombstone_placement::Placement;
use std::collections::{BTreeMap, BTreeSet};

/// Most candidate ranges of one column family; attributing an operation may walk through all of them.
pub const CANDIDATES_MAX: usize = 4096;

/// Most prefixes that are cut out; each gives two borders that never go away, so twice this, with those of
/// [`ENDS_MAX`] and [`KEPT_RANGES_MAX`], stays below [`CANDIDATES_MAX`].
const PREFIXES_MAX: usize = 1024;

/// Most files that are cut out because operations came to an end in them; each gives two borders.
const ENDS_MAX: usize = 512;

/// Most SST borders that are looked at before neighbours are merged.
const SST_BORDERS_MAX: usize = 16_384;

/// Most ranges acted on lately whose borders are kept.
const KEPT_RANGES_MAX: usize = 256;

/// What candidates are cut from: one column family.
#[derive(Clone, Copy, Debug)]
pub struct CandidateInput<'a> {
    /// Its live files.
    pub files: &'a [&'a SstFile],
    /// What they hold where.
    pub placement: &'a Placement,
    /// Painful operations in it.
    pub observations: &'a [&'a Observation],
    /// How its keys begin.
    pub prefix_rule: Option<PrefixRule>,
    /// Ranges that were acted on and wait for their verdict: they stay ranges of their own, so that
    /// before and after are the same keys.
    pub kept: &'a [&'a KeyRange],
    /// Roughly the most bytes of a candidate.
    pub range_bytes_max: u64,
    /// From this many deletions per entry on a range counts as dense; dense and sparse neighbours are
    /// not merged.
    pub density: f64,
}

/// Candidate ranges: in order, disjoint, covering all keys, at most [`CANDIDATES_MAX`].
pub fn candidates(input: &CandidateInput<'_>) -> Vec<KeyRange> {
    let level = widest_level(input.files);
    let widest: Vec<&SstFile> =
        input.files.iter().copied().filter(|file| Some(file.level) == level).collect();
    let sst_borders = sst_borders(&widest);
    let mut hard = hard_borders(input);
    hard.extend(borders_around_ends(input.observations, &sst_borders));
    let cuts: Vec<Key> = hard.iter().cloned().chain(sst_borders).collect();
    let pieces = pieces(split(&KeyRange::everything(), &cuts), input.placement, &widest);
    let ranges = merge(&pieces, &hard, input.range_bytes_max, Some(input.density));
    if ranges.len() <= CANDIDATES_MAX {
        return ranges;
    }
    let mut bytes_max = input.range_bytes_max.max(1);
    loop {
        let ranges = merge(&pieces, &hard, bytes_max, None);
        // At the greatest cap only hard borders are left, and these are few enough.
        if ranges.len() <= CANDIDATES_MAX || bytes_max == u64::MAX {
            return ranges;
        }
        bytes_max = bytes_max.saturating_mul(2);
    }
}

/// Borders that no merge takes away.
fn hard_borders(input: &CandidateInput<'_>) -> BTreeSet<Key> {
    let mut borders = BTreeSet::new();
    let mut keep = |range: &KeyRange| {
        borders.insert(range.begin.clone());
        borders.extend(range.end.clone());
    };
    input.kept.iter().rev().take(KEPT_RANGES_MAX).for_each(|range| keep(range));
    let Some(rule) = input.prefix_rule else { return borders };
    let mut tombstones: BTreeMap<Key, u64> = BTreeMap::new();
    for observation in input.observations {
        if let Some(prefix) = rule.prefix_of(&observation.key) {
            let sum = tombstones.entry(prefix).or_default();
            *sum = sum.saturating_add(observation.weighted().tombstones_skipped);
        }
    }
    let prefixes = with_most(tombstones, PREFIXES_MAX);
    prefixes.into_iter().for_each(|prefix| keep(&KeyRange::with_prefix(prefix)));
    borders
}

/// The SST borders next to where operations came to an end.
fn borders_around_ends(observations: &[&Observation], sst_borders: &[Key]) -> BTreeSet<Key> {
    // Between which two borders: the number of those up to it.
    let mut tombstones: BTreeMap<usize, u64> = BTreeMap::new();
    for observation in observations {
        let Some(end) = &observation.end_key else { continue };
        let sum = tombstones.entry(sst_borders.partition_point(|border| border <= end)).or_default();
        *sum = sum.saturating_add(events(observation).tombstones.saturating_mul(observation.weight));
    }
    tombstones.retain(|_, sum| *sum > 0);
    let ends = with_most(tombstones, ENDS_MAX).into_iter();
    let around = ends.flat_map(|index| [index.checked_sub(1), Some(index)]);
    around.flatten().filter_map(|index| sst_borders.get(index).cloned()).collect()
}

/// Those with most tombstones, at most so many; equal ones in their order, so that it is always the same.
fn with_most<Place: Ord>(tombstones: BTreeMap<Place, u64>, most: usize) -> Vec<Place> {
    let mut places: Vec<(Place, u64)> = tombstones.into_iter().collect();
    // Stable: the map's order stays where the sums are equal.
    places.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    places.into_iter().take(most).map(|(place, _)| place).collect()
}

/// The level that holds most bytes, the deepest of equal ones; `None` without files.
fn widest_level(files: &[&SstFile]) -> Option<u32> {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    for file in files {
        let sum = bytes.entry(file.level).or_default();
        *sum = sum.saturating_add(file.size_bytes);
    }
    bytes.into_iter().max_by_key(|(level, sum)| (*sum, *level)).map(|(level, _)| level)
}

/// Borders behind these files.
///
/// Behind a file's largest key and not at the next one's smallest: RocksDB takes the end of a range to
/// compact as inclusive and would draw the next file in.
fn sst_borders(files: &[&SstFile]) -> Vec<Key> {
    let borders: BTreeSet<Key> = files.iter().map(|file| file.largest.successor()).collect();
    let step = borders.len().div_ceil(SST_BORDERS_MAX).max(1);
    borders.into_iter().step_by(step).collect()
}

/// Which of some ranges, in order and covering all keys, a file overlaps.
fn overlapping(ranges: &[KeyRange], file: &SstFile) -> std::ops::Range<usize> {
    let first = ranges.partition_point(|range| range.end.as_ref().is_some_and(|end| *end <= file.smallest));
    let behind = ranges.partition_point(|range| range.begin <= file.largest);
    first..behind.max(first)
}

/// A part between two neighbouring borders.
struct Piece {
    range: KeyRange,
    share: Share,
    /// Whether a file of the widest level lies in it; if none does it is a gap, and goes with a neighbour.
    filled: bool,
}

fn pieces(ranges: Vec<KeyRange>, placement: &Placement, widest: &[&SstFile]) -> Vec<Piece> {
    let shares: Vec<Share> = ranges.iter().map(|range| placement.share(range)).collect();
    let mut filled = vec![false; ranges.len()];
    for file in widest {
        overlapping(&ranges, file)
            .filter_map(|index| filled.get_mut(index).map(|place| *place = true))
            .count();
    }
    let pieces = ranges.into_iter().zip(shares).zip(filled);
    pieces.map(|((range, share), filled)| Piece { range, share, filled }).collect()
}

fn merge(pieces: &[Piece], hard: &BTreeSet<Key>, bytes_max: u64, density: Option<f64>) -> Vec<KeyRange> {
    let mut merged: Vec<KeyRange> = Vec::new();
    let (mut sum, mut filled) = (Share::default(), false);
    for piece in pieces {
        let together = sum.plus(piece.share);
        let gap = !filled || !piece.filled;
        let alike = density.is_none_or(|limit| (sum.density() >= limit) == (piece.share.density() >= limit));
        let fits = gap || (alike && together.size_bytes <= bytes_max);
        match merged.last_mut() {
            Some(last) if fits && !hard.contains(&piece.range.begin) => {
                last.end.clone_from(&piece.range.end);
                (sum, filled) = (together, filled || piece.filled);
            }
            _ => {
                merged.push(piece.range.clone());
                (sum, filled) = (piece.share, piece.filled);
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::evidence::{Counters, SeekKind};
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(prop_oneof![Just(b'/'), b'a'..=b'c', any::<u8>()], 0..6).prop_map(Key::new)
    }

    fn file() -> impl Strategy<Value = SstFile> {
        (0u32..4, key(), key(), 0u64..1 << 30, 0u64..1000, 0u64..1000).prop_map(
            |(level, one, two, size_bytes, entries, deletions)| {
                let (smallest, largest) = if one <= two { (one, two) } else { (two, one) };
                let column_family = "default".to_owned();
                SstFile { number: 1, column_family, level, size_bytes, entries, deletions, smallest, largest }
            },
        )
    }

    fn observation((key, end_key): (Key, Option<Key>)) -> Observation {
        Observation {
            end_key,
            seek: Counters { tombstones_skipped: 1000, ..Counters::default() },
            seek_latency_ns: 1,
            ..Observation::at(SeekKind::Seek, key)
        }
    }

    proptest! {
        #[test]
        fn candidates_are_in_order_disjoint_and_cover_all_keys(
            files in proptest::collection::vec(file(), 0..20),
            ends in proptest::collection::vec((key(), proptest::option::of(key())), 0..20),
            kept in proptest::option::of((key(), proptest::option::of(key()))),
            range_bytes_max: u64,
        ) {
            let observations: Vec<Observation> = ends.into_iter().map(observation).collect();
            let rule = PrefixRule::Delimiter { delimiter: b'/', count: 2 };
            let kept = kept.and_then(|(begin, end)| KeyRange::new(begin, end));
            let (files, seen) = (files.iter().collect::<Vec<_>>(), observations.iter().collect::<Vec<_>>());
            let ranges = candidates(&CandidateInput {
                files: &files,
                placement: &Placement::of(&files, &seen, None),
                observations: &seen,
                prefix_rule: Some(rule),
                kept: &kept.iter().collect::<Vec<_>>(),
                range_bytes_max,
                density: 0.1,
            });
            prop_assert!(ranges.len() <= CANDIDATES_MAX);
            prop_assert_eq!(&ranges.first().unwrap().begin, &Key::default());
            prop_assert_eq!(&ranges.last().unwrap().end, &None);
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].end.as_ref(), Some(&pair[1].begin));
                prop_assert!(pair[0].begin < pair[1].begin);
            }
            // No candidate reaches over the border of a prefix that was observed, or of a kept range.
            let prefixes = observations.iter().filter_map(|observation| rule.prefix_of(&observation.key)).map(KeyRange::with_prefix);
            for whole in prefixes.chain(kept) {
                for range in &ranges {
                    let begins_inside = range.begin < whole.begin && range.contains(&whole.begin);
                    let inside = |end: &Key| range.begin < *end && range.contains(end);
                    let ends_inside = whole.end.as_ref().is_some_and(inside);
                    prop_assert!(!begins_inside && !ends_inside, "{:?} {:?}", whole, range);
                }
            }
        }
    }

    /// Files of 1 MiB with ten entries each: `[0000 .. 0009]`, `[0010 .. 0019]` and so on.
    fn row_of_files(count: u64, deletions: fn(u64) -> u64) -> Vec<SstFile> {
        let file = |index| SstFile {
            number: index,
            column_family: "default".to_owned(),
            level: 6,
            size_bytes: 1 << 20,
            entries: 10,
            deletions: deletions(index),
            smallest: Key::new(format!("{:08}", index * 10)),
            largest: Key::new(format!("{:08}", index * 10 + 9)),
        };
        (0..count).map(file).collect()
    }

    fn cut(files: &[SstFile], range_bytes_max: u64) -> Vec<KeyRange> {
        let files: Vec<&SstFile> = files.iter().collect();
        let input = CandidateInput {
            files: &files,
            placement: &Placement::of(&files, &[], None),
            observations: &[],
            prefix_rule: None,
            kept: &[],
            range_bytes_max,
            density: 0.1,
        };
        candidates(&input)
    }

    #[test]
    fn files_are_merged_up_to_the_cap() {
        let files = row_of_files(8, |_| 0);
        assert_eq!(cut(&files, 4 << 20).len(), 2);
        assert_eq!(cut(&files, 8 << 20).len(), 1);
        assert_eq!(cut(&files, 1).len(), 8);
    }

    #[test]
    fn dense_files_are_not_merged_with_live_ones() {
        let ranges = cut(&row_of_files(8, |index| if index < 3 { 9 } else { 0 }), 256 << 20);
        assert_eq!(ranges.len(), 2);
        assert_eq!(ranges[0].end, Some(Key::new("00000029").successor()));
    }

    #[test]
    fn too_many_candidates_are_merged_further() {
        let files = row_of_files(9000, |index| if index % 2 == 0 { 9 } else { 0 });
        let ranges = cut(&files, 1);
        assert!(ranges.len() <= CANDIDATES_MAX && ranges.len() > CANDIDATES_MAX / 4, "{}", ranges.len());
    }
}
