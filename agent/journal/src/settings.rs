//! Settings that the agent has changed in targets, until they are what they were before.
//!
//! A record is on disk before its setting is changed, and goes when there is nothing to restore any more. So what
//! an agent that was killed has left is restored by the next one, where the executor has not done it already.
//! What a setting goes through is decided in [`sexton_tuner::run::KeptSetting`].

use super::action_log::Journal;
use super::batch::{Batch, Kind};
use super::clock;
use super::event::{EventKind, OptionChange};
use super::state::State;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use sexton_tuner::run::{ActionId, KeptSetting, KeptState, News, SettingEvent, SettingKind, SettingRecord};

/// Settings remembered: a few in each of some dozen column families of some dozen databases. Beyond that the oldest
/// goes that is not wanted.
const SETTINGS_STORED_MAX: usize = 1_000;

/// Version of the form of a stored setting. The first release's, of an option, had no version in it.
const SCHEMA_VERSION: u32 = 2;

/// A setting as it is stored.
#[derive(Serialize)]
struct Stored<'setting> {
    schema: u32,
    setting: &'setting KeptSetting,
}

/// A setting that was read, whatever form it is stored in.
struct Read(KeptSetting);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Read, D::Error> {
        let mut record = Map::deserialize(deserializer)?;
        let setting = match record.remove("schema") {
            Some(_) => record.remove("setting").unwrap_or_default(),
            None => of_first_release(&record),
        };
        serde_json::from_value(setting).map(Read).map_err(serde::de::Error::custom)
    }
}

/// The first release kept options, and nothing of how far their change had come.
fn of_first_release(record: &Map<String, Value>) -> Value {
    let of = |name: &str| record.get(name).cloned().unwrap_or_default();
    let database = of("database");
    let path = database.get("path").cloned().unwrap_or_default();
    json!({
        "action": of("action_id"), "target": of("target"), "process": of("process"), "database": database,
        "setting": { "kind": { "kind": "option", "database": path, "column_family": of("column_family") }, "name": of("name") },
        "wanted": of("value"), "restore": of("restore"),
    })
}

/// All settings that are changed, oldest first.
#[derive(Debug, Default)]
pub struct Settings(Vec<KeptSetting>);

impl Settings {
    /// What an earlier run has left: all of it is to be restored.
    pub fn load(state: &State) -> Settings {
        let records: Vec<(String, Read)> = state.last(Kind::Setting, SETTINGS_STORED_MAX);
        let restarted = |(_, Read(kept)): (_, Read)| kept.step(&SettingEvent::AgentRestarted, clock::now()).0;
        let mut records: Vec<KeptSetting> = records.into_iter().filter_map(restarted).collect();
        records.sort_by_key(|kept| kept.action);
        Settings(records)
    }

    /// A setting is about to be changed that is not changed yet. Gives what to write.
    pub fn add(&mut self, kept: KeptSetting) -> Batch {
        let mut batch = put(&kept);
        self.0.push(kept);
        while self.0.len() > SETTINGS_STORED_MAX {
            let unwanted = self.0.iter().position(|kept| matches!(kept.state, KeptState::Restoring(_)));
            batch.append(delete(&self.0.remove(unwanted.unwrap_or(0))));
        }
        batch
    }

    /// It could not be written that a setting would be changed.
    pub fn remove(&mut self, id: ActionId) {
        self.0.retain(|kept| kept.action != id);
    }
}

fn put(kept: &KeptSetting) -> Batch {
    let mut batch = Batch::default();
    batch.put(Kind::Setting, &key(kept), &Stored { schema: SCHEMA_VERSION, setting: kept });
    batch
}

fn delete(kept: &KeptSetting) -> Batch {
    let mut batch = Batch::default();
    batch.delete(Kind::Setting, &key(kept));
    batch
}

/// An option goes with its database, everything else with its process.
fn key(kept: &KeptSetting) -> String {
    let name = &kept.setting.name;
    match (&kept.setting.kind, &kept.database) {
        (SettingKind::Option { column_family, .. }, Some(database)) => {
            format!("{}:{}:{column_family}:{name}", database.inode, database.path.display())
        }
        (kind, _) => format!("{}:{}:{kind:?}:{name}", kept.process.pid, kept.process.start_time_ticks),
    }
}

impl Journal {
    /// Settings that are changed in targets, oldest first.
    pub fn settings(&self) -> &[KeptSetting] {
        &self.settings.0
    }

