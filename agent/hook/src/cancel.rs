//! The flag by which RocksDB gives up a range compaction of ours and no other:
//! `CompactRangeOptions::canceled`.
//!
//! It has been there since RocksDB 6.23, and the C API has no function for it. So it is written where it
//! stands in the options, and where that is the library itself shows: the C API keeps a timestamp directly
//! behind the options, and the option `full_history_ts_low`, which points there, stands directly before
//! `canceled`.
//!
//! Disabling manual compactions, the one way that the C API has, would fail the application's own.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where `bottommost_level_compaction` stands in the options, in words of eight bytes.
const BOTTOMMOST_WORD: usize = 1;
/// Where `full_history_ts_low` stands.
const TIMESTAMP_WORD: usize = 3;
/// Where `canceled` stands, in versions that have it.
const CANCELED_WORD: usize = 4;
/// Words of the options in versions that have it, and with what future ones may add.
const OPTIONS_WORDS: std::ops::RangeInclusive<u64> = 5..=32;

/// What RocksDB looks at. There is one compaction of ours at a time, and it is never given back: RocksDB's
/// threads may look at it whenever they like.
static FLAG: AtomicBool = AtomicBool::new(false);

/// The database of the compaction that runs; 0: none does.
static DATABASE: AtomicU64 = AtomicU64::new(0);

/// A compaction in this database is about to run.
pub fn begin(database: u64) {
    FLAG.store(false, Ordering::SeqCst);
    DATABASE.store(database, Ordering::SeqCst);
}

/// None runs any more.
pub fn end() {
    DATABASE.store(0, Ordering::SeqCst);
}

/// Has RocksDB give up what runs.
pub fn request() {
    FLAG.store(true, Ordering::SeqCst);
}

/// The same if it runs in this database.
pub fn request_in(database: u64) {
    if DATABASE.load(Ordering::SeqCst) == database {
        request();
    }
}

/// In which word of the C API's options at `options` the flag stands; `read` reads words, and the options
/// have this timestamp and way of compacting the bottommost level. `None` where this RocksDB has no flag, or
/// its options are not what they are known to be.
pub fn find(
    options: *mut c_void,
    read: impl Fn(usize) -> u64,
    timestamp: &[u8; 8],
    bottommost: u8,
) -> Option<usize> {
    let bytes_behind = read(TIMESTAMP_WORD).checked_sub(options as u64)?;
    let words = bytes_behind / 8;
    let is_behind = bytes_behind.is_multiple_of(8) && OPTIONS_WORDS.contains(&words);
    // Only what lies behind the pointer is known to be there.
    if !is_behind {
        return None;
    }
    let behind = usize::try_from(words).ok()?;
    let is_as_known = read(BOTTOMMOST_WORD) >> 32 == u64::from(bottommost)
        && read(CANCELED_WORD) == 0
        && read(behind) == timestamp.as_ptr() as u64
        && read(behind + 1) == timestamp.len() as u64;
    is_as_known.then_some(CANCELED_WORD)
}

/// Has options point to the flag.
///
/// # Safety
/// `options` are the C API's, and `word` is what [`find`] has found for this RocksDB.
pub unsafe fn set(options: *mut c_void, word: usize) {
    // SAFETY: an aligned word of the options, which holds a pointer to an atomic bool: a byte, as here.
    unsafe { options.cast::<*const AtomicBool>().add(word).write(&raw const FLAG) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMESTAMP: &[u8; 8] = b"sexton\0\0";

    /// Options of so many words, with the timestamp behind them, as RocksDB fills them.
    fn options(words: usize) -> Vec<u64> {
        let mut options = vec![0; words + 2];
        options[1] = 2 << 32;
        options[words] = TIMESTAMP.as_ptr() as u64;
        options[words + 1] = 8;
        options[3] = options.as_ptr() as u64 + 8 * words as u64;
        options
    }

    fn found(options: &mut [u64]) -> Option<usize> {
        find(options.as_mut_ptr().cast(), |word| options[word], TIMESTAMP, 2)
    }

    #[test]
    fn the_flag_is_found_where_the_options_are_what_they_are_known_to_be() {
        assert_eq!(found(&mut options(5)), Some(4));
        assert_eq!(found(&mut options(7)), Some(4), "as in 7.7 to 11.12");
        assert_eq!(found(&mut options(4)), None, "a version without it");
        let broken: [fn(&mut Vec<u64>); 5] = [
            |options| options[1] = 0,
            |options| options[3] = 0,
            |options| options[3] += 1,
            |options| options[4] = 1,
            |options| options[7] = 0,
        ];
        for break_it in broken {
            let mut options = options(7);
            break_it(&mut options);
            assert_eq!(found(&mut options), None);
        }
    }

    #[test]
    fn only_a_compaction_in_the_database_is_given_up() {
        begin(8);
        request_in(16);
        assert!(!FLAG.load(Ordering::SeqCst));
        request_in(8);
        assert!(FLAG.load(Ordering::SeqCst));
        end();
        begin(16);
        assert!(!FLAG.load(Ordering::SeqCst), "the next one runs");
        end();
    }
}
