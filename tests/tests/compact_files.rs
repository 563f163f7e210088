//! Some files are compacted by themselves where that is cheaper than any range: exactly the planned ones, at
//! exactly the predicted price. And what RocksDB compacts itself meanwhile is left for later.
//!
//! Method: a program with RocksDB 11.12 (`sexton-files-host`), whose live files are what a plan is made of,
//! with readers that are made up. The plan's action is carried out by the executor and the hook in that
//! program. RocksDB's own event log is the witness.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use sexton_execute::{
    CompactTask, Executor, HandlePointers, HookClient, HookExecutor, HookOptions, JobEnd, JobOutcome,
    JobStatus, Task,
};
use sexton_hook_protocol::{ColumnFamilyPointers, CompactFiles, CompactionState, ErrorKind, Finished};
use sexton_tests::agent::{self, Agent, list, number, text};
use sexton_tests::artifact;
use sexton_tests::inspected;
use sexton_tests::process::{Lines, Process};
use sexton_tuner::evidence::{Counters, Observation, SeekKind, SstFile};
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::simulation::lsm::picture::observe;
use sexton_tuner::{
    Action, Budget, CompactRange, Evidence, Key, KnownThrottles, PlanInput, PlanTarget, Policy, plan,
};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Filling and compacting take a second here.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Keys that the program has deleted, and how many of them it has not written again.
const DELETED: [u32; 2] = [800, 1_200];
const TOMBSTONES_MET: u64 = 200;
/// The newer file of L0 has a thousand values of 10,000 bytes.
const NEWER_BYTES_MIN: u64 = 10_000_000;

const POLICY: &str = "
mode: act
thresholds: { pain: 1us/s }
margin: { benefit_cost_ratio_min: 0 }
io_budget: { rate: 1GiB/s, burst: 64GiB }
targets: [{ name: t, match: { pid: 1 }, remedies: [compact] }]
";

#[test]
fn exactly_the_planned_files_are_compacted_at_exactly_the_predicted_price() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let host = Host::start(directory.path())?;
    let (mut hook, family) = host.hook()?;
    ensure!(hook.primitives().compact_files, "the hook has not found CompactFiles: {:?}", hook.hello());
    let before = hook.sst_files(&family)?;
    let action = host.planned(&mut hook, &before)?;
    let files = action.primitive.files().context("it is no CompactFiles")?.clone();
    println!("{}", action.reason);
    let newest = before.iter().map(|file| file.number).max().context("no files")?;
    ensure!(files.files.len() + 1 == before.len() && !files.files.contains(&newest), "all files: {files:?}");
    let size_bytes: u64 =
        before.iter().filter(|file| file.number != newest).map(|file| file.size_bytes).sum();
    ensure!(action.cost_bytes == size_bytes, "predicted are {} of {size_bytes} bytes", action.cost_bytes);

    let task = host.task(&hook, &family, &action);
    let hook = Arc::new(Mutex::new(hook));
    let outcome = carry_out(&hook, &task)?;
    ensure!(outcome.end == JobEnd::Done, "it ended with {outcome:?}");
    ensure!(outcome.bytes_replaced == action.cost_bytes && outcome.bytes_flushed == 0, "{outcome:?}");
    let started = host.compactions()?;
    let [.., last] = started.as_slice() else { anyhow::bail!("RocksDB's event log has no compaction") };
    let inputs: BTreeSet<u64> = files.files.iter().copied().collect();
    ensure!(*last == (inputs, action.cost_bytes), "RocksDB has compacted {last:?}, planned were {files:?}");
    {
        let mut hook = hook.lock().map_err(|_| anyhow::anyhow!("the hook's lock"))?;
        let after = hook.sst_files(&family)?;
        ensure!(after.iter().all(|file| file.deletions == 0), "tombstones are left: {after:?}");
        ensure!(after.iter().any(|file| file.number == newest && file.level == 0), "the newer file has gone");
        // The same once more, with files that are gone.
        let count = host.compactions()?.len();
        let finished = asked(&mut hook, &family, &files.files, files.output_level)?;
        ensure!(!finished.ok && finished.busy, "files that are gone: {finished:?}");
        let upwards = asked(&mut hook, &family, &[newest + 1_000], 6)?;
        ensure!(upwards.busy, "a file that never was: {upwards:?}");
        ensure!(host.compactions()?.len() == count, "RocksDB was asked to compact what is gone");
        for (numbers, level) in [(vec![], 6), (vec![newest; 257], 6), (vec![newest], 0)] {
            let refused = hook.start_compaction_of_files(request(&family, &numbers, level));
            let Err(sexton_execute::ExecuteError::Hook { kind, .. }) = refused else {
                anyhow::bail!("{} files into level {level}: {refused:?}", numbers.len())
            };
            ensure!(kind == ErrorKind::BadRequest, "{kind:?}");
        }
    }
    let again = carry_out(&hook, &task)?;
    ensure!(matches!(again.end, JobEnd::NotBegun { .. }), "files that have changed: {again:?}");
    drop(hook);
    host.end()
}

