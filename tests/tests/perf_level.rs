//! Where the policy says so, threads that count nothing are made to count, and get their former level back,
//! whatever happens to the agent.
//!
//! Method: `db_bench` seeks over deleted keys with its perf level off, as it has it by default. `sexton
//! observe` is the witness of what its threads' level is and whether their counters move.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, Observer, count, list, number, text};
use sexton_tests::db_bench;
use sexton_tests::process::Process;
use std::path::Path;
use std::time::{Duration, Instant};

/// `kDisable`: nothing is counted.
const LEVEL_OFF: u8 = 1;
/// `kEnableCount`.
const LEVEL_COUNTS: u64 = 2;
/// The least that its readers lose in a second, which do little else: seconds.
const LOST_MIN: f64 = 0.1;
/// The tests take a minute; the benchmark is ended with them.
const SECONDS: u64 = 300;
const LIMIT: Duration = Duration::from_secs(60);
/// The keeper acts when it is told; a busy machine is slower.
const BACK_LIMIT: Duration = Duration::from_secs(10);

fn seeking(directory: &Path) -> Result<Process> {
    let database = directory.join("db");
    db_bench::fill(&database)?;
    db_bench::seek_for(&database, SECONDS, LEVEL_OFF)
}

fn agent(directory: &Path, pid: u32, raise: bool) -> Result<Agent> {
    let policy = format!(
        "mode: observe\ntargets: [{{ name: bench, match: {{ pid: {pid} }}, raise_perf_level: {raise} }}]\n\
         probes: {{ budget: 100% }}\nloop: {{ interval: 1s, window: 1s, survey: 3s }}\n"
    );
    Agent::start(directory, &policy)
}

/// Waits until the agent's view of its one target is as wanted.
fn wait_for(agent: &mut Agent, what: &str, wanted: impl Fn(&Value) -> Result<bool>) -> Result<Value> {
    agent.wait_for(LIMIT, what, |agent| {
        let answer = agent.get("/api/v1/targets")?;
        let Some(target) = list(&answer, "targets")?.first().cloned() else { return Ok(None) };
        Ok(wanted(&target)?.then_some(target))
    })
}

fn has_gap(target: &Value, words: &str) -> Result<bool> {
    Ok(list(target, "gaps")?.iter().any(|gap| text(gap, "/what").contains(words)))
}

fn is_raised(target: &Value) -> Result<bool> {
    Ok(target["perf_level"] == LEVEL_COUNTS && count(target, "/perf_level_raised_threads")? >= 2)
}

/// What a window of a second sees of the process.
fn observed(process: &Process) -> Result<Value> {
    let mut report = Observer::start(process.pid(), 1, &[])?.finish(LIMIT)?;
    // One by one they only make a failure's message long.
    report.as_object_mut().map(|report| report.remove("observations"));
    Ok(report)
}

/// Its lowest perf level, and the keys skipped that it counted: these are never estimated.
fn level_and_keys(report: &Value) -> Result<(u64, u64)> {
    Ok((count(report, "/perf_level")?, count(report, "/total/keys_skipped")?))
}

fn wait_until_off(process: &Process) -> Result<()> {
    let deadline = Instant::now() + BACK_LIMIT;
    while level_and_keys(&observed(process)?)?.0 != u64::from(LEVEL_OFF) {
        ensure!(Instant::now() < deadline, "the former level is not put back within {BACK_LIMIT:?}");
    }
    let report = observed(process)?;
    ensure!(level_and_keys(&report)?.1 == 0, "keys were counted with the level off: {report}");
    Ok(())
}

/// Processes that keep the perf level of `pid`.
fn keepers(pid: u32) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        let command_line = std::fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = command_line.split(|byte| *byte == 0).collect();
        let is_keeper = words.contains(&b"internal-keep-perf-level".as_slice());
        count += usize::from(is_keeper && words.contains(&pid.to_string().as_bytes()));
    }
    Ok(count)
}

fn wait_until_no_keeper(pid: u32) -> Result<()> {
    let deadline = Instant::now() + BACK_LIMIT;
    while keepers(pid)? > 0 {
        ensure!(Instant::now() < deadline, "a keeper stays behind");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn without_the_switch_nothing_is_written() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let bench = seeking(directory.path())?;
    let mut agent = agent(directory.path(), bench.pid(), false)?;
    let target = wait_for(&mut agent, "an estimate", |target| has_gap(target, "tombstones are estimated"))?;
    ensure!(target["perf_level"] == LEVEL_OFF, "its level is another one: {target}");
    ensure!(has_gap(&target, "perf level 1 counts nothing")?, "the gap is not named: {target}");
    ensure!(count(&target, "/perf_level_raised_threads")? == 0, "raised: {target}");
    ensure!(keepers(bench.pid())? == 0, "there is a keeper");
    // Counters that stand still do not say that its readers lose nothing between windows.
    let lost = |target: &Value| number(target, "/pain_seconds_per_second");
    wait_for(&mut agent, "what its readers lose", |target| {
        Ok(has_gap(target, "tombstones are estimated")? && lost(target)? > LOST_MIN)
    })?;
    agent.stop()?;
    let report = observed(&bench)?;
    ensure!(level_and_keys(&report)? == (u64::from(LEVEL_OFF), 0), "it counts: {report}");
    Ok(())
}

#[test]
fn a_raised_level_counts_and_is_put_back_when_the_agent_stops() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let bench = seeking(directory.path())?;
    let mut agent = agent(directory.path(), bench.pid(), true)?;
    let target = wait_for(&mut agent, "counters that move", |target| {
        Ok(is_raised(target)? && count(target, "/totals/keys_skipped")? > 0)
    })?;
    ensure!(has_gap(&target, "perf level is raised by policy")?, "it is not said: {target}");
    ensure!(!has_gap(&target, "counts nothing")?, "it is said to count nothing: {target}");
    ensure!(keepers(bench.pid())? == 1, "not one keeper");
    agent.stop()?;
    wait_until_no_keeper(bench.pid())?;
    wait_until_off(&bench)
}

#[test]
fn a_raised_level_is_put_back_when_the_agent_is_killed() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut bench = seeking(directory.path())?;
    let mut agent = agent(directory.path(), bench.pid(), true)?;
    wait_for(&mut agent, "a raised level", is_raised)?;
    let report = observed(&bench)?;
    let (level, keys) = level_and_keys(&report)?;
    ensure!(level == LEVEL_COUNTS && keys > 0, "it does not count: {report}");
    // Dropping the process is `kill -9` of its pid.
    drop(agent);
    wait_until_no_keeper(bench.pid())?;
    wait_until_off(&bench)?;
    ensure!(bench.is_running()?, "the target has ended");
    Ok(())
}

/// The keeper outlives what ends the agent's group or service: Ctrl-C, `systemctl stop`.
#[test]
fn the_keeper_is_not_ended_by_signals_before_it_has_put_everything_back() -> Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let bench = seeking(directory.path())?;
    let mut agent = agent(directory.path(), bench.pid(), true)?;
    wait_for(&mut agent, "a raised level", is_raised)?;
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", agent.process.pid()))?;
    let mut children = children.split_whitespace().map(str::parse::<i32>);
    let keeper = children.next().context("no child")??;
    let keeper = Pid::from_raw(keeper).context("no pid")?;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        kill_process(keeper, signal)?;
    }
    std::thread::sleep(Duration::from_millis(200));
    ensure!(keepers(bench.pid())? == 1, "the keeper has ended");
    drop(agent);
    wait_until_no_keeper(bench.pid())?;
    wait_until_off(&bench)
}
