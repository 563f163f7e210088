//! A setting that the agent has changed, until it is what it was before.
//!
//! It is on disk before it is changed, and goes when there is nothing to restore any more. So what an agent
//! that was killed has left is restored by the next one, where the executor has not done it by itself.

use super::identity::{ActionId, DatabaseIdentity, Place, ProcessId};
use super::kind::ActionKind;
use super::moment::Moment;
use super::news::News;
use super::setting::{RestoreCommands, Setting, SettingKind};
use crate::throttle::is_same_value;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Pause between two tries to restore a setting: its database is read anew each time.
pub const RESTORE_INTERVAL: Duration = Duration::from_secs(15);

/// Doublings of that pause where commands restore it: up to 16 minutes. Each try of an Ozone costs three JVM
/// starts, twelve seconds of a processor.
const RESTORE_DOUBLINGS_MAX: u32 = 6;

/// Why a setting of an earlier run is restored.
pub const LEFT_BEHIND: &str = "the agent that had set it has ended";

/// A setting that the agent has changed, or is about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSetting {
    /// The action that changes it.
    pub action: ActionId,
    /// Target's name then.
    pub target: String,
    /// The process then.
    pub process: ProcessId,
    /// The database of an option.
    #[serde(default)]
    pub database: Option<DatabaseIdentity>,
    /// Which setting.
    pub setting: Setting,
    /// The value that the agent wants.
    pub wanted: String,
    /// The value that was read last.
    #[serde(default)]
    pub observed: Option<String>,
    /// The value before; `None` where the executor remembers it.
    #[serde(default)]
    pub restore: Option<String>,
    /// The commands that restore it, where it takes commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<RestoreCommands>,
    /// Where it is in its life.
    #[serde(default)]
    pub state: KeptState,
    /// When it was last tried to restore it.
    #[serde(skip)]
    pub tried: Option<Moment>,
    /// How often that was in vain.
    #[serde(skip)]
    pub tries: u32,
}

/// Where a setting is in its life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptState {
    /// It is written down that it will be changed; whether it was is not known.
    #[default]
    Intended,
    /// It has the wanted value while the agent lives.
    InForce,
    /// It is restored as soon as it can be, for this reason.
    Restoring(String),
}

/// Something that happened to a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingEvent<'a> {
    /// It has the wanted value.
    Changed,
    /// It was not changed.
    NotChanged,
    /// It is not wanted any more, and why.
    Unwanted(&'a str),
    /// The executor does not know of the change any more, and this is the value in force, where that is
    /// known.
    Lost(Option<&'a str>),
    /// It has this value again, or still another one that somebody else has given it.
    Restored(Option<&'a str>),
    /// It could not be restored now.
    NotRestored,
    /// It went with its process.
    Gone,
    /// Another run of the agent has read it from the disk.
    AgentRestarted,
}

/// What is written down of a setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SettingRecord {
    /// Nothing has changed.
    #[default]
    Unchanged,
    /// It is to be restored some day.
    Put(Box<KeptSetting>),
    /// There is nothing to restore any more.
    Remove(Box<KeptSetting>),
}

/// What is to be done about a setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SettingEffect {
    /// What is written down.
    pub record: SettingRecord,
    /// What is told.
    pub news: Option<News>,
}

/// What is to be done to restore a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restoration {
    /// Nothing: it has this value, where that is known.
    Leave(Option<String>),
    /// Set this value, and have the executor forget the change.
    Set(String),
}

impl KeptSetting {
    /// The setting that an action is about to change; `None` where it changes none.
    pub fn of(
        action: ActionId,
        kind: &ActionKind,
        process: ProcessId,
        place: Option<&Place>,
    ) -> Option<KeptSetting> {
        let ActionKind::ChangeSetting(change) = kind else { return None };
        Some(KeptSetting {
            action,
            target: change.target().to_owned(),
            process,
            database: place.map(|place| place.database.clone()),
            setting: change.setting(),
            wanted: change.value(),
            observed: None,
            restore: change.restore().map(str::to_owned),
            commands: change.restore_commands(),
            state: KeptState::Intended,
            tried: None,
            tries: 0,
        })
    }

    /// The same after a change that came before: what is restored is the value before all changes.
    #[must_use]
    pub fn after(self, former: KeptSetting) -> KeptSetting {
        KeptSetting { restore: former.restore, commands: former.commands, ..self }
    }

    /// Whether two are the same setting: an option goes with its database, everything else with its process.
    pub fn is_same(&self, other: &KeptSetting) -> bool {
        let is_option = matches!(self.setting.kind, SettingKind::Option { .. });
        self.setting == other.setting
            && if is_option { self.database == other.database } else { self.process == other.process }
    }

