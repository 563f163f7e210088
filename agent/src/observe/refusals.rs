//! What cannot be watched now, and what was said about it.
//!
//! No refusal is for ever: what failed once is tried again after a pause that grows. What is told is told
//! once, as long as it is among the last that were told: whoever makes up ever new troubles can neither fill
//! the memory nor use up the words that others need.

use sexton_inspect::facts::{ProcessId, TargetId};
use sexton_tuner::back_off::{BackOff, Retry};
use std::collections::{HashMap, VecDeque};

/// Pauses between two tries to watch a target. What fails at once costs the loop some microseconds.
const RETRY: BackOff = BackOff { first_seconds: 10, longest_seconds: 300 };

/// Who gave its place away waits as if it had failed so often: for some sweeps.
const PUT_OFF_FAILURES: u32 = 3;

/// Targets that are remembered as refused; of more the sweep simply tries all again.
const REFUSED_MAX: usize = 4096;

/// Troubles of which it is remembered that they were told.
const TOLD_MAX: usize = 256;

/// Targets that cannot be watched.
#[derive(Debug, Default)]
pub struct Refusals {
    retries: HashMap<TargetId, Retry>,
}

impl Refusals {
    /// Whether it is too early to try again.
    pub fn holds(&self, id: TargetId, now: jiff::Timestamp) -> bool {
        self.retries.get(&id).is_some_and(|retry| !retry.may_try(RETRY, now))
    }

    /// It was tried, and failed.
    pub fn add(&mut self, id: TargetId, now: jiff::Timestamp) {
        if self.retries.len() < REFUSED_MAX || self.retries.contains_key(&id) {
            self.retries.entry(id).or_default().fail(RETRY, now);
        }
    }

    /// It gave its place to another one, which is to have it before it is tried again.
    pub fn put_off(&mut self, id: TargetId, now: jiff::Timestamp) {
        (0..PUT_OFF_FAILURES).for_each(|_| self.add(id, now));
    }

    /// It is watched.
    pub fn lift(&mut self, id: TargetId) {
        self.retries.remove(&id);
    }

    /// Forgets those of other processes.
    pub fn keep(&mut self, lives: impl Fn(&ProcessId) -> bool) {
        self.retries.retain(|id, _| lives(&id.process));
    }
}

/// What was told of lately.
#[derive(Debug, Default)]
pub struct Told {
    texts: VecDeque<String>,
}

impl Told {
    /// Whether this is new, and to be told.
    pub fn is_new(&mut self, text: String) -> bool {
        let at = self.texts.iter().position(|told| *told == text);
        // What goes on is remembered before what was once.
        let is_new = at.and_then(|at| self.texts.remove(at)).is_none();
        self.texts.push_back(text);
        if self.texts.len() > TOLD_MAX {
            self.texts.pop_front();
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_inspect::facts::FileIdentity;

    fn target(pid: u32) -> TargetId {
        let process = ProcessId { pid, start_time_ticks: 1 };
        TargetId { process, module: FileIdentity { device_major: 1, device_minor: 1, inode: 1 } }
    }

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn a_refusal_ends_and_one_that_lasts_is_tried_ever_more_rarely() {
        let mut refusals = Refusals::default();
        assert!(!refusals.holds(target(1), at(0)));
        refusals.add(target(1), at(0));
        assert!(refusals.holds(target(1), at(9)) && !refusals.holds(target(1), at(10)));
        refusals.add(target(1), at(10));
        assert!(refusals.holds(target(1), at(29)) && !refusals.holds(target(1), at(30)));
        (0..20).for_each(|_| refusals.add(target(1), at(30)));
        assert!(refusals.holds(target(1), at(329)) && !refusals.holds(target(1), at(330)));
        refusals.lift(target(1));
        refusals.add(target(1), at(400));
        assert!(!refusals.holds(target(1), at(410)));
        refusals.put_off(target(2), at(0));
        assert!(refusals.holds(target(2), at(39)) && !refusals.holds(target(2), at(40)));
    }

    #[test]
    fn whoever_is_refused_in_masses_fills_nothing_and_keeps_nobody_out() {
        let mut refusals = Refusals::default();
        (0..100_000).for_each(|pid| refusals.add(target(pid), at(0)));
        assert_eq!(refusals.retries.len(), REFUSED_MAX);
        assert!(!refusals.holds(target(99_999), at(0)));
        refusals.keep(|process| process.pid == 7);
        assert_eq!(refusals.retries.len(), 1);
    }

    #[test]
    fn masses_of_troubles_do_not_silence_the_next_one() {
        let mut told = Told::default();
        assert!(told.is_new("lasting".into()) && !told.is_new("lasting".into()));
        for number in 0..10_000 {
            assert!(told.is_new(format!("made up {number}")));
            assert!(!told.is_new("lasting".into()));
        }
        assert_eq!(told.texts.len(), TOLD_MAX);
        assert!(told.is_new("another".into()));
    }
}
