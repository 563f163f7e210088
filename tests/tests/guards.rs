//! Acting so that nobody is hurt: guards refuse by name, stop what runs, and what a snapshot pins is left
//! alone.
//!
//! Method: the Java program of the other tests, real RocksDB and real actions. A guard's limit is set below
//! what the program's RocksDB, disk or clock really has; a snapshot is really held. The program's own RocksDB
//! tells how many tombstones there are. Slices that run are stopped in a queue whose RocksDB limits the rate
//! of its compactions, so that they take their time, and whose readers become slow while one runs.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, number, text};
use sexton_tests::jvm::Program;
use sexton_tests::workload::{self, Start, Workload};
use sexton_tests::{artifact, state};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The program ends by itself after this, whatever happens to the test.
const PROGRAM_SECONDS: u64 = 240;
/// Tombstones that the program leaves.
const TOMBSTONES: u64 = 249_999;
/// How long the agent may take to see, plan, act and verify: a cycle is 2 s.
const LOOP_LIMIT: Duration = Duration::from_secs(90);
/// Cycles in which an agent that may act again would act.
const IDLE_CYCLES: Duration = Duration::from_secs(7);

fn policy(pid: u32, guards: &str) -> String {
    format!(
        r#"mode: act
targets:
  - name: java
    match: {{ pid: {pid} }}
    executor: hook
    remedies: [compact]
    column_families:
      - name: keyTable
        prefix: {{ delimiter: "/", count: 3 }}
loop: {{ interval: 2s, window: 1s, survey: 60s }}
probes: {{ budget: 20% }}
io_budget: {{ rate: 64MiB/s, burst: 1GiB }}
cooldown: 10s
guards: {{ {guards} }}
keys: shown
"#
    )
}

/// A snapshot older than the deletes: nothing is written while it is held, and what it pinned is compacted
/// once it is released. RocksDB 7.7 does not tell sequence numbers by the C API: they are read from its
/// directory.
#[test]
fn what_a_snapshot_pins_is_left_alone_until_its_release() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = Program::start_with_snapshot(directory.path(), PROGRAM_SECONDS)?;
    let files = program.files()?;
    let mut agent = Agent::start(directory.path(), &policy(program.pid(), "process_uptime_min: 0s"))?;
    let refusal = agent.wait_for(LOOP_LIMIT, "a refusal of what is pinned", |agent| {
        let plan = agent.get("/api/v1/plan")?;
        let refusals = plan.pointer("/plan/refusals").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(refusals.into_iter().find(|refusal| text(refusal, "/rule") == "pinned_by_snapshot"))
    })?;
    println!("{}", text(&refusal, "/reason"));
    ensure!(text(&refusal, "/reason").contains("snapshot (sequence number 500000) may keep"), "{refusal}");
    std::thread::sleep(IDLE_CYCLES);
    ensure!(actions(&agent)?.is_empty(), "it acted in spite of the snapshot: {:?}", actions(&agent)?);
    ensure!(program.files()? == files, "something was written: {files:?}, then {:?}", program.files()?);

    program.release_snapshot()?;
    let helped = agent.wait_for(LOOP_LIMIT, "an action that helped", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| text(action, "/state") == "helped"))
    })?;
    ensure!(number(&helped, "/relief_delivered")? > 0.0, "it helped and delivered nothing: {helped}");
    ensure!(number(&helped, "/relief_promised")? > 0.0, "it promised nothing: {helped}");
    let deadline = Instant::now() + LOOP_LIMIT;
    while program.deletions()? > 0 && Instant::now() < deadline {}
    let left = program.deletions()?;
    let log_end = agent.log_end();
    agent.stop()?;
    program.end()?;
    ensure!(left == 0, "{left} tombstones are left; log:\n{log_end}");
    Ok(())
}

