//! An agent that is killed in an action: the next one asks the hook what became of it, and the history says
//! so.
//!
//! Method: a queue that is acted on all the time. The agent gets `kill -9` just after an action has begun,
//! until a later one has told of some actions what the hook says of them. The log of the hook, which knows
//! nothing of the history, is the truth: each such action is a job that ended there, as the history says.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, text};
use sexton_tests::workload::{self, Start, Workload};
use sexton_tests::{artifact, state};
use sexton_tuner::run::Outcome;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Actions that the hook was asked about, at least.
const SETTLED_WANTED: usize = 3;
/// Kills until there are so many; here some ten do.
const KILLS_MAX: u64 = 60;
/// A first window and an action after it take a second or two.
const ACTION_WAIT_MAX: Duration = Duration::from_secs(30);
/// Kills come so long after an action was written down: jobs take some tens of milliseconds.
const IN_ACTION_MS: [u64; 4] = [15, 25, 40, 60];

/// What the history says of an action that the hook was asked about.
const SETTLED: &str = "the hook says";

fn policy(pid: u32) -> String {
    workload::policy(
        pid,
        "act",
        "[compact]",
        "\
thresholds: { tombstones_per_operation: 100, block_reads_per_operation: 64, pain: 1ns/s, density: 0.0 }
margin: { benefit_cost_ratio_min: 0 }
loop: { interval: 300ms, window: 200ms, survey: 300ms }
probes: { budget: 50% }
io_budget: { rate: 1GiB/s, burst: 100GiB }
cooldown: 1s
guards: { process_uptime_min: 0s }
range_bytes_max: 64MiB
keys: shown
",
    )
}

#[test]
fn the_hook_is_asked_what_became_of_an_interrupted_action() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let hook_log = directory.path().join("hook.log");
    let mut workload = Workload::start_with(
        Start {
            directory: &directory.path().join("db"),
            keys: 200_000,
            seconds: 300,
            preload: Some(&artifact::built("libsexton_hook.so")?),
            stderr: Stdio::inherit(),
        },
        &["--deletes-per-second", "1100", "--bucket-keys", "25000"],
        &[("SEXTON_HOOK_LOG", &hook_log)],
    )?;
    workload.second(LIMIT)?;
    std::fs::write(directory.path().join("policy.yaml"), policy(workload.process.pid()))?;

    let audit_log = directory.path().join("state/audit.jsonl");
    for kill in 0..KILLS_MAX {
        let agent = Agent::spawn(directory.path(), &[])?;
        ensure!(
            state::wait_for_event(&audit_log, "slice_started", ACTION_WAIT_MAX),
            "no action has begun within {ACTION_WAIT_MAX:?}"
        );
        let pause = IN_ACTION_MS.iter().cycle().nth(usize::try_from(kill)?).copied().unwrap_or_default();
        std::thread::sleep(Duration::from_millis(pause));
        // Dropping it is `kill -9` of its pid, and waiting for its end.
        drop(agent);
        let told = std::fs::read_to_string(&audit_log)?;
        if told.matches(SETTLED).count() >= SETTLED_WANTED {
            break;
        }
    }
    let mut last = Agent::start_again(directory.path())?;
    last.wait_for(LIMIT, "the last actions' ends", |agent| {
        let actions = agent.get("/api/v1/actions")?;
        let all = agent::list(&actions, "actions")?;
        let earlier = all.iter().filter(|action| action.get("is_earlier") == Some(&Value::Bool(true)));
        Ok(earlier.into_iter().all(|action| !text(action, "/ended_at").is_empty()).then_some(()))
    })?;
    last.stop()?;
    check(&directory.path().join("state"), &std::fs::read_to_string(&hook_log)?)
}

/// Each action has one beginning and one end; what the hook was asked about is a job of its own log.
fn check(state: &Path, hook_log: &str) -> Result<()> {
    let events = state::events(&state.join("audit.jsonl"))?;
    let mut settled = 0;
    for action in state::actions(state)? {
        state::check_told_once(&action, &events)?;
        let end = action.state.end().with_context(|| format!("an action without an end: {action:?}"))?;
        let Some((_, said)) = end.message.split_once(SETTLED) else { continue };
        settled += 1;
        let job = said.split_whitespace().nth(3).with_context(|| format!("no job in {said:?}"))?;
        let line = hook_log.lines().find(|line| line.contains(&format!("compaction {job} ended after")));
        let line = line.with_context(|| format!("the hook has no job {job}: {action:?}"))?;
        let is_done = line.ends_with(": done");
        ensure!(is_done == (end.outcome == Outcome::Done), "the hook: {line}; the history: {action:?}");
    }
    ensure!(settled >= SETTLED_WANTED, "only {settled} actions were settled by asking the hook");
    Ok(())
}
