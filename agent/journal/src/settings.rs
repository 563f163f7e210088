//! Settings that the agent has changed in targets, until they are what they were before.
//!
//! A record is on disk before its setting is changed, and goes when there is nothing to restore any more. So
//! what an agent that was killed has left is restored by the next one, where the executor has not done it
//! already. What a setting goes through is decided in [`sexton_tuner::run::KeptSetting`].

use super::batch::{Batch, Kind};
use super::event::{EventKind, OptionChange, ThrottleChange};
use super::state::State;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use sexton_tuner::run::{KeptSetting, News, SettingKind, SettingRecord};

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

/// What an earlier run has left, oldest first.
pub fn load(state: &State) -> Vec<KeptSetting> {
    let records: Vec<(String, Read)> = state.last(Kind::Setting, usize::MAX);
    let mut settings: Vec<KeptSetting> = records.into_iter().map(|(_, Read(kept))| kept).collect();
    settings.sort_by_key(|kept| kept.action);
    settings
}

/// What to write of a setting that will have to be restored.
pub fn put(kept: &KeptSetting) -> Batch {
    let mut batch = Batch::default();
    batch.put(Kind::Setting, &key(kept), &Stored { schema: SCHEMA_VERSION, setting: kept });
    batch
}

/// What to write of a setting that has changed.
pub fn batch_of(record: &SettingRecord) -> Batch {
    match record {
        SettingRecord::Unchanged => Batch::default(),
        SettingRecord::Put(kept) => put(kept),
        SettingRecord::Remove(kept) => {
            let mut batch = Batch::default();
            batch.delete(Kind::Setting, &key(kept));
            batch
        }
    }
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

/// The event of a setting that was changed or restored, where there is one.
pub fn event_of(news: &News, record: &SettingRecord) -> Option<EventKind> {
    let (SettingRecord::Put(kept) | SettingRecord::Remove(kept)) = record else { return None };
    let SettingKind::Option { database, column_family } = &kept.setting.kind else {
        return throttle_event_of(news, kept);
    };
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
            Some(EventKind::OptionsRestored { change, reason: reason.clone() })
        }
        _ => None,
    }
}

fn throttle_event_of(news: &News, kept: &KeptSetting) -> Option<EventKind> {
    let (SettingKind::Throttle, News::SettingRestored { value, reason }) = (&kept.setting.kind, news) else {
        return None;
    };
    let change = ThrottleChange {
        target: kept.target.clone(),
        name: kept.setting.name.clone(),
        value: value.as_ref().or(kept.restore.as_ref()).cloned().unwrap_or_default(),
    };
    Some(EventKind::ThrottleRestored { change, reason: reason.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::run::{ActionId, DatabaseIdentity, KeptState, ProcessId, Setting};

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
            commands: None,
            state: KeptState::InForce,
            tried: None,
            tries: 0,
        }
    }

    #[test]
    fn what_a_run_leaves_is_read_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = State::open(folder.path()).unwrap();
        state.append(put(&kept(2, "other")));
        state.append(put(&kept(1, "trigger")));
        state.append(put(&kept(3, "third")));
        state.append(batch_of(&SettingRecord::Remove(Box::new(kept(2, "other")))));
        assert_eq!(load(&state), [kept(1, "trigger"), kept(3, "third")]);
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
}
