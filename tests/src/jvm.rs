//! An unmodified Java program on RocksDB's Java library, as a program to observe and to act on:
//! `tests/java/ListAndDelete.java`.

use crate::artifact;
use crate::process::{Lines, Process};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The library that `make setup` fetches; the version that Apache Ozone 2 uses.
pub const ROCKSDB_JAR: &str = "rocksdbjni-7.7.3.jar";

/// Compiling a class or two takes 2 s here.
const COMPILE_LIMIT: Duration = Duration::from_secs(120);
/// Filling the table takes 3 s here.
const FILL_LIMIT: Duration = Duration::from_secs(120);
/// A pair of lists takes 0.1 s here.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// What a JVM's thread dump begins with, on its standard output.
const THREAD_DUMP: &str = "Full thread dump";

/// One list that the program made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// What was listed: `/vol/a/`.
    pub prefix: String,
    /// How long it took, nanoseconds.
    pub latency_ns: u64,
    /// What it returned: number of keys, first key, last key.
    pub keys: String,
}

/// One SST file of column family `keyTable`, as the program's own RocksDB tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SstFile {
    /// `/000011.sst`.
    pub name: String,
    pub smallest: String,
    pub largest: String,
    pub deletions: u64,
}

#[derive(Debug)]
pub struct Program {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
}

impl Program {
    /// Compiles the program into `directory`, starts it with its database in `directory/db` for at most
    /// `seconds`, and waits until it has filled its table.
    pub fn start(directory: &Path, seconds: u64) -> Result<Program> {
        Program::start_with(directory, seconds, &[])
    }

    /// The same with a snapshot that is older than its deletes, held until [`Program::release_snapshot`].
    pub fn start_with_snapshot(directory: &Path, seconds: u64) -> Result<Program> {
        Program::start_with(directory, seconds, &["snapshot"])
    }

    fn start_with(directory: &Path, seconds: u64, arguments: &[&str]) -> Result<Program> {
        let jar = artifact::tool(ROCKSDB_JAR)?;
        compile(&jar, &["ListAndDelete.java"], directory)?;
        let database = database(directory);
        std::fs::create_dir(&database).context("creating the database's directory")?;
        let mut command = Command::new(artifact::installed("java", "default-jdk-headless")?);
        command.arg("-Xmx256m").arg(format!("-Djava.io.tmpdir={}", directory.display()));
        command.arg("-cp").arg(format!("{}:{}", jar.display(), directory.display()));
        command.arg("ListAndDelete").arg(database).arg(seconds.to_string()).args(arguments);
        let errors =
            std::fs::File::create(directory.join("java.log")).context("creating the program's log")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("java", process.take_stdout().context("no standard output")?);
        lines.until(FILL_LIMIT, |line| line == "ready").context("waiting for the table to be filled")?;
        Ok(Program { process, stdin, lines })
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The lists made in the next `duration`; older output is skipped.
    pub fn lists(&mut self, duration: Duration) -> Result<Vec<List>> {
        while self.lines.waiting().is_some() {}
        let end = Instant::now() + duration;
        let mut lists = Vec::new();
        while Instant::now() < end {
            let line = self.lines.next(LIST_LIMIT)?.context("the program ended too early")?;
            lists.extend(parse_list(&line));
        }
        Ok(lists)
    }

    /// Tombstones in all SST files, as the program prints them next.
    pub fn deletions(&mut self) -> Result<u64> {
        while self.lines.waiting().is_some() {}
        let line = self.lines.until(LIST_LIMIT, |line| line.starts_with("deletions "))?;
        let number = line.strip_prefix("deletions ").unwrap_or_default();
        number.trim().parse().with_context(|| format!("no number of deletions: {line}"))
    }

    /// Lets the program release its snapshot, and waits until it has.
    pub fn release_snapshot(&mut self) -> Result<()> {
        writeln!(self.stdin, "release").context("asking the program to release its snapshot")?;
        self.lines.until(LIST_LIMIT, |line| line == "released").map(|_| ())
    }

    /// The SST files there are now.
    pub fn files(&mut self) -> Result<Vec<SstFile>> {
        writeln!(self.stdin, "files").context("asking the program for its files")?;
        let mut files = Vec::new();
        loop {
            let line = self.lines.next(LIST_LIMIT)?.context("the program ended too early")?;
            if line == "files end" {
                return Ok(files);
            }
            files.extend(parse_file(&line));
        }
    }

    /// Whether the JVM has printed its threads, as it does for a SIGQUIT that nobody explains, since it was
    /// asked last.
    pub fn has_dumped_threads(&mut self) -> Result<bool> {
        // A list more: what was printed before it has arrived.
        let mut has_dumped = false;
        while let Some(line) = self.lines.waiting() {
            has_dumped |= line.starts_with(THREAD_DUMP);
        }
        while let Some(line) = self.lines.next(LIST_LIMIT)? {
            has_dumped |= line.starts_with(THREAD_DUMP);
            if parse_list(&line).is_some() {
                return Ok(has_dumped);
            }
        }
        Ok(has_dumped)
    }

    /// Lets the program end by itself, and checks that it says it went well.
    pub fn end(mut self) -> Result<()> {
        drop(self.stdin);
        // It may wait for somebody to read its last lists.
        while self.lines.next(LIST_LIMIT)?.is_some() {}
        let status = self.process.wait(LIST_LIMIT)?;
        ensure!(status.success(), "the Java program ended with {status}");
        Ok(())
    }
}

/// Where the program started in `directory` has its database.
pub fn database(directory: &Path) -> PathBuf {
    directory.join("db")
}

/// Compiles `sources` of `tests/java` against `jar` into `directory`.
pub fn compile(jar: &Path, sources: &[&str], directory: &Path) -> Result<()> {
    let mut command = Command::new(artifact::installed("javac", "default-jdk-headless")?);
    command.arg("-cp").arg(jar).arg("-d").arg(directory).stdin(Stdio::null());
    command.args(sources.iter().map(|source| artifact::repository().join("tests/java").join(source)));
    let status = Process::start(command)?.wait(COMPILE_LIMIT)?;
    ensure!(status.success(), "compiling {} ended with {status}", sources.join(", "));
    Ok(())
}

fn parse_list(line: &str) -> Option<List> {
    let mut words = line.strip_prefix("list ")?.splitn(3, ' ');
    let prefix = words.next()?.to_owned();
    let latency_ns = words.next()?.parse().ok()?;
    Some(List { prefix, latency_ns, keys: words.next()?.to_owned() })
}

fn parse_file(line: &str) -> Option<SstFile> {
    let words: Vec<&str> = line.strip_prefix("file ")?.split(' ').collect();
    let [name, _level, _bytes, smallest, largest, _entries, deletions] = words.as_slice() else {
        return None;
    };
    Some(SstFile {
        name: (*name).to_owned(),
        smallest: (*smallest).to_owned(),
        largest: (*largest).to_owned(),
        deletions: deletions.parse().ok()?,
    })
}

/// The median latency of the lists of `prefix`, nanoseconds; `None` when there are none.
pub fn median_ns(lists: &[List], prefix: &str) -> Option<u64> {
    let mut latencies: Vec<u64> =
        lists.iter().filter(|list| list.prefix == prefix).map(|list| list.latency_ns).collect();
    latencies.sort_unstable();
    latencies.get(latencies.len() / 2).copied()
}
