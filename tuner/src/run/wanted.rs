//! What an action waits for.

use super::action::Action;
use super::kind::ActionKind;
use super::moment::Moment;
use super::state::{ActionState, Phase};
use super::{doubt, paused, retrying, running, verifying};

/// What an action waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// How its job stands.
    pub job: bool,
    /// What can be read of its target, and when: `None` now is never.
    pub readings: Option<ReadingsKind>,
    /// When it has to hear that time has passed, at the latest.
    pub wake: Option<Moment>,
}

/// Which readings are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingsKind {
    /// As before an action.
    Before,
    /// As while one runs, with latencies.
    During,
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
                Wanted { job: is_working, readings, wake: Some(running::wake(running)) }
            }
            ActionState::Paused(paused) => {
                let readings = (!paused.is_reading_files).then_some(ReadingsKind::Before);
                Wanted { job: false, readings, wake: Some(paused::wake(paused)) }
            }
            ActionState::Retrying(_) => Wanted { wake: Some(retrying::wake(self, now)), ..Wanted::default() },
            ActionState::InDoubt(doubt) => {
                Wanted { job: true, readings: None, wake: Some(doubt::wake(doubt)) }
            }
        }
    }

    /// Whether a window now could show what it came to: reason enough to open one.
    pub fn wants_window(&self, now: Moment) -> bool {
        match &self.state {
            ActionState::Done(end) => verifying::is_due(self, end, now),
            _ => false,
        }
    }
}
