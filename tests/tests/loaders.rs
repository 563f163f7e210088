//! libbpf and aya bring the same objects into the kernel, and count the same.
//!
//! Method: the same seeks of RocksDB's own benchmark, on the same database and with the same seed, are
//! observed once with each loader; both arm their probes in the same way. All sums have to be equal, and
//! equal to what the benchmark counted itself.

use anyhow::{Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Observer, count, list, text};
use sexton_tests::db_bench::{self, SeekPlan, Seeks};
use sexton_tests::truth::Truth;
use std::path::Path;
use std::time::Duration;

/// Enough seeks that more than a million tombstones are met each time.
const PLAN: SeekPlan = SeekPlan { reads: 60, nexts: 20, seed: 7 };
/// The observer ends with the process; this is for a process that does not end.
const WINDOW_SECONDS: u64 = 300;
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// The mechanisms that aya 0.14 can arm.
const MECHANISMS: [&str; 2] = ["perf-cookie", "perf"];

#[test]
fn both_loaders_count_the_same() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    for mechanism in MECHANISMS {
        let (by_libbpf, truth) = observe(&database, "libbpf", mechanism)?;
        let (by_aya, truth_again) = observe(&database, "aya", mechanism)?;
        ensure!(truth.tombstones_skipped > 1_000_000, "the run met too few tombstones: {truth:?}");
        ensure!(truth == truth_again, "the same load counted {truth:?} and then {truth_again:?}");
        let (sums_of_libbpf, sums_of_aya) = (Sums::of(&by_libbpf)?, Sums::of(&by_aya)?);
        ensure!(
            sums_of_libbpf == sums_of_aya,
            "{mechanism}: libbpf counted {sums_of_libbpf:?}, aya {sums_of_aya:?}"
        );
        ensure!(
            sums_of_aya.tombstones_skipped == truth.tombstones_skipped
                && sums_of_aya.block_reads == truth.block_reads,
            "{mechanism}: db_bench counted {truth:?}, both loaders {sums_of_aya:?}"
        );
        ensure!(sums_of_aya.operations == PLAN.reads, "{mechanism}: not each seek: {sums_of_aya:?}");
    }
    Ok(())
}

#[test]
fn a_mechanism_that_the_loader_lacks_is_refused_with_those_it_has() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let seeks = Seeks::start_stopped(&database, PLAN)?;
    let arguments =
        ["observe", "--pid", &seeks.pid().to_string(), "--loader", "aya", "--mechanism", "session"];
    let output = agent::output(directory.path(), &arguments)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "ended with {}: {said}", output.status);
    ensure!(
        said.contains("aya cannot arm uprobe sessions") && said.contains("perf uprobes"),
        "it said: {said}"
    );
    seeks.finish(RUN_LIMIT)?;
    Ok(())
}

/// What must not depend on the loader.
#[derive(Debug, PartialEq, Eq)]
struct Sums {
    tombstones_skipped: u64,
    block_reads: u64,
    total: Value,
    attributed: Value,
    unowned: Value,
    operations: u64,
    operations_recorded: u64,
    records_lost: u64,
    map_full: u64,
    read_failures: u64,
    block_reads_timed: u64,
    /// Firings of each site's probes.
    sites: Value,
    /// Block reads of all SST files and their bytes. Not file by file: it takes a moment to find out where
    /// files have their names, and what was read until then belongs to none.
    files: (u64, u64),
    /// Of each operation that is shown, in order: kind, keys and counters.
    operations_seen: Vec<(String, String, String, Value, Value)>,
}

impl Sums {
    fn of(observed: &Value) -> Result<Sums> {
        let part = |name: &str| observed.get(name).cloned().unwrap_or_default();
        Ok(Sums {
            tombstones_skipped: count(observed, "/attributed/tombstones_skipped")?,
            block_reads: count(observed, "/total/block_reads")?,
            total: part("total"),
            attributed: part("attributed"),
            unowned: part("unowned"),
            operations: count(observed, "/operations")?,
            operations_recorded: count(observed, "/operations_recorded")?,
            records_lost: count(observed, "/records_lost")?,
            map_full: count(observed, "/map_full")?,
            read_failures: count(observed, "/read_failures")?,
            block_reads_timed: count(observed, "/block_reads_timed")?,
            sites: part("probe_sites"),
            files: files(observed)?,
            operations_seen: list(observed, "observations")?.iter().map(seen).collect(),
        })
    }
}

fn files(observed: &Value) -> Result<(u64, u64)> {
    let (mut reads, mut bytes) = (0, 0);
    for file in list(observed, "files")? {
        reads += count(file, "/fetches/count")?;
        bytes += count(file, "/fetches/bytes")?;
    }
    Ok((reads, bytes))
}

fn seen(operation: &Value) -> (String, String, String, Value, Value) {
    let part = |name: &str| operation.get(name).cloned().unwrap_or_default();
    let word = |pointer: &str| text(operation, pointer).to_owned();
    (word("/kind"), word("/key"), word("/end_key"), part("seek"), part("scan"))
}

/// One run of the benchmark's seeks under one loader.
fn observe(database: &Path, loader: &str, mechanism: &str) -> Result<(Value, Truth)> {
    let seeks = Seeks::start_stopped(database, PLAN)?;
    // Each operation is recorded: of smaller ones chance would choose others in each run.
    let each = ["--tombstones-per-operation", "0"];
    let by = ["--until-exit", "--show-keys", "--loader", loader, "--mechanism", mechanism];
    let arguments = [&each[..], &by].concat();
    let observer = Observer::start(seeks.pid(), WINDOW_SECONDS, &arguments)?;
    let truth = seeks.finish(RUN_LIMIT)?;
    let observed = observer.finish(RUN_LIMIT)?;
    ensure!(text(&observed, "/loader") == loader, "not observed by {loader}: {observed}");
    ensure!(text(&observed, "/mechanism") == mechanism, "not armed by {mechanism}: {observed}");
    Ok((observed, truth))
}
