//! The queue workload's report: one JSON object a line, written by `sexton-queue-workload` and read by
//! the demo and the tests.

use crate::{artifact, process};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Column family that the workload writes to and lists.
pub const COLUMN_FAMILY: &str = "keyTable";
/// Column family that nobody reads.
pub const OTHER_COLUMN_FAMILY: &str = "otherTable";
/// What all keys begin with, and where a list starts.
pub const PREFIX: &str = "/vol1/bucket1/";

/// A policy for the workload in process `pid`, whose hook acts: mode and remedies as in YAML, and whatever
/// `settings` say of the rest, line by line.
pub fn policy(pid: u32, mode: &str, remedies: &str, settings: &str) -> String {
    format!(
        r#"mode: {mode}
targets:
  - name: queue
    match: {{ pid: {pid} }}
    executor: hook
    remedies: {remedies}
    column_families:
      - name: {COLUMN_FAMILY}
        prefix: {{ delimiter: "/", count: 3 }}
{settings}"#
    )
}

/// One line of the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Line {
    /// The table is being filled at full speed.
    Filling(Filling),
    /// The table is full; the paced part begins.
    Filled(Filled),
    /// One second of the paced part.
    Second(Box<Second>),
    /// The whole table was read and is what was written.
    Verified(Verified),
    /// The time is up; sums over the paced part.
    Ended(Ended),
}

/// Progress of filling the table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Filling {
    pub creates: u64,
    pub creates_wanted: u64,
}

/// The table once it is full.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Filled {
    pub creates: u64,
    /// Keys deleted, the oldest.
    pub deletes: u64,
    /// How long it took, nanoseconds.
    pub elapsed_ns: u64,
    pub sst_files: u64,
    /// Sum of their sizes, bytes.
    pub sst_bytes: u64,
    pub sst_deletions: u64,
    /// The same by level, L0 first, levels without files left out.
    pub levels: Vec<Level>,
}

/// One level of the table's LSM tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    pub level: u32,
    pub files: u64,
    /// Sum of their sizes, bytes.
    pub bytes: u64,
    pub deletions: u64,
}

/// What happened in one second of the paced part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Counts up from 1.
    pub second: u64,
    /// Since the paced part began, nanoseconds.
    pub elapsed_ns: u64,
    /// Latency of each list that ended, nanoseconds, in no order.
    pub list_latencies_ns: Vec<u64>,
    /// Lists that the pace asked for and that could not be started because all threads were in a list.
    pub lists_missed: u64,
    /// Median of the latencies, nanoseconds.
    pub list_p50_ns: u64,
    /// 99th percentile of the latencies, nanoseconds.
    pub list_p99_ns: u64,
    /// Greatest latency, nanoseconds.
    pub list_max_ns: u64,
    /// Keys that the lists returned.
    pub keys_listed: u64,
    /// `internal_delete_skipped_count` that the lists added, by the program's own `PerfContext`.
    pub tombstones_skipped: u64,
    /// `block_read_count` that the lists added, by the program's own `PerfContext`.
    pub block_reads: u64,
    pub creates: u64,
    pub deletes: u64,
    /// Latency of each create and delete, nanoseconds, in their order.
    #[serde(default)]
    pub write_latencies_ns: Vec<u64>,
    /// Times that RocksDB was found to delay or to stop writes, of ten looks a second
    /// (`rocksdb.actual-delayed-write-rate`, `rocksdb.is-write-stopped`).
    #[serde(default)]
    pub writes_found_delayed: u64,
    /// RocksDB's ticker `STALL_MICROS` since the database was opened.
    #[serde(default)]
    pub stall_us: u64,
    /// Whether the compaction of the whole table that was asked for at the start runs.
    #[serde(default)]
    pub is_compacting: bool,
    /// Live SST files' sizes at the end of the second, bytes.
    pub sst_bytes: u64,
    /// RocksDB's ticker `COMPACT_READ_BYTES` since the database was opened.
    pub compaction_read_bytes: u64,
    /// RocksDB's ticker `COMPACT_WRITE_BYTES` since the database was opened.
    pub compaction_write_bytes: u64,
}

/// The table as one read of all of it found it: every key and every value was the right one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verified {
    /// Number of the first key.
    pub first: u64,
    /// Keys, with no gap between them.
    pub keys: u64,
    /// Sum over all keys and values, FNV-1a by words.
    pub checksum: u64,
}

/// Sums over the paced part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ended {
    /// How long it was, nanoseconds.
    pub elapsed_ns: u64,
    pub lists: u64,
    /// Lists that the pace asked for and that were not started.
    pub lists_missed: u64,
    /// Median latency, nanoseconds.
    pub list_p50_ns: u64,
    /// 99th percentile, nanoseconds.
    pub list_p99_ns: u64,
    /// Greatest latency, nanoseconds.
    pub list_max_ns: u64,
    /// Tombstones that the lists stepped over.
    pub tombstones_skipped: u64,
    /// Blocks that the lists read from files.
    pub block_reads: u64,
    pub creates: u64,
    pub deletes: u64,
}

/// Filling takes some seconds here.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How to start a workload.
#[derive(Debug)]
pub struct Start<'a> {
    /// An empty directory for the database.
    pub directory: &'a Path,
    /// Keys to create before the paced part.
    pub keys: u64,
    /// Length of the paced part, seconds.
    pub seconds: u64,
    /// Library to preload, the hook.
    pub preload: Option<&'a Path>,
    /// Where its standard error goes.
    pub stderr: Stdio,
}

