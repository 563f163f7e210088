//! The state machine: an action hears something, becomes something else, and has things to be done.
//!
//! One module a state: [`super::admit`], [`super::running`], [`super::paused`], [`super::retrying`],
//! [`super::doubt`], [`super::verifying`]; how an action ends is in [`super::ending`].

use super::action::Action;
use super::event::{Effect, Event, Input};
use super::moment::Moment;
use super::state::ActionState;
use super::{admit, doubt, paused, retrying, running, verifying};
use crate::policy::Policy;

/// What an action becomes, and what is to be done.
pub(super) type Next = (ActionState, Vec<Effect>);

/// Everything a step depends on but for the action and what has happened to it.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub now: Moment,
    pub policy: &'a Policy,
    pub available_bytes: u64,
}

/// Decides what becomes of an action. What cannot happen to it in its state changes nothing.
pub fn step(action: &mut Action, input: Input<'_>) -> Vec<Effect> {
    let Input { now, policy, available_bytes, event } = input;
    let context = Context { now, policy, available_bytes };
    let state = std::mem::replace(&mut action.state, ActionState::Planned);
    let (state, effects) = match (state, event) {
        (ActionState::Planned, Event::Admit(admission)) => admit::step(action, &admission, &context),
        (ActionState::Planned, _) => (ActionState::Planned, Vec::new()),
        (state, Event::AgentRestarted { is_alive }) => doubt::recover(action, state, is_alive, &context),
        (ActionState::Running(running), event) => running::step(action, running, event, &context),
        (ActionState::Paused(paused), event) => paused::step(action, paused, event, &context),
        (ActionState::Retrying(retrying), event) => retrying::step(action, retrying, &event, &context),
        (ActionState::InDoubt(doubt), event) => doubt::step(action, doubt, event, &context),
        (ActionState::Done(end), event) => verifying::step(action, end, &event, &context),
        (state @ ActionState::Verified { .. }, _) => (state, Vec::new()),
    };
    action.state = state;
    effects
}

/// Nothing changes.
pub(super) fn unchanged(state: ActionState) -> Next {
    (state, Vec::new())
}
