//! The published snapshot of the agent: all that the HTTP API, `sexton plan` and the metrics may read.
//!
//! The engine writes a new [`Snapshot`] after every step and publishes it whole; readers never reach
//! into the engine. Keys are in here redacted unless the policy says otherwise, so nothing behind this
//! line has to remember to do it.

use crate::history::Shown;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton_journal::{ActionCounts, Event};
use sexton_tuner::advice::Advice;
use sexton_tuner::evidence::Counters;
use sexton_tuner::unplaced::Unplaced;
use sexton_tuner::waits::Waits;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub use sexton_journal::{ACTIONS_PUBLISHED_MAX, EVENTS_PUBLISHED_MAX};

/// Everything the outside may know, as of one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was made, RFC 3339.
    pub at: String,
    pub agent: AgentView,
    pub targets: Vec<TargetView>,
    /// Ranked candidate ranges of all targets, most pain relieved per byte first.
    pub ranges: Vec<RangeView>,
    pub plan: PlanView,
    /// What was done, newest first, at most [`ACTIONS_PUBLISHED_MAX`] and what has no end yet.
    pub actions: Vec<ActionView>,
    /// What there is to say of the column families that were looked at.
    #[serde(default)]
    pub advice: Vec<Advice>,
    /// What is changed in targets, and has to be restored.
    #[serde(default)]
    pub settings: Vec<SettingView>,
    /// Throttles of all targets that the policy has any for.
    #[serde(default)]
    pub throttles: Vec<ThrottleView>,
    /// What these targets are under pressure by.
    #[serde(default)]
    pub pressures: Vec<PressureView>,
    /// Counts of actions since the agent's start, by target.
    pub action_counts: BTreeMap<String, ActionCounts>,
    /// What was emitted, oldest first, at most [`EVENTS_PUBLISHED_MAX`].
    pub events: Vec<Event>,
    /// What operations of all targets waited for in windows.
    #[serde(skip)]
    pub waits: Vec<FamilyWaits>,
    /// Whether keys stand in it whole.
    #[serde(default)]
    pub shows_keys: bool,
    /// Pain and actions of the last weeks.
    #[serde(skip)]
    pub history: Shown,
    /// When the next cycle has to have ended; `None` before the first one has.
    #[serde(skip)]
    pub cycle_due: Option<Instant>,
}

/// What the operations of one column family have waited for since its target is watched.
#[derive(Clone, Debug, Default)]
pub struct FamilyWaits {
    pub target: String,
    pub column_family: String,
    pub waits: Waits,
}

/// Ranges published per target: more than an operator would read, few enough for a page.
pub const RANGES_PUBLISHED_MAX: usize = 200;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentView {
    pub version: String,
    pub cycles: u64,
    /// Policy file, or `None` when none was given.
    pub policy: Option<String>,
    /// What is in force of it, defaults filled in, arguments of commands left out.
    #[serde(skip)]
    pub policy_content: Arc<serde_json::Value>,
    /// Why the last good policy is in force and not what is in the file.
    pub policy_trouble: Option<String>,
    /// The periods of the policy's schedule.
    #[serde(default)]
    pub schedule: Vec<PeriodView>,
    /// Input/output budget in force now, bytes a second that actions may rewrite.
    pub budget_bytes_per_second: u64,
    /// What one firing of a probe costs here, by kind, as learnt on functions of the agent's own; empty until
    /// it was, before the first window.
    pub probe_prices: Vec<ProbePriceView>,
    /// Threads that wait for processes or files which do not answer.
    #[serde(default)]
    pub workers_left_behind: usize,
    /// Where it remembers things, and whether it can.
    pub state: StateView,
    /// How often each event was told since the start, by name.
    pub events_told: BTreeMap<String, u64>,
}

/// A period of the policy's schedule.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PeriodView {
    pub name: String,
    /// Whether its values hold now.
    pub is_open: bool,
}

