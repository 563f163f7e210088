//! What earlier runs could not end themselves: actions that are in doubt until their hook has told how they
//! ended, and those of which nobody will know.

use super::action_log::Journal;
use super::clock;
use sexton_tuner::run::{
    Action, ActionId, ActionKind, ActionState, End, InDoubt, Outcome, ProcessId, SettingChange,
};
use std::path::PathBuf;

impl Journal {
    /// Sorts what earlier runs have left: what is measured or tried again goes on, what the hook may know of
    /// is in doubt, the rest is interrupted.
    pub(super) fn recover(&mut self) {
        let is_alive = self.is_alive;
        // An option of an earlier run is put back: there is nothing to measure.
        self.give_up_pending(|action| {
            let is_option = matches!(action.kind, ActionKind::ChangeSetting(SettingChange::Option(_)));
            is_option || !is_alive(&action.process)
        });
        let mut lost = Vec::new();
        for action in self.actions.iter_mut().rev().map(|entry| &mut entry.action) {
            let job = match &action.state {
                ActionState::Planned | ActionState::Done(_) | ActionState::Verified { .. } => continue,
                ActionState::Running(running) => running.job,
                ActionState::InDoubt(in_doubt) => Some(in_doubt.job),
                // It is tried again by this run, as the same action.
                ActionState::Retrying(_) if is_alive(&action.process) => continue,
                ActionState::Retrying(_) | ActionState::Paused(_) => None,
            };
            match job.filter(|_| is_alive(&action.process)) {
                Some(job) => action.state = ActionState::InDoubt(InDoubt { job, since: clock::now() }),
                None => lost.push(action.id),
            }
        }
        lost.into_iter().for_each(|id| self.interrupt(id));
    }

    /// Actions of an earlier run that the hook may know the end of.
    pub fn in_doubt(&self) -> impl Iterator<Item = (&Action, &InDoubt)> {
        self.actions.iter().filter_map(|entry| match &entry.action.state {
            ActionState::InDoubt(in_doubt) => Some((&entry.action, in_doubt)),
            _ => None,
        })
    }

    /// Whether an earlier run may still be acting on this process: then nothing else is begun there.
    pub fn is_in_doubt(&self, process: &ProcessId) -> bool {
        self.in_doubt().any(|(action, _)| action.process == *process)
    }

    /// Writes how an action of an earlier run has ended. What it may have rewritten is taken from the budget.
    pub fn end_in_doubt(&mut self, id: ActionId, end: End) {
        let Some(entry) = self.actions.iter_mut().find(|entry| entry.action.id == id) else { return };
        entry.is_earlier = false;
        self.interrupted_bytes = self.interrupted_bytes.saturating_add(entry.action.kind.cost_bytes());
        self.change(id, |action| {
            // What it left behind was not looked at: nothing can be said of its effect.
            action.claim = None;
            action.state = ActionState::Done(end);
        });
    }

    /// Ends an action of an earlier run that nobody knows the end of.
    pub fn interrupt(&mut self, id: ActionId) {
        let Some(action) = self.action(id) else { return };
        let target =
            if (self.is_alive)(&action.process) { "its target lives" } else { "its target has ended too" };
        let message = format!(
            "the agent ended while it was under way, and what came of it is not known; {target}, and the range rests \
             as if it had been done"
        );
        if let ActionKind::Compact(_) = action.kind
            && let Some(place) = &action.place
        {
            self.interrupted.push((action.process, place.database.path.clone()));
        }
        let end = End::new(clock::now(), Outcome::Interrupted, message);
        self.end_in_doubt(id, End { rests: true, ..end });
    }

    /// Ends what is in doubt still: this run will not hear of it.
    pub fn interrupt_in_doubt(&mut self) {
        let ids: Vec<ActionId> = self.in_doubt().map(|(action, _)| action.id).collect();
        ids.into_iter().for_each(|id| self.interrupt(id));
    }

    /// Bytes that interrupted actions may have rewritten: they are taken from the budget once.
    pub fn take_interrupted_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.interrupted_bytes)
    }

    /// Compactions that were interrupted and may still run: process and database, once.
    pub fn take_interrupted(&mut self) -> Vec<(ProcessId, PathBuf)> {
        std::mem::take(&mut self.interrupted)
    }
}
