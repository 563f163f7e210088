//! Of agents that share a lock one acts at a time, whatever becomes of the lock and of the agents.
//!
//! Method: a real etcd on the loopback interface, whose own client the agents run (`guards.hold`). Queues
//! whose RocksDBs log each compaction that somebody asks them for: that no two of them overlap is read there,
//! and not asked of the agents. What is left of locks etcd says, and which clients live `/proc`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, text};
use sexton_tests::etcd::Etcd;
use sexton_tests::process::Process;
use sexton_tests::rocksdb_log::{ManualCompaction, manual_compactions};
use sexton_tests::workload::{COLUMN_FAMILY, Start, Workload};
use sexton_tests::{artifact, state};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Actions of all agents together; `make test-peers` says more.
const ACTIONS: u64 = 24;
const ACTIONS_VARIABLE: &str = "SEXTON_PEERS_ACTIONS";
/// What one action may take at the slowest.
const ACTION_LIMIT: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(100);
/// A lock whose holder etcd has not heard of for so long is free.
const TIME_TO_LIVE_S: u32 = 2;
/// A client that does not hear of etcd any more gives up within its lock's time to live; it looks now and
/// then, and so do the loop and the machine.
const LOSS_LIMIT: Duration = Duration::from_secs(15);
const QUEUE_SECONDS: u64 = 1_800;

/// A small queue with the hook in which there is always something to compact.
fn queue(directory: &Path, background_bytes_per_second: u64) -> Result<Workload> {
    let mut queue = Workload::start_with(
        Start {
            directory: &directory.join("db"),
            keys: 5_000,
            seconds: QUEUE_SECONDS,
            preload: Some(&artifact::built("libsexton_hook.so")?),
            stderr: Stdio::inherit(),
        },
        &[
            "--creates-per-second=40",
            "--deletes-per-second=20",
            "--lists-per-second=20",
            "--list-threads=1",
            "--write-buffer-bytes=524288",
            "--level0-compaction-files=20",
            &format!("--background-bytes-per-second={background_bytes_per_second}"),
        ],
        &[],
    )?;
    queue.second(LIMIT)?;
    Ok(queue)
}

/// Whatever hurts is acted on, again and again.
fn policy(entries: &[(&str, u32)], cooldown: &str, guards: &str) -> String {
    let entry = |(name, pid): &(&str, u32)| {
        format!(
            "  - {{ name: {name}, match: {{ pid: {pid} }}, executor: hook, remedies: [compact], \
             column_families: [{{ name: {COLUMN_FAMILY} }}] }}\n"
        )
    };
    let entries: String = entries.iter().map(entry).collect();
    format!(
        "mode: act
targets:
{entries}thresholds: {{ tombstones_per_operation: 100, block_reads_per_operation: 64, pain: 1ns/s, density: 0.0 }}
margin: {{ benefit_cost_ratio_min: 0 }}
relief_ratio_min: 0
loop: {{ interval: 500ms, window: 300ms, survey: 500ms }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 1GiB/s, burst: 100GiB }}
cooldown: {cooldown}
guards: {{ process_uptime_min: 0s, latency_ratio_max: 1000, {guards} }}
keys: shown
"
    )
}

fn hold(command: &[String], acquire_timeout: &str) -> String {
    let words: Vec<String> = command.iter().map(|word| format!("\"{word}\"")).collect();
    format!("hold: {{ run: [{}], acquire_timeout: {acquire_timeout} }}", words.join(", "))
}

fn audit_log(directory: &Path) -> PathBuf {
    directory.join("state/audit.jsonl")
}

/// Actions that have run through, as an agent tells.
fn actions_done(directory: &Path) -> u64 {
    let events = state::events(&audit_log(directory)).unwrap_or_default();
    events.iter().filter(|event| state::name(event) == "slice_done").count() as u64
}

fn until(limit: Duration, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "waited {limit:?} in vain for {what}");
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Fails where two compactions, of whichever databases, ran at the same time. Gives how many there were.
fn check_none_overlap(databases: &[PathBuf]) -> Result<usize> {
    let mut all: Vec<(ManualCompaction, &Path)> = Vec::new();
    for database in databases {
        all.extend(manual_compactions(database)?.into_iter().map(|it| (it, database.as_path())));
    }
    all.sort_by_key(|(compaction, _)| compaction.began_us);
    for pair in all.windows(2) {
        if let [(first, of_first), (second, of_second)] = pair {
            let is_apart = first.ended_us.is_some_and(|ended_us| ended_us <= second.began_us);
            ensure!(
                is_apart,
                "{first:?} of {} and {second:?} of {}",
                of_first.display(),
                of_second.display()
            );
        }
    }
    Ok(all.len())
}

