//! A workload that RocksDB recorded is played as it was.
//!
//! Method: Debian's `db_bench` (RocksDB 7.8.3) puts keys, deletes half of them and seeks, without
//! compactions, while RocksDB writes query traces of its own. `sexton simulate` plays these. The simulated
//! readers have to step over exactly as many tombstones as RocksDB's `PerfContext` counted.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, count};
use sexton_tests::db_bench::{self, SeekPlan};
use std::path::Path;

const KEYS: u64 = 20_000;
const PLAN: SeekPlan = SeekPlan { reads: 40, nexts: 20, seed: 7 };

fn simulate(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output = agent::output(directory, &[&["simulate"], arguments].concat())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it ended with {}: {stderr}", output.status);
    String::from_utf8(output.stdout).context("reading what it printed")
}

#[test]
fn a_trace_of_db_bench_meets_the_tombstones_that_db_bench_met() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (traces, counted) = db_bench::record(directory.path(), KEYS, PLAN)?;
    ensure!(counted.tombstones_skipped > KEYS, "too few to compare: {counted:?}");
    let traces: Vec<&str> = traces.iter().filter_map(|trace| trace.to_str()).collect();
    let played = simulate(directory.path(), &[&traces, &["--json", "--list", "20"][..]].concat())?;
    let played: Value = serde_json::from_str(&played)?;
    let skipped = count(&played, "/0/tombstones_skipped")?;
    let real = counted.tombstones_skipped;
    ensure!(skipped == real, "RocksDB stepped over {real} tombstones, the simulation over {skipped}");

    let said = simulate(directory.path(), &traces)?;
    let calls = KEYS + KEYS / 2 + PLAN.reads;
    ensure!(said.contains(&format!("{calls} calls")), "not all of the {calls} calls: {said}");
    Ok(())
}

/// What cannot be played is said, with what to do.
#[test]
fn what_is_no_trace_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (traces, _) = db_bench::record(directory.path(), 100, SeekPlan { reads: 1, ..PLAN })?;
    let trace = traces.first().context("there is a trace")?;
    let other = directory.path().join("other.trace");
    std::fs::write(&other, b"a text")?;
    let (trace, other) = (trace.display().to_string(), other.display().to_string());
    let cases = [
        (vec![trace.as_str(), other.as_str()], "does not begin as a query trace"),
        (vec![trace.as_str(), "--column-family-id", "9"], "no operation of column family 9"),
        (vec![trace.as_str(), "--options", trace.as_str()], "cannot read the options"),
    ];
    for (arguments, expected) in cases {
        let output = agent::output(directory.path(), &[&["simulate"], arguments.as_slice()].concat())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{arguments:?} ended with {}: {said}", output.status);
        ensure!(said.contains(expected) && !said.contains("panicked"), "{arguments:?} said: {said}");
    }
    Ok(())
}
