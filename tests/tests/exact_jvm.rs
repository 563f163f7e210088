//! Sexton counts what RocksDB counts, exactly, inside unmodified JVMs: RocksJava of three generations.
//!
//! Method: a Java program waits with its threads started; `sexton observe` arms its probes; the threads
//! read, two of them end, and the program prints what RocksDB's perf contexts counted in them. The window is
//! then closed. Every counter must be equal, in each of three runs.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Observer};
use sexton_tests::java_readers::Readers;
use std::time::Duration;

/// The window is closed when the program has read; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

/// The version that Apache Ozone 2 uses. It has no `PerfContext` in Java.
#[test]
fn rocksdbjni_7_7_3() -> Result<()> {
    three_runs("7.7.3", false)
}

#[test]
fn rocksdbjni_10_10_1() -> Result<()> {
    three_runs("10.10.1.1", true)
}

#[test]
fn rocksdbjni_11_8_1() -> Result<()> {
    three_runs("11.8.1", true)
}

fn three_runs(version: &str, has_perf_context: bool) -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let readers = Readers::compile(directory.path(), version, has_perf_context)?;
    for run in 1..=3 {
        let mut program = readers.start()?;
        let observer = Observer::start(program.pid(), WINDOW_SECONDS, &[])?;
        let (truth, positionings) = program.read()?;
        let observed = observer.close(CLOSE_LIMIT)?;
        program.end()?;
        // A run that met nothing would prove nothing.
        ensure!(truth.tombstones_skipped > 100_000, "run {run} met too few tombstones: {truth:?}");
        ensure!(truth.block_reads > 1_000, "run {run} read too few blocks: {truth:?}");
        truth.check(&observed, positionings).with_context(|| format!("rocksdbjni {version}, run {run}"))?;
    }
    Ok(())
}
