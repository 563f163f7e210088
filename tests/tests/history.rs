//! What the agent remembers of pain and actions: at the right keys, on disk where any tool reads it, and
//! still there after `kill -9`.
//!
//! Method: a queue with the hook in which lists step over tombstones, and an agent that acts. The heatmap
//! must be hot where the queue lists, and cool once the range was compacted; the bytes in the history are
//! those of the list of actions. DuckDB reads the file for a while as the agent replaces it. Then the agent
//! is killed, and the next one must know what DuckDB has read.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use sexton_tests::agent::{self, Agent, list, number, text};
use sexton_tests::artifact;

use sexton_tests::workload::{self, COLUMN_FAMILY, Start, Workload};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// How long DuckDB reads again and again: more than the agent takes to write the file anew.
const READING_SECONDS: &str = "17";
/// What is left of the greatest pain after the range was compacted.
const COOLED_SHARE_MAX: f64 = 0.2;
/// Sums of rounded numbers.
const ROUNDING: f64 = 1e-6;

fn start(directory: &Path) -> Result<Workload> {
    let mut workload = Workload::start_with(
        Start {
            directory: &directory.join("db"),
            keys: 300_000,
            seconds: 600,
            preload: Some(&artifact::built("libsexton_hook.so")?),
            stderr: Stdio::inherit(),
        },
        &["--disable-auto-compactions", "--write-buffer-bytes=4194304"],
        &[],
    )?;
    workload.second(LIMIT)?;
    Ok(workload)
}

/// Sum of a number over the rows of `/api/v1/history`.
fn sum(history: &Value, name: &str) -> Result<f64> {
    list(history, "rows")?.iter().map(|row| number(row, &format!("/{name}"))).sum()
}

/// What DuckDB makes of the file.
fn in_duckdb(state: &Path, seconds: &str) -> Result<Value> {
    let output = Command::new(artifact::installed("python3", "python3")?)
        .arg(artifact::repository().join("tests/python/history_in_duckdb.py"))
        .arg(state.join("history"))
        .arg(seconds)
        .env("PYTHONPATH", artifact::tools()?.join("duckdb"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .context("running DuckDB")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "DuckDB cannot read the history: {stderr}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Waits until the keys that the queue lists are hot.
fn wait_for_heat(agent: &mut Agent) -> Result<()> {
    agent.wait_for(LIMIT, "heat in the heatmap", |agent| {
        let heatmap = agent.get("/api/v1/heatmap?metric=pain")?;
        let rows = list(&heatmap, "rows")?;
        let hot = list(&heatmap, "columns")?.iter().flat_map(|column| {
            let numbers = column.get("rows").and_then(Value::as_array).into_iter().flatten();
            numbers.filter_map(Value::as_u64).filter_map(|row| rows.get(usize::try_from(row).ok()?))
        });
        let hot: Vec<&Value> = hot.collect();
        let is_right = |row: &&Value| {
            let is_before_end = text(row, "/end").is_empty() || text(row, "/end") > "/vol1/bucket1";
            text(row, "/column_family") == COLUMN_FAMILY
                && text(row, "/begin") < "/vol1/bucket2"
                && is_before_end
        };
        ensure!(hot.iter().all(is_right), "other keys than the queue's are hot: {hot:?}");
        Ok((!hot.is_empty()).then_some(()))
    })
}

#[test]
fn pain_and_actions_are_remembered_where_they_were_and_outlive_the_agent() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let workload = start(directory.path())?;
    let policy = workload::policy(
        workload.process.pid(),
        "act",
        "[compact]",
        "thresholds: { tombstones_per_operation: 100, pain: 1ms/s, density: 0.0 }\n\
         margin: { benefit_cost_ratio_min: 0 }\n\
         loop: { interval: 500ms, window: 300ms, survey: 500ms }\nprobes: { budget: 50% }\n\
         io_budget: { rate: 1GiB/s, burst: 100GiB }\nguards: { process_uptime_min: 0s }\nkeys: shown\n",
    );
    let mut agent = Agent::start(directory.path(), &policy)?;
    wait_for_heat(&mut agent)?;
    agent.wait_for(LIMIT, "an action in the history", |agent| {
        let history = agent.get("/api/v1/history")?;
        Ok((sum(&history, "actions")? >= 1.0 && sum(&history, "bytes_compacted")? > 0.0).then_some(()))
    })?;
    // In a cycle's time after its end the history has an action that the list has.
    agent.wait_for(LIMIT, "the bytes of all actions", |agent| {
        let (history, actions) = (agent.get("/api/v1/history")?, agent.get("/api/v1/actions")?);
        let ended = list(&actions, "actions")?.iter().filter(|action| !text(action, "/ended_at").is_empty());
        let bytes: f64 = ended.map(|action| number(action, "/bytes_rewritten")).sum::<Result<f64>>()?;
        let known = sum(&history, "bytes_compacted")?;
        Ok(((known - bytes).abs() <= ROUNDING * bytes).then_some(()))
    })?;
    agent.wait_for(LIMIT, "a cooled range", |agent| {
        let ranges = agent.get("/api/v1/ranges?sort=pain&limit=1")?;
        let now = ranges.pointer("/ranges/0/pain_seconds_per_second").and_then(Value::as_f64).unwrap_or(0.0);
        let heatmap = agent.get("/api/v1/heatmap")?;
        let values = list(&heatmap, "columns")?.iter().filter_map(|column| column.get("values")?.as_array());
        let greatest = values.flatten().filter_map(Value::as_f64).fold(0.0, f64::max);
        Ok((greatest > 0.0 && now <= COOLED_SHARE_MAX * greatest).then_some(()))
    })?;

    let state = directory.path().join("state");
    let stored = in_duckdb(&state, READING_SECONDS)?;
    ensure!(number(&stored, "/reads")? >= 2.0 && number(&stored, "/rows")? >= 1.0, "{stored}");
    ensure!(number(&stored, "/families")? == 1.0 && number(&stored, "/in_bucket")? >= 1.0, "{stored}");
    ensure!(number(&stored, "/lists")? >= 1.0, "how long lists took is stored: {stored}");
    ensure!(number(&stored, "/actions")? >= 1.0 && number(&stored, "/peak")? > 0.0, "{stored}");
    agent.process.signal(Signal::KILL)?;
    agent.process.wait(LIMIT)?;

    let mut agent = Agent::start_again(directory.path())?;
    // Nothing is published before the first cycle has ended.
    let history = agent.wait_for(LIMIT, "the history of before", |agent| {
        let history = agent.get("/api/v1/history")?;
        Ok((!list(&history, "rows")?.is_empty()).then_some(history))
    })?;
    for (name, column) in [("pain_seconds", "pain"), ("actions", "actions"), ("bytes_compacted", "bytes")] {
        let (known, before) = (sum(&history, name)?, number(&stored, &format!("/{column}"))?);
        ensure!(known >= before * (1.0 - ROUNDING), "{name}: {known} is known, {before} was stored");
    }
    let before = list(&history, "stretches")?;
    ensure!(before.iter().any(|it| number(it, "/list_p99_seconds").is_ok_and(|p99| p99 > 0.0)), "{before:?}");
    let url = format!("http://{}", agent.address);
    let printed = agent::output(directory.path(), &["history", "--url", &url, "--since", "1h", "--csv"])?;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let rows = list(&history, "rows")?.len();
    ensure!(printed.lines().count() > rows && printed.contains(COLUMN_FAMILY), "{printed}");
    agent.stop()
}
