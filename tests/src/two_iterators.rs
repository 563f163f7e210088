//! An unmodified Python program whose one thread moves two iterators: `tests/python/two_iterators.py`.

use crate::artifact;
use crate::process::{Lines, Process};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// Filling the database takes a second here.
const LIMIT: Duration = Duration::from_secs(60);

/// Tombstones that the first iterator is moved over.
pub const TOMBSTONES: u64 = 40_000;

/// The column family of the first iterator.
pub const WALKED: &str = "walked";

#[derive(Debug)]
pub struct TwoIterators {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
}

impl TwoIterators {
    /// Starts the program on Debian's RocksDB, with its database in the empty `directory`.
    pub fn start(directory: &Path) -> Result<TwoIterators> {
        let mut command = Command::new(artifact::installed("python3", "python3")?);
        command.arg(artifact::repository().join("tests/python/two_iterators.py"));
        command.arg(artifact::debian_rocksdb()?).arg(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
        lines.until(LIMIT, |line| line == "ready").context("waiting for the database")?;
        Ok(TwoIterators { process, stdin, lines })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Has the program do once what a word stands for.
    pub fn step(&mut self, word: &str) -> Result<()> {
        writeln!(self.stdin, "{word}").context("letting the program go on")?;
        self.lines.until(LIMIT, |line| line == word).map(|_| ())
    }

    /// Lets the program end, and checks that it says it went well.
    pub fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(LIMIT)?;
        ensure!(status.success(), "the Python program ended with {status}");
        Ok(())
    }
}
