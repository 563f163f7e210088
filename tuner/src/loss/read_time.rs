//! Seek pain: reader time lost to tombstones and block misses, and how a window's is extrapolated.
//!
//! The probes count; they do not say how long one tombstone took. That is learnt from operations whose
//! pain lies in the seek, because its latency is exact ([`crate::loss::relief`]). A scan's elapsed time has
//! the caller's own time in it, so there it is only a limit. Block reads are timed one by one where their
//! function was found; a price for them is needed only for those that were not.

use crate::facts::evidence::{
    BlockFetches, Counters, EventCosts, KEYS_PER_TOMBSTONE, Observation, SentinelInterval,
    TOMBSTONES_PER_RESEEK, Window,
};
use crate::loss::relief::CostFit;

/// Longest time and most events taken from one operation: sums over a window cannot overflow, and one
/// broken record cannot outweigh all others.
pub(crate) const OPERATION_NS_MAX: u64 = 3_600_000_000_000;
const OPERATION_EVENTS_MAX: u64 = 1 << 40;

/// Limits of the extrapolation from windows to the sentinel's interval. Windows that saw less than a
/// hundredth or more than a hundred times of what there is now say nothing reliable about it.
const SENTINEL_SCALE: (f64, f64) = (0.01, 100.0);
/// Limit of the extrapolation to lost records.
const LOST_SCALE_MAX: f64 = 1000.0;

impl EventCosts {
    /// From the operations of a single window; what too few of them tell stays at its default.
    pub fn learn(observations: &[Observation]) -> EventCosts {
        let mut fit = CostFit::default();
        fit.learn(observations);
        fit.costs()
    }

    /// Time an operation lost; the seek's part is at most its latency, the scan's at most its elapsed time.
    pub fn loss(&self, operation: &Observation) -> Loss {
        let reads_ns = reads_ns(operation, self.ns_per_block_read);
        let [in_seek, in_scan] = dead(operation);
        let seek = self.part((operation.seek, in_seek), reads_ns.in_seek, operation.seek_latency_ns);
        let scan = self.part((operation.scan, in_scan), reads_ns.in_scan, operation.scan_elapsed_ns);
        Loss {
            lost_ns: seek.lost_ns + scan.lost_ns,
            relief_ns: seek.relief_ns + scan.relief_ns,
            block_read_ns: seek.block_read_ns + scan.block_read_ns,
        }
    }

    fn part(&self, (counters, dead): (Counters, DeadEntries), reads_ns: f64, limit_ns: u64) -> Loss {
        let tombstones_ns = dead.as_tombstones() * self.ns_per_tombstone;
        let sum_ns = tombstones_ns + reads_ns;
        if sum_ns <= 0.0 {
            return Loss::default();
        }
        let lost_ns = sum_ns.min(limit_ns.min(OPERATION_NS_MAX) as f64);
        let relieved_ns = tombstones_ns + reads_ns * dead.share_of_keys(counters);
        Loss {
            lost_ns: lost_ns as u64,
            relief_ns: (lost_ns * relieved_ns / sum_ns) as u64,
            block_read_ns: (lost_ns * reads_ns / sum_ns) as u64,
        }
    }
}

/// Time that an operation spent on block reads.
pub(crate) struct ReadsNs {
    pub(crate) in_seek: f64,
    pub(crate) in_scan: f64,
}

/// What was timed, and the price for what was not, shared out by the reads counted in seek and scan. Where
/// none was counted all blocks came out of the readahead buffer, and it is scans that read ahead.
pub(crate) fn reads_ns(operation: &Observation, ns_per_untimed_read: f64) -> ReadsNs {
    let BlockFetches { count, latency_ns, .. } = operation.block_fetches;
    let (seek, scan) = (operation.seek.block_reads as f64, operation.scan.block_reads as f64);
    let reads = operation.total().block_reads;
    let untimed = reads.saturating_sub(count).min(OPERATION_EVENTS_MAX) as f64;
    let sum_ns = latency_ns.min(OPERATION_NS_MAX) as f64 + untimed * ns_per_untimed_read;
    if reads == 0 {
        return ReadsNs { in_seek: 0.0, in_scan: sum_ns };
    }
    let ns_per_read = sum_ns / (seek + scan);
    ReadsNs { in_seek: seek * ns_per_read, in_scan: scan * ns_per_read }
}

