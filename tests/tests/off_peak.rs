//! Budget and throttles follow the clock: one value inside a period of the schedule, another outside.
//!
//! Method: no clock is faked. The period is laid around the real time so that it opens, or closes, while
//! the agent runs; the budget is read from the API, and the throttle's command writes its value to a
//! file. That the rule holds for every time of day, zone and weekday is proved in the tuner's own tests.

use anyhow::{Context, Result, anyhow, ensure};
use sexton_tests::agent::{self, Agent, text};
use sexton_tests::minute;
use sexton_tests::workload::Workload;
use std::path::Path;
use std::time::Duration;

/// What the agent is given before the change; it needs 2 s here.
const START_SECONDS: u64 = 25;
/// A window has whole minutes, so a change is at most 85 s away; and cycles take some seconds.
const CHANGE_LIMIT: Duration = Duration::from_secs(120);
/// Length of the window, minutes.
const WINDOW_MINUTES: u64 = 30;

fn policy(pid: u32, from: &str, to: &str, value_file: &Path) -> String {
    format!(
        r#"mode: act
targets:
  - name: queue
    match: {{ pid: {pid} }}
    executor: hook
    throttles:
      - name: scrub
        inside: "fast"
        outside: "slow"
        command: ["sh", "-c", "printf %s \"$0\" >> {value_file}; echo >> {value_file}", "{{value}}"]
loop: {{ interval: 1s, window: 1s, survey: 600s }}
io_budget: {{ rate: 8MiB/s, burst: 16MiB }}
schedule:
  - name: off-peak
    time_zone: UTC
    from: "{from}"
    to: "{to}"
    io_budget: {{ rate: 128MiB/s, burst: 1GiB }}
cooldown: 10m
"#,
        value_file = value_file.display()
    )
}

/// Rate in force, bytes a second, and whether the window is open, as the metrics say.
fn budget(agent: &Agent) -> Result<(f64, bool)> {
    let metric = |name| agent.metric(name)?.with_context(|| format!("no metric {name}"));
    // There is none before the first cycle.
    let is_open = agent.metric("sexton_schedule_period_open{period=\"off-peak\"}")? == Some(1.0);
    Ok((metric("sexton_budget_bytes_per_second")?, is_open))
}

/// What the throttle's command was last called with.
fn throttle(value_file: &Path) -> String {
    let values = std::fs::read_to_string(value_file).unwrap_or_default();
    values.lines().last().unwrap_or_default().to_owned()
}

/// Values outside the window: budget in bytes a second, whether it is open, the throttle.
const OUTSIDE: (f64, bool, &str) = (8.0 * 1024.0 * 1024.0, false, "slow");
const INSIDE: (f64, bool, &str) = (128.0 * 1024.0 * 1024.0, true, "fast");

/// Runs an agent whose window is open between two minutes since the epoch, and waits for both values to
/// be `first` and then `second`.
fn changes(from: u64, to: u64, first: (f64, bool, &str), second: (f64, bool, &str)) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let value_file = directory.path().join("throttle");
    let workload = Workload::small(&directory.path().join("db"))?;
    let pid = workload.process.pid();
    let mut agent =
        Agent::start(directory.path(), &policy(pid, &minute::clock(from), &minute::clock(to), &value_file))?;
    for (rate, open, value) in [first, second] {
        agent.wait_for(CHANGE_LIMIT, &format!("budget {rate} and throttle `{value}`"), |agent| {
            Ok((budget(agent)? == (rate, open) && throttle(&value_file) == value).then_some(()))
        })?;
    }
    // Each change was made once, and is reported once.
    let (first, second) = (first.2, second.2);
    agent.wait_for(CHANGE_LIMIT, "both changes among the actions", |agent| {
        let actions = agent.get("/api/v1/actions")?;
        let throttled =
            agent::list(&actions, "actions")?.iter().filter(|a| text(a, "/action") == "set_throttle");
        let mut values: Vec<&str> = throttled.map(|action| text(action, "/begin")).collect();
        values.reverse();
        ensure!(values.len() <= 2, "the throttle was set more than twice: {actions}");
        Ok((values == [first, second]).then_some(()))
    })?;
    agent.stop()
}

/// Two windows around the same minute, so that it is waited for once: one opens then, the other closes.
#[test]
fn a_window_opens_and_another_closes_and_budget_and_throttle_follow() -> Result<()> {
    let _turn = agent::beside_others()?;
    let change = minute::first_after(START_SECONDS)?;
    std::thread::scope(|scope| {
        let opens = scope.spawn(|| changes(change, change + WINDOW_MINUTES, OUTSIDE, INSIDE));
        let closes = scope.spawn(|| changes(change - WINDOW_MINUTES, change, INSIDE, OUTSIDE));
        let ended = [opens.join(), closes.join()];
        ended.into_iter().try_for_each(|end| end.map_err(|_| anyhow!("a thread of the test panicked"))?)
    })
}
