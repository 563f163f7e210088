//! An agent's state directory, read by the tests themselves: the store with RocksDB, the audit log line by
//! line.

use crate::agent::count;
use anyhow::{Context, Result, ensure};
use rust_rocksdb::{DB, IteratorMode, Options};
use serde_json::Value;
use sexton_tuner::run::{Action, ActionKind, Outcome};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two looks at an audit log.
const POLL: Duration = Duration::from_millis(2);

/// All records of a kind in the store of an agent that has ended, by name.
pub fn records(directory: &Path, kind: &str) -> Result<BTreeMap<String, Value>> {
    let store = directory.join("store");
    let database = DB::open_for_read_only(&Options::default(), &store, false)
        .with_context(|| format!("opening {}", store.display()))?;
    let mut records = BTreeMap::new();
    for entry in database.iterator(IteratorMode::Start) {
        let (key, value) = entry.context("reading the store")?;
        let key = String::from_utf8(key.into_vec()).context("a name that is no text")?;
        if let Some(name) = key.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/')) {
            records
                .insert(name.to_owned(), serde_json::from_slice(&value).context("a record that is no JSON")?);
        }
    }
    Ok(records)
}

/// The actions in the store of an agent that has ended, in the order of their numbers.
pub fn actions(directory: &Path) -> Result<Vec<Action>> {
    let read = |mut record: Value| {
        let action = record.get_mut("action").map(Value::take).context("a record without an action")?;
        serde_json::from_value(action).context("a record that is no action")
    };
    records(directory, "action")?.into_values().map(read).collect()
}

/// The events of an audit log, oldest first; torn lines are passed over, and there may be one a kill.
pub fn events(audit_log: &Path) -> Result<Vec<Value>> {
    let text =
        std::fs::read_to_string(audit_log).with_context(|| format!("reading {}", audit_log.display()))?;
    let events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    ensure!(!events.is_empty(), "{} has no event", audit_log.display());
    Ok(events)
}

/// The name of an event.
pub fn name(event: &Value) -> &str {
    event.get("event").and_then(Value::as_str).unwrap_or_default()
}

/// Waits until one more event of this name stands in an audit log that may not be there yet; `false` if none
/// does in time.
pub fn wait_for_event(audit_log: &Path, name: &str, limit: Duration) -> bool {
    let name = format!("\"event\":\"{name}\"");
    // Before the first agent has written to it there is none.
    let told = || std::fs::read_to_string(audit_log).unwrap_or_default().matches(&name).count();
    let (before, deadline) = (told(), Instant::now() + limit);
    while Instant::now() < deadline {
        if told() > before {
            return true;
        }
        std::thread::sleep(POLL);
    }
    false
}

/// Fails unless these events tell of one beginning and one end of an action, as the history shows it.
pub fn check_told_once(action: &Action, events: &[Value]) -> Result<()> {
    let about = events.iter().filter(|event| count(event, "/action_id").is_ok_and(|id| id == action.id.0));
    let told: Vec<&str> = about
        .map(name)
        .filter(|name| name.ends_with("_started") || name.ends_with("_done") || *name == "interrupted")
        .collect();
    let what = match action.kind {
        ActionKind::Compact(_) => "slice",
        ActionKind::Flush(_) => "flush",
        ActionKind::ChangeSetting(_) => "setting_change",
    };
    let end = match action.state.outcome() {
        Some(Outcome::Interrupted) => "interrupted".to_owned(),
        _ => format!("{what}_done"),
    };
    ensure!(told == [format!("{what}_started"), end], "{told:?} was told of {action:?}");
    Ok(())
}
