//! Throttles: what is known of them, over restarts of the agent, and the one action that all tries of a throttle are told
//! under for as long as it fails. An action and what is known are written whole.

use super::{History, batch_of, subject};
use crate::audit::What;
use crate::snapshot::FAILING;
use crate::state::{Batch, Kind};
use serde::{Deserialize, Serialize};
use sexton_inspect::facts::ProcessId;
use sexton_inspect::process::is_alive;
use sexton_tuner::throttle::{BACK_OFF, KnownThrottles, ThrottleState};

/// Throttles remembered; a target has some ten, a node some dozen targets.
const THROTTLES_STORED_MAX: usize = 1_000;

/// A throttle of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottleKey {
    /// The process.
    pub process: ProcessId,
    /// Target's name.
    pub target: String,
    /// The throttle's.
    pub name: String,
}

/// What is known of a throttle, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ThrottleRecord {
    process: ProcessId,
    target: String,
    name: String,
    #[serde(flatten)]
    state: ThrottleState,
}

impl History {
    /// What earlier runs knew of throttles of processes that still live; of the others the records go.
    pub fn throttles(&mut self) -> KnownThrottles {
        let records: Vec<(String, ThrottleRecord)> =
            self.chronicle.state().last(Kind::Throttle, THROTTLES_STORED_MAX);
        let (alive, ended): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|(_, throttle)| is_alive(&throttle.process));
        let mut batch = Batch::default();
        ended.iter().for_each(|(name, _)| batch.remove(Kind::Throttle, name));
        self.chronicle.record(batch);
        let known = |(_, throttle): (_, ThrottleRecord)| ((throttle.target, throttle.name), throttle.state);
        alive.into_iter().map(known).collect()
    }

    /// Writes down what is known of a throttle.
    pub fn keep_throttle(&mut self, key: &ThrottleKey, state: &ThrottleState) {
        self.chronicle.record(batch_of_throttle(key, state));
    }

    /// Writes down that a try has failed, as part of the action that `state` names. `is_news`: it is told.
    pub fn fail_throttle(&mut self, key: &ThrottleKey, state: &ThrottleState, is_news: bool) {
        let mut batch = batch_of_throttle(key, state);
        let Some(failure) = &state.failure else { return self.chronicle.record(batch) };
        let Some(record) = self.record_mut(failure.action_id) else { return self.chronicle.record(batch) };
        let failures = failure.retry.failures_in_a_row;
        let seconds = failure.retry.seconds_left(BACK_OFF, jiff::Timestamp::now());
        record.view.state = FAILING.into();
        record.view.failures = failures;
        record.view.outcome =
            format!("{}; failed {failures} times, tried again after {seconds} s", failure.reason);
        let reason = failure.reason.clone();
        let what =
            What::ThrottleFailed { subject: subject(&record.view), failures_in_a_row: failures, reason };
        batch.append(batch_of(record));
        if is_news { self.chronicle.tell_with(batch, what) } else { self.chronicle.record(batch) }
    }

    /// Ends the action of a throttle.
    pub fn end_throttle(
        &mut self,
        key: &ThrottleKey,
        known: &ThrottleState,
        id: u64,
        end: (&str, String),
        duration_seconds: f64,
    ) {
        let (state, outcome) = end;
        self.end_with(batch_of_throttle(key, known), id, false, |action| {
            action.is_earlier = false;
            action.state = state.to_owned();
            action.outcome = match action.failures {
                0 => outcome,
                failures => format!("{outcome}, after {failures} failures"),
            };
            action.duration_seconds = duration_seconds;
        });
    }

    /// Whether the action can still be gone on with.
    pub fn is_open(&self, id: u64) -> bool {
        self.find(id).is_some_and(|view| view.ended_at.is_none())
    }
}

fn batch_of_throttle(key: &ThrottleKey, state: &ThrottleState) -> Batch {
    let record = ThrottleRecord {
        process: key.process,
        target: key.target.clone(),
        name: key.name.clone(),
        state: state.clone(),
    };
    let mut batch = Batch::default();
    batch.put(Kind::Throttle, &format!("{}/{}", key.target, key.name), &record);
    batch
}
