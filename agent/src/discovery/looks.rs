//! When a new process is looked into: at once, and again while it may still load RocksDB or open a database.
//!
//! A schedule and nothing else: time comes in as an argument, and looking is the roster's business.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Age of a program at the first look: by then the dynamic linker has loaded its libraries, and most of
/// the short-lived programs of a busy node have ended and cost no look at all.
pub const FIRST_LOOK_AFTER_EXEC: Duration = Duration::from_millis(50);

/// Age of a copy of a process at the first look. Most copies exec soon, which begins anew; a daemon goes
/// on as a copy, and opens its database after that.
pub const FIRST_LOOK_AFTER_FORK: Duration = Duration::from_secs(1);

/// Longest pause between two looks: a database is to be watched two seconds after it was opened.
const PAUSE_MAX: Duration = Duration::from_millis(1500);

/// Age at which a process is left to the sweep: a Java server has loaded its native libraries by then.
const LOOKED_FOR: Duration = Duration::from_secs(60);

/// Processes that are looked into at the same time; more are left to the sweep. They are a minute old at
/// most, and a node seldom starts more that live as long.
const PROCESSES_MAX: usize = 4096;

/// What the last looks may have saved up: a burst of new processes is looked into at once.
const SAVED_MAX: Duration = Duration::from_secs(5);

/// Looks that find nothing are paid for by a pause this many times as long: they take one part in a
/// hundred of a core at most.
const PAUSE_FOR_LOOK: u32 = 100;

/// Longest look that is paid for in full: the first sight of a large file takes long, but only once.
const LOOK_PAID_MAX: Duration = Duration::from_millis(10);

/// Which processes are to be looked into, and when.
#[derive(Debug, Default)]
pub struct Looks {
    processes: HashMap<u32, Look>,
    due: BTreeSet<(Instant, u32)>,
    /// Until when the looks so far are paid for; `None` before the first.
    paid_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    since: Instant,
    at: Instant,
}

impl Looks {
    /// A process has begun: the first look is due `after` that. Begins anew for a process known already.
    pub fn begin(&mut self, pid: u32, now: Instant, after: Duration) {
        self.forget(pid);
        if self.processes.len() < PROCESSES_MAX {
            self.insert(pid, Look { since: now, at: now + after });
        }
    }

    /// A process has ended, or all is known of it.
    pub fn forget(&mut self, pid: u32) {
        if let Some(look) = self.processes.remove(&pid) {
            self.due.remove(&(look.at, pid));
        }
    }

    /// When there is something to do, `None` when nothing is left.
    pub fn next_at(&self) -> Option<Instant> {
        let (at, _) = self.due.first()?;
        Some(self.paid_at.map_or(*at, |paid_at| paid_at.max(*at)))
    }

    /// The process whose look is due, the longest due first. Its next look is scheduled: between two looks
    /// goes by as much time as the process had lived, but not more than [`PAUSE_MAX`].
    pub fn take_due(&mut self, now: Instant) -> Option<u32> {
        if self.next_at()? > now {
            return None;
        }
        let (_, pid) = self.due.pop_first()?;
        let look = self.processes.remove(&pid)?;
        let age = now.saturating_duration_since(look.since);
        if age < LOOKED_FOR {
            let pause = age.clamp(FIRST_LOOK_AFTER_EXEC, PAUSE_MAX);
            self.insert(pid, Look { at: now + pause, ..look });
        }
        Some(pid)
    }

    /// A look found nothing and took this long: the next ones wait, so that all looks together stay cheap.
    pub fn pay(&mut self, now: Instant, took: Duration) {
        let saved = now.checked_sub(SAVED_MAX).unwrap_or(now);
        let from = self.paid_at.map_or(saved, |paid_at| paid_at.max(saved));
        self.paid_at = Some(from + took.min(LOOK_PAID_MAX) * PAUSE_FOR_LOOK);
    }

