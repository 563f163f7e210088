//! What probes have cost one target, and when its windows may open and have to close: its governor, with a
//! clock.
//!
//! What comes in is what hits cost by the learnt prices. What is kept, charged and shown is that times what
//! the target's own counters have said of these prices so far.

use crate::snapshot::ProbeView;
use sexton_probe::ProbeHits;
use sexton_tuner::governor::{Allowance, Governor};
use sexton_tuner::policy::{CoreShare, TimeSpan};
use sexton_tuner::price_correction::{PriceCorrection, Unusable, WindowWork};
use std::time::Instant;

/// The account of one target.
#[derive(Clone, Debug)]
pub struct Spending {
    governor: Governor,
    correction: PriceCorrection,
    /// Of the last window.
    last_hits: ProbeHits,
    since: Instant,
    /// Reader time spent, nanoseconds.
    cost_ns: u64,
    /// The same by the learnt prices.
    learnt_cost_ns: u64,
    /// Time that windows were open, nanoseconds.
    open_ns: u64,
    /// Windows that were closed before their time because the budget was spent.
    windows_cut: u64,
    /// Windows that were wanted when there was no budget for one.
    windows_put_off: u64,
    open: Option<OpenAccount>,
}

/// The account of the window that is open.
#[derive(Clone, Copy, Debug)]
struct OpenAccount {
    opened_ns: u64,
    until_ns: u64,
    /// Up to when hits were counted, and what they had cost.
    counted_ns: u64,
    cost_ns: u64,
    learnt_cost_ns: u64,
    /// What the learnt prices are multiplied by until it closes.
    correction_ratio: f64,
}

impl Spending {
    /// The account of a target that is watched from now on.
    pub fn new(budget: CoreShare) -> Spending {
        Spending {
            governor: Governor::new(budget, 0),
            correction: PriceCorrection::default(),
            last_hits: ProbeHits::default(),
            since: Instant::now(),
            cost_ns: 0,
            learnt_cost_ns: 0,
            open_ns: 0,
            windows_cut: 0,
            windows_put_off: 0,
            open: None,
        }
    }

    /// The policy says another budget from now on.
    pub fn take_budget(&mut self, budget: CoreShare) {
        self.governor.refill(self.now_ns());
        self.governor.set_budget(budget);
    }

    /// Whether a window may open now; one that may not is counted as put off.
    pub fn allowance(&mut self, wanted: TimeSpan) -> Allowance {
        self.governor.refill(self.now_ns());
        let allowance = self.governor.allowance(wanted.nanoseconds());
        self.windows_put_off += u64::from(matches!(allowance, Allowance::Wait { .. }));
        allowance
    }

    /// A window has opened, for at most this long.
    pub fn begin_window(&mut self, length_ns: u64) {
        let opened_ns = self.now_ns();
        let until_ns = opened_ns.saturating_add(length_ns);
        self.open = Some(OpenAccount {
            opened_ns,
            until_ns,
            counted_ns: opened_ns,
            cost_ns: 0,
            learnt_cost_ns: 0,
            correction_ratio: self.correction.ratio(),
        });
    }

    /// What the open window's hits have cost so far, by the learnt prices.
    pub fn take_cost(&mut self, learnt_cost_ns: u64) {
        let now_ns = self.now_ns();
        if let Some(open) = &mut self.open {
            let cost_ns = (learnt_cost_ns as f64 * open.correction_ratio) as u64;
            let more_ns = cost_ns.saturating_sub(open.cost_ns);
            let more_learnt_ns = learnt_cost_ns.saturating_sub(open.learnt_cost_ns);
            (open.counted_ns, open.cost_ns, open.learnt_cost_ns) = (now_ns, cost_ns, learnt_cost_ns);
            self.cost_ns = self.cost_ns.saturating_add(more_ns);
            self.learnt_cost_ns = self.learnt_cost_ns.saturating_add(more_learnt_ns);
            self.governor.charge(more_ns);
        }
        self.governor.refill(now_ns);
    }

    /// What the learnt prices are multiplied by for this target.
    pub fn correction_ratio(&self) -> f64 {
        self.open.map_or_else(|| self.correction.ratio(), |open| open.correction_ratio)
    }

    /// Takes in what the target's own counters say of a window that has closed.
    ///
    /// # Errors
    /// Why they say nothing.
    pub fn take_window_work(&mut self, work: &WindowWork) -> Result<(), Unusable> {
        self.correction.take(work)
    }

    /// Other prices are learnt: `cost_ratio` says what hits cost by them, per what they cost by the former.
    pub fn learnt_prices_changed(&mut self, cost_ratio: impl FnOnce(&ProbeHits) -> f64) {
        self.correction.learnt_prices_changed(cost_ratio(&self.last_hits));
    }

    /// Reader time that may be spent now, nanoseconds.
    pub fn available_ns(&self) -> u64 {
        u64::try_from(self.governor.available_ns()).unwrap_or(0)
    }

    /// Whether the open window has to close: its time is over, or its budget is spent.
    pub fn is_over(&self) -> bool {
        self.governor.is_spent() || self.open.is_none_or(|open| self.now_ns() >= open.until_ns)
    }

