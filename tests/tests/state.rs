//! The state and what may happen to it: a full disk, a target that ends in a slice, a policy that goes, a
//! newer schema, damage, two agents. Each has a named event or a clear error, nothing is lost, and nobody
//! panics.
//!
//! Method: the real agent and a real queue that it acts on. The full disk is a small tmpfs that this test
//! mounts and fills; it is the kernel that says that there is no room.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, text};
use sexton_tests::small_disk::SmallDisk;
use sexton_tests::workload::{self, Start, Workload};
use sexton_tests::{artifact, state};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const FAILED: i32 = 1;
/// Room for the state, and little more.
const DISK_BYTES: u64 = 4 << 20;

/// Acts on what little pain there is, again and again.
fn policy(pid: u32) -> String {
    workload::policy(
        pid,
        "act",
        "[compact]",
        "\
thresholds: { tombstones_per_operation: 100, block_reads_per_operation: 64, pain: 1ns/s, density: 0.0 }
margin: { benefit_cost_ratio_min: 0 }
loop: { interval: 500ms, window: 300ms, survey: 500ms }
probes: { budget: 50% }
io_budget: { rate: 1GiB/s, burst: 100GiB }
cooldown: 1s
guards: { process_uptime_min: 0s }
range_bytes_max: 8MiB
keys: shown
",
    )
}

fn workload(directory: &Path, keys: u64) -> Result<Workload> {
    let mut workload = Workload::start_with(
        Start {
            directory: &directory.join("db"),
            keys,
            seconds: 300,
            preload: Some(&artifact::built("libsexton_hook.so")?),
            stderr: Stdio::inherit(),
        },
        &["--deletes-per-second", "1100", "--bucket-keys", "2500"],
        &[],
    )?;
    workload.second(LIMIT)?;
    Ok(workload)
}

/// The events that the API has, oldest first.
fn events(agent: &Agent) -> Result<Vec<Value>> {
    Ok(list(&agent.get("/api/v1/events")?, "events")?.clone())
}

/// Waits for an event of this name after the one with this id.
fn wait_event(agent: &mut Agent, name: &str, since: u64) -> Result<Value> {
    agent.wait_for(LIMIT, &format!("the event {name}"), |agent| {
        let told = events(agent)?.into_iter();
        let mut later = told.filter(|event| count(event, "/id").is_ok_and(|id| id > since));
        Ok(later.find(|event| state::name(event) == name))
    })
}

fn last_id(agent: &Agent) -> Result<u64> {
    events(agent)?.last().map_or(Ok(0), |event| count(event, "/id"))
}

#[test]
fn on_a_full_disk_the_agent_watches_and_acts_again_when_there_is_room() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let workload = workload(directory.path(), 60_000)?;
    let disk = SmallDisk::mount(&directory.path().join("state"), DISK_BYTES)?;
    let mut agent = Agent::start(directory.path(), &policy(workload.process.pid()))?;
    wait_event(&mut agent, "slice_done", 0)?;

    disk.fill()?;
    let full = wait_event(&mut agent, "state_full", 0)?;
    let full_id = count(&full, "/id")?;
    ensure!(agent.metric("sexton_state_writable")? == Some(0.0), "the metric says that there is room");
    // It goes on watching: cycles, windows, what was told before.
    let cycles = |agent: &Agent| count(&agent.get("/healthz")?, "/cycles");
    let before = cycles(&agent)?;
    agent.wait_for(LIMIT, "ten more cycles", |agent| Ok((cycles(agent)? > before + 10).then_some(())))?;
    let begun = |agent: &Agent| -> Result<usize> {
        let told = events(agent)?.into_iter();
        let mut after = told.filter(|event| count(event, "/id").is_ok_and(|id| id > full_id));
        Ok(after.by_ref().filter(|event| state::name(event) == "slice_started").count())
    };
    ensure!(begun(&agent)? == 0, "an action began that could not be written down");

    disk.empty()?;
    let recovered = wait_event(&mut agent, "state_recovered", full_id)?;
    ensure!(count(&recovered, "/lost")? == 0, "something was lost: {recovered}");
    wait_event(&mut agent, "slice_done", count(&recovered, "/id")?)?;
    ensure!(agent.metric("sexton_state_writable")? == Some(1.0), "the metric says that there is no room");
    let told: Vec<u64> = events(&agent)?.iter().map(|event| count(event, "/id")).collect::<Result<_>>()?;
    agent.stop()?;
    // What was told while there was no room is there all the same.
    let state = directory.path().join("state");
    let logged = state::events(&state.join("audit.jsonl"))?;
    let logged: Vec<u64> = logged.iter().map(|event| count(event, "/id")).collect::<Result<_>>()?;
    ensure!(told.iter().all(|id| logged.contains(id)), "{told:?} was told, {logged:?} is in the file");
    ensure!(logged.is_sorted_by(|one, two| one < two), "events are out of order or twice: {logged:?}");
    for action in state::actions(&state)? {
        ensure!(action.state.end().is_some(), "an action without an end: {action:?}");
    }
    drop((workload, disk));
    Ok(())
}

