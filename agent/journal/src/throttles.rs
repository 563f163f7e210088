//! What is known of throttles, over restarts of the agent: the values in force. Failures are the actions'.

use super::action_log::Journal;
use super::batch::{Batch, Kind};
use super::state::State;
use serde::{Deserialize, Serialize};
use sexton_tuner::run::{Action, ActionKind, ActionState, ProcessId, SettingChange, SettingFailure};
use sexton_tuner::throttle::{KnownThrottles, ThrottleState};

/// Throttles remembered; a target has some ten, a node some dozen targets.
const THROTTLES_STORED_MAX: usize = 1_000;

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
    pub fn throttles(&mut self, is_alive: impl Fn(&ProcessId) -> bool) -> KnownThrottles {
        let (alive, ended): (Vec<_>, Vec<_>) =
            read(self.events.state()).into_iter().partition(|(_, throttle)| is_alive(&throttle.key.process));
        let mut batch = Batch::default();
        ended.iter().for_each(|(name, _)| batch.delete(Kind::Throttle, name));
        self.events.append(batch);
        let known = |(_, ThrottleRecord { key, state }): (_, ThrottleRecord)| {
            ((key.target, key.name), ThrottleState { failure: None, ..state })
        };
        alive.into_iter().map(known).collect()
    }

    /// Writes what is known of a throttle.
    pub fn keep_throttle(&mut self, key: &ThrottleKey, state: &ThrottleState) {
        let record = ThrottleRecord { key: key.clone(), state: state.clone() };
        let mut batch = Batch::default();
        batch.put(Kind::Throttle, &format!("{}/{}", key.target, key.name), &record);
        self.events.append(batch);
    }
}

fn read(state: &State) -> Vec<(String, ThrottleRecord)> {
    state.last(Kind::Throttle, THROTTLES_STORED_MAX)
}

/// The first release kept why an action's throttle could not be set, by which command, and when it is tried
/// again, with the throttle.
pub fn fill_in_failures(state: &State, actions: &mut [Action]) {
    for (_, throttle) in read(state) {
        let Some(failure) = throttle.state.failure else { continue };
        let mut open = actions.iter_mut().filter(|action| matches!(action.state, ActionState::Retrying(_)));
        let Some(action) = open.find(|action| action.id.0 == failure.action_id) else { continue };
        action.failure = Some(SettingFailure { retry: failure.retry, reason: failure.reason });
        if let ActionKind::ChangeSetting(SettingChange::Throttle(set)) = &mut action.kind {
            (set.command, set.get) = (failure.command, failure.get);
        }
    }
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
