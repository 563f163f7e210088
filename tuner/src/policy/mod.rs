//! What the operator wants: the YAML policy, its types, its checks and its JSON Schema.
//!
//! Reading the file and printing a picture of an error is the agent's; this turns text into a
//! [`Policy`] or into a [`PolicyError`] with the line, the column and what to do.

mod check;
mod check_pressure;
mod clock;
mod control;
mod databases;
mod error;
mod explain;
mod glob;
mod guards;
mod margin;
mod matching;
mod merge;
mod parse;
mod pressure;
mod schedule;
mod schema;
mod sources;
mod sql;
mod suggest;
mod target;
mod units;
mod walk;
mod written;

pub use crate::facts::key::KeyDisplay;
pub use crate::rank::ranker::RankerKind;
pub use clock::{CalendarDate, ClockTime, Day, TimeZoneName};
pub use control::{ControlPolicy, WhenChanged};
pub use databases::{DatabasesPolicy, Naming};
pub use error::PolicyError;
pub use explain::{ExplainedTarget, Explanation, Source, Statement, explain, explain_database};
pub use guards::{CommandPolicy, GUARD_PLACEHOLDERS, GuardPolicy, HoldPolicy};
pub use margin::MarginPolicy;
pub use matching::{Candidate, TargetMatch};
pub use merge::POLICY_FILES_MAX;
pub use parse::POLICY_BYTES_MAX;
pub use pressure::{Combine, Level, PressurePolicy, SignalKind, SignalPolicy};
pub use schedule::{Period, PeriodGuards, ThrottleSide};
pub use schema::schema;
pub use sources::{SourceFile, Sources};
pub use sql::{SqlEndpoint, SqlPolicy};
pub use target::{
    ColumnFamilyPolicy, EXEC_PLACEHOLDERS, ExecPolicy, ExecutorKind, PROCESS_PLACEHOLDER, PrefixPolicy,
    RemedyKind, THROTTLE_PLACEHOLDER, TargetPolicy, ThrottlePolicy,
};
pub use units::{ByteRate, ByteSize, CoreShare, PainRate, TimeSpan};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What Sexton may do, when, and to whom. The default watches every RocksDB and changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// What is done with a plan, where a target does not say otherwise. Default: advise.
    pub mode: Mode,
    /// Which processes are watched; the first entry that matches decides. Default: every process that
    /// has a RocksDB.
    pub targets: Vec<TargetPolicy>,
    /// What is recorded, and from where on a range is acted on.
    pub thresholds: Thresholds,
    /// How often is looked, and for how long.
    #[serde(rename = "loop")]
    pub timing: LoopTiming,
    /// What looking may cost a target, where it does not say otherwise.
    pub probes: ProbePolicy,
    /// How much compaction may rewrite, where no period of the schedule says otherwise.
    pub io_budget: IoBudget,
    /// Days and hours in which other values hold. Where several periods are open, the first in the list that
    /// gives a value decides it. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<Period>,
    /// Names of the periods whose values these are; none in a policy as it was written.
    #[serde(skip)]
    pub open_periods: Vec<String>,
    /// How long a range is left alone after it was compacted. Default: 10m.
    pub cooldown: TimeSpan,
    /// Share of the promised relief that has to be delivered for an action to have helped, 0 to 1; less, and
    /// the range is left alone for longer each time. Default: 0.5.
    pub relief_ratio_min: f64,
    /// By what jobs are ranked, and which of them are worth it. Default: margin.
    pub ranker: RankerKind,
    /// When a job pays, for the ranker margin.
    pub margin: MarginPolicy,
    /// What a target must not suffer from being acted on.
    pub guards: GuardPolicy,
    /// Roughly the most data one range holds. Default: 256MiB.
    pub range_bytes_max: ByteSize,
    /// Most bytes that one compaction rewrites: what hurts is cut into jobs at the borders of SST files. A
    /// file that is larger, with what has to go with it, makes a larger job, and so do files that two jobs
    /// would both rewrite. Default: 64MiB, the size that RocksDB gives its files.
    pub slice_bytes_max: ByteSize,
    /// Whether a RocksDB library that is in no table of layouts may be asked where its counters are. That
    /// runs its code, in a process that can do nothing but answer; its code is whatever the process that has
    /// it loaded wants it to be. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ask_libraries: bool,
    /// How keys are shown: they are user data. Default: redacted.
    pub keys: KeyDisplay,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            mode: Mode::Advise,
            targets: vec![TargetPolicy::everything()],
            thresholds: Thresholds::default(),
            timing: LoopTiming::default(),
            probes: ProbePolicy::default(),
            io_budget: IoBudget {
                rate: ByteRate::from_bytes_per_second(16 << 20),
                burst: ByteSize::from_bytes(1 << 30),
            },
            schedule: Vec::new(),
            open_periods: Vec::new(),
            cooldown: TimeSpan::from_seconds(600),
            relief_ratio_min: 0.5,
            ranker: RankerKind::default(),
            margin: MarginPolicy::default(),
            guards: GuardPolicy::default(),
            range_bytes_max: ByteSize::from_bytes(256 << 20),
            slice_bytes_max: ByteSize::from_bytes(64 << 20),
            ask_libraries: false,
            keys: KeyDisplay::Redacted,
        }
    }
}

