//! Counts of actions since the agent's start, by target. They are counted where an action changes its state:
//! a counter never falls, whatever is forgotten or no longer shown.

use serde::{Deserialize, Serialize};
use sexton_tuner::run::{Action, ActionState, Outcome};
use std::collections::BTreeMap;

/// Targets that are counted apart. Names hold a pid, so they grow in number as targets are restarted.
const TARGETS_MAX: usize = 256;

/// Stands for all targets beyond [`TARGETS_MAX`].
const OTHER_TARGETS: &str = "other";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActionCounts {
    pub done: u64,
    pub skipped: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub stopped: u64,
    pub interrupted: u64,
    pub helped: u64,
    pub did_not_help: u64,
    /// Actions that have begun and have no end yet, but for those in `failing`.
    pub running: u64,
    /// Settings that could not be changed, and are tried again.
    pub failing: u64,
    /// Bytes of the files that ended actions replaced.
    pub bytes_rewritten: u64,
    /// How often guards paused actions.
    pub pauses: u64,
    /// What verified actions promised to relieve, seconds per second, summed.
    pub relief_promised: f64,
    pub relief_delivered: f64,
}

impl ActionCounts {
    /// How many actions have reached each state, by the state's name.
    pub fn by_state(&self) -> [(&'static str, u64); 8] {
        [
            ("done", self.done),
            ("skipped", self.skipped),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
            ("stopped", self.stopped),
            ("interrupted", self.interrupted),
            ("helped", self.helped),
            ("did_not_help", self.did_not_help),
        ]
    }

    fn count(&mut self, action: &Action) {
        match &action.state {
            ActionState::Done(end) => {
                *match end.outcome {
                    Outcome::Done => &mut self.done,
                    Outcome::Skipped => &mut self.skipped,
                    Outcome::Failed => &mut self.failed,
                    Outcome::Cancelled => &mut self.cancelled,
                    Outcome::Aborted(_) => &mut self.stopped,
                    Outcome::Interrupted => &mut self.interrupted,
                } += 1;
                self.bytes_rewritten = self.bytes_rewritten.saturating_add(end.bytes_rewritten);
            }
            ActionState::Verified { verification, .. } => {
                *if verification.helped { &mut self.helped } else { &mut self.did_not_help } += 1;
                let promised = action.claim.as_ref().map(|claim| claim.promised_seconds_per_second);
                self.relief_promised += promised.unwrap_or_default();
                self.relief_delivered += verification.delivered_seconds_per_second;
            }
            ActionState::Paused(_) => self.pauses += 1,
            ActionState::Planned
            | ActionState::Running(_)
            | ActionState::Retrying(_)
            | ActionState::InDoubt(_) => {}
        }
    }
}

#[derive(Debug, Default)]
pub struct Counts(BTreeMap<String, ActionCounts>);

impl Counts {
    /// An action has just changed to the state that it is in.
    pub fn count(&mut self, action: &Action) {
        let target = action.kind.target();
        let is_known = self.0.len() < TARGETS_MAX || self.0.contains_key(target);
        let name = if is_known { target } else { OTHER_TARGETS };
        self.0.entry(name.to_owned()).or_default().count(action);
    }

    pub fn by_target(&self) -> &BTreeMap<String, ActionCounts> {
        &self.0
    }
}
