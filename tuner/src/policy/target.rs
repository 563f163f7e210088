//! The part of a policy about one kind of process: how it is recognised and acted on.

use super::{
    ControlPolicy, DatabasesPolicy, Mode, Naming, PressurePolicy, ProbePolicy, SqlPolicy, TargetMatch,
    ThrottleSide, TimeSpan, WhenChanged, present,
};
use crate::facts::prefix::PrefixRule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Placeholders that `exec.compact` may hold; the agent fills them in.
pub const EXEC_PLACEHOLDERS: [&str; 5] = ["{begin_hex}", "{end_hex}", "{column_family}", "{path}", "{pid}"];

/// Placeholder of a throttle's command for the value to set.
pub const THROTTLE_PLACEHOLDER: &str = "{value}";

/// Placeholder of a throttle's commands for the target's process.
pub const PROCESS_PLACEHOLDER: &str = "{pid}";

/// One kind of process and what may be done to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetPolicy {
    /// Name of the entry.
    pub name: String,
    /// Which processes it is about.
    #[serde(rename = "match")]
    pub matches: TargetMatch,
    /// Overrides the policy's mode.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Overrides what looking may cost.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbePolicy>,
    /// Who compacts. Default: hook.
    #[serde(default)]
    pub executor: ExecutorKind,
    /// The command, with `executor: exec`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecPolicy>,
    /// The user that commands (`exec`, `throttles`, the client of `sql`, and the guards') run as, with the
    /// groups that it is in; the agent has to be root, or to have CAP_SETUID and CAP_SETGID. They have no
    /// capability, whoever they run as. Default: the agent's own user.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub commands_user: Option<String>,
    /// How the server is reached, with `executor: sql`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub sql: Option<SqlPolicy>,
    /// What may be done to a range that hurts; of these what relieves most per byte is done. Default:
    /// compact, wait.
    #[serde(default = "RemedyKind::default_list")]
    pub remedies: Vec<RemedyKind>,
    /// Whether RocksDB's perf level is raised in threads that have it off, so that they count. This writes
    /// one byte of each such thread, in any mode, as long as the process is watched; each thread gets its
    /// former level back, even when the agent is killed. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub raise_perf_level: bool,
    /// Databases that may be acted on. Default: all that are no checkpoints of others.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub databases: Option<DatabasesPolicy>,
    /// Column families that may be acted on. Default: all, without prefixes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub column_families: Vec<ColumnFamilyPolicy>,
    /// What the target is under pressure by, for throttles with `control`. Default: nothing, and so there is
    /// no pressure.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressurePolicy>,
    /// Settings that follow the schedule: with one value inside of periods and another outside, or between
    /// two numbers by pressure. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttles: Vec<ThrottlePolicy>,
}

impl TargetPolicy {
    /// The entry of a policy that names no targets: every process that has a RocksDB.
    pub fn everything() -> TargetPolicy {
        TargetPolicy {
            name: "every-rocksdb".to_owned(),
            matches: TargetMatch::default(),
            mode: None,
            probes: None,
            executor: ExecutorKind::default(),
            exec: None,
            commands_user: None,
            sql: None,
            remedies: RemedyKind::default_list(),
            raise_perf_level: false,
            databases: None,
            column_families: Vec::new(),
            pressure: None,
            throttles: Vec::new(),
        }
    }

    /// What is said of the database in this directory.
    pub fn naming(&self, directory: &str) -> Naming<'_> {
        self.databases.as_ref().map_or(Naming::Unnamed, |databases| databases.naming(directory))
    }

    /// Whether ranges of this column family may be acted on.
    pub fn includes(&self, column_family: &str) -> bool {
        self.column_families.is_empty() || self.column_family(column_family).is_some()
    }

    /// Where the column family's keys are cut; `None`: at SST borders only.
    pub fn prefix_rule(&self, column_family: &str) -> Option<PrefixRule> {
        self.column_family(column_family)?.prefix.as_ref()?.rule()
    }

    /// The entry with this name, else the one for any other.
    fn column_family(&self, name: &str) -> Option<&ColumnFamilyPolicy> {
        let named = self.column_families.iter().find(|entry| entry.name == name);
        named.or_else(|| self.column_families.iter().find(|entry| entry.name == ColumnFamilyPolicy::ANY))
    }
}

/// Who compacts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ExecutorKind {
    /// Our library inside the target.
    #[default]
    Hook,
    /// A command.
    Exec,
    /// A statement to a MyRocks server, which compacts the whole column family.
    Sql,
    /// Nobody: plans are made, and shown.
    None,
}

impl ExecutorKind {
    /// As in a policy: `hook`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it compacts the keys that it is asked for; where not, all of their column family.
    pub fn takes_ranges(self) -> bool {
        self != ExecutorKind::Sql
    }

    /// Whether it can flush and set options.
    pub fn has_hook(self) -> bool {
        self == ExecutorKind::Hook
    }
}

/// One kind of thing that helps readers past tombstones.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RemedyKind {
    /// Flushing the column family, where the tombstones lie in memtables. Needs the hook.
    Flush,
    /// Compacting the range, slice by slice.
    #[default]
    Compact,
    /// Waiting a little while tombstones still spread over files that would have to be rewritten with them.
    Wait,
    /// Setting an option of RocksDB at run time. It is put back when it is not wanted any more, or the agent
    /// ends. Needs the hook.
    Options,
}

