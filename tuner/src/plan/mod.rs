//! The plan: what to do now, what not to do, and why. A pure function of its input.

mod automatic;
pub mod ends;
pub mod job;
pub(crate) mod left_out;
mod pins;
pub(crate) mod planner;
pub mod primitive;
mod prospect;
pub(crate) mod queue;
pub(crate) mod remedy;
pub mod reprice;
mod rules;
mod together;

use crate::facts::evidence::Evidence;
use crate::facts::range::KeyRange;
use crate::limits::guard::DiskPrice;
use crate::limits::throttle::{KnownThrottles, ThrottleRestore, ThrottleSetting, ThrottleState};
use crate::lsm::cost::Bottommost;
use crate::plan::primitive::Primitive;
use crate::policy::{Policy, TargetPolicy, TimeSpan};
use crate::rank::RangeAssessment;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Most compactions in one plan: by the time of the last one the first one's evidence is old.
pub const COMPACTIONS_MAX: usize = 64;

/// Most refusals that are told, greatest pain first.
pub const REFUSALS_MAX: usize = 256;

/// One target with its part of the policy and the evidence of its databases.
#[derive(Clone, Copy, Debug)]
pub struct PlanTarget<'a> {
    /// Target's name, as in `evidence.target`.
    pub name: &'a str,
    /// Its part of the policy.
    pub policy: &'a TargetPolicy,
    /// One for each of its databases; none where only throttles are to be planned.
    pub evidence: &'a [Evidence],
}

/// What may be spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that may be rewritten now, over all targets.
    pub available_bytes: u64,
}

/// Everything a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// What the operator wants.
    pub policy: &'a Policy,
    pub targets: &'a [PlanTarget<'a>],
    /// What may be spent.
    pub budget: Budget,
    /// What is known of throttles: those whose value is in force, or whose command rests, are not planned.
    pub throttles: &'a KnownThrottles,
    /// The time the plan is for.
    pub now: Timestamp,
    /// An earlier plan: the difference tells whether tombstones are becoming more. Without one nothing waits.
    pub previous: Option<&'a Plan>,
}

/// What to do now, what not to do, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The time it is for.
    pub at: Timestamp,
    /// Bytes that may be rewritten.
    pub budget_bytes: u64,
    /// Bytes that the actions would write: never more than the budget.
    pub cost_bytes: u64,
    /// In the order to carry them out: throttles, options, flushes, then compactions, best first.
    pub actions: Vec<Action>,
    /// Ranges that hurt and are left alone, and why.
    pub refusals: Vec<Refusal>,
    /// Every range that readers lose time in, best first.
    pub assessments: Vec<RangeAssessment>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum Action {
    /// Compact a range of keys.
    CompactRange(CompactRange),
    /// Flush a column family.
    Flush(Flush),
    /// Set an option of a column family.
    SetOptions(SetOptions),
    SetThrottle(SetThrottle),
}

/// A job: keys to compact, and with them the files that RocksDB takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompactRange {
    pub target: String,
    pub database: String,
    pub column_family: String,
    pub range: KeyRange,
    /// What readers lose in these keys: where the relief is to be looked for.
    pub before: Box<RangeAssessment>,
    /// By which call.
    #[serde(default)]
    pub primitive: Primitive,
    /// What `CompactRange` does with the bottommost level's files: forced only where they hold tombstones.
    #[serde(default)]
    pub bottommost: Bottommost,
    /// Bytes it would rewrite.
    pub cost_bytes: u64,
    /// Bytes that the largest of its jobs rewrites: so much room on the disk it needs meanwhile.
    #[serde(default)]
    pub largest_job_bytes: u64,
    /// Bytes of the files it replaces that hard links elsewhere, those of checkpoints, keep on the disk.
    #[serde(default)]
    pub linked_bytes: u64,
    /// Pain that compacting these keys should relieve.
    pub relief_seconds_per_second: f64,
    pub deletions: u64,
    pub reason: String,
}

impl CompactRange {
    /// The assessed range, with the relief that these keys alone should bring.
    pub fn prediction(&self) -> RangeAssessment {
        predicted(&self.before, self.relief_seconds_per_second)
    }

    /// What it takes of the disk.
    pub fn disk_price(&self) -> DiskPrice {
        DiskPrice { written_bytes: self.cost_bytes, linked_bytes: self.linked_bytes }
    }
}

/// A column family to flush: the tombstones that hurt lie in its memtables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flush {
    pub target: String,
    pub database: String,
    pub column_family: String,
    /// The ranges that hurt.
    pub ranges: Vec<KeyRange>,
    /// The worst of them: where the relief is to be looked for.
    pub before: Box<RangeAssessment>,
    pub pain_seconds_per_second: f64,
    /// Bytes it would write: a full memtable at most.
    pub cost_bytes: u64,
    /// Pain it should relieve.
    pub relief_seconds_per_second: f64,
    pub reason: String,
}

impl Flush {
    /// The worst range, with its share of the relief.
    pub fn prediction(&self) -> RangeAssessment {
        predicted_share(&self.before, self.pain_seconds_per_second, self.relief_seconds_per_second)
    }

    /// One more range that it is for.
    pub(crate) fn add(&mut self, range: &RangeAssessment, relief: f64) {
        add_range(range, (&mut self.ranges, &mut self.before, &mut self.pain_seconds_per_second));
        self.relief_seconds_per_second += relief;
    }
}

/// An option of a column family to set while its database is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetOptions {
    pub target: String,
    pub database: String,
    pub column_family: String,
    /// RocksDB's name of the option.
    pub name: String,
    /// Its new value.
    pub value: String,
    /// The value that is in force, to be put back when the option is not wanted any more.
    pub restore: String,
    /// The ranges that hurt.
    pub ranges: Vec<KeyRange>,
    /// The worst of them: where the relief is to be looked for.
    pub before: Box<RangeAssessment>,
    pub pain_seconds_per_second: f64,
    /// Pain it should relieve.
    pub relief_seconds_per_second: f64,
    pub reason: String,
}

