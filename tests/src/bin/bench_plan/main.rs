//! How the decision grows: `sexton-bench-plan`.
//!
//! Operations that readers lost time in go into the ledger of pain window by window, and a plan is made of it
//! and of all SST files, at three sizes. DuckDB joins the same operations with the same files in the same
//! run. Each measurement has a process of its own, so that its memory is its own.

mod database;
mod duckdb;
mod planner;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use database::Database;
use planner::Figures;
use serde_json::json;
use sexton_tests::machine;
use std::process::{Command, ExitCode};

/// Longest that a plan may take, and most memory.
const SECONDS_WANTED: f64 = 1.0;
const BYTES_WANTED: u64 = 1 << 30;
/// Smaller sizes, as parts of the greatest one.
const PARTS: [u64; 3] = [16, 4, 1];

/// Measures how long planning takes with many files and observations, in a few minutes.
#[derive(Debug, Parser)]
struct Arguments {
    /// SST files of the greatest size.
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// Operations of the greatest size.
    #[arg(long, default_value_t = 10_000_000)]
    observations: u64,
    /// Measurements of each size; medians are told.
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Measures one size once, in this process, and prints what was measured as JSON.
    #[arg(long)]
    once: bool,
    /// Leaves out DuckDB.
    #[arg(long)]
    without_peer: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Gives whether everything is as it should be.
fn run(arguments: &Arguments) -> Result<bool> {
    let greatest = Database { files: arguments.files, observations: arguments.observations };
    if arguments.once {
        println!("{}", serde_json::to_string(&planner::measure(greatest)?)?);
        return Ok(true);
    }
    ensure!(arguments.repetitions > 0, "nothing would be measured");
    println!("machine: {}, Linux {}", machine::processor(), machine::kernel_release());
    println!(
        "{} repetitions, medians; one column family of 7 levels; operations in windows of 4,096, five seconds apart",
        arguments.repetitions
    );
    println!(
        "     files   operations   ledger s  longest window ms   decision s   peak MiB   ranges   actions"
    );
    let mut sizes = Vec::new();
    for part in PARTS {
        let database = Database { files: greatest.files / part, observations: greatest.observations / part };
        sizes.push((database, median(database, arguments.repetitions)?));
    }
    let (_, last) = *sizes.last().context("no size")?;
    let plan_seconds = last.ledger_seconds + last.decision_seconds;
    let peer = match arguments.without_peer {
        true => None,
        false => Some(duckdb::measure(greatest, arguments.repetitions)?),
    };
    if let Some(peer) = &peer {
        println!(
            "DuckDB {}: the join of all operations with the files of each level {:.2} s, {} pairs, peak {} MiB",
            peer.version,
            peer.seconds,
            peer.pairs,
            peer.resident_bytes >> 20
        );
    }
    println!(
        "{}",
        json!({
            "plan_seconds": rounded(plan_seconds),
            "ledger_seconds": rounded(last.ledger_seconds),
            "decision_seconds": rounded(last.decision_seconds),
            "window_seconds_max": rounded(last.window_seconds_max),
            "resident_bytes": last.resident_bytes,
            "files_resident_bytes": last.files_bytes,
            "duckdb_seconds": peer.as_ref().map(|peer| rounded(peer.seconds)),
            "duckdb_resident_bytes": peer.as_ref().map(|peer| peer.resident_bytes),
            "growth_exponent": rounded(growth_exponent(&sizes)),
        })
    );
    Ok(plan_seconds <= SECONDS_WANTED && last.resident_bytes <= BYTES_WANTED)
}

/// By processes of their own: the figures with the median decision.
fn median(database: Database, repetitions: usize) -> Result<Figures> {
    let mut all = (0..repetitions).map(|_| once(database)).collect::<Result<Vec<Figures>>>()?;
    all.sort_by(|one, two| one.decision_seconds.total_cmp(&two.decision_seconds));
    let figures = *all.get(all.len() / 2).context("nothing was measured")?;
    println!(
        "{:>10} {:>12} {:>10.3} {:>18.1} {:>12.3} {:>10} {:>8} {:>9}",
        database.files,
        database.observations,
        figures.ledger_seconds,
        figures.window_seconds_max * 1e3,
        figures.decision_seconds,
        figures.resident_bytes >> 20,
        figures.ranges,
        figures.actions
    );
    Ok(figures)
}

fn once(database: Database) -> Result<Figures> {
    let Database { files, observations } = database;
    let output = Command::new(std::env::current_exe().context("finding this program")?)
        .arg("--once")
        .args(["--files", &files.to_string(), "--observations", &observations.to_string()])
        .output()
        .context("starting a process to measure in")?;
    ensure!(
        output.status.success(),
        "{files} files, {observations} operations: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("reading what was measured")
}

/// By which power of the size the whole grows: the slope by least squares of the logarithms.
fn growth_exponent(sizes: &[(Database, Figures)]) -> f64 {
    let point = |(database, figures): &(Database, Figures)| {
        ((database.files as f64).ln(), (figures.ledger_seconds + figures.decision_seconds).ln())
    };
    let points: Vec<(f64, f64)> = sizes.iter().map(point).collect();
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let alone: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    together / alone
}

/// Three digits behind the point: more is noise.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
