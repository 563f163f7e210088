//! What a held RocksDB snapshot may keep of a column family's files, in the order of keys.

use crate::facts::evidence::{Observation, SstFile};
use crate::facts::oldest_snapshot::OldestSnapshot;
use crate::facts::range::KeyRange;
use crate::loss::read_time::{Events, Hidden, events};
use crate::lsm::hidden_entries::HiddenEntries;
use crate::lsm::ruler::{OverSpans, running, within};
use crate::lsm::tombstone_placement::Placement;
use std::collections::BTreeMap;

/// Levels from this one on count as one; RocksDB has 7 unless it is told otherwise.
const LEVEL_MAX: u32 = 63;

/// Where a file's entries are older than a snapshot, and how many of them, is an estimate: of entries that
/// newer ones hide this many times as many are taken to be kept.
const KEPT_FACTOR: f64 = 2.0;

/// What files have in some keys. Counts are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) deletions: f64,
    /// Those of them that are newer than the snapshot.
    pub(crate) newer_deletions: f64,
    /// Entries that a tombstone may hide.
    pub(crate) entries: f64,
    /// Those of them that the snapshot sees.
    pub(crate) older_entries: f64,
    /// Whether what is in memtables is newer than the snapshot.
    pub(crate) are_memtables_newer: bool,
    /// What readers met of entries that newer ones hide, and how much of that the snapshot may keep: in units
    /// of [`Hidden::units`].
    pub(crate) hidden: f64,
    pub(crate) hidden_kept: f64,
}

/// The same for any range of a column family: sums over the grid of its [`Placement`]. What is in files whose
/// sequence numbers are not known counts as if there were no snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptBySnapshot {
    deletions: Vec<f64>,
    newer_deletions: Vec<f64>,
    entries: Vec<f64>,
    older_entries: Vec<f64>,
    are_memtables_newer: bool,
    hidden: Vec<f64>,
    hidden_kept: Vec<f64>,
}

impl KeptBySnapshot {
    /// Of all files of a column family. What readers met that is hidden comes with
    /// [`KeptBySnapshot::with_hidden`].
    pub(crate) fn of(files: &[&SstFile], placement: &Placement, snapshot: &OldestSnapshot) -> KeptBySnapshot {
        let lowest = lowest(files, placement);
        let sequences = |file: &SstFile| snapshot.files.get(&file.number).copied();
        let newer = |file: &SstFile| {
            sequences(file).map_or(0.0, |sequences| sequences.share_newer_than(snapshot.sequence))
        };
        let entries = |file: &SstFile| file.entries.saturating_sub(file.deletions) as f64;
        let are_deletions_newer = |(file, is_lowest): (&&SstFile, &bool)| {
            // A file at the bottom that was written since the snapshot was taken has no others any more.
            let is_kept =
                *is_lowest && sequences(file).is_some_and(|sequences| sequences.largest > snapshot.sequence);
            file.deletions as f64 * if is_kept { 1.0 } else { newer(file) }
        };
        let each = || files.iter().copied();
        let newer_deletions = files.iter().zip(&lowest).map(are_deletions_newer);
        // A file whose sequence numbers are not known hides nothing and is hidden by nothing.
        let known = |file: &SstFile| if sequences(file).is_some() { entries(file) } else { 0.0 };
        KeptBySnapshot {
            deletions: placement.like_deletions(each().map(|file| (file, file.deletions as f64))),
            newer_deletions: placement.like_deletions(each().zip(newer_deletions)),
            entries: placement.like_entries(each().map(|file| (file, known(file)))),
            older_entries: placement
                .like_entries(each().map(|file| (file, known(file) * (1.0 - newer(file))))),
            // A memtable is newer than what its column family has flushed.
            are_memtables_newer: each().filter_map(sequences).map(|it| it.largest).max()
                >= Some(snapshot.sequence),
            hidden: Vec::new(),
            hidden_kept: Vec::new(),
        }
    }

    /// The same with what these operations met: what is kept of it is worked out where they met it.
    pub(crate) fn with_hidden(
        self,
        placement: &Placement,
        hidden_entries: &HiddenEntries,
        observations: &[&Observation],
    ) -> KeptBySnapshot {
        let (mut hidden, mut kept) = (Vec::new(), Vec::new());
        for operation in observations {
            let met = hidden_entries.met(placement, operation);
            let units = met.in_files as f64 * operation.weight as f64;
            if units > 0.0 {
                hidden.push((met.grid, units));
                kept.push((met.grid, units * self.share_kept(met.grid, operation)));
            }
        }
        let [hidden, hidden_kept] = [hidden, kept].map(|met| running(hidden_entries.shared_out(met)));
        KeptBySnapshot { hidden, hidden_kept, ..self }
    }

    /// The share of what an operation met between two places of the grid that the snapshot may keep. Of the
    /// older versions of a key it keeps one, where a newer one has been written since. A merge operand that
    /// is newer than the snapshot is not merged into a value that it sees, and what it sees below a newer
    /// range tombstone stays there.
    fn share_kept(&self, grid: (usize, usize), operation: &Observation) -> f64 {
        let Events { hidden, steps, .. } = events(operation);
        let (entries, older) = (within(&self.entries, grid), within(&self.older_entries, grid));
        let newer = (entries - older).max(0.0);
        // A positioning call stands on an entry as well.
        let hidden_share = hidden.entries() as f64 / (hidden.entries() + steps + 1) as f64;
        let of_hidden =
            |kept: f64| (kept * KEPT_FACTOR / (entries * hidden_share).max(f64::MIN_POSITIVE)).min(1.0);
        let newer_deletions = within(&self.newer_deletions, grid) > 0.0;
        let kept = [
            (Hidden { old_versions: hidden.old_versions, ..Hidden::default() }, of_hidden(newer.min(older))),
            (
                Hidden { merge_operands: hidden.merge_operands, ..Hidden::default() },
                if older > 0.0 { of_hidden(newer) } else { 0.0 },
            ),
            (
                Hidden { reseeks: hidden.reseeks, ..Hidden::default() },
                if newer_deletions && older > 0.0 { 1.0 } else { 0.0 },
            ),
        ];
        let kept: f64 = kept.iter().map(|(part, share)| part.units() as f64 * share).sum();
        kept / hidden.units().max(1) as f64
    }