/// Nothing is done while a guard objects, and the API and the metrics say which, why and how often; without
/// the guard the same target is acted on.
#[test]
fn guards_refuse_by_name_and_nothing_is_done() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = Program::start(directory.path(), PROGRAM_SECONDS)?;
    // One file is in L0, and writes are slowed down at 20: a limit of 5 % is one file.
    let cases = [
        ("level0_files", "process_uptime_min: 0s, level0_slowdown_ratio_max: 0.05", "L0 has 1 files"),
        ("target_age", "process_uptime_min: 2h", "left alone for 2h"),
        ("disk_space", "process_uptime_min: 0s, disk_free_min: 4096TiB", "a reserve of 4096TiB"),
        ("bytes_per_day", "process_uptime_min: 0s, bytes_per_day_max: 1KiB", "would exceed 1KiB"),
    ];
    for (guard, guards, reason) in cases {
        let mut agent = Agent::start(directory.path(), &policy(program.pid(), guards))?;
        let view = agent.wait_for(LOOP_LIMIT, guard, |agent| {
            let targets = agent.get("/api/v1/targets")?;
            let views = targets.pointer("/targets/0/guards").and_then(Value::as_array).cloned();
            Ok(views
                .unwrap_or_default()
                .into_iter()
                .find(|view| count(view, "/refusals").is_ok_and(|n| n > 1)))
        })?;
        ensure!(text(&view, "/guard") == guard, "another guard than {guard}: {view}");
        ensure!(text(&view, "/reason").contains(reason), "{view}");
        ensure!(view.pointer("/objects") == Some(&Value::Bool(true)), "{view}");
        ensure!(actions(&agent)?.is_empty(), "it acted against {guard}");
        let target = agent.get("/api/v1/targets")?;
        let name = text(&target, "/targets/0/series").to_owned();
        let refusals = agent
            .metric(&format!("sexton_guard_refusals_total{{guard=\"{guard}\",target=\"{name}\"}}"))?
            .context("no metric of the guard")?;
        ensure!(refusals >= 2.0, "{guard} has objected {refusals} times");
        agent.stop()?;
    }
    ensure!(program.deletions()? == TOMBSTONES, "the tombstones have changed");

    let mut agent = Agent::start(directory.path(), &policy(program.pid(), "process_uptime_min: 0s"))?;
    agent.wait_for(LOOP_LIMIT, "an action that helped", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| text(action, "/state") == "helped"))
    })?;
    agent.stop()?;
    program.end()
}

/// RocksDB delays the writes of a whole database for the L0 of one column family, and while a slice runs it
/// compacts nothing else: the column family that is acted on may be in order, another one counts.
#[test]
fn level0_of_another_column_family_objects() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut workload = quiet_queue(directory.path(), 20_000, &["--level0-files-elsewhere=12"])?;
    let guards = "process_uptime_min: 0s, level0_slowdown_ratio_max: 0.5";
    let mut agent = Agent::start(directory.path(), &quiet_policy(workload.process.pid(), guards))?;
    let view = agent.wait_for(LOOP_LIMIT, "an objection", |agent| {
        let targets = agent.get("/api/v1/targets")?;
        let views = targets.pointer("/targets/0/guards").and_then(Value::as_array).cloned();
        Ok(views.unwrap_or_default().into_iter().find(|view| count(view, "/refusals").is_ok_and(|n| n > 1)))
    })?;
    ensure!(text(&view, "/guard") == "level0_files", "another guard: {view}");
    ensure!(text(&view, "/reason").contains("12 files in column family otherTable"), "{view}");
    ensure!(actions(&agent)?.is_empty(), "it acted all the same");
    agent.stop()?;
    ensure!(workload.process.is_running()?, "the target has ended");
    Ok(())
}

/// Nobody but the agent compacts there, and RocksDB delays no write for files in L0. Of the ends that the
/// plan leaves open RocksDB is told the outermost files' keys.
#[test]
fn with_automatic_compactions_disabled_level0_does_not_block() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let arguments = ["--disable-auto-compactions", "--write-buffer-bytes=524288"];
    let workload = quiet_queue(directory.path(), 20_000, &arguments)?;
    // The limit is one file.
    let guards = "process_uptime_min: 0s, level0_slowdown_ratio_max: 0.05";
    let mut agent = Agent::start(directory.path(), &quiet_policy(workload.process.pid(), guards))?;
    let helped = agent.wait_for(LOOP_LIMIT, "an action that helped", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| text(action, "/state") == "helped"))
    })?;
    agent.stop()?;
    if text(&helped, "/reason").contains("CompactFiles of") {
        // Files have no ends to be left open.
        return Ok(());
    }
    let log = std::fs::read_to_string(directory.path().join("db/LOG")).context("reading the target's log")?;
    let asked: Vec<&str> =
        log.lines().filter(|line| line.contains("Manual compaction from level-0")).collect();
    ensure!(!asked.is_empty(), "RocksDB was asked for no compaction");
    for line in asked {
        let range = line.split("; will stop at").next().unwrap_or(line);
        ensure!(!range.contains("(begin)") && !range.contains("(end)"), "an end was left open: {line}");
    }
    Ok(())
}

