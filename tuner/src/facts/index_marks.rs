//! What the index block of an SST file tells of where its data lies: user keys between which data blocks
//! end, and the bytes before each. Where nothing else says what lies inside of a file, this does.

use crate::facts::key::Key;
use serde::{Deserialize, Serialize};

/// Most marks that are kept of one file. A file of 64 MiB has 16,384 blocks; where its data lies is known to
/// a sixty-fourth of it with them.
pub const MARKS_MAX: usize = 64;

/// Longest key that is a mark; a longer one is passed over, so that no file's marks take more than 64 KiB.
const MARK_KEY_BYTES_MAX: usize = 1024;

/// All keys of the blocks before it are at most this one, all others are greater.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexMark {
    pub key: Key,
    /// Bytes of the blocks before it.
    pub bytes_before: u64,
}

/// Some marks of one file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexMarks(Vec<IndexMark>);

impl IndexMarks {
    pub fn iter(&self) -> impl Iterator<Item = &IndexMark> {
        self.0.iter().take(MARKS_MAX)
    }

    pub fn len(&self) -> usize {
        self.iter().count()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same marks with other keys.
    #[must_use]
    pub fn renamed(&self, rename: impl Fn(&Key) -> Key) -> IndexMarks {
        let renamed = |mark: &IndexMark| IndexMark { key: rename(&mark.key), ..*mark };
        IndexMarks(self.0.iter().map(renamed).collect())
    }
}

/// Thins marks out while they come: of many, each is kept that follows as many others as the one before.
#[derive(Clone, Debug)]
pub struct Thinning {
    marks: Vec<IndexMark>,
    /// One in so many is kept.
    stride: u64,
    seen: u64,
}

impl Default for Thinning {
    fn default() -> Thinning {
        Thinning { marks: Vec::new(), stride: 1, seen: 0 }
    }
}

impl Thinning {
    /// The next mark, behind all that came before.
    pub fn push(&mut self, key: &[u8], bytes_before: u64) {
        self.seen += 1;
        if !self.seen.is_multiple_of(self.stride) || key.len() > MARK_KEY_BYTES_MAX {
            return;
        }
        if self.marks.len() == MARKS_MAX {
            // The second, the fourth and so on are those that a stride of twice the length would have kept.
            let mut place = 0;
            self.marks.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.stride *= 2;
            if !self.seen.is_multiple_of(self.stride) {
                return;
            }
        }
        self.marks.push(IndexMark { key: Key::new(key), bytes_before });
    }

    pub fn marks(self) -> IndexMarks {
        IndexMarks(self.marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_marks_are_thinned_out_evenly() {
        for count in [0, 1, 63, 64, 65, 1_000, 100_000_u64] {
            let mut thinning = Thinning::default();
            (1..=count).for_each(|block| thinning.push(&block.to_be_bytes(), block * 4096));
            let marks = thinning.marks();
            let least = count.min(MARKS_MAX as u64 / 2) as usize;
            assert!((least..=MARKS_MAX).contains(&marks.len()), "{count}: {}", marks.len());
            let places: Vec<u64> = marks.iter().map(|mark| mark.bytes_before / 4096).collect();
            let stride = places.first().copied().unwrap_or(1);
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] == stride), "{count}: {places:?}");
        }
    }

    #[test]
    fn a_key_of_any_length_takes_no_more_than_its_share() {
        let mut thinning = Thinning::default();
        (1..=1_000).for_each(|block| thinning.push(&[7; 4096], block));
        thinning.push(&[8; MARK_KEY_BYTES_MAX], 1_001);
        assert!(thinning.marks().len() <= 1);
    }
}
