//! Candidate ranges: how a column family's keys are cut.
//!
//! Cuts are made at the borders of prefixes that were observed, then at the SST borders of the level
//! that holds most bytes; neighbours are merged again while they are alike and small. So a range is
//! one thing to its owner (a bucket, a directory), and compacting it rewrites whole files, not slivers
//! of them.

use crate::evidence::{Observation, SstFile};
use crate::prefix::PrefixRule;
use crate::share::{Share, share_of, split};
use crate::{key::Key, range::KeyRange};
use std::collections::{BTreeMap, BTreeSet};

/// Most candidate ranges of one column family; attributing an operation may walk through all of them.
pub const CANDIDATES_MAX: usize = 4096;

/// Most prefixes that are cut out; each gives two borders that never go away, so twice this stays
/// below [`CANDIDATES_MAX`].
const PREFIXES_MAX: usize = 1024;

/// Most SST borders that are looked at before neighbours are merged.
const SST_BORDERS_MAX: usize = 16_384;

/// Most ranges acted on lately whose borders are kept.
const KEPT_RANGES_MAX: usize = 256;

/// What candidates are cut from: one column family.
#[derive(Clone, Copy, Debug)]
pub struct CandidateInput<'a> {
    /// Its live files.
    pub files: &'a [&'a SstFile],
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
    let hard = hard_borders(input);
    let cuts: Vec<Key> = hard.iter().cloned().chain(sst_borders(input.files)).collect();
    let pieces = with_shares(split(&KeyRange::everything(), &cuts), input.files);
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
            *sum = sum.saturating_add(observation.total().tombstones_skipped);
        }
    }
    let mut prefixes: Vec<(Key, u64)> = tombstones.into_iter().collect();
    // Where there are too many, those with most tombstones; equal ones by key, so that it is always the same.
    prefixes.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
    prefixes.into_iter().take(PREFIXES_MAX).for_each(|(prefix, _)| keep(&KeyRange::with_prefix(prefix)));
    borders
}

/// Borders behind the files of the level that holds most bytes (the deepest of equal ones).
///
/// Behind a file's largest key and not at the next one's smallest: RocksDB takes the end of a range to
/// compact as inclusive and would draw the next file in.
fn sst_borders(files: &[&SstFile]) -> Vec<Key> {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    for file in files {
        let sum = bytes.entry(file.level).or_default();
        *sum = sum.saturating_add(file.size_bytes);
    }
    let Some((level, _)) = bytes.into_iter().max_by_key(|(level, sum)| (*sum, *level)) else {
        return Vec::new();
    };
    let borders: BTreeSet<Key> =
        files.iter().filter(|file| file.level == level).map(|file| file.largest.successor()).collect();
    let step = borders.len().div_ceil(SST_BORDERS_MAX).max(1);
    borders.into_iter().step_by(step).collect()
}

/// The shares of all files in each of some ranges that are in order and cover all keys.
pub(crate) fn shares(ranges: &[KeyRange], files: &[&SstFile]) -> Vec<Share> {
    let mut shares = vec![Share::default(); ranges.len()];
    for file in files {
        for index in overlapping(ranges, file) {
            if let (Some(range), Some(share)) = (ranges.get(index), shares.get_mut(index)) {
                *share = share.plus(share_of(file, range));
            }
        }
    }
    shares
}

/// Which of some ranges, in order and covering all keys, a file overlaps.
pub(crate) fn overlapping(ranges: &[KeyRange], file: &SstFile) -> std::ops::Range<usize> {
    let first = ranges.partition_point(|range| range.end.as_ref().is_some_and(|end| *end <= file.smallest));
    let behind = ranges.partition_point(|range| range.begin <= file.largest);
    first..behind.max(first)
}

struct Piece {
    range: KeyRange,
    share: Share,
}

fn with_shares(ranges: Vec<KeyRange>, files: &[&SstFile]) -> Vec<Piece> {
    let shares = shares(&ranges, files);
    ranges.into_iter().zip(shares).map(|(range, share)| Piece { range, share }).collect()
}

fn merge(pieces: &[Piece], hard: &BTreeSet<Key>, bytes_max: u64, density: Option<f64>) -> Vec<KeyRange> {
    let mut merged: Vec<KeyRange> = Vec::new();
    let mut sum = Share::default();
    for piece in pieces {
        let together = sum.plus(piece.share);
        let alike = density.is_none_or(|limit| {
            let empty = sum.entries == 0 || piece.share.entries == 0;
            empty || (sum.density() >= limit) == (piece.share.density() >= limit)
        });
        let small = together.size_bytes <= bytes_max || sum.size_bytes == 0 || piece.share.size_bytes == 0;
        match merged.last_mut() {
            Some(last) if alike && small && !hard.contains(&piece.range.begin) => {
                last.end.clone_from(&piece.range.end);
                sum = together;
            }
            _ => {
                merged.push(piece.range.clone());
                sum = piece.share;
            }
        }
    }
    merged
}
