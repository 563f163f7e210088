//! Which ranges an operation's tombstones lie in.
//!
//! A record says where an operation began and how many tombstones it skipped, not where they lie. The
//! SST files say how many deletions lie beside the key: walking from there in the operation's direction uses
//! them up. What is left over is in no file that was seen. It is in a memtable as far as RocksDB counts
//! deletions there, near where the operation came to an end; the rest is unexplained, shown, and nothing is
//! promised for it.
//!
//! A positioning call looks the way that its kind says, the scan behind it the way that its end tells: after
//! a `Seek` with `Prev` behind it the two part at the key.

use crate::facts::evidence::{MemtableDeletions, Observation, SeekKind, SstFile};
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use crate::loss::read_time::{Events, Loss, events};
use crate::lsm::share::{Share, share_of, share_of_all};
use crate::rank::candidate::{CandidateInput, candidates, overlapping, shares};
use crate::rank::join::RangeRow;

/// Files are spread unevenly inside a range, so an operation may have passed this many times more live
/// entries than it stepped over by RocksDB's own count.
const LIVE_ENTRIES_FACTOR: u64 = 4;
/// And this many more, for small counts.
const LIVE_ENTRIES_SLACK: u64 = 1000;

/// One column family, cut into candidate ranges.
pub(crate) struct ColumnFamily<'a> {
    pub(crate) ranges: Vec<KeyRange>,
    shares: Vec<Share>,
    files_in_range: Vec<Vec<&'a SstFile>>,
    /// Deletions in its memtables: no operation can have met more of them there. 0 where RocksDB could not be
    /// asked.
    memtable_deletions: u64,
    /// Number of the first range among all column families' ranges.
    first_range: u32,
}

impl<'a> ColumnFamily<'a> {
    pub(crate) fn new(
        parts: &[&'a SstFile],
        input: &CandidateInput<'_>,
        memtables: Option<MemtableDeletions>,
        first_range: u32,
    ) -> ColumnFamily<'a> {
        let ranges = candidates(input);
        let shares = shares(&ranges, parts);
        let mut files_in_range: Vec<Vec<&SstFile>> = vec![Vec::new(); ranges.len()];
        for file in parts {
            for index in overlapping(&ranges, file) {
                if let Some(list) = files_in_range.get_mut(index) {
                    list.push(file);
                }
            }
        }
        let memtable_deletions = memtables.map_or(0, MemtableDeletions::total);
        ColumnFamily { ranges, shares, files_in_range, memtable_deletions, first_range }
    }

    /// The range with this number among all column families' ranges.
    pub(crate) fn range(&self, number: u32) -> Option<&KeyRange> {
        self.ranges.get(usize::try_from(number.checked_sub(self.first_range)?).ok()?)
    }

    /// One row per range and file that overlap.
    pub(crate) fn file_shares(&self) -> Vec<RangeRow> {
        let rows = self.ranges.iter().zip(&self.files_in_range).zip(self.first_range..);
        let rows = rows.flat_map(|((range, files), number)| {
            let row =
                move |file| RangeRow { range: number, share: share_of(file, range), ..RangeRow::default() };
            files.iter().copied().map(row)
        });
        rows.collect()
    }

