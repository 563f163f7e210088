//! What may be written: the I/O budget, kept by a clock that nobody can set.

use super::moment::Moment;
use crate::bucket::BudgetBucket;
use crate::policy::IoBudget;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// The I/O budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    #[serde(flatten)]
    bucket: BudgetBucket,
    /// The moment of the bucket's last refill; `None` in what an older agent has left.
    #[serde(default)]
    refilled: Option<Moment>,
}

impl Budget {
    /// A budget starts full: an agent that comes back should not have to save up first.
    pub fn full(budget: &IoBudget, now: Moment) -> Budget {
        Budget { bucket: BudgetBucket::full(budget, now.at), refilled: Some(now) }
    }

    /// Lets bytes come in at the budget's rate since the last time, up to its burst.
    pub fn refill(&mut self, budget: &IoBudget, now: Moment) {
        let before = self.bucket.refilled_at;
        let refilled = self.refilled.unwrap_or(Moment::of_wall_clock(before));
        let elapsed = SignedDuration::try_from(now.since(&refilled)).unwrap_or(SignedDuration::MAX);
        let later = before.saturating_add(elapsed).unwrap_or(before);
        self.bucket.refill(budget, later);
        let used = self.bucket.refilled_at.duration_since(before);
        let used = std::time::Duration::try_from(used).unwrap_or_default();
        // From here on it goes by this boot's clock; a part of a byte that had come in by another one is
        // lost.
        self.refilled = Some(if refilled.is_same_boot(&now) { refilled.plus(used) } else { now });
    }

    /// Takes bytes out, also more than there are: what was written has been written.
    pub fn spend(&mut self, bytes: u64) {
        self.bucket.spend(bytes);
    }

    /// Bytes that may be written now.
    pub fn available_bytes(&self) -> u64 {
        self.bucket.available_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::policy::{ByteRate, ByteSize};

    const IO: IoBudget =
        IoBudget { rate: ByteRate::from_bytes_per_second(10), burst: ByteSize::from_bytes(1_000) };

    fn moment(wall_s: i64, since_boot_s: u64) -> Moment {
        let at = jiff::Timestamp::from_second(wall_s).unwrap();
        Moment { at, boot: 7, since_boot_ns: since_boot_s * 1_000_000_000 }
    }

    #[test]
    fn a_clock_that_is_set_ahead_brings_no_bytes() {
        let mut budget = Budget::full(&IO, moment(1_000, 100));
        budget.spend(1_000);
        budget.refill(&IO, moment(1_000_000, 103));
        assert_eq!(budget.available_bytes(), 30);
        budget.refill(&IO, moment(5, 110));
        assert_eq!(budget.available_bytes(), 100);
    }

    #[test]
    fn what_an_older_agent_has_left_goes_by_the_wall_clock() {
        let old = r#"{"tokens_bytes":100,"refilled_at":"1970-01-01T00:16:40Z"}"#;
        let mut budget: Budget = serde_json::from_str(old).unwrap();
        budget.refill(&IO, moment(1_007, 100));
        assert_eq!(budget.available_bytes(), 170);
        budget.refill(&IO, moment(1_000_000, 101));
        assert_eq!(budget.available_bytes(), 180);
    }
}
