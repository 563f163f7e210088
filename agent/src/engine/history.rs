//! What was done and what came of it: the list the API shows, and the checks that are still owed.

use crate::snapshot::{ACTIONS_KEPT_MAX, ActionView};
use sexton_tuner::rank::RangeAssessment;
use std::collections::VecDeque;

/// Windows that an action is waited for to be verified: without readers there is nothing to measure.
const VERIFY_WINDOWS_MAX: u32 = 12;

/// An action whose effect is still to be measured.
#[derive(Clone, Debug)]
pub struct Owed {
    /// The action.
    pub id: u64,
    /// Which range it was, what it was like before, and the relief that was promised.
    pub before: RangeAssessment,
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
        self.owed.iter().any(|owed| owed.before.target == target)
    }

    /// Hands out the measurements owed for a target that has just had a window. Those that cannot be made
    /// yet come back through [`History::postpone`].
    pub fn due(&mut self, target: &str) -> Vec<Owed> {
        let (due, rest) =
            std::mem::take(&mut self.owed).into_iter().partition(|owed| owed.before.target == target);
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
        self.owed.retain(|owed| owed.before.target != target);
    }

    /// All actions remembered, newest first.
    pub fn actions(&self) -> Vec<ActionView> {
        self.actions.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
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

    #[test]
    fn a_measurement_is_not_owed_for_ever() {
        let before = serde_json::from_value(serde_json::json!({
            "target": "java-1", "database": "/db", "column_family": "default",
            "range": { "begin": "", "end": null }, "operations_per_second": 1.0, "tombstones_per_seek": 1.0,
            "memtable_tombstones_per_seek": 0.0, "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1,
            "deletions": 1, "density": 1.0, "pain_seconds_per_second": 1.0,
            "relief_seconds_per_second": 1.0, "cost_bytes": 1, "relief_per_byte": 1.0, "reason": ""
        }))
        .unwrap();
        let mut history = History::default();
        history.owe(Owed { id: 1, before, windows_waited: 0 });
        let mut windows = 0;
        while let Some(owed) = history.due("java-1").pop() {
            windows += 1;
            if !history.postpone(owed) {
                break;
            }
        }
        assert_eq!(windows, VERIFY_WINDOWS_MAX + 1);
        assert!(!history.owes("java-1"));
    }
}
