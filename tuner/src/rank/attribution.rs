//! Which ranges an operation's tombstones lie in, and what else it stepped over.
//!
//! A record says where an operation began and how many tombstones it skipped, not where they lie. The SST
//! files say how many deletions can lie there ([`crate::lsm::tombstone_placement`]), and it met them as they
//! lie. What is left over is in no file that was seen. It is in a memtable as far as RocksDB counts deletions
//! there, near where the operation came to an end; the rest is unexplained, shown, and nothing is promised
//! for it.
//!
//! A positioning call looks the way that its kind says, the scan behind it the way that its end tells: after
//! a `Seek` with `Prev` behind it the two part at the key.

use crate::facts::evidence::{Observation, SeekKind};
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use crate::loss::read_time::{Events, Loss, UNITS_PER_TOMBSTONE, events};
use crate::lsm::hidden_entries::{HiddenEntries, MetHidden};
use crate::lsm::share::Share;
use crate::lsm::tombstone_placement::{Met, Placement};
use crate::rank::candidate::{CandidateInput, candidates};
use crate::rank::join::RangeRow;
use std::collections::BTreeMap;

/// One column family, cut into candidate ranges.
pub(crate) struct ColumnFamily<'a> {
    pub(crate) ranges: Vec<KeyRange>,
    placement: &'a Placement,
    hidden: &'a HiddenEntries,
    /// Deletions before each range: in files and in memtables.
    deletions: Vec<(f64, f64)>,
    /// Number of the first range among all column families' ranges.
    first_range: u32,
}

/// Where tombstones are counted whose place is not known: at the edge of what is deleted, where the operation
/// came to an end. Where that is not known, near its start.
fn fresh_end(operation: &Observation) -> Option<&Key> {
    match (&operation.end_key, operation.kind) {
        (Some(end), _) => Some(end),
        (None, SeekKind::SeekToLast) => None,
        (None, _) => Some(&operation.key),
    }
}