    pub(crate) fn within(&self, placement: &Placement, range: &KeyRange) -> Counts {
        let sums = [
            &self.deletions,
            &self.newer_deletions,
            &self.entries,
            &self.older_entries,
            &self.hidden,
            &self.hidden_kept,
        ];
        let [deletions, newer_deletions, entries, older_entries, hidden, hidden_kept] =
            placement.sums_within(sums.map(Vec::as_slice), range);
        let are_memtables_newer = self.are_memtables_newer;
        Counts {
            deletions,
            newer_deletions,
            entries,
            older_entries,
            are_memtables_newer,
            hidden,
            hidden_kept,
        }
    }
}

/// Which files have none on a deeper level below them.
fn lowest(files: &[&SstFile], placement: &Placement) -> Vec<bool> {
    let spans: Vec<(usize, usize)> = files.iter().map(|file| placement.span_of(file)).collect();
    let mut of_levels: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    (0..).zip(files).for_each(|(at, file)| of_levels.entry(file.level.min(LEVEL_MAX)).or_default().push(at));
    let mut is_lowest = vec![false; files.len()];
    let mut deeper = vec![0.0; placement.intervals()];
    for level in of_levels.values().rev() {
        let sums = running(deeper.iter().copied());
        let mut over = OverSpans::new(deeper.len());
        for at in level {
            let (Some(span), Some(is_lowest)) = (spans.get(*at), is_lowest.get_mut(*at)) else { continue };
            *is_lowest = within(&sums, *span) < 0.5;
            over.add(*span, 1.0);
        }
        deeper
            .iter_mut()
            .zip(over.amounts())
            .filter(|(_, files)| *files > 0.5)
            .for_each(|(deeper, _)| *deeper = 1.0);
    }
    is_lowest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::{Counters, SeekKind};
    use crate::facts::key::Key;
    use crate::facts::oldest_snapshot::Sequences;

    /// A file of so many entries, with the oldest and the newest of its sequence numbers.
    type Written = (u32, u64, u64, u64);

    /// The share of what an operation met that a snapshot at 100 keeps; the operation takes 1,000 steps.
    fn kept(files: &[Written], counters: Counters) -> f64 {
        let numbered = (1..).zip(files);
        let files: Vec<SstFile> = numbered
            .clone()
            .map(|(number, (level, entries, ..))| SstFile {
                number,
                column_family: "cf".to_owned(),
                level: *level,
                size_bytes: 1,
                entries: *entries,
                deletions: 0,
                smallest: Key::new("a"),
                largest: Key::new("b"),
            })
            .collect();
        let sequences = numbered.map(|(number, (_, _, smallest, largest))| {
            (number, Sequences { smallest: *smallest, largest: *largest })
        });
        let snapshot = OldestSnapshot { sequence: 100, files: sequences.collect() };
        let operation = Observation {
            end_key: Some(Key::new("b")),
            scan: counters,
            steps: Some(1_000),
            ..Observation::at(SeekKind::Seek, Key::new("a"))
        };
        let files: Vec<&SstFile> = files.iter().collect();
        let placement = Placement::of(&files, &[&operation], None);
        let hidden = HiddenEntries::of(&files, &placement, &[&operation]);
        let kept =
            KeptBySnapshot::of(&files, &placement, &snapshot).with_hidden(&placement, &hidden, &[&operation]);
        let counts = kept.within(&placement, &KeyRange::everything());
        counts.hidden_kept / counts.hidden
    }

    fn old_versions(count: u64) -> Counters {
        Counters { keys_skipped: 1_000 + count, ..Counters::default() }
    }

    /// Of versions written before and after the snapshot it keeps one of each key, however many there are.
    #[test]
    fn of_each_keys_older_versions_the_snapshot_keeps_one() {
        let (old, newer) =
            ((6, 1_000, 0, 100), |number: u64| (0, 1_000, number * 1_000, number * 1_000 + 999));
        assert!(kept(&[old, newer(2)], old_versions(1_000)) > 0.99, "one version, and the snapshot sees it");
        let many: Vec<Written> = [old].into_iter().chain((2..11).map(newer)).collect();
        let share = kept(&many, old_versions(9_000));
        assert!((share - KEPT_FACTOR / 9.0).abs() < 1e-3, "{share}");
        assert_eq!(kept(&[old, (0, 1_000, 10, 99)], old_versions(1_000)), 0.0, "all older than it");
        assert_eq!(kept(&[newer(2), newer(3)], old_versions(1_000)), 0.0, "all newer than it");
        assert!(kept(&[old, (0, 100, 200, 300)], old_versions(100)) > 0.99, "a tenth was written again");
    }

    #[test]
    fn operands_that_are_newer_than_the_snapshot_stay() {
        let operands = Counters { merge_operands: 3_000, ..old_versions(0) };
        let (old, newer) = ((6, 1_000, 0, 100), (0, 1_500, 200, 5_000));
        assert!(kept(&[old, newer, newer], operands) > 0.99);
        assert_eq!(kept(&[newer, newer], operands), 0.0, "it sees no value below them");
    }
}
