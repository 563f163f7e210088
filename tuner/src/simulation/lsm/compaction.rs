//! Which entries survive a flush or a compaction: RocksDB's `CompactionIterator`.

use super::entry::{Entry, Kind, SEQUENCE_MAX};
use super::tombstones::{Fragments, earliest_snapshot};

/// What else there is to know of a job.
pub(crate) struct Surroundings<'j> {
    /// Sequence numbers of the snapshots that are held, in order.
    pub(crate) snapshots: &'j [u64],
    /// Range tombstones among the inputs.
    pub(crate) fragments: &'j Fragments,
    /// Whether nothing older lies below any key of the job.
    pub(crate) is_bottommost: bool,
    /// Whether an older version of a key can lie below the output level. A flush does not look.
    pub(crate) may_exist_below: &'j dyn Fn(u64) -> bool,
}

impl Surroundings<'_> {
    fn earliest(&self) -> u64 {
        self.snapshots.first().copied().unwrap_or(SEQUENCE_MAX)
    }

    /// The latest snapshot that does not see what was written at `sequence`; 0 where none is held.
    fn snapshot_before(&self, sequence: u64) -> u64 {
        let place = self.snapshots.partition_point(|snapshot| *snapshot < sequence);
        place.checked_sub(1).and_then(|place| self.snapshots.get(place)).copied().unwrap_or(0)
    }

    fn is_in_earliest(&self, entry: &Entry) -> bool {
        entry.sequence <= self.earliest()
    }
}

/// What is left of entries that are in order.
pub(crate) fn surviving(input: &[Entry], surroundings: &Surroundings<'_>) -> Vec<Entry> {
    let mut output = Vec::with_capacity(input.len());
    for versions in input.chunk_by(|one, two| one.key == two.key) {
        Versions { surroundings, output: &mut output, was_zeroed: false }.keep(versions);
    }
    output
}

/// The versions of one key, newest first.
struct Versions<'j, 'o> {
    surroundings: &'j Surroundings<'j>,
    output: &'o mut Vec<Entry>,
    /// Whether the last one that was kept has lost its sequence number: nobody sees an older one.
    was_zeroed: bool,
}

impl Versions<'_, '_> {
    fn keep(&mut self, versions: &[Entry]) {
        let mut seen_until = None;
        let mut place = 0;
        while let Some(entry) = versions.get(place) {
            let until = earliest_snapshot(self.surroundings.snapshots, entry.sequence);
            let is_hidden = seen_until.is_some_and(|seen| until >= seen);
            seen_until = Some(until);
            let older = versions.get(place + 1..).unwrap_or(&[]);
            let (taken, forgets) = match entry.kind {
                Kind::SingleDelete => self.single_delete(entry, older),
                _ if is_hidden => (1, false),
                Kind::Delete => (self.delete(entry, older), false),
                Kind::Merge => self.merge(versions.get(place..).unwrap_or(&[])),
                Kind::Put => {
                    self.keep_unless_covered(entry);
                    (1, false)
                }
            };
            if forgets {
                seen_until = None;
            }
            place += taken;
        }
    }

    fn output(&mut self, entry: &Entry) {
        let around = self.surroundings;
        let zeroed = around.is_bottommost && around.is_in_earliest(entry) && entry.kind == Kind::Put;
        self.was_zeroed |= zeroed;
        self.output.push(Entry { sequence: if zeroed { 0 } else { entry.sequence }, ..*entry });
    }

    fn keep_unless_covered(&mut self, entry: &Entry) {
        if !self.surroundings.fragments.drops(entry, self.surroundings.snapshots) {
            self.output(entry);
        }
    }

    fn may_exist_below(&self, key: u64) -> bool {
        !self.surroundings.is_bottommost && (self.surroundings.may_exist_below)(key)
    }

    /// How many entries it has dealt with, and whether what is left of the key is looked at as if there had
    /// been nothing before.
    fn single_delete(&mut self, entry: &Entry, older: &[Entry]) -> (usize, bool) {
        let Some(next) = older.first() else {
            let is_dropped = (self.surroundings.is_in_earliest(entry) && !self.may_exist_below(entry.key))
                || self.was_zeroed;
            if !is_dropped {
                self.output(entry);
            }
            return (1, true);
        };
        if self.was_zeroed {
            return (2, false);
        }
        let before = self.surroundings.snapshot_before(entry.sequence);
        if before != 0 && next.sequence <= before {
            self.output(entry);
            return (1, false);
        }
        match next.kind {
            // Of two in a row the second decides.
            Kind::Delete | Kind::SingleDelete => (1, false),
            Kind::Put | Kind::Merge => (2, false),
        }
    }

    fn delete(&mut self, entry: &Entry, older: &[Entry]) -> usize {
        let around = self.surroundings;
        if around.is_in_earliest(entry) && !self.may_exist_below(entry.key) {
            return 1;
        }
        if !around.is_bottommost {
            self.keep_unless_covered(entry);
            return 1;
        }
        let before = around.snapshot_before(entry.sequence);
        let hidden = older.iter().take_while(|older| before == 0 || older.sequence > before).count();
        if hidden < older.len() {
            self.output(entry);
        }
        1 + hidden
    }

    /// `MergeHelper::MergeUntil`, with an associative operator: operands that the same readers see become
    /// one, or a value where the oldest is known.
    ///
    /// Gives what `single_delete` gives.
    fn merge(&mut self, versions: &[Entry]) -> (usize, bool) {
        let around = self.surroundings;
        let Some(first) = versions.first() else { return (1, true) };
        let before = around.snapshot_before(first.sequence);
        let is_covered = |entry: &Entry| around.fragments.drops(entry, around.snapshots);
        let mut newest: Option<Entry> = None;
        let mut taken = 0;
        for entry in versions {
            if taken > 0 && before > 0 && entry.sequence <= before {
                break;
            }
            taken += 1;
            let value_bytes = newest.map_or(0, |newest| newest.value_bytes).max(entry.value_bytes);
            match (entry.kind, newest) {
                (Kind::Merge, _) if is_covered(entry) => {}
                (Kind::Merge, _) => newest = Some(Entry { value_bytes, ..newest.unwrap_or(*entry) }),
                // Every operand was deleted, and this is looked at by itself.
                (_, None) => return (taken - 1, true),
                (_, Some(newest)) => {
                    self.output(&Entry { kind: Kind::Put, value_bytes, ..newest });
                    return (taken, false);
                }
            }
        }
        let has_all = taken == versions.len() && around.is_bottommost;
        if let Some(newest) = newest {
            self.output(&Entry { kind: if has_all { Kind::Put } else { Kind::Merge }, ..newest });
        }
        (taken, newest.is_none())
    }
}