#[test]
fn files_that_rocksdb_compacts_itself_are_left_for_later() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut host = Host::start(directory.path())?;
    let (mut hook, family) = host.hook()?;
    let before = hook.sst_files(&family)?;
    let action = host.planned(&mut hook, &before)?;
    let task = host.task(&hook, &family, &action);
    let hook = Arc::new(Mutex::new(hook));
    host.ask("compact", "compacting")?;
    let began = Instant::now();
    let outcome = carry_out(&hook, &task)?;
    let JobEnd::NotBegun { reason } = &outcome.end else { anyhow::bail!("it ended with {outcome:?}") };
    println!("{reason}; after {:?}", began.elapsed());
    ensure!(reason.starts_with("Operation aborted"), "not RocksDB's words: {reason}");
    ensure!(outcome.bytes_replaced == 0, "it has replaced files: {outcome:?}");
    host.ask("release", "compacted")?;
    drop(hook);
    host.end()
}

/// The whole way: what readers lose is seen by probes, and an agent acts on it.
#[test]
fn an_agent_heals_readers_by_compacting_files() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let host = Host::start_with(directory.path(), &["--walks-per-second", "100"])?;
    let before = host.compactions()?;
    let mut agent = Agent::start(directory.path(), &agent_policy(host.process.pid()))?;
    let action = agent.wait_for(LIMIT, "an action that was verified", |agent| {
        let actions = agent.get("/api/v1/actions")?;
        let is_verified = |action: &&Value| ["helped", "did_not_help"].contains(&text(action, "/state"));
        Ok(list(&actions, "actions")?.iter().find(is_verified).cloned())
    })?;
    println!("{} {}: {}", text(&action, "/action"), text(&action, "/state"), text(&action, "/outcome"));
    ensure!(text(&action, "/state") == "helped", "it has not helped: {action}");
    let after = host.compactions()?;
    let [own] = after.get(before.len()..).unwrap_or_default() else {
        anyhow::bail!("RocksDB has compacted {after:?}, before the agent came {before:?}")
    };
    let rewritten = number(&action, "/bytes_rewritten")?;
    ensure!(rewritten == own.1 as f64, "{rewritten} bytes by the agent, by RocksDB {own:?}");
    // All but the newer file of L0, by which any range would be ten times as dear.
    ensure!(own.0.len() == 2 && own.1 < NEWER_BYTES_MIN, "RocksDB has compacted {own:?}");
    agent.stop()?;
    host.end()
}

fn agent_policy(pid: u32) -> String {
    format!(
        "\
mode: act
targets:
  - name: files
    match: {{ pid: {pid} }}
    executor: hook
    remedies: [compact]
thresholds: {{ tombstones_per_operation: 100, block_reads_per_operation: 64, pain: 100us/s, density: 0.0 }}
loop: {{ interval: 500ms, window: 400ms, survey: 500ms }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 64MiB/s, burst: 4GiB }}
guards: {{ process_uptime_min: 0s }}
keys: shown
"
    )
}

/// Numbers of the files that a compaction has taken, and their bytes.
type Inputs = (BTreeSet<u64>, u64);

struct Host {
    process: Process,
    stdin: ChildStdin,
    lines: Lines,
    database: PathBuf,
}

impl Host {
    fn start(directory: &Path) -> Result<Host> {
        Host::start_with(directory, &[])
    }

