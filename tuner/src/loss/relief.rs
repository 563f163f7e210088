//! What a tombstone and a block read cost the readers of one target: a fit over its windows.
//!
//! Each window's painful operations add to the sums of a least-squares fit of their latency by what they met,
//! after what earlier windows added has faded: what is learnt follows the target, and a window with few
//! operations does not throw it over. Deviations count relative to the latency, so that one thread that was
//! descheduled weighs next to nothing. What is promised of an action is its tombstones times this price.

use crate::facts::evidence::{
    BlockFetches, BlockReadSource, Counters, EventCosts, NS_PER_BLOCK_READ_DEFAULT, Observation,
};
use crate::loss::read_time::{DeadEntries, dead, reads_ns};
use serde::{Deserialize, Serialize};

/// What of earlier windows is left when a new one comes in: the last five make up two thirds of a fit.
const FADING: f64 = 0.8;

/// Operations of one window that are taken in: more tell nothing new, and one busy window would outweigh the
/// others.
const OPERATIONS_TAKEN_MAX: usize = 1000;

/// Fewest operations that a price is learnt from.
const OPERATIONS_TO_LEARN_FROM: f64 = 5.0;

/// Fewest tombstones of a seek for its latency to tell the time per tombstone: beside 50 us of these what
/// else a seek does is little.
const SEEK_TOMBSTONES_MIN: u64 = 250;

/// The same of a scan, whose time has the caller's own in it: that of a list of a hundred keys is little
/// beside so many.
const SCAN_TOMBSTONES_MIN: u64 = 10_000;

/// Fewest block reads of a seek for its latency to tell the time per block read, and fewest timed ones
/// for their mean to stand for the others.
const BLOCK_READS_MIN: u64 = 16;

/// Below this share of the greatest possible determinant, tombstones and block reads went together too much
/// for the fit to tell them apart.
const DETERMINANT_SHARE_MIN: f64 = 1e-3;

/// Plausible times per tombstone; what is learnt outside of it is another effect.
const NS_PER_TOMBSTONE: (f64, f64) = (5.0, 20_000.0);

/// Plausible times per block read, from the page cache to a busy disk.
const NS_PER_BLOCK_READ: (f64, f64) = (1_000.0, 100_000_000.0);

/// What was learnt of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostFit {
    seeks: Sums,
    scans: Sums,
    timed: Timed,
}

/// Sums of a fit `latency = tombstones × a + block reads × b`, each operation divided by its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    tombstones: f64,
    reads: f64,
    tombstones_squared: f64,
    reads_squared: f64,
    tombstones_by_reads: f64,
    operations_with_tombstones: f64,
    operations_with_reads: f64,
}

/// Block reads that were timed one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Timed {
    count: f64,
    latency_ns: f64,
}

/// One operation's part that goes into a fit.
struct Part {
    /// What it stepped over, in the tombstones that take as long.
    tombstones: f64,
    /// Of them were not timed.
    untimed_reads: f64,
    /// Without the timed block reads.
    latency_ns: f64,
    tombstones_min: u64,
}

impl CostFit {
    /// Takes in a window's painful operations.
    pub fn learn<'a>(&mut self, observations: impl IntoIterator<Item = &'a Observation>) {
        let mut observations = observations.into_iter().take(OPERATIONS_TAKEN_MAX).peekable();
        if observations.peek().is_none() {
            return;
        }
        self.seeks.fade();
        self.scans.fade();
        self.timed.fade();
        for operation in observations {
            self.timed.add(&operation.block_fetches);
            let [seek, scan] = parts(operation);
            self.seeks.add(&seek);
            self.scans.add(&scan);
        }
    }

    /// The prices, as far as they are known; the rest are the defaults.
    pub fn costs(&self) -> EventCosts {
        let mut costs = EventCosts::default();
        let source = match self.seeks.operations_with_tombstones >= OPERATIONS_TO_LEARN_FROM {
            true => &self.seeks,
            false => &self.scans,
        };
        if let Some(learnt) = source.ns_per_tombstone() {
            costs.ns_per_tombstone = learnt.clamp(NS_PER_TOMBSTONE.0, NS_PER_TOMBSTONE.1);
            costs.tombstone_learnt = true;
        }
        if let Some(timed) = self.timed.mean_ns() {
            costs.ns_per_block_read = timed.clamp(NS_PER_BLOCK_READ.0, NS_PER_BLOCK_READ.1);
            costs.block_read_source = BlockReadSource::Timed;
        } else if let Some(learnt) = self.seeks.ns_per_block_read() {
            costs.ns_per_block_read = learnt.clamp(NS_PER_BLOCK_READ.0, NS_PER_BLOCK_READ.1);
            costs.block_read_source = BlockReadSource::Learnt;
        }
        costs
    }
}

