//! Sexton counts what RocksDB counts, exactly, on RocksDB's own benchmark.
//!
//! Method: Debian's `db_bench` (RocksDB 7.8.3) makes random seeks over a table whose first half is
//! deleted, and prints its `PerfContext`. It is stopped before its first seek, `sexton observe` arms its
//! probes, and it goes on to its end. Every counter must then be equal: in each of three runs with the
//! mechanism that the kernel is given by itself, in one with each other that it has, and in one without the
//! sentinel.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton::probe::{KernelFeatures, Mechanism};
use sexton_tests::agent::{self, Observer, count};
use sexton_tests::db_bench::{self, SeekPlan, Seeks};
use sexton_tests::truth::Truth;
use std::path::Path;
use std::time::Duration;

/// Seeks in a run: enough that some hundred thousand tombstones are met each time.
const READS: u64 = 60;
/// `Next` calls after each seek.
const NEXTS: u64 = 20;
/// The observer ends with the process; this is for a process that does not end.
const WINDOW_SECONDS: u64 = 300;
const RUN_LIMIT: Duration = Duration::from_secs(300);

#[test]
fn totals_equal_the_perf_context_that_db_bench_prints() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    for seed in 1..=3 {
        run(&database, seed, &[])?;
    }
    Ok(())
}

#[test]
fn every_mechanism_that_the_kernel_has_counts_the_same() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let features = KernelFeatures::probe();
    let chosen = Mechanism::choose(&features)?;
    for mechanism in Mechanism::ALL {
        match mechanism.check(&features) {
            // The other test's.
            Ok(mechanism) if mechanism == chosen => println!("{}: chosen", mechanism.name()),
            Ok(mechanism) => {
                let observed = run(&database, 7, &["--mechanism", mechanism.name()])?;
                ensure!(agent::text(&observed, "/mechanism") == mechanism.name(), "not by {mechanism:?}");
                println!("{}: exact", mechanism.name());
            }
            Err(missing) => println!("{}: {missing}", mechanism.name()),
        }
    }
    Ok(())
}

/// One run of the benchmark, observed and compared; gives what `sexton observe` printed.
fn run(database: &Path, seed: u64, arguments: &[&str]) -> Result<Value> {
    let seeks = Seeks::start_stopped(database, SeekPlan { reads: READS, nexts: NEXTS, seed })?;
    let observer = Observer::start(seeks.pid(), WINDOW_SECONDS, &[&["--until-exit"], arguments].concat())?;
    let truth = seeks.finish(RUN_LIMIT)?;
    let observed = observer.finish(RUN_LIMIT)?;
    // A run that met nothing would prove nothing.
    ensure!(truth.tombstones_skipped > 1_000_000, "run {seed} met too few tombstones: {truth:?}");
    ensure!(truth.block_reads > 1_000, "run {seed} read too few blocks: {truth:?}");
    truth.check(&observed, READS).with_context(|| format!("run {seed} {arguments:?}"))?;
    check_block_reads(&observed, truth, database)?;
    Ok(observed)
}

/// Every block read was timed, and belongs to a file: reads, bytes and latencies of all files together are what
/// was counted. The files that were named are the database's.
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
