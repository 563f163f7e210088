//! Seek pain that no key range is charged for, because nobody saw where it lies.

use crate::facts::evidence::{Counters, EventCosts, SentinelInterval, Window};
use crate::loss::read_time::Scale;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reader time lost in a target that is in none of its ranges, seconds per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unplaced {
    /// In operations that were too small for a record, and that no record stands for.
    pub unrecorded_seconds_per_second: f64,
    /// To tombstones that were skipped in no operation the probes followed: of scans that had begun before
    /// the window, mostly.
    pub unowned_tombstone_seconds_per_second: f64,
    /// To blocks read in no such operation: by point reads, compactions and scans that had begun before.
    pub unowned_block_read_seconds_per_second: f64,
}

impl Unplaced {
    /// What the last window tells, at the pace of the sentinel's interval.
    pub fn of(window: &Window, sentinel: &SentinelInterval, costs: &EventCosts) -> Unplaced {
        let scale = Scale::of(window, sentinel);
        let (followed, attributed) = (window.followed(), window.attributed);
        let unowned = followed.minus(attributed);
        // Those whose record was lost are made up for by the others.
        let shown = |count: u64| count as f64 * scale.lost_records;
        let unrecorded = |count: fn(&Counters) -> u64| {
            (count(&attributed) as f64 - shown(count(&window.recorded))).max(0.0)
        };
        let seconds = |events: f64, ns_per_event: f64| match window.duration_ns {
            0 => 0.0,
            duration_ns => events * scale.sentinel * ns_per_event / duration_ns as f64,
        };
        let tombstones = |events: f64| seconds(events, costs.ns_per_tombstone);
        let reads = |events: f64| seconds(events, costs.ns_per_block_read);
        Unplaced {
            unrecorded_seconds_per_second: tombstones(unrecorded(|of| of.tombstones_skipped))
                + reads(unrecorded(|of| of.block_reads)),
            unowned_tombstone_seconds_per_second: tombstones(unowned.tombstones_skipped as f64),
            unowned_block_read_seconds_per_second: reads(unowned.block_reads as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tombstones(tombstones_skipped: u64) -> Counters {
        Counters { tombstones_skipped, ..Counters::default() }
    }

    /// Of a million tombstones operations own 400,000, and records stand for 300,000 of these.
    fn window() -> Window {
        Window {
            duration_ns: 1_000_000_000,
            attributed: tombstones(400_000),
            recorded: tombstones(300_000),
            followed: tombstones(1_000_000),
            ..Window::default()
        }
    }

    #[test]
    fn what_is_in_no_range_is_told_by_its_reason() {
        let sentinel = SentinelInterval { duration_ns: 1_000_000_000, counters: tombstones(2_000_000) };
        let costs = EventCosts::default();
        let unplaced = Unplaced::of(&window(), &sentinel, &costs);
        assert!((unplaced.unrecorded_seconds_per_second - 0.04).abs() < 1e-9, "{unplaced:?}");
        assert!((unplaced.unowned_tombstone_seconds_per_second - 0.24).abs() < 1e-9, "{unplaced:?}");
        assert_eq!(unplaced.unowned_block_read_seconds_per_second, 0.0);
    }

    proptest! {
        /// Recorded, unrecorded and unowned are what the sentinel counted, to the last one.
        #[test]
        fn the_parts_are_the_whole(
            recorded in 0u64..1 << 30,
            more in 0u64..1 << 30,
            unowned in 0u64..1 << 30,
            pace in 1u64..10,
        ) {
            let attributed = recorded + more;
            let followed = attributed + unowned;
            prop_assume!(followed > 0);
            let window = Window {
                attributed: tombstones(attributed),
                recorded: tombstones(recorded),
                followed: tombstones(followed),
                ..window()
            };
            let sentinel = SentinelInterval { duration_ns: 1_000_000_000, counters: tombstones(followed * pace) };
            let costs = EventCosts::default();
            let unplaced = Unplaced::of(&window, &sentinel, &costs);
            let placed = recorded as f64 * Scale::of(&window, &sentinel).factor() * costs.ns_per_tombstone / 1e9;
            let sum = placed + unplaced.unrecorded_seconds_per_second + unplaced.unowned_tombstone_seconds_per_second;
            let whole = (followed * pace) as f64 * costs.ns_per_tombstone / 1e9;
            prop_assert!((sum - whole).abs() <= whole * 1e-9, "{} {}", sum, whole);
        }

        #[test]
        fn any_counts_give_a_number(
            durations: (u64, u64),
            counts: (u64, u64, u64, u64),
            records: (u64, u64),
        ) {
            let (duration_ns, interval_ns) = durations;
            let (attributed, recorded, followed, counted) = counts;
            let (operations_recorded, records_lost) = records;
            let window = Window {
                duration_ns,
                attributed: tombstones(attributed),
                recorded: tombstones(recorded),
                followed: tombstones(followed),
                operations_recorded,
                records_lost,
                ..Window::default()
            };
            let sentinel = SentinelInterval { duration_ns: interval_ns, counters: tombstones(counted) };
            let unplaced = Unplaced::of(&window, &sentinel, &EventCosts::default());
            prop_assert!(unplaced.unrecorded_seconds_per_second >= 0.0);
            prop_assert!(unplaced.unowned_tombstone_seconds_per_second.is_finite());
        }
    }
}
