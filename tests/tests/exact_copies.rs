//! Sexton counts exactly where a process has several databases, or RocksDB more than once.
//!
//! Method: a Python program calls RocksDB's C API in several threads, with databases that are closed and
//! opened again, and prints what RocksDB's perf contexts counted. Every counter must be equal, in each of
//! three runs, for each copy of RocksDB.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Observer};
use sexton_tests::artifact;
use sexton_tests::python_readers::Readers;
use std::time::Duration;

/// The window is closed when the program has read; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn several_databases_in_one_process() -> Result<()> {
    let _alone = agent::exclusively()?;
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
