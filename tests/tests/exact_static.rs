//! Sexton counts exactly in a program with RocksDB linked into its executable, stripped of its symbols or
//! not.
//!
//! Method: `sexton-static-host` lists its databases in several threads while `sexton observe` has its probes
//! armed, and prints what RocksDB's perf contexts counted. Every counter must be equal, in each of three
//! runs, between which it closes its databases and opens them again.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Observer};
use sexton_tests::artifact;
use sexton_tests::process::Process;
use sexton_tests::static_host::{self, StaticHost};
use sexton_tests::truth::Truth;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The window is closed when the program has listed; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const LIMIT: Duration = Duration::from_secs(60);
/// Threads that end are the other hosts' business; these stay.
const ARGUMENTS: &[&str] = &["--databases", "2", "--threads", "3"];

#[test]
fn static_program() -> Result<()> {
    three_runs(&artifact::built(static_host::PROGRAM)?)
}

/// Functions are found by their place in the classes' virtual tables, counters by the code that counts.
#[test]
fn stripped_static_program() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let stripped = directory.path().join(static_host::PROGRAM);
    let mut strip = Command::new(artifact::installed("strip", "binutils")?);
    strip.arg("--strip-all").arg("-o").arg(&stripped).arg(artifact::built(static_host::PROGRAM)?);
    ensure!(Process::start(strip)?.wait(LIMIT)?.success(), "strip failed");
    three_runs(&stripped)
}

fn three_runs(program: &Path) -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut host = StaticHost::start_program(program, directory.path(), ARGUMENTS)?;
    for run in 1..=3 {
        let observer = Observer::start(host.pid(), WINDOW_SECONDS, &[])?;
        let listed = host.list()?;
        let observed = observer.close(LIMIT)?;
        // A run that met nothing would prove nothing.
        ensure!(listed.total.tombstones_skipped > 10_000, "run {run} met too few tombstones: {listed:?}");
        ensure!(listed.total.tombstones_skipped == listed.tombstones_planned, "not as planned: {listed:?}");
        Truth::from(listed.total)
            .check(&observed, listed.operations)
            .with_context(|| format!("run {run}"))?;
        host.reopen()?;
    }
    host.quit()
}
