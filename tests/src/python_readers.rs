//! An unmodified Python program with one or several copies of RocksDB inside, which reads in several threads
//! and databases and tells what each copy counted: `tests/python/read_and_count.py`.

use crate::artifact;
use crate::process::{Lines, Process};
use crate::truth::{self, Truth};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// Filling the databases takes 2 s here.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Reading takes half a second here.
const READ_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct Readers {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
    libraries: Vec<PathBuf>,
}

impl Readers {
    /// Starts the program in the empty `directory` with so many databases for each of `libraries`, and waits
    /// until it has filled them.
    pub fn start(directory: &Path, databases: u32, libraries: &[PathBuf]) -> Result<Readers> {
        let mut command = Command::new(artifact::installed("python3", "python3")?);
        command.arg(artifact::repository().join("tests/python/read_and_count.py")).arg(directory);
        command.arg(databases.to_string()).args(libraries);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
        lines.until(READY_LIMIT, |line| line == "ready").context("waiting for the databases to be filled")?;
        Ok(Readers { process, stdin, lines, libraries: libraries.to_vec() })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Lets the threads read, and returns for each library what was counted in it, and how often an iterator
    /// was positioned.
    pub fn read(&mut self) -> Result<Vec<(Truth, u64)>> {
        writeln!(self.stdin, "go").context("letting the program go on")?;
        let mut truths = Vec::new();
        for library in &self.libraries {
            let line = self.lines.until(READ_LIMIT, |line| line.starts_with("truth "))?;
            let words = line.strip_prefix(&format!("truth {} ", library.display()));
            truths.push(words.and_then(truth::parse).with_context(|| format!("not the truth: {line}"))?);
        }
        Ok(truths)
    }

    /// Lets the program end, and checks that it says it went well.
    pub fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(READ_LIMIT)?;
        ensure!(status.success(), "the Python program ended with {status}");
        Ok(())
    }
}

/// The native library of RocksDB's Java library `version`, unpacked into `directory`.
pub fn java_library(version: &str, directory: &Path) -> Result<PathBuf> {
    java_library_named("librocksdbjni-linux64.so", version, directory)
}

/// The same of the file that is meant for another C library.
pub fn java_library_named(name: &str, version: &str, directory: &Path) -> Result<PathBuf> {
    let mut command = Command::new(artifact::installed("jar", "default-jdk-headless")?);
    command.current_dir(directory).arg("--extract").arg("--file");
    command.arg(artifact::tool(&format!("rocksdbjni-{version}.jar"))?).arg(name).stdin(Stdio::null());
    let status = Process::start(command)?.wait(READ_LIMIT)?;
    ensure!(status.success(), "unpacking {name} ended with {status}");
    Ok(directory.join(name))
}
