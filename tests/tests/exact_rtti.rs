//! Sexton counts exactly in a stripped program whose classes still have their names.
//!
//! Method: a C program is linked with Debian's `librocksdb.a` (RocksDB 7.8.3, built with RTTI) and stripped
//! of all symbols. It lists step by step while `sexton observe` has its probes armed, and prints what
//! RocksDB's own `PerfContext` counted. Every counter must be equal, in each of three runs.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Observer};
use sexton_tests::artifact;
use sexton_tests::process::Process;
use sexton_tests::static_host::StaticHost;
use sexton_tests::truth::Truth;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The window is closed when the program has listed; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const LIMIT: Duration = Duration::from_secs(120);
/// What Debian's static library links to, by package `librocksdb-dev` and those it depends on.
const LIBRARIES: [&str; 8] =
    ["-l:librocksdb.a", "-lgflags", "-lsnappy", "-lbz2", "-lz", "-llz4", "-lzstd", "-lpthread"];

#[test]
fn stripped_program_with_rtti() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let program = build(directory.path())?;
    let mut host = StaticHost::start_program(&program, directory.path(), &[])?;
    let inspected =
        agent::output(directory.path(), &["targets", "--json", "--pid", &host.pid().to_string()])?;
    let inspected: serde_json::Value = serde_json::from_slice(&inspected.stdout)?;
    for (pointer, expected) in [("/0/module/found_by", "rtti"), ("/0/module/counts", "perf_context")] {
        let said = agent::text(&inspected, pointer);
        ensure!(said == expected, "{pointer} is {said:?}, not {expected:?}: {inspected}");
    }
    for run in 1..=3 {
        let observer = Observer::start(host.pid(), WINDOW_SECONDS, &[])?;
        let listed = host.list()?;
        let observed = observer.close(LIMIT)?;
        ensure!(listed.total.tombstones_skipped == listed.tombstones_planned, "not as planned: {listed:?}");
        let truth = Truth {
            tombstones_skipped: listed.total.tombstones_skipped,
            keys_skipped: listed.total.keys_skipped,
            block_reads: listed.total.block_reads,
            block_read_bytes: listed.total.block_read_bytes,
            block_cache_hits: listed.total.block_cache_hits,
        };
        truth.check(&observed, listed.operations).with_context(|| format!("run {run}"))?;
    }
    host.quit()
}

/// The program, without its symbols.
fn build(directory: &Path) -> Result<PathBuf> {
    let source = artifact::repository().join("tests/c/static_host.c");
    let (object, program) = (directory.join("static_host.o"), directory.join("static_host"));
    let mut compile = Command::new(artifact::installed("gcc", "gcc")?);
    compile.arg("-O1").arg("-Wall").arg("-c").arg(source).arg("-o").arg(&object);
    run(compile)?;
    let mut link = Command::new(artifact::installed("g++", "g++")?);
    link.arg("-s").arg(&object).args(LIBRARIES).arg("-o").arg(&program);
    run(link).context("linking with package librocksdb-dev: run `make setup`")?;
    Ok(program)
}

fn run(command: Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = Process::start(command)?.wait(LIMIT)?;
    ensure!(status.success(), "{shown} ended with {status}");
    Ok(())
}
