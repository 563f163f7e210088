//! Counts actions as they end: a snapshot shows only the latest, a counter must never fall.

use crate::snapshot::{ActionView, Snapshot};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// States that are counted: how an action ended, and what its verification found.
pub const STATES: [&str; 8] =
    ["done", "skipped", "failed", "cancelled", "stopped", "interrupted", "helped", "did_not_help"];

/// Targets that are counted apart; further ones go together under [`OTHER_TARGETS`]. Names hold a pid, so
/// they grow in number as targets are restarted.
pub const TARGETS_MAX: usize = 256;

/// Stands for all targets beyond [`TARGETS_MAX`].
pub const OTHER_TARGETS: &str = "other";

/// Counts since the agent's start.
#[derive(Debug, Default)]
pub struct Tally {
    by_target: BTreeMap<String, TargetTally>,
    /// What has been counted of the actions that the last snapshot showed.
    counted: BTreeMap<u64, Counted>,
}

/// Counts of one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetTally {
    /// Actions that reached each of [`STATES`], in that order.
    pub actions: [u64; STATES.len()],
    /// Bytes of the files that ended actions replaced.
    pub bytes_rewritten: u64,
    /// How often guards paused actions.
    pub pauses: u64,
    /// What verified actions promised to relieve, seconds per second, summed.
    pub relief_promised: f64,
    /// What they delivered.
    pub relief_delivered: f64,
}

#[derive(Debug, Default)]
struct Counted {
    states: [bool; STATES.len()],
    bytes: u64,
    pauses: u32,
    relief: bool,
}

impl Tally {
    /// Takes in what `snapshot` shows and has not been counted.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        self.counted.retain(|id, _| snapshot.actions.iter().any(|action| action.id == *id));
        // Those of earlier runs were counted then; verified now, they would count twice.
        for action in snapshot.actions.iter().filter(|action| !action.is_earlier) {
            if action.ended_at.is_some() || action.pauses > 0 {
                self.count(action);
            }
        }
    }

    /// Counts by target, in order of name.
    pub fn targets(&self) -> impl Iterator<Item = (&str, &TargetTally)> {
        self.by_target.iter().map(|(name, tally)| (name.as_str(), tally))
    }

    fn count(&mut self, action: &ActionView) {
        let name = match self.by_target.len() < TARGETS_MAX || self.by_target.contains_key(&action.target) {
            true => action.target.as_str(),
            false => OTHER_TARGETS,
        };
        let total = self.by_target.entry(name.to_owned()).or_default();
        let counted = self.counted.entry(action.id).or_default();
        // What was verified has been done before, even if no snapshot showed it in between.
        let verified = ["helped", "did_not_help"].contains(&action.state.as_str());
        for ((state, total), counted) in STATES.iter().zip(&mut total.actions).zip(&mut counted.states) {
            if !*counted && (action.state == *state || (verified && *state == "done")) {
                *counted = true;
                *total += 1;
            }
        }
        total.bytes_rewritten += action.bytes_rewritten.saturating_sub(counted.bytes);
        counted.bytes = counted.bytes.max(action.bytes_rewritten);
        total.pauses += u64::from(action.pauses.saturating_sub(counted.pauses));
        counted.pauses = counted.pauses.max(action.pauses);
        if let (Some(delivered), false) = (action.relief_delivered, counted.relief) {
            counted.relief = true;
            total.relief_promised += action.relief_promised;
            total.relief_delivered += delivered;
        }
    }
}

/// Counts every snapshot that is published, until the engine ends.
pub async fn keep(mut snapshots: watch::Receiver<Arc<Snapshot>>, tally: Arc<Mutex<Tally>>) {
    loop {
        let snapshot = Arc::clone(&snapshots.borrow_and_update());
        tally.lock().unwrap_or_else(PoisonError::into_inner).observe(&snapshot);
        if snapshots.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

    use super::*;

    fn action(id: u64, state: &str, bytes_rewritten: u64) -> ActionView {
        let ended_at = (state != "running").then(|| "2026-11-20T10:00:00Z".to_owned());
        let target = "ozone-om".to_owned();
        ActionView { id, target, state: state.to_owned(), ended_at, bytes_rewritten, ..ActionView::default() }
    }

    fn observe(tally: &mut Tally, actions: Vec<ActionView>) -> TargetTally {
        tally.observe(&Snapshot { actions, ..Snapshot::default() });
        tally.by_target.get("ozone-om").cloned().unwrap_or_default()
    }

    #[test]
    fn each_state_of_each_action_counts_once() {
        let mut tally = Tally::default();
        assert_eq!(observe(&mut tally, vec![action(1, "running", 10)]), TargetTally::default());
        let done =
            TargetTally { actions: [1, 0, 0, 0, 0, 0, 0, 0], bytes_rewritten: 30, ..TargetTally::default() };
        assert_eq!(observe(&mut tally, vec![action(1, "done", 30)]), done);
        assert_eq!(observe(&mut tally, vec![action(1, "done", 30)]), done);
        let helped = TargetTally { actions: [1, 0, 0, 0, 0, 0, 1, 0], ..done.clone() };
        assert_eq!(observe(&mut tally, vec![action(1, "helped", 30)]), helped);
        let more = vec![action(3, "failed", 5), action(2, "did_not_help", 7), action(1, "helped", 30)];
        let expected = TargetTally { actions: [2, 0, 1, 0, 0, 0, 1, 1], bytes_rewritten: 42, ..helped };
        assert_eq!(observe(&mut tally, more), expected);
        assert_eq!(observe(&mut tally, vec![]), expected, "a counter never falls");
        assert!(tally.counted.is_empty(), "what is no longer shown is forgotten");
    }

    #[test]
    fn what_ended_in_an_earlier_run_is_not_counted() {
        let mut tally = Tally::default();
        let earlier = ActionView { is_earlier: true, ..action(1, "done", 10) };
        let interrupted = TargetTally { actions: [0, 0, 0, 0, 0, 1, 0, 0], ..TargetTally::default() };
        assert_eq!(observe(&mut tally, vec![action(2, "interrupted", 0), earlier]), interrupted);
    }

    #[test]
    fn pauses_and_relief_count_once() {
        let mut tally = Tally::default();
        let paused = |pauses| ActionView { pauses, ..action(1, "running", 0) };
        assert_eq!(observe(&mut tally, vec![paused(1)]).pauses, 1);
        assert_eq!(observe(&mut tally, vec![paused(2)]).pauses, 2);
        let verified = ActionView {
            relief_promised: 0.5,
            relief_delivered: Some(0.25),
            pauses: 2,
            ..action(1, "helped", 0)
        };
        for _ in 0..2 {
            let tally = observe(&mut tally, vec![verified.clone()]);
            assert_eq!((tally.pauses, tally.relief_promised, tally.relief_delivered), (2, 0.5, 0.25));
        }
    }

    #[test]
    fn targets_are_bounded() {
        let mut tally = Tally::default();
        for id in 0..2 * TARGETS_MAX as u64 {
            let target = format!("java-{id}");
            let actions = vec![ActionView { target, ..action(id, "done", 1) }];
            tally.observe(&Snapshot { actions, ..Snapshot::default() });
        }
        assert_eq!(tally.targets().count(), TARGETS_MAX + 1);
        assert_eq!(tally.by_target[OTHER_TARGETS].actions[0], TARGETS_MAX as u64);
    }
}
