//! An action as it is stored, in this release's form and in that of the first one.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use sexton_tuner::policy::TimeSpan;
use sexton_tuner::range::KeyRange;
use sexton_tuner::run::Action;
use std::time::Duration;

/// Version of the form of a stored action. The first release's had no version in it.
const SCHEMA_VERSION: u32 = 2;

/// An action as it is stored.
#[derive(Serialize)]
pub struct Stored<'action> {
    schema: u32,
    action: &'action Action,
}

impl Stored<'_> {
    pub fn of(action: &Action) -> Stored<'_> {
        Stored { schema: SCHEMA_VERSION, action }
    }
}

/// An action that was read, whatever form it is stored in.
pub struct Read(pub Action);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Read, D::Error> {
        let mut record = Map::deserialize(deserializer)?;
        let action = match record.remove("schema") {
            Some(_) => record.remove("action"),
            None => of_first_release(&record),
        };
        let action = action.ok_or_else(|| serde::de::Error::custom("a record without an action"))?;
        serde_json::from_value(action).map(Read).map_err(serde::de::Error::custom)
    }
}

/// The first release's record, which is the view of the API and what that lacked, as an action. What an older
/// record does not have is nothing or zero; fields that a kind does not have are passed over when it is read.
fn of_first_release(record: &Map<String, Value>) -> Option<Value> {
    let view = record.get("view")?.as_object()?;
    let [place, job] = ["place", "job"].map(|name| record.get(name).cloned().unwrap_or_default());
    let of = |name: &str| view.get(name).cloned().unwrap_or_default();
    let range = place.get("range").cloned().unwrap_or_else(|| json!(KeyRange::everything()));
    let started = json!({ "at": of("started_at") });
    let state = match of("state").as_str()? {
        "running" => json!({
            "state": "running", "part": range, "phase": "working", "since": started, "job": job,
            "time_limit": Duration::ZERO,
        }),
        // When it is tried again stands in the record of the throttle.
        "failing" => json!({ "state": "retrying", "time_limit": Duration::ZERO }),
        state => ended(record, view, state),
    };
    let failure = json!({
        "retry": { "failures_in_a_row": of("failures") }, "reason": of("outcome"),
    });
    let owed = record.get("owed").filter(|owed| !owed.is_null());
    let claim = owed.map(|before| {
        json!({ "before": before, "promised_seconds_per_second": before.get("relief_seconds_per_second") })
    });
    Some(json!({
        "id": of("id"), "kind": kind(view, &range)?, "process": record.get("process"), "place": place,
        "claim": claim, "started": started, "state": state, "pauses": of("pauses"),
        "failure": (of("failures") != 0).then_some(failure), "bytes_transient": of("bytes_transient"),
    }))
}

fn kind(view: &Map<String, Value>, range: &Value) -> Option<Value> {
    let of = |name: &str| view.get(name).cloned().unwrap_or_default();
    let begin = of("begin");
    let (action, setting, name, value) = match of("action").as_str()? {
        "flush" => ("flush", "", "", ""),
        "set_options" => {
            let (name, value) = begin.as_str()?.split_once('=')?;
            ("change_setting", "option", name, value)
        }
        "set_throttle" => ("change_setting", "throttle", view.get("subject")?.as_str()?, begin.as_str()?),
        _ => ("compact", "", "", ""),
    };
    // As much of the assessment as the view has.
    let before = json!({
        "target": of("target"), "database": of("database"), "column_family": of("subject"), "range": range,
        "operations_per_second": 0.0, "tombstones_per_seek": 0.0, "memtable_tombstones_per_seek": 0.0,
        "misses_per_seek": 0.0, "size_bytes": 0, "entries": 0, "deletions": 0, "density": 0.0,
        "pain_seconds_per_second": of("pain_before"), "relief_seconds_per_second": of("relief_promised"),
        "relief_per_byte": 0.0, "cost_bytes": null, "reason": of("reason"),
    });
    Some(json!({
        "action": action, "setting": setting, "target": of("target"), "database": of("database"),
        "column_family": of("subject"), "range": range, "ranges": [], "before": before,
        "pain_seconds_per_second": of("pain_before"), "relief_seconds_per_second": of("relief_promised"),
        "cost_bytes": of("cost_bytes"), "linked_bytes": of("linked_bytes"), "deletions": of("deletions_before"),
        "reason": of("reason"), "name": name, "value": value,
        // The value to put back stands in the record of the option; of throttles there was none.
        "restore": (setting == "option").then_some(""), "command": [], "timeout": TimeSpan::from_seconds(0),
    }))
}

/// The state of an action that has ended, and perhaps was verified. Most fields are called as in the view.
fn ended(record: &Map<String, Value>, view: &Map<String, Value>, state: &str) -> Value {
    let of = |name: &str| view.get(name).cloned().unwrap_or_default();
    let past = record.get("past").filter(|past| !past.is_null());
    let outcome = match state {
        "stopped" => json!({ "aborted": of("cause") }),
        "helped" | "did_not_help" => json!("done"),
        state => json!(state),
    };
    let mut end = view.clone();
    end.insert("at".into(), json!({ "at": of("ended_at") }));
    end.insert("outcome".into(), outcome);
    end.insert("message".into(), of("outcome"));
    end.insert("rests".into(), past.is_some().into());
    if !matches!(state, "helped" | "did_not_help") {
        end.insert("state".into(), "done".into());
        return Value::Object(end);
    }
    let failures_in_a_row = past.and_then(|past| past.get("failures_in_a_row")).cloned();
    let verification = json!({
        "helped": state == "helped", "pain_after_seconds_per_second": of("pain_after"),
        "delivered_seconds_per_second": of("relief_delivered"), "cause": of("cause"),
        // In words it stands in the end's message already.
        "reason": "", "failures_in_a_row": failures_in_a_row.unwrap_or(json!(0)),
    });
    json!({ "state": "verified", "end": end, "verification": verification })
}
