//! Throttles of a policy: what fails is tried less and less often and is one action all the same, what is in
//! force is what the target says, where it can be asked, and then its former value is restored whichever way
//! the agent stops wanting another one. One that follows pressure moves within its bounds, step by step, and
//! what an administrator changes meanwhile is noticed.
//!
//! Method: a real target, and commands that write down each call. How often a command was called, and with
//! what, is read from that, not from what the agent says. Pressure is a metric of an endpoint that the test
//! serves.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, number, text};
use sexton_tests::metric_endpoint;
use sexton_tests::state;
use sexton_tests::workload::Workload;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let workload = Workload::small(&directory.path().join("db"))?;
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
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let path = directory.path();
    let workload = Workload::small(&path.join("db"))?;
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

/// Bounds of the number that follows pressure, its greatest step, and what the target has by itself.
const SLOWEST: i64 = 100;
const FASTEST: i64 = 1000;
const STEP_MAX: i64 = 225;
const FORMER: &str = "5000";

/// A throttle that follows a metric; its command appends each value to a file beside the one that it sets.
fn controlled(
    mode: &str,
    (when_changed, read_interval): (&str, &str),
    pid: u32,
    file: &Path,
    endpoint: &str,
) -> String {
    let file = file.display();
    format!(
        r#"mode: {mode}
targets:
  - name: queue
    match: {{ pid: {pid} }}
    pressure:
      signals:
        - {{ name: queue, kind: metric, low: 10, high: 60, endpoint: "{endpoint}", metric: 'queue_length{{queue="rpc"}}' }}
        - {{ name: cores, kind: core_utilization, low: 100%, high: 101% }}
    throttles:
      - name: limit
        control: {{ slowest: {SLOWEST}, fastest: {FASTEST}, step_ratio_max: 0.25, interval_min: 1s, calm: 1s }}
        command: ["sh", "-c", "echo $0 >> {file}.calls; echo $0 > {file}", "{{value}}"]
        get: ["cat", "{file}"]
        read_interval: {read_interval}
        when_changed: {when_changed}
loop: {{ interval: 200ms, window: 100ms, survey: 600s }}
"#
    )
}

fn url(agent: &Agent) -> String {
    format!("http://{}", agent.address)
}

/// The one throttle as `sexton throttle` tells it.
fn told(directory: &Path, agent: &Agent) -> Result<Value> {
    let output = agent::output(directory, &["throttle", "limit", "--json", "--url", &url(agent)])?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Waits until the administrator's value was noticed so many times in all.
fn wait_for_changed(agent: &mut Agent, directory: &Path, times: usize) -> Result<Vec<Value>> {
    agent.wait_for(LIMIT, "a throttle that somebody else has changed", |_| {
        let events = state::events(&directory.join("state/audit.jsonl"))?;
        let changed = events.into_iter().filter(|event| state::name(event) == "throttle_changed");
        let changed: Vec<Value> = changed.collect();
        Ok((changed.len() == times).then_some(changed))
    })
}

#[test]
fn a_throttle_follows_pressure_step_by_step_and_somebody_else_is_noticed() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let path = directory.path();
    let workload = Workload::small(&path.join("db"))?;
    let (pid, file) = (workload.process.pid(), path.join("limit"));
    std::fs::write(&file, FORMER)?;
    let queue = Arc::new(AtomicU64::new(0));
    let endpoint = metric_endpoint::serve(Arc::clone(&queue))?;
    let policy = |mode: &str, when: (&str, &str)| controlled(mode, when, pid, &file, &endpoint);

    // Without pressure it is as fast as it may be, and under pressure as slow, and then fast again.
    let mut agent = Agent::start(path, &policy("act", ("insist", "1s")))?;
    wait_for_value(&mut agent, &file, &FASTEST.to_string())?;
    queue.store(1_000, Ordering::Relaxed);
    wait_for_value(&mut agent, &file, &SLOWEST.to_string())?;
    check_told(&mut agent, path)?;
    queue.store(0, Ordering::Relaxed);
    wait_for_value(&mut agent, &file, &FASTEST.to_string())?;
    wait_in_force(&mut agent, path)?;
    check_steps(&path.join("limit.calls"))?;

    // An administrator changes it, and the agent insists.
    std::fs::write(&file, "777\n")?;
    let changed = wait_for_changed(&mut agent, path, 1)?;
    ensure!(changed.iter().all(|event| event.get("yields") == Some(&Value::Bool(false))), "{changed:?}");
    wait_for_value(&mut agent, &file, &FASTEST.to_string())?;

    // The agent is killed, and the next one restores what it has changed.
    drop(agent);
    ensure!(value(&file) == FASTEST.to_string(), "a killed agent has restored something");
    let mut agent = Agent::start(path, &policy("observe", ("insist", "1s")))?;
    wait_for_value(&mut agent, &file, FORMER)?;

    // The agent yields, whatever pressure does, and leaves it at its end. It reads the value once in an hour,
    // and right before it would set another one.
    std::fs::write(path.join("policy.yaml"), policy("act", ("yield", "1h")))?;
    wait_for_value(&mut agent, &file, &FASTEST.to_string())?;
    wait_in_force(&mut agent, path)?;
    std::fs::write(&file, "777\n")?;
    queue.store(1_000, Ordering::Relaxed);
    let changed = wait_for_changed(&mut agent, path, 2)?;
    ensure!(changed.last().and_then(|event| event.get("yields")) == Some(&Value::Bool(true)), "{changed:?}");
    agent.wait_for(LIMIT, "full pressure, and a throttle that yields", |agent| {
        let told = told(path, agent)?;
        let is_full = number(&told, "/throttles/0/pressure")? == 1.0;
        Ok((is_full && text(&told, "/throttles/0/state") == "yields").then_some(()))
    })?;
    idle(&mut agent)?;
    agent.stop()?;
    ensure!(value(&file) == "777", "what an administrator has set was replaced by {}", value(&file));
    Ok(())
}

