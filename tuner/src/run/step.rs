//! The state machine: an action hears something, becomes something else, and has things to be done.
//!
//! One module a state: [`super::admit`], [`super::running`], [`super::paused`], [`super::retrying`],
//! [`super::doubt`], [`super::verifying`]; how an action ends is in [`super::ending`].

use super::action::Action;
use super::context::Context;
use super::event::{Effect, Event, Input};
use super::state::ActionState;
use super::{admit, doubt, paused, retrying, running, verifying};

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
