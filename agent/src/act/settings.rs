//! Settings that are changed in targets are kept while they are wanted and restored when they are not: when
//! they did not help, when the policy does not allow them any more, when the agent ends.
//!
//! The hook restores options by itself once it has not heard of the agent for a while, so it is told now and
//! then that there is one. What is in force is read from the database's own OPTIONS file, never assumed:
//! somebody else may have set it meanwhile.

use super::Actor;
use super::place::{note_value, watched_of};
use crate::observe::{Observer, Watched};
use crate::session::{Access, Answer, OPTION_LIMIT, Session, ValueInForce};
use sexton_hook_protocol::limits::LEASE_RENEWAL_INTERVAL;
use sexton_journal::clock;
use sexton_tuner::policy::{ExecutorKind, Mode, Policy, RemedyKind};
use sexton_tuner::run::{KeptSetting, KeptState, SettingEvent, SettingKind};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// How long a session is waited for that restores a setting: one that was given up, or whose target stands
/// still, does not say so.
const RESTORE_LIMIT: Duration = Duration::from_secs(2 * OPTION_LIMIT.as_secs());

impl Actor {
    /// Keeps the settings that are wanted, and restores the others, when it is time.
    pub fn tend_settings(&mut self, observer: &mut Observer) {
        let is_due = self.restorations.tended.is_none_or(|at| at.elapsed() >= LEASE_RENEWAL_INTERVAL);
        if !is_due || self.ledger.settings().is_empty() {
            return;
        }
        self.restorations.tended = Some(Instant::now());
        self.keep_settings(observer);
        self.restore_unwanted(observer);
        self.restore_throttles(observer);
    }

    /// The policy is about to change: restores what the next one does not allow.
    pub fn restore_for(&mut self, observer: &mut Observer, policy: &Policy) {
        let allowed = |watched: &Watched, kept: &KeptSetting| is_allowed(policy, watched, kept);
        let (roster, ledger) = (&observer.roster, &mut self.ledger);
        let unwanted = SettingEvent::Unwanted("the policy does not allow it any more");
        let effects = ledger.step_settings(&unwanted, clock::now(), |kept| {
            let watched = roster.watched.iter().find(|watched| watched.target.name == kept.target);
            watched.is_some_and(|watched| !allowed(watched, kept))
        });
        self.carry_out(observer, effects);
        self.restore_unwanted(observer);
        self.restore_throttles(observer);
    }

    /// The agent ends: begins to restore everything.
    pub fn restore_all(&mut self, observer: &mut Observer) {
        self.step_settings(observer, &SettingEvent::Unwanted("the agent ends"), KeptSetting::is_restorable);
        self.restore_throttles(observer);
        for kept in self.ledger.settings().to_vec() {
            self.restore(observer, &kept);
        }
    }

    /// Whether the agent's end, which has taken so long, is still put off by what is being restored.
    pub fn awaits_restored(&self, since: Duration) -> bool {
        self.restorations.are_awaited(since)
    }

    /// Tells what is left to others to restore.
    pub fn tell_unrestored(&self) {
        for kept in self.ledger.settings() {
            let (target, setting) = (&kept.target, &kept.setting.name);
            match kept.setting.kind {
                SettingKind::Option { .. } => warn!(target, setting, "left to the hook to put back"),
                SettingKind::Throttle if kept.is_restorable() => {
                    warn!(target, throttle = setting, "left to the next agent to restore");
                }
                SettingKind::Throttle => {}
            }
        }
    }

    /// Something has happened to the settings for which `is_it` holds.
    pub fn step_settings(
        &mut self,
        observer: &mut Observer,
        event: &SettingEvent<'_>,
        is_it: impl Fn(&KeptSetting) -> bool,
    ) {
        let effects = self.ledger.step_settings(event, clock::now(), is_it);
        self.carry_out(observer, effects);
    }

