//! What a tree is made of: entries, in RocksDB's order of internal keys, and range tombstones.

use std::cmp::Reverse;

/// Sequence number greater than all others.
pub(crate) const SEQUENCE_MAX: u64 = u64::MAX;

/// Type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `kTypeValue`.
    Put,
    /// `kTypeDeletion`.
    Delete,
    /// `kTypeSingleDeletion`.
    SingleDelete,
    /// `kTypeMerge`, an operand.
    Merge,
}

impl Kind {
    /// Whether it is a tombstone.
    pub fn is_deletion(self) -> bool {
        matches!(self, Kind::Delete | Kind::SingleDelete)
    }

    /// RocksDB's number of the type.
    pub(crate) fn number(self) -> u64 {
        match self {
            Kind::Delete => 0,
            Kind::Put => 1,
            Kind::Merge => 2,
            Kind::SingleDelete => 7,
        }
    }
}

/// One version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: u64,
    /// 0 where a compaction has found that it no longer matters.
    pub sequence: u64,
    pub kind: Kind,
    pub value_bytes: u32,
}

/// Place of an entry: by key, newest version first.
pub(crate) type Place = (u64, Reverse<u64>);

impl Entry {
    pub(crate) fn place(&self) -> Place {
        (self.key, Reverse(self.sequence))
    }
}

/// Deletes the keys from `begin` up to, and without, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    pub begin: u64,
    pub end: u64,
    pub sequence: u64,
}
