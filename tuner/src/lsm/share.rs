//! How much of an SST file lies in a key range.
//!
//! A file says only its smallest and largest key and its totals. What lies between two keys is
//! estimated by their distance, as if keys were spread evenly. The estimate is exact in one respect:
//! the parts of a file add up to the file, whatever the ranges are.

use crate::facts::{evidence::SstFile, key::Key, range::KeyRange};
use serde::{Deserialize, Serialize};

/// Key bytes behind the common prefix that the distance is measured by.
const DISTANCE_BYTES: usize = 8;

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

/// The part of one file that lies in `range`.
pub fn share_of(file: &SstFile, range: &KeyRange) -> Share {
    let ruler = Ruler::of(file);
    let part = |total: u64| {
        let end = range.end.as_ref().map_or(total, |end| ruler.before(end, total));
        end.saturating_sub(ruler.before(&range.begin, total))
    };
    Share { size_bytes: part(file.size_bytes), entries: part(file.entries), deletions: part(file.deletions) }
}

/// The parts of several files that lie in `range`.
pub fn share_of_all<'a>(files: impl IntoIterator<Item = &'a SstFile>, range: &KeyRange) -> Share {
    files.into_iter().map(|file| share_of(file, range)).fold(Share::default(), Share::plus)
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

/// The part of `total`, spread from `smallest` to `largest`, that lies in `[begin, end)`.
pub(crate) fn share_between(smallest: &Key, largest: &Key, total: u64, begin: &Key, end: &Key) -> u64 {
    let ruler = Ruler::between(smallest, largest);
    ruler.before(end, total).saturating_sub(ruler.before(begin, total))
}

/// The key at this part (0 to 1) of the way from `low` to `high`; never outside of the two.
pub(crate) fn key_between(low: &Key, high: &Key, part: f64) -> Key {
    let ruler = Ruler::between(low, high);
    let (from, to) = (ruler.position(low), ruler.position(high));
    let position = from.saturating_add((to.saturating_sub(from) as f64 * part.clamp(0.0, 1.0)) as u64);
    let common = low.as_bytes().iter().take(ruler.common_bytes).copied();
    let key = Key::new(common.chain(position.to_be_bytes()).collect::<Vec<u8>>());
    key.max(low.clone()).min(high.clone())
}

/// Measures where a key lies between a file's smallest and largest key.
struct Ruler<'f> {
    smallest: &'f Key,
    largest: &'f Key,
    common_bytes: usize,
}

impl Ruler<'_> {
    fn of(file: &SstFile) -> Ruler<'_> {
        Ruler::between(&file.smallest, &file.largest)
    }

    fn between<'k>(smallest: &'k Key, largest: &'k Key) -> Ruler<'k> {
        let pairs = smallest.as_bytes().iter().zip(largest.as_bytes());
        let common_bytes = pairs.take_while(|(one, two)| one == two).count();
        Ruler { smallest, largest, common_bytes }
    }

    /// What of `total` lies before `key`: 0 up to the smallest key, all of it behind the largest,
    /// never less for a greater key.
    fn before(&self, key: &Key, total: u64) -> u64 {
        if key <= self.smallest {
            return 0;
        }
        if key > self.largest {
            return total;
        }
        let smallest = self.position(self.smallest);
        let span = u128::from(self.position(self.largest).saturating_sub(smallest)) + 1;
        let distance = u128::from(self.position(key).saturating_sub(smallest)).min(span - 1);
        // At most `total`, because the distance is less than the span.
        u64::try_from(u128::from(total) * distance / span).unwrap_or(total)
    }

    fn position(&self, key: &Key) -> u64 {
        let bytes = key.as_bytes().iter().skip(self.common_bytes).copied();
        bytes.chain(std::iter::repeat(0)).take(DISTANCE_BYTES).fold(0, |sum, byte| sum << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), any::<u8>()], 0..6).prop_map(Key::new)
    }

    fn file() -> impl Strategy<Value = SstFile> {
        (key(), key(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
            |(one, two, size_bytes, entries, deletions)| {
                let (smallest, largest) = if one <= two { (one, two) } else { (two, one) };
                let column_family = "default".to_owned();
                SstFile {
                    number: 1,
                    column_family,
                    level: 0,
                    size_bytes,
                    entries,
                    deletions,
                    smallest,
                    largest,
                }
            },
        )
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        (key(), proptest::option::of(key()))
            .prop_filter_map("empty", |(begin, end)| KeyRange::new(begin, end))
    }

    proptest! {
        #[test]
        fn splitting_a_range_conserves_bytes_entries_and_deletions(
            files in proptest::collection::vec(file(), 0..6),
            range in range(),
            cuts in proptest::collection::vec(key(), 0..8),
        ) {
            let whole = share_of_all(&files, &range);
            let parts = split(&range, &cuts);
            let sum = parts.iter().map(|part| share_of_all(&files, part)).fold(Share::default(), Share::plus);
            prop_assert_eq!(whole, sum);
        }

        #[test]
        fn the_parts_of_a_file_are_the_file(file in file(), cuts in proptest::collection::vec(key(), 0..8)) {
            let parts = split(&KeyRange::everything(), &cuts);
            let sum = parts.iter().map(|part| share_of(&file, part)).fold(Share::default(), Share::plus);
            let (size_bytes, entries, deletions) = (file.size_bytes, file.entries, file.deletions);
            let whole = Share { size_bytes, entries, deletions };
            prop_assert_eq!(sum, whole);
        }

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

        #[test]
        fn a_file_outside_a_range_has_no_share_in_it(file in file(), range in range()) {
            if !range.overlaps_closed(&file.smallest, &file.largest) {
                prop_assert_eq!(share_of(&file, &range), Share::default());
            }
        }
    }

    #[test]
    fn half_of_the_distance_is_half_of_the_file() {
        let file = SstFile {
            number: 1,
            column_family: "default".to_owned(),
            level: 6,
            size_bytes: 1000,
            entries: 100,
            deletions: 10,
            smallest: Key::new([b'k', 0]),
            largest: Key::new([b'k', 255, 255, 255, 255]),
        };
        let range = KeyRange { begin: Key::default(), end: Some(Key::new([b'k', 128])) };
        let half = share_of(&file, &range);
        assert_eq!((half.size_bytes, half.entries, half.deletions), (500, 50, 5));
    }
}