/// The agent's state on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateView {
    /// Its directory, or `None`: everything is forgotten with the agent.
    pub directory: Option<String>,
    /// Whether it can be written; while it cannot, no action begins. True also where there is none.
    pub is_writable: bool,
    /// Why not.
    pub trouble: Option<String>,
    /// Batches of records that wait in memory until it can.
    pub waiting: usize,
}

/// What one kind of firing costs the thread that runs into it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbePriceView {
    /// `seek`, `iterator_end`, ...
    pub kind: String,
    pub seconds: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TargetView {
    /// Name with the process id: `OzoneManagerStarter-4711`.
    pub name: String,
    /// What its metrics are labelled by, whatever the process id: the name of the policy's entry, or the
    /// program's where the policy has none. Several targets may have the same.
    #[serde(default)]
    pub series: String,
    pub pid: u32,
    /// `armed`, `watching`, `blind` (nothing can be read; see gaps) or `lost` (the process is gone).
    pub state: TargetState,
    /// Mode that the policy gives it.
    pub mode: String,
    /// Who compacts in mode act, by the policy: `hook`, `exec`, `sql` or `none`.
    #[serde(default)]
    pub executor: String,
    /// RocksDB version, `7.7.3`.
    pub rocksdb_version: String,
    pub module: String,
    pub databases: Vec<String>,
    /// Totals since the agent first saw the target.
    pub totals: Counters,
    /// Who counted them: `sentinel` (all there was) or `windows` (only while probes were armed: the kernel
    /// has no sentinel).
    pub totals_by: String,
    /// Part of the totals that windows attributed to operations.
    pub attributed: Counters,
    pub operations: u64,
    /// Those of them that were chosen for a record: large ones, and a sample of small ones.
    pub operations_recorded: u64,
    /// Operations whose tombstones are an estimate: RocksDB's counters stand still, and the iterator's own
    /// count of what its last call stepped over, keys of all kinds, was taken instead.
    pub operations_estimated: u64,
    /// Older versions that operations in windows have stepped over, by their records: at least so many.
    pub old_versions_skipped: u64,
    /// Time that probes were armed, seconds.
    pub window_seconds: f64,
    pub windows: u64,
    /// Records that did not fit into the ring buffer.
    pub records_lost: u64,
    /// What probes cost it and may cost it.
    pub probes: ProbeView,
    /// Threads with a `perf_context` at the last reading.
    pub threads: u32,
    /// Threads that ended since the agent first saw the target.
    pub threads_ended: u64,
    /// Those of them whose last counters could not be read: what they counted after the last reading is
    /// missing in the totals.
    pub threads_ended_unread: u64,
    /// Lowest perf level any of its threads has; counters move from 2 on.
    pub perf_level: Option<u8>,
    /// Block reads that windows timed.
    pub block_reads_timed: u64,
    /// Time they took, seconds.
    pub block_read_seconds: f64,
    /// Threads that count only because the policy has their perf level raised.
    pub perf_level_raised_threads: u32,
    /// Seek pain of all its ranges, seconds of reader time lost per second.
    pub pain_seconds_per_second: f64,
    /// Seek pain that is in none of its ranges, because nobody saw where it lies.
    #[serde(default)]
    pub unplaced: Unplaced,
    /// SST files that readers waited for longest in the last window, at most [`HOT_FILES_MAX`].
    pub hot_files: Vec<FileView>,
    /// Whether a hook answers inside the target.
    pub hook: bool,
    /// Guards that have objected to acting on it, and those that do now.
    #[serde(default)]
    pub guards: Vec<GuardView>,
    /// What tombstones and block reads cost its readers, as learnt so far.
    #[serde(default)]
    pub costs: CostView,
    /// What is missing, why and what to do, one sentence group each.
    pub gaps: Vec<GapView>,
}

/// A guard that has objected to acting on a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuardView {
    /// Its name: `level0_files`, `write_delayed`, ...
    pub guard: String,
    pub objects: bool,
    /// How often it has objected since the agent first saw the target.
    pub refusals: u64,
    /// What it said last.
    pub reason: String,
}

