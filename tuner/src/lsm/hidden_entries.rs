//! Where entries lie that others hide: older versions of keys, and merge operands.
//!
//! No file says how many of its entries a newer one hides. But a flush and a compaction keep one version of
//! each key, unless a RocksDB snapshot tells them apart, so older versions lie where files overlap: about as
//! many as there are entries beside those of the largest sorted run. Where nothing overlaps, a snapshot that
//! was held may have kept some. RocksDB rewrites such files by itself once it has been released, and nobody
//! else can tell whether they hold any: what was met there is unexplained.

use crate::facts::evidence::{Observation, SstFile};
use crate::loss::read_time::{Hidden, events};
use crate::lsm::ruler::{running, shared_out, within};
use crate::lsm::tombstone_placement::Placement;
use std::collections::BTreeMap;

/// An operation cannot have stepped over more hidden entries than files have where it went. How many that are
/// is an estimate, so this many times as many are believed; the rest is in no file.
const ENTRIES_FACTOR: f64 = 4.0;

/// Files of L0 that are looked at one by one, those with most entries: RocksDB stops writing long before.
const LEVEL0_FILES_MAX: usize = 64;

/// Entries of files that others can hide, by the grid of a [`Placement`]; empty where no operation has met
/// any.
#[derive(Clone, Debug, Default)]
pub(crate) struct HiddenEntries {
    /// In each interval.
    overlapping: Vec<f64>,
    /// Before each.
    sums: Vec<f64>,
}

/// What an operation met, in units of [`Hidden::units`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MetHidden {
    /// From where to where it went, by the grid.
    pub(crate) grid: (usize, usize),
    /// As much as files can have there.
    pub(crate) in_files: u64,
    pub(crate) unexplained: u64,
}

impl HiddenEntries {
    pub(crate) fn of(
        files: &[&SstFile],
        placement: &Placement,
        observations: &[&Observation],
    ) -> HiddenEntries {
        if observations.iter().all(|seen| events(seen).hidden == Hidden::default()) {
            return HiddenEntries::default();
        }
        let lengths = placement.lengths();
        let length_sums = running(lengths.iter().copied());
        let mut runs: BTreeMap<u32, Vec<&SstFile>> = BTreeMap::new();
        files.iter().for_each(|file| runs.entry(file.level).or_default().push(file));
        let deeper = runs.split_off(&1);
        let (mut entries, mut largest) = (vec![0.0; lengths.len()], vec![0.0_f64; lengths.len()]);
        for run in deeper.into_values() {
            let spans = run.iter().map(|file| (placement.span_of(file), file.entries as f64));
            let own = shared_out(&lengths, spans);
            for ((all, largest), own) in entries.iter_mut().zip(&mut largest).zip(own) {
                *all += own;
                *largest = largest.max(own);
            }
        }
        let mut level0 = runs.into_values().flatten().collect::<Vec<_>>();
        level0.sort_by_key(|file| std::cmp::Reverse(file.entries));
        for file in level0.into_iter().take(LEVEL0_FILES_MAX) {
            let (first, last) = placement.span_of(file);
            let thick = file.entries as f64 / within(&length_sums, (first, last)).max(f64::MIN_POSITIVE);
            let parts = entries.iter_mut().zip(&mut largest).zip(&lengths).skip(first);
            for ((all, largest), length) in parts.take(last.saturating_sub(first)) {
                *all += thick * length;
                *largest = largest.max(thick * length);
            }
        }
        let overlapping = entries.iter().zip(&largest).map(|(all, largest)| (all - largest).max(0.0));
        let overlapping: Vec<f64> = overlapping.collect();
        HiddenEntries { sums: running(overlapping.iter().copied()), overlapping }
    }

    /// Where an operation met what is hidden, and how much of it files cannot have had there. Range
    /// tombstones are deletions in files' counts: where there are none, those that it seeked behind are in no
    /// file.
    pub(crate) fn met(&self, placement: &Placement, operation: &Observation) -> MetHidden {
        let hidden = events(operation).hidden;
        let units = hidden.units();
        let grid = if units > 0 { placement.walked(operation) } else { None };
        let Some((grid, there)) = grid.map(|grid| (grid, within(&self.sums, grid))).filter(|it| it.1 > 0.0)
        else {
            return MetHidden { unexplained: units, ..MetHidden::default() };
        };
        let share = (there * ENTRIES_FACTOR / hidden.entries().max(1) as f64).min(1.0);
        let of_entries = units - hidden.units_of_reseeks();
        let of_reseeks = if placement.deletions_between(grid) > 0.0 { hidden.units_of_reseeks() } else { 0 };
        let in_files = ((of_entries as f64 * share) as u64).min(of_entries) + of_reseeks;
        MetHidden { grid, in_files, unexplained: units - in_files }
    }

