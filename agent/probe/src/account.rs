//! Adding up the totals of threads that come and go.
//!
//! A thread's counters are gone when it ends. The sentinel's passes give living threads' totals, the
//! thread-end records the last totals of the others; [`Account`] makes one sum of both that never counts a
//! thread twice. Pure: no kernel here.
//!
//! RocksDB itself only counts upwards, but some programs set a thread's counters to zero now and then
//! (MyRocks before each statement). A counter that fell shows it: what stood there before is kept, what was
//! counted between that reading and the zero is lost, and a fall that was made up for before the next reading
//! does not show. For such a program the total is what was counted at least; a window, whose probes see each
//! zeroing, is exact.

use super::abi::{SEXTON_READING_FAILED, SEXTON_READING_HAS_COUNTERS, sexton_thread_reading};
use sexton_tuner::evidence::Counters;
use std::collections::{HashMap, HashSet};

/// A thread, for as long as it lives: its id, which alone can be reused, and when it started, nanoseconds
/// since boot.
pub type ThreadKey = (u32, u64);

/// Totals of one target's threads.
#[derive(Debug, Default)]
pub struct Account {
    live: HashMap<ThreadKey, Counters>,
    /// Ended, but perhaps still listed by a pass: their last word was had.
    ended_keys: HashSet<ThreadKey>,
    ended: Counters,
    /// Last readings before counters fell.
    discarded: Counters,
    resets: u64,
    threads_ended: u64,
    threads_ended_unread: u64,
}

impl Account {
    /// Takes in one pass over the living threads, and the threads that ended up to after that pass.
    pub fn take(&mut self, pass: &[sexton_thread_reading], ended: &[sexton_thread_reading]) {
        let listed: HashSet<ThreadKey> = pass.iter().map(key).collect();
        for reading in pass {
            if !self.ended_keys.contains(&key(reading)) {
                self.take_living(reading);
            }
        }
        self.ended_keys.retain(|thread| listed.contains(thread));
        for reading in ended {
            self.take_ended(reading);
        }
        self.fold_vanished(&listed);
    }

    /// Counted by all threads, living and ended; never falls.
    pub fn total(&self) -> Counters {
        self.standing().plus(self.discarded)
    }

    /// What stands in the counters: the sum over all threads, living and ended, which falls when a program
    /// sets its counters to zero.
    pub fn standing(&self) -> Counters {
        self.live.values().fold(self.ended, |sum, counters| sum.plus(*counters))
    }

    /// How often a thread's reading was smaller than the one before it.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Threads that ended since the account was opened.
    pub fn threads_ended(&self) -> u64 {
        self.threads_ended
    }

    /// Those of them whose last counters could not be read: what they did after the last pass is lost.
    pub fn threads_ended_unread(&self) -> u64 {
        self.threads_ended_unread
    }

    fn take_living(&mut self, reading: &sexton_thread_reading) {
        if reading.flags & SEXTON_READING_HAS_COUNTERS != 0 {
            let now = reading.counters.into();
            let before = self.live.insert(key(reading), now).unwrap_or_default();
            self.keep_discarded(before, now);
        } else {
            // Untouched or unreadable for now: keep what was known, so that the sum never falls.
            self.live.entry(key(reading)).or_default();
        }
    }

    fn take_ended(&mut self, reading: &sexton_thread_reading) {
        if !self.ended_keys.insert(key(reading)) {
            return;
        }
        let last_seen = self.live.remove(&key(reading)).unwrap_or_default();
        self.threads_ended += 1;
        if reading.flags & SEXTON_READING_FAILED != 0 {
            self.threads_ended_unread += 1;
        }
        let last_word = if reading.flags & SEXTON_READING_HAS_COUNTERS != 0 {
            reading.counters.into()
        } else {
            last_seen
        };
        self.keep_discarded(last_seen, last_word);
        self.ended = self.ended.plus(last_word);
    }

    fn keep_discarded(&mut self, before: Counters, now: Counters) {
        if now.fell_below(before) {
            self.discarded = self.discarded.plus(before);
            self.resets += 1;
        }
    }

    /// Threads that are no longer listed and of whose end no record arrived.
    fn fold_vanished(&mut self, listed: &HashSet<ThreadKey>) {
        let vanished: Vec<ThreadKey> =
            self.live.keys().filter(|thread| !listed.contains(*thread)).copied().collect();
        for thread in vanished {
            if let Some(counters) = self.live.remove(&thread) {
                self.ended = self.ended.plus(counters);
                self.threads_ended += 1;
                self.threads_ended_unread += 1;
            }
        }
    }
}