/// What a part of an operation met and a compaction would drop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DeadEntries {
    pub(crate) tombstones: f64,
    pub(crate) old_versions: f64,
    /// A compaction merges them into one value.
    pub(crate) merge_operands: f64,
    /// Seeks behind range tombstones.
    pub(crate) reseeks: f64,
}

/// What the seek and the scan of an operation met of that.
pub(crate) fn dead(operation: &Observation) -> [DeadEntries; 2] {
    let believed = |count: u64| count.min(OPERATION_EVENTS_MAX) as f64;
    let [of_seek, of_scan] = operation.old_versions_by_part();
    [(operation.seek, of_seek), (operation.scan, of_scan)].map(|(counters, old_versions)| DeadEntries {
        tombstones: believed(counters.tombstones_skipped),
        old_versions: believed(old_versions),
        merge_operands: believed(counters.merge_operands),
        reseeks: believed(counters.range_deletion_reseeks),
    })
}

impl DeadEntries {
    /// Tombstones that take as long: the time of one has that of the version in it that it hides.
    pub(crate) fn as_tombstones(self) -> f64 {
        let of_old_versions = self.old_versions / KEYS_PER_TOMBSTONE as f64;
        let of_reseeks = self.reseeks * TOMBSTONES_PER_RESEEK as f64;
        self.tombstones + of_old_versions + self.merge_operands + of_reseeks
    }

    /// Share of the keys that were stepped over which a compaction would drop, 0 to 1: and so the share of
    /// the block reads that it would be spared, for the blocks of a deleted span hold little else. With each
    /// tombstone goes about one older version, which `internal_key_skipped_count` counts too.
    fn share_of_keys(self, counters: Counters) -> f64 {
        let dead = self.tombstones * KEYS_PER_TOMBSTONE as f64 + self.old_versions + self.merge_operands;
        let stepped_over = (counters.keys_skipped as f64).max(self.tombstones).max(self.merge_operands);
        if stepped_over > 0.0 { (dead / stepped_over).min(1.0) } else { 0.0 }
    }
}

/// Time one operation lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// To tombstones, older versions, merge operands, range tombstones and block misses.
    pub lost_ns: u64,
    /// The part that compaction relieves: stepping over what it drops, and reading the blocks that hold
    /// that. Never more than all of it.
    pub relief_ns: u64,
    /// The part that went into block misses.
    pub block_read_ns: u64,
}

/// What an operation met, as far as it is believed.
pub(crate) struct Events {
    pub(crate) tombstones: u64,
    pub(crate) block_reads: u64,
    pub(crate) block_cache_hits: u64,
    pub(crate) hidden: Hidden,
    /// Calls of `Next` and `Prev`.
    pub(crate) steps: u64,
}

pub(crate) fn events(operation: &Observation) -> Events {
    let total = operation.total();
    let believed = |count: u64| count.min(OPERATION_EVENTS_MAX);
    Events {
        tombstones: believed(total.tombstones_skipped),
        block_reads: believed(total.block_reads),
        block_cache_hits: believed(total.block_cache_hits),
        hidden: Hidden {
            old_versions: believed(operation.old_versions()),
            merge_operands: believed(total.merge_operands),
            reseeks: believed(total.range_deletion_reseeks),
        },
        steps: believed(operation.steps.unwrap_or(0)),
    }
}

/// What an operation met beside point tombstones that a compaction drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) old_versions: u64,
    pub(crate) merge_operands: u64,
    /// Seeks behind range tombstones.
    pub(crate) reseeks: u64,
}

