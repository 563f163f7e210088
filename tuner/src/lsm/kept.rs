//! What a held RocksDB snapshot may keep of a column family's files, in the order of keys.

use crate::facts::evidence::SstFile;
use crate::facts::oldest_snapshot::OldestSnapshot;
use crate::facts::range::KeyRange;
use crate::lsm::ruler::{OverSpans, running, within};
use crate::lsm::tombstone_placement::Placement;
use std::collections::BTreeMap;

/// Levels from this one on count as one; RocksDB has 7 unless it is told otherwise.
const LEVEL_MAX: u32 = 63;

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
}

impl KeptBySnapshot {
    /// Of all files of a column family.
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
        }
    }

    pub(crate) fn within(&self, placement: &Placement, range: &KeyRange) -> Counts {
        let sums = [&self.deletions, &self.newer_deletions, &self.entries, &self.older_entries];
        let [deletions, newer_deletions, entries, older_entries] =
            placement.sums_within(sums.map(Vec::as_slice), range);
        let are_memtables_newer = self.are_memtables_newer;
        Counts { deletions, newer_deletions, entries, older_entries, are_memtables_newer }
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
