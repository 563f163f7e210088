//! What each path answers, as types: the document that describes the API is made from them.

use crate::history::RangeStretchView;
use crate::snapshot::{
    ActionView, FileView, PeriodView, PlanStepView, PlanView, PressureView, RangeView, RefusalView,
    SettingView, Snapshot, StateView, TargetView, ThrottleView,
};
use schemars::{JsonSchema, Schema, json_schema};
use serde::Serialize;
use sexton_journal::Event;
use sexton_tuner::advice::Advice;
use std::collections::BTreeMap;

/// Whether the engine lives.
#[derive(Serialize, JsonSchema)]
pub struct Health {
    pub status: &'static str,
    /// When the state shown was published, RFC 3339.
    pub at: String,
    /// Cycles completed.
    pub cycles: u64,
}

#[derive(Serialize, JsonSchema)]
pub struct Targets<'snapshot> {
    pub at: &'snapshot str,
    pub targets: &'snapshot [TargetView],
}

#[derive(Serialize, JsonSchema)]
pub struct Target<'snapshot> {
    pub at: &'snapshot str,
    pub target: &'snapshot TargetView,
}

#[derive(Serialize, JsonSchema)]
pub struct Databases<'snapshot> {
    pub at: &'snapshot str,
    /// Of all targets, most pain first.
    pub databases: Vec<Database<'snapshot>>,
}

/// One database of one target, and what its published ranges add up to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Database<'snapshot> {
    pub target: &'snapshot str,
    /// Its directory.
    pub database: &'snapshot str,
    /// Seek pain of its ranges, seconds of reader time lost per second.
    pub pain_seconds_per_second: f64,
    /// Ranges published.
    pub ranges: usize,
}

#[derive(Serialize, JsonSchema)]
pub struct ColumnFamilies<'snapshot> {
    pub at: &'snapshot str,
    /// Those in which readers lose time, most pain first.
    pub column_families: Vec<ColumnFamily<'snapshot>>,
}

/// One column family, and what its published ranges add up to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ColumnFamily<'snapshot> {
    pub target: &'snapshot str,
    pub database: &'snapshot str,
    pub column_family: &'snapshot str,
    /// Seek pain of its ranges, seconds of reader time lost per second.
    pub pain_seconds_per_second: f64,
    /// The block misses' part of the pain.
    pub block_read_seconds_per_second: f64,
    /// Ranges published.
    pub ranges: usize,
}

#[derive(Serialize, JsonSchema)]
pub struct Ranges<'snapshot> {
    pub at: &'snapshot str,
    /// Ranges that the query matches on all pages.
    pub total: usize,
    pub offset: usize,
    pub limit: usize,
    pub ranges: Vec<&'snapshot RangeView>,
    /// `after` for the next page; `None` where this one is the last.
    pub next: Option<&'snapshot str>,
}

/// One range with what there is about its column family.
#[derive(Serialize, JsonSchema)]
pub struct RangeInDepth<'snapshot> {
    pub at: &'snapshot str,
    pub range: &'snapshot RangeView,
    /// SST files of its column family that readers wait for longest.
    pub hot_files: Vec<&'snapshot FileView>,
    /// Steps of the plan in its column family.
    pub steps: Vec<&'snapshot PlanStepView>,
    /// What the plan leaves alone in its database.
    pub refusals: Vec<&'snapshot RefusalView>,
    /// What was done in its column family, newest first, with relief promised and delivered.
    pub actions: Vec<&'snapshot ActionView>,
    /// What was counted in its keys over the last day, oldest first; stretches without anything are left out.
    pub history: Vec<RangeStretchView>,
}

#[derive(Serialize, JsonSchema)]
pub struct Advices<'snapshot> {
    pub at: &'snapshot str,
    /// One for each column family that was looked at.
    pub advice: Vec<&'snapshot Advice>,
}

#[derive(Serialize, JsonSchema)]
pub struct Plan<'snapshot> {
    pub at: &'snapshot str,
    pub plan: &'snapshot PlanView,
}

#[derive(Serialize, JsonSchema)]
pub struct Actions<'snapshot> {
    pub at: &'snapshot str,
    /// Newest first.
    pub actions: Vec<&'snapshot ActionView>,
}

#[derive(Serialize, JsonSchema)]
pub struct Action<'snapshot> {
    pub at: &'snapshot str,
    pub action: &'snapshot ActionView,
}

#[derive(Serialize, JsonSchema)]
pub struct Events<'snapshot> {
    pub at: &'snapshot str,
    /// Id of the oldest event that can still be had here; older ones are in the audit log.
    pub oldest_id: Option<u64>,
    /// Oldest first. Where there are more than `limit`, ask again since the last one's id.
    #[schemars(schema_with = "events_schema")]
    pub events: Vec<&'snapshot Event>,
}

/// What an event says besides depends on its kind.
fn events_schema(_: &mut schemars::SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["id", "at", "event"],
            "properties": {
                "id": {"type": "integer", "minimum": 1, "description": "Counts up over all runs of the agent."},
                "at": {"type": "string", "description": "When, RFC 3339."},
                "event": {"type": "string", "description": "What happened: `slice_done`, `target_lost`, ..."},
            },
        },
    })
}

#[derive(Serialize, JsonSchema)]
pub struct Throttles<'snapshot> {
    pub at: &'snapshot str,
    /// Those of all targets, in the policy's order.
    pub throttles: &'snapshot [ThrottleView],
    /// What targets are under pressure by, where the policy names signals.
    pub pressures: &'snapshot [PressureView],
}