    fn insert(&mut self, pid: u32, look: Look) {
        self.processes.insert(pid, look);
        self.due.insert((look.at, pid));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Ages at which a process that lives long is looked into, when nobody is late.
    fn ages(first: Duration) -> Vec<Duration> {
        let start = Instant::now();
        let mut looks = Looks::default();
        looks.begin(7, start, first);
        let mut ages = Vec::new();
        while let Some(at) = looks.next_at() {
            assert_eq!(looks.take_due(at), Some(7));
            ages.push(at - start);
        }
        ages
    }

    #[test]
    fn a_process_is_looked_into_at_growing_pauses_and_then_left_to_the_sweep() {
        let ages = ages(FIRST_LOOK_AFTER_EXEC);
        let first: Vec<u128> = ages.iter().take(8).map(Duration::as_millis).collect();
        assert_eq!(first, [50, 100, 200, 400, 800, 1600, 3100, 4600]);
        assert!(ages.windows(2).all(|pair| pair[1] - pair[0] <= PAUSE_MAX));
        assert!(ages.last().is_some_and(|last| *last >= LOOKED_FOR && *last < LOOKED_FOR + PAUSE_MAX));
    }

    #[test]
    fn a_process_that_ended_before_its_first_look_costs_none() {
        let start = Instant::now();
        let mut looks = Looks::default();
        for pid in 0..1000 {
            looks.begin(pid, start, FIRST_LOOK_AFTER_EXEC);
            looks.forget(pid);
        }
        assert_eq!(looks.next_at(), None);
        assert_eq!(looks.take_due(start + LOOKED_FOR), None);
    }

    #[test]
    fn an_exec_begins_anew() {
        let start = Instant::now();
        let mut looks = Looks::default();
        looks.begin(7, start, FIRST_LOOK_AFTER_FORK);
        looks.begin(7, start + milliseconds(10), FIRST_LOOK_AFTER_EXEC);
        assert_eq!(looks.next_at(), Some(start + milliseconds(60)));
        assert_eq!(looks.take_due(start + milliseconds(60)), Some(7));
        assert_eq!(looks.next_at(), Some(start + milliseconds(60) + milliseconds(50)));
    }

    #[test]
    fn more_processes_than_the_limit_are_left_to_the_sweep() {
        let start = Instant::now();
        let mut looks = Looks::default();
        for pid in 0..10_000 {
            looks.begin(pid, start, FIRST_LOOK_AFTER_EXEC);
        }
        assert_eq!(looks.processes.len(), PROCESSES_MAX);
        assert_eq!(looks.due.len(), PROCESSES_MAX);
    }

    #[test]
    fn looks_take_no_more_than_their_share_of_a_core() {
        let start = Instant::now();
        let end = start + Duration::from_secs(60);
        let mut looks = Looks::default();
        let (mut now, mut spent) = (start, Duration::ZERO);
        // More new processes than can be looked into, each look 2 ms.
        for pid in 0..PROCESSES_MAX as u32 {
            looks.begin(pid, start, FIRST_LOOK_AFTER_EXEC);
        }
        while let Some(at) = looks.next_at().filter(|at| *at < end) {
            now = now.max(at);
            looks.take_due(now).unwrap();
            now += milliseconds(2);
            spent += milliseconds(2);
            looks.pay(now, milliseconds(2));
        }
        let share = (end - start + SAVED_MAX).as_secs_f64() / f64::from(PAUSE_FOR_LOOK);
        assert!(spent.as_secs_f64() <= share + 0.002, "{spent:?}");
        assert!(spent.as_secs_f64() > share / 2.0, "{spent:?}");
    }

    proptest! {
        /// Whatever comes, both halves of the schedule name the same processes.
        #[test]
        fn the_schedule_never_forgets_half_of_a_process(steps in prop::collection::vec((0u32..20, 0u8..4), 0..200)) {
            let mut looks = Looks::default();
            let mut now = Instant::now();
            for (pid, step) in steps {
                now += milliseconds(u64::from(pid) * 17);
                match step {
                    0 => looks.begin(pid, now, FIRST_LOOK_AFTER_EXEC),
                    1 => looks.forget(pid),
                    2 => drop(looks.take_due(now)),
                    _ => looks.pay(now, milliseconds(u64::from(pid))),
                }
                prop_assert_eq!(looks.due.len(), looks.processes.len());
                prop_assert!(looks.due.iter().all(|(at, pid)| looks.processes[pid].at == *at));
            }
        }
    }
}