/// A running workload and its report.
#[derive(Debug)]
pub struct Workload {
    pub process: process::Process,
    lines: process::Lines,
}

impl Workload {
    /// Starts `sexton-queue-workload`.
    pub fn start(start: Start<'_>) -> Result<Workload> {
        Workload::start_with(start, &[], &[])
    }

    /// The same with further arguments and variables in its environment.
    pub fn start_with(start: Start<'_>, arguments: &[&str], variables: &[(&str, &Path)]) -> Result<Workload> {
        let command = Command::new(artifact::built("sexton-queue-workload")?);
        Workload::start_by(command, start, arguments, variables)
    }

    /// The same by a command that ends up as the program.
    fn start_by(
        mut command: Command,
        start: Start<'_>,
        arguments: &[&str],
        variables: &[(&str, &Path)],
    ) -> Result<Workload> {
        command.arg("--directory").arg(start.directory);
        command.args(["--keys".to_owned(), start.keys.to_string()]);
        command.args(["--seconds".to_owned(), start.seconds.to_string()]);
        command.args(arguments).envs(variables.iter().copied());
        if let Some(library) = start.preload {
            command.env("LD_PRELOAD", OsString::from(library));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(start.stderr);
        let mut process = process::Process::start(command)?;
        let stdout = process.take_stdout().context("the workload has no standard output")?;
        Ok(Workload { process, lines: process::Lines::of("sexton-queue-workload", stdout) })
    }

    /// A small queue without the hook, whose readers lose hardly anything, once it is paced.
    pub fn small(directory: &Path) -> Result<Workload> {
        Workload::small_by(Command::new(artifact::built("sexton-queue-workload")?), directory)
    }

    /// The same without any capability, as a program has it that is not root's.
    pub fn small_without_capabilities(directory: &Path) -> Result<Workload> {
        let mut command = Command::new(artifact::installed("setpriv", "util-linux")?);
        command
            .args(["--inh-caps=-all", "--bounding-set=-all"])
            .arg(artifact::built("sexton-queue-workload")?);
        Workload::small_by(command, directory)
    }

    fn small_by(command: Command, directory: &Path) -> Result<Workload> {
        const SECONDS: u64 = 400;
        let start =
            Start { directory, keys: 1_000, seconds: SECONDS, preload: None, stderr: Stdio::inherit() };
        let mut workload = Workload::start_by(command, start, &[], &[])?;
        workload.second(START_LIMIT)?;
        Ok(workload)
    }

    /// A queue without the hook whose readers lose more and more time, as RocksDB compacts nothing, once it
    /// is paced.
    pub fn hurting(directory: &Path) -> Result<Workload> {
        const SECONDS: u64 = 3_600;
        let mut workload = Workload::start_with(
            Start { directory, keys: 100_000, seconds: SECONDS, preload: None, stderr: Stdio::inherit() },
            &["--disable-auto-compactions", "--write-buffer-bytes=4194304"],
            &[],
        )?;
        workload.second(START_LIMIT)?;
        Ok(workload)
    }

    /// A queue with the hook in which there is always something to compact: tombstones that RocksDB leaves in
    /// L0. Compacting the megabyte takes as long as the rate of writes in the background says.
    pub fn slowly_compacted(directory: &Path, background_bytes_per_second: u64) -> Result<Workload> {
        const SECONDS: u64 = 300;
        Workload::start_with(
            Start {
                directory,
                keys: 10_000,
                seconds: SECONDS,
                preload: Some(&artifact::built("libsexton_hook.so")?),
                stderr: Stdio::inherit(),
            },
            &[
                "--creates-per-second=50",
                "--deletes-per-second=20",
                "--lists-per-second=50",
                "--write-buffer-bytes=524288",
                "--level0-compaction-files=20",
                &format!("--background-bytes-per-second={background_bytes_per_second}"),
            ],
            &[],
        )
    }

    /// The next line of the report; `None` when it has ended; fails after `limit`.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Line>> {
        self.lines.next(limit)?.map(|line| parse(&line)).transpose()
    }

    /// The next line of the report if one is waiting.
    pub fn waiting(&mut self) -> Result<Option<Line>> {
        self.lines.waiting().map(|line| parse(&line)).transpose()
    }

    /// Waits for a read of the whole table that began now or later: the one under way, and one more. A table
    /// that is not what was written ends the workload; each may take `limit`.
    pub fn verified_since(&mut self, limit: Duration) -> Result<()> {
        while self.waiting()?.is_some() {}
        let mut reads = 0;
        while reads < 2 {
            let line = self.next(limit)?.context("the workload has ended: its table is not what it wrote")?;
            if let Line::Verified(verified) = line {
                ensure!(verified.keys > 0 && verified.checksum != 0, "an empty table: {verified:?}");
                reads += 1;
            }
        }
        ensure!(self.process.is_running()?, "the target has ended");
        Ok(())
    }

    /// The next full second; fails after `limit` or when the workload ends.
    pub fn second(&mut self, limit: Duration) -> Result<Second> {
        loop {
            match self.next(limit)?.context("the workload ended too early")? {
                Line::Second(second) => return Ok(*second),
                Line::Filling(_) | Line::Filled(_) | Line::Verified(_) | Line::Ended(_) => {}
            }
        }
    }
}

fn parse(line: &str) -> Result<Line> {
    serde_json::from_str(line)
        .with_context(|| format!("the workload printed a line that is no report: {line}"))
}