/// Waits until the agent has seen the wanted value in force: one that is changed before that counts as a
/// failure.
fn wait_in_force(agent: &mut Agent, directory: &Path) -> Result<Value> {
    agent.wait_for(LIMIT, "a throttle in force", |agent| {
        let told = told(directory, agent)?;
        Ok((text(&told, "/throttles/0/state") == "in_force").then_some(told))
    })
}

/// What is told of a throttle under full pressure, by command and by metrics.
fn check_told(agent: &mut Agent, directory: &Path) -> Result<()> {
    let told = wait_in_force(agent, directory)?;
    let throttle = |name: &str| format!("/throttles/0/{name}");
    ensure!(
        text(&told, &throttle("wanted")) == "100" && text(&told, &throttle("observed")) == "100",
        "{told}"
    );
    ensure!(text(&told, &throttle("restore")) == FORMER, "{told}");
    ensure!(text(&told, &throttle("reason")).contains("queue 1.00"), "{told}");
    let numbers = ["slowest", "fastest", "pressure"].map(|name| number(&told, &throttle(name)));
    let [slowest, fastest, pressure] = numbers;
    ensure!((slowest?, fastest?, pressure?) == (SLOWEST as f64, FASTEST as f64, 1.0), "{told}");
    let signals = list(told.pointer("/pressures/0").context("no pressure")?, "signals")?;
    let values: Vec<f64> = signals.iter().map(|signal| number(signal, "/value")).collect::<Result<_>>()?;
    ensure!(values.first() == Some(&1000.0) && values.len() == 2, "{told}");
    let in_words = agent::output(directory, &["throttle", "--url", &url(agent)])?;
    let in_words = String::from_utf8_lossy(&in_words.stdout).into_owned();
    ensure!(
        in_words.contains("limit: in force") && in_words.contains("100 under full pressure"),
        "{in_words}"
    );
    for (name, expected) in [
        ("sexton_throttle_wanted{target=\"queue\",throttle=\"limit\"}", SLOWEST as f64),
        ("sexton_throttle_observed{target=\"queue\",throttle=\"limit\"}", SLOWEST as f64),
        ("sexton_pressure_ratio{target=\"queue\"}", 1.0),
        ("sexton_pressure_signal_value{kind=\"metric\",signal=\"queue\",target=\"queue\"}", 1000.0),
        ("sexton_pressure_signal_readable{signal=\"cores\",target=\"queue\"}", 1.0),
    ] {
        ensure!(agent.metric(name)? == Some(expected), "{name} is {:?}", agent.metric(name)?);
    }
    Ok(())
}

/// Every value that was set is within the bounds and no further from the one before than a step.
fn check_steps(calls: &Path) -> Result<()> {
    let calls = std::fs::read_to_string(calls)?;
    let values = calls.lines().map(str::parse).collect::<Result<Vec<i64>, _>>()?;
    ensure!(values.iter().all(|value| (SLOWEST..=FASTEST).contains(value)), "beyond the bounds: {values:?}");
    let is_step = |pair: &[i64]| pair.iter().rev().copied().reduce(|to, from| (to - from).abs());
    let steps: Vec<i64> = values.windows(2).filter_map(is_step).collect();
    ensure!(steps.iter().all(|step| (1..=STEP_MAX).contains(step)), "more than a step: {values:?}");
    // Down and up again.
    ensure!(values.len() >= 9, "too few steps: {values:?}");
    Ok(())
}
