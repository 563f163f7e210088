//! What acting costs those who write: `sexton-bench-guard`.
//!
//! The queue workload writes and lists at a steady pace. Runs alone and runs with an agent in mode act take
//! turns; each pair of neighbours gives one ratio of the writer's 99th percentile and one of the lists'. At
//! the end one more run has its table compacted in one call, unsliced and unguarded, for comparison. `run` is
//! one run.
//!
//! Without an agent the lists keep both processors busy; with one they wait for the next list most of the
//! time, and a processor that has to be woken makes the writes slower that come after a pause. That is no
//! cost of acting: the same is seen without an agent once the table has been compacted by hand. So processors
//! wait awake in all runs.

mod run;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use run::{Figures, Kind, Lengths};
use serde_json::json;
use sexton_tests::awake::Awake;
use sexton_tests::machine;
use std::process::ExitCode;
use std::time::Instant;

/// Most that the writer's 99th percentile may rise.
const WRITER_WANTED: f64 = 1.10;
/// Least that the lists' 99th percentile has to fall by.
const LIST_WANTED: f64 = 50.0;

/// Measures what acting costs those who write, in some fifteen minutes.
#[derive(Debug, Parser)]
struct Arguments {
    /// Pairs of runs.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Keys that the queue has seen before a run is measured.
    #[arg(long, default_value_t = 8_000_000)]
    keys: u64,
    /// Length of a run's measured part, seconds; the agent is there for all of it.
    #[arg(long, default_value_t = 45)]
    seconds: u64,
    /// Seconds at its end in which lists are measured: by then the agent has relieved the queue.
    #[arg(long, default_value_t = 30)]
    list_seconds: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            eprintln!("help: it takes root and what `make setup` installs");
            ExitCode::FAILURE
        }
    }
}

/// Gives whether everything is as it should be.
fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.pairs > 0 && arguments.list_seconds <= arguments.seconds, "nothing would be measured");
    let _alone = sexton_tests::agent::exclusively()?;
    let _awake = Awake::keep()?;
    let started = Instant::now();
    introduce(arguments);
    let lengths =
        Lengths { keys: arguments.keys, seconds: arguments.seconds, list_seconds: arguments.list_seconds };
    let (mut writer, mut list, mut written, mut stalls) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for pair in 1..=arguments.pairs {
        // Whatever drifts on the machine meets both kinds alike.
        let kinds = if pair % 2 == 1 { [Kind::Alone, Kind::Sexton] } else { [Kind::Sexton, Kind::Alone] };
        let [first, second] = [measured(kinds[0], &lengths)?, measured(kinds[1], &lengths)?];
        let (alone, sexton) = if pair % 2 == 1 { (first, second) } else { (second, first) };
        writer.push(sexton.writer_p99_ns as f64 / alone.writer_p99_ns.max(1) as f64);
        list.push(alone.list_p99_ns as f64 / sexton.list_p99_ns.max(1) as f64);
        written.push(sexton.compaction_written_bytes as f64);
        stalls += sexton.stalls;
    }
    let unsliced = measured(Kind::Unsliced, &lengths)?;
    let (writer_ratio, list_ratio) = (median(&writer)?, median(&list)?);
    println!("took {:.0} s", started.elapsed().as_secs_f64());
    println!(
        "{}",
        json!({
            "writer_p99_ratio": rounded(writer_ratio),
            "writer_p99_ratios": writer.iter().copied().map(rounded).collect::<Vec<f64>>(),
            "list_p99_ratio": rounded(list_ratio),
            "list_p99_ratios": list.iter().copied().map(rounded).collect::<Vec<f64>>(),
            "write_stalls": stalls,
            "unsliced_writer_p99_ms": rounded(unsliced.writer_p99_ns as f64 / 1e6),
            "unsliced_writer_max_ms": rounded(unsliced.writer_max_ns as f64 / 1e6),
            "unsliced_write_stalls": unsliced.stalls,
            "compaction_written_bytes": median(&written)?,
            "unsliced_compaction_written_bytes": unsliced.compaction_written_bytes,
        })
    );
    Ok(writer_ratio <= WRITER_WANTED && list_ratio >= LIST_WANTED && stalls == 0)
}

fn measured(kind: Kind, lengths: &Lengths) -> Result<Figures> {
    let figures = run::run(kind, lengths).with_context(|| format!("in a run {}", kind.in_words()))?;
    println!("{:<9} {figures}", kind.in_words());
    Ok(figures)
}

/// Says what is measured on what.
fn introduce(arguments: &Arguments) {
    println!("machine: {}, Linux {}", machine::processor(), machine::kernel_release());
    println!(
        "load: sexton-queue-workload, RocksDB as the crate rust-rocksdb bundles it, {} keys before, \
         1,100 creates, 440 deletes, {} lists a second; writes over {} s, lists over the last {} s",
        arguments.keys,
        run::LISTS_PER_SECOND,
        arguments.seconds,
        arguments.list_seconds
    );
    println!(
        "processors are kept from idle states; without that, waking one costs writes more than acting does"
    );
}

fn median(values: &[f64]) -> Result<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().context("no pair was measured")
}

/// Three digits behind the point: more is noise.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
