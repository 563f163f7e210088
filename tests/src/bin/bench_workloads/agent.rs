//! The agent in a run: its policy, and what it says and costs itself.

use crate::contender::AgentSettings;
use crate::workload::Scale;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sexton_tests::agent::{Agent, count, list, number, text};
use std::collections::BTreeMap;
use std::path::Path;

/// Nanoseconds of a clock tick in `/proc/PID/stat`: `USER_HZ` is 100 on x86-64.
const TICK_SECONDS: f64 = 0.01;
/// A burst that any single slice fits in.
const BURST_MIB_MIN: u64 = 64;
/// Seconds of the budget that a burst may spend at once.
const BURST_SECONDS: u64 = 8;

/// What the agent did and took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AgentFigures {
    /// Its ended children's included.
    pub processor_seconds: f64,
    pub resident_peak_bytes: u64,
    /// Time that its probes took from the host, by its own word.
    pub probe_seconds: f64,
    pub windows: u64,
    /// By its own word.
    pub rewritten_bytes: u64,
    /// Actions by their state.
    pub actions: BTreeMap<String, u64>,
    /// What its last plan refused, by rule.
    pub refusals: BTreeMap<String, u64>,
    /// What its last plan advised.
    pub advice: Value,
}

impl AgentFigures {
    pub fn actions(&self) -> u64 {
        self.actions.values().sum()
    }
}

/// A policy for a host. The databases are named: their files are hard links, as those of a checkpoint are,
/// which is left alone otherwise.
pub fn policy(pid: u32, databases: &Path, settings: AgentSettings, scale: Scale) -> String {
    let databases = databases.display();
    let AgentSettings { ranker, remedies, budget_mib_per_second: rate } = settings;
    let burst = (rate * BURST_SECONDS).max(BURST_MIB_MIN);
    let timing = match scale {
        Scale::Full => "loop: { interval: 3s, window: 1s, survey: 60s }\ncooldown: 5s",
        Scale::Quick => {
            "loop: { interval: 500ms, window: 400ms, survey: 60s }\nprobes: { budget: 20% }\ncooldown: 1s"
        }
    };
    format!(
        r#"mode: act
targets:
  - name: bench
    match: {{ pid: {pid} }}
    executor: hook
    remedies: {remedies}
    databases: {{ include: ["{databases}/*"] }}
    column_families:
      - name: "*"
        prefix: {{ delimiter: "/", count: 3 }}
ranker: {ranker}
{timing}
io_budget: {{ rate: {rate}MiB/s, burst: {burst}MiB }}
guards: {{ process_uptime_min: 0s }}
"#
    )
}

/// What a running agent has come to.
pub fn figures(agent: &Agent) -> Result<AgentFigures> {
    let answer = agent.get("/api/v1/actions")?;
    let actions = list(&answer, "actions")?;
    let plan = agent.get("/api/v1/plan")?;
    let targets = agent.get("/api/v1/targets")?;
    let refusals = plan.pointer("/plan/refusals").and_then(Value::as_array).cloned().unwrap_or_default();
    let sum = |pointer: &str| -> f64 {
        let targets = list(&targets, "targets").map(Vec::as_slice).unwrap_or_default();
        targets.iter().filter_map(|target| number(target, pointer).ok()).sum()
    };
    Ok(AgentFigures {
        processor_seconds: processor_seconds(agent.process.pid())?,
        resident_peak_bytes: resident_peak_bytes(agent.process.pid())?,
        probe_seconds: sum("/probes/cost_seconds"),
        windows: sum("/windows") as u64,
        rewritten_bytes: actions.iter().filter_map(|action| count(action, "/bytes_rewritten").ok()).sum(),
        actions: by_name(actions, "/state"),
        refusals: by_name(&refusals, "/rule"),
        advice: plan.pointer("/plan/advice").cloned().unwrap_or_default(),
    })
}

fn by_name(values: &[Value], pointer: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(text(value, pointer).to_owned()).or_default() += 1;
    }
    counts
}

fn processor_seconds(pid: u32) -> Result<f64> {
    let stat = read(pid, "stat")?;
    // The name in parentheses can hold anything; behind it, the first field is the third of all. User and
    // system time of the process and of its ended children are four fields from the fourteenth on.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).context("no stat file")?;
    let times = fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok());
    Ok(times.sum::<u64>() as f64 * TICK_SECONDS)
}

fn resident_peak_bytes(pid: u32) -> Result<u64> {
    let status = read(pid, "status")?;
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    let kibibytes: u64 = value.and_then(|number| number.parse().ok()).context("no VmHWM")?;
    Ok(kibibytes * 1024)
}

fn read(pid: u32, name: &str) -> Result<String> {
    let path = Path::new("/proc").join(pid.to_string()).join(name);
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}
