//! Options that are set in targets are kept while they are wanted and put back when they are not: when they
//! did not help, when the policy does not allow them any more, when the agent ends.
//!
//! The hook puts them back by itself once it has not heard of the agent for a while, so it is told now and
//! then that there is one. What is in force is read from the database's own OPTIONS file, never assumed:
//! somebody else may have set it meanwhile.

use super::Engine;
use super::watched::Watched;
use crate::session::{Access, OPTION_LIMIT, PROBE_LIMIT, Session, ValueInForce, note};
use sexton_hook_protocol::limits::LEASE_RENEWAL_INTERVAL;
use sexton_journal::clock;
use sexton_tuner::policy::{ActuatorKind, Mode, Policy, RemedyKind};
use sexton_tuner::run::{KeptSetting, KeptState, SettingEvent, SettingKind};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// How long the agent's end may be put off by targets that do not answer: their hooks put the options back.
const END_TIME_LIMIT: Duration = Duration::from_secs(10);

impl Engine {
    /// Keeps the options that are wanted, and puts the others back, when it is time.
    pub(super) fn tend_options(&mut self) {
        let is_due = self.options_tended.is_none_or(|at| at.elapsed() >= LEASE_RENEWAL_INTERVAL);
        if !is_due || self.history.settings().is_empty() {
            return;
        }
        self.options_tended = Some(Instant::now());
        self.keep_options();
        self.put_back_unwanted(None);
    }

    /// The policy is about to change: puts back what the next one does not allow.
    pub(super) fn put_back_for(&mut self, policy: &Policy) {
        let Engine { roster, history, .. } = self;
        let unwanted = SettingEvent::Unwanted("the policy does not allow it any more");
        history.step_settings(&unwanted, |kept| {
            let watched = roster.watched.iter().find(|watched| watched.target.name == kept.target);
            watched.is_some_and(|watched| !is_allowed(policy, watched, kept))
        });
        self.put_back_unwanted(None);
    }

    /// The agent ends: puts everything back.
    pub(super) fn put_back_all(&mut self) {
        self.history.step_settings(&SettingEvent::Unwanted("the agent ends"), |_| true);
        self.put_back_unwanted(Some(Instant::now() + END_TIME_LIMIT));
    }

    /// Tells the hooks that this agent is still there, and looks whether its options are, too.
    fn keep_options(&mut self) {
        let names: Vec<String> =
            self.roster.watched.iter().map(|watched| watched.target.name.clone()).collect();
        let gone = SettingEvent::Unwanted("its process has gone");
        self.history.step_settings(&gone, |kept| !names.contains(&kept.target));
        for name in names {
            let is_kept = |kept: &&KeptSetting| kept.state == KeptState::InForce && kept.target == name;
            let kept: Vec<KeptSetting> = self.history.settings().iter().filter(is_kept).cloned().collect();
            let Some(watched) = self.watched_mut(&name).filter(|_| !kept.is_empty()) else { continue };
            let read = move |session: &mut Session| session.lost_options(kept);
            let lost = watched.call("the options that are set", OPTION_LIMIT, read).flatten();
            lost.into_iter().flatten().for_each(|(kept, value)| self.settle_lost(&kept, value));
        }
    }

    /// An option that the hook does not know of any more: it was put back when the hook had not heard of the
    /// agent for too long, or its database was closed.
    fn settle_lost(&mut self, kept: &KeptSetting, value: ValueInForce) {
        let Some(watched) = watched_of(&mut self.roster.watched, kept) else { return };
        match value {
            Ok(value) => {
                if let Some(value) = value.as_ref().or(kept.restore.as_ref()) {
                    note_value(watched, kept, value);
                }
                let lost = SettingEvent::Lost(value.as_deref());
                self.history.step_settings(&lost, |other| other.action == kept.action);
            }
            Err(reason) => debug!(target = kept.target, reason, "an option's value cannot be read"),
        }
    }

    /// Restores what is not wanted; what cannot be restored now is tried again later.
    fn put_back_unwanted(&mut self, deadline: Option<Instant>) {
        let now = clock::now();
        for kept in self.history.settings().to_vec() {
            let is_unwanted = matches!(kept.state, KeptState::Restoring(_));
            if !is_unwanted || deadline.is_none() && !kept.is_to_be_restored(now) {
                continue;
            }
            let (target, option) = (&kept.target, &kept.setting.name);
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                warn!(target, option, "left to the hook to put back");
                continue;
            }
            let Some(watched) = watched_of(&mut self.roster.watched, &kept) else { continue };
            let access = Access::of(&watched.entry, watched.mode);
            let wanted = kept.clone();
            let put_back = move |session: &mut Session| session.put_back(&wanted, access);
            let limit =
                deadline.map_or(OPTION_LIMIT, |until| until.saturating_duration_since(Instant::now()));
            let put_back = watched.call("putting an option back", limit, put_back);
            let put_back = put_back.unwrap_or_else(|| Err("the target does not respond".to_owned()));
            let event = match &put_back {
                Ok(value) => {
                    if let Some(value) = value {
                        note_value(watched, &kept, value);
                    }
                    SettingEvent::Restored(value.as_deref())
                }
                Err(reason) => {
                    warn!(target, option, reason, "cannot be put back yet");
                    SettingEvent::NotRestored
                }
            };
            self.history.step_settings(&event, |other| other.action == kept.action);
        }
    }
}

/// Whether a policy lets options of a column family be set.
fn is_allowed(policy: &Policy, watched: &Watched, kept: &KeptSetting) -> bool {
    let SettingKind::Option { column_family, .. } = &kept.setting.kind else { return true };
    let target = &watched.target;
    let executable = target.executable.to_string_lossy();
    let entry = policy.target_for(target.process.pid, &executable, &target.command_line);
    entry.is_some_and(|entry| {
        policy.mode_of(entry) == Mode::Act
            && entry.actuator == ActuatorKind::Hook
            && entry.remedies.contains(&RemedyKind::Options)
            && entry.includes(column_family)
    })
}

/// The target that has the setting's database open: the process of then, or another one.
fn watched_of<'a>(watched: &'a mut [Watched], kept: &KeptSetting) -> Option<&'a mut Watched> {
    let has_it = |watched: &Watched| {
        let mut databases = watched.target.databases.iter();
        databases.any(|database| Some(database.identity()) == kept.database)
    };
    let same_process = watched.iter().position(|it| it.target.process == kept.process && has_it(it));
    let at = same_process.or_else(|| watched.iter().position(has_it))?;
    watched.get_mut(at)
}

/// The option's value by the database's newest OPTIONS file; `None` where that does not name it.
pub fn value_in_force(watched: &mut Watched, kept: &KeptSetting) -> ValueInForce {
    let wanted = kept.clone();
    let read = move |session: &mut Session| session.value_in_force(&wanted);
    let read = watched.call("reading the OPTIONS file", OPTION_LIMIT, read);
    read.unwrap_or_else(|| Err("the target does not respond".to_owned()))
}

/// Notes a value as the next OPTIONS file will have it.
pub fn note_value(watched: &mut Watched, kept: &KeptSetting, value: &str) {
    let families = kept.database.as_ref().and_then(|database| watched.options.get_mut(&database.path));
    note(families, kept, value);
    let (kept, value) = (kept.clone(), value.to_owned());
    watched.worker.ask("noting an option's value", PROBE_LIMIT, move |session: &mut Session| {
        session.note_value(&kept, &value);
    });
}
