//! From counters to rates: what happened between snapshots of one target.
//!
//! An agent publishes counters that only grow. A rate is the difference of two of them; where a counter fell,
//! or the name stands for another process, the agent or the target began anew, and so does the history. Pure.

use super::client::Snapshot;
use crate::snapshot::TargetView;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::collections::{HashMap, VecDeque};

/// Span over which the sentinel's totals are turned into rates: two of the engine's usual cycles, so that a
/// snapshot made twice within a cycle does not show as standstill.
const TOTALS_SPAN: SignedDuration = SignedDuration::from_secs(10);

/// Span over which windows are turned into rates: windows are rarer than cycles.
const WINDOWS_SPAN: SignedDuration = SignedDuration::from_secs(60);

/// Snapshots kept of one target: as many as [`WINDOWS_SPAN`] has at one a second, and some to spare.
const SAMPLES_MAX: usize = 90;

/// What one snapshot says of one target.
#[derive(Clone, Debug)]
struct Sample {
    at: Timestamp,
    view: TargetView,
}

/// Rates of one target; `None` where two snapshots are needed and there are not two yet, or nothing happened
/// that could be divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Tombstones skipped a second, exact.
    pub tombstones_per_second: Option<f64>,
    /// Blocks read a second, exact.
    pub misses_per_second: Option<f64>,
    /// Positioning calls a second while windows were open.
    pub seeks_per_second: Option<f64>,
    /// Tombstones skipped per operation in windows.
    pub tombstones_per_seek: Option<f64>,
    /// Blocks read per operation in windows.
    pub misses_per_seek: Option<f64>,
    /// Time that probes took from the target's threads, seconds a second: a share of one core.
    pub probe_cost_ratio: Option<f64>,
}

/// What is remembered of all targets.
#[derive(Clone, Debug, Default)]
pub struct History {
    samples: HashMap<String, VecDeque<Sample>>,
}

impl History {
    /// Takes in a snapshot. One that is no newer than the last adds nothing; targets that are not in it are
    /// forgotten.
    pub fn take(&mut self, snapshot: &Snapshot) {
        let Ok(at) = snapshot.at.parse::<Timestamp>() else { return };
        self.samples.retain(|name, _| snapshot.targets.iter().any(|target| target.name == *name));
        for view in &snapshot.targets {
            let samples = self.samples.entry(view.name.clone()).or_default();
            if samples.back().is_some_and(|last| !continues(&last.view, view) || last.at > at) {
                samples.clear();
            }
            if samples.back().is_some_and(|last| last.at == at) {
                continue;
            }
            samples.push_back(Sample { at, view: view.clone() });
            while samples.len() > SAMPLES_MAX
                || samples.front().is_some_and(|first| at.duration_since(first.at) > WINDOWS_SPAN)
            {
                samples.pop_front();
            }
        }
    }

    /// Rates of a target as of the last snapshot.
    pub fn rates(&self, name: &str) -> Rates {
        let Some(samples) = self.samples.get(name) else { return Rates::default() };
        let Some(last) = samples.back() else { return Rates::default() };
        let within = |span| samples.iter().find(|sample| last.at.duration_since(sample.at) <= span);
        let mut rates = Rates::default();
        if let Some(earlier) = within(TOTALS_SPAN) {
            let seconds = last.at.duration_since(earlier.at).as_secs_f64();
            let counted = last.view.totals.minus(earlier.view.totals);
            rates.tombstones_per_second = ratio(counted.tombstones_skipped, seconds);
            rates.misses_per_second = ratio(counted.block_reads, seconds);
        }
        if let Some(earlier) = within(WINDOWS_SPAN) {
            let seconds = last.at.duration_since(earlier.at).as_secs_f64();
            let cost_seconds = last.view.probes.cost_seconds - earlier.view.probes.cost_seconds;
            rates.probe_cost_ratio = (seconds > 0.0).then(|| cost_seconds.max(0.0) / seconds);
        }
        // Where no window closed lately, all of them since the agent's start speak.
        let nothing = TargetView::default();
        let earlier = within(WINDOWS_SPAN).map(|sample| &sample.view);
        let earlier = earlier.filter(|earlier| earlier.windows < last.view.windows).unwrap_or(&nothing);
        let operations = last.view.operations.saturating_sub(earlier.operations);
        let counted = last.view.attributed.minus(earlier.attributed);
        rates.seeks_per_second = ratio(operations, last.view.window_seconds - earlier.window_seconds);
        rates.tombstones_per_seek = ratio(counted.tombstones_skipped, operations as f64);
        rates.misses_per_seek = ratio(counted.block_reads, operations as f64);
        rates
    }
}

/// Whether the counters of `next` go on from those of `last`.
fn continues(last: &TargetView, next: &TargetView) -> bool {
    let growing = [
        (last.windows, next.windows),
        (last.operations, next.operations),
        (last.totals.tombstones_skipped, next.totals.tombstones_skipped),
        (last.totals.block_reads, next.totals.block_reads),
        (last.attributed.tombstones_skipped, next.attributed.tombstones_skipped),
        (last.attributed.block_reads, next.attributed.block_reads),
    ];
    last.pid == next.pid
        && last.window_seconds <= next.window_seconds
        && last.probes.cost_seconds <= next.probes.cost_seconds
        && growing.into_iter().all(|(last, next)| last <= next)
}

