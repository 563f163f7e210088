//! Throttles of a policy: what fails is tried less and less often and is one action all the same, what is in
//! force is what the target says, where it can be asked, and then its former value is restored whichever way
//! the agent stops wanting another one.
//!
//! Method: a real target, and commands that write down each call. How often a command was called is read from
//! that, not from what the agent says.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, text};
use sexton_tests::state;
use sexton_tests::workload::{Start, Workload};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Cycles in which an agent without a pause would try each time.
const IDLE_CYCLES: u64 = 10;
/// Pause after the first failure; each is twice as long as the one before.
const FIRST_PAUSE_SECONDS: f64 = 30.0;

/// Every command appends a line to a file of its own in `directory`.
fn policy(pid: u32, directory: &Path) -> String {
    let directory = directory.display();
    format!(
        r#"mode: act
targets:
  - name: queue
    match: {{ pid: {pid} }}
    executor: hook
    throttles:
      - name: refuses
        inside: "1"
        outside: "2"
        command: ["sh", "-c", "echo $0 >> {directory}/refuses; echo not today >&2; exit 3", "{{value}}"]
      - name: equals_the_default
        inside: "1"
        outside: "50000"
        command: ["sh", "-c", "echo $0 >> {directory}/equals_the_default", "{{value}}"]
        get: ["echo", "50000"]
      - name: is_not_taken
        inside: "1"
        outside: "2"
        command: ["sh", "-c", "echo $0 >> {directory}/is_not_taken", "{{value}}"]
        get: ["echo", "7"]
      - name: is_taken
        inside: "1"
        outside: "2"
        command: ["sh", "-c", "echo $0 > {directory}/is_taken", "{{value}}"]
        get: ["sh", "-c", "cat {directory}/is_taken || echo 7"]
loop: {{ interval: 200ms, window: 100ms, survey: 600s }}
"#
    )
}

#[test]
fn what_fails_backs_off_as_one_action_and_what_is_in_force_is_what_the_target_says() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let mut workload = Workload::start(Start {
        directory: &directory.path().join("db"),
        keys: 1_000,
        seconds: 400,
        preload: None,
        stderr: Stdio::inherit(),
    })?;
    workload.second(LIMIT)?;
    let started = Instant::now();
    let policy = policy(workload.process.pid(), directory.path());
    let mut agent = Agent::start(directory.path(), &policy)?;
    let first = agent.wait_for(LIMIT, "three actions", |agent| settled(agent, 3))?;
    idle(&mut agent)?;
    agent.stop()?;
    ensure!(value(&directory.path().join("is_taken")) == "7", "it was not restored when the agent ended");

    // Another agent goes on with the failing actions, and with their pauses; what was restored is set anew.
    let mut agent = Agent::start_again(directory.path())?;
    idle(&mut agent)?;
    let second =
        agent.wait_for(LIMIT, "the same three actions and another one", |agent| settled(agent, 4))?;
    let elapsed = started.elapsed().as_secs_f64();
    let events = agent.get("/api/v1/events")?;
    agent.stop()?;

    let most = 1.0 + (elapsed / FIRST_PAUSE_SECONDS + 1.0).log2().floor();
    for name in ["refuses", "is_not_taken"] {
        let calls = calls(directory.path(), name) as f64;
        ensure!(calls <= most, "{name} was called {calls} times in {elapsed:.0} s, and not {most}");
        ensure!(
            id_of(&first, name)? == id_of(&second, name)?,
            "{name} has become another action: {second:?}"
        );
        let action = named(&second, name)?;
        ensure!(text(action, "/state") == "failing", "{action}");
        ensure!(count(action, "/failures")? == calls as u64, "not as many failures as calls: {action}");
        let told = list(&events, "events")?.iter().filter(|event| {
            event.get("action_id") == action.get("id") && state::name(event) == "throttle_failed"
        });
        ensure!(told.count() == 1, "one reason is not told once: {events}");
    }
    ensure!(text(named(&second, "refuses")?, "/outcome").contains("not today"), "{second:?}");
    let outcome = text(named(&second, "is_not_taken")?, "/outcome");
    ensure!(outcome.contains("the value in force is 7 all the same"), "{outcome}");
    ensure!(text(named(&second, "is_taken")?, "/state") == "done", "{second:?}");
    ensure!(calls(directory.path(), "equals_the_default") == 0, "the default was set");
    Ok(())
}