/// What a compaction has flushed before it begins is a file that comes and goes while it runs. RocksDB's own
/// event log tells what its jobs have read, that file included.
#[test]
fn what_a_slice_flushes_first_is_charged() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let arguments = ["--fill-deletes=false", "--deletes-at-start=10000"];
    let workload = quiet_queue(directory.path(), 40_000, &arguments)?;
    let mut agent =
        Agent::start(directory.path(), &quiet_policy(workload.process.pid(), "process_uptime_min: 0s"))?;
    agent.wait_for(LOOP_LIMIT, "an action that helped", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| text(action, "/state") == "helped"))
    })?;
    let charged: u64 =
        actions(&agent)?.iter().map(|action| count(action, "/bytes_rewritten")).sum::<Result<u64>>()?;
    agent.stop()?;
    let log = std::fs::read_to_string(directory.path().join("db/LOG")).context("reading the target's log")?;
    let mut read_bytes = 0;
    for event in log.lines().filter_map(|line| line.split_once("EVENT_LOG_v1 ")).map(|(_, event)| event) {
        let event: Value = serde_json::from_str(event)?;
        if text(&event, "/event") == "compaction_started"
            && text(&event, "/compaction_reason") == "ManualCompaction"
        {
            read_bytes += count(&event, "/input_data_size")?;
        }
    }
    println!("RocksDB's jobs have read {read_bytes} bytes, charged were {charged}");
    ensure!(read_bytes > 0, "RocksDB tells of no compaction that somebody asked for");
    ensure!(charged >= read_bytes, "{charged} bytes were charged, RocksDB has read {read_bytes}");
    // Where the file was not seen, what the memtables have lost counts: the nodes of a skip list are larger.
    ensure!(charged < read_bytes + (8 << 20), "{charged} bytes were charged, RocksDB has read {read_bytes}");
    Ok(())
}

/// Readers that make thousands of lookups to each list have a 99th percentile of microseconds. When a slice
/// runs they make lists only, of a millisecond and more: the slice is paused, goes on with what is left, goes
/// on in halves, and is given up, each time by the guard's name. When they make lookups again, it is done.
#[test]
fn a_slice_during_which_readers_become_slow_is_paused_halved_and_given_up() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let lookups = directory.path().join("lookups");
    std::fs::write(&lookups, "")?;
    let mut workload = slow_queue(directory.path(), &lookups)?;
    let mut agent = Agent::start(directory.path(), &queue_policy(workload.process.pid()))?;
    agent.wait_for(LOOP_LIMIT, "a slice that runs", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| text(action, "/state") == "running"))
    })?;
    std::fs::remove_file(&lookups)?;
    let stopped = agent.wait_for(LOOP_LIMIT, "a slice that is given up", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| !text(action, "/ended_at").is_empty()))
    })?;
    std::fs::write(&lookups, "")?;
    ensure!(text(&stopped, "/state") == "stopped", "it was not given up: {stopped}");
    ensure!(text(&stopped, "/cause") == "seek_latency", "for another guard: {stopped}");
    ensure!(count(&stopped, "/pauses")? == 2, "not paused and halved before: {stopped}");
    ensure!(text(&stopped, "/outcome").starts_with("seek_latency: the 99th percentile is"), "{stopped}");
    // RocksDB has thrown away what each part had written by then.
    let (charged, price) = (count(&stopped, "/bytes_rewritten")?, count(&stopped, "/cost_bytes")?);
    ensure!(charged > 0, "what a slice had written when it was stopped is not charged: {stopped}");
    ensure!(charged <= price.max(1) * 4, "{charged} bytes are charged for a price of {price}: {stopped}");
    check_told(&agent, &stopped)?;
    check_parts(&directory.path().join("db/LOG"))?;
    workload.verified_since(LOOP_LIMIT)?;

    let helped = agent.wait_for(LOOP_LIMIT, "a slice that helped", |agent| {
        Ok(actions(agent)?.into_iter().find(|action| text(action, "/state") == "helped"))
    })?;
    ensure!(count(&helped, "/deletions_before")? > count(&helped, "/deletions_after")?, "{helped}");
    agent.stop()?;
    workload.verified_since(LOOP_LIMIT)
}

