//! Tombstones that a RocksDB snapshot keeps, known before anything is written.
//!
//! A compaction drops a tombstone with the older entry that it hides, and keeps both while a snapshot sees
//! that entry. Files do not say which tombstone hides what. But only tombstones newer than the snapshot are
//! kept, and they hide what there is in the same keys: where no entry is older than the snapshot, as in a
//! queue whose keys are all younger, nothing is kept however long the snapshot is held.

use super::Rule;
use super::rules::Refused;
use crate::facts::evidence::{Evidence, MemtableDeletions, SstFile};
use crate::facts::oldest_snapshot::OldestSnapshot;
use crate::facts::range::KeyRange;
use crate::lsm::share::share_of;
use crate::rank::RangeAssessment;
use crate::words;

/// From this share of tombstones on that a snapshot may keep nothing is written: what would be dropped now
/// would be paid for again when the snapshot has been released.
const KEPT_SHARE_MIN: f64 = 0.5;

/// Each tombstone that is kept hides an older entry. But how many of a file's deletions lie in a part of its
/// keys is an estimate, which was seen to be off by five times: so many tombstones may seem to hide one
/// entry.
const TOMBSTONES_PER_ENTRY_MAX: f64 = 8.0;

/// What files have in some keys. Counts are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    deletions: f64,
    /// Those of them that are newer than the snapshot.
    newer_deletions: f64,
    /// Entries that a tombstone may hide.
    entries: f64,
    /// Those of them that the snapshot sees.
    older_entries: f64,
    /// Whether what is in memtables is newer than the snapshot.
    are_memtables_newer: bool,
}

impl Counts {
    /// Of `parts`, which are all files of a column family. What is in files whose sequence numbers are not
    /// known counts as if there were no snapshot.
    fn of(parts: &[SstFile], range: &KeyRange, snapshot: &OldestSnapshot) -> Counts {
        let inside = || parts.iter().filter(|part| range.overlaps_closed(&part.smallest, &part.largest));
        let lowest = inside().map(|part| part.level).max();
        let mut counts = Counts::default();
        for part in inside() {
            let share = share_of(part, range);
            let deletions = share.deletions as f64;
            counts.deletions += deletions;
            let Some(sequences) = snapshot.files.get(&part.number) else { continue };
            let newer = sequences.share_newer_than(snapshot.sequence);
            // A file at the bottom that was written since the snapshot was taken has no others any more.
            let is_kept = Some(part.level) == lowest && sequences.largest > snapshot.sequence;
            counts.newer_deletions += if is_kept { deletions } else { deletions * newer };
            let entries = share.entries.saturating_sub(share.deletions) as f64;
            counts.entries += entries;
            counts.older_entries += entries * (1.0 - newer);
        }
        // A memtable is newer than what its column family has flushed.
        let flushed = parts.iter().filter_map(|part| snapshot.files.get(&part.number));
        counts.are_memtables_newer = flushed.map(|it| it.largest).max() >= Some(snapshot.sequence);
        counts
    }

    /// The share of tombstones that the snapshot may keep, where `memtable_share` of them lie in memtables.
    fn share_kept(&self, memtable_share: f64, memtables: MemtableDeletions) -> f64 {
        let of = |part: f64, all: f64| if all > 0.0 { (part / all).min(1.0) } else { 0.0 };
        let hides_older = of(self.older_entries, self.entries);
        let kept_of =
            |deletions: f64| hides_older * of(self.older_entries * TOMBSTONES_PER_ENTRY_MAX, deletions);
        let in_files = of(self.newer_deletions, self.deletions) * kept_of(self.newer_deletions);
        let in_memtables = if self.are_memtables_newer { kept_of(memtables.total() as f64) } else { 0.0 };
        in_files * (1.0 - memtable_share) + in_memtables * memtable_share
    }
}