/// The agent's actions, once each of the throttles that are not in force has been tried.
fn settled(agent: &Agent, expected: usize) -> Result<Option<Vec<Value>>> {
    let actions = list(&agent.get("/api/v1/actions")?, "actions")?.clone();
    ensure!(actions.len() <= expected, "there are more actions than throttles to set: {actions:?}");
    let is_tried = |action: &Value| ["failing", "done"].contains(&text(action, "/state"));
    Ok((actions.len() == expected && actions.iter().all(is_tried)).then_some(actions))
}

/// Lets the agent go through some cycles.
fn idle(agent: &mut Agent) -> Result<()> {
    let cycles = |agent: &Agent| count(&agent.get("/healthz")?, "/cycles");
    let until = cycles(agent)? + IDLE_CYCLES;
    agent.wait_for(LIMIT, "some cycles", |agent| Ok((cycles(agent)? >= until).then_some(())))
}

fn named<'a>(actions: &'a [Value], throttle: &str) -> Result<&'a Value> {
    let action = actions.iter().find(|action| text(action, "/subject") == throttle);
    action.with_context(|| format!("no action for {throttle}: {actions:?}"))
}

fn id_of(actions: &[Value], throttle: &str) -> Result<u64> {
    count(named(actions, throttle)?, "/id")
}

fn calls(directory: &Path, name: &str) -> usize {
    std::fs::read_to_string(directory.join(name)).map_or(0, |text| text.lines().count())
}

/// A policy with one throttle that is kept in `file` and can be read.
fn one_throttle(mode: &str, pid: u32, file: &Path) -> String {
    let file = file.display();
    format!(
        r#"mode: {mode}
targets:
  - name: queue
    match: {{ pid: {pid} }}
    executor: hook
    throttles:
      - name: limit
        inside: "1"
        outside: "2"
        command: ["sh", "-c", "echo $0 > {file}", "{{value}}"]
        get: ["cat", "{file}"]
loop: {{ interval: 200ms, window: 100ms, survey: 600s }}
"#
    )
}

fn value(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

fn wait_for_value(agent: &mut Agent, file: &Path, expected: &str) -> Result<()> {
    let what = format!("{} to hold {expected}", file.display());
    agent.wait_for(LIMIT, &what, |_| Ok((value(file) == expected).then_some(())))
}

#[test]
fn a_throttle_is_restored_on_every_way_out_and_what_somebody_else_has_set_stays() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let path = directory.path();
    let mut workload = Workload::start(Start {
        directory: &path.join("db"),
        keys: 1_000,
        seconds: 400,
        preload: None,
        stderr: Stdio::inherit(),
    })?;
    workload.second(LIMIT)?;
    let (pid, file) = (workload.process.pid(), path.join("limit"));
    std::fs::write(&file, "7\n")?;
    let acting = one_throttle("act", pid, &file);

    // The agent is stopped by a signal.
    let mut agent = Agent::start(path, &acting)?;
    wait_for_value(&mut agent, &file, "2")?;
    agent.stop()?;
    ensure!(value(&file) == "7", "the agent has left {}", value(&file));

    // The agent is killed, and the next one's policy knows neither the target nor the throttle.
    let mut agent = Agent::start_again(path)?;
    wait_for_value(&mut agent, &file, "2")?;
    drop(agent);
    ensure!(value(&file) == "2", "a killed agent has restored something");
    let mut agent = Agent::start(path, "mode: observe\n")?;
    wait_for_value(&mut agent, &file, "7")?;

    // The mode is act no more, and then the target has gone from the policy.
    for out in [one_throttle("observe", pid, &file), one_throttle("act", 1, &file)] {
        std::fs::write(path.join("policy.yaml"), &acting)?;
        wait_for_value(&mut agent, &file, "2")?;
        std::fs::write(path.join("policy.yaml"), &out)?;
        wait_for_value(&mut agent, &file, "7")?;
    }

    // Somebody else sets it.
    std::fs::write(path.join("policy.yaml"), &acting)?;
    wait_for_value(&mut agent, &file, "2")?;
    std::fs::write(&file, "9\n")?;
    agent.stop()?;
    ensure!(value(&file) == "9", "what somebody else has set was replaced by {}", value(&file));

    let events = state::events(&path.join("state/audit.jsonl"))?;
    let restored = events.iter().filter(|event| state::name(event) == "throttle_restored");
    let restored: Vec<&str> = restored.map(|event| text(event, "/value")).collect();
    ensure!(restored == ["7", "7", "7", "7", "9"], "{restored:?}");
    Ok(())
}