impl SetOptions {
    /// The worst range, with its share of the relief.
    pub fn prediction(&self) -> RangeAssessment {
        predicted_share(&self.before, self.pain_seconds_per_second, self.relief_seconds_per_second)
    }

    /// One more range that it is for.
    pub(crate) fn add(&mut self, range: &RangeAssessment, relief: f64) {
        add_range(range, (&mut self.ranges, &mut self.before, &mut self.pain_seconds_per_second));
        self.relief_seconds_per_second += relief;
    }
}

fn add_range(range: &RangeAssessment, to: (&mut Vec<KeyRange>, &mut RangeAssessment, &mut f64)) {
    let (ranges, worst, pain) = to;
    ranges.push(range.range.clone());
    *pain += range.pain_seconds_per_second;
    if range.pain_seconds_per_second >= worst.pain_seconds_per_second {
        *worst = range.clone();
    }
}

fn predicted(before: &RangeAssessment, relief_seconds_per_second: f64) -> RangeAssessment {
    RangeAssessment { relief_seconds_per_second, ..before.clone() }
}

/// `relief` is that of ranges whose `pain` is this, and `worst` one of them.
fn predicted_share(worst: &RangeAssessment, pain: f64, relief: f64) -> RangeAssessment {
    let share = if pain > 0.0 { worst.pain_seconds_per_second / pain } else { 0.0 };
    predicted(worst, relief * share)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetThrottle {
    pub target: String,
    /// Throttle's name.
    pub name: String,
    pub value: String,
    /// Program and arguments that set it.
    pub command: Vec<String>,
    /// Program and arguments that print the value in force.
    #[serde(default)]
    pub get: Option<Vec<String>>,
    /// How it gets the value back that `get` has told before; `None` where nothing can tell it.
    #[serde(default)]
    pub restore: Option<ThrottleRestore>,
    /// Whose the commands are; `None`: the agent's user's.
    #[serde(default)]
    pub user: Option<String>,
    /// How long each of the commands may run.
    pub timeout: TimeSpan,
    pub reason: String,
}

impl SetThrottle {
    /// What is to be done in a target that a setting is wanted of.
    pub fn of(target: &str, setting: ThrottleSetting, known: Option<&ThrottleState>) -> SetThrottle {
        SetThrottle {
            restore: setting.restore(known),
            target: target.to_owned(),
            name: setting.name,
            value: setting.value,
            command: setting.command,
            get: setting.get,
            user: setting.user,
            timeout: setting.timeout,
            reason: setting.reason,
        }
    }
}

/// Why a range is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Rule {
    /// The policy says to look only.
    ModeObserve,
    /// The policy says to advise only.
    ModeAdvise,
    /// The SST files cannot be seen: what compacting costs and relieves is not known.
    FilesNotSeen,
    /// No probe could tell the column family.
    UnknownColumnFamily,
    /// The policy excludes the database, or includes others only.
    ExcludedDatabase,
    /// The process has the database open only for reading.
    ReadOnlyDatabase,
    /// The database is a checkpoint of another one.
    Checkpoint,
    /// The database shares SST files with another one, and which of them is the checkpoint cannot be told.
    PossibleCheckpoint,
    /// Several iterators of a thread had moved, and whose the tombstones were does not show.
    AmbiguousIterator,
    /// The policy does not list the column family.
    ExcludedColumnFamily,
    /// Its keys are not in bytewise order, or in which order they are is not known.
    Comparator,
    /// The pain that would be relieved is less than the policy's threshold.
    BelowThreshold,
    /// It would cost readers more than it saves them.
    DoesNotPay,
    /// Readers wait for block reads, which compaction does not spare them.
    NoRelief,
    /// Most tombstones that readers skip are neither in SST files nor, as far as is known, in memtables.
    Unexplained,
    /// RocksDB snapshots that the target holds keep most of its tombstones.
    PinnedBySnapshot,
    /// Too few deletions per entry in the files.
    LowDensity,
    /// FIFO compaction: a compaction by range rewrites nothing.
    FifoCompaction,
    /// None of the remedies that the policy allows would help.
    NoRemedy,
    /// Soon the same bytes will drop many more tombstones.
    Waiting,
    /// RocksDB's own compaction takes the same files next.
    AutomaticCompaction,
    /// It was compacted a short while ago.
    Cooldown,
    /// Compacting it did not help the last times.
    BackOff,
    /// What the last action came to has not been measured yet.
    Unverified,
    /// An earlier run of the agent has begun something in the target, and what came of it is not known.
    InDoubt,
    /// Something else is being done in the target.
    TargetBusy,
    /// The last action on the target has failed.
    AfterFailure,
    /// The setting is to be restored before it is changed anew.
    SettingKept,
    /// What is done cannot be written down.
    StateUnwritable,
    /// A better job shares keys with it.
    Overlap,
    /// There are too many better jobs.
    QueueFull,
    /// It costs more than may be spent.
    OverBudget,
    /// It has become far dearer since it was planned.
    Dearer,
}

impl Rule {
    /// Short name, as in the API: `over_budget`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A range that is left alone, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    pub target: String,
    pub database: String,
    /// Column family; `None` where no probe could tell.
    pub column_family: Option<String>,
    pub range: KeyRange,
    /// Column family and range, keys shown as the policy allows.
    pub subject: String,
    /// The rule that refused it.
    pub rule: Rule,
    /// Since when it has been refused by this rule, where that decides for how long.
    #[serde(default)]
    pub since: Option<Timestamp>,
    pub reason: String,
}