impl Policy {
    /// Reads and checks a policy. Errors carry the place of the offending value and what to do.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        parse::parse(text)
    }

    /// Reads and checks a policy in several files, which say nothing twice but entries of `targets`; gives
    /// where what stands, too. Errors carry the number of the file.
    pub fn parse_files(files: Vec<SourceFile>) -> Result<(Policy, Sources), PolicyError> {
        merge::parse_files(files)
    }

    /// The first entry whose conditions the process meets; `None`: the process is not watched.
    pub fn target_for(&self, candidate: &Candidate<'_>) -> Option<&TargetPolicy> {
        self.targets.iter().find(|target| target.matches.holds(candidate))
    }

    /// Whether every process is matched, whatever it is.
    pub fn matches_everything(&self) -> bool {
        self.targets.iter().any(|target| target.matches.is_empty())
    }

    /// Entries in mode act that every local user can run a process for.
    pub fn acts_for_everybody(&self) -> impl Iterator<Item = &TargetPolicy> {
        let acts = |target: &&TargetPolicy| self.mode_of(target) == Mode::Act;
        self.targets.iter().filter(acts).filter(|target| target.matches.is_open_to_everybody())
    }

    /// Whether something of a target may be changed.
    pub fn changes_anything(&self) -> bool {
        self.targets.iter().any(|target| self.mode_of(target) == Mode::Act || target.raise_perf_level)
    }

    /// Whether any entry looks at command lines.
    pub fn matches_command_lines(&self) -> bool {
        self.targets.iter().any(|target| target.matches.command_line.is_some())
    }

    /// What may be done to this target.
    pub fn mode_of(&self, target: &TargetPolicy) -> Mode {
        target.mode.unwrap_or(self.mode)
    }

    /// What looking at this target may cost it.
    pub fn probes_of(&self, target: &TargetPolicy) -> ProbePolicy {
        target.probes.unwrap_or(self.probes)
    }
}

/// What is done with a plan; each does more than the one before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Look and report; no plan.
    Observe,
    /// Plan, and show the commands an operator would run; change nothing.
    #[default]
    Advise,
    /// Carry the plan out.
    Act,
}

/// What is recorded, and from where on a range is acted on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Tombstones of an operation that is recorded by itself; of smaller ones a sample is, so many tombstones
    /// a record. The size follows the load from there on. Default: 1000.
    pub tombstones_per_operation: u64,
    /// The same for block-cache misses. Default: 64.
    pub block_reads_per_operation: u64,
    /// Least seek pain that one job, which is one compaction, has to relieve to be worth an action, with the
    /// rankers that go by what readers lose. Default: 5ms/s.
    pub pain: PainRate,
    /// From this many deletions per entry in SST files on, 0 to 1, keys count as dense: the ranker density
    /// acts on these alone, and no range has both dense and other files. Default: 0.1.
    pub density: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            tombstones_per_operation: 1000,
            block_reads_per_operation: 64,
            pain: PainRate::from_nanoseconds_per_second(5_000_000),
            density: 0.1,
        }
    }
}

/// How often is looked, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoopTiming {
    /// From one cycle to the next. Default: 5s.
    pub interval: TimeSpan,
    /// How long the probes are armed in a cycle that has them; at most the interval. Default: 2s.
    pub window: TimeSpan,
    /// A window is opened this often even where the sentinel sees no pain. Default: 60s.
    pub survey: TimeSpan,
}

impl Default for LoopTiming {
    fn default() -> LoopTiming {
        LoopTiming {
            interval: TimeSpan::from_seconds(5),
            window: TimeSpan::from_seconds(2),
            survey: TimeSpan::from_seconds(60),
        }
    }
}

/// What looking may cost a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProbePolicy {
    /// Time that probes may take from all threads of a target, as a share of one processor core. Windows
    /// get shorter and rarer to keep it; 0% is no windows at all, the sentinel costs a target nothing.
    /// Default: 0.4%.
    pub budget: CoreShare,
}

impl Default for ProbePolicy {
    fn default() -> ProbePolicy {
        ProbePolicy { budget: CoreShare::from_parts_per_million(4_000) }
    }
}

/// How much compaction may rewrite: a token bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IoBudget {
    /// Bytes that come in per second.
    pub rate: ByteRate,
    /// Most bytes that can be saved up; no single action can cost more.
    pub burst: ByteSize,
}

/// Reads an optional field that is there: an empty one (`databases:` and then nothing, as in a text
/// that breaks off) is an error and not the same as leaving it out.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}