    /// The window has closed; its hits and what they cost by the learnt prices, or, where they could not be
    /// counted at the end, what they had cost before.
    pub fn end_window(&mut self, counted: Option<(&ProbeHits, u64)>) {
        let Some(open) = self.open else { return };
        // Taking the probes away lasts, and the hits come to an end somewhere in it: what a window costs per
        // time is told by the counting before it.
        self.governor.note_window(open.counted_ns - open.opened_ns, open.cost_ns);
        self.windows_cut += u64::from(open.counted_ns < open.until_ns && self.governor.is_spent());
        self.take_cost(counted.map_or(open.learnt_cost_ns, |(_, learnt_cost_ns)| learnt_cost_ns));
        if let Some((hits, _)) = counted {
            self.last_hits = hits.clone();
        }
        self.open_ns = self.open_ns.saturating_add(self.now_ns().saturating_sub(open.opened_ns));
        self.open = None;
    }

    /// The account as the outside sees it.
    pub fn view(&self) -> ProbeView {
        ProbeView {
            cost_seconds: self.cost_ns as f64 / 1e9,
            learnt_cost_seconds: self.learnt_cost_ns as f64 / 1e9,
            price_correction_ratio: self.correction_ratio(),
            price_correction_windows: self.correction.windows() as u64,
            prices: Vec::new(),
            budget_ratio: self.governor.budget().ratio(),
            available_seconds: self.governor.available_ns() as f64 / 1e9,
            duty_ratio: self.open_ns as f64 / self.now_ns().max(1) as f64,
            windows_cut: self.windows_cut,
            windows_put_off: self.windows_put_off,
        }
    }

    /// Nanoseconds since the target is being watched.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sexton_tuner::evidence::Counters;
    use sexton_tuner::price_correction::Work;

    const WANTED: TimeSpan = TimeSpan::from_seconds(3_600);

    #[test]
    fn a_window_that_has_spent_its_budget_is_over_and_the_next_one_waits() {
        // So small a budget that nothing to speak of comes in while the test runs: 0.2 ms at the start.
        let mut spending = Spending::new(CoreShare::from_parts_per_million(100));
        assert!(matches!(spending.allowance(WANTED), Allowance::Window { .. }));
        spending.begin_window(WANTED.nanoseconds());
        spending.take_cost(50_000);
        assert!(!spending.is_over());
        spending.take_cost(2_000_000);
        assert!(spending.is_over());
        spending.end_window(Some((&ProbeHits::default(), 2_100_000)));
        assert!(matches!(spending.allowance(WANTED), Allowance::Wait { .. }));
        let view = spending.view();
        assert_eq!((view.windows_cut, view.windows_put_off, view.cost_seconds), (1, 1, 0.0021));
        assert!(view.available_seconds < 0.0 && view.duty_ratio > 0.0);
    }

    #[test]
    fn a_window_that_was_lost_is_paid_for_as_far_as_it_was_counted() {
        let mut spending = Spending::new(CoreShare::from_parts_per_million(10_000));
        spending.begin_window(0);
        assert!(spending.is_over());
        spending.take_cost(3_000);
        spending.end_window(None);
        assert_eq!(spending.view().cost_seconds, 0.000003);
        assert_eq!(spending.view().windows_cut, 0);
    }

    /// 400 ms of work in 800 ms, as much again in the 40 ms of a window and the time of its probes.
    fn window_work(learnt_cost_ms: u64, cost_ms: u64) -> WindowWork {
        let work = |processor_ms: u64, hits: u64| Work {
            processor_ns: processor_ms * 1_000_000,
            counters: Counters { block_cache_hits: hits, ..Counters::default() },
        };
        WindowWork {
            before: work(400, 200_000),
            during: work(40 + cost_ms, 20_000),
            after: work(400, 200_000),
            learnt_cost_ns: learnt_cost_ms * 1_000_000,
        }
    }

    #[test]
    fn the_budget_is_kept_by_the_corrected_price() {
        let mut spending = Spending::new(CoreShare::from_parts_per_million(10_000));
        spending.begin_window(WANTED.nanoseconds());
        spending.take_cost(6_000_000);
        assert!(!spending.is_over(), "6 of 22 ms are spent");
        spending.end_window(Some((&ProbeHits::default(), 6_000_000)));
        assert_eq!((spending.view().cost_seconds, spending.view().learnt_cost_seconds), (0.006, 0.006));
        for _ in 0..8 {
            assert_eq!(spending.take_window_work(&window_work(30, 60)), Ok(()));
        }
        assert_eq!(spending.correction_ratio(), 2.0);
        let before = spending.available_ns();
        spending.begin_window(WANTED.nanoseconds());
        // In an open window nothing changes.
        for _ in 0..24 {
            assert_eq!(spending.take_window_work(&window_work(30, 90)), Ok(()));
        }
        spending.take_cost(1_000_000);
        spending.take_cost(3_000_000);
        assert!(before >= 3_000_000 && spending.available_ns() < before, "{before} ns before");
        spending.end_window(None);
        let view = spending.view();
        assert_eq!((view.cost_seconds, view.learnt_cost_seconds), (0.012, 0.009));
        assert!(view.price_correction_ratio > 2.0 && view.price_correction_windows == 32);
    }
}
