//! An unmodified Java program that reads in several threads and tells what RocksDB counted in them:
//! `tests/java/ReadAndCount.java`.

use crate::artifact;
use crate::jvm;
use crate::process::{Lines, Process};
use crate::truth::{self, Truth};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// Starting the JVM and filling the tables takes 3 s here.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Reading takes half a second here.
const READ_LIMIT: Duration = Duration::from_secs(120);
/// Compiling a library of one function.
const COMPILE_LIMIT: Duration = Duration::from_secs(60);

/// The compiled program and its database.
#[derive(Debug)]
pub struct Readers {
    jar: PathBuf,
    directory: PathBuf,
}

impl Readers {
    /// Compiles the program for RocksJava `version` into `directory`. Without RocksJava's own `PerfContext`
    /// it asks the C API, through a small library of its own.
    pub fn compile(directory: &Path, version: &str, has_perf_context: bool) -> Result<Readers> {
        let jar = artifact::tool(&format!("rocksdbjni-{version}.jar"))?;
        let counts = if has_perf_context { "perf_context" } else { "c_api" };
        jvm::compile(&jar, &["ReadAndCount.java", &format!("{counts}/Counts.java")], directory)?;
        if !has_perf_context {
            compile_counts(directory)?;
        }
        std::fs::create_dir(directory.join("db")).context("creating the database's directory")?;
        Ok(Readers { jar, directory: directory.to_path_buf() })
    }

    /// Starts the program; its threads wait for their turn. The first start fills the tables.
    pub fn start(&self) -> Result<Waiting> {
        let mut command = Command::new(artifact::installed("java", "default-jdk-headless")?);
        command.arg("-Xmx128m").arg(format!("-Djava.io.tmpdir={}", self.directory.display()));
        command.arg(format!("-Dcounts.library={}", counts_library(&self.directory).display()));
        command.arg("-cp").arg(format!("{}:{}", self.jar.display(), self.directory.display()));
        command.arg("ReadAndCount").arg(self.directory.join("db"));
        let errors = std::fs::File::create(self.directory.join("java.log"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.context("creating its log")?);
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("java", process.take_stdout().context("no standard output")?);
        lines.until(READY_LIMIT, |line| line == "ready").context("waiting for the tables to be filled")?;
        Ok(Waiting { process, stdin, lines })
    }
}

/// The running program, before it reads.
#[derive(Debug)]
pub struct Waiting {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
}

impl Waiting {
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Lets the threads read, and returns what they counted and how often they positioned an iterator.
    /// Some of the threads have ended by then, the others stay.
    pub fn read(&mut self) -> Result<(Truth, u64)> {
        writeln!(self.stdin, "go").context("letting the program go on")?;
        let line = self.lines.until(READ_LIMIT, |line| line.starts_with("truth "))?;
        let truth = line.strip_prefix("truth ").and_then(truth::parse);
        truth.with_context(|| format!("not the truth of five counters and a ticker: {line}"))
    }

    /// Lets the program end, and checks that it says it went well.
    pub fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(READ_LIMIT)?;
        ensure!(status.success(), "the Java program ended with {status}");
        Ok(())
    }
}

fn counts_library(directory: &Path) -> PathBuf {
    directory.join("libcounts.so")
}

fn compile_counts(directory: &Path) -> Result<()> {
    let mut command = Command::new(artifact::installed("gcc", "gcc")?);
    command.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]).arg(counts_library(directory));
    command.arg(artifact::repository().join("tests/java/c_api/counts.c")).arg("-ldl").stdin(Stdio::null());
    let status = Process::start(command)?.wait(COMPILE_LIMIT)?;
    ensure!(status.success(), "compiling counts.c ended with {status}");
    Ok(())
}
