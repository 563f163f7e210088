//! Remedies other than compaction, on a real target: a column family is flushed, an option is set; and what
//! is set is put back, however the agent ends.
//!
//! Method: a queue whose tombstones lie in the memtable, with the hook preloaded. RocksDB itself is the
//! witness: its log tells of flushes, its OPTIONS file of options, its `PerfContext` of tombstones that lists
//! step over.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, list, number, text};
use sexton_tests::workload::{self, COLUMN_FAMILY, Line, Start, Workload};
use sexton_tests::{artifact, options_file, state};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// The workload ends by itself after this.
const WORKLOAD_SECONDS: u64 = 300;
/// Deleted in one go, and in no file.
const TOMBSTONES: u64 = 30_000;
/// Options that a target has after RocksDB 11.2 and that help against tombstones.
const OPTIONS: [&str; 2] = ["memtable_op_scan_flush_trigger", "min_tombstones_for_range_conversion"];
/// Within so long an option is back when its agent was killed: the hook looks once a second.
const LEASE_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
/// Cycles in which an agent that might act would act.
const IDLE_CYCLES: Duration = Duration::from_secs(3);

fn policy(pid: u32, mode: &str, remedies: &str) -> String {
    workload::policy(
        pid,
        mode,
        remedies,
        "\
thresholds: { tombstones_per_operation: 100, block_reads_per_operation: 64, pain: 100us/s, density: 0.0 }
loop: { interval: 500ms, window: 400ms, survey: 500ms }
probes: { budget: 50% }
io_budget: { rate: 64MiB/s, burst: 4GiB }
cooldown: 1s
guards: { process_uptime_min: 0s }
keys: shown
",
    )
}

/// A queue of which `TOMBSTONES` keys have just been deleted.
struct Queue {
    workload: Workload,
    database: PathBuf,
}

impl Queue {
    fn start(directory: &Path, keys: u64, arguments: &[&str]) -> Result<Queue> {
        let database = directory.join("db");
        let tombstones = TOMBSTONES.to_string();
        let first =
            ["--fill-deletes", "false", "--deletes-at-start", &tombstones, "--lists-per-second", "20"];
        let workload = Workload::start_with(
            Start {
                directory: &database,
                keys,
                seconds: WORKLOAD_SECONDS,
                preload: Some(&artifact::built("libsexton_hook.so")?),
                stderr: Stdio::inherit(),
            },
            &[&first, arguments].concat(),
            &[],
        )?;
        let mut queue = Queue { workload, database };
        queue.workload.second(LIMIT)?;
        Ok(queue)
    }

    fn pid(&self) -> u32 {
        self.workload.process.pid()
    }

    /// Tombstones that a list steps over, and its median in milliseconds, in the second that is next.
    fn lists(&mut self) -> Result<(f64, f64)> {
        while self.workload.waiting()?.is_some() {}
        loop {
            let line = self.workload.next(LIMIT)?.context("the workload has ended")?;
            if let Line::Second(second) = line
                && !second.list_latencies_ns.is_empty()
            {
                let lists = second.list_latencies_ns.len() as f64;
                return Ok((second.tombstones_skipped as f64 / lists, second.list_p50_ns as f64 / 1e6));
            }
        }
    }

    /// Flushes that somebody has asked for, by RocksDB's own log.
    fn manual_flushes(&self) -> Result<usize> {
        let log = std::fs::read_to_string(self.database.join("LOG")).context("reading RocksDB's log")?;
        Ok(log.matches("\"flush_reason\": \"Manual Flush\"").count())
    }

    fn options(&self) -> Result<Vec<String>> {
        OPTIONS.iter().map(|name| options_file::value(&self.database, COLUMN_FAMILY, name)).collect()
    }

    /// Waits until no option is set.
    fn wait_for_no_option(&self, limit: Duration) -> Result<Duration> {
        let began = Instant::now();
        while self.options()? != ["0", "0"] {
            ensure!(began.elapsed() < limit, "after {limit:?} the options are {:?}", self.options()?);
            std::thread::sleep(POLL);
        }
        Ok(began.elapsed())
    }
}

/// Waits for an action of this kind that has been verified.
fn verified(agent: &mut Agent, kind: &str) -> Result<Value> {
    agent.wait_for(LIMIT, &format!("the action {kind}, verified"), |agent| {
        let actions = agent.get("/api/v1/actions")?;
        let mut actions = list(&actions, "actions")?.iter();
        let of_kind = |action: &&Value| {
            text(action, "/action") == kind && ["helped", "did_not_help"].contains(&text(action, "/state"))
        };
        Ok(actions.find(of_kind).cloned())
    })
}

/// Waits for the newest event of this name to be another one than `before`.
fn wait_event(agent: &mut Agent, name: &str, before: Option<&Value>) -> Result<Value> {
    agent.wait_for(LIMIT, &format!("the event {name}"), |agent| {
        let events = agent.get("/api/v1/events")?;
        let newest = list(&events, "events")?.iter().rfind(|event| state::name(event) == name);
        Ok(newest.filter(|newest| Some(*newest) != before).cloned())
    })
}