/// What readers of a target pay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostView {
    /// For stepping over a tombstone.
    pub seconds_per_tombstone: f64,
    /// `measured` or `assumed`.
    pub tombstone_source: String,
    /// For a block read that was not timed itself.
    pub seconds_per_block_read: f64,
    /// `timed`, `measured` or `assumed`.
    pub block_read_source: String,
}

/// What probes have cost a target, and what they may cost it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeView {
    /// Time that probes took from its threads since the agent first saw it, seconds: hits times their
    /// corrected price.
    pub cost_seconds: f64,
    /// The same by the learnt prices.
    #[serde(default)]
    pub learnt_cost_seconds: f64,
    /// What the learnt prices are multiplied by for this target: what its own counters say that probes cost
    /// it, by what the learnt prices say. 1 until enough windows have told.
    #[serde(default)]
    pub price_correction_ratio: f64,
    #[serde(default)]
    pub price_correction_windows: u64,
    /// What one firing of a probe costs it, by kind: learnt prices, corrected. Empty until they were learnt.
    #[serde(default)]
    pub prices: Vec<ProbePriceView>,
    /// What the policy allows, as a share of one processor core.
    pub budget_ratio: f64,
    /// What may be spent now, seconds; below zero it is owed.
    pub available_seconds: f64,
    /// Share of the time in which a window was open.
    pub duty_ratio: f64,
    /// Windows that were closed before their time because the budget was spent.
    pub windows_cut: u64,
    /// Windows that were wanted when there was no budget for one.
    pub windows_put_off: u64,
}

/// Files published per target: the heat is in a few, or in none.
pub const HOT_FILES_MAX: usize = 20;

/// One SST file that readers fetch blocks from.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct FileView {
    pub database: String,
    /// File number, as in `000123.sst`.
    pub number: u64,
    /// Column family; `None` where the file is not among the live ones any more.
    pub column_family: Option<String>,
    /// Level; `None` as above.
    pub level: Option<u32>,
    /// Block-cache misses a second that were read from it.
    pub reads_per_second: f64,
    /// Bytes a second that were read from it.
    pub bytes_per_second: f64,
    /// Reader time that went into fetching from it, seconds per second.
    pub wait_seconds_per_second: f64,
    /// Median latency of a fetch, seconds, to the next power of two nanoseconds.
    pub latency_p50_seconds: f64,
    /// 99th percentile.
    pub latency_p99_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetState {
    /// Only the sentinel reads it.
    #[default]
    Watching,
    Armed,
    /// Nothing can be read; the gaps say why.
    Blind,
    /// It has not answered within a deadline, or nothing in it runs; the gaps say why. It is tried again.
    Unresponsive,
    /// The process has gone.
    Lost,
}