    /// Before each place of the grid.
    pub(crate) fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Amounts that were met between places of the grid, by its intervals.
    pub(crate) fn shared_out(&self, amounts: Vec<((usize, usize), f64)>) -> Vec<f64> {
        shared_out(&self.overlapping, amounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::{Counters, SeekKind};
    use crate::facts::key::Key;
    use crate::facts::range::KeyRange;
    use crate::loss::read_time::UNITS_PER_TOMBSTONE;

    fn file(level: u32, smallest: &str, largest: &str, entries: u64, deletions: u64) -> SstFile {
        SstFile {
            number: 1,
            column_family: "default".to_owned(),
            level,
            size_bytes: 1 << 20,
            entries,
            deletions,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    fn walk(key: &str, end_key: Option<&str>, old_versions: u64, reseeks: u64) -> Observation {
        let scan = Counters {
            keys_skipped: old_versions + 10,
            range_deletion_reseeks: reseeks,
            ..Counters::default()
        };
        let (end_key, steps) = (end_key.map(Key::new), Some(10));
        Observation { end_key, scan, steps, ..Observation::at(SeekKind::Seek, Key::new(key)) }
    }

    /// What goes to the keys before `m`, what to those behind, and what is unexplained.
    fn met(files: &[SstFile], walk: &Observation) -> (f64, f64, u64) {
        let files: Vec<&SstFile> = files.iter().collect();
        let placement = Placement::of(&files, &[walk], None);
        let hidden = HiddenEntries::of(&files, &placement, &[walk]);
        let met = hidden.met(&placement, walk);
        let sums = running(hidden.shared_out(vec![(met.grid, met.in_files as f64)]));
        let low = KeyRange { begin: Key::default(), end: Some(Key::new("m")) };
        let high = KeyRange { begin: Key::new("m"), end: None };
        let of = |range| placement.sums_within([&sums], range)[0].round();
        (of(&low), of(&high), met.unexplained)
    }

    #[test]
    fn older_versions_lie_where_files_overlap() {
        let whole = file(6, "a", "z", 1000, 0);
        let files = [whole.clone(), file(0, "a", "lz", 1000, 0), file(0, "a", "lz", 1000, 0)];
        assert_eq!(met(&files, &walk("a", Some("z"), 900, 0)), (900.0, 0.0, 0));
        assert_eq!(met(&[whole], &walk("a", Some("z"), 900, 0)), (0.0, 0.0, 900));
    }

    #[test]
    fn what_files_cannot_have_is_unexplained() {
        let files = [file(6, "a", "f", 100, 0), file(0, "a", "f", 100, 0)];
        assert_eq!(met(&files, &walk("a", Some("f"), 1_000, 0)), (400.0, 0.0, 600), "in a memtable");
        assert_eq!(met(&files, &walk("p", Some("q"), 1_000, 0)), (0.0, 0.0, 1_000), "beside all files");
        assert_eq!(met(&[], &walk("p", Some("q"), 1_000, 0)).2, 1_000);
        assert_eq!(met(&files, &walk("b", None, 50, 0)), (50.0, 0.0, 0), "where it ended is not known");
    }

    #[test]
    fn range_tombstones_are_in_files_that_have_deletions() {
        let reseeks = walk("a", Some("f"), 0, 7);
        let [files, none] =
            [1, 0].map(|deletions| [file(0, "a", "f", 1, deletions), file(6, "a", "f", 100, 0)]);
        let units = 7 * UNITS_PER_TOMBSTONE * crate::facts::evidence::TOMBSTONES_PER_RESEEK;
        assert_eq!(met(&files, &reseeks), (units as f64, 0.0, 0));
        assert_eq!(met(&none, &reseeks), (0.0, 0.0, units));
    }
}
