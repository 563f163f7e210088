//! Bytes that may be rewritten: a token bucket that fills at the budget's rate.

use crate::policy::IoBudget;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A token bucket of bytes that may be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetBucket {
    /// Bytes that may be rewritten now; below zero is a debt: an action cost more than was thought.
    pub tokens_bytes: i64,
    /// Up to when bytes have come in.
    pub refilled_at: Timestamp,
}

impl BudgetBucket {
    /// A bucket starts full: an agent that comes back should not have to save up first.
    pub fn full(budget: &IoBudget, now: Timestamp) -> BudgetBucket {
        BudgetBucket { tokens_bytes: burst_bytes(budget), refilled_at: now }
    }

    /// Lets bytes come in at the budget's rate since the last time, up to its burst. A clock that goes
    /// backwards brings nothing and takes nothing away. A debt beyond a burst is forgiven: the bucket fills
    /// within twice the time that a burst takes, whatever it was charged and by whichever agent.
    pub fn refill(&mut self, budget: &IoBudget, now: Timestamp) {
        let burst = burst_bytes(budget);
        let elapsed_ns = now.as_nanosecond() - self.refilled_at.as_nanosecond();
        let rate = i128::from(budget.rate.bytes_per_second().max(1));
        let arrived = elapsed_ns.max(0).saturating_mul(rate) / 1_000_000_000;
        let tokens = i128::from(self.tokens_bytes.max(-burst)) + arrived;
        if elapsed_ns < 0 || tokens >= i128::from(burst) {
            self.refilled_at = now;
        } else {
            // Only the time that brought whole bytes is used up: short steps lose nothing.
            let used_ns = arrived.saturating_mul(1_000_000_000) / rate;
            let refilled = Timestamp::from_nanosecond(self.refilled_at.as_nanosecond() + used_ns);
            self.refilled_at = refilled.unwrap_or(now);
        }
        self.tokens_bytes = i64::try_from(tokens.min(i128::from(burst))).unwrap_or(burst);
    }

    /// Takes bytes out, also more than there are: what was rewritten has been rewritten.
    pub fn spend(&mut self, bytes: u64) {
        self.tokens_bytes = self.tokens_bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Bytes that may be rewritten now.
    pub fn available_bytes(&self) -> u64 {
        u64::try_from(self.tokens_bytes).unwrap_or(0)
    }
}

fn burst_bytes(budget: &IoBudget) -> i64 {
    i64::try_from(budget.burst.bytes()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::policy::{ByteRate, ByteSize};
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn budget(rate: u64, burst: u64) -> IoBudget {
        IoBudget { rate: ByteRate::from_bytes_per_second(rate), burst: ByteSize::from_bytes(burst) }
    }

    #[test]
    fn a_bucket_fills_spends_and_owes() {
        let budget = budget(10, 100);
        let mut bucket = BudgetBucket::full(&budget, at("2026-11-20T00:00:00Z"));
        assert_eq!(bucket.available_bytes(), 100);
        bucket.spend(130);
        assert_eq!((bucket.available_bytes(), bucket.tokens_bytes), (0, -30));
        bucket.refill(&budget, at("2026-11-20T00:00:05Z"));
        assert_eq!(bucket.available_bytes(), 20);
        bucket.refill(&budget, at("2026-11-19T00:00:00Z"));
        assert_eq!(bucket.available_bytes(), 20);
        bucket.refill(&budget, at("2026-11-20T00:00:00Z"));
        assert_eq!(bucket.available_bytes(), 100);
    }

    #[test]
    fn a_debt_that_no_compaction_made_is_forgiven() {
        let budget = budget(10, 100);
        let mut bucket = BudgetBucket::full(&budget, at("2026-11-20T00:00:00Z"));
        bucket.spend(1 << 63);
        bucket.refill(&budget, at("2026-11-20T00:00:00Z"));
        assert_eq!(bucket.tokens_bytes, -100);
        bucket.refill(&budget, at("2026-11-20T00:00:20Z"));
        assert_eq!(bucket.available_bytes(), 100);
    }

    proptest! {
        #[test]
        fn many_short_refills_bring_what_one_long_one_does(
            rate in 1u64..1_000_000_000_000,
            steps_ns in proptest::collection::vec(0i128..5_000_000_000, 0..40),
        ) {
            let budget = budget(rate, u64::MAX >> 2);
            let start = at("2026-11-20T00:00:00Z");
            let mut stepwise = BudgetBucket { tokens_bytes: 0, refilled_at: start };
            let mut now = start;
            for step in steps_ns {
                now = Timestamp::from_nanosecond(now.as_nanosecond() + step).unwrap();
                stepwise.refill(&budget, now);
            }
            let mut at_once = BudgetBucket { tokens_bytes: 0, refilled_at: start };
            at_once.refill(&budget, now);
            // Rounding down the time used can bring one nanosecond's bytes early, never lose any.
            let difference = stepwise.tokens_bytes - at_once.tokens_bytes;
            let early = 41 * (1 + i64::try_from(rate / 1_000_000_000).unwrap());
            prop_assert!((0..=early).contains(&difference), "{}", difference);
        }

        #[test]
        fn a_bucket_never_holds_more_than_its_burst(tokens: i64, rate: u64, burst: u64, from: i32, to: i32) {
            let budget = budget(rate, burst);
            let moment = |second: i32| Timestamp::from_second(i64::from(second)).unwrap();
            let mut bucket = BudgetBucket { tokens_bytes: tokens, refilled_at: moment(from) };
            bucket.refill(&budget, moment(to));
            prop_assert!(bucket.available_bytes() <= burst);
        }
    }
}