#[derive(Serialize, JsonSchema)]
pub struct Settings<'snapshot> {
    pub at: &'snapshot str,
    pub settings: &'snapshot [SettingView],
}

/// Whether a text is a policy.
#[derive(Default, Serialize, JsonSchema)]
pub struct PolicyCheck {
    pub is_valid: bool,
    /// What is wrong; `None` where nothing is.
    pub error: Option<PolicyMistake>,
    /// What is no mistake, and should be known.
    pub warnings: Vec<String>,
}

/// The first mistake of a policy.
#[derive(Serialize, JsonSchema)]
pub struct PolicyMistake {
    pub message: String,
    /// What to write instead.
    pub help: String,
    /// Counts from 1.
    pub line: Option<usize>,
    pub column: Option<usize>,
}

/// What the policy's clock says now.
#[derive(Serialize, JsonSchema)]
pub struct Schedule<'snapshot> {
    pub at: &'snapshot str,
    pub periods: &'snapshot [PeriodView],
    /// Bytes a second that actions may rewrite now.
    pub budget_bytes_per_second: u64,
}

/// The policy in force, and whether it is the one in its file.
#[derive(Serialize, JsonSchema)]
pub struct Policy<'snapshot> {
    pub at: &'snapshot str,
    /// Its file, or `None` when none was given.
    pub path: Option<&'snapshot str>,
    /// Whether what is in the file is in force.
    pub is_current: bool,
    /// Why not.
    pub trouble: Option<&'snapshot str>,
    /// What is in force, as in a policy's file, defaults filled in. Arguments of commands are left out: they
    /// may be secret.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub policy: &'snapshot serde_json::Value,
}

/// What could not be found out about targets, and whether the agent can remember what it does.
#[derive(Serialize, JsonSchema)]
pub struct Doctor<'snapshot> {
    pub at: &'snapshot str,
    pub state: &'snapshot StateView,
    /// Gaps by target, each with its reason and what to do.
    pub gaps: BTreeMap<&'snapshot str, &'snapshot [crate::snapshot::GapView]>,
}

/// The running program.
#[derive(Serialize, JsonSchema)]
pub struct Build {
    pub version: &'static str,
    pub architecture: &'static str,
}

/// The databases of all targets, most pain first.
pub fn databases(snapshot: &Snapshot) -> Vec<Database<'_>> {
    let of_targets = snapshot
        .targets
        .iter()
        .flat_map(|target| target.databases.iter().map(|database| (target.name.as_str(), database.as_str())));
    let mut sums: BTreeMap<(&str, &str), (f64, usize)> = of_targets.map(|key| (key, (0.0, 0))).collect();
    for range in &snapshot.ranges {
        let (pain, ranges) = sums.entry((&range.target, &range.database)).or_default();
        (*pain, *ranges) = (*pain + range.pain_seconds_per_second, *ranges + 1);
    }
    let shown = sums.into_iter().map(|((target, database), (pain_seconds_per_second, ranges))| Database {
        target,
        database,
        pain_seconds_per_second,
        ranges,
    });
    let mut databases: Vec<_> = shown.collect();
    databases.sort_by(|one, two| two.pain_seconds_per_second.total_cmp(&one.pain_seconds_per_second));
    databases
}

/// The column families in which readers lose time, most pain first.
pub fn column_families(snapshot: &Snapshot) -> Vec<ColumnFamily<'_>> {
    let mut families: BTreeMap<(&str, &str, &str), ColumnFamily<'_>> = BTreeMap::new();
    for range in &snapshot.ranges {
        let (target, database, column_family) =
            (range.target.as_str(), range.database.as_str(), range.column_family.as_str());
        let family = families.entry((target, database, column_family)).or_insert(ColumnFamily {
            target,
            database,
            column_family,
            pain_seconds_per_second: 0.0,
            block_read_seconds_per_second: 0.0,
            ranges: 0,
        });
        family.pain_seconds_per_second += range.pain_seconds_per_second;
        family.block_read_seconds_per_second += range.block_read_seconds_per_second;
        family.ranges += 1;
    }
    let mut families: Vec<_> = families.into_values().collect();
    families.sort_by(|one, two| two.pain_seconds_per_second.total_cmp(&one.pain_seconds_per_second));
    families
}

/// What there is about a range and its column family; its history from `since_s` on.
pub fn in_depth<'s>(snapshot: &'s Snapshot, range: &'s RangeView, since_s: i64) -> RangeInDepth<'s> {
    let is_there = |target: &str, database: &str| target == range.target && database == range.database;
    let is_about = |target: &str, database: &str, subject: &str| {
        is_there(target, database) && subject == range.column_family
    };
    let files = snapshot.targets.iter().filter(|target| target.name == range.target);
    let files = files.flat_map(|target| &target.hot_files).filter(|file| {
        file.database == range.database && file.column_family.as_deref() == Some(&range.column_family)
    });
    RangeInDepth {
        at: &snapshot.at,
        range,
        hot_files: files.collect(),
        steps: snapshot
            .plan
            .steps
            .iter()
            .filter(|it| is_about(&it.target, &it.database, &it.subject))
            .collect(),
        refusals: snapshot.plan.refusals.iter().filter(|it| is_there(&it.target, &it.database)).collect(),
        actions: snapshot
            .actions
            .iter()
            .filter(|it| is_about(&it.target, &it.database, &it.subject))
            .collect(),
        history: snapshot.history.in_range(&range.id, since_s),
    }
}
