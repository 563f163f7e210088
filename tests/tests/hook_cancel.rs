//! A compaction that was cancelled stays cancelled, however long it has waited for its turn, and cancelling
//! it fails none of the application's own.
//!
//! Method, the first: a C program's RocksDB has an automatic compaction that a compaction filter holds back,
//! and one L0 file less than slows writers down. A range compaction of the hook begins with a flush, and
//! waits there until that would stall nobody: for as long as this test likes. It is cancelled meanwhile, and
//! only then the automatic compaction is let go. What RocksDB did then is in its LOG. The second: a Java
//! program, whose RocksDB throws what fails, compacts a thousand times while the hook begins and cancels one
//! compaction after the other.

use anyhow::{Context, Result, anyhow, bail, ensure};
use sexton_execute::{
    CompactTask, ExecuteError, Executor, HandlePointers, HookClient, HookExecutor, HookOptions, JobStatus,
    Task,
};
use sexton_hook_protocol::{BottommostLevelCompaction, ColumnFamilyPointers, CompactionState, Finished};
use sexton_tests::compactions::everything;
use sexton_tests::inspected;
use sexton_tests::process::{Lines, Process};
use sexton_tests::{artifact, jvm};
use sexton_tuner::cost::Bottommost;
use sexton_tuner::range::KeyRange;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Compiling, opening and compacting take a second or two here.
const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);
/// How long an executor waits in vain here for the end of what it has cancelled.
const GIVING_UP_AFTER: Duration = Duration::from_secs(1);

/// Calls that the application makes of its own.
const OWN_CALLS: u64 = 1_000;
/// With a version in which nothing else is different.
const OWN_CALLS_OF_OTHERS: u64 = 200;
/// How far compactions of all keys, which take a tenth of a second, are let run before they are cancelled.
const CANCELLED_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(3), Duration::from_millis(20)];
/// Compactions that are cancelled meanwhile, at least, for this to prove anything: hundreds are.
const CANCELLED_MIN: u64 = 20;

/// What RocksDB writes into its LOG when a range compaction waits for a flush that would stall writers.
const WAITS: &str = "waiting on stall conditions to clear";
/// And when a range compaction begins to rewrite files.
const COMPACTS: &str = "\"compaction_reason\": \"ManualCompaction\"";

#[test]
fn a_compaction_that_was_cancelled_while_it_waited_never_begins() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut stalled = Stalled::start(directory.path())?;
    let mut hook = stalled.hook()?;
    let id = hook.start_compaction(everything(&stalled.family, BottommostLevelCompaction::Force))?;
    stalled.wait_for_log(WAITS)?;
    let state = hook.cancel_compaction(id)?;
    ensure!(matches!(state, CompactionState::Running { .. }), "it did not wait any longer: {state:?}");
    stalled.release()?;
    stalled.ends_without_compacting(&mut hook, id)?;
    stalled.end()
}

#[test]
fn what_does_not_end_after_its_cancellation_is_given_up_on_and_still_never_begins() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut stalled = Stalled::start(directory.path())?;
    let hook = stalled.hook()?;
    let task = Task::Compact(stalled.task(&hook));
    let hook = Arc::new(Mutex::new(hook));
    let mut executor = HookExecutor::new(Some(Arc::clone(&hook)), None).giving_up_after(GIVING_UP_AFTER);
    let job = executor.start(&task)?;
    let (deadline, mut hook_job) = (Instant::now() + LIMIT, None);
    let id = loop {
        match executor.poll(job) {
            JobStatus::Running(progress) => hook_job = hook_job.or(progress.hook_job),
            JobStatus::Ended(Err(ExecuteError::StillRunning { job, .. })) => break job,
            JobStatus::Ended(other) => bail!("it was not given up on: {other:?}"),
        }
        ensure!(Instant::now() < deadline, "it is still waited for");
        // Between two polls others may ask the same hook.
        hook.lock().map_err(|_| anyhow!("the hook's lock"))?.databases()?;
        if stalled.log()?.contains(WAITS) {
            executor.cancel(job);
        }
        std::thread::sleep(POLL);
    };
    ensure!(hook_job == Some(id), "the hook's number of it was told as {hook_job:?}, and is {id}");
    stalled.release()?;
    let mut hook = hook.lock().map_err(|_| anyhow!("the hook's lock"))?;
    stalled.ends_without_compacting(&mut hook, id)?;
    stalled.end()
}

/// 7.7 and 11.8: the flag of a call is in no C API, and found in the options of both.
#[test]
fn the_application_s_own_compactions_never_fail_because_of_ours() -> Result<()> {
    own_compactions_beside_ours(jvm::ROCKSDB_JAR, OWN_CALLS)?;
    own_compactions_beside_ours("rocksdbjni-11.8.1.jar", OWN_CALLS_OF_OTHERS)
}

