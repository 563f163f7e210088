//! What probes may cost a target, and when its next window may open: a token bucket of reader time.
//!
//! Probes take time from the threads that run into them. Each target has a budget for that, a share of one
//! processor core, which comes in all the time and is saved up to a limit. A window spends it; when it is
//! spent the window closes, and what a window cost beyond it is a debt that the next one waits for.
//!
//! Pricing hits, reading counters and closing windows is the agent's. Time comes in as nanoseconds of any
//! clock that does not go backwards.

use crate::policy::CoreShare;

/// Time whose budget can be saved up: five cycles of the default loop, so that a window every cycle loses
/// nothing. It is also the most that one window can spend at once, 0.1 s of reader time at the default
/// budget: more would be a pause that readers notice.
pub const SAVED_NS_MAX: u64 = 25_000_000_000;

/// Time whose budget a target has at the start: enough for a first look, a hundredth of a second of reader
/// time at the default budget. An agent that is restarted over and over must not get the whole of
/// [`SAVED_NS_MAX`] each time.
pub const SAVED_NS_AT_START: u64 = 2_500_000_000;

/// Of the budget one part in so many is never spent. A budget is a promise, what hits cost is known to a
/// tenth, and putting probes in and taking them away costs a little that shows in no count.
const RESERVE_PART: i128 = 8;

/// Shortest window worth arming probes for, as long as a shorter one can be waited for: attaching takes
/// 10 ms and detaching 18 to 64 ms of the agent's time.
pub const WINDOW_NS_MIN: u64 = 50_000_000;

/// The bucket's unit is so small a part of a nanosecond that what comes in, time multiplied by parts per
/// million less the reserve, is never rounded.
const UNITS_PER_NS: i128 = 1_000_000 * RESERVE_PART;

/// Whether a window may open now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Now.
    Window {
        /// How long the budget is expected to last, at most what was wanted.
        length_ns: u64,
        /// Reader time it may cost; when that is spent it closes, however long it has been open.
        credit_ns: u64,
    },
    /// Not before so much more time has gone by.
    Wait {
        /// Nanoseconds.
        ns: u64,
    },
    /// The budget is nothing: there are no windows.
    Never,
}

/// What probes have cost one target, and what they may cost it still.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Governor {
    budget: CoreShare,
    /// In [`UNITS_PER_NS`]; below zero it is a debt.
    available: i128,
    refilled_at_ns: u64,
    /// Reader time that the last window cost per time that it was open; `None` before the first.
    last_rate: Option<f64>,
}

impl Governor {
    /// The governor of a target that is seen for the first time.
    pub fn new(budget: CoreShare, now_ns: u64) -> Governor {
        let available = units_of(budget, SAVED_NS_AT_START);
        Governor { budget, available, refilled_at_ns: now_ns, last_rate: None }
    }

    /// The budget it keeps.
    pub fn budget(&self) -> CoreShare {
        self.budget
    }

    /// Keeps another budget from now on. What was saved stays, as far as the new one could have saved it;
    /// what is owed is owed.
    pub fn set_budget(&mut self, budget: CoreShare) {
        self.budget = budget;
        self.available = self.available.min(units_of(budget, SAVED_NS_MAX));
    }

