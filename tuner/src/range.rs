//! Half-open ranges of user keys, `[begin, end)`, within one column family.

use crate::key::Key;
use serde::{Deserialize, Serialize};

/// The keys from `begin` (inclusive) up to `end` (exclusive).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyRange {
    /// First key; an empty key means "from the start of the column family".
    pub begin: Key,
    /// First key that is no longer inside; `None` means "to the end of the column family".
    pub end: Option<Key>,
}

impl KeyRange {
    /// All keys.
    pub fn everything() -> KeyRange {
        KeyRange { begin: Key::default(), end: None }
    }

    /// `[begin, end)`; `None` where that would hold no key.
    pub fn new(begin: Key, end: Option<Key>) -> Option<KeyRange> {
        match &end {
            Some(end) if *end <= begin => None,
            _ => Some(KeyRange { begin, end }),
        }
    }

    /// All keys that start with `prefix`.
    pub fn with_prefix(prefix: Key) -> KeyRange {
        let end = prefix.prefix_end();
        KeyRange { begin: prefix, end }
    }

    /// Whether `key` lies inside.
    pub fn contains(&self, key: &Key) -> bool {
        *key >= self.begin && self.end.as_ref().is_none_or(|end| key < end)
    }

    /// Whether any key lies in both.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.end.as_ref().is_none_or(|end| other.begin < *end)
            && other.end.as_ref().is_none_or(|end| self.begin < *end)
    }

    /// Whether the closed interval `[smallest, largest]`, an SST file's, shares a key with the range.
    pub fn overlaps_closed(&self, smallest: &Key, largest: &Key) -> bool {
        *largest >= self.begin && self.end.as_ref().is_none_or(|end| smallest < end)
    }

    /// The keys in both; `None` where there are none.
    pub fn intersection(&self, other: &KeyRange) -> Option<KeyRange> {
        let begin = self.begin.clone().max(other.begin.clone());
        let end = match (&self.end, &other.end) {
            (Some(one), Some(two)) => Some(one.min(two).clone()),
            (one, two) => one.clone().or_else(|| two.clone()),
        };
        KeyRange::new(begin, end)
    }
}