#[test]
fn a_target_that_is_killed_in_a_slice_is_told_of_and_its_range_rests() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    // Large enough for a slice to take its time: one range, all of the table.
    let workload = workload(directory.path(), 3_000_000)?;
    let pid = workload.process.pid();
    let policy = policy(pid).replace("range_bytes_max: 8MiB", "range_bytes_max: 4GiB\nslice_bytes_max: 4GiB");
    let mut agent = Agent::start(directory.path(), &policy)?;
    let running = agent.wait_for(LIMIT, "a slice that takes its time", |agent| {
        let actions = agent.get("/api/v1/actions")?;
        let first = list(&actions, "actions")?.first().cloned();
        Ok(first.filter(|action| text(action, "/state") == "running"))
    })?;
    drop(workload);
    let gone = wait_event(&mut agent, "target_gone", 0)?;
    ensure!(count(&gone, "/pid")? == u64::from(pid), "another process: {gone}");
    ensure!(gone.get("action_id") == running.get("id"), "another action: {gone}, not {running}");
    let actions = agent.get("/api/v1/actions")?;
    let ended = list(&actions, "actions")?.iter().find(|action| action.get("id") == running.get("id"));
    let ended = ended.context("the action is not in the history")?;
    ensure!(text(ended, "/state") == "failed" && !text(ended, "/ended_at").is_empty(), "{ended}");
    agent.stop()?;
    let actions = state::actions(&directory.path().join("state"))?;
    let last = actions.last().context("no action is stored")?;
    ensure!(last.state.end().is_some_and(|end| end.rests), "its range does not rest: {last:?}");
    Ok(())
}

#[test]
fn a_policy_that_goes_or_breaks_leaves_the_last_good_one_in_force() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("policy.yaml");
    let advise = "mode: advise\nloop: { interval: 300ms, window: 100ms, survey: 60s }\n";
    let mut agent = Agent::start(directory.path(), advise)?;
    let rate = |agent: &Agent| agent.metric("sexton_budget_bytes_per_second");
    let in_force = |agent: &Agent| Ok(rate(agent)?.filter(|rate| *rate > 0.0));
    let before = agent.wait_for(LIMIT, "the first cycle", in_force)?;

    std::fs::remove_file(&path)?;
    let gone = wait_event(&mut agent, "policy_gone", 0)?;
    ensure!(text(&gone, "/path").ends_with("policy.yaml"), "{gone}");
    std::fs::write(&path, "mode: [act\n")?;
    let broken = wait_event(&mut agent, "policy_broken", 0)?;
    ensure!(text(&broken, "/reason").contains("policy.yaml:"), "it does not say where: {broken}");
    ensure!(agent.metric("sexton_policy_current")? == Some(0.0), "the metric calls it current");
    ensure!(rate(&agent)? == Some(before), "another policy is in force");

    std::fs::write(&path, format!("{advise}io_budget: {{ rate: 7MiB/s, burst: 1GiB }}\n"))?;
    wait_event(&mut agent, "policy_loaded", 0)?;
    agent.wait_for(LIMIT, "the new budget", |agent| {
        let is_new = rate(agent)? == Some(7.0 * 1024.0 * 1024.0);
        Ok((is_new && agent.metric("sexton_policy_current")? == Some(1.0)).then_some(()))
    })?;
    // SIGHUP has it read at once, changed or not.
    let since = last_id(&agent)?;
    agent.process.signal(Signal::HUP)?;
    wait_event(&mut agent, "policy_loaded", since)?;
    agent.stop()
}

