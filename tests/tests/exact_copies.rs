//! Sexton counts exactly where a process has several databases, or RocksDB more than once.
//!
//! Method: a Python program calls RocksDB's C API in several threads, with databases that are closed and
//! opened again, and prints what RocksDB's perf contexts counted. Every counter must be equal, in each of
//! three runs, for each copy of RocksDB.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Observer};
use sexton_tests::artifact;
use sexton_tests::python_readers::{self, Readers};
use std::time::Duration;

/// A file of this RocksJava is loaded beside Debian's library.
const JAVA_VERSION: &str = "11.8.1";
/// The window is closed when the program has read; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn several_databases_in_one_process() -> Result<()> {
    let _turn = agent::beside_others()?;
    for run in 1..=3 {
        let directory = tempfile::tempdir()?;
        let mut program = Readers::start(directory.path(), 3, &[artifact::debian_rocksdb()?])?;
        let observer = Observer::start(program.pid(), WINDOW_SECONDS, &[])?;
        let truths = program.read()?;
        let observed = observer.close(CLOSE_LIMIT)?;
        program.end()?;
        let (truth, positionings) = truths.first().context("no library")?;
        ensure!(truth.tombstones_skipped > 100_000, "run {run} met too few tombstones: {truth:?}");
        truth.check(&observed, *positionings).with_context(|| format!("run {run}"))?;
    }
    Ok(())
}

/// Each copy is a target of its own, with probes, counters and threads' accounts of its own.
#[test]
fn two_copies_of_rocksdb_in_one_process() -> Result<()> {
    let _turn = agent::beside_others()?;
    let unpacked = tempfile::tempdir()?;
    let libraries =
        [artifact::debian_rocksdb()?, python_readers::java_library(JAVA_VERSION, unpacked.path())?];
    for run in 1..=3 {
        let directory = tempfile::tempdir()?;
        let mut program = Readers::start(directory.path(), 2, &libraries)?;
        let mut observers = Vec::new();
        for library in &libraries {
            let name = library.file_name().and_then(|name| name.to_str()).context("no file name")?;
            observers.push(Observer::start(program.pid(), WINDOW_SECONDS, &["--module", name])?);
        }
        let truths = program.read()?;
        let observed: Vec<_> =
            observers.into_iter().map(|observer| observer.close(CLOSE_LIMIT)).collect::<Result<_>>()?;
        program.end()?;
        for ((truth, positionings), (observed, library)) in truths.iter().zip(observed.iter().zip(&libraries))
        {
            ensure!(truth.tombstones_skipped > 100_000, "run {run} met too few tombstones: {truth:?}");
            truth
                .check(observed, *positionings)
                .with_context(|| format!("run {run}, {}", library.display()))?;
        }
        ensure!(truths.first() != truths.last(), "both copies counted the same, and could be mixed up");
    }
    Ok(())
}
