//! What guards are held against: readings of a target and of what it stands on.

use super::guard::Guard;
use crate::facts::latency::LatencyReading;
use serde::{Deserialize, Serialize};

/// RocksDB's default of `level0_slowdown_writes_trigger`, where the target's options do not say.
pub const LEVEL0_SLOWDOWN_FILES_DEFAULT: u64 = 20;

/// RocksDB's default of `soft_pending_compaction_bytes_limit`.
pub const PENDING_COMPACTION_BYTES_SOFT_DEFAULT: u64 = 64 << 30;

/// What is known of one column family; `None`: it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FamilyReadings {
    pub name: String,
    /// `rocksdb.num-files-at-level0`.
    pub level0_files: Option<u64>,
    /// Its `level0_slowdown_writes_trigger`; `None` is the default, below zero: none.
    pub level0_slowdown_files: Option<i64>,
    /// `rocksdb.estimate-pending-compaction-bytes`.
    pub pending_compaction_bytes: Option<u64>,
    /// Its `soft_pending_compaction_bytes_limit`; `None` is the default, 0: none.
    pub pending_compaction_bytes_soft: Option<u64>,
    /// `disable_auto_compactions`: then neither of the two delays writes, and nobody else compacts.
    pub disable_auto_compactions: bool,
}

impl FamilyReadings {
    /// Files in L0, the most that the guard lets be there, and those at which writes are delayed.
    pub(super) fn level0(&self, share_max: f64) -> Option<(u64, u64, u64)> {
        let trigger = match self.level0_slowdown_files {
            None => LEVEL0_SLOWDOWN_FILES_DEFAULT,
            Some(stated) => u64::try_from(stated).ok()?,
        };
        let files = self.level0_files.filter(|_| !self.disable_auto_compactions)?;
        Some((files, share(share_max, trigger), trigger))
    }

    /// The same for bytes that wait for compaction.
    pub(super) fn pending(&self, share_max: f64) -> Option<(u64, u64, u64)> {
        let soft = self.pending_compaction_bytes_soft.unwrap_or(PENDING_COMPACTION_BYTES_SOFT_DEFAULT);
        let pending = self.pending_compaction_bytes.filter(|_| !self.disable_auto_compactions && soft > 0)?;
        Some((pending, share(share_max, soft), soft))
    }
}

/// What is known of a target and of what it stands on; `None`: it could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Readings {
    /// The database's column families, as far as they are known: RocksDB delays the writes of all for one of
    /// them.
    pub families: Vec<FamilyReadings>,
    /// `rocksdb.mem-table-flush-pending` of the column family.
    pub is_flush_pending: Option<bool>,
    /// `rocksdb.actual-delayed-write-rate`, bytes a second; 0: writes are not delayed.
    pub delayed_write_bytes_per_second: Option<u64>,
    /// `rocksdb.is-write-stopped`.
    pub is_write_stopped: Option<bool>,
    /// Slices that may run in the databases on the same block device; where the policy counts RocksDB's own
    /// compactions, `rocksdb.num-running-compactions` of them all.
    pub compactions_on_device: Option<u64>,
    /// Bytes that are free in the database's file system.
    pub disk_free_bytes: Option<u64>,
    /// How long the process has been there, seconds.
    pub target_age_seconds: Option<u64>,
    /// Bytes rewritten in the last 24 hours, in all targets.
    pub bytes_of_day: u64,
    /// Seeks, before the slice and while it runs.
    pub seek_latency: Option<LatencyReading>,
    /// Block reads, before the slice and while it runs.
    pub block_read_latency: Option<LatencyReading>,
}

impl Readings {
    /// Guards that cannot object before an action for want of a reading.
    pub fn unread(&self) -> Vec<Guard> {
        let readings = [
            (Guard::WriteStopped, self.is_write_stopped.is_none()),
            (Guard::WriteDelayed, self.delayed_write_bytes_per_second.is_none()),
            (Guard::Level0Files, self.families.iter().all(|family| family.level0_files.is_none())),
            (
                Guard::PendingCompactionBytes,
                self.families.iter().all(|family| family.pending_compaction_bytes.is_none()),
            ),
            (Guard::FlushPending, self.is_flush_pending.is_none()),
            (Guard::DiskSpace, self.disk_free_bytes.is_none()),
            (Guard::DeviceBusy, self.compactions_on_device.is_none()),
            (Guard::TargetAge, self.target_age_seconds.is_none()),
        ];
        readings.into_iter().filter(|(_, is_missing)| *is_missing).map(|(guard, _)| guard).collect()
    }
}

/// A share of a number, at least 1.
fn share(share: f64, of: u64) -> u64 {
    // The cast saturates.
    ((of as f64 * share) as u64).max(1)
}