/// The seek's part, whose latency is exact, and the scan's, whose time is only an upper bound.
fn parts(operation: &Observation) -> [Part; 2] {
    let timed_ns = reads_ns(operation, 0.0);
    let reads = operation.total().block_reads;
    let untimed = reads.saturating_sub(operation.block_fetches.count) as f64 / reads.max(1) as f64;
    let [in_seek, in_scan] = dead(operation).map(DeadEntries::as_tombstones);
    let part =
        |(counters, tombstones): (Counters, f64), elapsed_ns: u64, timed_ns: f64, tombstones_min: u64| Part {
            tombstones,
            untimed_reads: counters.block_reads as f64 * untimed,
            latency_ns: elapsed_ns as f64 - timed_ns,
            tombstones_min,
        };
    [
        part((operation.seek, in_seek), operation.seek_latency_ns, timed_ns.in_seek, SEEK_TOMBSTONES_MIN),
        part((operation.scan, in_scan), operation.scan_elapsed_ns, timed_ns.in_scan, SCAN_TOMBSTONES_MIN),
    ]
}

impl Sums {
    fn fade(&mut self) {
        let sums = [
            &mut self.tombstones,
            &mut self.reads,
            &mut self.tombstones_squared,
            &mut self.reads_squared,
            &mut self.tombstones_by_reads,
            &mut self.operations_with_tombstones,
            &mut self.operations_with_reads,
        ];
        for sum in sums {
            *sum *= FADING;
        }
    }

    /// Adds an operation's part, where it tells anything.
    fn add(&mut self, part: &Part) {
        let has_tombstones = part.tombstones >= part.tombstones_min as f64;
        let has_reads = part.untimed_reads >= BLOCK_READS_MIN as f64;
        if part.latency_ns < 1.0 || !(has_tombstones || has_reads) {
            return;
        }
        let tombstones = part.tombstones / part.latency_ns;
        let reads = part.untimed_reads / part.latency_ns;
        self.tombstones += tombstones;
        self.reads += reads;
        self.tombstones_squared += tombstones * tombstones;
        self.reads_squared += reads * reads;
        self.tombstones_by_reads += tombstones * reads;
        self.operations_with_tombstones += f64::from(u8::from(has_tombstones));
        self.operations_with_reads += f64::from(u8::from(has_reads));
    }

    /// Both prices, where the operations tell them apart.
    fn both(&self) -> Option<(f64, f64)> {
        let greatest = self.tombstones_squared * self.reads_squared;
        let determinant = greatest - self.tombstones_by_reads * self.tombstones_by_reads;
        if greatest <= 0.0 || determinant < greatest * DETERMINANT_SHARE_MIN {
            return None;
        }
        let per_tombstone =
            (self.tombstones * self.reads_squared - self.reads * self.tombstones_by_reads) / determinant;
        let per_read =
            (self.reads * self.tombstones_squared - self.tombstones * self.tombstones_by_reads) / determinant;
        (per_tombstone > 0.0 && per_read > 0.0).then_some((per_tombstone, per_read))
    }

    fn ns_per_tombstone(&self) -> Option<f64> {
        if self.operations_with_tombstones < OPERATIONS_TO_LEARN_FROM || self.tombstones_squared <= 0.0 {
            return None;
        }
        let alone = || {
            // Not told apart: block reads at the price that is taken for them otherwise, if that leaves
            // anything.
            let less_reads = self.tombstones - NS_PER_BLOCK_READ_DEFAULT * self.tombstones_by_reads;
            let explained = if less_reads > self.tombstones / 2.0 { less_reads } else { self.tombstones };
            explained / self.tombstones_squared
        };
        Some(self.both().map_or_else(alone, |(per_tombstone, _)| per_tombstone))
    }

    fn ns_per_block_read(&self) -> Option<f64> {
        if self.operations_with_reads < OPERATIONS_TO_LEARN_FROM || self.reads_squared <= 0.0 {
            return None;
        }
        match self.both() {
            Some((_, per_read)) => Some(per_read),
            // Where tombstones took the time as well it is not known what the reads took.
            None => (self.tombstones_squared <= 0.0).then(|| self.reads / self.reads_squared),
        }
    }
}

