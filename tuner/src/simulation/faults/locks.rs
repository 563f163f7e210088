//! Locks that actions run under: some are not had, and some are lost while an action runs.

use crate::run::ActionId;
use crate::run::consent::{Answer, Consent};
use std::collections::BTreeMap;

/// The locks that actions have begun under, and whether each is held still.
#[derive(Debug, Default)]
pub struct Locks(BTreeMap<ActionId, bool>);

impl Locks {
    /// An action begins under its lock.
    pub fn take(&mut self, id: ActionId) {
        self.0.insert(id, true);
    }

    /// The lock of an action is lost; `false` where it had none.
    pub fn lose(&mut self, id: ActionId) -> bool {
        self.0.get_mut(&id).is_some_and(|is_held| std::mem::replace(is_held, false))
    }

    /// The agent is killed, and its commands with it.
    pub fn all_end(&mut self) {
        self.0.clear();
    }

    /// Whether an action has its lock.
    pub fn is_held(&self, id: ActionId) -> bool {
        self.0.get(&id) == Some(&true)
    }

    /// Whether an action has had its lock and has lost it.
    pub fn is_lost(&self, id: ActionId) -> bool {
        self.0.get(&id) == Some(&false)
    }

    /// What the command says of an action.
    pub fn consent(&self, id: ActionId) -> Consent {
        let hold = match self.is_lost(id) {
            true => Answer::Refused("it is lost".to_owned()),
            false => Answer::Given,
        };
        Consent { hold, ..Consent::default() }
    }
}
