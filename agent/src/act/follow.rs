//! What is under way is taken a step further.

use super::{Actor, FOLLOW_INTERVAL};
use crate::observe::{Observer, SliceSeen};
use sexton_inspect::facts::{ProcessId, TargetId};
use sexton_inspect::process::is_alive;
use sexton_journal::clock;
use sexton_tuner::policy::Mode;
use sexton_tuner::run::{Action, ActionId, ActionKind, ActionState, Event};
use std::time::Instant;

/// What somebody wants cancelled.
#[derive(Debug, Default)]
pub struct Cancelled {
    /// Whatever runs.
    pub all: bool,
    /// These actions.
    pub ids: Vec<ActionId>,
}

impl Actor {
    /// Takes what is under way a step further; where something has ended, its device is free for the next.
    /// `may_begin`: the agent does not end.
    pub fn follow(&mut self, observer: &mut Observer, cancelled: &Cancelled, may_begin: bool) {
        let is_cancelled =
            |action: &Action| is_under_way(action) && (cancelled.all || cancelled.ids.contains(&action.id));
        let ids =
            self.ledger.actions().filter(|action| is_cancelled(action)).map(|action| action.id).collect();
        self.cancel_each(observer, ids, "it was asked for");
        self.notice_lost(observer);
        self.tick(observer);
        self.look_at_paused(observer);
        self.follow_inquiries(observer);
        self.follow_consents(observer);
        self.keep_slice_windows(observer);
        if std::mem::take(&mut self.has_ended) {
            self.act(observer, may_begin);
        }
        self.tend_settings(observer);
    }

    /// Goes on from what earlier runs have left, as soon as it can be read.
    pub fn load(&mut self, observer: &mut Observer) {
        if let Some(stored) = self.journal.load() {
            self.take_stored(observer, stored);
        }
    }

    /// A cycle begins: what could not be written is written, and what is in doubt is asked after.
    pub fn begin_cycle(&mut self, observer: &mut Observer) {
        self.journal.retry();
        self.load(observer);
        self.ask_after_jobs(observer);
        self.ask_after_orphans(observer);
        self.ask_after_pins(observer);
    }

    /// A target has gone.
    pub fn forget_target(&mut self, observer: &mut Observer, name: &str, process: &ProcessId) {
        self.journal.forget_target(name);
        if !is_alive(process) {
            let effects = self.ledger.target_gone(process, &observer.policy, clock::now());
            self.carry_out(observer, effects);
        }
    }

    /// Tells the ledger now and then that time has passed.
    fn tick(&mut self, observer: &mut Observer) {
        if self.ticked.elapsed() < FOLLOW_INTERVAL {
            return;
        }
        self.ticked = Instant::now();
        let Observer { roster, policy, .. } = observer;
        let is_there = |process: &ProcessId| roster.watched.iter().any(|it| it.target.process == *process);
        let due = self.ledger.tick(policy, clock::now(), is_there);
        self.carry_out(observer, due);
    }

    /// The agent ends: what runs is cancelled.
    pub fn end(&mut self, observer: &mut Observer) {
        // What is in doubt still this run will not hear of.
        let is_open = |state: &ActionState| !matches!(state, ActionState::Retrying(_));
        self.cancel_all(observer, "the agent ends", is_open);
    }

    /// The policy has changed: what it does not allow any more is cancelled. Settings are restored by
    /// themselves.
    pub fn cancel_forbidden(&mut self, observer: &mut Observer) {
        let roster = &observer.roster;
        let is_forbidden = |action: &Action| {
            let watched = roster.named(action.kind.target());
            !matches!(action.kind, ActionKind::ChangeSetting(_))
                && watched.is_some_and(|watched| watched.mode != Mode::Act)
        };
        let forbidden = self.ledger.actions().filter(|action| is_under_way(action) && is_forbidden(action));
        let ids = forbidden.map(|action| action.id).collect();
        self.cancel_each(observer, ids, "the policy does not let Sexton act any more");
    }

    /// Has all actions end whose state is so.
    fn cancel_all(&mut self, observer: &mut Observer, why: &str, is_so: impl Fn(&ActionState) -> bool) {
        let open = self.ledger.actions().filter(|action| is_so(&action.state));
        let ids = open.map(|action| action.id).collect();
        self.cancel_each(observer, ids, why);
    }

    fn cancel_each(&mut self, observer: &mut Observer, ids: Vec<ActionId>, why: &str) {
        ids.into_iter().for_each(|id| self.hear(observer, id, Event::Cancel(why)));
    }

    /// Whether something is under way that has to be waited for before the agent ends.
    pub fn is_acting(&self) -> bool {
        self.ledger.actions().any(is_under_way)
    }

    /// Targets in which slices run: these have windows of their own.
    pub fn acted_on(&self) -> Vec<TargetId> {
        self.acting.iter().filter(|acting| acting.is_slice()).map(|acting| acting.target).collect()
    }

    /// Takes in what operations have waited for in a window while a slice runs.
    pub fn take_slice_window(&mut self, seen: &SliceSeen) {
        let acting = self.acting.iter_mut().find(|acting| acting.target == seen.target);
        acting.into_iter().for_each(|acting| acting.note_latencies(&seen.latencies));
    }

    /// Keeps windows open on the targets in which slices run.
    fn keep_slice_windows(&mut self, observer: &mut Observer) {
        for mut acting in std::mem::take(&mut self.acting) {
            let is_slice = acting.is_slice();
            if let Some(part) = acting.part.as_mut().filter(|_| is_slice) {
                observer.keep_slice_window(acting.target, &mut part.window_wanted);
            }
            self.acting.push(acting);
        }
    }
}

fn is_under_way(action: &Action) -> bool {
    matches!(action.state, ActionState::Running(_) | ActionState::Paused(_))
}