    /// Whether there is a way to restore it. Nobody knows what a throttle was before that cannot be read.
    pub fn is_restorable(&self) -> bool {
        self.setting.kind != SettingKind::Throttle || self.restore.is_some() && self.commands.is_some()
    }

    /// Whether it is time to try to restore it.
    pub fn is_to_be_restored(&self, now: Moment) -> bool {
        let doublings = if self.commands.is_some() { self.tries.saturating_sub(1) } else { 0 };
        let pause = RESTORE_INTERVAL * (1 << doublings.min(RESTORE_DOUBLINGS_MAX));
        matches!(self.state, KeptState::Restoring(_))
            && self.tried.is_none_or(|tried| now.since(&tried) >= pause)
    }

    /// Takes in what has happened; `None`: it is gone from here on, as the effect says.
    pub(super) fn step(
        mut self,
        event: &SettingEvent<'_>,
        now: Moment,
    ) -> (Option<KeptSetting>, SettingEffect) {
        match event {
            SettingEvent::Changed if self.state == KeptState::Intended => {
                self.observed = Some(self.wanted.clone());
                self.state = KeptState::InForce;
                self.put(Some(News::SettingChanged))
            }
            // A command that has failed may have set it all the same: restoring looks at what is in force.
            SettingEvent::NotChanged if self.commands.is_some() => {
                self.step(&SettingEvent::Unwanted("whether it was set is not known"), now)
            }
            SettingEvent::NotChanged | SettingEvent::Gone => self.remove(None),
            SettingEvent::Unwanted(_) if !self.is_restorable() => self.remove(None),
            SettingEvent::Unwanted(reason) if !matches!(self.state, KeptState::Restoring(_)) => {
                self.state = KeptState::Restoring((*reason).to_owned());
                self.put(None)
            }
            SettingEvent::Lost(value) => self.lost(*value),
            SettingEvent::Restored(value) => {
                let reason = match &self.state {
                    KeptState::Restoring(reason) => reason.clone(),
                    KeptState::Intended | KeptState::InForce => String::new(),
                };
                self.remove(Some((*value, reason)))
            }
            SettingEvent::NotRestored => {
                (self.tried, self.tries) = (Some(now), self.tries.saturating_add(1));
                (Some(self), SettingEffect::default())
            }
            SettingEvent::AgentRestarted
                if self.is_restorable() && !matches!(self.state, KeptState::Restoring(_)) =>
            {
                self.state = KeptState::Restoring(LEFT_BEHIND.to_owned());
                (Some(self), SettingEffect::default())
            }
            SettingEvent::Changed | SettingEvent::Unwanted(_) | SettingEvent::AgentRestarted => {
                (Some(self), SettingEffect::default())
            }
        }
    }

    /// The executor has restored it by itself, or its database was opened anew.
    fn lost(mut self, value: Option<&str>) -> (Option<KeptSetting>, SettingEffect) {
        if value.is_some_and(|value| is_same_value(value, &self.wanted)) {
            self.observed = value.map(str::to_owned);
            self.state = KeptState::Restoring("its database was opened anew with it".to_owned());
            return self.put(None);
        }
        let value = value.map(str::to_owned).or_else(|| self.restore.clone());
        let reason = "the hook has restored it, or its database was opened anew".to_owned();
        self.remove(Some((value.as_deref(), reason)))
    }

    fn put(self, news: Option<News>) -> (Option<KeptSetting>, SettingEffect) {
        let record = SettingRecord::Put(Box::new(self.clone()));
        (Some(self), SettingEffect { record, news })
    }

    fn remove(self, restored: Option<(Option<&str>, String)>) -> (Option<KeptSetting>, SettingEffect) {
        let news =
            restored.map(|(value, reason)| News::SettingRestored { value: value.map(str::to_owned), reason });
        (None, SettingEffect { record: SettingRecord::Remove(Box::new(self)), news })
    }

