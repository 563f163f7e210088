//! A steady load for measuring what Sexton costs: one `db_bench` that makes cheap seeks all the time.
//!
//! It writes how many seeks it has made every [`SEEKS_PER_LINE`] of them, with its own clock: reading that
//! costs it nothing, and whatever runs beside it, it is asked in the same way.

use crate::artifact;
use crate::process::{Lines, Process};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Keys in the table, so that with everything in the block cache a seek takes some 3.5 us.
const KEYS: u64 = 200_000;
/// Room for all blocks, many times over.
const CACHE_BYTES: u64 = 1 << 30;
/// Seeks from one line of progress to the next: some 8 ms of them.
const SEEKS_PER_LINE: u64 = 2_000;
/// `db_bench` ends by itself after that even if we are killed so hard that it is not.
const SECONDS_MAX: u64 = 1_800;
/// Filling takes a second.
const FILL_LIMIT: Duration = Duration::from_secs(60);
/// No line for that long: it hangs, or has ended.
const LINE_LIMIT: Duration = Duration::from_secs(20);

fn command(database: &Path) -> Result<Command> {
    // Before everything else that wants its core: what disturbs a run is noise in the ratios.
    let mut command = Command::new("nice");
    command.args(["-n", "-20"]).arg(artifact::installed("db_bench", "rocksdb-tools")?);
    command.arg(format!("--db={}", database.display())).arg(format!("--num={KEYS}"));
    command.args(["--key_size=16", "--value_size=64", "--compression_type=none", "--disable_wal=1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Writes the table: one sorted run.
pub fn fill(database: &Path) -> Result<()> {
    let mut command = command(database)?;
    command.arg("--benchmarks=fillseq,compact");
    let status = Process::start(command)?.wait(FILL_LIMIT)?;
    ensure!(status.success(), "db_bench could not fill {}: {status}", database.display());
    Ok(())
}

/// A `db_bench` that seeks.
#[derive(Debug)]
pub struct SteadySeeks {
    process: Process,
    command: String,
    lines: Lines,
    last: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    pub seeks: u64,
    /// Since the first seek, on db_bench's own clock.
    pub seconds: f64,
}

impl SteadySeeks {
    /// Starts the seeks on a filled table and waits until the first have been made.
    pub fn start(database: &Path) -> Result<SteadySeeks> {
        let mut command = command(database)?;
        command.args(["--benchmarks=seekrandom", "--use_existing_db=1", "--threads=1", "--perf_level=2"]);
        command.arg("--disable_auto_compactions=1").arg(format!("--cache_size={CACHE_BYTES}"));
        command.arg(format!("--duration={SECONDS_MAX}")).arg(format!("--stats_interval={SEEKS_PER_LINE}"));
        command.stderr(Stdio::piped());
        let shown =
            command.get_args().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut process = Process::start(command)?;
        let lines = Lines::of("db_bench", process.take_stderr().context("no standard error")?);
        let mut load = SteadySeeks {
            process,
            command: format!("nice {shown}"),
            lines,
            last: Progress { seeks: 0, seconds: 0.0 },
        };
        load.last = load.progress()?;
        Ok(load)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The command that was started.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Lets it run for `time` and gives the seeks per second in it.
    pub fn rate_over(&mut self, time: Duration) -> Result<f64> {
        self.catch_up()?;
        let (begin, until) = (self.progress()?, Instant::now() + time);
        while Instant::now() < until {
            self.progress()?;
        }
        let (seeks, seconds) = (self.last.seeks - begin.seeks, self.last.seconds - begin.seconds);
        ensure!(seeks > 0 && seconds > 0.0, "db_bench made no seeks in {time:?}");
        Ok(seeks as f64 / seconds)
    }

    /// Takes the lines that were written meanwhile.
    pub fn catch_up(&mut self) -> Result<()> {
        while let Some(line) = self.lines.waiting() {
            self.last = parse(&line).unwrap_or(self.last);
        }
        Ok(())
    }

    /// Waits for the next line of progress.
    pub fn progress(&mut self) -> Result<Progress> {
        loop {
            let Some(line) = self.lines.next(LINE_LIMIT)? else {
                bail!("db_bench ended too early; its last lines:\n{}", self.lines.shown())
            };
            if let Some(progress) = parse(&line) {
                self.last = progress;
                return Ok(progress);
            }
        }
    }
}

/// A line `... thread 0: (5000,20000) ops and (286000.0,285000.0) ops/second in (0.017482,0.070175) seconds`.
fn parse(line: &str) -> Option<Progress> {
    let (seeks, rest) = line.split_once(": (")?.1.split_once(") ops and (")?;
    let seconds = rest.split_once(") ops/second in (")?.1.strip_suffix(") seconds")?;
    Some(Progress {
        seeks: seeks.split_once(',')?.1.parse().ok()?,
        seconds: seconds.split_once(',')?.1.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_db_bench_s_progress() {
        let line = "2026/11/21-11:21:25  ... thread 0: (100000,200000) ops and (167946.7,156336.1) ops/second in (0.595427,1.279295) seconds";
        assert_eq!(parse(line), Some(Progress { seeks: 200_000, seconds: 1.279295 }));
        assert_eq!(parse("RocksDB:    version 7.8.3"), None);
        assert_eq!(parse("a: (1,2) ops and (1,1) ops/second in (x) seconds"), None);
    }
}
