//! Two targets on two block devices are compacted at the same time, two on one device never.
//!
//! Method: three queues whose RocksDB limits the rate of its compactions, so that they last for seconds. Two
//! lie on one loop device, the third on another. When each action began and ended stands in the agent's list
//! of actions.

use anyhow::{Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, list, text};
use sexton_tests::loop_device::LoopDevice;
use sexton_tests::machine;
use sexton_tests::workload::{self, Workload};
use std::path::Path;
use std::time::Duration;

const READY_LIMIT: Duration = Duration::from_secs(60);
const LOOP_LIMIT: Duration = Duration::from_secs(120);
const DEVICE_BYTES: u64 = 128 << 20;

fn policy(pids: &[u32]) -> String {
    let entry = |pid: &u32| {
        format!(
            "  - name: \"q{pid}\"
    match: {{ pid: {pid} }}
    executor: hook
    remedies: [compact]
    column_families: [{{ name: {} }}]
",
            workload::COLUMN_FAMILY
        )
    };
    let entries: String = pids.iter().map(entry).collect();
    format!(
        "\
mode: act
targets:
{entries}thresholds: {{ tombstones_per_operation: 100, pain: 1us/s, density: 0.0 }}
margin: {{ benefit_cost_ratio_min: 0 }}
loop: {{ interval: 1s, window: 300ms, survey: 1s }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 64MiB/s, burst: 1GiB }}
cooldown: 2s
guards: {{ process_uptime_min: 0s, latency_ratio_max: 1000, disk_free_min: 1MiB }}
keys: shown
"
    )
}

/// An action's target, and when it began and ended.
type Span = (String, jiff::Timestamp, jiff::Timestamp);

/// The compactions that have ended.
fn spans(agent: &Agent) -> Result<Vec<Span>> {
    let actions = list(&agent.get("/api/v1/actions")?, "actions")?.clone();
    let span = |action: &Value| -> Result<Option<Span>> {
        if text(action, "/ended_at").is_empty() || text(action, "/state") == "skipped" {
            return Ok(None);
        }
        let (begin, end) = (text(action, "/started_at").parse()?, text(action, "/ended_at").parse()?);
        Ok(Some((text(action, "/target").to_owned(), begin, end)))
    };
    let spans: Result<Vec<Option<Span>>> = actions.iter().map(span).collect();
    Ok(spans?.into_iter().flatten().collect())
}

/// Whether actions on any of these targets ran at the same time as one on another of them.
fn have_overlapped(spans: &[Span], names: [&str; 2]) -> bool {
    let of = |name: &str| spans.iter().filter(move |span| span.0 == name).collect::<Vec<_>>();
    let [one, two] = names.map(of);
    one.iter().any(|one| two.iter().any(|two| one.1 < two.2 && two.1 < one.2))
}

#[test]
fn devices_are_acted_on_in_parallel_and_each_by_one_action_at_a_time() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let shared = LoopDevice::mount(directory.path(), "shared", DEVICE_BYTES)?;
    let own = LoopDevice::mount(directory.path(), "own", DEVICE_BYTES)?;
    let places =
        [shared.directory().join("one"), shared.directory().join("two"), own.directory().join("three")];
    places.iter().try_for_each(std::fs::create_dir)?;
    let [one, two, three] = &places;
    // A slice takes ten seconds.
    let queue = |directory: &Path| Workload::slowly_compacted(&directory.join("db"), 100_000);
    let mut queues = [queue(one)?, queue(two)?, queue(three)?];
    for queue in &mut queues {
        queue.second(machine::patience(READY_LIMIT)?)?;
    }
    let pids = queues.each_ref().map(|queue| queue.process.pid());
    let mut agent = Agent::start(directory.path(), &policy(&pids))?;
    let names = target_names(&mut agent, pids)?;
    let [one, two, three] = names.each_ref().map(String::as_str);
    let spans = agent.wait_for(machine::patience(LOOP_LIMIT)?, "actions on all three targets", |agent| {
        let spans = spans(agent)?;
        let are_acted_on = names.iter().all(|name| spans.iter().any(|span| span.0 == *name));
        let in_parallel = have_overlapped(&spans, [one, three]) || have_overlapped(&spans, [two, three]);
        Ok(Some(spans).filter(|_| are_acted_on && in_parallel))
    })?;
    println!("{spans:?}");
    ensure!(!have_overlapped(&spans, [one, two]), "two actions at a time on one device: {spans:?}");
    agent.stop()
}

/// What the agent calls the targets of these processes.
fn target_names(agent: &mut Agent, pids: [u32; 3]) -> Result<[String; 3]> {
    agent.wait_for(machine::patience(LOOP_LIMIT)?, "three targets", |agent| {
        let targets = agent.get("/api/v1/targets")?;
        let targets = list(&targets, "targets")?;
        let name = |pid: u32| {
            let of_pid = |target: &&Value| target.get("pid").and_then(Value::as_u64) == Some(pid.into());
            targets.iter().find(of_pid).map(|target| text(target, "/name").to_owned())
        };
        let [one, two, three] = pids.map(name);
        Ok(one.zip(two).zip(three).map(|((one, two), three)| [one, two, three]))
    })
}
