//! Whether a target deserves a window now: probes cost its readers time, so they need a reason.

use crate::facts::evidence::SentinelInterval;
use crate::policy::Policy;

/// Whether to arm the probes: the sentinel saw at least as many tombstones or block reads in the interval
/// as make a single operation painful, or the last window is `survey` ago (`since_window_ns` is `None`
/// when there was none yet).
pub fn wants_window(interval: &SentinelInterval, since_window_ns: Option<u64>, policy: &Policy) -> bool {
    let thresholds = &policy.thresholds;
    let pain = interval.counters.tombstones_skipped >= thresholds.tombstones_per_operation
        || interval.counters.block_reads >= thresholds.block_reads_per_operation;
    let survey_ns = u128::from(policy.timing.survey.nanoseconds());
    pain || since_window_ns.is_none_or(|since| u128::from(since) >= survey_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::Counters;

    fn interval(tombstones_skipped: u64, block_reads: u64) -> SentinelInterval {
        let counters = Counters { tombstones_skipped, block_reads, ..Counters::default() };
        SentinelInterval { duration_ns: 1_000_000_000, counters }
    }

    #[test]
    fn no_pain_no_probes_until_the_survey_is_due() {
        let policy = Policy::default();
        let survey_ns = policy.timing.survey.nanoseconds();
        assert!(!wants_window(&interval(0, 0), Some(survey_ns - 1), &policy));
        assert!(wants_window(&interval(0, 0), Some(survey_ns), &policy));
        assert!(wants_window(&interval(0, 0), None, &policy));
    }

    #[test]
    fn tombstones_or_misses_are_reason_enough() {
        let policy = Policy::default();
        assert!(wants_window(&interval(1000, 0), Some(0), &policy));
        assert!(!wants_window(&interval(999, 63), Some(0), &policy));
        assert!(wants_window(&interval(0, 64), Some(0), &policy));
    }
}