impl Hidden {
    /// Time that it takes, in old versions that take as long.
    pub(crate) fn units(self) -> u64 {
        let as_tombstones = self.merge_operands + self.reseeks * TOMBSTONES_PER_RESEEK;
        self.old_versions + as_tombstones * UNITS_PER_TOMBSTONE
    }

    /// The part of it that is reseeks.
    pub(crate) fn units_of_reseeks(self) -> u64 {
        Hidden { reseeks: self.reseeks, ..Hidden::default() }.units()
    }

    /// Entries that it is.
    pub(crate) fn entries(self) -> u64 {
        self.old_versions + self.merge_operands
    }
}

/// Old versions that take as long as one tombstone.
pub(crate) const UNITS_PER_TOMBSTONE: u64 = KEYS_PER_TOMBSTONE;

/// By how much a window's pain is multiplied: the same for all databases of a target, as nothing says of
/// which database a record was that was lost, or what was counted while no window was open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// For operations whose record was lost, at least 1.
    pub lost_records: f64,
    /// From the window to the sentinel's interval.
    pub sentinel: f64,
}

impl Scale {
    /// From the counts of the whole target. How many of its records one of its databases has says nothing
    /// about how many were lost. What the sentinel counted is compared with all that was counted while the
    /// probes were followed, not with what operations own of it: the share that nobody owns is nobody's in
    /// the sentinel's interval too.
    pub fn of(window: &Window, sentinel: &SentinelInterval) -> Scale {
        let chosen = window.operations_recorded;
        let recorded = chosen.saturating_sub(window.records_lost).max(1);
        let lost_records = (chosen as f64 / recorded as f64).clamp(1.0, LOST_SCALE_MAX);
        let followed = window.followed();
        let rate = |count: u64, duration_ns: u64| count as f64 / duration_ns as f64;
        let ratio = |in_sentinel: u64, in_window: u64| {
            let known = in_window > 0 && sentinel.duration_ns > 0 && window.duration_ns > 0;
            known.then(|| rate(in_sentinel, sentinel.duration_ns) / rate(in_window, window.duration_ns))
        };
        let dead = |counters: Counters| {
            let reseeks = counters.range_deletion_reseeks.saturating_mul(TOMBSTONES_PER_RESEEK);
            counters.tombstones_skipped.saturating_add(counters.merge_operands).saturating_add(reseeks)
        };
        let of_dead = ratio(dead(sentinel.counters), dead(followed));
        let reads = || ratio(sentinel.counters.block_reads, followed.block_reads);
        // Older versions are among the keys skipped, with those that readers have asked for.
        let keys = || ratio(sentinel.counters.keys_skipped, followed.keys_skipped);
        let sentinel =
            of_dead.or_else(reads).or_else(keys).unwrap_or(1.0).clamp(SENTINEL_SCALE.0, SENTINEL_SCALE.1);
        Scale { lost_records, sentinel }
    }

    /// How many times as much readers lose in one of the sentinel's intervals as in another one.
    pub fn change(window: &Window, before: &SentinelInterval, now: &SentinelInterval) -> f64 {
        Scale::of(window, now).sentinel / Scale::of(window, before).sentinel
    }

