//! An unmodified Python program that lists a thousand prefixes at random: `tests/python/small_lists.py`.

use crate::artifact;
use crate::process::{Lines, Process};
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// Filling the database takes some seconds here.
const LIMIT: Duration = Duration::from_secs(120);

/// Tombstones at the beginning of each prefix.
pub const TOMBSTONES: u64 = 500;

#[derive(Debug)]
pub struct SmallLists {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
    /// Time of a positioning call where no tombstone is.
    painless_ns: f64,
}

/// What the program has done up to a moment.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    lists: f64,
    seek_ns: f64,
    at_ns: f64,
}

impl SmallLists {
    /// Starts the program on Debian's RocksDB, with its database below the empty `directory`.
    pub fn start(directory: &Path) -> Result<SmallLists> {
        SmallLists::start_over(directory, TOMBSTONES, &[])
    }

    /// The same with so many tombstones at the beginning of each prefix, and libraries loaded before others.
    pub fn start_over(directory: &Path, tombstones: u64, libraries: &[PathBuf]) -> Result<SmallLists> {
        let mut command = Command::new(artifact::installed("python3", "python3")?);
        command.arg(artifact::repository().join("tests/python/small_lists.py"));
        command.arg(directory).arg(artifact::debian_rocksdb()?).arg(tombstones.to_string());
        let libraries: Vec<&OsStr> = libraries.iter().map(|library| library.as_os_str()).collect();
        if !libraries.is_empty() {
            command.env("LD_PRELOAD", libraries.join(OsStr::new(":")));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
        let ready = lines.until(LIMIT, |line| line.starts_with("ready "));
        let [painless_ns] = numbers(&ready.context("waiting for the database")?)?;
        Ok(SmallLists { process, stdin, lines, painless_ns })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Has the program do from now on what a word stands for.
    pub fn go(&mut self, word: &str) -> Result<()> {
        writeln!(self.stdin, "{word}").context("telling the program what to do")?;
        self.lines.until(LIMIT, |line| line == word).map(|_| ())
    }

    /// What it has done so far.
    pub fn say(&mut self) -> Result<Said> {
        writeln!(self.stdin, "say").context("asking the program")?;
        let [lists, seek_ns, at_ns] = numbers(&self.lines.until(LIMIT, |line| line.starts_with("said "))?)?;
        Ok(Said { lists, seek_ns, at_ns })
    }

    /// Processor time that a list has lost to tombstones between two moments, seconds.
    pub fn lost_per_list(&self, from: Said, to: Said) -> f64 {
        ((to.seek_ns - from.seek_ns) / (to.lists - from.lists) - self.painless_ns) / 1e9
    }

    /// Lets the program end, and checks that it says it went well.
    pub fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(LIMIT)?;
        ensure!(status.success(), "the Python program ended with {status}");
        Ok(())
    }
}

/// Lists per second between two moments.
pub fn lists_per_second(from: Said, to: Said) -> f64 {
    (to.lists - from.lists) * 1e9 / (to.at_ns - from.at_ns)
}

/// The numbers behind a line's first word.
fn numbers<const COUNT: usize>(line: &str) -> Result<[f64; COUNT]> {
    let words = line.split_whitespace().skip(1).map(str::parse);
    let numbers: Vec<f64> = words.collect::<Result<_, _>>().with_context(|| format!("{line:?}"))?;
    numbers.try_into().map_err(|_| anyhow::anyhow!("{line:?} has not {COUNT} numbers"))
}
