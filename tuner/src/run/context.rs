//! What a step depends on, and what it gives.

use super::event::Effect;
use super::moment::Moment;
use super::state::ActionState;
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

/// Nothing changes.
pub(super) fn unchanged(state: ActionState) -> Next {
    (state, Vec::new())
}