#[test]
fn of_three_agents_one_acts_at_a_time() -> Result<()> {
    let _turn = agent::beside_others()?;
    let actions = std::env::var(ACTIONS_VARIABLE).map_or(Ok(ACTIONS), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let etcd = Etcd::start(&folder.path().join("etcd"))?;
    let guards = hold(&etcd.lock_command("sexton/compaction", 10)?, "60s");
    let (mut queues, mut agents, mut databases) = (Vec::new(), Vec::new(), Vec::new());
    let nodes: Vec<PathBuf> = ["one", "two", "three"].map(|name| folder.path().join(name)).into();
    for node in &nodes {
        for name in ["a", "b", "c"] {
            std::fs::create_dir_all(node.join(name))?;
            queues.push(queue(&node.join(name), 4 << 20)?);
            databases.push(node.join(name).join("db"));
        }
    }
    for (node, queues) in nodes.iter().zip(queues.chunks(3)) {
        let entries: Vec<(&str, u32)> =
            ["a", "b", "c"].into_iter().zip(queues.iter().map(|queue| queue.process.pid())).collect();
        agents.push(Agent::start(node, &policy(&entries, "1s", &guards))?);
    }
    let done = || nodes.iter().map(|node| actions_done(node)).collect::<Vec<u64>>();
    let limit = ACTION_LIMIT * u32::try_from(actions)?;
    let began = Instant::now();
    until(limit, "actions of all agents", || {
        let done = done();
        Ok(done.iter().sum::<u64>() >= actions && done.iter().all(|count| *count > 0))
    })
    .with_context(|| {
        let logs: Vec<String> = agents.iter().map(Agent::log_end).collect();
        format!("so many have been done: {:?}\n{}", done(), logs.join("\n\n"))
    })?;
    println!("{:?} actions in {:?}", done(), began.elapsed());
    agents.into_iter().try_for_each(Agent::stop)?;
    let compactions = check_none_overlap(&databases)?;
    println!("{compactions} compactions, none beside another");
    ensure!(compactions as u64 >= actions, "RocksDB knows of {compactions} compactions");
    ensure!(etcd.keys()?.is_empty(), "locks are left: {:?}", etcd.keys()?);
    ensure!(etcd.clients()?.is_empty(), "clients are left: {:?}", etcd.clients()?);
    Ok(())
}

/// The end of the newest action; `None`: it has none yet.
fn newest_end(agent: &Agent) -> Result<Option<Value>> {
    let answer = agent.get("/api/v1/actions")?;
    let ended = |action: &&Value| !["planned", "running"].contains(&text(action, "/state"));
    Ok(list(&answer, "actions")?.first().filter(ended).cloned())
}

/// Each action takes twenty seconds. First etcd goes while one runs, then the agent is killed while one runs.
#[test]
fn what_has_lost_its_lock_is_stopped_and_nothing_is_left() -> Result<()> {
    let _turn = agent::beside_others()?;
    let folder = tempfile::tempdir()?;
    let queue = queue(folder.path(), 40_000)?;
    let database = folder.path().join("db");
    let runs = || Ok(manual_compactions(&database)?.last().is_some_and(|last| last.ended_us.is_none()));
    let etcd = Etcd::start(&folder.path().join("etcd"))?;
    let pid = queue.process.pid();
    let with_lock = |etcd: &Etcd| -> Result<String> {
        let lock = etcd.lock_command("sexton/compaction", TIME_TO_LIVE_S)?;
        Ok(policy(&[("queue", pid)], "1s", &hold(&lock, "60s")))
    };
    let mut agent = Agent::start(folder.path(), &with_lock(&etcd)?)?;
    until(LIMIT, "a compaction", runs)?;
    ensure!(etcd.keys()?.len() == 1 && etcd.clients()?.len() == 1, "{:?}", etcd.keys()?);
    let client = etcd.clients()?;
    drop(etcd);
    let lost = Instant::now();
    let end = agent.wait_for(LOSS_LIMIT, "the end of the action", newest_end)?;
    println!("etcd has gone; {:?} later: {}", lost.elapsed(), text(&end, "/outcome"));
    ensure!(text(&end, "/state") == "stopped", "{end}");
    ensure!(text(&end, "/outcome").contains("the lock is lost"), "{end}");
    until(LOSS_LIMIT, "RocksDB to stop", || Ok(!runs()?))?;
    let lives = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
    ensure!(!client.iter().any(lives), "the client lives on");
    agent.stop()?;

    let etcd = Etcd::start(&folder.path().join("etcd-anew"))?;
    let agent = Agent::start(folder.path(), &with_lock(&etcd)?)?;
    until(LIMIT, "another compaction", runs)?;
    ensure!(etcd.keys()?.len() == 1 && etcd.clients()?.len() == 1, "{:?}", etcd.keys()?);
    // Dropping it is `kill -9` of its pid, and waiting for its end.
    drop(agent);
    until(Duration::from_secs(5), "the client to end", || Ok(etcd.clients()?.is_empty()))?;
    until(LOSS_LIMIT, "the lock to be free", || Ok(etcd.keys()?.is_empty()))
}

/// Two entries with locks and questions of their own. Somebody else has the lock of one, and the answer for
/// the other is no at first.
#[test]
fn who_does_not_get_a_lock_or_a_yes_is_refused_and_holds_up_nobody() -> Result<()> {
    let _turn = agent::beside_others()?;
    let folder = tempfile::tempdir()?;
    let etcd = Etcd::start(&folder.path().join("etcd"))?;
    let other = etcd.lock_command("sexton/taken", 5)?;
    let (program, arguments) = other.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let other = Process::start(command)?;
    until(LIMIT, "the lock to be taken", || Ok(etcd.keys()?.len() == 1))?;
    let mut queues = Vec::new();
    for name in ["taken", "free"] {
        std::fs::create_dir_all(folder.path().join(name))?;
        queues.push(queue(&folder.path().join(name), 4 << 20)?);
    }
    let no = folder.path().join("no-free");
    std::fs::write(&no, "")?;
    let guards = format!(
        "{}, command: {{ run: [test, \"!\", -e, \"{}/no-{{entry}}\"] }}",
        hold(&etcd.lock_command("sexton/{entry}", 10)?, "2s"),
        folder.path().display()
    );
    let pids: Vec<u32> = queues.iter().map(|queue| queue.process.pid()).collect();
    let entries: Vec<(&str, u32)> = ["taken", "free"].into_iter().zip(pids.iter().copied()).collect();
    let mut agent = Agent::start(folder.path(), &policy(&entries, "1s", &guards))?;
    let refusal = |agent: &Agent, pid: u32, guard: &str| -> Result<Option<Value>> {
        let targets = agent.get("/api/v1/targets")?;
        let of_pid = |target: &&Value| target.get("pid").and_then(Value::as_u64) == Some(pid.into());
        let Some(target) = list(&targets, "targets")?.iter().find(of_pid) else { return Ok(None) };
        let is_it = |view: &&Value| {
            text(view, "/guard") == guard && count(view, "/refusals").is_ok_and(|refusals| refusals > 0)
        };
        Ok(list(target, "guards")?.iter().find(is_it).cloned())
    };
    let &[taken, free] = pids.as_slice() else { unreachable!("two queues") };
    let said_no = agent.wait_for(LIMIT, "a no", |agent| refusal(agent, free, "command"))?;
    ensure!(text(&said_no, "/reason").contains("test ended with exit status: 1"), "{said_no}");
    ensure!(manual_compactions(&folder.path().join("free/db"))?.is_empty(), "it acted without a yes");
    std::fs::remove_file(&no)?;
    let not_had = agent.wait_for(LIMIT, "a lock that is not had", |agent| refusal(agent, taken, "hold"))?;
    ensure!(text(&not_had, "/reason").contains("the lock was not had within 2s"), "{not_had}");
    // They lie on one block device.
    until(LIMIT, "actions on the other", || {
        Ok(manual_compactions(&folder.path().join("free/db"))?.len() > 2)
    })?;
    ensure!(manual_compactions(&folder.path().join("taken/db"))?.is_empty(), "it acted without its lock");
    drop(other);
    let log = || agent.log_end();
    until(LIMIT, "an action once the lock is free", || {
        Ok(!manual_compactions(&folder.path().join("taken/db"))?.is_empty())
    })
    .with_context(log)?;
    agent.stop()?;
    ensure!(etcd.clients()?.is_empty(), "clients are left");
    Ok(())
}
