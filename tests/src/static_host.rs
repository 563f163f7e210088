//! The static program as one to observe: what it prints, and how a test drives it.
//!
//! `sexton-static-host` has RocksDB linked into its executable. It waits for a word on its standard input
//! before each step, so that a test can put a step inside a window, and prints after each step what
//! RocksDB's own `PerfContext` counted in it: the exact truth to compare with.

use crate::artifact;
use crate::process::{Lines, Process};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use sexton_tuner::evidence::Counters;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// File name of the program.
pub const PROGRAM: &str = "sexton-static-host";

/// Making the databases takes a second; on an emulated machine, twenty.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// A step takes milliseconds; with every seek in a probe on an emulated machine, seconds.
const STEP_LIMIT: Duration = Duration::from_secs(120);

/// What to tell the program on its standard input, one word a line. The end of its input means `quit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Every thread lists every column family once.
    List,
    /// Close all databases, open them again.
    Reopen,
    Quit,
}

impl Step {
    pub fn word(self) -> &'static str {
        match self {
            Step::List => "list",
            Step::Reopen => "reopen",
            Step::Quit => "quit",
        }
    }

    /// The step that a word stands for.
    pub fn of_word(word: &str) -> Option<Step> {
        [Step::List, Step::Reopen, Step::Quit].into_iter().find(|step| step.word() == word)
    }
}

/// One line that the program prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Line {
    /// The databases are there, the threads wait.
    Ready {
        /// Process id, in the program's own pid namespace.
        pid: u32,
    },
    /// A `list` is done; the threads wait again.
    Listed(Listed),
    /// A `reopen` is done.
    Reopened {},
}

/// What one `list` did, by the plan and by RocksDB's own counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Positioning calls: `Seek`, `SeekForPrev`, `SeekToFirst`, `SeekToLast`.
    pub operations: u64,
    /// Tombstones that the positioned iterators had to step over, counted from the plan of deletions; what
    /// `tombstones_skipped` has to be while the perf level counts.
    pub tombstones_planned: u64,
    /// RocksDB's `PerfContext`, summed over threads.
    pub total: Counters,
    pub threads: Vec<ThreadCounters>,
    /// RocksDB's ticker `number.iter.skip`, summed over databases: internal keys that iterators stepped over,
    /// those that they stopped at left out. It counts at every perf level.
    pub iterator_skips: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCounters {
    /// Thread id, in the program's own pid namespace.
    pub thread_id: u32,
    /// Its `PerfContext`, since the step began.
    pub counters: Counters,
}

#[derive(Debug)]
pub struct StaticHost {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
}

impl StaticHost {
    /// Starts the program as it was built, on a new database in `directory`, and waits until it is ready.
    pub fn start(directory: &Path, arguments: &[&str]) -> Result<StaticHost> {
        StaticHost::start_program(&artifact::built(PROGRAM)?, directory, arguments)
    }

    /// The same with a copy of the program, a stripped one for instance.
    pub fn start_program(program: &Path, directory: &Path, arguments: &[&str]) -> Result<StaticHost> {
        let mut command = Command::new(program);
        command.arg("--directory").arg(directory).args(arguments.iter().map(OsStr::new));
        StaticHost::start_command(command)
    }

    /// The same with a command that ends up as the program, `unshare` for instance.
    pub fn start_command(mut command: Command) -> Result<StaticHost> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let lines = Lines::of(PROGRAM, process.take_stdout().context("no standard output")?);
        let mut host = StaticHost { process, stdin, lines };
        let ready = host.line(READY_LIMIT)?;
        ensure!(matches!(ready, Line::Ready { .. }), "{PROGRAM} began with {ready:?}");
        Ok(host)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Has every thread list once.
    pub fn list(&mut self) -> Result<Listed> {
        self.say(Step::List)?;
        match self.line(STEP_LIMIT)? {
            Line::Listed(listed) => Ok(listed),
            other => anyhow::bail!("{PROGRAM} answered `list` with {other:?}"),
        }
    }

    /// Has the databases closed and opened again.
    pub fn reopen(&mut self) -> Result<()> {
        self.say(Step::Reopen)?;
        let answer = self.line(STEP_LIMIT)?;
        ensure!(matches!(answer, Line::Reopened {}), "{PROGRAM} answered `reopen` with {answer:?}");
        Ok(())
    }

    /// Ends it in order.
    pub fn quit(mut self) -> Result<()> {
        self.say(Step::Quit)?;
        let status = self.process.wait(STEP_LIMIT)?;
        ensure!(status.success(), "{PROGRAM} ended with {status}");
        Ok(())
    }

    fn say(&mut self, step: Step) -> Result<()> {
        writeln!(self.stdin, "{}", step.word()).with_context(|| format!("telling {PROGRAM} to {step:?}"))
    }

    fn line(&mut self, limit: Duration) -> Result<Line> {
        let line = self.lines.next(limit)?.with_context(|| format!("{PROGRAM} ended"))?;
        serde_json::from_str(&line).with_context(|| format!("{PROGRAM} printed {line:?}"))
    }
}