impl Timed {
    fn fade(&mut self) {
        self.count *= FADING;
        self.latency_ns *= FADING;
    }

    /// Operations that were served by reading ahead alone would only add time.
    fn add(&mut self, fetches: &BlockFetches) {
        if fetches.count > 0 {
            self.count += fetches.count as f64;
            self.latency_ns += fetches.latency_ns as f64;
        }
    }

    fn mean_ns(&self) -> Option<f64> {
        (self.count >= BLOCK_READS_MIN as f64).then(|| self.latency_ns / self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::read_time::tests::operation;
    use proptest::prelude::*;

    fn is_near(one: f64, two: f64) -> bool {
        (one - two).abs() <= two * 0.02
    }

    #[test]
    fn both_prices_are_found_where_operations_differ() {
        let seeks: Vec<Observation> = (1..40)
            .map(|n| {
                let (tombstones, reads) = (1000 * n, 17 + (n * 7) % 40);
                operation((tombstones, reads, tombstones * 150 + reads * 40_000), (0, 0, 0))
            })
            .collect();
        let mut fit = CostFit::default();
        fit.learn(&seeks);
        let costs = fit.costs();
        assert!(is_near(costs.ns_per_tombstone, 150.0), "{costs:?}");
        assert!(is_near(costs.ns_per_block_read, 40_000.0), "{costs:?}");
    }

    #[test]
    fn a_window_of_few_operations_adds_to_what_is_known() {
        let window = |ns: u64, count: usize| vec![operation((10_000, 0, ns * 10_000), (0, 0, 0)); count];
        let mut fit = CostFit::default();
        fit.learn(&window(300, 3));
        assert!(!fit.costs().tombstone_learnt);
        fit.learn(&window(300, 3));
        assert!(is_near(fit.costs().ns_per_tombstone, 300.0));
        // Ten windows of another price, and the first ones are forgotten.
        for _ in 0..10 {
            fit.learn(&window(100, 3));
        }
        assert!((fit.costs().ns_per_tombstone - 100.0).abs() < 15.0, "{:?}", fit.costs());
        fit.learn([]);
        assert!(fit.costs().tombstone_learnt);
    }

    #[test]
    fn scans_tell_where_seeks_do_not() {
        let scan = |caller_ns: u64| operation((0, 0, 9_000), (250_000, 0, 250_000 * 120 + caller_ns));
        let mut fit = CostFit::default();
        fit.learn(&[scan(0), scan(100_000), scan(50_000), scan(900_000_000), scan(0), scan(200_000)]);
        let costs = fit.costs();
        assert!(costs.tombstone_learnt && (120.0..126.0).contains(&costs.ns_per_tombstone), "{costs:?}");
        // A seek's latency is exact: from five on it is believed instead.
        fit.learn(&vec![operation((5_000, 0, 5_000 * 90), (0, 0, 0)); 5]);
        assert!(is_near(fit.costs().ns_per_tombstone, 90.0));
    }

    #[test]
    fn one_busy_window_does_not_outweigh_the_others() {
        let mut fit = CostFit::default();
        fit.learn(&vec![operation((1_000, 0, 100_000), (0, 0, 0)); 10 * OPERATIONS_TAKEN_MAX]);
        for _ in 0..3 {
            fit.learn(&vec![operation((1_000, 0, 300_000), (0, 0, 0)); OPERATIONS_TAKEN_MAX]);
        }
        assert!(fit.costs().ns_per_tombstone > 150.0, "{:?}", fit.costs());
    }

    proptest! {
        #[test]
        fn any_windows_give_plausible_prices(
            windows in proptest::collection::vec(
                proptest::collection::vec((any::<(u64, u64, u64)>(), any::<(u64, u64, u64)>(), any::<(u64, u64)>()), 0..9),
                0..9,
            ),
        ) {
            let mut fit = CostFit::default();
            for window in windows {
                let observations: Vec<Observation> = window
                    .into_iter()
                    .map(|(seek, scan, (count, latency_ns))| Observation {
                        block_fetches: BlockFetches { count, bytes: 0, latency_ns },
                        ..operation(seek, scan)
                    })
                    .collect();
                fit.learn(&observations);
                let costs = fit.costs();
                prop_assert!((NS_PER_TOMBSTONE.0..=NS_PER_TOMBSTONE.1).contains(&costs.ns_per_tombstone));
                prop_assert!((NS_PER_BLOCK_READ.0..=NS_PER_BLOCK_READ.1).contains(&costs.ns_per_block_read));
            }
        }
    }
}
