//! Settings that are changed in targets are kept while they are wanted and restored when they are not: when
//! they did not help, when the policy does not allow them any more, when the agent ends.
//!
//! The hook restores options by itself once it has not heard of the agent for a while, so it is told now and
//! then that there is one. What is in force is read from the database's own OPTIONS file, never assumed:
//! somebody else may have set it meanwhile.

use super::{Control, Engine};
use crate::observe::Watched;
use crate::session::{Access, Answer, OPTION_LIMIT, PROBE_LIMIT, Session, ValueInForce, note};
use sexton_hook_protocol::limits::LEASE_RENEWAL_INTERVAL;
use sexton_journal::clock;
use sexton_tuner::policy::{ExecutorKind, Mode, Policy, RemedyKind};
use sexton_tuner::run::{KeptSetting, KeptState, SettingEvent, SettingKind};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// How long the agent's end may be put off by targets that do not answer: their hooks put the options back.
const END_TIME_LIMIT: Duration = Duration::from_secs(10);

/// How long a session is waited for that restores a setting: one that was given up, or whose target stands
/// still, does not say so.
const RESTORE_LIMIT: Duration = Duration::from_secs(2 * OPTION_LIMIT.as_secs());

impl Engine {
    /// Keeps the settings that are wanted, and restores the others, when it is time.
    pub(super) fn tend_settings(&mut self) {
        let is_due = self.settings_tended.is_none_or(|at| at.elapsed() >= LEASE_RENEWAL_INTERVAL);
        if !is_due || self.ledger.settings().is_empty() {
            return;
        }
        self.settings_tended = Some(Instant::now());
        self.keep_settings();
        self.restore_unwanted();
        self.restore_throttles();
    }

    /// The policy is about to change: restores what the next one does not allow.
    pub(super) fn restore_for(&mut self, policy: &Policy) {
        let allowed = |watched: &Watched, kept: &KeptSetting| is_allowed(policy, watched, kept);
        let (roster, ledger) = (&self.observer.roster, &mut self.ledger);
        let unwanted = SettingEvent::Unwanted("the policy does not allow it any more");
        let effects = ledger.step_settings(&unwanted, clock::now(), |kept| {
            let watched = roster.watched.iter().find(|watched| watched.target.name == kept.target);
            watched.is_some_and(|watched| !allowed(watched, kept))
        });
        self.carry_out(effects);
        self.restore_unwanted();
        self.restore_throttles();
    }

    /// The agent ends: restores everything, as far as the targets answer in time.
    pub(super) fn restore_all(&mut self, control: &mut Control) {
        self.step_settings(&SettingEvent::Unwanted("the agent ends"), KeptSetting::is_restorable);
        let now = Instant::now();
        self.restore_throttles();
        for kept in self.ledger.settings().to_vec() {
            self.restore(&kept);
        }
        while !self.restoring.is_empty() && now.elapsed() < END_TIME_LIMIT {
            self.turn(control, super::control::POLL_INTERVAL);
        }
        for kept in self.ledger.settings().iter().filter(|kept| is_option(kept)) {
            warn!(target = kept.target, setting = kept.setting.name, "left to the hook to put back");
        }
        self.await_restored_throttles(now, control);
    }

    /// Something has happened to the settings for which `is_it` holds.
    pub(super) fn step_settings(&mut self, event: &SettingEvent<'_>, is_it: impl Fn(&KeptSetting) -> bool) {
        let effects = self.ledger.step_settings(event, clock::now(), is_it);
        self.carry_out(effects);
    }

    /// Tells the hooks that this agent is still there, and asks whether its settings are, too.
    fn keep_settings(&mut self) {
        let names: Vec<String> =
            self.observer.roster.watched.iter().map(|watched| watched.target.name.clone()).collect();
        let gone = SettingEvent::Unwanted("its process has gone");
        self.step_settings(&gone, |kept| is_option(kept) && !names.contains(&kept.target));
        for watched in &mut self.observer.roster.watched {
            let name = &watched.target.name;
            let is_kept = |kept: &&KeptSetting| {
                is_option(kept) && kept.state == KeptState::InForce && kept.target == *name
            };
            let kept: Vec<KeptSetting> = self.ledger.settings().iter().filter(is_kept).cloned().collect();
            if !kept.is_empty() {
                watched.ask(&self.observer.post, "the options that are set", OPTION_LIMIT, move |session| {
                    Answer::LostSettings(session.lost_options(kept).unwrap_or_default())
                });
            }
        }
    }

