//! What was done and what came of it: the list the API shows, and the checks that are still owed.

use crate::snapshot::{ACTIONS_KEPT_MAX, ActionView};
use sexton_tuner::range::KeyRange;
use sexton_tuner::rank::RangeAssessment;
use std::collections::VecDeque;
use std::path::PathBuf;

/// Windows that an action is waited for to be verified: without readers there is nothing to measure.
const VERIFY_WINDOWS_MAX: u32 = 12;

/// An action whose effect is still to be measured.
#[derive(Clone, Debug)]
pub struct Owed {
    /// The action.
    pub id: u64,
    /// Target's name.
    pub target: String,
    /// Database directory.
    pub database: PathBuf,
    /// Column family.
    pub column_family: String,
    /// Keys that were compacted.
    pub range: KeyRange,
    /// What the range was like before.
    pub before: RangeAssessment,
    /// Relief that was promised, seconds per second.
    pub relief_promised: f64,
    /// Windows that have passed without anything to measure.
    pub windows_waited: u32,
}

/// Actions, newest first, and what is owed.
#[derive(Debug, Default)]
pub struct History {
    actions: VecDeque<ActionView>,
    owed: Vec<Owed>,
    ids_given: u64,
}

impl History {
    /// Takes an action in; the oldest is forgotten beyond a limit. Gives the id it got.
    pub fn begin(&mut self, action: ActionView) -> u64 {
        self.ids_given += 1;
        self.actions.push_front(ActionView { id: self.ids_given, ..action });
        self.actions.truncate(ACTIONS_KEPT_MAX);
        self.ids_given
    }

    /// Changes an action that is still remembered.
    pub fn update(&mut self, id: u64, change: impl FnOnce(&mut ActionView)) {
        if let Some(action) = self.actions.iter_mut().find(|action| action.id == id) {
            change(action);
        }
    }

    /// Promises a measurement.
    pub fn owe(&mut self, owed: Owed) {
        self.owed.push(owed);
    }

    /// Whether a measurement is owed for a target: reason enough for a window.
    pub fn owes(&self, target: &str) -> bool {
        self.owed.iter().any(|owed| owed.target == target)
    }

    /// Hands out the measurements owed for a target that has just had a window. Those that cannot be made
    /// yet come back through [`History::postpone`].
    pub fn due(&mut self, target: &str) -> Vec<Owed> {
        let (due, rest) = std::mem::take(&mut self.owed).into_iter().partition(|owed| owed.target == target);
        self.owed = rest;
        due
    }

    /// Keeps a measurement for a later window; `false` when it has waited long enough.
    pub fn postpone(&mut self, owed: Owed) -> bool {
        let again = owed.windows_waited < VERIFY_WINDOWS_MAX;
        if again {
            self.owed.push(Owed { windows_waited: owed.windows_waited + 1, ..owed });
        }
        again
    }

    /// Forgets what is owed for a target that has gone.
    pub fn forget(&mut self, target: &str) {
        self.owed.retain(|owed| owed.target != target);
    }

    /// All actions remembered, newest first.
    pub fn actions(&self) -> Vec<ActionView> {
        self.actions.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_actions_are_kept() {
        let mut history = History::default();
        for _ in 0..ACTIONS_KEPT_MAX + 10 {
            history.begin(ActionView::default());
        }
        let actions = history.actions();
        assert_eq!(actions.len(), ACTIONS_KEPT_MAX);
        assert_eq!(actions.first().map(|action| action.id), Some(ACTIONS_KEPT_MAX as u64 + 10));
    }
}