impl RemedyKind {
    /// What may be done where the policy does not say: nothing that stays behind in the target.
    fn default_list() -> Vec<RemedyKind> {
        vec![RemedyKind::Compact, RemedyKind::Wait]
    }

    /// Name in a policy: `compact`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A command that compacts a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecPolicy {
    /// Program and arguments, no shell; `{begin_hex}`, `{end_hex}`, `{column_family}`, `{path}` and
    /// `{pid}` are filled in.
    pub compact: Vec<String>,
    /// How long it may run. Default: 10m.
    #[serde(default = "exec_timeout")]
    pub timeout: TimeSpan,
}

fn exec_timeout() -> TimeSpan {
    TimeSpan::from_seconds(600)
}

/// What is known of one column family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColumnFamilyPolicy {
    /// Its name; `*` is any other.
    pub name: String,
    /// Where its keys are cut. Default: at SST borders only.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub prefix: Option<PrefixPolicy>,
}

impl ColumnFamilyPolicy {
    /// Name that stands for any other column family.
    pub const ANY: &'static str = "*";
}

/// Where keys are cut: either `bytes`, or `delimiter` and `count`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrefixPolicy {
    /// Length of the prefix in bytes.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u32>,
    /// One ASCII character that ends a part of the key.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<String>,
    /// The prefix ends with the delimiter of this number.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

impl PrefixPolicy {
    /// As a rule; `None` unless exactly one way of cutting is given.
    pub fn rule(&self) -> Option<PrefixRule> {
        match (self.bytes, self.delimiter.as_deref().map(str::as_bytes), self.count) {
            (Some(bytes), None, None) if bytes > 0 => Some(PrefixRule::Bytes(usize::try_from(bytes).ok()?)),
            (None, Some([delimiter]), Some(count)) if count > 0 => {
                Some(PrefixRule::Delimiter { delimiter: *delimiter, count: usize::try_from(count).ok()? })
            }
            _ => None,
        }
    }
}

/// A setting of the target that has one value inside the periods of the schedule and another outside, or a
/// number that follows pressure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottlePolicy {
    /// Name of the throttle.
    pub name: String,
    /// Value inside of periods.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Value inside of periods as a multiple of the one outside, which is a number then.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub inside_ratio: Option<f64>,
    /// Value outside of periods; the only one without a schedule.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// Instead of `inside` and `outside`: a number that follows pressure. Default: none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlPolicy>,
    /// Program and arguments, no shell; `{value}` and `{pid}` are filled in.
    pub command: Vec<String>,
    /// Program and arguments, no shell, that print the value in force as the target itself tells it: the
    /// first line of their output; `{pid}` is filled in. It is asked before the command, whose work is left
    /// undone where the wanted value is in force already, and after it, which has failed where the value is
    /// another one; and every `read_interval`. What it told before the first change is restored when the
    /// throttle is not wanted any more or the agent ends, unless somebody else has set another value.
    /// Default: none, a command that ends with exit code 0 is believed, and nothing is restored.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub get: Option<Vec<String>>,
    /// How often the value in force is read. Default: 5m.
    #[serde(default = "read_interval")]
    pub read_interval: TimeSpan,
    /// What is done where somebody else has changed the value. Default: insist.
    #[serde(default, skip_serializing_if = "WhenChanged::is_insist")]
    pub when_changed: WhenChanged,
    /// How long each of the two commands may run. Default: 30s.
    #[serde(default = "throttle_timeout")]
    pub timeout: TimeSpan,
}

impl ThrottlePolicy {
    /// Its value on one side; `None` where it follows pressure.
    pub(crate) fn value(&self, side: ThrottleSide) -> Option<String> {
        let outside = self.outside.as_ref()?;
        let value = match (side, &self.inside, self.inside_ratio, outside.parse::<f64>()) {
            (ThrottleSide::Inside, Some(inside), ..) => inside.clone(),
            (ThrottleSide::Inside, None, Some(ratio), Ok(number)) => {
                let is_whole = outside.parse::<i64>().is_ok();
                let value = number * ratio;
                (if is_whole { value.round() } else { value }).to_string()
            }
            _ => outside.clone(),
        };
        Some(value)
    }

    /// Between which numbers pressure moves it on one side, the slowest first; `None` where it follows none.
    pub fn bounds(&self, side: ThrottleSide) -> Option<(f64, f64)> {
        let (control, ratio) = (self.control.as_ref()?, self.ratio(side));
        Some((control.slowest * ratio, control.fastest * ratio))
    }

    /// What the numbers of its control are multiplied by on one side.
    pub fn ratio(&self, side: ThrottleSide) -> f64 {
        if side == ThrottleSide::Inside { self.inside_ratio.unwrap_or(1.0) } else { 1.0 }
    }
}

fn read_interval() -> TimeSpan {
    TimeSpan::from_seconds(5 * 60)
}

fn throttle_timeout() -> TimeSpan {
    TimeSpan::from_seconds(30)
}