    /// Both together.
    pub fn factor(self) -> f64 {
        self.lost_records * self.sentinel
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::evidence::{BlockReadSource, NS_PER_TOMBSTONE_DEFAULT, SeekKind};
    use crate::facts::key::Key;
    use proptest::prelude::*;

    /// Tombstones, block reads and nanoseconds of a seek and of the scan after it.
    pub(crate) fn operation(seek: (u64, u64, u64), scan: (u64, u64, u64)) -> Observation {
        let counters = |part: (u64, u64, u64)| Counters {
            tombstones_skipped: part.0,
            block_reads: part.1,
            ..Counters::default()
        };
        Observation {
            seek: counters(seek),
            scan: counters(scan),
            seek_latency_ns: seek.2,
            scan_elapsed_ns: scan.2,
            ..Observation::at(SeekKind::Seek, Key::default())
        }
    }

    #[test]
    fn time_per_tombstone_is_that_of_most_seeks() {
        let mut observations: Vec<Observation> = [290, 300, 310, 300, 9_999_999]
            .iter()
            .map(|ns| operation((1000, 0, ns * 1000), (0, 0, 0)))
            .collect();
        let learnt = EventCosts::learn(&observations).ns_per_tombstone;
        assert!((learnt - 300.0).abs() < 1.0, "{learnt}");
        observations.pop();
        let too_few = EventCosts::learn(&observations);
        assert_eq!((too_few.ns_per_tombstone, too_few.tombstone_learnt), (NS_PER_TOMBSTONE_DEFAULT, false));
    }

    #[test]
    fn time_per_block_read_is_learnt_too() {
        let observations: Vec<Observation> =
            (0..9).map(|_| operation((0, 100, 1_000_000), (0, 0, 0))).collect();
        let learnt = EventCosts::learn(&observations).ns_per_block_read;
        assert!((learnt - 10_000.0).abs() < 1e-6, "{learnt}");
    }

    /// Two reads in the seek, six in the scan, so many of them timed at 3 µs each.
    fn timed(count: u64) -> Observation {
        let mut operation = operation((0, 2, 90_000), (0, 6, 90_000));
        operation.block_fetches = BlockFetches { count, bytes: count * 4096, latency_ns: count * 3_000 };
        operation
    }

    #[test]
    fn timed_block_reads_need_no_price() {
        let loss = EventCosts::default().loss(&timed(8));
        assert_eq!(loss, Loss { lost_ns: 24_000, relief_ns: 0, block_read_ns: 24_000 });
    }

    #[test]
    fn block_reads_that_were_not_timed_cost_what_the_others_did() {
        let costs = EventCosts::learn(&[timed(8), timed(8), timed(4)]);
        assert_eq!((costs.ns_per_block_read, costs.block_read_source), (3_000.0, BlockReadSource::Timed));
        assert_eq!(costs.loss(&timed(4)).lost_ns, 24_000);
        // Too few to stand for others.
        assert_eq!(EventCosts::learn(&[timed(8)]).block_read_source, BlockReadSource::Assumed);
    }

    #[test]
    fn blocks_out_of_the_readahead_buffer_are_time_without_a_count() {
        let mut scan = operation((0, 0, 5_000), (0, 0, 100_000));
        scan.block_fetches.latency_ns = 70_000;
        assert_eq!(EventCosts::default().loss(&scan).block_read_ns, 70_000);
    }

    #[test]
    fn a_loss_is_never_longer_than_what_was_measured() {
        let costs = EventCosts::default();
        let loss = costs.loss(&operation((1_000_000, 0, 5_000), (1_000_000, 0, 7_000)));
        assert_eq!(loss, Loss { lost_ns: 12_000, relief_ns: 12_000, block_read_ns: 0 });
    }

    #[test]
    fn reading_blocks_of_tombstones_is_relieved_with_them() {
        let mut scan = operation((0, 0, 0), (250_000, 5_000, 1_000_000_000));
        scan.scan.keys_skipped = 500_000;
        let loss = EventCosts::default().loss(&scan);
        assert_eq!((loss.lost_ns, loss.relief_ns), (550_000_000, 550_000_000));
        assert_eq!(loss.block_read_ns, 500_000_000);
        // A long scan of live keys that met a few tombstones reads its blocks all the same.
        scan.scan =
            Counters { tombstones_skipped: 10, keys_skipped: 1_000, block_reads: 100, ..Counters::default() };
        let loss = EventCosts::default().loss(&scan);
        assert_eq!((loss.lost_ns, loss.relief_ns), (10_002_000, 202_000));
    }

    #[test]
    fn block_misses_are_pain_without_relief() {
        let loss = EventCosts::default().loss(&operation((0, 10, 10_000_000), (0, 0, 0)));
        assert_eq!(loss, Loss { lost_ns: 1_000_000, relief_ns: 0, block_read_ns: 1_000_000 });
    }

    #[test]
    fn scales() {
        let attributed = Counters { tombstones_skipped: 100, ..Counters::default() };
        let window = Window {
            duration_ns: 1_000,
            operations_recorded: 20,
            records_lost: 10,
            attributed,
            ..Window::default()
        };
        let counters = Counters { tombstones_skipped: 600, ..Counters::default() };
        let sentinel = SentinelInterval { duration_ns: 2_000, counters };
        let scale = Scale::of(&window, &sentinel);
        assert_eq!(scale.lost_records, 2.0);
        assert!((scale.sentinel - 3.0).abs() < 1e-9);
        let nothing = Scale::of(&Window::default(), &SentinelInterval::default());
        assert_eq!(nothing.factor(), 1.0);
        let all_lost = Window { operations_recorded: 5_000, records_lost: 5_000, ..window };
        assert_eq!(Scale::of(&all_lost, &sentinel).lost_records, LOST_SCALE_MAX);
        let busier = SentinelInterval { duration_ns: 1_000, ..sentinel };
        assert!((Scale::change(&window, &sentinel, &busier) - 2.0).abs() < 1e-9);
        let silent = SentinelInterval { duration_ns: 2_000, counters: Counters::default() };
        let none_lost = Window { records_lost: 0, ..window };
        assert_eq!(Scale::of(&none_lost, &silent).factor(), SENTINEL_SCALE.0);
    }

    /// The governor cuts windows short: what was seen in a tenth of the time has ten times the weight.
    #[test]
    fn a_shorter_window_gives_the_same_pain() {
        let counters = |tombstones_skipped| Counters { tombstones_skipped, ..Counters::default() };
        let sentinel = SentinelInterval { duration_ns: 5_000_000_000, counters: counters(500_000) };
        let pain = |duration_ns: u64, operations: u64| {
            let attributed = counters(1_000 * operations);
            let window =
                Window { duration_ns, operations_recorded: operations, attributed, ..Window::default() };
            let lost_ns = EventCosts::default().loss(&operation((1_000, 0, 1_000_000), (0, 0, 0))).lost_ns;
            let factor = Scale::of(&window, &sentinel).factor();
            lost_ns as f64 * operations as f64 * factor / duration_ns as f64
        };
        let expected = 100.0 * 200_000.0 / 1e9;
        for (duration_ns, operations) in [(2_000_000_000, 200), (200_000_000, 20), (50_000_000, 5)] {
            assert!((pain(duration_ns, operations) - expected).abs() < 1e-9);
        }
        // Cut short while it was busier than usual: the sentinel knows how much it was in all.
        assert!((pain(50_000_000, 20) - expected).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn any_counts_give_finite_losses(
            seek: (u64, u64, u64),
            scan: (u64, u64, u64),
            fetches: (u64, u64),
            operations_recorded: u64,
            records_lost: u64,
        ) {
            let mut operation = operation(seek, scan);
            operation.block_fetches = BlockFetches { count: fetches.0, bytes: 0, latency_ns: fetches.1 };
            let observations = vec![operation; 9];
            let costs = EventCosts::learn(&observations);
            prop_assert!(costs.ns_per_tombstone.is_finite() && costs.ns_per_block_read.is_finite());
            for observation in &observations {
                let loss = costs.loss(observation);
                prop_assert!(loss.relief_ns <= loss.lost_ns && loss.block_read_ns <= loss.lost_ns);
                prop_assert!(loss.lost_ns <= seek.2.min(OPERATION_NS_MAX) + scan.2.min(OPERATION_NS_MAX) + 2);
            }
            let attributed = observations[0].seek;
            let duration_ns = seek.0;
            let window = Window { duration_ns, operations_recorded, records_lost, attributed, ..Window::default() };
            let sentinel = SentinelInterval { duration_ns: scan.0, counters: observations[0].scan };
            prop_assert!(Scale::of(&window, &sentinel).factor().is_finite());
        }
    }
}
