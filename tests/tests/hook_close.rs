//! Programs that close their databases and drop column families while the hook compacts them come to no harm.
//!
//! Method: a program opens its database, checks all of it, rewrites it, drops a column family, deletes its
//! handles and closes it, a thousand times (with RocksJava 10 and 11, whose natives have other names, two
//! hundred times), while this test has the hook in it compact and flush whatever is open, without a pause.
//! The program's own check of every key, each time it opens, RocksDB's `ldb checkconsistency` at the end, and
//! the program's exit code are the truth. Every job that was started must have an outcome.

use anyhow::{Context, Result, bail, ensure};
use sexton_execute::{ExecuteError, HookClient, HookOptions};
use sexton_hook_protocol::{
    BottommostLevelCompaction, ColumnFamilyPointers, CompactionState, ErrorKind, Finished,
};
use sexton_inspect::facts::Target;
use sexton_tests::compactions::everything;
use sexton_tests::inspected;
use sexton_tests::process::{Lines, Process};
use sexton_tests::{artifact, jvm};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CYCLES: u32 = 1_000;
/// With versions of RocksJava that close in the same way through other natives.
const CYCLES_OF_OTHERS: u32 = 200;
/// All cycles take some 30 s here, in all ways.
const LIMIT: Duration = Duration::from_secs(300);
/// A library or a class is compiled in seconds, a program ends in less than one.
const SHORT_LIMIT: Duration = Duration::from_secs(120);

/// How often a job is asked after: it takes some milliseconds.
const POLL: Duration = Duration::from_micros(500);

/// What came of the jobs.
#[derive(Debug, Default)]
struct Tally {
    cycles: u32,
    started: u64,
    done: u64,
    /// The owner closed the database during the job.
    closed_by_owner: u64,
    /// The owner was done with the column family before the job began.
    refused: u64,
    /// As before, and the hook said so at once.
    not_started: u64,
}

/// Preloaded: the program calls `rocksdb_close`, `rocksdb_drop_column_family` and
/// `rocksdb_column_family_handle_destroy` of Debian's library.
#[test]
fn a_preloaded_program_closes_a_thousand_times() -> Result<()> {
    let directory = scratch()?;
    let program = compile(directory.path())?;
    let mut command = Command::new(program);
    command.arg(directory.path().join("db")).arg(CYCLES.to_string());
    command.env("LD_PRELOAD", artifact::built("libsexton_hook.so")?);
    survives(directory.path(), command, "preloaded", CYCLES)?;
    consistent(&directory.path().join("db"))
}

/// Attached to while it runs: RocksJava closes by `DB::Close`, then deletes the object.
#[test]
fn a_jvm_closes_a_thousand_times() -> Result<()> {
    let directory = scratch()?;
    a_jvm_closes(directory.path(), jvm::ROCKSDB_JAR, CYCLES)?;
    consistent(&directory.path().join("db"))
}

/// `closeDatabase(long)` and `disposeInternal(long)` have become static methods with other symbols. Debian's
/// `ldb` does not read what these write: the program's own check of every key stands alone.
#[test]
fn a_jvm_on_rocksjava_10_closes() -> Result<()> {
    a_jvm_closes(scratch()?.path(), "rocksdbjni-10.10.1.1.jar", CYCLES_OF_OTHERS)
}

#[test]
fn a_jvm_on_rocksjava_11_closes() -> Result<()> {
    a_jvm_closes(scratch()?.path(), "rocksdbjni-11.8.1.jar", CYCLES_OF_OTHERS)
}

fn a_jvm_closes(directory: &Path, jar: &str, cycles: u32) -> Result<()> {
    let jar = artifact::tool(jar)?;
    jvm::compile(&jar, &["CloseLoop.java"], directory)?;
    let mut command = Command::new(artifact::installed("java", "default-jdk-headless")?);
    command.arg("-Xmx256m").arg(format!("-Djava.io.tmpdir={}", directory.display()));
    command.arg("-cp").arg(format!("{}:{}", jar.display(), directory.display()));
    command.arg("CloseLoop").arg(directory.join("db")).arg(cycles.to_string());
    survives(directory, command, "JVM", cycles)
}

/// Closing is what is tested, not the disk.
fn scratch() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    directory.context("making a directory for the database")
}

fn compile(directory: &Path) -> Result<std::path::PathBuf> {
    let program = directory.join("close_loop");
    let mut command = Command::new(artifact::installed("gcc", "gcc")?);
    command.args(["-O1", "-Wall", "-Wextra", "-Werror"]);
    command.arg(artifact::repository().join("tests/c/close_loop.c"));
    command.arg("-o").arg(&program).arg("-lrocksdb");
    let status = Process::start(command)?.wait(SHORT_LIMIT)?;
    ensure!(status.success(), "compiling close_loop.c ended with {status}: run `make setup`");
    Ok(program)
}

/// Runs the program to its end with the hook at work in it.
fn survives(directory: &Path, mut command: Command, name: &str, cycles: u32) -> Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(std::fs::File::create(directory.join("errors"))?);
    let mut process = Process::start(command)?;
    let stdin = process.take_stdin().context("no standard input")?;
    let lines = Lines::of(name, process.take_stdout().context("no standard output")?);
    let worked = Host { process: &mut process, lines, name }.work(stdin);
    let errors = std::fs::read_to_string(directory.join("errors")).unwrap_or_default();
    let tally = worked.with_context(|| format!("the program's standard error: {errors}"))?;
    let status = process.wait(SHORT_LIMIT)?;
    ensure!(status.success(), "the program ended with {status}: {errors}");
    eprintln!("{name}: {tally:?}");
    ensure!(tally.cycles == cycles, "only {} cycles", tally.cycles);
    ensure!(tally.done > 0, "no job has ended by itself: {tally:?}");
    ensure!(tally.closed_by_owner > 0, "no database was closed during a job: {tally:?}");
    ensure!(tally.not_started > 0, "no job was refused: {tally:?}");
    ensure!(
        tally.started == tally.done + tally.closed_by_owner + tally.refused,
        "a job is unaccounted for: {tally:?}"
    );
    Ok(())
}