/// Something missing, for an operator.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GapView {
    pub what: String,
    pub reason: String,
    pub remedy: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RangeView {
    /// Tells it from others for as long as the agent runs.
    #[serde(default)]
    pub id: String,
    pub target: String,
    pub database: String,
    pub column_family: String,
    /// First key, shown as the policy allows.
    pub begin: String,
    /// First key no longer inside; `None` to the end.
    pub end: Option<String>,
    /// Seek pain, seconds of reader time lost per second.
    pub pain_seconds_per_second: f64,
    /// Tombstones skipped per operation that met the range.
    pub tombstones_per_seek: f64,
    /// Those of them that are in memtables, by what RocksDB says of its memtables.
    #[serde(default)]
    pub memtable_tombstones_per_seek: f64,
    /// Those of them that are neither in SST files nor, as far as is known, in memtables.
    #[serde(default)]
    pub unexplained_tombstones_per_seek: f64,
    /// Whether tombstones are an estimate.
    #[serde(default)]
    pub is_estimated: bool,
    /// Block-cache misses per operation that met the range.
    pub misses_per_seek: f64,
    /// Reader time spent on fetching blocks, seconds per such miss.
    pub seconds_per_miss: f64,
    /// Blocks found in the cache per block that these operations needed, 0 to 1; `None` where they needed
    /// none.
    pub cache_hit_ratio: Option<f64>,
    /// The block misses' part of the pain.
    pub block_read_seconds_per_second: f64,
    /// Deletions per entry in its SST files, 0 to 1.
    pub density: f64,
    /// Bytes that compacting it would rewrite, over all levels; `None` where its SST files cannot be seen.
    pub cost_bytes: Option<u64>,
    /// Pain relieved per byte rewritten, the rank.
    pub relief_per_byte: f64,
    /// Why it stands where it stands, in words.
    pub reason: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanView {
    /// Bytes the plan may spend now.
    pub budget_bytes: u64,
    /// Bytes it would spend.
    pub cost_bytes: u64,
    /// Steps, in order.
    pub steps: Vec<PlanStepView>,
    /// What was not planned, and why.
    pub refusals: Vec<RefusalView>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanStepView {
    /// `compact_range`, `flush`, `set_options` or `set_throttle`.
    pub action: String,
    pub target: String,
    /// Database directory; empty for a throttle.
    #[serde(default)]
    pub database: String,
    /// Column family, or the throttle's name.
    pub subject: String,
    /// First key, shown as the policy allows; for a throttle its value.
    pub begin: String,
    /// First key no longer inside.
    pub end: Option<String>,
    /// Bytes it would rewrite.
    pub cost_bytes: u64,
    /// Bytes of the files it would replace that hard links elsewhere, those of checkpoints, keep on the disk.
    #[serde(default)]
    pub linked_bytes: u64,
    /// Pain it should relieve, seconds per second.
    pub relief_seconds_per_second: f64,
    pub reason: String,
    /// Commands that an operator would run, in mode `advise`.
    pub commands: Vec<String>,
}

/// Something that was not planned.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RefusalView {
    #[serde(default)]
    pub target: String,
    #[serde(default)]
    pub database: String,
    /// Column family and range, or the throttle's name.
    pub subject: String,
    /// Short name of the rule: `cooldown`, `over_budget`, `below_threshold`, ...
    pub rule: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ActionView {
    /// Counts up from 1, over all runs of the agent that share a state directory.
    pub id: u64,
    /// Whether it ended in an earlier run: this run's counters leave it out.
    pub is_earlier: bool,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it ended, RFC 3339; `None` while it runs, or is failing.
    pub ended_at: Option<String>,
    /// `compact_range`, `flush`, `set_options` or `set_throttle`.
    pub action: String,
    pub target: String,
    /// Database directory; empty for a throttle.
    pub database: String,
    /// Column family, or the throttle's name.
    pub subject: String,
    /// First key, shown as the policy allows; what is set, `name=value`, for an option.
    pub begin: String,
    /// First key no longer inside.
    pub end: Option<String>,
    /// Bytes that it was expected to rewrite.
    pub cost_bytes: u64,
    /// Bytes of the files it was expected to replace that hard links elsewhere keep on the disk.
    pub linked_bytes: u64,
    /// `running`, `failing` (a throttle that is tried again and again), `done`, `skipped`, `failed`,
    /// `cancelled`, `stopped` (a guard gave it up), `interrupted` (the agent ended first); `helped` or
    /// `did_not_help` once verified.
    pub state: String,
    /// How often a throttle could not be set so far; 0 for other actions.
    pub failures: u32,
    pub reason: String,
    /// What came of it, in words.
    pub outcome: String,
    /// Bytes of the SST files it replaced, flushed first, or had written when it was stopped.
    pub bytes_rewritten: u64,
    /// Those of them that were in no file before and in none after: flushed first, or thrown away.
    #[serde(default)]
    pub bytes_transient: u64,
    /// How long it took, seconds.
    pub duration_seconds: f64,
    /// Deletions in the range before and after.
    pub deletions_before: u64,
    pub deletions_after: u64,
    /// Deletions in the column family's memtables before; `None` where RocksDB could not be asked.
    #[serde(default)]
    pub memtable_deletions_before: Option<u64>,
    #[serde(default)]
    pub memtable_deletions_after: Option<u64>,
    /// Pain before and, once verified, after.
    pub pain_before: f64,
    /// After; `None` until verified.
    pub pain_after: Option<f64>,
    /// Pain that it promised to relieve, seconds per second.
    #[serde(default)]
    pub relief_promised: f64,
    /// By how much the pain fell; `None` until verified.
    #[serde(default)]
    pub relief_delivered: Option<f64>,
    /// Why it did not help (`pinned_by_snapshot`, `only_moved`, `written_again`, `memtable`,
    /// `nothing_to_drop`, `unknown`), or the guard that it was given up for.
    #[serde(default)]
    pub cause: Option<String>,
    /// How often guards paused it.
    #[serde(default)]
    pub pauses: u32,
    /// Snapshots that were held in the database when it ended; `None` where it could not be asked.
    #[serde(default)]
    pub snapshots: Option<u64>,
    /// How long ago the oldest of them was taken, seconds.
    #[serde(default)]
    pub oldest_snapshot_age_seconds: Option<u64>,
}

/// A value in a target that the agent has changed, or is about to, and has to restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingView {
    /// The action that changes it.
    pub action_id: u64,
    pub target: String,
    /// `option`, `throttle` or `perf_level`.
    pub kind: String,
    /// Database directory and column family of an option.
    pub database: Option<String>,
    pub column_family: Option<String>,
    /// RocksDB's name of the option, or the policy's of the throttle.
    pub name: String,
    pub wanted: String,
    /// The value that was read last.
    pub observed: Option<String>,
    /// What is put back; `None` where the executor remembers it.
    pub restore: Option<String>,
    /// `intended`, `in_force` or `restoring`.
    pub state: String,
    /// Why it is restored.
    pub reason: Option<String>,
}

/// A throttle of the policy on one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottleView {
    pub target: String,
    /// The policy's name of it.
    pub name: String,
    /// The value that it should have now; `None` where that is not known yet.
    pub wanted: Option<String>,
    /// The value that was read last or, where none can be read, set last.
    pub observed: Option<String>,
    /// How long ago it was read, seconds; `None` where it was not.
    pub observed_age_seconds: Option<u64>,
    /// The value before the agent changed it, which it gets back; `None` where it is not changed, or nothing
    /// can tell.
    pub restore: Option<String>,
    /// `in_force`, `to_be_set`, `to_be_read`, `failing`, `restoring`, `yields` (somebody else has set it) or
    /// `not_acted_on` (the mode is not act).
    pub state: String,
    /// The number that it has under full pressure now, and without any; `None` where it does not follow
    /// pressure.
    pub slowest: Option<f64>,
    pub fastest: Option<f64>,
    /// What the policy's numbers are multiplied by now.
    pub ratio: Option<f64>,
    /// Pressure of the target, from 0 to 1, where it follows it.
    pub pressure: Option<f64>,
    /// Why it should have this value.
    pub reason: Option<String>,
    /// Why it could not be set, where that has failed.
    pub failure: Option<String>,
}

/// What a target is under pressure by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PressureView {
    pub target: String,
    /// From 0, none, to 1, full; `None` before its signals were read.
    pub pressure: Option<f64>,
    /// In the policy's order.
    pub signals: Vec<SignalView>,
}

/// One signal of a target's pressure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SignalView {
    /// The policy's name of it.
    pub name: String,
    /// `node_io_pressure`, `device_latency`, `metric`, ...
    pub kind: String,
    /// As it was measured: a share of 1, seconds, or the metric's number; `None` where it cannot be read.
    pub value: Option<f64>,
    /// Its pressure, from 0 to 1.
    pub pressure: Option<f64>,
    /// Why it cannot be read.
    pub trouble: Option<String>,
}

/// What the outside may ask of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "command")]
pub enum Command {
    /// Cancel the running actions, if any, and plan anew.
    CancelAction,
    /// Cancel this action and no other.
    CancelOneAction {
        /// As in `/api/v1/actions`.
        id: u64,
    },
    /// Run the next cycle now instead of waiting for the interval.
    RunCycleNow,
    /// Read the policy's file again.
    ReloadPolicy,
}

/// Commands waiting for the engine; more than that means that something is flooding us.
pub const COMMANDS_QUEUED_MAX: usize = 16;