fn key(reading: &sexton_thread_reading) -> ThreadKey {
    (reading.thread_id, reading.start_boot_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(thread_id: u32, tombstones: u64) -> sexton_thread_reading {
        let mut reading = sexton_thread_reading {
            thread_id,
            start_boot_ns: 7,
            flags: SEXTON_READING_HAS_COUNTERS,
            ..Default::default()
        };
        reading.counters.tombstones_skipped = tombstones;
        reading
    }

    fn unreadable(thread_id: u32) -> sexton_thread_reading {
        sexton_thread_reading { flags: SEXTON_READING_FAILED, ..reading(thread_id, 0) }
    }

    #[test]
    fn a_living_thread_counts_once_however_often_it_is_read() {
        let mut account = Account::default();
        account.take(&[reading(1, 10)], &[]);
        account.take(&[reading(1, 15)], &[]);
        assert_eq!(account.total().tombstones_skipped, 15);
    }

    #[test]
    fn the_last_word_of_an_ended_thread_replaces_its_readings() {
        let mut account = Account::default();
        account.take(&[reading(1, 10), reading(2, 1)], &[]);
        // It ended after the pass read it: both are there.
        account.take(&[reading(1, 12), reading(2, 1)], &[reading(1, 14)]);
        assert_eq!(account.total().tombstones_skipped, 15);
        assert_eq!(account.threads_ended(), 1);
        // Its entry is still listed while it is being reaped.
        account.take(&[reading(1, 12), reading(2, 3)], &[]);
        assert_eq!(account.total().tombstones_skipped, 17);
        assert_eq!(account.threads_ended(), 1);
        assert_eq!(account.threads_ended_unread(), 0);
    }

    #[test]
    fn a_thread_that_was_never_seen_alive_still_counts() {
        let mut account = Account::default();
        account.take(&[], &[reading(9, 100)]);
        assert_eq!(account.total().tombstones_skipped, 100);
    }

    #[test]
    fn an_unread_end_keeps_what_was_known_and_is_counted() {
        let mut account = Account::default();
        account.take(&[reading(1, 10), reading(2, 20)], &[]);
        account.take(&[], &[unreadable(1)]);
        assert_eq!(account.total().tombstones_skipped, 30);
        assert_eq!(account.threads_ended(), 2);
        assert_eq!(account.threads_ended_unread(), 2);
    }

    #[test]
    fn a_reading_that_fails_for_a_moment_does_not_lower_the_sum() {
        let mut account = Account::default();
        account.take(&[reading(1, 10)], &[]);
        account.take(&[unreadable(1)], &[]);
        assert_eq!(account.total().tombstones_skipped, 10);
    }

    #[test]
    fn counters_that_the_host_resets_do_not_lower_the_sum() {
        let mut account = Account::default();
        account.take(&[reading(1, 10)], &[]);
        account.take(&[reading(1, 3)], &[]);
        assert_eq!(account.total().tombstones_skipped, 13);
        account.take(&[], &[reading(1, 2)]);
        assert_eq!(account.total().tombstones_skipped, 15);
    }

    #[test]
    fn one_counter_that_fell_shows_that_all_were_set_to_zero() {
        let mut account = Account::default();
        let mut before = reading(1, 1);
        before.counters.block_cache_hits = 100;
        account.take(&[before], &[]);
        // More tombstones than before, fewer hits: all of them were counted anew.
        account.take(&[reading(1, 4)], &[]);
        assert_eq!(account.total().tombstones_skipped, 5);
        assert_eq!(account.total().block_cache_hits, 100);
        assert_eq!(account.standing().tombstones_skipped, 4);
        assert_eq!(account.resets(), 1);
        account.take(&[reading(1, 4)], &[reading(1, 5)]);
        assert_eq!(account.standing().tombstones_skipped, 5);
        assert_eq!(account.resets(), 1);
    }

    #[test]
    fn a_reused_thread_id_is_another_thread() {
        let mut account = Account::default();
        account.take(&[reading(1, 10)], &[reading(1, 10)]);
        let reused = sexton_thread_reading { start_boot_ns: 8, ..reading(1, 4) };
        account.take(&[reused], &[]);
        assert_eq!(account.total().tombstones_skipped, 14);
    }
}