fn ratio(count: u64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| count as f64 / by)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::snapshot::ProbeView;
    use proptest::prelude::*;
    use sexton_tuner::evidence::Counters;

    /// A snapshot `second` seconds after some moment, of one target that has skipped so many tombstones in
    /// all, of them a tenth in windows of half a second a second.
    fn snapshot(second: i64, tombstones: u64, windows: u64) -> Snapshot {
        let counters = |tombstones| Counters {
            tombstones_skipped: tombstones,
            block_reads: tombstones / 10,
            ..Counters::default()
        };
        let target = TargetView {
            name: "queue-1".into(),
            pid: 1,
            totals: counters(tombstones),
            attributed: counters(tombstones / 10),
            operations: windows * 50,
            window_seconds: windows as f64 * 0.5,
            windows,
            probes: ProbeView { cost_seconds: windows as f64 * 0.01, ..ProbeView::default() },
            ..TargetView::default()
        };
        let at = Timestamp::from_second(1_800_000_000 + second).unwrap();
        Snapshot { at: at.to_string(), cycles: 1, targets: vec![target], ranges: Vec::new() }
    }

    #[test]
    fn one_snapshot_has_no_rates_of_totals_but_those_of_its_windows() {
        let mut history = History::default();
        history.take(&snapshot(0, 1_000, 2));
        let rates = history.rates("queue-1");
        assert_eq!((rates.tombstones_per_second, rates.misses_per_second), (None, None));
        assert_eq!(rates.seeks_per_second, Some(100.0));
        assert_eq!(rates.tombstones_per_seek, Some(1.0));
        assert_eq!(history.rates("other"), Rates::default());
    }

    #[test]
    fn two_snapshots_give_the_rates_between_them() {
        let mut history = History::default();
        history.take(&snapshot(0, 1_000, 2));
        history.take(&snapshot(5, 11_000, 3));
        let rates = history.rates("queue-1");
        assert_eq!(rates.tombstones_per_second, Some(2_000.0));
        assert_eq!(rates.misses_per_second, Some(200.0));
        assert_eq!(rates.seeks_per_second, Some(100.0));
        assert_eq!(rates.tombstones_per_seek, Some(20.0));
        assert_eq!(rates.misses_per_seek, Some(2.0));
        // A window of 10 ms' cost in five seconds.
        assert!(rates.probe_cost_ratio.is_some_and(|ratio| (ratio - 0.002).abs() < 1e-9));
    }

    #[test]
    fn the_same_snapshot_twice_changes_nothing() {
        let mut history = History::default();
        history.take(&snapshot(0, 1_000, 2));
        history.take(&snapshot(5, 11_000, 3));
        let rates = history.rates("queue-1");
        history.take(&snapshot(5, 11_000, 3));
        assert_eq!(history.rates("queue-1"), rates);
    }

    #[test]
    fn an_agent_that_was_restarted_begins_anew() {
        let mut history = History::default();
        history.take(&snapshot(0, 90_000, 200));
        history.take(&snapshot(5, 100, 0));
        let rates = history.rates("queue-1");
        assert_eq!((rates.tombstones_per_second, rates.seeks_per_second), (None, None));
        history.take(&snapshot(10, 1_100, 1));
        assert_eq!(history.rates("queue-1").tombstones_per_second, Some(200.0));
    }

    #[test]
    fn old_snapshots_are_forgotten() {
        let mut history = History::default();
        for second in 0..500 {
            history.take(&snapshot(second, second as u64 * 100, 0));
        }
        assert!(history.samples.values().all(|samples| samples.len() <= SAMPLES_MAX));
        let rates = history.rates("queue-1");
        assert_eq!(rates.tombstones_per_second, Some(100.0));
        assert_eq!(rates.seeks_per_second, None);
        history.take(&Snapshot { at: snapshot(600, 0, 0).at, ..Snapshot::default() });
        assert!(history.samples.is_empty());
    }

    proptest! {
        /// Whatever an agent publishes, rates are finite and not negative.
        #[test]
        fn rates_are_never_negative(
            steps in proptest::collection::vec((-5i64..100, 0u64..100_000, 0u64..100), 1..20),
        ) {
            let mut history = History::default();
            let mut second = 0;
            for (after, tombstones, windows) in steps {
                second += after;
                history.take(&snapshot(second, tombstones, windows));
                let rates = history.rates("queue-1");
                let all = [rates.tombstones_per_second, rates.misses_per_second, rates.seeks_per_second,
                           rates.tombstones_per_seek, rates.misses_per_seek, rates.probe_cost_ratio];
                prop_assert!(all.into_iter().flatten().all(|rate| rate.is_finite() && rate >= 0.0));
            }
        }
    }
}
