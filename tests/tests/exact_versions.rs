//! Older versions of keys, merge operands and seeks behind range tombstones are counted exactly.
//!
//! Method: a Python program calls RocksDB's C API, lists keys that were overwritten, merged and deleted
//! by ranges, and prints what RocksDB's perf context counted, and how many older versions it has written
//! on the way.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Observer, count, list};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use sexton_tests::python_readers;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The window is closed when the program has read; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const LIMIT: Duration = Duration::from_secs(60);

/// A file of this RocksJava is read beside Debian's library, whose counts stand elsewhere.
const JAVA_VERSION: &str = "11.8.1";

#[test]
fn what_lists_step_over_beside_tombstones() -> Result<()> {
    let _alone = agent::exclusively()?;
    let unpacked = tempfile::tempdir()?;
    for library in [artifact::debian_rocksdb()?, python_readers::java_library(JAVA_VERSION, unpacked.path())?]
    {
        counted_exactly(&library).with_context(|| library.display().to_string())?;
    }
    Ok(())
}

fn counted_exactly(library: &Path) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.arg(artifact::repository().join("tests/python/old_versions.py"));
    command.arg(library).arg(directory.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Process::start(command)?;
    let mut stdin = program.take_stdin().context("no standard input")?;
    let mut lines = Lines::of("python3", program.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |line| line == "ready").context("waiting for the database")?;
    let observer = Observer::start(program.pid(), WINDOW_SECONDS, &["--tombstones-per-operation", "0"])?;
    writeln!(stdin, "go")?;
    let counted = lines.until(LIMIT, |line| line.starts_with("counted "))?;
    let observed = observer.close(LIMIT)?;
    drop(stdin);
    ensure!(program.wait(LIMIT)?.success(), "the program failed");

    let counted: Vec<u64> = counted.split(' ').skip(1).map(str::parse).collect::<Result<_, _>>()?;
    let [deletes, keys, merges, reseeks, operations, old_versions] = counted.as_slice() else {
        anyhow::bail!("{counted:?}");
    };
    for (name, truth) in [
        ("tombstones_skipped", deletes),
        ("keys_skipped", keys),
        ("merge_operands", merges),
        ("range_deletion_reseeks", reseeks),
    ] {
        for of in ["total", "attributed", "recorded"] {
            let seen = count(&observed, &format!("/{of}/{name}"))?;
            ensure!(seen == *truth, "{of} {name}: {seen} of {truth}; {observed}");
        }
    }
    ensure!(*merges > 0 && *reseeks > 0 && *old_versions > 0, "this run shows nothing: {counted:?}");
    let observations = list(&observed, "observations")?;
    ensure!(observations.len() as u64 == *operations, "{operations} operations: {observed}");
    let seen: u64 = observations.iter().map(|seen| count(seen, "/old_versions")).sum::<Result<u64>>()?;
    ensure!(seen == *old_versions, "{seen} of {old_versions} older versions: {observed}");
    Ok(())
}
