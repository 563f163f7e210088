//! Tombstones and hidden entries that a RocksDB snapshot keeps, known before anything is written.
//!
//! A compaction drops a tombstone with the older entry that it hides, and keeps both while a snapshot sees
//! that entry. Files do not say which tombstone hides what. But only tombstones newer than the snapshot are
//! kept, and they hide what there is in the same keys: where no entry is older than the snapshot, as in a
//! queue whose keys are all younger, nothing is kept however long the snapshot is held.
//!
//! What it keeps of entries that newer ones hide is worked out where readers met them
//! ([`crate::lsm::kept`]). What younger snapshots keep is not known: an action that relieves nothing for them
//! backs off.

use super::Rule;
use super::rules::Refused;
use crate::facts::evidence::{Evidence, MemtableDeletions};
use crate::lsm::kept::Counts;
use crate::rank::{Family, RangeAssessment};
use crate::words;

/// From this share of tombstones on that a snapshot may keep nothing is written: what would be dropped now
/// would be paid for again when the snapshot has been released.
const KEPT_SHARE_MIN: f64 = 0.5;

/// Each tombstone that is kept hides an older entry. But how many of a file's deletions lie in a part of its
/// keys is an estimate, which was seen to be off by five times: so many tombstones may seem to hide one
/// entry.
const TOMBSTONES_PER_ENTRY_MAX: f64 = 8.0;

impl Counts {
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

/// Whether a compaction would drop what readers of a range step over, in spite of the snapshots that are
/// held. `family` is its column family.
pub(crate) fn can_be_dropped(
    range: &RangeAssessment,
    family: &Family,
    evidence: &Evidence,
) -> Result<(), Refused> {
    let (Some(snapshot), Some(kept)) = (&evidence.oldest_snapshot, &family.kept) else { return Ok(()) };
    let counts = kept.within(&family.placement, &range.range);
    let known = range.tombstones_per_seek - range.unexplained_tombstones_per_seek;
    let memtable_share =
        if known > 0.0 { (range.memtable_tombstones_per_seek / known).clamp(0.0, 1.0) } else { 0.0 };
    let memtables = range.column_family.as_ref().and_then(|name| evidence.memtables.get(name));
    let of_tombstones = counts.share_kept(memtable_share, memtables.copied().unwrap_or_default());
    let of_hidden = if counts.hidden > 0.0 { counts.hidden_kept / counts.hidden } else { 0.0 };
    let parts = [(known, of_tombstones), (range.hidden_per_seek(), of_hidden)];
    let all: f64 = parts.iter().map(|(weight, _)| weight).sum();
    let kept = match all > 0.0 {
        true => parts.iter().map(|(weight, kept)| weight * kept).sum::<f64>() / all,
        false => of_tombstones,
    };
    if kept < KEPT_SHARE_MIN {
        return Ok(());
    }
    let what = if range.hidden_per_seek() > 0.0 { "tombstones and hidden entries" } else { "tombstones" };
    let reason = format!(
        "the oldest RocksDB snapshot (sequence number {}) may keep {} of its {what}: in its files {} of {} deletions \
         are newer, and it sees {} of {} other entries there",
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
    use crate::facts::evidence::SstFile;
    use crate::facts::key::Key;
    use crate::facts::oldest_snapshot::{OldestSnapshot, Sequences};
    use crate::facts::range::KeyRange;
    use crate::lsm::kept::KeptBySnapshot;
    use crate::lsm::tombstone_placement::Placement;

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

    fn counts(files: &[&SstFile], snapshot: &OldestSnapshot) -> Counts {
        let placement = Placement::of(files, &[], None);
        KeptBySnapshot::of(files, &placement, snapshot).within(&placement, &KeyRange::everything())
    }

    /// A snapshot at 100 of files with these sequence numbers.
    fn kept(files: &[(SstFile, u64, u64)], memtable_share: f64, memtables: MemtableDeletions) -> f64 {
        let numbered = files.iter().map(|(file, smallest, largest)| {
            (file.number, Sequences { smallest: *smallest, largest: *largest })
        });
        let snapshot = OldestSnapshot { sequence: 100, files: numbered.collect() };
        let files: Vec<&SstFile> = files.iter().map(|(file, ..)| file).collect();
        counts(&files, &snapshot).share_kept(memtable_share, memtables)
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
        let counts = counts(&[&file(1, 6, 1000, 0), &file(2, 0, 900, 900)], &snapshot);
        assert_eq!((counts.deletions, counts.share_kept(0.0, NO_MEMTABLES)), (900.0, 0.0));
    }
}