/// 4,000 tombstones in a few files of L0, which RocksDB leaves where they are.
fn slow_queue(directory: &Path, lookups: &Path) -> Result<Workload> {
    let lookups = lookups.to_str().context("a path that is no text")?;
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
            "--lists-per-second=100",
            "--lookups-per-list=150",
            "--lookups-while",
            lookups,
            "--verify-interval-ms=500",
            "--write-buffer-bytes=524288",
            "--level0-compaction-files=20",
            // The slice writes 1 MB: ten seconds.
            "--background-bytes-per-second=100000",
        ],
        &[],
    )?;
    workload.second(LOOP_LIMIT)?;
    Ok(workload)
}

/// A queue that is listed, and in which nothing else happens any more.
fn quiet_queue(directory: &Path, keys: u64, arguments: &[&str]) -> Result<Workload> {
    let first = ["--creates-per-second=0", "--deletes-per-second=0", "--lists-per-second=20"];
    let mut workload = Workload::start_with(
        Start {
            directory: &directory.join("db"),
            keys,
            seconds: PROGRAM_SECONDS,
            preload: Some(&artifact::built("libsexton_hook.so")?),
            stderr: Stdio::inherit(),
        },
        &[&first, arguments].concat(),
        &[],
    )?;
    workload.second(LOOP_LIMIT)?;
    Ok(workload)
}

/// Ranges are cut at no prefix, and none is acted on twice.
fn quiet_policy(pid: u32, guards: &str) -> String {
    format!(
        r#"mode: act
targets:
  - name: queue
    match: {{ pid: {pid} }}
    executor: hook
    remedies: [compact]
    column_families: [{{ name: {} }}]
thresholds: {{ tombstones_per_operation: 100, block_reads_per_operation: 64, pain: 100us/s, density: 0.0 }}
loop: {{ interval: 500ms, window: 400ms, survey: 500ms }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 64MiB/s, burst: 1GiB }}
cooldown: 1h
guards: {{ {guards} }}
keys: shown
"#,
        workload::COLUMN_FAMILY
    )
}

fn queue_policy(pid: u32) -> String {
    workload::policy(
        pid,
        "act",
        "[compact]",
        "\
loop: { interval: 1s, window: 1s, survey: 60s }
probes: { budget: 50% }
io_budget: { rate: 64MiB/s, burst: 1GiB }
cooldown: 2s
guards: { process_uptime_min: 0s, latency_ratio_max: 2, latency_increase_min: 100us }
keys: shown
",
    )
}

/// The events of the slice that was given up, and the metrics.
fn check_told(agent: &Agent, stopped: &Value) -> Result<()> {
    let events = agent.get("/api/v1/events")?;
    let own = list(&events, "events")?.iter().filter(|event| event.get("action_id") == stopped.get("id"));
    let told: Vec<&str> = own.clone().map(state::name).collect();
    ensure!(told == ["slice_started", "slice_paused", "slice_paused", "slice_done"], "{told:?} was told");
    let guards: Vec<&str> = own.map(|event| text(event, "/guard")).collect();
    ensure!(guards == ["", "seek_latency", "seek_latency", ""], "other guards: {guards:?}");
    let targets = agent.get("/api/v1/targets")?;
    let target = text(&targets, "/targets/0/series");
    let pauses = agent.metric(&format!("sexton_slice_pauses_total{{target=\"{target}\"}}"))?;
    ensure!(pauses.is_some_and(|pauses| pauses >= 2.0), "{pauses:?} pauses are counted");
    let labels = format!("guard=\"seek_latency\",target=\"{target}\"");
    let objections = agent.metric(&format!("sexton_guard_refusals_total{{{labels}}}"))?;
    ensure!(objections.is_some_and(|count| count >= 3.0), "{objections:?} objections are counted");
    Ok(())
}

/// The target's own log tells what it was asked to compact: the whole, the rest of it, and a part of that.
fn check_parts(log: &Path) -> Result<()> {
    let log = std::fs::read_to_string(log).context("reading the target's log")?;
    let asked = log.lines().filter(|line| line.contains("Manual compaction from level-0 to"));
    let ends: Vec<&str> =
        asked.filter_map(|line| line.split(" .. '").nth(1)?.split('\'').next()).take(3).collect();
    let [whole, rest, half] = ends[..] else { anyhow::bail!("not three compactions in the log: {ends:?}") };
    // Keys are shown in hexadecimal: they compare as the keys do.
    ensure!(rest <= whole && half < rest, "not the whole, its rest and a half: {ends:?}");
    Ok(())
}

/// The agent's actions, newest first.
fn actions(agent: &Agent) -> Result<Vec<Value>> {
    Ok(list(&agent.get("/api/v1/actions")?, "actions")?.clone())
}
