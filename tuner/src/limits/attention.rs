//! Whether a target deserves a window now: probes cost its readers time, so they need a reason.

use crate::facts::evidence::{Counters, EventCosts, SentinelInterval, Window};
use crate::policy::Policy;

/// What of earlier windows is left when a new one comes in.
const FADING: f64 = 0.5;

/// Which share of a target's block reads are its iterators': the counters do not part them from those of
/// point reads and compactions, windows do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IteratorReads {
    of_iterators: f64,
    of_all: f64,
}

impl IteratorReads {
    /// Takes in what a window saw.
    pub fn take(&mut self, window: &Window) {
        let followed = window.followed().block_reads as f64;
        if followed > 0.0 {
            self.of_iterators = self.of_iterators * FADING + window.attributed.block_reads as f64;
            self.of_all = self.of_all * FADING + followed;
        }
    }

    /// 0 to 1; all, as long as no window saw any.
    pub fn share(&self) -> f64 {
        if self.of_all > 0.0 { self.of_iterators / self.of_all } else { 1.0 }
    }
}

/// What is known of a target when it is decided whether to look.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The sentinel's last interval.
    pub interval: &'a SentinelInterval,
    /// What tombstones and block reads cost its readers.
    pub costs: EventCosts,
    pub iterator_reads: IteratorReads,
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
    /// Time that iterators may have lost, seconds per second. Only they skip tombstones.
    fn seconds_per_second(&self) -> f64 {
        let SentinelInterval { duration_ns, counters } = *self.interval;
        let Counters { tombstones_skipped, block_reads, .. } = counters;
        if duration_ns == 0 {
            return 0.0;
        }
        let of_tombstones = tombstones_skipped as f64 * self.costs.ns_per_tombstone;
        let of_reads = block_reads as f64 * self.iterator_reads.share() * self.costs.ns_per_block_read;
        (of_tombstones + of_reads) / duration_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_wanted(
        tombstones_skipped: u64,
        block_reads: u64,
        since: Option<u64>,
        reads: IteratorReads,
    ) -> bool {
        let counters = Counters { tombstones_skipped, block_reads, ..Counters::default() };
        let interval = SentinelInterval { duration_ns: 1_000_000_000, counters };
        let costs = EventCosts::default();
        let seen = Seen { interval: &interval, costs, iterator_reads: reads, since_window_ns: since };
        wants_window(seen, &Policy::default())
    }

    fn window(of_iterators: u64, of_all: u64) -> Window {
        let reads = |block_reads| Counters { block_reads, ..Counters::default() };
        Window { attributed: reads(of_iterators), followed: reads(of_all), ..Window::default() }
    }

    #[test]
    fn no_pain_no_probes_until_the_survey_is_due() {
        let survey_ns = Policy::default().timing.survey.nanoseconds();
        assert!(!is_wanted(0, 0, Some(survey_ns - 1), IteratorReads::default()));
        assert!(is_wanted(0, 0, Some(survey_ns), IteratorReads::default()));
        assert!(is_wanted(0, 0, None, IteratorReads::default()));
    }

    /// 5 ms/s are 25,000 tombstones of 200 ns or 50 block reads of 0.1 ms.
    #[test]
    fn what_readers_lose_per_second_is_reason_enough() {
        let all = IteratorReads::default();
        assert!(is_wanted(25_000, 0, Some(0), all));
        assert!(!is_wanted(24_000, 1, Some(0), all));
        assert!(is_wanted(0, 50, Some(0), all));
        assert!(is_wanted(13_000, 25, Some(0), all));
    }

    #[test]
    fn a_service_that_only_gets_is_looked_at_by_surveys_alone() {
        let mut reads = IteratorReads::default();
        reads.take(&window(0, 1_000));
        assert!(!is_wanted(0, 1_000_000, Some(0), reads));
        assert!(is_wanted(0, 1_000_000, None, reads));
        // A window without a read tells nothing.
        reads.take(&window(0, 0));
        assert_eq!(reads.share(), 0.0);
        // Iterators have begun to read: the next survey shows it, and from then on there is a reason.
        reads.take(&window(1_000, 1_000));
        assert!(reads.share() > 0.6 && is_wanted(0, 1_000, Some(0), reads));
    }

    #[test]
    fn an_interval_of_no_time_says_nothing() {
        let interval = SentinelInterval { duration_ns: 0, counters: window(9, 9).followed };
        let costs = EventCosts::default();
        let seen = Seen {
            interval: &interval,
            costs,
            iterator_reads: IteratorReads::default(),
            since_window_ns: Some(0),
        };
        assert!(!wants_window(seen, &Policy::default()));
    }
}
