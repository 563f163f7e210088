//! The oldest RocksDB snapshot that a process holds of a database, and the sequence numbers of the files that
//! it may keep tombstones in.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sequence numbers of an SST file's entries. A compaction to the bottommost level sets those to 0 that no
/// snapshot tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequences {
    /// Of the oldest entry.
    pub smallest: u64,
    /// Of the newest.
    pub largest: u64,
}

impl Sequences {
    /// The share of entries that are newer than `sequence`, as if they had been written evenly.
    pub fn share_newer_than(self, sequence: u64) -> f64 {
        if self.smallest > sequence {
            return 1.0;
        }
        let (newer, all) =
            (self.largest.saturating_sub(sequence), self.largest.saturating_sub(self.smallest));
        newer as f64 / all.max(1) as f64
    }
}

/// A snapshot that is held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldestSnapshot {
    /// Its sequence number: it sees entries up to this one.
    pub sequence: u64,
    /// Those of the database's SST files by their number, as far as they are known.
    pub files: BTreeMap<u64, Sequences>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_newer_as_far_as_their_sequence_numbers_say() {
        let share = |smallest, largest| Sequences { smallest, largest }.share_newer_than(100);
        assert_eq!([share(0, 0), share(50, 100), share(100, 100)], [0.0; 3]);
        assert_eq!([share(101, 101), share(101, 900)], [1.0; 2]);
        assert_eq!(share(0, 400), 0.75);
    }
}
