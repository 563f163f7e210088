//! The bench of workloads works from end to end: `sexton-bench-workloads --quick`.
//!
//! Method: the bench runs as `make bench-workloads` does, on small databases. Each host process compares all
//! answers with what was written and reads all rows at the end, and fails where one is wrong. Here it is seen
//! that it has done so, that Sexton has acted where it should, and that the report is whole. How fast
//! anything was is not looked at: the machine may be busy.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{count, number};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// It takes less than a minute on a quiet machine.
const LIMIT: Duration = Duration::from_secs(600);
/// What is promised, the last line.
const PROMISES: [&str; 8] = [
    "queue_1e7_list_mean_ratio",
    "queue_1e7_list_p99_over_best_contender",
    "queue_1e7_seek_mean_ratio",
    "queue_1e7_write_p99_ratio",
    "reader_seconds_lost_over_contender_worst",
    "reader_seconds_lost_over_density_worst",
    "wrong_answer_bytes_share_worst",
    "ycsb_throughput_ratio_worst",
];
/// Runs of a quick bench.
const RUNS: [(&str, &str); 9] = [
    ("queue_1e7", "nothing"),
    ("queue_1e7", "full_compaction"),
    ("queue_1e7", "sexton"),
    ("prefixes", "nothing"),
    ("prefixes", "sexton"),
    ("prefixes", "density"),
    ("hashed", "sexton"),
    ("ycsb_a", "nothing"),
    ("ycsb_a", "sexton"),
];

/// Runs the bench; gives what it printed.
fn bench(directory: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(artifact::built("sexton-bench-workloads")?);
    command.arg("--quick").arg("--directory").arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut process = Process::start(command)?;
    let mut lines = Lines::of("the bench", process.take_stdout().context("no standard output")?);
    let printed = lines.rest(LIMIT)?;
    let status = process.wait(LIMIT)?;
    ensure!(status.success(), "the bench ended with {status}:\n{}", printed.join("\n"));
    printed.iter().for_each(|line| println!("{line}"));
    Ok(printed)
}

fn run(directory: &Path, workload: &str, contender: &str) -> Result<Value> {
    let file = directory.join("runs").join(workload).join(format!("{contender}-1.json"));
    let bytes = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn promises(printed: &[String]) -> Result<Value> {
    serde_json::from_str(printed.last().context("it printed nothing")?).context("the last line is no JSON")
}

#[test]
fn a_quick_bench_is_whole_and_goes_on_where_it_was_cut_off() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let promised = promises(&bench(directory)?)?;
    let names: Vec<&String> = promised.as_object().context("no object")?.keys().collect();
    ensure!(names.iter().copied().eq(PROMISES.iter()), "other figures: {promised}");
    ensure!(PROMISES.iter().all(|name| promised[name].as_f64().is_some_and(f64::is_finite)), "{promised}");

    for (workload, contender) in RUNS {
        let run = run(directory, workload, contender)?;
        let (rows, answers) = (count(&run, "/verified/rows")?, count(&run, "/verified/answers")?);
        ensure!(rows > 0 && answers > 0, "{workload}, {contender}: {rows} rows, {answers} answers compared");
        let has_agent = run.pointer("/agent/processor_seconds").is_some();
        ensure!(has_agent == ["sexton", "density"].contains(&contender), "{workload}, {contender}: {run}");
    }
    let queue = run(directory, "queue_1e7", "sexton")?;
    let rewritten = count(&queue, "/agent/rewritten_bytes")?;
    ensure!(rewritten > 0, "Sexton has not acted on the queue: {}", queue["agent"]);
    ensure!(count(&queue, "/measured/compaction_written_bytes")? > 0, "RocksDB knows of no compaction");
    let nothing = run(directory, "queue_1e7", "nothing")?;
    ensure!(number(&nothing, "/measured/tombstones_per_list")? > 1_000.0, "nothing hurts in this queue");

    let csv = std::fs::read_to_string(directory.join("runs.csv"))?;
    let named: BTreeSet<(&str, &str)> = csv
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut cells = line.split(',');
            Some((cells.next()?, cells.nth(1)?))
        })
        .collect();
    ensure!(named == BTreeSet::from(RUNS), "other runs in the file: {named:?}");
    let report = std::fs::read_to_string(directory.join("report.md"))?;
    ensure!(RUNS.iter().all(|(workload, _)| report.contains(&format!("## {workload}: "))), "{report}");
    for name in ["queue_1e7.svg", "prefixes.svg", "hashed.svg"] {
        let picture = std::fs::read_to_string(directory.join(name))?;
        ensure!(picture.ends_with("</svg>\n") && picture.contains("sexton"), "{name}: {picture}");
    }

    // Cut off before its fourth workload's last run.
    let kept = run(directory, "queue_1e7", "sexton")?;
    std::fs::remove_file(directory.join("runs/hashed/sexton-1.json"))?;
    let printed = bench(directory)?;
    let made = printed.iter().filter(|line| line.contains(" operations/s, ")).count();
    ensure!(made == 1, "{made} runs were made where one was missing");
    ensure!(run(directory, "queue_1e7", "sexton")? == kept, "a run was made again");
    ensure!(run(directory, "hashed", "sexton").is_ok(), "the missing run is still missing");
    promises(&printed).map(|_| ())
}
