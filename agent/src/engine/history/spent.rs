//! What outlives the agent beside actions: the budget, the bytes of the day, and the throttles that are in force.

use super::History;
use crate::state::{Batch, Kind};
use crate::target::facts::ProcessId;
use crate::target::process::is_alive;
use serde::{Deserialize, Serialize};
use sexton_tuner::daily::DailyBytes;
use sexton_tuner::plan::ThrottlesInForce;
use sexton_tuner::schedule::BudgetBucket;

/// Throttles remembered; a target has some ten, a node some dozen targets.
const THROTTLES_STORED_MAX: usize = 1_000;

/// Name of the record with the I/O budget.
const BUDGET: &str = "io_budget";

/// Name of the record with the bytes of the last day.
const DAILY: &str = "daily_bytes";

/// A throttle that is in force in a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ThrottleRecord {
    process: ProcessId,
    target: String,
    name: String,
    value: String,
}

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
        self.chronicle.state().get(Kind::Agent, DAILY).unwrap_or_default()
    }

    /// Writes down the bytes of the last day.
    pub fn keep_daily(&mut self, daily: &DailyBytes) {
        let mut batch = Batch::default();
        batch.put(Kind::Agent, DAILY, daily);
        self.chronicle.record(batch);
    }

    /// Throttles that earlier runs have set in processes that still live; of the others the records go.
    pub fn throttles(&mut self) -> ThrottlesInForce {
        let records: Vec<(String, ThrottleRecord)> =
            self.chronicle.state().last(Kind::Throttle, THROTTLES_STORED_MAX);
        let (alive, ended): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|(_, throttle)| is_alive(&throttle.process));
        let mut batch = Batch::default();
        ended.iter().for_each(|(name, _)| batch.remove(Kind::Throttle, name));
        self.chronicle.record(batch);
        let in_force =
            |(_, throttle): (_, ThrottleRecord)| ((throttle.target, throttle.name), throttle.value);
        alive.into_iter().map(in_force).collect()
    }

    /// Writes down that a throttle is in force.
    pub fn keep_throttle(&mut self, process: ProcessId, target: &str, name: &str, value: &str) {
        let record = ThrottleRecord {
            process,
            target: target.to_owned(),
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let mut batch = Batch::default();
        batch.put(Kind::Throttle, &format!("{target}/{name}"), &record);
        self.chronicle.record(batch);
    }
}
