//! Sexton counts what RocksDB counts, exactly, on RocksDB's own benchmark.
//!
//! Method: Debian's `db_bench` (RocksDB 7.8.3) makes random seeks over a table whose first half is
//! deleted, and prints its `PerfContext`. It is stopped before its first seek, `sexton observe` arms its
//! probes, and it goes on to its end. Every counter must then be equal, in each of three runs.

use anyhow::{Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Observer, count};
use sexton_tests::db_bench::{self, Seeks, Truth};
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
        let seeks = Seeks::start_stopped(&database, READS, NEXTS, seed)?;
        let observer = Observer::start(seeks.pid(), WINDOW_SECONDS, &["--until-exit"])?;
        let truth = seeks.finish(RUN_LIMIT)?;
        let observed = observer.finish(RUN_LIMIT)?;
        // A run that met nothing would prove nothing.
        ensure!(truth.tombstones_skipped > 1_000_000, "run {seed} met too few tombstones: {truth:?}");
        ensure!(truth.block_reads > 1_000, "run {seed} read too few blocks: {truth:?}");
        check(&observed, truth)
            .map_err(|error| error.context(format!("run {seed}: {truth:?}; {observed}")))?;
    }
    Ok(())
}

fn check(observed: &Value, truth: Truth) -> Result<()> {
    let total = counters(observed, "total")?;
    ensure!(total == truth, "the totals differ: {total:?}");
    let (attributed, unattributed) = (counters(observed, "attributed")?, counters(observed, "unattributed")?);
    let sum = Truth {
        tombstones_skipped: attributed.tombstones_skipped + unattributed.tombstones_skipped,
        keys_skipped: attributed.keys_skipped + unattributed.keys_skipped,
        block_reads: attributed.block_reads + unattributed.block_reads,
        block_read_bytes: attributed.block_read_bytes + unattributed.block_read_bytes,
        block_cache_hits: attributed.block_cache_hits + unattributed.block_cache_hits,
    };
    ensure!(sum == total, "attributed and unattributed do not add up to the total: {sum:?}");
    // Only iterators skip tombstones, and all of them were probed.
    ensure!(
        attributed.tombstones_skipped == truth.tombstones_skipped,
        "some tombstones were attributed to no operation: {attributed:?}"
    );
    ensure!(count(observed, "/operations")? == READS, "not {READS} operations");
    ensure!(count(observed, "/records_lost")? == 0, "records were lost");
    Ok(())
}

fn counters(observed: &Value, name: &str) -> Result<Truth> {
    let counter = |counter: &str| count(observed, &format!("/{name}/{counter}"));
    Ok(Truth {
        tombstones_skipped: counter("tombstones_skipped")?,
        keys_skipped: counter("keys_skipped")?,
        block_reads: counter("block_reads")?,
        block_read_bytes: counter("block_read_bytes")?,
        block_cache_hits: counter("block_cache_hits")?,
    })
}