impl<'a> ColumnFamily<'a> {
    pub(crate) fn new(
        input: &CandidateInput<'_>,
        (placement, hidden): (&'a Placement, &'a HiddenEntries),
        first_range: u32,
    ) -> ColumnFamily<'a> {
        let ranges = candidates(input);
        let deletions = ranges.iter().map(|range| placement.deletions_before(&range.begin)).collect();
        ColumnFamily { ranges, placement, hidden, deletions, first_range }
    }

    /// The range with this number among all column families' ranges.
    pub(crate) fn range(&self, number: u32) -> Option<&KeyRange> {
        self.ranges.get(usize::try_from(number.checked_sub(self.first_range)?).ok()?)
    }

    /// One row per range.
    pub(crate) fn file_shares(&self) -> Vec<RangeRow> {
        let rows = self.ranges.iter().zip(self.first_range..);
        let row = |(range, number)| RangeRow {
            range: number,
            share: self.placement.share(range),
            ..RangeRow::default()
        };
        rows.map(row).collect()
    }

    /// One row per range in which the operation lost time; they add up to what the operation stands for.
    pub(crate) fn observation_shares(&self, operation: &Observation, loss: Loss) -> Vec<RangeRow> {
        let Events { tombstones, block_reads, block_cache_hits, hidden, steps } = events(operation);
        let (met, unexplained) = self.placement.met(operation, tombstones);
        // By range: tombstones in files, in memtables, and those whose place is not known; then what else is
        // hidden in files, and what of it is in none.
        let mut parts: BTreeMap<usize, [u64; 5]> = BTreeMap::new();
        let mut add = |index: usize, kind: usize, count: u64| {
            let part = parts.entry(index).or_default();
            part.get_mut(kind).into_iter().for_each(|sum| *sum += count);
        };
        for met in &met {
            for (kind, count) in [met.in_files, met.in_memtables].into_iter().enumerate() {
                self.in_ranges(met, kind, count).into_iter().for_each(|(index, part)| add(index, kind, part));
            }
        }
        let met_hidden = self.hidden.met(self.placement, operation);
        let in_files = self.hidden_in_ranges(&met_hidden);
        in_files.into_iter().for_each(|(index, part)| add(index, 3, part));
        let fresh =
            fresh_end(operation).map_or(self.ranges.len().saturating_sub(1), |key| self.index_of(key));
        let units = tombstones * UNITS_PER_TOMBSTONE + hidden.units();
        if unexplained > 0 || met_hidden.unexplained > 0 || units == 0 {
            add(fresh, 2, unexplained);
            add(fresh, 4, met_hidden.unexplained);
        }
        let (mut taken, mut taken_hidden) = (0, 0);
        let mut rows = Vec::with_capacity(parts.len());
        for (index, [in_files, memtable_tombstones, unexplained_tombstones, hidden_here, hidden_nowhere]) in
            parts
        {
            let explained = taken + (in_files + memtable_tombstones) * UNITS_PER_TOMBSTONE + hidden_here;
            let end = explained + unexplained_tombstones * UNITS_PER_TOMBSTONE + hidden_nowhere;
            let end_hidden = taken_hidden + hidden_here + hidden_nowhere;
            // Differences of running sums: the parts add up exactly.
            let slice = |total: u64, from: u64, to: u64| match units {
                0 => total,
                all => portion(total, to, all) - portion(total, from, all),
            };
            let of_hidden = |total: u64| {
                portion(total, end_hidden, hidden.units()) - portion(total, taken_hidden, hidden.units())
            };
            let row = RangeRow {
                range: self.first_range.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)),
                operations: 1,
                tombstones: in_files + memtable_tombstones + unexplained_tombstones,
                memtable_tombstones,
                unexplained_tombstones,
                old_versions: of_hidden(hidden.old_versions),
                merge_operands: of_hidden(hidden.merge_operands),
                reseeks: of_hidden(hidden.reseeks),
                steps: slice(steps, taken, end),
                estimated: u64::from(operation.estimated),
                block_reads: slice(block_reads, taken, end),
                block_cache_hits: slice(block_cache_hits, taken, end),
                lost_ns: slice(loss.lost_ns, taken, end),
                relief_ns: slice(loss.relief_ns, taken, explained),
                unexplained_ns: if units == 0 { 0 } else { slice(loss.relief_ns, explained, end) },
                block_read_ns: slice(loss.block_read_ns, taken, end),
                share: Share::default(),
            };
            rows.push(row.times(operation.weight));
            (taken, taken_hidden) = (end, end_hidden);
        }
        rows
    }

    /// Index of the range that holds a key.
    fn index_of(&self, key: &Key) -> usize {
        self.ranges.partition_point(|range| range.begin <= *key).saturating_sub(1)
    }

    /// The ranges that a leg met tombstones of a kind in, and how many in each.
    fn in_ranges(&self, met: &Met, kind: usize, count: u64) -> Vec<(usize, u64)> {
        let of = |(in_files, in_memtables): (f64, f64)| if kind == 0 { in_files } else { in_memtables };
        let (low, high) = met.grid;
        let (low, high) = (of(self.placement.deletions_at(low)), of(self.placement.deletions_at(high)));
        if count == 0 || high <= low {
            return Vec::new();
        }
        let first = self.deletions.partition_point(|before| of(*before) <= low).saturating_sub(1);
        let before = |index: usize| self.deletions.get(index).map_or(f64::INFINITY, |before| of(*before));
        self.parted(first, count, (low, high), before)
    }

    /// The same of what is hidden.
    fn hidden_in_ranges(&self, met: &MetHidden) -> Vec<(usize, u64)> {
        let sums = self.hidden.sums();
        let at = |place: usize| sums.get(place).or(sums.last()).copied().unwrap_or(0.0);
        let (low, high) = (at(met.grid.0), at(met.grid.1));
        if met.in_files == 0 || high <= low {
            return Vec::new();
        }
        let of = |range: &KeyRange| self.placement.before(sums, &range.begin);
        let first = self.ranges.partition_point(|range| of(range) <= low).saturating_sub(1);
        let before = |index: usize| self.ranges.get(index).map_or(f64::INFINITY, of);
        self.parted(first, met.in_files, (low, high), before)
    }

    /// A count that lies between two sums, in parts of the ranges from the first on; `before` is what comes
    /// before a range.
    fn parted(
        &self,
        first: usize,
        count: u64,
        (low, high): (f64, f64),
        before: impl Fn(usize) -> f64,
    ) -> Vec<(usize, u64)> {
        let mut given = 0;
        let mut parts = Vec::new();
        for index in first..self.ranges.len() {
            let end = before(index + 1).min(high);
            let share = ((end - low) / (high - low)).clamp(0.0, 1.0);
            let up_to = ((count as f64 * share).round() as u64).clamp(given, count);
            if up_to > given {
                parts.push((index, up_to - given));
                given = up_to;
            }
            if end >= high {
                break;
            }
        }
        parts
    }
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
    use crate::facts::evidence::{BlockFetches, Counters};
    use crate::facts::evidence::{EventCosts, MemtableDeletions, SstFile};
    use crate::facts::key::Key;
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
            (0u64..200_000, 0u64..200_000, 0u64..500, 0u64..900, 0u64..90).prop_map(
                |(tombstones_skipped, keys_skipped, block_reads, merge_operands, range_deletion_reseeks)| {
                    Counters {
                        tombstones_skipped,
                        keys_skipped,
                        merge_operands,
                        range_deletion_reseeks,
                        block_reads,
                        block_cache_hits: block_reads * 7,
                        ..Counters::default()
                    }
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
                operation.steps = (weight % 2 == 0).then_some(weight);
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
        let placement = Placement::of(&files, &[operation], None);
        let input = CandidateInput {
            files: &files,
            placement: &placement,
            observations: &[operation],
            prefix_rule: Some(crate::facts::prefix::PrefixRule::Bytes(1)),
            kept: &[],
            range_bytes_max: 1 << 30,
            density: 0.1,
        };
        let hidden = HiddenEntries::of(&files, &placement, &[operation]);
        let family = ColumnFamily::new(&input, (&placement, &hidden), 0);
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
            let deletions = memtables.map(|active| MemtableDeletions { active, immutable: active / 3 });
            let placement = Placement::of(&files, &[&operation], deletions);
            let input = CandidateInput {
                files: &files,
                placement: &placement,
                observations: &[&operation],
                prefix_rule: Some(crate::facts::prefix::PrefixRule::Bytes(2)),
                kept: &[],
                range_bytes_max,
                density: 0.1,
            };
            let hidden = HiddenEntries::of(&files, &placement, &[&operation]);
            let family = ColumnFamily::new(&input, (&placement, &hidden), 7);
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
            prop_assert_eq!(sum(|share| share.old_versions), operation.old_versions() * weight);
            prop_assert_eq!(sum(|share| share.merge_operands), total.merge_operands);
            prop_assert_eq!(sum(|share| share.reseeks), total.range_deletion_reseeks);
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
