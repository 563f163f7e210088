//! The part of a policy about what a target must not suffer from being acted on.

use super::{ByteSize, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
        }
    }
}
