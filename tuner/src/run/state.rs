//! Where an action is in its life.

use super::identity::JobId;
use super::moment::Moment;
use super::outcome::{End, Outcome, Verification};
use crate::back_off::Retry;
use crate::guard::GuardRefusal;
use crate::range::KeyRange;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// Where an action is in its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ActionState {
    /// Nothing of it is written down, and nothing has been done.
    Planned,
    /// It is written down that it begins.
    Running(Running),
    /// A guard has stopped it for now.
    Paused(Paused),
    /// A setting could not be changed, and is tried again.
    Retrying(Retrying),
    /// An earlier run of the agent ended while it was under way.
    InDoubt(InDoubt),
    /// It has ended.
    Done(End),
    /// It has ended, and what came of it was measured.
    Verified {
        /// Its end.
        end: End,
        /// What the windows after it have shown.
        verification: Verification,
    },
}

impl ActionState {
    /// Name, as in the API. An action that is paused or in doubt is running there.
    pub fn name(&self) -> &'static str {
        match self {
            ActionState::Planned => "planned",
            ActionState::Running(_) | ActionState::Paused(_) | ActionState::InDoubt(_) => "running",
            ActionState::Retrying(_) => "failing",
            ActionState::Done(end) => end.outcome.name(),
            ActionState::Verified { verification, .. } if verification.helped => "helped",
            ActionState::Verified { .. } => "did_not_help",
        }
    }

    /// Its end, if it has ended.
    pub fn end(&self) -> Option<&End> {
        match self {
            ActionState::Done(end) | ActionState::Verified { end, .. } => Some(end),
            _ => None,
        }
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        self.end().map(|end| end.outcome)
    }

    /// What the windows after it have shown, if they have.
    pub fn verification(&self) -> Option<&Verification> {
        match self {
            ActionState::Verified { verification, .. } => Some(verification),
            _ => None,
        }
    }

    /// Whether it has begun and has no end yet.
    pub fn is_open(&self) -> bool {
        !matches!(self, ActionState::Planned) && self.end().is_none()
    }
}

/// An action that runs, one part after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// The part that runs.
    pub part: KeyRange,
    /// Parts after it.
    #[serde(default)]
    pub left: VecDeque<KeyRange>,
    /// How far the part is.
    pub phase: Phase,
    /// Since when.
    pub since: Moment,
    /// The job, once its executor has given it a number.
    #[serde(default)]
    pub job: Option<JobId>,
    /// Whether the job can be stopped. Guards are not asked about one that cannot.
    #[serde(default)]
    pub can_stop: bool,
    /// How long one part may take.
    pub time_limit: Duration,
    /// Why and since when the job is to stop.
    #[serde(default)]
    pub stop: Option<Stop>,
}

/// How far a part of an action is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is being written down that the action begins.
    WritingAhead {
        /// Whether somebody else has done its work already.
        nothing_left: bool,
    },
    /// The executor works on it.
    Working,
    /// All is over, this is how, and what has changed is being measured.
    Measuring(Box<End>),
}

/// A job that is to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// Why.
    pub reason: StopReason,
    /// Since when.
    pub since: Moment,
    /// When the executor was told last.
    pub told: Moment,
}

/// Why a job is to stop, which decides what comes after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// A guard objects: it goes on later.
    Pause(GuardRefusal),
    /// A guard objects for the second time: it goes on in halves.
    Halve(GuardRefusal),
    /// A guard objects too often, or gravely.
    Abort(GuardRefusal),
    /// Somebody asked for it, or its time is over; in words.
    Cancel(String),
}

/// An action between two parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paused {
    /// The part that was stopped, of which something is left.
    pub part: KeyRange,
    /// Parts after it.
    #[serde(default)]
    pub left: VecDeque<KeyRange>,
    /// Whether it goes on in halves.
    pub in_halves: bool,
    /// Who objects.
    pub objection: GuardRefusal,
    /// Since when.
    pub since: Moment,
    /// Whether nobody objects any more, and the live files are being read for what is left.
    #[serde(default)]
    pub is_reading_files: bool,
    /// How long one part may take.
    pub time_limit: Duration,
}

/// A change of a setting that waits for its next try; why it has failed stands in [`super::Action::failure`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retrying {
    /// How long a try may take.
    pub time_limit: Duration,
}

/// Why a setting could not be changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingFailure {
    /// How often it has failed, and when it is tried again.
    pub retry: Retry,
    /// Why it has failed the last time, in words.
    pub reason: String,
}

/// An action that was under way when an earlier run of the agent ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InDoubt {
    /// The job that does all that was left of it.
    pub job: JobId,
    /// Since when there was no answer.
    pub since: Moment,
}