    /// Whether a setting is changed already: it is restored before it is changed anew.
    pub fn is_changed(&self, setting: &KeptSetting) -> bool {
        self.settings().iter().any(|kept| kept.is_same(setting))
    }

    /// Something has happened to the settings for which `is_it` holds: writes and emits what follows from it.
    pub fn step_settings(&mut self, event: &SettingEvent<'_>, is_it: impl Fn(&KeptSetting) -> bool) {
        let now = clock::now();
        for kept in std::mem::take(&mut self.settings.0) {
            if !is_it(&kept) {
                self.settings.0.push(kept);
                continue;
            }
            let (next, effect) = kept.clone().step(event, now);
            let batch = match effect.record {
                SettingRecord::Unchanged => Batch::default(),
                SettingRecord::Put(kept) => put(&kept),
                SettingRecord::Remove(kept) => delete(&kept),
            };
            match effect.news.and_then(|news| event_of(&kept, news)) {
                Some(event) => self.events.emit_with(batch, event),
                None => self.events.append(batch),
            }
            if next.is_none() {
                // It cannot be measured any more.
                self.give_up_pending(|action| action.id == kept.action);
            }
            self.settings.0.extend(next);
        }
    }
}

fn event_of(kept: &KeptSetting, news: News) -> Option<EventKind> {
    let SettingKind::Option { database, column_family } = &kept.setting.kind else { return None };
    let change_to = |value: &str| OptionChange {
        target: kept.target.clone(),
        database: database.clone(),
        column_family: column_family.clone(),
        name: kept.setting.name.clone(),
        value: value.to_owned(),
    };
    match news {
        News::SettingChanged => {
            let restore = kept.restore.clone().unwrap_or_default();
            Some(EventKind::OptionsSet { change: change_to(&kept.wanted), restore })
        }
        News::SettingRestored { value, reason } => {
            let change = change_to(value.as_ref().or(kept.restore.as_ref()).map_or("", |value| value));
            Some(EventKind::OptionsRestored { change, reason })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use sexton_tuner::run::{DatabaseIdentity, ProcessId, Setting};

    fn kept(action: u64, name: &str) -> KeptSetting {
        KeptSetting {
            action: ActionId(action),
            target: "java-1".into(),
            process: ProcessId { pid: 1, start_time_ticks: 1 },
            database: Some(DatabaseIdentity { path: "/db".into(), inode: 7 }),
            setting: Setting {
                kind: SettingKind::Option { database: "/db".into(), column_family: "keyTable".into() },
                name: name.into(),
            },
            wanted: "1000".into(),
            observed: None,
            restore: Some("0".into()),
            state: KeptState::InForce,
            tried: None,
        }
    }

    #[test]
    fn what_a_run_leaves_is_restored_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = State::open(folder.path()).unwrap();
        let mut settings = Settings::default();
        state.append(settings.add(kept(1, "trigger")));
        state.append(settings.add(kept(2, "other")));
        state.append(delete(&kept(2, "other")));
        let loaded = Settings::load(&state);
        let [left] = &loaded.0[..] else { panic!("{loaded:?}") };
        assert_eq!((left.wanted.as_str(), left.restore.as_deref()), ("1000", Some("0")));
        assert!(left.is_to_be_restored(clock::now()));
    }

    #[test]
    fn what_the_first_release_kept_is_read() {
        let text = r#"{"action_id":14,"target":"java-1","process":{"pid":1,"start_time_ticks":1},
            "database":{"path":"/db","inode":7},"column_family":"keyTable","name":"trigger","value":"1000","restore":"0"}"#;
        let Read(read) = serde_json::from_str(text).unwrap();
        assert_eq!(read, KeptSetting { state: KeptState::Intended, ..kept(14, "trigger") });
        assert_eq!(key(&read), "7:/db:keyTable:trigger");
        let written = serde_json::to_string(&Stored { schema: SCHEMA_VERSION, setting: &read }).unwrap();
        let Read(again) = serde_json::from_str(&written).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_wanted_ones_stay() {
        let mut settings = Settings::default();
        settings.add(kept(0, "wanted"));
        for number in 1..SETTINGS_STORED_MAX as u64 + 10 {
            let state = KeptState::Restoring("it did not help".into());
            settings.add(KeptSetting { state, ..kept(number, &format!("option{number}")) });
        }
        assert_eq!(settings.0.len(), SETTINGS_STORED_MAX);
        assert_eq!(settings.0[0].setting.name, "wanted");
    }
}