/// Whether a compaction would drop tombstones that readers of a range skip, in spite of the snapshots that
/// are held. `parts` are its column family's files for the statistics.
pub(crate) fn can_be_dropped(
    range: &RangeAssessment,
    parts: &[SstFile],
    evidence: &Evidence,
) -> Result<(), Refused> {
    let Some(snapshot) = &evidence.oldest_snapshot else { return Ok(()) };
    let counts = Counts::of(parts, &range.range, snapshot);
    let known = range.tombstones_per_seek - range.unexplained_tombstones_per_seek;
    let memtable_share =
        if known > 0.0 { (range.memtable_tombstones_per_seek / known).clamp(0.0, 1.0) } else { 0.0 };
    let memtables = range.column_family.as_ref().and_then(|name| evidence.memtables.get(name));
    let kept = counts.share_kept(memtable_share, memtables.copied().unwrap_or_default());
    if kept < KEPT_SHARE_MIN {
        return Ok(());
    }
    let reason = format!(
        "the oldest RocksDB snapshot (sequence number {}) may keep {} of its tombstones: in its files {} of {} are \
         newer, and it sees {} of {} other entries there",
        snapshot.sequence,
        words::percent(kept),
        words::number(counts.newer_deletions),
        words::number(counts.deletions),
        words::number(counts.older_entries),
        words::number(counts.entries),
    );
    Err((Rule::PinnedBySnapshot, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::key::Key;
    use crate::facts::oldest_snapshot::Sequences;

    const NO_MEMTABLES: MemtableDeletions = MemtableDeletions { active: 0, immutable: 0 };

    /// A file with the oldest and the newest of its sequence numbers.
    fn file(number: u64, level: u32, entries: u64, deletions: u64) -> SstFile {
        SstFile {
            number,
            column_family: "cf".to_owned(),
            level,
            size_bytes: 1,
            entries,
            deletions,
            smallest: Key::new("a"),
            largest: Key::new("b"),
        }
    }

    /// A snapshot at 100 of files with these sequence numbers.
    fn kept(files: &[(SstFile, u64, u64)], memtable_share: f64, memtables: MemtableDeletions) -> f64 {
        let numbered = files.iter().map(|(file, smallest, largest)| {
            (file.number, Sequences { smallest: *smallest, largest: *largest })
        });
        let snapshot = OldestSnapshot { sequence: 100, files: numbered.collect() };
        let parts: Vec<SstFile> = files.iter().map(|(file, ..)| file.clone()).collect();
        let counts = Counts::of(&parts, &KeyRange::everything(), &snapshot);
        counts.share_kept(memtable_share, memtables)
    }

    #[test]
    fn what_was_deleted_after_the_snapshot_is_kept_with_what_it_sees() {
        let entries = || file(1, 6, 1000, 0);
        assert_eq!(kept(&[(entries(), 0, 0), (file(2, 0, 900, 900), 101, 1000)], 0.0, NO_MEMTABLES), 1.0);
        assert_eq!(kept(&[(entries(), 0, 0), (file(2, 0, 900, 900), 50, 99)], 0.0, NO_MEMTABLES), 0.0);
        let half = [(entries(), 0, 0), (file(2, 6, 1000, 0), 101, 500), (file(3, 0, 900, 900), 501, 1000)];
        assert_eq!(kept(&half, 0.0, NO_MEMTABLES), 0.5);
        let many = [(entries(), 0, 0), (file(2, 0, 80_000, 80_000), 101, 1000)];
        assert_eq!(kept(&many, 0.0, NO_MEMTABLES), 0.1, "each hides one entry");
    }

    #[test]
    fn keys_that_the_snapshot_never_saw_pin_nothing() {
        let young = [(file(1, 6, 1000, 0), 101, 500), (file(2, 0, 900, 900), 501, 1000)];
        assert_eq!(kept(&young, 0.0, NO_MEMTABLES), 0.0);
    }

    #[test]
    fn a_file_at_the_bottom_written_since_the_snapshot_has_kept_what_it_has() {
        assert!(kept(&[(file(1, 6, 1800, 900), 0, 101)], 0.0, NO_MEMTABLES) > 0.9);
        assert_eq!(kept(&[(file(1, 6, 1800, 900), 0, 100)], 0.0, NO_MEMTABLES), 0.0);
    }

    #[test]
    fn memtables_are_newer_than_what_was_flushed_and_unknown_otherwise() {
        let memtables = MemtableDeletions { active: 500, immutable: 0 };
        let (old, flushed) = (file(1, 6, 1000, 0), file(2, 0, 1, 0));
        assert!(kept(&[(old.clone(), 0, 0), (flushed.clone(), 101, 101)], 1.0, memtables) > 0.9);
        assert_eq!(kept(&[(old, 0, 0), (flushed, 50, 60)], 1.0, memtables), 0.0);
    }

    #[test]
    fn files_that_are_not_known_are_as_without_a_snapshot() {
        let snapshot = OldestSnapshot { sequence: 100, files: Default::default() };
        let parts = [file(1, 6, 1000, 0), file(2, 0, 900, 900)];
        let counts = Counts::of(&parts, &KeyRange::everything(), &snapshot);
        assert_eq!((counts.deletions, counts.share_kept(0.0, NO_MEMTABLES)), (900.0, 0.0));
    }
}