    /// One row per range in which the operation lost time; they add up to what the operation stands for.
    pub(crate) fn observation_shares(&self, operation: &Observation, loss: Loss) -> Vec<RangeRow> {
        let Events { tombstones, block_reads, block_cache_hits } = events(operation);
        let start = self.start(operation);
        let end = operation.end_key.as_ref().map(|key| self.index_of(key));
        let (mut parts, left_over) = self.walk_all(operation, start, end, tombstones);
        // Tombstones that no file knows were written last: they lie at the edge of what is deleted, where
        // the operation came to an end. Where that is not known, near its start.
        let fresh = end.unwrap_or(start);
        let in_memtables = left_over.min(self.memtable_deletions);
        if (left_over > 0 || parts.is_empty()) && !parts.iter().any(|part| part.0 == fresh) {
            parts.push((fresh, 0));
        }
        let mut taken = 0;
        let mut rows = Vec::with_capacity(parts.len());
        for (index, in_files) in parts {
            let (memtable_tombstones, unexplained_tombstones) =
                if index == fresh { (in_memtables, left_over - in_memtables) } else { (0, 0) };
            let explained = taken + in_files + memtable_tombstones;
            let end = explained + unexplained_tombstones;
            // Differences of running sums: the parts add up exactly.
            let slice = |total: u64, from: u64, to: u64| match tombstones {
                0 => total,
                all => portion(total, to, all) - portion(total, from, all),
            };
            let row = RangeRow {
                range: self.first_range.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)),
                operations: 1,
                tombstones: end - taken,
                memtable_tombstones,
                unexplained_tombstones,
                estimated: u64::from(operation.estimated),
                block_reads: slice(block_reads, taken, end),
                block_cache_hits: slice(block_cache_hits, taken, end),
                lost_ns: slice(loss.lost_ns, taken, end),
                relief_ns: slice(loss.relief_ns, taken, explained),
                unexplained_ns: if tombstones == 0 { 0 } else { slice(loss.relief_ns, explained, end) },
                block_read_ns: slice(loss.block_read_ns, taken, end),
                share: Share::default(),
            };
            rows.push(row.times(operation.weight));
            taken = end;
        }
        rows
    }

    /// Index of the range that holds the operation's first key.
    fn start(&self, operation: &Observation) -> usize {
        match operation.kind {
            SeekKind::SeekToFirst => 0,
            SeekKind::SeekToLast => self.ranges.len().saturating_sub(1),
            SeekKind::Seek | SeekKind::SeekForPrev => self.index_of(&operation.key),
        }
    }

    /// Index of the range that holds a key.
    fn index_of(&self, key: &Key) -> usize {
        self.ranges.partition_point(|range| range.begin <= *key).saturating_sub(1)
    }

    /// Walks the operation's legs, one after the other: range and tombstones each, and what is left over.
    /// What the files do not have on one side of the key is looked for on the other one as well.
    fn walk_all(
        &self,
        operation: &Observation,
        start: usize,
        end: Option<usize>,
        tombstones: u64,
    ) -> (Vec<(usize, u64)>, u64) {
        let mut parts: Vec<(usize, u64)> = Vec::new();
        let mut left_over = 0_u64;
        for leg in legs(operation, end, tombstones) {
            let leg = Leg { tombstones: leg.tombstones + left_over, ..leg };
            let (leg_parts, leg_left_over) = self.walk(operation, start, &leg);
            for (index, part) in leg_parts {
                // Only the range that both begin in can be met twice.
                match parts.iter_mut().find(|known| known.0 == index) {
                    Some(known) => known.1 += part,
                    None => parts.push((index, part)),
                }
            }
            left_over = leg_left_over;
        }
        (parts, left_over)
    }

    /// Uses up deletions from the start in the leg's direction: range and tombstones each, and what
    /// is left over. Where it is known in which range the leg ended, no further than that.
    fn walk(&self, operation: &Observation, start: usize, leg: &Leg) -> (Vec<(usize, u64)>, u64) {
        let last = self.ranges.len().saturating_sub(1);
        let mut order: Box<dyn Iterator<Item = usize>> = match (leg.is_forward, leg.end) {
            (true, end) => Box::new(start..=end.unwrap_or(last).min(last)),
            (false, end) => Box::new((end.unwrap_or(0)..=start).rev()),
        };
        let stepped_over = operation.total().keys_skipped;
        let mut live_left =
            stepped_over.saturating_mul(LIVE_ENTRIES_FACTOR).saturating_add(LIVE_ENTRIES_SLACK);
        let mut left_over = leg.tombstones;
        let mut parts = Vec::new();
        while left_over > 0 {
            let Some(index) = order.next() else { break };
            let ahead = self.ahead(operation, start, index, leg.is_forward);
            let part = left_over.min(ahead.deletions);
            if part > 0 {
                parts.push((index, part));
                left_over -= part;
            }
            // An operation cannot have come past more live entries than it stepped over.
            match live_left.checked_sub(ahead.live_entries()) {
                Some(left) => live_left = left,
                None => break,
            }
        }
        (parts, left_over)
    }

    /// What of a range lies ahead of the operation: all of it, but in the first only what is on that side of
    /// the key.
    fn ahead(&self, operation: &Observation, start: usize, index: usize, is_forward: bool) -> Share {
        let whole = self.shares.get(index).copied().unwrap_or_default();
        let (Some(range), Some(files)) = (self.ranges.get(index), self.files_in_range.get(index)) else {
            return whole;
        };
        let ahead = match operation.kind {
            _ if index != start => return whole,
            SeekKind::SeekToFirst | SeekKind::SeekToLast => return whole,
            // The key itself is the positioning call's.
            SeekKind::Seek if is_forward => KeyRange::new(operation.key.clone(), range.end.clone()),
            SeekKind::Seek => KeyRange::new(range.begin.clone(), Some(operation.key.clone())),
            SeekKind::SeekForPrev if is_forward => {
                KeyRange::new(operation.key.successor(), range.end.clone())
            }
            SeekKind::SeekForPrev => KeyRange::new(range.begin.clone(), Some(operation.key.successor())),
        };
        ahead.map_or_else(Share::default, |ahead| share_of_all(files.iter().copied(), &ahead))
    }
}