    /// Tells the hooks that this agent is still there, and asks whether its settings are, too.
    fn keep_settings(&mut self, observer: &mut Observer) {
        let names: Vec<String> =
            observer.roster.watched.iter().map(|watched| watched.target.name.clone()).collect();
        let gone = SettingEvent::Unwanted("its process has gone");
        self.step_settings(observer, &gone, |kept| is_option(kept) && !names.contains(&kept.target));
        for watched in &mut observer.roster.watched {
            let name = &watched.target.name;
            let is_kept = |kept: &&KeptSetting| {
                is_option(kept) && kept.state == KeptState::InForce && kept.target == *name
            };
            let kept: Vec<KeptSetting> = self.ledger.settings().iter().filter(is_kept).cloned().collect();
            if !kept.is_empty() {
                watched.ask(&observer.post, "the options that are set", OPTION_LIMIT, move |session| {
                    Answer::LostSettings(session.lost_options(kept).unwrap_or_default())
                });
            }
        }
    }

    /// Settings that the hook does not know of any more: it has restored them when it had not heard of the
    /// agent for too long, or their database was closed.
    pub fn take_lost(&mut self, observer: &mut Observer, lost: Vec<(KeptSetting, ValueInForce)>) {
        for (kept, value) in lost {
            match value {
                Ok(value) => {
                    note_in_force(observer, &kept, value.as_ref().or(kept.restore.as_ref()));
                    let lost = SettingEvent::Lost(value.as_deref());
                    self.step_settings(observer, &lost, |other| {
                        other.action == kept.action && other.state == KeptState::InForce
                    });
                }
                Err(reason) => debug!(target = kept.target, reason, "a setting's value cannot be read"),
            }
        }
    }

    /// Restores what is not wanted; what cannot be restored now is tried again later.
    fn restore_unwanted(&mut self, observer: &mut Observer) {
        let now = clock::now();
        let due = self.ledger.settings().iter().filter(|kept| kept.is_to_be_restored(now));
        for kept in due.cloned().collect::<Vec<_>>() {
            self.restore(observer, &kept);
        }
    }

    fn restore(&mut self, observer: &mut Observer, kept: &KeptSetting) {
        self.restorations.options.retain(|_, since| since.elapsed() < RESTORE_LIMIT);
        if !is_option(kept) || self.restorations.options.contains_key(&kept.action) {
            return;
        }
        let post = observer.post.clone();
        let Some(watched) = watched_of(observer, kept) else { return };
        let access = Access::of(&watched.entry, watched.mode);
        let wanted = kept.clone();
        let restore = move |session: &mut Session| {
            let value = session.put_back(&wanted, access);
            Answer::Restored { kept: Box::new(wanted), value }
        };
        if watched.ask(&post, "restoring a setting", OPTION_LIMIT, restore) {
            self.restorations.options.insert(kept.action, Instant::now());
        }
    }

    /// A session has tried to restore a setting.
    pub fn take_restored(&mut self, observer: &mut Observer, kept: &KeptSetting, value: &ValueInForce) {
        self.restorations.options.remove(&kept.action);
        let event = match value {
            Ok(value) => {
                note_in_force(observer, kept, value.as_ref());
                SettingEvent::Restored(value.as_deref())
            }
            Err(reason) => {
                warn!(target = kept.target, setting = kept.setting.name, reason, "cannot be put back yet");
                SettingEvent::NotRestored
            }
        };
        self.step_settings(observer, &event, |other| other.action == kept.action);
    }
}

fn is_option(kept: &KeptSetting) -> bool {
    matches!(kept.setting.kind, SettingKind::Option { .. })
}

/// Whether a policy lets a setting be changed.
fn is_allowed(policy: &Policy, watched: &Watched, kept: &KeptSetting) -> bool {
    let target = &watched.target;
    let entry = policy.target_for(&target.candidate());
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
        };
        policy.mode_of(entry) == Mode::Act && is_meant
    })
}

fn note_in_force(observer: &mut Observer, kept: &KeptSetting, value: Option<&String>) {
    if let (Some(watched), Some(value)) = (watched_of(observer, kept), value) {
        note_value(watched, kept, value);
    }
}
