//! Under musl Sexton counts exactly, and writes where the perf level is and nowhere else.
//!
//! Method: a C program on Debian's musl, whose file is called `libc.so`, opens RocksDB's own library for musl
//! late, so that a thread's counters are only found through musl's dynamic thread vector. It prints what
//! RocksDB's perf contexts counted and what RocksDB says the perf level is.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Agent, Observer, count, list, text};
use sexton_tests::musl_host::{Listed, MuslHost};
use std::time::{Duration, Instant};

/// The window is closed when the program has listed; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const LIMIT: Duration = Duration::from_secs(60);
/// `kDisable`: nothing is counted.
const LEVEL_OFF: u8 = 1;
/// `kEnableCount`.
const LEVEL_COUNTS: u64 = 2;

#[test]
fn a_library_that_is_opened_late_is_counted_exactly() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut host = MuslHost::start(directory.path(), 0)?;
    let before = host.list()?;
    for run in 1..=3 {
        let before = if run == 1 { before } else { host.list()? };
        let observer = Observer::start(host.pid(), WINDOW_SECONDS, &[])?;
        let after = host.list()?;
        let observed = observer.close(LIMIT)?;
        let truth = after.truth - before.truth;
        ensure!(truth.tombstones_skipped >= 10_000, "run {run} met too few tombstones: {truth:?}");
        truth
            .check(&observed, after.positionings - before.positionings)
            .with_context(|| format!("run {run}"))?;
    }
    host.end()
}

#[test]
fn a_perf_level_is_raised_where_it_is_and_put_back() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut host = MuslHost::start(directory.path(), LEVEL_OFF)?;
    ensure!(host.list()?.truth.keys_skipped == 0, "it counts with the level off");
    let policy = format!(
        "mode: observe\ntargets: [{{ name: host, match: {{ pid: {} }}, raise_perf_level: true }}]\n\
         loop: {{ interval: 1s, window: 1s, survey: 600s }}\n",
        host.pid()
    );
    let mut agent = Agent::start(directory.path(), &policy)?;
    let target = agent.wait_for(LIMIT, "raised levels", |agent| {
        let answer = agent.get("/api/v1/targets")?;
        let Some(target) = list(&answer, "targets")?.first().cloned() else { return Ok(None) };
        Ok((count(&target, "/perf_level_raised_threads")? >= 2).then_some(target))
    })?;
    ensure!(text(&target, "/state") != "blind", "it is blind: {target}");
    let listed = host.list()?;
    ensure!(listed.perf_level == LEVEL_COUNTS, "RocksDB says the level is {listed:?}");
    ensure!(listed.truth.tombstones_skipped >= 10_000, "its counters stand still: {listed:?}");
    agent.stop()?;
    let deadline = Instant::now() + LIMIT;
    while host.list()?.perf_level != u64::from(LEVEL_OFF) {
        ensure!(Instant::now() < deadline, "the former level is not put back");
        std::thread::sleep(Duration::from_millis(50));
    }
    host.end()
}

/// The hook for musl is in the program from its start. Where the tombstones are in memtables alone, as here,
/// the whole of the readers' relief comes from it.
#[test]
fn what_hurts_is_compacted_by_the_hook_for_musl() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut host = MuslHost::start_with_hook(directory.path())?;
    let before = host.list()?;
    let policy = format!(
        "mode: act\ntargets: [{{ name: host, match: {{ pid: {} }}, executor: hook, remedies: [compact] }}]\n\
         loop: {{ interval: 500ms, window: 400ms, survey: 500ms }}\nprobes: {{ budget: 50% }}\n\
         thresholds: {{ tombstones_per_operation: 100, pain: 1us/s, density: 0.0 }}\n\
         margin: {{ benefit_cost_ratio_min: 0 }}\nguards: {{ process_uptime_min: 0s }}\n",
        host.pid()
    );
    let mut agent = Agent::start(directory.path(), &policy)?;
    let host = std::cell::RefCell::new(&mut host);
    let met = |listed: &Listed| listed.truth.tombstones_skipped;
    ensure!(met(&before) > 0, "it meets no tombstone: {before:?}");
    agent.wait_for(LIMIT, "lists without a tombstone", |_| {
        let mut host = host.borrow_mut();
        let (one, other) = (host.list()?, host.list()?);
        Ok((met(&one) == met(&other)).then_some(()))
    })?;
    let metrics = agent.metrics()?;
    let done = "sexton_actions_total{state=\"done\",target=\"host\"} ";
    ensure!(metrics.lines().any(|line| line.starts_with(done)), "no action was done:\n{}", agent.log_end());
    agent.stop()
}