/// RocksDB's own tool finds nothing wrong with the database.
fn consistent(database: &Path) -> Result<()> {
    let mut command = Command::new(artifact::installed("ldb", "rocksdb-tools")?);
    command.arg(format!("--db={}", database.display())).arg("checkconsistency").stdout(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut lines = Lines::of("ldb", process.take_stdout().context("no standard output")?);
    let status = process.wait(SHORT_LIMIT)?;
    let output = lines.rest(SHORT_LIMIT)?.join("\n");
    ensure!(status.success() && output.contains("OK"), "ldb checkconsistency ended with {status}: {output}");
    Ok(())
}

struct Host<'test> {
    process: &'test mut Process,
    lines: Lines,
    name: &'test str,
}

impl Host<'_> {
    /// Has the hook compact and flush what is open until the program has checked its data for the last time.
    fn work(mut self, stdin: ChildStdin) -> Result<Tally> {
        let mut open = families(&self.lines.until(SHORT_LIMIT, |line| line.starts_with("open "))?)?;
        let options = HookOptions { library: Some(artifact::built("libsexton_hook.so")?), may_attach: true };
        let target = self.target()?;
        let mut hook = HookClient::connect(&target, &options)
            .with_context(|| format!("connecting to the hook in the {} program", self.name))?;
        ensure!(hook.hello().unguarded.is_none(), "the guard is not up: {:?}", hook.hello().unguarded);
        let (mut tally, deadline) = (Tally::default(), Instant::now() + LIMIT);
        for turn in 0u64.. {
            while let Some(line) = self.lines.waiting() {
                if line.starts_with("open ") {
                    open = families(&line)?;
                } else if line.starts_with("closed ") {
                    tally.cycles += 1;
                } else if line.starts_with("verified ") {
                    drop(stdin);
                    tally.cycles -= 1;
                    return Ok(tally);
                }
            }
            ensure!(Instant::now() < deadline, "not done within {LIMIT:?}: {tally:?}");
            ensure!(self.process.is_running()?, "the program has ended: {tally:?}");
            let family = &open[usize::from(turn % 3 == 0)];
            one_job(&mut hook, family, turn % 5 == 4, &mut tally)?;
        }
        bail!("out of turns")
    }

    fn target(&self) -> Result<Target> {
        inspected::target(self.process.pid())
    }
}

/// Starts one job and waits for its outcome.
fn one_job(
    hook: &mut HookClient,
    family: &ColumnFamilyPointers,
    is_flush: bool,
    tally: &mut Tally,
) -> Result<()> {
    let started = if is_flush {
        hook.flush(family)
    } else {
        hook.start_compaction(everything(family, BottommostLevelCompaction::Force))
    };
    let id = match started {
        Ok(id) => id,
        Err(ExecuteError::Hook { kind: ErrorKind::Refused, .. }) => {
            tally.not_started += 1;
            std::thread::sleep(POLL);
            return Ok(());
        }
        Err(error) => return Err(error).context("starting a job"),
    };
    tally.started += 1;
    let finished = loop {
        match hook.compaction_status(id).with_context(|| format!("asking after job {id}"))? {
            CompactionState::Running { .. } => std::thread::sleep(POLL),
            CompactionState::Finished(finished) => break finished,
        }
    };
    match finished {
        Finished { ok: true, .. } => tally.done += 1,
        Finished { closed_by_owner: true, .. } => tally.closed_by_owner += 1,
        Finished { error, .. } => {
            // The owner came between the asking and the beginning, or dropped the column family.
            let error = error.unwrap_or_default();
            ensure!(is_owners_doing(&error), "job {id} ended with: {error}");
            tally.refused += 1;
        }
    }
    Ok(())
}

/// Whether a job failed because its owner is done with the object, and not for a reason of ours.
fn is_owners_doing(error: &str) -> bool {
    const WORDS: [&str; 10] = [
        "its owner",
        "is not readable",
        "is no rocksdb::",
        "belongs to the database",
        "has id",
        "is named",
        "is null",
        "is misaligned",
        "Column family dropped",
        "Shutdown in progress",
    ];
    WORDS.iter().any(|words| error.contains(words))
}

/// keyTable and scratch of a line `open CYCLE DATABASE KEYTABLE ID SCRATCH ID`.
fn families(line: &str) -> Result<[ColumnFamilyPointers; 2]> {
    let numbers: Vec<u64> = line.split(' ').skip(1).map_while(|word| word.parse().ok()).collect();
    let [_, database, table, table_id, scratch, scratch_id] = numbers.as_slice() else {
        bail!("not a line of a cycle: {line}");
    };
    let pointers = |handle: u64, name: &str, id: u64| -> Result<ColumnFamilyPointers> {
        Ok(ColumnFamilyPointers {
            database: *database,
            handle,
            name: name.to_owned(),
            id: u32::try_from(id)?,
        })
    };
    Ok([pointers(*table, "keyTable", *table_id)?, pointers(*scratch, "scratch", *scratch_id)?])
}