    /// Lets budget come in for the time since the last call, up to [`SAVED_NS_MAX`] worth of it. A time
    /// before the last one brings nothing.
    pub fn refill(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.refilled_at_ns);
        self.refilled_at_ns = self.refilled_at_ns.max(now_ns);
        let arrived = units_of(self.budget, elapsed_ns);
        self.available = self.available.saturating_add(arrived).min(units_of(self.budget, SAVED_NS_MAX));
    }

    /// Takes out what hits have cost, also more than there is: it has been spent.
    pub fn charge(&mut self, cost_ns: u64) {
        self.available = self.available.saturating_sub(i128::from(cost_ns) * UNITS_PER_NS);
    }

    /// Reader time that may be spent now, in nanoseconds; below zero it is owed.
    pub fn available_ns(&self) -> i64 {
        let whole = self.available.div_euclid(UNITS_PER_NS);
        i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
    }

    /// Whether an open window has to close.
    pub fn is_spent(&self) -> bool {
        self.available <= 0
    }

    /// Learns from a window that was open for `open_ns` and cost `cost_ns`: the next one is expected to cost
    /// as much per second.
    pub fn note_window(&mut self, open_ns: u64, cost_ns: u64) {
        if open_ns > 0 {
            self.last_rate = Some(cost_ns as f64 / open_ns as f64);
        }
    }

    /// Whether a window of `wanted_ns` may open now, and how long it can be expected to last.
    ///
    /// A window shorter than [`WINDOW_NS_MIN`] opens only where even the fullest bucket does not last
    /// longer: a target that is very expensive to look at is looked at seldom and shortly, but not never.
    pub fn allowance(&self, wanted_ns: u64) -> Allowance {
        if self.budget.parts_per_million() == 0 {
            return Allowance::Never;
        }
        // Nothing is known before the first window: any budget will do, for it closes when that is spent.
        let rate = self.last_rate.unwrap_or(0.0);
        let least_ns = wanted_ns.min(WINDOW_NS_MIN) as f64 * rate;
        // The cast saturates: what is beyond the fullest bucket is cut to it.
        let needed = (least_ns as i128 * UNITS_PER_NS).clamp(1, units_of(self.budget, SAVED_NS_MAX));
        if self.available < needed {
            return Allowance::Wait { ns: self.time_to_earn(needed - self.available) };
        }
        let credit_ns = u64::try_from(self.available_ns()).unwrap_or(0).max(1);
        // Division by zero gives infinity, and the cast saturates.
        let affordable_ns = (credit_ns as f64 / rate) as u64;
        Allowance::Window { length_ns: wanted_ns.min(affordable_ns.max(1)), credit_ns }
    }

    /// Time that brings in `missing` units, rounded up.
    fn time_to_earn(&self, missing: i128) -> u64 {
        let per_ns = units_of(self.budget, 1).max(1);
        u64::try_from(missing.saturating_add(per_ns - 1) / per_ns).unwrap_or(u64::MAX)
    }
}