    fn start_with(directory: &Path, arguments: &[&str]) -> Result<Host> {
        let database = directory.join("db");
        let mut command = Command::new(artifact::built("sexton-files-host")?);
        command.arg(&database).args(arguments).env("SEXTON_HOOK_LOG", directory.join("hook.log"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines = Lines::of("files host", process.take_stdout().context("no standard output")?);
        lines.until(LIMIT, |line| line == "ready").context("waiting for the database")?;
        Ok(Host { process, stdin, lines, database })
    }

    fn ask(&mut self, words: &str, answer: &str) -> Result<()> {
        writeln!(self.stdin, "{words}")?;
        self.lines.until(LIMIT, |line| line == answer).context(answer.to_owned())?;
        Ok(())
    }

    fn hook(&self) -> Result<(HookClient, ColumnFamilyPointers)> {
        let target = inspected::target(self.process.pid())?;
        let mut hook =
            HookClient::connect(&target, &HookOptions::default()).context("connecting to the hook")?;
        let known = hook.databases()?.into_iter().next().context("no column family is registered")?;
        Ok((hook, known.pointers))
    }

    /// The first action of a plan for readers that walk over what was deleted.
    fn planned(&self, hook: &mut HookClient, files: &[SstFile]) -> Result<CompactRange> {
        let policy = Policy::parse(POLICY)?;
        let key = |number: u32| Key::new(format!("key{number:09}"));
        let scan = Counters { tombstones_skipped: TOMBSTONES_MET, ..Counters::default() };
        let walk = Observation {
            column_family: Some("default".to_owned()),
            end_key: Some(key(DELETED[1])),
            scan,
            scan_elapsed_ns: 1_000_000,
            ..Observation::at(SeekKind::Seek, key(DELETED[0]))
        };
        let options = ColumnFamilyOptions { has_compaction_filter: true, ..ColumnFamilyOptions::default() };
        let mut evidence = Evidence {
            target: "t".to_owned(),
            database: self.database.display().to_string(),
            files: files.to_vec(),
            column_families: [("default".to_owned(), options)].into(),
            primitives: hook.primitives(),
            ..Evidence::default()
        };
        observe(&mut evidence, &vec![walk; 100], 1_000_000_000);
        let input = PlanInput {
            policy: &policy,
            targets: &[PlanTarget {
                name: "t",
                policy: policy.targets.first().context("a target")?,
                evidence: &[evidence],
            }],
            budget: Budget { available_bytes: 64 << 30 },
            throttles: &KnownThrottles::new(),
            now: Timestamp::now(),
            previous: None,
        };
        let plan = plan(&input)?;
        match plan.actions.into_iter().next() {
            Some(Action::CompactRange(action)) => Ok(action),
            other => anyhow::bail!("planned is {other:?}, refused {:?}", plan.refusals),
        }
    }

    fn task(&self, hook: &HookClient, family: &ColumnFamilyPointers, action: &CompactRange) -> CompactTask {
        CompactTask {
            process: hook.target().process,
            target: hook.target().name.clone(),
            database: self.database.clone(),
            column_family: family.name.clone(),
            handles: Some(HandlePointers {
                database: family.database,
                column_family_handle: family.handle,
                column_family_id: family.id,
            }),
            others: Vec::new(),
            range: action.range.clone(),
            cost_bytes: action.cost_bytes,
            bottommost: action.bottommost,
            files: action.primitive.files().cloned(),
        }
    }

    /// Inputs of all compactions so far, by RocksDB's event log.
    fn compactions(&self) -> Result<Vec<Inputs>> {
        let log = std::fs::read_to_string(self.database.join("LOG")).context("reading RocksDB's LOG")?;
        let events = log.lines().filter_map(|line| line.split_once("EVENT_LOG_v1 ").map(|(_, event)| event));
        let mut compactions = Vec::new();
        for event in events {
            let event: Value = serde_json::from_str(event)?;
            let Some(fields) = event.as_object().filter(|_| event["event"] == "compaction_started") else {
                continue;
            };
            let of_levels = fields.iter().filter(|(name, _)| name.starts_with("files_L"));
            let numbers = of_levels.flat_map(|(_, files)| files.as_array().into_iter().flatten());
            let bytes = event["input_data_size"].as_u64().context("no input_data_size")?;
            compactions.push((numbers.filter_map(Value::as_u64).collect(), bytes));
        }
        Ok(compactions)
    }

    /// Lets the program close its database; it fails where keys are lost.
    fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = self.process.wait(LIMIT)?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }
}

/// As the engine does.
fn carry_out(hook: &Arc<Mutex<HookClient>>, task: &CompactTask) -> Result<JobOutcome> {
    let mut executor = HookExecutor::new(Some(Arc::clone(hook)), None);
    let job = executor.start(&Task::Compact(task.clone()))?;
    ensure!(!executor.can_stop(), "guards would be asked of what nothing stops");
    let deadline = Instant::now() + LIMIT;
    loop {
        match executor.poll(job) {
            JobStatus::Ended(outcome) => return Ok(outcome?),
            JobStatus::Running(_) => std::thread::sleep(POLL),
        }
        ensure!(Instant::now() < deadline, "it has not ended within {LIMIT:?}");
    }
}

fn request(family: &ColumnFamilyPointers, numbers: &[u64], output_level: u32) -> CompactFiles {
    let (column_family, files) = (family.clone(), numbers.to_vec());
    CompactFiles { column_family, files, output_level, output_file_bytes: 64 << 20 }
}

/// How the hook ends what it is asked without an executor before it.
fn asked(
    hook: &mut HookClient,
    family: &ColumnFamilyPointers,
    numbers: &[u64],
    output_level: u32,
) -> Result<Finished> {
    let id = hook.start_compaction_of_files(request(family, numbers, output_level))?;
    let deadline = Instant::now() + LIMIT;
    loop {
        if let CompactionState::Finished(finished) = hook.compaction_status(id)? {
            return Ok(finished);
        }
        ensure!(Instant::now() < deadline, "job {id} is not done within {LIMIT:?}");
        std::thread::sleep(POLL);
    }
}