    /// Settings that the hook does not know of any more: it has restored them when it had not heard of the
    /// agent for too long, or their database was closed.
    pub(super) fn take_lost(&mut self, lost: Vec<(KeptSetting, ValueInForce)>) {
        for (kept, value) in lost {
            match value {
                Ok(value) => {
                    self.note_in_force(&kept, value.as_ref().or(kept.restore.as_ref()));
                    let lost = SettingEvent::Lost(value.as_deref());
                    self.step_settings(&lost, |other| {
                        other.action == kept.action && other.state == KeptState::InForce
                    });
                }
                Err(reason) => debug!(target = kept.target, reason, "a setting's value cannot be read"),
            }
        }
    }

    /// Restores what is not wanted; what cannot be restored now is tried again later.
    fn restore_unwanted(&mut self) {
        let now = clock::now();
        let due = self.ledger.settings().iter().filter(|kept| kept.is_to_be_restored(now));
        for kept in due.cloned().collect::<Vec<_>>() {
            self.restore(&kept);
        }
    }

    fn restore(&mut self, kept: &KeptSetting) {
        self.restoring.retain(|_, since| since.elapsed() < RESTORE_LIMIT);
        if !is_option(kept) || self.restoring.contains_key(&kept.action) {
            return;
        }
        let post = self.observer.post.clone();
        let Some(watched) = self.watched_of(kept) else { return };
        let access = Access::of(&watched.entry, watched.mode);
        let wanted = kept.clone();
        let restore = move |session: &mut Session| {
            let value = session.put_back(&wanted, access);
            Answer::Restored { kept: Box::new(wanted), value }
        };
        if watched.ask(&post, "restoring a setting", OPTION_LIMIT, restore) {
            self.restoring.insert(kept.action, Instant::now());
        }
    }

    /// A session has tried to restore a setting.
    pub(super) fn take_restored(&mut self, kept: &KeptSetting, value: &ValueInForce) {
        self.restoring.remove(&kept.action);
        let event = match value {
            Ok(value) => {
                self.note_in_force(kept, value.as_ref());
                SettingEvent::Restored(value.as_deref())
            }
            Err(reason) => {
                warn!(target = kept.target, setting = kept.setting.name, reason, "cannot be put back yet");
                SettingEvent::NotRestored
            }
        };
        self.step_settings(&event, |other| other.action == kept.action);
    }

    fn note_in_force(&mut self, kept: &KeptSetting, value: Option<&String>) {
        if let (Some(watched), Some(value)) = (self.watched_of(kept), value) {
            note_value(watched, kept, value);
        }
    }

    /// The target that has the setting's database open: the process of then, or another one.
    pub(super) fn watched_of(&mut self, kept: &KeptSetting) -> Option<&mut Watched> {
        let has_it = |watched: &Watched| {
            let mut databases = watched.target.databases.iter();
            databases.any(|database| Some(database.identity()) == kept.database)
        };
        let watched = &mut self.observer.roster.watched;
        let same_process = watched.iter().position(|it| it.target.process == kept.process && has_it(it));
        let at = same_process.or_else(|| watched.iter().position(has_it))?;
        watched.get_mut(at)
    }
}

fn is_option(kept: &KeptSetting) -> bool {
    matches!(kept.setting.kind, SettingKind::Option { .. })
}

/// Whether a policy lets a setting be changed.
fn is_allowed(policy: &Policy, watched: &Watched, kept: &KeptSetting) -> bool {
    let target = &watched.target;
    let executable = target.executable.to_string_lossy();
    let entry = policy.target_for(target.process.pid, &executable, &target.command_line);
    entry.is_some_and(|entry| {
        let is_meant = match &kept.setting.kind {
            SettingKind::Option { column_family, .. } => {
                entry.executor == ExecutorKind::Hook
                    && entry.remedies.contains(&RemedyKind::Options)
                    && entry.includes(column_family)
            }
            SettingKind::Throttle => {
                entry.throttles.iter().any(|throttle| throttle.name == kept.setting.name)
            }
            _ => true,
        };
        policy.mode_of(entry) == Mode::Act && is_meant
    })
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
