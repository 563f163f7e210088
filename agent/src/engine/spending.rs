//! What probes have cost one target, and when its windows may open and have to close: its governor, with a
//! clock.

use crate::snapshot::ProbeView;
use sexton_tuner::governor::{Allowance, Governor};
use sexton_tuner::policy::{CoreShare, TimeSpan};
use std::time::Instant;

/// The account of one target.
#[derive(Clone, Debug)]
pub struct Spending {
    governor: Governor,
    since: Instant,
    /// Reader time spent, nanoseconds.
    cost_ns: u64,
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
}

impl Spending {
    /// The account of a target that is watched from now on.
    pub fn new(budget: CoreShare) -> Spending {
        Spending {
            governor: Governor::new(budget, 0),
            since: Instant::now(),
            cost_ns: 0,
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
        self.open = Some(OpenAccount { opened_ns, until_ns, counted_ns: opened_ns, cost_ns: 0 });
    }

    /// What the open window's hits have cost so far.
    pub fn take_cost(&mut self, cost_ns: u64) {
        let now_ns = self.now_ns();
        if let Some(open) = &mut self.open {
            let more_ns = cost_ns.saturating_sub(open.cost_ns);
            (open.counted_ns, open.cost_ns) = (now_ns, cost_ns);
            self.cost_ns = self.cost_ns.saturating_add(more_ns);
            self.governor.charge(more_ns);
        }
        self.governor.refill(now_ns);
    }

    /// Reader time that may be spent now, nanoseconds.
    pub fn available_ns(&self) -> u64 {
        u64::try_from(self.governor.available_ns()).unwrap_or(0)
    }

    /// Whether the open window has to close: its time is over, or its budget is spent.
    pub fn is_over(&self) -> bool {
        self.governor.is_spent() || self.open.is_none_or(|open| self.now_ns() >= open.until_ns)
    }

    /// The window has closed; all that its hits have cost is this, or, where they could not be counted at the end,
    /// what they had cost before.
    pub fn end_window(&mut self, cost_ns: Option<u64>) {
        let Some(open) = self.open else { return };
        // Taking the probes away lasts, and the hits come to an end somewhere in it: what a window costs per
        // time is told by the counting before it.
        self.governor.note_window(open.counted_ns - open.opened_ns, open.cost_ns);
        self.windows_cut += u64::from(open.counted_ns < open.until_ns && self.governor.is_spent());
        self.take_cost(cost_ns.unwrap_or(open.cost_ns));
        self.open_ns = self.open_ns.saturating_add(self.now_ns().saturating_sub(open.opened_ns));
        self.open = None;
    }

    /// The account as the outside sees it.
    pub fn view(&self) -> ProbeView {
        ProbeView {
            cost_seconds: self.cost_ns as f64 / 1e9,
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

    const WANTED: TimeSpan = TimeSpan::from_seconds(3_600);

    #[test]
    fn a_window_that_has_spent_its_budget_is_over_and_the_next_one_waits() {
        // So small a budget that nothing to speak of comes in while the test runs: 0.1 ms at the start.
        let mut spending = Spending::new(CoreShare::from_parts_per_million(100));
        assert!(matches!(spending.allowance(WANTED), Allowance::Window { .. }));
        spending.begin_window(WANTED.nanoseconds());
        spending.take_cost(50_000);
        assert!(!spending.is_over());
        spending.take_cost(2_000_000);
        assert!(spending.is_over());
        spending.end_window(Some(2_100_000));
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
}
