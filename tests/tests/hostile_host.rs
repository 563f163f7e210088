//! A hostile program on the node: the queue beside it is watched and relieved as if it were not there, the
//! agent's memory stays small, and nothing is opened that is not its own.
//!
//! Method: `tests/python/hostile_host.py` does what it can for some seconds (`SEXTON_HOSTILE_SECONDS`; ten
//! minutes in `make test-hostile`), six more programs have files mapped that are made to be examined for
//! ever, and a queue piles up tombstones. The kernel says how much memory the agent had at most, and who
//! opened what of a database that is nobody's target.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Agent, count, list, text};
use sexton_tests::opened::Opened;
use sexton_tests::process::{Lines, Process};
use sexton_tests::static_host::StaticHost;
use sexton_tests::workload::{self, Workload};
use sexton_tests::{artifact, machine};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
/// How long it goes on where nobody says.
const SECONDS: u64 = 10;
/// What the agent may take beyond what it takes alone: what one file may have, and what it keeps of all.
const MEMORY_KIB_MAX: i64 = 64 << 10;
/// Files that say what is not so, as `tests/tests/hostile/files.py` makes them.
const KINDS: [&str; 3] =
    ["more_sections_than_memory", "symbol_tables_of_one_sparse_string_table", "vtables_of_endless_code"];

fn python(arguments: &[&Path]) -> Result<Command> {
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

fn start(mut command: Command, line: &str) -> Result<(Process, Lines)> {
    let mut process = Process::start({
        command.stdin(Stdio::piped());
        command
    })?;
    let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |said| said == line)?;
    Ok((process, lines))
}

/// The most memory that a process has had.
fn memory_kib(pid: u32) -> Result<i64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// How often something of the queue was compacted.
fn compactions(agent: &Agent) -> Result<usize> {
    let actions = agent.get("/api/v1/actions")?;
    let is_done =
        |action: &&serde_json::Value| ["done", "helped", "did_not_help"].contains(&text(action, "/state"));
    Ok(list(&actions, "actions")?.iter().filter(is_done).count())
}

#[test]
fn a_hostile_host_takes_nothing_from_its_neighbours() -> Result<()> {
    let _turn = agent::beside_others()?;
    let seconds = std::env::var("SEXTON_HOSTILE_SECONDS").ok().map(|text| text.parse()).transpose()?;
    let lasting = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let directory = tempfile::tempdir()?;
    let victim = directory.path().join("victim");
    StaticHost::start(&victim, &["--keys", "1000"])?.quit()?;
    let victim = victim.join("database0");
    let mut queue = Workload::slowly_compacted(&directory.path().join("queue"), 4 << 20)?;
    queue.second(machine::patience(LIMIT)?)?;
    let settings = "  - { name: hostile, mode: observe, match: { executable: \"*/python3*\" } }\n\
                    thresholds: { tombstones_per_operation: 100, pain: 1us/s }\n\
                    loop: { interval: 2s, window: 300ms, survey: 1s }\nprobes: { budget: 50% }\ncooldown: 2s\n\
                    io_budget: { rate: 64MiB/s, burst: 1GiB }\n\
                    guards: { process_uptime_min: 0s, latency_ratio_max: 1000 }\n";
    let policy = workload::policy(queue.process.pid(), "act", "[compact]", settings);
    let mut agent = Agent::start(directory.path(), &policy)?;
    agent.wait_for(LIMIT, "a compaction", |agent| Ok((compactions(agent)? > 0).then_some(())))?;
    let alone = memory_kib(agent.process.pid())?;

    let opened = Opened::watch(&victim)?;
    let mut mappers = Vec::new();
    for kind in KINDS {
        let program = artifact::repository().join("tests/tests/hostile/files.py");
        mappers.push(start(python(&[&program, Path::new(kind), &directory.path().join(kind)])?, "mapped")?);
    }
    let program = artifact::repository().join("tests/python/hostile_host.py");
    let (hostile, games) = (artifact::debian_rocksdb()?, directory.path().join("games"));
    std::fs::create_dir(&games)?;
    let (mut hostile, _lines) = start(python(&[&program, &hostile, &games, &victim])?, "ready")?;
    agent.wait_for(LIMIT, "the hostile target", |agent| {
        let targets = agent.get("/api/v1/targets")?;
        let is_it = |target: &serde_json::Value| count(target, "/pid").ok() == Some(hostile.pid().into());
        Ok(list(&targets, "targets")?.iter().any(is_it).then_some(()))
    })?;
    let (before, begun) = (compactions(&agent)?, Instant::now());
    while begun.elapsed() < lasting {
        // It answers, and its cycles end.
        agent.get("/healthz").context("while the hostile program runs")?;
        queue.second(machine::patience(LIMIT)?)?;
    }
    agent.wait_for(LIMIT, "one more compaction of the queue", |agent| {
        Ok((compactions(agent)? > before).then_some(()))
    })?;
    let taken = memory_kib(agent.process.pid())? - alone;
    println!("the agent had {alone} KiB alone, and {taken} KiB more beside the hostile program");
    ensure!(taken <= MEMORY_KIB_MAX, "the agent grew by {taken} KiB beyond {alone} KiB");
    ensure!(hostile.is_running()? && queue.process.is_running()?, "one of the programs has ended");
    let others = opened.by_others(&victim.join("CURRENT"), &[hostile.pid()])?;
    ensure!(others.is_empty(), "somebody has opened {others:?}");
    let log = agent.log();
    ensure!(
        !log.lines().any(|line| line.starts_with("FAKE")) && !log.contains('\x07'),
        "a name forges the log"
    );
    agent.stop()
}