#[test]
fn what_was_done_is_remembered_and_events_are_shown() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let workload = workload(directory.path(), 60_000)?;
    let mut first = Agent::start(directory.path(), &policy(workload.process.pid()))?;
    wait_event(&mut first, "slice_done", 0)?;
    first.stop()?;
    let mut second = Agent::start_again(directory.path())?;
    let remembered = second.wait_for(LIMIT, "the actions of the run before", |agent| {
        let actions = agent.get("/api/v1/actions")?;
        let last = list(&actions, "actions")?.last().cloned();
        Ok(last.filter(|action| action.get("is_earlier") == Some(&Value::Bool(true))))
    })?;
    ensure!(count(&remembered, "/id")? == 1, "the first action is another one: {remembered}");
    let since = last_id(&second)?;
    wait_event(&mut second, "slice_done", since)?;

    // The command prints what the API has, a line each; nothing is cut in the middle.
    let url = format!("http://{}", second.address);
    let plain = agent::output(directory.path(), &["events", "--url", &url])?;
    let json = agent::output(directory.path(), &["events", "--url", &url, "--json", "--since", "1"])?;
    ensure!(plain.status.success() && json.status.success(), "{plain:?}, {json:?}");
    let plain = String::from_utf8_lossy(&plain.stdout).into_owned();
    ensure!(plain.lines().next().is_some_and(|line| line.starts_with("1 ")), "{plain}");
    let json = String::from_utf8_lossy(&json.stdout).into_owned();
    let ids: Vec<u64> = json
        .lines()
        .map(|line| count(&serde_json::from_str(line)?, "/id"))
        .collect::<Result<_>>()
        .with_context(|| json.clone())?;
    ensure!(ids.first() == Some(&2) && ids.is_sorted_by(|one, two| one + 1 == *two), "{ids:?}");
    second.stop()
}

#[test]
fn two_agents_do_not_share_a_state_and_newer_states_are_left_alone() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut agent = Agent::start(directory.path(), "mode: observe\n")?;
    let state = directory.path().join("state");
    let state_text = state.display().to_string();
    let run = ["run", "--listen", "127.0.0.1:0", "--state-directory", &state_text];
    let fails = |words: &str| -> Result<()> {
        let output = agent::output(directory.path(), &run)?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(FAILED), "{}: {stderr}", output.status);
        let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        ensure!(error.contains(words) && error.contains(&state_text), "no `{words}` in: {stderr}");
        ensure!(stderr.lines().any(|line| line.starts_with("help: ")), "no help: {stderr}");
        Ok(())
    };
    fails(&format!("in use by process {}", agent.process.pid()))?;
    ensure!(agent.process.is_running()?, "the first agent has ended");
    agent.stop()?;

    let database = rust_rocksdb::DB::open_default(state.join("store"))?;
    database.put("agent/schema", "4711")?;
    drop(database);
    fails("schema version 4711")
}

#[test]
fn a_damaged_state_is_set_aside_and_told_of() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    Agent::start(directory.path(), "mode: observe\n")?.stop()?;
    std::fs::write(directory.path().join("state/store/CURRENT"), "nonsense")?;
    let mut agent = Agent::start_again(directory.path())?;
    let told = wait_event(&mut agent, "state_set_aside", 0)?;
    ensure!(Path::new(text(&told, "/path")).join("CURRENT").is_file(), "it is not there: {told}");
    agent.stop()
}
