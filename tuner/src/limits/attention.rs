//! Whether a target deserves a window now: probes cost its readers time, so they need a reason.

use crate::facts::evidence::{Counters, EventCosts, SentinelInterval, Window};
use crate::loss::read_time::DeadEntries;
use crate::policy::Policy;

/// What of earlier windows is left when a new one comes in.
const FADING: f64 = 0.5;

/// What the counters do not part, and windows do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parted {
    block_reads: Share,
    keys_skipped: Share,
}

/// A share of something, in the last windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Share {
    part: f64,
    whole: f64,
}

impl Parted {
    /// Takes in what a window saw, and how many older versions its operations have stepped over.
    pub fn take(&mut self, window: &Window, old_versions: u64) {
        let followed = window.followed();
        self.block_reads.take(window.attributed.block_reads, followed.block_reads);
        self.keys_skipped.take(old_versions.min(followed.keys_skipped), followed.keys_skipped);
    }

    /// Of a target's block reads those of its iterators, the others being those of point reads and
    /// compactions. All, as long as no window saw any.
    pub fn iterator_reads(&self) -> f64 {
        self.block_reads.value().unwrap_or(1.0)
    }

    /// Of the keys skipped the older versions, the others being live keys that were stepped from, and what
    /// tombstones hide. None, as long as no window saw any.
    pub fn old_versions(&self) -> f64 {
        self.keys_skipped.value().unwrap_or(0.0)
    }
}

impl Share {
    fn take(&mut self, part: u64, whole: u64) {
        if whole > 0 {
            self.part = self.part * FADING + part as f64;
            self.whole = self.whole * FADING + whole as f64;
        }
    }

    fn value(self) -> Option<f64> {
        (self.whole > 0.0).then(|| self.part / self.whole)
    }
}

/// What is known of a target when it is decided whether to look.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The sentinel's last interval.
    pub interval: &'a SentinelInterval,
    /// What tombstones and block reads cost its readers.
    pub costs: EventCosts,
    pub parted: Parted,
    /// `None` when there was no window yet.
    pub since_window_ns: Option<u64>,
}

/// Whether to arm the probes: the target's iterators may have lost as much time in the interval as makes a
/// range worth acting on, or the last window is `survey` ago.
pub fn wants_window(seen: Seen<'_>, policy: &Policy) -> bool {
    let survey_ns = u128::from(policy.timing.survey.nanoseconds());
    let pain = seen.seconds_per_second() >= policy.thresholds.pain.seconds_per_second();
    pain || seen.since_window_ns.is_none_or(|since| u128::from(since) >= survey_ns)
}

impl Seen<'_> {
    /// Time that iterators may have lost, seconds per second. Only they skip keys and merge on their way.
    fn seconds_per_second(&self) -> f64 {
        let SentinelInterval { duration_ns, counters } = *self.interval;
        let Counters { block_reads, keys_skipped, merge_operands, .. } = counters;
        if duration_ns == 0 {
            return 0.0;
        }
        let dead = DeadEntries {
            tombstones: counters.tombstones_skipped as f64,
            old_versions: keys_skipped as f64 * self.parted.old_versions(),
            merge_operands: merge_operands as f64,
            reseeks: counters.range_deletion_reseeks as f64,
        };
        let of_tombstones = dead.as_tombstones() * self.costs.ns_per_tombstone;
        let of_reads = block_reads as f64 * self.parted.iterator_reads() * self.costs.ns_per_block_read;
        (of_tombstones + of_reads) / duration_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_wanted(tombstones_skipped: u64, block_reads: u64, since: Option<u64>, parted: Parted) -> bool {
        let counters = Counters { tombstones_skipped, block_reads, ..Counters::default() };
        let interval = SentinelInterval { duration_ns: 1_000_000_000, counters };
        let costs = EventCosts::default();
        let seen = Seen { interval: &interval, costs, parted, since_window_ns: since };
        wants_window(seen, &Policy::default())
    }

    fn window(of_iterators: u64, of_all: u64) -> Window {
        let reads = |block_reads| Counters { block_reads, ..Counters::default() };
        Window { attributed: reads(of_iterators), followed: reads(of_all), ..Window::default() }
    }

    #[test]
    fn no_pain_no_probes_until_the_survey_is_due() {
        let survey_ns = Policy::default().timing.survey.nanoseconds();
        assert!(!is_wanted(0, 0, Some(survey_ns - 1), Parted::default()));
        assert!(is_wanted(0, 0, Some(survey_ns), Parted::default()));
        assert!(is_wanted(0, 0, None, Parted::default()));
    }

    /// 5 ms/s are 25,000 tombstones of 200 ns or 50 block reads of 0.1 ms.
    #[test]
    fn what_readers_lose_per_second_is_reason_enough() {
        let all = Parted::default();
        assert!(is_wanted(25_000, 0, Some(0), all));
        assert!(!is_wanted(24_000, 1, Some(0), all));
        assert!(is_wanted(0, 50, Some(0), all));
        assert!(is_wanted(13_000, 25, Some(0), all));
    }

    #[test]
    fn a_service_that_only_gets_is_looked_at_by_surveys_alone() {
        let mut reads = Parted::default();
        reads.take(&window(0, 1_000), 0);
        assert!(!is_wanted(0, 1_000_000, Some(0), reads));
        assert!(is_wanted(0, 1_000_000, None, reads));
        // A window without a read tells nothing.
        reads.take(&window(0, 0), 0);
        assert_eq!(reads.iterator_reads(), 0.0);
        // Iterators have begun to read: the next survey shows it, and from then on there is a reason.
        reads.take(&window(1_000, 1_000), 0);
        assert!(reads.iterator_reads() > 0.6 && is_wanted(0, 1_000, Some(0), reads));
    }

    /// 5 ms/s are 50,000 older versions of 100 ns, of which windows have said that they are half of the keys.
    #[test]
    fn older_versions_merge_operands_and_range_tombstones_are_a_reason_too() {
        let wanted = |counters: Counters, parted: Parted| {
            let interval = SentinelInterval { duration_ns: 1_000_000_000, counters };
            let costs = EventCosts::default();
            let seen = Seen { interval: &interval, costs, parted, since_window_ns: Some(0) };
            wants_window(seen, &Policy::default())
        };
        let keys = |keys_skipped| Counters { keys_skipped, ..Counters::default() };
        let mut parted = Parted::default();
        assert!(!wanted(keys(1_000_000_000), parted));
        parted.take(&Window { attributed: keys(1_000), ..Window::default() }, 500);
        assert!(wanted(keys(100_000), parted) && !wanted(keys(99_000), parted));
        let none = Parted::default();
        assert!(wanted(Counters { merge_operands: 25_000, ..Counters::default() }, none));
        assert!(wanted(Counters { range_deletion_reseeks: 2_500, ..Counters::default() }, none));
        assert!(!wanted(Counters { range_deletion_reseeks: 2_400, ..Counters::default() }, none));
    }

    #[test]
    fn an_interval_of_no_time_says_nothing() {
        let interval = SentinelInterval { duration_ns: 0, counters: window(9, 9).followed };
        let costs = EventCosts::default();
        let seen = Seen { interval: &interval, costs, parted: Parted::default(), since_window_ns: Some(0) };
        assert!(!wants_window(seen, &Policy::default()));
    }
}