fn own_compactions_beside_ours(jar: &str, calls: u64) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path();
    let jar = artifact::tool(jar)?;
    jvm::compile(&jar, &["CompactLoop.java"], path)?;
    let mut command = Command::new(artifact::installed("java", "default-jdk-headless")?);
    command.arg("-Xmx128m").arg(format!("-Djava.io.tmpdir={}", path.display()));
    command.arg("-cp").arg(format!("{}:{}", jar.display(), path.display()));
    command.arg("CompactLoop").arg(path.join("db")).arg(calls.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut stdin = process.take_stdin().context("no standard input")?;
    let mut lines = Lines::of("java", process.take_stdout().context("no standard output")?);
    let family = opened(&lines.until(LIMIT, |line| line.starts_with("open "))?, "keyTable")?;
    let target = inspected::target(process.pid())?;
    let mut hook = HookClient::connect(&target, &HookOptions { may_attach: true, ..HookOptions::default() })?;
    stdin.write_all(b"\n").context("letting the program begin")?;

    let (mut cancelled, deadline) = (0, Instant::now() + LIMIT);
    let result = loop {
        ensure!(Instant::now() < deadline, "the program is not done within {LIMIT:?}");
        if let Some(line) = lines.waiting().filter(|line| line.starts_with("compacted ")) {
            break line;
        }
        for time in CANCELLED_AFTER {
            let id = hook.start_compaction(everything(&family, BottommostLevelCompaction::Force))?;
            std::thread::sleep(time);
            hook.cancel_compaction(id)?;
            cancelled += u64::from(outcome(&mut hook, id)?.cancelled);
        }
    };
    println!("{result}; {cancelled} of ours were cancelled");
    ensure!(cancelled >= CANCELLED_MIN, "only {cancelled} compactions were cancelled beside it");
    ensure!(result.starts_with(&format!("compacted {calls} 0 ")), "its own have failed: {result}");
    drop(stdin);
    let status = process.wait(LIMIT)?;
    ensure!(status.success(), "the program ended with {status}");
    Ok(())
}

/// The column family of a line `open DATABASE HANDLE ID`.
fn opened(line: &str, name: &str) -> Result<ColumnFamilyPointers> {
    let numbers: Vec<u64> = line.split(' ').skip(1).map_while(|word| word.parse().ok()).collect();
    let [database, handle, id] = *numbers.as_slice() else { bail!("not what it prints: {line}") };
    Ok(ColumnFamilyPointers { database, handle, name: name.to_owned(), id: u32::try_from(id)? })
}

/// The program of the first method.
struct Stalled {
    process: Process,
    stdin: ChildStdin,
    family: ColumnFamilyPointers,
    database: PathBuf,
}

impl Stalled {
    fn start(directory: &Path) -> Result<Stalled> {
        let program = directory.join("stalled");
        let mut command = Command::new(artifact::installed("gcc", "gcc")?);
        command.args(["-O1", "-Wall", "-Wextra", "-Werror"]);
        command.arg(artifact::repository().join("tests/c/stalled.c"));
        command.arg("-o").arg(&program).arg("-lrocksdb");
        let status = Process::start(command)?.wait(LIMIT)?;
        ensure!(status.success(), "compiling stalled.c ended with {status}: run `make setup`");

        let database = directory.join("db");
        let mut command = Command::new(program);
        command.arg(&database).env("LD_PRELOAD", artifact::built("libsexton_hook.so")?);
        command.env("SEXTON_HOOK_LOG", directory.join("hook.log"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("stalled", process.take_stdout().context("no standard output")?);
        let line =
            lines.until(LIMIT, |line| line.starts_with("open ")).context("waiting for the database")?;
        let family = opened(&line, "default")?;
        Ok(Stalled { process, stdin, family, database })
    }

    fn hook(&self) -> Result<HookClient> {
        let target = inspected::target(self.process.pid())?;
        HookClient::connect(&target, &HookOptions::default()).context("connecting to the hook")
    }

    /// All keys, as the engine asks for them.
    fn task(&self, hook: &HookClient) -> CompactTask {
        let handles = HandlePointers {
            database: self.family.database,
            column_family_handle: self.family.handle,
            column_family_id: self.family.id,
        };
        CompactTask {
            process: hook.target().process,
            target: hook.target().name.clone(),
            database: self.database.clone(),
            column_family: self.family.name.clone(),
            handles: Some(handles),
            others: Vec::new(),
            range: KeyRange::everything(),
            cost_bytes: 0,
            bottommost: Bottommost::Force,
            files: None,
        }
    }

    /// Lets the automatic compaction go on.
    fn release(&mut self) -> Result<()> {
        self.stdin.write_all(b"\n").context("letting the automatic compaction go on")
    }

    fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.database.join("LOG")).context("reading RocksDB's LOG")
    }

    fn wait_for_log(&self, words: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while !self.log()?.contains(words) {
            ensure!(Instant::now() < deadline, "RocksDB's LOG never says {words:?}:\n{}", self.log()?);
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Job `id` ends as cancelled, without having compacted anything; the next one does.
    fn ends_without_compacting(&self, hook: &mut HookClient, id: u64) -> Result<()> {
        let finished = outcome(hook, id)?;
        ensure!(finished.cancelled && !finished.ok, "its end is another one: {finished:?}");
        ensure!(!self.log()?.contains(COMPACTS), "it was cancelled, and compacted when its turn came");
        let id = hook.start_compaction(everything(&self.family, BottommostLevelCompaction::Force))?;
        let finished = outcome(hook, id)?;
        ensure!(finished.ok && !finished.cancelled, "the next one ended with {finished:?}");
        ensure!(self.log()?.contains(COMPACTS), "manual compactions are still given up");
        Ok(())
    }

    /// Lets the program close its database.
    fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(LIMIT)?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }
}

fn outcome(hook: &mut HookClient, id: u64) -> Result<Finished> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let CompactionState::Finished(finished) = hook.compaction_status(id)? {
            return Ok(finished);
        }
        ensure!(Instant::now() < deadline, "job {id} is not done within {LIMIT:?}");
        std::thread::sleep(POLL);
    }
}