#[test]
fn tombstones_in_a_memtable_are_flushed_and_then_compacted() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let quiet = ["--creates-per-second", "0", "--deletes-per-second", "0", "--write-buffer-bytes", "4194304"];
    let mut queue = Queue::start(directory.path(), 300_000, &quiet)?;
    let (tombstones, before_ms) = queue.lists()?;
    ensure!(tombstones >= TOMBSTONES as f64, "a list steps over {tombstones} tombstones only");
    let flushes = queue.manual_flushes()?;

    // A compaction of the one file that readers end in costs no more, so where it is allowed it is what is
    // planned.
    let mut agent = Agent::start(directory.path(), &policy(queue.pid(), "advise", "[flush]"))?;
    agent.wait_for(LIMIT, "a plan to flush", |agent| {
        let plan = agent.get("/api/v1/plan")?;
        let steps = plan.pointer("/plan/steps").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(steps.into_iter().find(|step| text(step, "/action") == "flush"))
    })?;
    std::thread::sleep(IDLE_CYCLES);
    ensure!(queue.manual_flushes()? == flushes, "it flushed though the mode is advise");
    agent.stop()?;

    let mut agent = Agent::start(directory.path(), &policy(queue.pid(), "act", "[flush]"))?;
    let flush = verified(&mut agent, "flush")?;
    println!("{}", text(&flush, "/outcome"));
    ensure!(queue.manual_flushes()? > flushes, "RocksDB knows of no flush: {flush}");
    ensure!(text(&flush, "/subject") == COLUMN_FAMILY, "another column family: {flush}");
    let (promised, delivered) = (number(&flush, "/relief_promised")?, number(&flush, "/relief_delivered")?);
    ensure!(promised > 0.0 && delivered >= 0.0, "promised {promised}, delivered {delivered}: {flush}");
    // By RocksDB's own count, and not because no file has them.
    let in_memtables = number(&flush, "/memtable_deletions_before")?;
    ensure!(in_memtables >= TOMBSTONES as f64, "{in_memtables} deletions in memtables: {flush}");
    ensure!(number(&flush, "/memtable_deletions_after")? < in_memtables, "none has been flushed: {flush}");
    let (_, flushed_ms) = queue.lists()?;
    // What lies in files now can be compacted away.
    std::fs::write(directory.path().join("policy.yaml"), policy(queue.pid(), "act", "[compact]"))?;
    verified(&mut agent, "compact_range")?;
    let deadline = Instant::now() + LIMIT;
    let (mut left, mut after_ms) = queue.lists()?;
    while left * 50.0 > tombstones && Instant::now() < deadline {
        (left, after_ms) = queue.lists()?;
    }
    println!(
        "list of {tombstones:.0} tombstones {before_ms:.3} ms, flushed {flushed_ms:.3} ms, compacted {after_ms:.3} ms; \
         relief promised {promised:.4}, delivered {delivered:.4} s/s"
    );
    ensure!(left * 50.0 <= tombstones, "a list steps over {left} tombstones, {tombstones} before");
    agent.stop()
}

#[test]
fn an_option_is_set_and_put_back_however_the_agent_ends() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let busy = ["--creates-per-second", "3300", "--deletes-per-second", "3000"];
    let mut queue = Queue::start(directory.path(), 60_000, &busy)?;
    ensure!(queue.options()? == ["0", "0"], "options are set already: {:?}", queue.options()?);
    let (tombstones, before_ms) = queue.lists()?;
    let with_options = policy(queue.pid(), "act", "[options]");
    let mut agent = Agent::start(directory.path(), &with_options)?;
    let set = verified(&mut agent, "set_options")?;
    println!("{}", text(&set, "/outcome"));
    ensure!(text(&set, "/outcome").contains("was 0 before"), "the value before is missing: {set}");
    let told = wait_event(&mut agent, "options_set", None)?;
    let (name, value) = (text(&told, "/name"), text(&told, "/value"));
    ensure!(text(&told, "/restore") == "0", "{told}");
    let now = options_file::value(&queue.database, COLUMN_FAMILY, name)?;
    ensure!(now == value && value != "0", "{name} is {now} and not {value}");
    let deadline = Instant::now() + LIMIT;
    let (mut left, mut after_ms) = queue.lists()?;
    while left * 2.0 > tombstones && Instant::now() < deadline {
        (left, after_ms) = queue.lists()?;
    }
    println!(
        "{name}={value}: list {before_ms:.3} -> {after_ms:.3} ms, {tombstones:.0} -> {left:.0} tombstones"
    );
    ensure!(left * 2.0 <= tombstones, "a list steps over {left} tombstones, {tombstones} before");

    // Killed: nobody but the hook is left to put it back.
    drop(agent);
    let took = queue.wait_for_no_option(LEASE_LIMIT)?;
    println!("put back {took:?} after kill -9");

    // The next agent says so, and begins anew.
    let mut agent = Agent::start_again(directory.path())?;
    let restored = wait_event(&mut agent, "options_restored", None)?;
    ensure!(text(&restored, "/reason").contains("has ended"), "{restored}");
    let told = wait_event(&mut agent, "options_set", Some(&told))?;

    // Another policy, which does not allow it.
    let file = directory.path().join("policy.yaml");
    std::fs::write(&file, policy(queue.pid(), "advise", "[options]"))?;
    let restored = wait_event(&mut agent, "options_restored", Some(&restored))?;
    ensure!(text(&restored, "/reason").contains("policy"), "{restored}");
    queue.wait_for_no_option(Duration::from_secs(1))?;

    std::fs::write(&file, with_options)?;
    wait_event(&mut agent, "options_set", Some(&told))?;
    agent.stop()?;
    ensure!(queue.options()? == ["0", "0"], "an agent that ends in order left {:?}", queue.options()?);
    ensure!(state::records(&directory.path().join("state"), "option")?.is_empty(), "it remembers an option");
    let events = state::events(&directory.path().join("state/audit.jsonl"))?;
    let last = events.iter().rfind(|event| state::name(event) == "options_restored");
    let last = last.context("nothing was told of the last one")?;
    ensure!(text(last, "/reason") == "the agent ends", "{last}");
    Ok(())
}
