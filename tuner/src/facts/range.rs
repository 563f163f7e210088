//! Half-open ranges of user keys, `[begin, end)`, within one column family.

use crate::facts::key::Key;
use serde::{Deserialize, Serialize};

/// The keys from `begin` (inclusive) up to `end` (exclusive); the default is all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyRange {
    /// First key; an empty key means "from the start of the column family".
    pub begin: Key,
    /// First key that is no longer inside; `None` means "to the end of the column family".
    pub end: Option<Key>,
}

impl KeyRange {
    pub fn everything() -> KeyRange {
        KeyRange::default()
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

    /// The keys that lie in both; `None` where none does.
    pub fn intersection(&self, other: &KeyRange) -> Option<KeyRange> {
        let begin = (&self.begin).max(&other.begin).clone();
        let end = match (&self.end, &other.end) {
            (Some(one), Some(two)) => Some(one.min(two).clone()),
            (one, two) => one.as_ref().or(two.as_ref()).cloned(),
        };
        KeyRange::new(begin, end)
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(0u8..4, 0..3).prop_map(Key::new)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        let ends = (key(), proptest::option::of(key()));
        ends.prop_filter_map("a range that holds no key", |(begin, end)| KeyRange::new(begin, end))
    }

    #[test]
    fn a_range_without_keys_is_none() {
        assert_eq!(KeyRange::new(Key::new("b"), Some(Key::new("b"))), None);
        assert_eq!(KeyRange::new(Key::new("b"), Some(Key::new("a"))), None);
        assert!(KeyRange::new(Key::new("b"), None).is_some());
    }

    proptest! {
        #[test]
        fn a_closed_interval_overlaps_where_it_shares_a_key(
            range in range(),
            one in key(),
            two in key(),
            key in key(),
        ) {
            let (smallest, largest) = if one <= two { (one, two) } else { (two, one) };
            if range.contains(&key) && smallest <= key && key <= largest {
                prop_assert!(range.overlaps_closed(&smallest, &largest));
            }
            let half_open = KeyRange::new(smallest.clone(), Some(largest.successor()));
            let overlaps = half_open.is_some_and(|other| range.overlaps(&other));
            prop_assert_eq!(range.overlaps_closed(&smallest, &largest), overlaps);
        }

        #[test]
        fn a_prefix_range_holds_its_keys(prefix: Vec<u8>, rest: Vec<u8>) {
            let range = KeyRange::with_prefix(Key::new(prefix.clone()));
            prop_assert!(range.contains(&Key::new([prefix, rest].concat())));
        }
    }
}