/// A part of an operation that goes one way from its key.
struct Leg {
    is_forward: bool,
    /// Index of the range that it ended in, where that is known.
    end: Option<usize>,
    tombstones: u64,
}

/// The operation's legs: one, or two where its scan turned back over the key that it was positioned at.
fn legs(operation: &Observation, end: Option<usize>, tombstones: u64) -> Vec<Leg> {
    let seeks_forward = operation.kind.is_forward();
    let scans_forward = match (&operation.end_key, operation.kind) {
        (None, _) | (_, SeekKind::SeekToFirst | SeekKind::SeekToLast) => seeks_forward,
        (Some(end), SeekKind::Seek) => *end >= operation.key,
        (Some(end), SeekKind::SeekForPrev) => *end > operation.key,
    };
    if scans_forward == seeks_forward {
        return vec![Leg { is_forward: seeks_forward, end, tombstones }];
    }
    let scanned = operation.scan.tombstones_skipped.min(tombstones);
    vec![
        Leg { is_forward: seeks_forward, end: None, tombstones: tombstones - scanned },
        Leg { is_forward: scans_forward, end, tombstones: scanned },
    ]
}

/// `total × part / whole`, rounded down; `total` where the part is the whole.
fn portion(total: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    u64::try_from(u128::from(total) * u128::from(part.min(whole)) / u128::from(whole)).unwrap_or(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::EventCosts;
    use crate::facts::evidence::{BlockFetches, Counters};
    use crate::facts::key::Key;
    use crate::lsm::tombstone_placement::{Walks, concentrate};
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(b'a'..=b'd', 0..4).prop_map(Key::new)
    }

    fn file() -> impl Strategy<Value = SstFile> {
        (0u32..3, key(), key(), 0u64..1 << 30, 0u64..100_000, 0u64..100_000).prop_map(
            |(level, one, two, size_bytes, live, deletions)| {
                let (smallest, largest) = if one <= two { (one, two) } else { (two, one) };
                let (column_family, entries) = ("default".to_owned(), live + deletions);
                SstFile { number: 1, column_family, level, size_bytes, entries, deletions, smallest, largest }
            },
        )
    }

    fn operation() -> impl Strategy<Value = Observation> {
        let kind = prop_oneof![
            Just(SeekKind::Seek),
            Just(SeekKind::SeekForPrev),
            Just(SeekKind::SeekToFirst),
            Just(SeekKind::SeekToLast)
        ];
        let counters = || {
            (0u64..200_000, 0u64..200_000, 0u64..500).prop_map(
                |(tombstones_skipped, keys_skipped, block_reads)| Counters {
                    tombstones_skipped,
                    keys_skipped,
                    block_reads,
                    block_cache_hits: block_reads * 7,
                    ..Counters::default()
                },
            )
        };
        let end_key = proptest::option::of(key());
        let latency_ns = || 0u64..1 << 40;
        let fetches = (0u64..1000, 0u64..1 << 30).prop_map(|(count, latency_ns)| BlockFetches {
            count,
            bytes: 0,
            latency_ns,
        });
        let weight = 1u64..1000;
        (kind, key(), end_key, counters(), counters(), latency_ns(), latency_ns(), fetches, weight).prop_map(
            |(kind, key, end_key, seek, scan, seek_latency_ns, scan_elapsed_ns, block_fetches, weight)| {
                let mut operation = Observation::at(kind, key);
                (operation.end_key, operation.block_fetches, operation.weight) =
                    (end_key, block_fetches, weight);
                (operation.seek, operation.seek_latency_ns) = (seek, seek_latency_ns);
                (operation.scan, operation.scan_elapsed_ns) = (scan, scan_elapsed_ns);
                operation
            },
        )
    }

    /// Two files beside a key, 10,000 deletions in each, that are one range.
    fn beside_a_key() -> [SstFile; 2] {
        let file = |number, smallest: &str, largest: &str| SstFile {
            number,
            column_family: "default".to_owned(),
            level: 6,
            size_bytes: 1 << 20,
            entries: 20_000,
            deletions: 10_000,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        };
        [file(1, "a0", "a9"), file(2, "b0", "b9")]
    }

    /// Tombstones of an operation that the files have, and those that they have not, by the begin of the
    /// range.
    fn placed(files: &[SstFile], operation: &Observation) -> Vec<(Key, u64, u64)> {
        let files: Vec<&SstFile> = files.iter().collect();
        let input = CandidateInput {
            files: &files,
            parts: &files,
            observations: &[operation],
            prefix_rule: Some(crate::facts::prefix::PrefixRule::Bytes(1)),
            kept: &[],
            range_bytes_max: 1 << 30,
            density: 0.1,
        };
        let family = ColumnFamily::new(&files, &input, None, 0);
        let shares = family.observation_shares(operation, EventCosts::default().loss(operation));
        let begin = |number| family.range(number).map(|range| range.begin.clone()).unwrap_or_default();
        let elsewhere = |share: &RangeRow| share.memtable_tombstones + share.unexplained_tombstones;
        let place =
            |share: &RangeRow| (begin(share.range), share.tombstones - elsewhere(share), elsewhere(share));
        let mut placed: Vec<(Key, u64, u64)> = shares.iter().map(place).collect();
        placed.sort();
        placed
    }

    fn walked(kind: SeekKind, key: &str, seek: u64, scan: u64, end_key: &str) -> Observation {
        let skipped = |tombstones_skipped| Counters { tombstones_skipped, ..Counters::default() };
        Observation {
            end_key: Some(Key::new(end_key)),
            seek: skipped(seek),
            scan: skipped(scan),
            ..Observation::at(kind, Key::new(key))
        }
    }

    /// `Seek` to the end of the deleted keys, and `Prev` back over them; the scan ends in the range that it
    /// began in.
    #[test]
    fn a_seek_with_prev_behind_it_looks_behind_its_key() {
        let files = beside_a_key();
        let back = walked(SeekKind::Seek, "b9", 0, 8_000, "b0");
        assert_eq!(placed(&files, &back), [(Key::new("b"), 8_000, 0)]);
        // What the call itself has stepped over lies ahead of the key, what its scan has, behind.
        let both = walked(SeekKind::Seek, "b0", 8_000, 8_000, "a0");
        assert_eq!(placed(&files, &both), [(Key::default(), 8_000, 0), (Key::new("b"), 8_000, 0)]);
    }

    #[test]
    fn a_seek_for_prev_with_next_behind_it_looks_ahead_of_its_key() {
        let files = beside_a_key();
        let ahead = walked(SeekKind::SeekForPrev, "b0", 0, 8_000, "b9");
        assert_eq!(placed(&files, &ahead), [(Key::new("b"), 8_000, 0)]);
        let onwards = walked(SeekKind::Seek, "a0", 8_000, 0, "a9");
        assert_eq!(placed(&files, &onwards), [(Key::new("a"), 8_000, 0)]);
    }

    proptest! {
        #[test]
        fn the_parts_of_an_operation_are_the_operation(
            files in proptest::collection::vec(file(), 0..12),
            operation in operation(),
            range_bytes_max in 1u64..1 << 31,
            memtables in proptest::option::of(0u64..200_000),
        ) {
            let files: Vec<&SstFile> = files.iter().collect();
            let parts = concentrate(&files, &Walks::of([&operation]));
            let parts: Vec<&SstFile> = parts.iter().collect();
            let input = CandidateInput {
                files: &files,
                parts: &parts,
                observations: &[&operation],
                prefix_rule: Some(crate::facts::prefix::PrefixRule::Bytes(2)),
                kept: &[],
                range_bytes_max,
                density: 0.1,
            };
            let deletions = memtables.map(|active| MemtableDeletions { active, immutable: active / 3 });
            let family = ColumnFamily::new(&parts, &input, deletions, 7);
            let loss = EventCosts::default().loss(&operation);
            let shares = family.observation_shares(&operation, loss);
            let sum = |value: fn(&RangeRow) -> u64| shares.iter().map(value).sum::<u64>();
            let (total, weight) = (operation.weighted(), operation.weight);
            prop_assert_eq!(sum(|share| share.tombstones), total.tombstones_skipped);
            prop_assert_eq!(sum(|share| share.block_reads), total.block_reads);
            prop_assert_eq!(sum(|share| share.lost_ns), loss.lost_ns * weight);
            prop_assert_eq!(sum(|share| share.relief_ns + share.unexplained_ns), loss.relief_ns * weight);
            prop_assert_eq!(sum(|share| share.block_read_ns), loss.block_read_ns * weight);
            prop_assert_eq!(sum(|share| share.block_cache_hits), total.block_cache_hits);
            for share in &shares {
                prop_assert!(share.memtable_tombstones + share.unexplained_tombstones <= share.tombstones);
                prop_assert!(share.relief_ns + share.unexplained_ns <= share.lost_ns + weight);
                prop_assert!(family.range(share.range).is_some());
            }
            // What RocksDB does not have in memtables is not looked for there.
            let known = deletions.map_or(0, MemtableDeletions::total);
            prop_assert!(sum(|share| share.memtable_tombstones) <= known * weight);
            let in_files: u64 = files.iter().map(|file| file.deletions).sum();
            // A file's share of each range is rounded up.
            let rounded = (files.len() * family.ranges.len()) as u64;
            let in_places = (in_files + known + rounded) * weight;
            let left_over = total.tombstones_skipped.saturating_sub(in_places);
            prop_assert!(sum(|share| share.unexplained_tombstones) >= left_over);
        }
    }
}
