//! Throttles: what is known of them, over restarts of the agent, and the one action that all tries of a
//! throttle belong to for as long as it fails. An action and what is known are written whole. Beside them the
//! budgets.

use super::action_log::Journal;
use super::batch::{Batch, Kind};
use super::clock;
use super::event::EventKind;
use serde::{Deserialize, Serialize};
use sexton_tuner::daily::DailyBytes;
use sexton_tuner::run::{ActionId, ActionState, End, Outcome, ProcessId, Retrying, SettingFailure};
use sexton_tuner::schedule::BudgetBucket;
use sexton_tuner::throttle::{BACK_OFF, KnownThrottles, ThrottleState};
use std::time::Duration;

/// Throttles remembered; a target has some ten, a node some dozen targets.
const THROTTLES_STORED_MAX: usize = 1_000;

/// Name of the record with the I/O budget.
const BUDGET: &str = "io_budget";

/// Name of the record with the bytes of the last day.
const DAILY: &str = "daily_bytes";

/// A throttle of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleKey {
    pub process: ProcessId,
    pub target: String,
    pub name: String,
}

/// What is known of a throttle, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ThrottleRecord {
    #[serde(flatten)]
    key: ThrottleKey,
    #[serde(flatten)]
    state: ThrottleState,
}

impl Journal {
    /// What earlier runs knew of throttles of processes that still live. The records of the others are
    /// deleted.
    pub fn throttles(&mut self) -> KnownThrottles {
        let records: Vec<(String, ThrottleRecord)> =
            self.events.state().last(Kind::Throttle, THROTTLES_STORED_MAX);
        let is_alive = self.is_alive;
        let (alive, ended): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|(_, throttle)| is_alive(&throttle.key.process));
        let mut batch = Batch::default();
        ended.iter().for_each(|(name, _)| batch.delete(Kind::Throttle, name));
        self.events.append(batch);
        let known = |(_, ThrottleRecord { key, state }): (_, ThrottleRecord)| ((key.target, key.name), state);
        alive.into_iter().map(known).collect()
    }

    /// Writes what is known of a throttle.
    pub fn keep_throttle(&mut self, key: &ThrottleKey, state: &ThrottleState) {
        self.events.append(batch_of_throttle(key, state));
    }

    /// Writes that a try has failed, as part of the action that `state` names. `is_news`: an event is
    /// emitted.
    pub fn fail_throttle(&mut self, key: &ThrottleKey, state: &ThrottleState, is_news: bool) {
        let batch = batch_of_throttle(key, state);
        let Some(failure) = &state.failure else { return self.events.append(batch) };
        let id = ActionId(failure.action_id);
        let failures_in_a_row = failure.retry.failures_in_a_row;
        let seconds = failure.retry.seconds_left(BACK_OFF, jiff::Timestamp::now());
        let reason =
            format!("{}; failed {failures_in_a_row} times, tried again after {seconds} s", failure.reason);
        self.change_with(batch, id, |action| {
            action.failure = Some(SettingFailure { retry: failure.retry, reason });
            action.state = ActionState::Retrying(Retrying { time_limit: Duration::ZERO });
        });
        if let Some(action) = self.action(id).filter(|_| is_news) {
            let (subject, reason) = (self.subject(action), failure.reason.clone());
            self.events.emit(EventKind::ThrottleFailed { subject, failures_in_a_row, reason });
        }
    }

    /// Ends the action of a throttle; `message` is what came of it.
    pub fn end_throttle(
        &mut self,
        key: &ThrottleKey,
        known: &ThrottleState,
        id: ActionId,
        (outcome, message): (Outcome, String),
        duration_seconds: f64,
    ) {
        if let Some(entry) = self.actions.iter_mut().find(|entry| entry.action.id == id) {
            entry.is_earlier = false;
        }
        self.change_with(batch_of_throttle(key, known), id, |action| {
            let message = match action.failures() {
                0 => message,
                failures => format!("{message}, after {failures} failures"),
            };
            let end = End::new(clock::now(), outcome, message);
            action.state = ActionState::Done(End { duration_seconds, ..end });
        });
    }

    /// The I/O budget that an earlier run has left.
    pub fn budget(&self) -> Option<BudgetBucket> {
        self.events.state().get(Kind::Agent, BUDGET)
    }

    /// Writes what is left of the I/O budget.
    pub fn keep_budget(&mut self, bucket: &BudgetBucket) {
        let mut batch = Batch::default();
        batch.put(Kind::Agent, BUDGET, bucket);
        self.events.append(batch);
    }

    /// The bytes that earlier runs have rewritten in the last day.
    pub fn daily(&self) -> DailyBytes {
        let kept: DailyBytes = self.events.state().get(Kind::Agent, DAILY).unwrap_or_default();
        kept.believable(jiff::Timestamp::now())
    }

    /// Writes the bytes of the last day.
    pub fn keep_daily(&mut self, daily: &DailyBytes) {
        let mut batch = Batch::default();
        batch.put(Kind::Agent, DAILY, daily);
        self.events.append(batch);
    }
}

fn batch_of_throttle(key: &ThrottleKey, state: &ThrottleState) -> Batch {
    let record = ThrottleRecord { key: key.clone(), state: state.clone() };
    let mut batch = Batch::default();
    batch.put(Kind::Throttle, &format!("{}/{}", key.target, key.name), &record);
    batch
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_throttle_is_read_and_written_as_the_first_release_did() {
        let text = r#"{"process":{"pid":7,"start_time_ticks":9},"target":"java-7","name":"deletion","value":"slow",
            "read_unix_s":5,"failure":null}"#;
        let record: ThrottleRecord = serde_json::from_str(text).unwrap();
        assert_eq!((record.key.target.as_str(), record.key.process.pid), ("java-7", 7));
        assert_eq!((record.state.value.as_deref(), record.state.read_unix_s), (Some("slow"), Some(5)));
        assert_eq!(serde_json::to_value(&record).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }
}
