//! Sexton counts exactly, and reaches files, in a process inside its own pid and mount namespaces.
//!
//! Method: `db_bench` as in `db_bench.rs`, but as process 1 of a pid namespace, with its database and
//! RocksDB's library in a file system that is mounted in its mount namespace alone.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Observer, list, text};
use sexton_tests::db_bench::{self, SeekPlan, Seeks};
use std::path::Path;
use std::time::Duration;

/// Seeks in a run: enough that some hundred thousand tombstones are met each time.
const READS: u64 = 30;
/// `Next` calls after each seek.
const NEXTS: u64 = 20;
/// The observer ends with the process; this is for a process that does not end.
const WINDOW_SECONDS: u64 = 300;
const RUN_LIMIT: Duration = Duration::from_secs(300);

#[test]
fn db_bench_in_its_own_namespaces() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    db_bench::fill(&database)?;
    let private = directory.path().join("private");
    std::fs::create_dir(&private)?;
    for seed in 1..=3 {
        let plan = SeekPlan { reads: READS, nexts: NEXTS, seed };
        let seeks = Seeks::start_stopped_in_namespaces(&database, &private, plan)?;
        reaches_the_database(&directory, seeks.pid(), &private)?;
        let observer = Observer::start(seeks.pid(), WINDOW_SECONDS, &["--until-exit"])?;
        let truth = seeks.finish(RUN_LIMIT)?;
        let observed = observer.finish(RUN_LIMIT)?;
        // A run that met nothing would prove nothing.
        ensure!(truth.tombstones_skipped > 500_000, "run {seed} met too few tombstones: {truth:?}");
        truth.check(&observed, READS).with_context(|| format!("run {seed}"))?;
    }
    Ok(())
}

/// The database is known by the path that the process sees, which is empty for everybody else, and is read by
/// one that leads into the process's root.
fn reaches_the_database(directory: &tempfile::TempDir, pid: u32, private: &Path) -> Result<()> {
    let output = agent::output(directory.path(), &["targets", "--pid", &pid.to_string(), "--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let targets: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout)?;
    let target = targets.first().context("no target")?;
    let database = list(target, "databases")?.first().with_context(|| format!("no database: {target}"))?;
    ensure!(Path::new(text(database, "/path")) == private.join("db"), "another database: {target}");
    ensure!(!private.join("db").exists(), "the namespace is not its own");
    ensure!(
        Path::new(text(database, "/path_from_agent")).join("CURRENT").is_file(),
        "out of reach: {target}"
    );
    Ok(())
}