/// What comes in over a time.
fn units_of(budget: CoreShare, time_ns: u64) -> i128 {
    i128::from(time_ns) * i128::from(budget.parts_per_million()) * (RESERVE_PART - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;
    /// 3.5 ms of each second may be spent, an eighth is kept in reserve.
    const BUDGET: CoreShare = CoreShare::from_parts_per_million(4_000);

    /// A full bucket, after a window with this cost per time.
    fn full(rate: f64) -> Governor {
        let mut governor = Governor::new(BUDGET, 0);
        governor.refill(SAVED_NS_MAX);
        governor.note_window(SECOND_NS, (rate * SECOND_NS as f64) as u64);
        governor
    }

    #[test]
    fn a_cheap_target_gets_the_window_that_is_wanted() {
        let allowance = full(0.005).allowance(2 * SECOND_NS);
        assert_eq!(allowance, Allowance::Window { length_ns: 2 * SECOND_NS, credit_ns: 87_500_000 });
    }

    #[test]
    fn an_expensive_target_gets_a_shorter_one_and_then_has_to_wait() {
        let mut governor = full(0.5);
        let allowance = governor.allowance(2 * SECOND_NS);
        assert_eq!(allowance, Allowance::Window { length_ns: 175_000_000, credit_ns: 87_500_000 });
        governor.charge(90_000_000);
        assert!(governor.is_spent());
        // 2.5 ms are owed, and the shortest window at that rate costs 25 ms.
        assert_eq!(governor.allowance(2 * SECOND_NS), Allowance::Wait { ns: 7_857_142_858 });
        governor.refill(SAVED_NS_MAX + 7_857_142_858);
        let allowance = governor.allowance(2 * SECOND_NS);
        assert_eq!(allowance, Allowance::Window { length_ns: WINDOW_NS_MIN, credit_ns: 25_000_000 });
    }

    #[test]
    fn a_smaller_budget_keeps_no_more_than_it_could_have_saved() {
        let mut governor = full(0.005);
        governor.set_budget(CoreShare::from_parts_per_million(1_000));
        assert_eq!(governor.available_ns(), 21_875_000);
        governor.charge(30_000_000);
        governor.set_budget(BUDGET);
        assert_eq!(governor.available_ns(), -8_125_000);
    }

    #[test]
    fn where_even_a_full_bucket_does_not_last_the_window_is_shorter_still() {
        let allowance = full(10.0).allowance(2 * SECOND_NS);
        assert_eq!(allowance, Allowance::Window { length_ns: 8_750_000, credit_ns: 87_500_000 });
        let mut half = Governor::new(BUDGET, 0);
        half.note_window(1, 10);
        half.refill(4 * SECOND_NS);
        assert_eq!(half.allowance(2 * SECOND_NS), Allowance::Wait { ns: 18_500_000_000 });
    }

    #[test]
    fn a_new_target_has_enough_for_a_first_look() {
        let governor = Governor::new(BUDGET, 7);
        let allowance = governor.allowance(2 * SECOND_NS);
        assert_eq!(allowance, Allowance::Window { length_ns: 2 * SECOND_NS, credit_ns: 8_750_000 });
    }

    #[test]
    fn a_budget_of_nothing_is_no_window_ever() {
        let nothing = CoreShare::from_parts_per_million(0);
        assert_eq!(Governor::new(nothing, 0).allowance(SECOND_NS), Allowance::Never);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_brings_nothing() {
        let mut governor = Governor::new(BUDGET, 5 * SECOND_NS);
        governor.refill(0);
        governor.refill(5 * SECOND_NS);
        assert_eq!(governor.available_ns(), 8_750_000);
    }

    /// Between two windows: how long, and what a nanosecond of the next one costs.
    #[derive(Clone, Debug)]
    struct Step {
        pause_ns: u64,
        wanted_ns: u64,
        rate: f64,
    }

    fn step() -> impl Strategy<Value = Step> {
        (0u64..30 * SECOND_NS, 1u64..3 * SECOND_NS, prop_oneof![0.0..0.02f64, 0.0..2.0f64, 0.0..64.0f64])
            .prop_map(|(pause_ns, wanted_ns, rate)| Step { pause_ns, wanted_ns, rate })
    }

    /// The agent's part: windows that are polled and closed when they have to be.
    struct Agent {
        governor: Governor,
        now_ns: u64,
        spent_ns: u64,
        windows: u64,
    }

    impl Agent {
        const POLL_NS: u64 = 10_000_000;

        fn pass(&mut self, ns: u64, rate: f64) -> u64 {
            self.now_ns += ns;
            let cost_ns = (ns as f64 * rate) as u64;
            self.spent_ns += cost_ns;
            self.governor.charge(cost_ns);
            self.governor.refill(self.now_ns);
            cost_ns
        }

        fn step(&mut self, step: &Step) {
            self.pass(step.pause_ns, 0.0);
            let Allowance::Window { length_ns, .. } = self.governor.allowance(step.wanted_ns) else { return };
            self.windows += 1;
            let (opened_ns, mut cost_ns) = (self.now_ns, 0);
            while self.now_ns - opened_ns < length_ns && !self.governor.is_spent() {
                let left_ns = length_ns - (self.now_ns - opened_ns);
                cost_ns += self.pass(left_ns.min(Self::POLL_NS), step.rate);
            }
            self.governor.note_window(self.now_ns - opened_ns, cost_ns);
        }
    }

    proptest! {
        #[test]
        fn what_is_spent_never_exceeds_what_came_in_but_for_one_poll(
            steps in proptest::collection::vec(step(), 1..60),
            parts_per_million in 1u32..1_000_000,
        ) {
            let budget = CoreShare::from_parts_per_million(parts_per_million);
            let mut agent = Agent { governor: Governor::new(budget, 0), now_ns: 0, spent_ns: 0, windows: 0 };
            for step in &steps {
                agent.step(step);
                let greatest_rate = steps.iter().map(|step| step.rate).fold(0.0, f64::max);
                let poll_ns = (Agent::POLL_NS as f64 * greatest_rate) as u64 + 1;
                let came_in_ns = agent.now_ns.saturating_add(SAVED_NS_MAX) as u128 * u128::from(parts_per_million)
                    * 7 / 8_000_000;
                prop_assert!(u128::from(agent.spent_ns) <= came_in_ns + u128::from(poll_ns));
            }
        }

        #[test]
        fn who_waits_as_long_as_was_said_gets_a_window(
            steps in proptest::collection::vec(step(), 0..20),
            parts_per_million in 1u32..1_000_000,
            wanted_ns in 1u64..3 * SECOND_NS,
        ) {
            let budget = CoreShare::from_parts_per_million(parts_per_million);
            let mut agent = Agent { governor: Governor::new(budget, 0), now_ns: 0, spent_ns: 0, windows: 0 };
            for step in &steps {
                agent.step(step);
            }
            if let Allowance::Wait { ns } = agent.governor.allowance(wanted_ns) {
                let mut early = agent.governor;
                early.refill(agent.now_ns + ns - 1);
                let is_early = matches!(early.allowance(wanted_ns), Allowance::Wait { ns: 1 });
                prop_assert!(is_early);
                agent.governor.refill(agent.now_ns + ns);
            }
            let has_window = matches!(agent.governor.allowance(wanted_ns), Allowance::Window { .. });
            prop_assert!(has_window);
        }

        #[test]
        fn more_time_more_budget_and_cheaper_hits_never_make_it_worse(
            cost_ns in 0u64..SECOND_NS,
            waited_ns in 0u64..30 * SECOND_NS,
            more_ns in 0u64..30 * SECOND_NS,
            rates in (0.0..64.0f64, 0.0..64.0f64),
            budgets in (1u32..1_000_000, 0u32..1_000_000),
            wanted_ns in 1u64..3 * SECOND_NS,
        ) {
            let allowance = |parts_per_million: u32, rate: f64, waited_ns: u64| {
                let mut governor = Governor::new(CoreShare::from_parts_per_million(parts_per_million), 0);
                governor.note_window(SECOND_NS, (rate * SECOND_NS as f64) as u64);
                governor.charge(cost_ns);
                governor.refill(waited_ns);
                match governor.allowance(wanted_ns) {
                    Allowance::Window { length_ns, credit_ns } => (length_ns, credit_ns),
                    _ => (0, 0),
                }
            };
            let (low, high) = (rates.0.min(rates.1), rates.0.max(rates.1));
            let (length_ns, credit_ns) = allowance(budgets.0, high, waited_ns);
            let later = allowance(budgets.0, high, waited_ns + more_ns);
            prop_assert!(later.0 >= length_ns && later.1 >= credit_ns);
            let richer = allowance(budgets.0 + budgets.1, high, waited_ns);
            prop_assert!(richer.0 >= length_ns && richer.1 >= credit_ns);
            let cheaper = allowance(budgets.0, low, waited_ns);
            prop_assert!(cheaper.0 >= length_ns && cheaper.1 >= credit_ns);
        }

        #[test]
        fn no_numbers_overflow(now_ns: u64, cost_ns: u64, open_ns: u64, wanted_ns: u64, parts_per_million: u32) {
            let mut governor = Governor::new(CoreShare::from_parts_per_million(parts_per_million), 0);
            for _ in 0..4 {
                governor.charge(cost_ns);
                governor.note_window(open_ns, cost_ns);
                governor.refill(now_ns);
                let _ = (governor.allowance(wanted_ns), governor.available_ns());
            }
        }
    }
}
