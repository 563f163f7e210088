//! A made-up database of any size, and what readers of it met: the same for the planner and for its peer.
//!
//! One column family with leveled compaction, each level ten times as large as the one above. Readers walk
//! over tombstones in a thousand stretches of keys, the first of which hurts most (by Zipf's law).

use sexton_tuner::evidence::{Counters, Observation, SeekKind, SstFile};
use sexton_tuner::key::Key;

/// Positions that keys stand for.
const POSITIONS: u64 = 1_000_000_000_000;
/// Places that hurt.
const STRETCHES: u64 = 1_000;
/// Positions in one of them.
const STRETCH_POSITIONS: u64 = POSITIONS / 4_000;
const LEVEL_MAX: u32 = 6;
const FILE_BYTES: u64 = 64 << 20;
const ENTRIES_PER_FILE: u64 = 500_000;

/// The column family that everything is in.
pub const COLUMN_FAMILY: &str = "default";

/// Its files and observations, each by its number.
#[derive(Clone, Copy, Debug)]
pub struct Database {
    pub files: u64,
    pub observations: u64,
}

impl Database {
    /// All its files, level by level in the order of their keys, as a MANIFEST has them.
    pub fn sst_files(self) -> Vec<SstFile> {
        let mut files = Vec::new();
        let mut left = self.files;
        for level in 0..=LEVEL_MAX {
            let share = self.files * 9 / 10_u64.pow(LEVEL_MAX - level + 1);
            let count = if level == LEVEL_MAX { left } else { share.min(left) };
            left -= count;
            let width = POSITIONS / count.max(1);
            for place in 0..count {
                let number = u64::try_from(files.len()).unwrap_or(u64::MAX) + 1;
                // Some files are full of deletions, most have a few.
                let random = mixed(number);
                let deletions =
                    if random.is_multiple_of(10) { ENTRIES_PER_FILE / 2 } else { random % 10_000 };
                files.push(SstFile {
                    number,
                    column_family: COLUMN_FAMILY.to_owned(),
                    level,
                    size_bytes: FILE_BYTES,
                    entries: ENTRIES_PER_FILE,
                    deletions,
                    smallest: key(place * width),
                    largest: key((place + 1) * width - 1 - random % (width / 10).max(1)),
                });
            }
        }
        files
    }

    /// One list: it is positioned in a stretch, and steps over what is deleted there.
    pub fn observation(self, number: u64) -> Observation {
        let random = mixed(number ^ 0x5e47_0000_0000_0000);
        let stretch = by_zipf(random);
        let begin = mixed(stretch ^ 0x57e7) % (POSITIONS - 2 * STRETCH_POSITIONS);
        let start = begin + mixed(random) % STRETCH_POSITIONS;
        let tombstones = 500 + mixed(random ^ 1) % 50_000;
        let mut operation = Observation::at(SeekKind::Seek, key(start));
        operation.column_family = Some(COLUMN_FAMILY.to_owned());
        operation.end_key = Some(key(start + tombstones * 20));
        operation.seek =
            Counters { tombstones_skipped: tombstones, keys_skipped: tombstones, ..Counters::default() };
        operation.scan = Counters { keys_skipped: 100, block_cache_hits: 20, ..Counters::default() };
        operation.seek_latency_ns = tombstones * 180;
        operation.scan_elapsed_ns = 100_000;
        operation
    }
}

/// A number from 0 to `STRETCHES`, small ones more often: that n comes is as likely as 1 in n.
fn by_zipf(random: u64) -> u64 {
    let even = (random >> 11) as f64 / (1_u64 << 53) as f64;
    ((STRETCHES as f64).powf(even) as u64).min(STRETCHES) - 1
}

/// Keys have the order of their positions.
fn key(position: u64) -> Key {
    Key::new(format!("/bucket-{:05}/{position:013}", position / 100_000_000))
}

/// A number that looks random and is always the same (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
