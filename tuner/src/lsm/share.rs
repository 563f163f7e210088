//! What files hold in a range of keys; where in a file it lies is estimated in
//! [`mod@crate::lsm::tombstone_placement`].

use crate::facts::{key::Key, range::KeyRange};
use serde::{Deserialize, Serialize};

/// Sums over the parts of SST files that lie in a range, all levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Bytes of the files.
    pub size_bytes: u64,
    /// `num_entries`, deletions included.
    pub entries: u64,
    /// `num_deletions`.
    pub deletions: u64,
}

impl Share {
    /// Sum, saturating.
    pub fn plus(self, other: Share) -> Share {
        Share {
            size_bytes: self.size_bytes.saturating_add(other.size_bytes),
            entries: self.entries.saturating_add(other.entries),
            deletions: self.deletions.saturating_add(other.deletions),
        }
    }

    /// Deletions per entry, 0 to 1; 0 where there is no entry.
    pub fn density(self) -> f64 {
        if self.entries == 0 {
            return 0.0;
        }
        (self.deletions as f64 / self.entries as f64).min(1.0)
    }

    /// Entries that are neither deletions nor, as far as one can tell, deleted by one.
    pub fn live_entries(self) -> u64 {
        self.entries.saturating_sub(self.deletions.saturating_mul(2))
    }
}

/// Cuts a range at those of the keys that lie inside; the pieces are in order and cover the range.
pub fn split(range: &KeyRange, cuts: &[Key]) -> Vec<KeyRange> {
    let mut inside: Vec<&Key> =
        cuts.iter().filter(|cut| **cut > range.begin && range.contains(cut)).collect();
    inside.sort();
    inside.dedup();
    let mut pieces = Vec::with_capacity(inside.len() + 1);
    let mut begin = range.begin.clone();
    for cut in inside {
        pieces.push(KeyRange { begin: std::mem::replace(&mut begin, cut.clone()), end: Some(cut.clone()) });
    }
    pieces.push(KeyRange { begin, end: range.end.clone() });
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), any::<u8>()], 0..6).prop_map(Key::new)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        (key(), proptest::option::of(key()))
            .prop_filter_map("empty", |(begin, end)| KeyRange::new(begin, end))
    }

    proptest! {
        #[test]
        fn pieces_are_in_order_and_cover_the_range(
            range in range(),
            cuts in proptest::collection::vec(key(), 0..8),
        ) {
            let pieces = split(&range, &cuts);
            prop_assert_eq!(pieces.first().map(|piece| &piece.begin), Some(&range.begin));
            prop_assert_eq!(pieces.last().map(|piece| &piece.end), Some(&range.end));
            for pair in pieces.windows(2) {
                if let [one, two] = pair {
                    prop_assert_eq!(one.end.as_ref(), Some(&two.begin));
                    prop_assert!(one.begin < two.begin);
                }
            }
        }
    }
}
