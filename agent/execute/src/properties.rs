//! What a RocksDB says of itself, asked over the hook.

use super::error::ExecuteError;
use super::hook::HookClient;
use sexton_hook_protocol::{ColumnFamilyLoad, ColumnFamilyPointers};
use sexton_tuner::evidence::MemtableDeletions;
use sexton_tuner::guard::Readings;

/// Properties of a column family and of its database; `None` where this RocksDB does not know one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// `rocksdb.num-files-at-level0`.
    pub level0_files: Option<u64>,
    /// `rocksdb.estimate-pending-compaction-bytes`.
    pub pending_compaction_bytes: Option<u64>,
    /// `rocksdb.mem-table-flush-pending`.
    pub is_flush_pending: Option<bool>,
    /// `rocksdb.actual-delayed-write-rate`, bytes a second; 0: not delayed.
    pub delayed_write_bytes_per_second: Option<u64>,
    /// `rocksdb.is-write-stopped`.
    pub is_write_stopped: Option<bool>,
    /// `rocksdb.num-running-compactions`.
    pub running_compactions: Option<u64>,
    /// `rocksdb.num-snapshots`.
    pub snapshots: Option<u64>,
    /// `rocksdb.oldest-snapshot-time`, seconds since the Unix epoch; `None` also without a snapshot.
    pub oldest_snapshot_unix_s: Option<u64>,
    /// `rocksdb.oldest-snapshot-sequence`; `None` also without a snapshot.
    pub oldest_snapshot_sequence: Option<u64>,
    /// `rocksdb.num-deletes-active-mem-table`.
    pub deletions_in_active_memtable: Option<u64>,
    /// `rocksdb.num-deletes-imm-mem-tables`.
    pub deletions_in_immutable_memtables: Option<u64>,
}

impl Properties {
    /// Asks for all of them, a few microseconds each.
    ///
    /// # Errors
    /// When the hook does not answer, or refuses the pointers.
    pub fn read(
        hook: &mut HookClient,
        column_family: &ColumnFamilyPointers,
    ) -> Result<Properties, ExecuteError> {
        let mut number = |name: &str| -> Result<Option<u64>, ExecuteError> {
            let value = hook.property(column_family, &format!("rocksdb.{name}"))?;
            Ok(value.and_then(|text| text.trim().parse().ok()))
        };
        Ok(Properties {
            level0_files: number("num-files-at-level0")?,
            pending_compaction_bytes: number("estimate-pending-compaction-bytes")?,
            is_flush_pending: number("mem-table-flush-pending")?.map(|value| value > 0),
            delayed_write_bytes_per_second: number("actual-delayed-write-rate")?,
            is_write_stopped: number("is-write-stopped")?.map(|value| value > 0),
            running_compactions: number("num-running-compactions")?,
            snapshots: number("num-snapshots")?,
            oldest_snapshot_unix_s: number("oldest-snapshot-time")?.filter(|time| *time > 0),
            oldest_snapshot_sequence: number("oldest-snapshot-sequence")?.filter(|sequence| *sequence > 0),
            deletions_in_active_memtable: number("num-deletes-active-mem-table")?,
            deletions_in_immutable_memtables: number("num-deletes-imm-mem-tables")?,
        })
    }

    /// Deletions in the column family's memtables; `None` where this RocksDB does not tell of all of them.
    pub fn memtable_deletions(&self) -> Option<MemtableDeletions> {
        Some(MemtableDeletions {
            active: self.deletions_in_active_memtable?,
            immutable: self.deletions_in_immutable_memtables?,
        })
    }

    /// What waits to be compacted in the column family that was asked.
    pub fn load(&self, column_family: &str) -> ColumnFamilyLoad {
        ColumnFamilyLoad {
            name: column_family.to_owned(),
            level0_files: self.level0_files,
            pending_compaction_bytes: self.pending_compaction_bytes,
        }
    }

    /// Fills in the guards' readings, but for those of column families.
    pub fn fill(&self, readings: &mut Readings) {
        readings.is_flush_pending = self.is_flush_pending;
        readings.delayed_write_bytes_per_second = self.delayed_write_bytes_per_second;
        readings.is_write_stopped = self.is_write_stopped;
    }
}
