//! Range tombstones, cut where they begin and end: between two neighbouring borders all hold alike.

use super::entry::{Entry, RangeTombstone};

/// A part between two borders, with the sequence numbers of those that cover it, greatest first.
#[derive(Clone, Debug)]
struct Fragment {
    begin: u64,
    end: u64,
    sequences: Vec<u64>,
}

/// Range tombstones of several runs together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fragments(Vec<Fragment>);

impl Fragments {
    pub(crate) fn of<'t>(tombstones: impl Iterator<Item = &'t RangeTombstone> + Clone) -> Fragments {
        let mut borders: Vec<u64> = tombstones.clone().flat_map(|one| [one.begin, one.end]).collect();
        borders.sort_unstable();
        borders.dedup();
        let pairs = borders.iter().zip(borders.iter().skip(1));
        let mut fragments: Vec<Fragment> =
            pairs.map(|(begin, end)| Fragment { begin: *begin, end: *end, sequences: Vec::new() }).collect();
        for tombstone in tombstones {
            let first = fragments.partition_point(|fragment| fragment.begin < tombstone.begin);
            let inside = fragments.iter_mut().skip(first).take_while(|part| part.end <= tombstone.end);
            inside.for_each(|fragment| fragment.sequences.push(tombstone.sequence));
        }
        fragments.retain(|fragment| !fragment.sequences.is_empty());
        for fragment in &mut fragments {
            fragment.sequences.sort_unstable_by_key(|sequence| std::cmp::Reverse(*sequence));
            fragment.sequences.dedup();
        }
        Fragments(fragments)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn at(&self, key: u64) -> Option<(usize, &Fragment)> {
        let place = self.0.partition_point(|fragment| fragment.end <= key);
        self.0.get(place).filter(|fragment| fragment.begin <= key).map(|fragment| (place, fragment))
    }

    /// Which fragment deletes an entry for a reader that sees what was written up to `sequence`.
    pub(crate) fn cover(&self, entry: &Entry, sequence: u64) -> Option<usize> {
        let (place, fragment) = self.at(entry.key)?;
        let newest = fragment.sequences.iter().find(|seen| **seen <= sequence)?;
        (*newest > entry.sequence).then_some(place)
    }

    /// Whether one deletes an entry for everybody who sees the entry: no snapshot lies between the two.
    pub(crate) fn drops(&self, entry: &Entry, snapshots: &[u64]) -> bool {
        let Some((_, fragment)) = self.at(entry.key) else { return false };
        let seen_until = earliest_snapshot(snapshots, entry.sequence);
        fragment.sequences.iter().any(|sequence| *sequence > entry.sequence && *sequence <= seen_until)
    }

    /// The fragments as tombstones, of each only the newest that a snapshot or the present sees.
    pub(crate) fn newest(&self, snapshots: &[u64]) -> Vec<RangeTombstone> {
        let mut kept = Vec::new();
        for fragment in &self.0 {
            let mut seen_until = None;
            for sequence in &fragment.sequences {
                let until = earliest_snapshot(snapshots, *sequence);
                if seen_until != Some(until) {
                    kept.push(RangeTombstone {
                        begin: fragment.begin,
                        end: fragment.end,
                        sequence: *sequence,
                    });
                }
                seen_until = Some(until);
            }
        }
        kept
    }
}

/// The earliest of the snapshots, in order, that sees what was written at `sequence`; the present where none
/// does.
pub(crate) fn earliest_snapshot(snapshots: &[u64], sequence: u64) -> u64 {
    let place = snapshots.partition_point(|snapshot| *snapshot < sequence);
    snapshots.get(place).copied().unwrap_or(super::entry::SEQUENCE_MAX)
}
