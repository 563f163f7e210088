//! Two targets on two block devices are compacted at the same time, two on one device never.
//!
//! Method: two queues whose RocksDB limits the rate of its compactions, so that they last for seconds, each
//! on a loop device of its own, then both on one. When each action began and ended stands in the agent's list
//! of actions.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, list, text};
use sexton_tests::loop_device::LoopDevice;
use sexton_tests::workload::{self, Start, Workload};
use sexton_tests::{artifact, machine};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const PROGRAM_SECONDS: u64 = 300;
const READY_LIMIT: Duration = Duration::from_secs(60);
const LOOP_LIMIT: Duration = Duration::from_secs(120);
const DEVICE_BYTES: u64 = 128 << 20;

fn queue(directory: &Path) -> Result<Workload> {
    let mut workload = Workload::start_with(
        Start {
            directory: &directory.join("db"),
            keys: 10_000,
            seconds: PROGRAM_SECONDS,
            preload: Some(&artifact::built("libsexton_hook.so")?),
            stderr: Stdio::inherit(),
        },
        &[
            "--creates-per-second=50",
            "--deletes-per-second=20",
            "--lists-per-second=50",
            "--write-buffer-bytes=524288",
            "--level0-compaction-files=20",
            // A slice writes 1 MB: ten seconds.
            "--background-bytes-per-second=100000",
        ],
        &[],
    )?;
    workload.second(machine::patience(READY_LIMIT)?)?;
    Ok(workload)
}

fn policy(pids: &[u32]) -> String {
    let entry = |pid: &u32| {
        format!(
            "  - name: \"q{pid}\"
    match: {{ pid: {pid} }}
    actuator: hook
    remedies: [compact]
    column_families:
      - name: {}
        prefix: {{ delimiter: \"/\", count: 3 }}
",
            workload::COLUMN_FAMILY
        )
    };
    let entries: String = pids.iter().map(entry).collect();
    format!(
        "\
mode: act
targets:
{entries}thresholds: {{ tombstones_per_operation: 100, pain: 100us/s }}
loop: {{ interval: 1s, window: 500ms, survey: 2s }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 64MiB/s, burst: 1GiB }}
cooldown: 2s
guards: {{ target_age: 0s, latency_factor: 1000 }}
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

/// Whether both targets have been acted on so often.
fn are_acted_on(spans: &[Span], times: usize) -> bool {
    let of = |name: &str| spans.iter().filter(|(target, ..)| target == name).count();
    let names: BTreeSet<&str> = spans.iter().map(|(target, ..)| target.as_str()).collect();
    names.len() == 2 && names.iter().all(|name| of(name) >= times)
}

/// Pairs of actions on different targets that ran at the same time.
fn overlaps(spans: &[Span]) -> usize {
    let pairs =
        spans.iter().enumerate().flat_map(|(at, one)| spans.iter().skip(at + 1).map(move |two| (one, two)));
    pairs.filter(|(one, two)| one.0 != two.0 && one.1 < two.2 && two.1 < one.2).count()
}

/// What was done to two queues in these directories until `is_enough`.
fn act_on(
    directory: &Path,
    one: &Path,
    two: &Path,
    is_enough: impl Fn(&[Span]) -> bool,
) -> Result<Vec<Span>> {
    let (one, two) = (queue(one)?, queue(two)?);
    let mut agent = Agent::start(directory, &policy(&[one.process.pid(), two.process.pid()]))?;
    let spans = agent.wait_for(machine::patience(LOOP_LIMIT)?, "actions on both targets", |agent| {
        Ok(Some(spans(agent)?).filter(|spans| is_enough(spans)))
    })?;
    agent.stop()?;
    Ok(spans)
}

#[test]
fn devices_are_acted_on_in_parallel_and_each_by_one_action_at_a_time() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let one = LoopDevice::mount(directory.path(), "one", DEVICE_BYTES)?;
    let two = LoopDevice::mount(directory.path(), "two", DEVICE_BYTES)?;
    let at_once = |spans: &[Span]| overlaps(spans) > 0;
    let spans = act_on(directory.path(), one.directory(), two.directory(), at_once);
    println!("on two devices: {:?}", spans.context("two devices wait for each other")?);

    let (third, fourth) = (one.directory().join("third"), one.directory().join("fourth"));
    std::fs::create_dir(&third)?;
    std::fs::create_dir(&fourth)?;
    let again = tempfile::tempdir()?;
    let spans = act_on(again.path(), &third, &fourth, |spans| are_acted_on(spans, 2))?;
    println!("on one device: {spans:?}");
    ensure!(overlaps(&spans) == 0, "two actions at a time on one device: {spans:?}");
    Ok(())
}
