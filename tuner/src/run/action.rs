//! An action and all that is known of it.

use super::claim::Claim;
use super::event::{ReadingsKind, Wanted};
use super::identity::{ActionId, DeviceId, Place, ProcessId};
use super::kind::ActionKind;
use super::moment::Moment;
use super::outcome::Outcome;
use super::state::{ActionState, Phase, SettingFailure};
use serde::{Deserialize, Serialize};

/// An action and all that is known of it. It is stored as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Its number.
    pub id: ActionId,
    /// What it does.
    pub kind: ActionKind,
    /// The process it is done to.
    pub process: ProcessId,
    /// The keys it is done to; `None` where these are none of a database.
    #[serde(default)]
    pub place: Option<Place>,
    /// The block device of the database.
    #[serde(default)]
    pub device: Option<DeviceId>,
    /// What it promises; `None` where nothing is measured afterwards.
    #[serde(default)]
    pub claim: Option<Claim>,
    /// When it began.
    pub started: Moment,
    /// Where it is in its life.
    pub state: ActionState,
    /// How often guards have stopped it.
    #[serde(default)]
    pub pauses: u32,
    /// Why a setting could not be changed, where it has not been since.
    #[serde(default)]
    pub failure: Option<SettingFailure>,
    /// Bytes that its parts have written so far and that are in no file.
    #[serde(default)]
    pub bytes_transient: u64,
}

impl Action {
    /// How often in a row a setting could not be changed.
    pub fn failures(&self) -> u32 {
        self.failure.as_ref().map_or(0, |failure| failure.retry.failures_in_a_row)
    }

    /// Whether a measurement of what came of it is owed.
    pub fn awaits_verification(&self) -> bool {
        self.claim.is_some() && matches!(&self.state, ActionState::Done(end) if end.outcome == Outcome::Done)
    }

    /// Bytes that it may still write or has written and not paid for yet.
    pub fn reserved_bytes(&self) -> u64 {
        if self.state.is_open() { self.kind.cost_bytes().saturating_add(self.bytes_transient) } else { 0 }
    }
}

impl Action {
    /// What it waits for.
    pub fn wanted(&self, now: Moment) -> Wanted {
        match &self.state {
            ActionState::Planned | ActionState::Done(_) | ActionState::Verified { .. } => Wanted::default(),
            ActionState::Running(running) => {
                let is_working = running.phase == Phase::Working;
                let is_guarded =
                    is_working && running.can_stop && matches!(self.kind, ActionKind::Compact(_));
                let readings = is_guarded.then_some(ReadingsKind::During);
                Wanted { job: is_working, readings, wake: Some(super::running::wake(running)) }
            }
            ActionState::Paused(paused) => {
                let readings = (!paused.is_reading_files).then_some(ReadingsKind::Before);
                Wanted { job: false, readings, wake: Some(super::paused::wake(paused)) }
            }
            ActionState::Retrying(_) => {
                Wanted { wake: Some(super::retrying::wake(self, now)), ..Wanted::default() }
            }
            ActionState::InDoubt(doubt) => {
                Wanted { job: true, readings: None, wake: Some(super::doubt::wake(doubt)) }
            }
        }
    }

    /// Whether a window now could show what it came to: reason enough to open one.
    pub fn wants_window(&self, now: Moment) -> bool {
        match &self.state {
            ActionState::Done(end) => super::verifying::is_due(self, end, now),
            _ => false,
        }
    }
}
