//! The part of a policy about what a target must not suffer from being acted on.

use super::{ByteSize, TimeSpan, present};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Placeholders that the guards' commands may hold: the policy's entry, which is the same on all nodes, the
/// database's directory and the process.
pub const GUARD_PLACEHOLDERS: [&str; 3] = ["{entry}", "{path}", "{pid}"];

/// From where on a target is left alone: before an action begins, and while one runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GuardPolicy {
    /// L0 files, as a share of `level0_slowdown_writes_trigger`, 0 to 1. Default: 0.7.
    pub level0_slowdown_ratio_max: f64,
    /// Estimated pending compaction bytes, as a share of `soft_pending_compaction_bytes_limit`, 0 to 1.
    /// Default: 0.5.
    pub pending_compaction_ratio_max: f64,
    /// Bytes that stay free in the database's file system while a slice is written. Default: 1GiB.
    pub disk_free_min: ByteSize,
    /// A younger process is not acted on. Default: 1m.
    pub process_uptime_min: TimeSpan,
    /// The 99th percentile of seek and block-read latency while a slice runs, as a multiple of that before;
    /// at least 1. Default: 2.
    pub latency_ratio_max: f64,
    /// A 99th percentile that rises by less than this hurts nobody. Default: 2ms.
    pub latency_increase_min: TimeSpan,
    /// Most bytes rewritten in any 24 hours, in all targets together. Default: 256GiB.
    pub bytes_per_day_max: ByteSize,
    /// Most slices at the same time in the databases of one block device. Default: 1.
    pub compactions_per_device_max: u32,
    /// Whether RocksDB's own compactions count among them: on a disk that cannot bear one more. Where writers
    /// are busy there is one most of the time, and then nothing is done. Default: false.
    pub count_rocksdb_compactions: bool,
    /// A lock that an action in a database runs under, so that of several nodes one acts at a time.
    /// Default: none.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldPolicy>,
    /// A command that is asked before an action in a database begins, with the lock of `hold` held.
    /// Default: none.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandPolicy>,
}

impl Default for GuardPolicy {
    fn default() -> GuardPolicy {
        GuardPolicy {
            level0_slowdown_ratio_max: 0.7,
            pending_compaction_ratio_max: 0.5,
            disk_free_min: ByteSize::from_bytes(1 << 30),
            process_uptime_min: TimeSpan::from_seconds(60),
            latency_ratio_max: 2.0,
            latency_increase_min: TimeSpan::from_nanoseconds(2_000_000),
            bytes_per_day_max: ByteSize::from_bytes(256 << 30),
            compactions_per_device_max: 1,
            count_rocksdb_compactions: false,
            hold: None,
            command: None,
        }
    }
}

/// A lock, held by a command as long as it runs. It runs as the entry's `commands_user`, without any
/// capability, and once for each action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldPolicy {
    /// Program and arguments, no shell; `{entry}`, `{path}` and `{pid}` are filled in. The lock is held from
    /// the first end of a line on that the command writes to its standard output, until the command ends;
    /// ends it while the action runs, then the action is stopped. When the action is over, the command's
    /// standard input ends and it gets SIGTERM, and after five seconds SIGKILL. If the agent is killed, it
    /// gets SIGKILL at once: a lock at a server needs a time to live.
    pub run: Vec<String>,
    /// How long the lock is waited for; other targets are acted on meanwhile. Then the action is refused, and
    /// the lock asked for again after a pause that doubles, at most five minutes. Default: 1m.
    #[serde(default = "acquire_timeout")]
    pub acquire_timeout: TimeSpan,
}

fn acquire_timeout() -> TimeSpan {
    TimeSpan::from_seconds(60)
}

/// A question to a command, which says yes by ending with exit code 0. It runs as the entry's
/// `commands_user`, without any capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandPolicy {
    /// Program and arguments, no shell; `{entry}`, `{path}` and `{pid}` are filled in.
    pub run: Vec<String>,
    /// How long it may run. After a no, and when it takes longer, the action is refused, and it is asked
    /// again after a pause that doubles, at most five minutes. Default: 10s.
    #[serde(default = "command_timeout")]
    pub timeout: TimeSpan,
}

fn command_timeout() -> TimeSpan {
    TimeSpan::from_seconds(10)
}
