//! Sexton counts what RocksDB counts, exactly, on RocksDB's own benchmark.
//!
//! Method: Debian's `db_bench` (RocksDB 7.8.3) makes random seeks over a table whose first half is
//! deleted, and prints its `PerfContext`. It is stopped before its first seek, `sexton observe` arms its
//! probes, and it goes on to its end. Every counter must then be equal: in each of three runs with the
//! mechanism that the kernel is given by itself, and in one with each that it has. Where the kernel has no
//! sentinel, the totals are the window's, and no less exact.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_probe::Mechanism;
use sexton_tests::agent::{self, Observer, count};
use sexton_tests::db_bench::{self, SeekPlan, Seeks};
use sexton_tests::machine;
use sexton_tests::truth::Truth;
use std::path::Path;
use std::time::Duration;

/// Runs with the mechanism that the kernel is given by itself.
const RUNS: u64 = 3;
/// Seeks in a run: enough that some million tombstones are met each time.
const READS: u64 = 60;
/// `Next` calls after each seek.
const NEXTS: u64 = 20;
/// The observer ends with the process; this is for a process that does not end.
const WINDOW_SECONDS: u64 = 300;
const RUN_LIMIT: Duration = Duration::from_secs(300);

#[test]
fn totals_are_exact_on_any_kernel() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    // Before Linux 6.1 a target's threads cannot be walked alone: what a window counted is all.
    let totals_by = if machine::kernel_version()? < [6, 1, 0] { "windows" } else { "sentinel" };
    for seed in 1..=RUNS {
        let observed = run(&database, seed, &[])?;
        let by = agent::text(&observed, "/totals_by");
        ensure!(by == totals_by, "the totals are by {by}, not by {totals_by}");
    }
    Ok(())
}

/// The same under one mechanism, where the kernel is new enough for it; where it is not, the agent says so
/// and does nothing. What the kernel has is known here from its version, not from what the agent found out.
fn exact_or_refused(mechanism: Mechanism, since: [u32; 3]) -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    if machine::kernel_version()? < since {
        return refused(&database, mechanism);
    }
    let observed = run(&database, 7, &["--mechanism", mechanism.name()])?;
    let used = agent::text(&observed, "/mechanism");
    ensure!(used == mechanism.name(), "{used} was used, not {}", mechanism.name());
    Ok(())
}

fn refused(database: &Path, mechanism: Mechanism) -> Result<()> {
    let seeks = Seeks::start_stopped(database, SeekPlan { reads: 1, nexts: 0, seed: 1 })?;
    let pid = seeks.pid().to_string();
    let observe = ["observe", "--pid", &pid, "--seconds", "1", "--json", "--mechanism", mechanism.name()];
    let output = agent::output(database, &observe)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "it ended with {}: {said}", output.status);
    let error = said.lines().find_map(|line| line.strip_prefix("error: "));
    let error = error.with_context(|| format!("no line `error: ...`: {said}"))?;
    ensure!(error.contains(mechanism.describe()), "the error does not name what is missing: {error}");
    println!("lacks: {error}");
    Ok(())
}

#[test]
fn uprobe_sessions_are_exact_on_any_kernel() -> Result<()> {
    exact_or_refused(Mechanism::Session, [6, 13, 0])
}

#[test]
fn uprobe_multi_links_are_exact_on_any_kernel() -> Result<()> {
    exact_or_refused(Mechanism::Multi, [6, 6, 35])
}

#[test]
fn perf_uprobes_with_cookies_are_exact_on_any_kernel() -> Result<()> {
    exact_or_refused(Mechanism::PerfCookie, [5, 15, 0])
}

#[test]
fn perf_uprobes_are_exact_on_any_kernel() -> Result<()> {
    exact_or_refused(Mechanism::Perf, [5, 10, 0])
}

/// One run of the benchmark, observed and compared; gives what `sexton observe` printed.
fn run(database: &Path, seed: u64, arguments: &[&str]) -> Result<Value> {
    let seeks = Seeks::start_stopped(database, SeekPlan { reads: READS, nexts: NEXTS, seed })?;
    let observer = Observer::start(seeks.pid(), WINDOW_SECONDS, &[&["--until-exit"], arguments].concat())?;
    let truth = seeks.finish(RUN_LIMIT)?;
    let observed = observer.finish(RUN_LIMIT)?;
    // A run that met nothing would prove nothing: half of the seeks go to where all keys are deleted.
    ensure!(truth.tombstones_skipped > db_bench::keys()?, "run {seed} met too few tombstones: {truth:?}");
    ensure!(truth.block_reads > READS, "run {seed} read too few blocks: {truth:?}");
    truth.check(&observed, READS).with_context(|| format!("run {seed} {arguments:?}"))?;
    check_block_reads(&observed, truth, database)?;
    Ok(observed)
}

/// Every block read was timed, and belongs to a file: reads, bytes and latencies of all files together are
/// what was counted. The files that were named are the database's.
fn check_block_reads(observed: &Value, truth: Truth, database: &Path) -> Result<()> {
    let (mut reads, mut bytes, mut in_histograms, mut named) = (0, 0, 0, 0);
    for file in agent::list(observed, "files")? {
        reads += count(file, "/fetches/count")?;
        bytes += count(file, "/fetches/bytes")?;
        ensure!(count(file, "/fetches/latency_ns")? > 0, "reads that took no time: {file}");
        let histogram = agent::list(file, "latency_histogram")?;
        in_histograms += histogram.iter().filter_map(Value::as_u64).sum::<u64>();
        if let Some(number) = file.get("number").and_then(Value::as_u64) {
            ensure!(database.join(format!("{number:06}.sst")).is_file(), "there is no file {number}");
            named += count(file, "/fetches/count")?;
        }
    }
    ensure!((reads, bytes) == (truth.block_reads, truth.block_read_bytes), "{reads} reads, {bytes} bytes");
    ensure!(in_histograms == reads, "{in_histograms} reads in histograms, {reads} in all");
    ensure!(count(observed, "/block_reads_timed")? == reads, "not all reads were timed");
    ensure!(named > 0, "no file has a name: {}", observed["files"]);
    Ok(())
}