    /// How to restore it: `in_force` is the value that was read, and `is_known` says whether the executor
    /// remembers the change. What somebody else has set since stays.
    pub fn restoration(&self, in_force: Option<&str>, is_known: bool) -> Restoration {
        let is_ours = in_force.is_some_and(|value| is_same_value(value, &self.wanted));
        let value = in_force.filter(|_| !is_ours).map(str::to_owned).or_else(|| self.restore.clone());
        match value {
            Some(value) if is_ours || is_known => Restoration::Set(value),
            value => Restoration::Leave(value),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn now(second: u64) -> Moment {
        Moment { at: jiff::Timestamp::UNIX_EPOCH, boot: 1, since_boot_ns: second * 1_000_000_000 }
    }

    fn kept(state: KeptState) -> KeptSetting {
        KeptSetting {
            action: ActionId(3),
            target: "java-1".into(),
            process: ProcessId { pid: 1, start_time_ticks: 1 },
            database: Some(DatabaseIdentity { path: "/db".into(), inode: 7 }),
            setting: Setting {
                kind: SettingKind::Option { database: "/db".into(), column_family: "keyTable".into() },
                name: "trigger".into(),
            },
            wanted: "1000".into(),
            observed: None,
            restore: Some("0".into()),
            commands: None,
            state,
            tried: None,
            tries: 0,
        }
    }

    #[test]
    fn what_is_left_behind_is_restored_and_the_first_reason_stays() {
        let (kept, effect) = kept(KeptState::Intended).step(&SettingEvent::AgentRestarted, now(0));
        let kept = kept.unwrap();
        assert_eq!(
            (&kept.state, effect),
            (&KeptState::Restoring(LEFT_BEHIND.into()), SettingEffect::default())
        );
        assert!(kept.is_to_be_restored(now(0)));
        let (kept, _) = kept.step(&SettingEvent::Unwanted("the agent ends"), now(0));
        let (kept, _) = kept.unwrap().step(&SettingEvent::NotRestored, now(1));
        let kept = kept.unwrap();
        assert_eq!(kept.state, KeptState::Restoring(LEFT_BEHIND.into()));
        assert!(!kept.is_to_be_restored(now(15)) && kept.is_to_be_restored(now(16)));
        let (gone, effect) = kept.step(&SettingEvent::Restored(Some("0")), now(16));
        assert!(gone.is_none() && matches!(effect.record, SettingRecord::Remove(_)));
        assert!(matches!(effect.news, Some(News::SettingRestored { reason, .. }) if reason == LEFT_BEHIND));
    }

    #[test]
    fn what_its_executor_has_lost_is_restored_only_where_it_is_still_in_force() {
        let (still, _) = kept(KeptState::InForce).step(&SettingEvent::Lost(Some("1000.0")), now(0));
        assert!(still.unwrap().is_to_be_restored(now(0)));
        let (gone, effect) = kept(KeptState::InForce).step(&SettingEvent::Lost(None), now(0));
        assert!(gone.is_none());
        assert!(
            matches!(effect.news, Some(News::SettingRestored { value: Some(value), .. }) if value == "0")
        );
    }

    #[test]
    fn what_somebody_else_has_set_stays() {
        let kept = kept(KeptState::Restoring(String::new()));
        assert_eq!(kept.restoration(Some("1000"), true), Restoration::Set("0".into()));
        assert_eq!(kept.restoration(Some("1000"), false), Restoration::Set("0".into()));
        // The executor is to forget its former value as well.
        assert_eq!(kept.restoration(Some("8"), true), Restoration::Set("8".into()));
        assert_eq!(kept.restoration(Some("8"), false), Restoration::Leave(Some("8".into())));
        assert_eq!(kept.restoration(None, false), Restoration::Leave(Some("0".into())));
    }

    #[test]
    fn a_throttle_is_restored_by_its_commands_or_not_at_all() {
        let words = |text: &str| vec![text.to_owned()];
        let timeout = crate::policy::TimeSpan::from_seconds(1);
        let commands = RestoreCommands { command: words("set"), get: words("get"), user: None, timeout };
        let setting = Setting { kind: SettingKind::Throttle, name: "limit".into() };
        let readable =
            KeptSetting { setting, database: None, commands: Some(commands), ..kept(KeptState::InForce) };
        let unreadable = KeptSetting { restore: None, commands: None, ..readable.clone() };
        // What nobody can restore stays as it is over a restart, and is forgotten when it is not wanted.
        let (stays, _) = unreadable.clone().step(&SettingEvent::AgentRestarted, now(0));
        assert_eq!(stays.unwrap().state, KeptState::InForce);
        let (gone, effect) = unreadable.step(&SettingEvent::Unwanted("the policy has changed"), now(0));
        assert!(gone.is_none() && effect.news.is_none());

        let (failed, _) = readable.clone().step(&SettingEvent::NotChanged, now(0));
        assert!(failed.unwrap().is_to_be_restored(now(0)), "its command may have set it all the same");
        let (mut kept, _) = readable.step(&SettingEvent::AgentRestarted, now(0));
        let mut at = 0;
        for pause in [15, 30, 60, 120, 240, 480, 960, 960] {
            assert!(kept.as_ref().unwrap().is_to_be_restored(now(at)));
            kept = kept.unwrap().step(&SettingEvent::NotRestored, now(at)).0;
            at += pause;
            assert!(!kept.as_ref().unwrap().is_to_be_restored(now(at - 1)));
        }
        assert!(kept.unwrap().step(&SettingEvent::Gone, now(at)).0.is_none());
    }

    #[test]
    fn values_are_compared_as_rocksdb_writes_them() {
        assert!(is_same_value("0.01", "0.010000") && is_same_value("kLZ4", "kLZ4"));
        assert!(!is_same_value("0", "1000") && !is_same_value("true", "1"));
    }
}
