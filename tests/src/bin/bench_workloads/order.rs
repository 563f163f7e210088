//! What the bench orders from a host process, and what the host reports: JSON both ways.

use crate::workload::Scale;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;

/// One piece of work for a host process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub workload: String,
    pub scale: Scale,
    pub seed: u64,
    /// Holds one directory for each database.
    pub directory: PathBuf,
    pub task: Task,
    pub settings: Settings,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Create the databases and fill them.
    Fill,
    /// Compact everything, then find out what a list takes where nothing is wrong.
    Healthy,
    /// Open the filled databases, and read and write at the workload's pace.
    Run(Lengths),
}

/// Parts of a run, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// Before the contender begins: caches are filled.
    pub lead_seconds: u64,
    /// From the contender's beginning on: bytes and lost time count, latencies do not yet.
    pub settle_seconds: u64,
    /// What follows: everything counts.
    pub measured_seconds: u64,
}

/// What an application or its operator has set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub collector: Option<Collector>,
    /// Options of every column family, set as soon as the database is open.
    pub options: Vec<(String, String)>,
    /// Pause between the beginnings of two compactions of everything; the first begins with the contender.
    pub compact_interval_seconds: Option<u64>,
}

/// RocksDB's `CompactOnDeletionCollector`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collector {
    pub window: usize,
    pub trigger: usize,
    /// Deletions per entry of a whole file; 0: not looked at.
    pub ratio: f64,
}

/// One line of a host's report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Line {
    Filled(Filled),
    Healthy(Healthy),
    /// The lead is over: the contender begins.
    Ready,
    Measured(Box<Measured>),
    /// All rows have been read, and are what was written.
    Verified(Verified),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Filled {
    pub seconds: f64,
    pub sst_files: u64,
    pub sst_bytes: u64,
    pub sst_deletions: u64,
}

/// A list where everything has been compacted and nobody writes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Healthy {
    pub list_mean_ns: f64,
}

/// What a run came to. Latencies and rates are those of the measured part; all else begins with the
/// contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub list: Latencies,
    /// The positioning call of a list.
    pub seek: Latencies,
    pub get: Latencies,
    pub write: Latencies,
    /// Operations of all kinds, a second.
    pub operations_per_second: f64,
    pub tombstones_per_list: f64,
    pub block_reads_per_list: f64,
    /// Since the contender's beginning.
    pub seconds: Vec<Second>,
    pub flushed_bytes: u64,
    pub compaction_read_bytes: u64,
    pub compaction_written_bytes: u64,
    pub stall_us: u64,
    /// Live SST files at the contender's beginning and at the end.
    pub sst_bytes_before: u64,
    pub sst_bytes_after: u64,
    /// Most that SST files took on the disk, obsolete ones included.
    pub disk_peak_bytes: u64,
    /// Of all threads, RocksDB's own included.
    pub processor_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    pub lists: u64,
    /// Lists that were due while all threads were in a list.
    pub lists_missed: u64,
    /// Sum of the latencies of those that ended.
    pub list_ns: u64,
    /// Read and written by compactions.
    pub compaction_bytes: u64,
    pub sst_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Verified {
    pub rows: u64,
    /// Lists and gets that were compared with what was written.
    pub answers: u64,
}

/// Prints one line, at once.
pub fn print(line: &Line) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, line).context("printing the report")?;
    output.write_all(b"\n").and_then(|()| output.flush()).context("printing the report")
}
