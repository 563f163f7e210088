//! What a RocksDB writes into its own log of the compactions that somebody has asked it for.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A compaction that somebody has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManualCompaction {
    /// Microseconds since the epoch.
    pub began_us: u64,
    /// `None`: it runs still.
    pub ended_us: Option<u64>,
}

/// Those of a database, in their order.
pub fn manual_compactions(database: &Path) -> Result<Vec<ManualCompaction>> {
    let path = database.join("LOG");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let events = text.lines().filter_map(|line| line.split_once("EVENT_LOG_v1 "));
    let events = events.filter_map(|(_, event)| serde_json::from_str::<Value>(event).ok());
    let mut found: BTreeMap<u64, ManualCompaction> = BTreeMap::new();
    for event in events {
        let number = |name: &str| event.get(name).and_then(Value::as_u64);
        let word = |name: &str| event.get(name).and_then(Value::as_str);
        let (Some(job), Some(time_us)) = (number("job"), number("time_micros")) else { continue };
        match (word("event"), word("compaction_reason")) {
            (Some("compaction_started"), Some("ManualCompaction")) => {
                found.insert(job, ManualCompaction { began_us: time_us, ended_us: None });
            }
            (Some("compaction_finished"), _) => {
                found.entry(job).and_modify(|it| it.ended_us = Some(time_us));
            }
            _ => {}
        }
    }
    Ok(found.into_values().collect())
}
