//! What outlives the agent beside actions and throttles: the budget and the bytes of the day.

use super::History;
use crate::state::{Batch, Kind};
use sexton_tuner::daily::DailyBytes;
use sexton_tuner::schedule::BudgetBucket;

/// Name of the record with the I/O budget.
const BUDGET: &str = "io_budget";

/// Name of the record with the bytes of the last day.
const DAILY: &str = "daily_bytes";

impl History {
    /// The I/O budget that an earlier run has left.
    pub fn budget(&self) -> Option<BudgetBucket> {
        self.chronicle.state().get(Kind::Agent, BUDGET)
    }

    /// Writes down what is left of the I/O budget.
    pub fn keep_budget(&mut self, bucket: &BudgetBucket) {
        let mut batch = Batch::default();
        batch.put(Kind::Agent, BUDGET, bucket);
        self.chronicle.record(batch);
    }

    /// The bytes that earlier runs have rewritten in the last day.
    pub fn daily(&self) -> DailyBytes {
        let kept: DailyBytes = self.chronicle.state().get(Kind::Agent, DAILY).unwrap_or_default();
        kept.believable(jiff::Timestamp::now())
    }

    /// Writes down the bytes of the last day.
    pub fn keep_daily(&mut self, daily: &DailyBytes) {
        let mut batch = Batch::default();
        batch.put(Kind::Agent, DAILY, daily);
        self.chronicle.record(batch);
    }
}
