//! Sexton and what one would use instead of it, side by side on real RocksDB: `sexton-bench-workloads`.
//!
//! Each workload's databases are filled once and handed to every contender by hard links. A host process of
//! its own reads and writes them at a steady pace, compares each answer with what was written, and reads all
//! rows at the end. Contenders take turns, so that whatever drifts on the machine meets all alike. Each run
//! is on disk as soon as it is over: a bench that was cut off goes on where it was.
//!
//! `workload` says what is done, `contender` who is compared, `host` is the host process, which this program
//! starts itself as, `order` what the two say to each other. `run` is one run, `results` the bench's
//! directory, `columns`, `summary` and `curve` the report.

mod agent;
mod columns;
mod contender;
mod curve;
mod hand_over;
mod host;
mod order;
mod results;
mod run;
mod summary;
mod workload;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use contender::{Contender, contenders};
use order::Lengths;
use results::{Common, Results};
use run::Runs;
use sexton_tests::{agent::exclusively, artifact, awake::Awake, machine};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use workload::{Scale, Workload};

/// Parts of a run.
const LENGTHS: Lengths = Lengths { lead_seconds: 2, settle_seconds: 10, measured_seconds: 16 };
const QUICK_LENGTHS: Lengths = Lengths { lead_seconds: 1, settle_seconds: 1, measured_seconds: 2 };
/// Where an agent has to have acted before a quick run ends, on a busy machine too.
const QUICK_LENGTHS_TO_ACT: Lengths = Lengths { lead_seconds: 1, settle_seconds: 1, measured_seconds: 9 };
/// Workloads of a quick bench: one with Sexton's best case, one with many small pains, one where it has to do
/// nothing, one where nothing is wrong.
const QUICK_WORKLOADS: [&str; 4] = ["queue_1e7", "prefixes", "hashed", "ycsb_a"];

/// Compares Sexton with what one would use instead of it, on eight workloads, in some five hours.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// A workload, by its letter from a to h or its name; default: all.
    #[arg(long)]
    workload: Option<String>,
    /// Only these contenders, by their names in the report; default: all of the workload.
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<String>,
    /// Where runs and the report go; what is there already is not run again.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Makes all that looks random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs of each contender; those that are there for a curve run once.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// Small databases, one short run of few contenders: shows that everything works, and measures nothing.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Carries out an order, in JSON: how the bench starts itself.
    #[command(hide = true)]
    Host { order: String },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::Host { order }) => {
            serde_json::from_str(order).context("reading an order").and_then(|order| host::carry_out(&order))
        }
        None => run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if arguments.command.is_none() {
                eprintln!("help: it takes root and what `make setup` installs; started again, it goes on");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let scale = if arguments.quick { Scale::Quick } else { Scale::Full };
    let workloads = wanted(arguments, scale)?;
    let repetitions = if arguments.quick { 1 } else { arguments.repetitions };
    ensure!(repetitions > 0, "nothing would be measured");
    let common = Common::new(arguments.seed, scale);
    let results = Results::open(&directory(arguments)?, &common)?;
    let _alone = exclusively()?;
    let _awake = if arguments.quick { None } else { Some(Awake::keep()?) };
    introduce(&results, arguments.seed);
    for workload in &workloads {
        let runs = Runs { results: &results, common: &common, workload };
        measure(&runs, &arguments.contenders, repetitions)
            .with_context(|| format!("in workload {}", workload.name))?;
    }
    report(&results, &common, repetitions)
}

fn wanted(arguments: &Arguments, scale: Scale) -> Result<Vec<Workload>> {
    match (&arguments.workload, scale) {
        (Some(wanted), _) => workload::selected(wanted),
        (None, Scale::Full) => Ok(workload::all()),
        (None, Scale::Quick) => {
            let selected = QUICK_WORKLOADS.iter().map(|name| workload::selected(name));
            Ok(selected.collect::<Result<Vec<_>>>()?.concat())
        }
    }
}

/// Beside what cargo builds, unless another is given: on a disk, and not in the way.
fn directory(arguments: &Arguments) -> Result<PathBuf> {
    let name = if arguments.quick { "bench-workloads-quick" } else { "bench-workloads" };
    match &arguments.directory {
        Some(directory) => Ok(directory.clone()),
        None => Ok(artifact::built("sexton")?.with_file_name(name)),
    }
}

fn introduce(results: &Results, seed: u64) {
    println!("machine: {}, Linux {}", machine::processor(), machine::kernel_release());
    println!(
        "RocksDB as the crate rust-rocksdb bundles it, seed {seed}; runs in {}",
        results.directory().display()
    );
}

/// Makes the runs of a workload that are missing.
fn measure(runs: &Runs<'_>, wanted: &[String], repetitions: u32) -> Result<()> {
    let contenders = contenders(runs.workload, runs.common.scale);
    for name in wanted {
        let known: Vec<&str> = contenders.iter().map(|contender| contender.name.as_str()).collect();
        ensure!(known.contains(&name.as_str()), "no contender `{name}`: {}", known.join(", "));
    }
    println!("{}: {}", runs.workload.name, runs.workload.what);
    let is_wanted = |contender: &Contender| wanted.is_empty() || wanted.contains(&contender.name);
    for repetition in 1..=repetitions {
        for contender in in_turn(&contenders, repetition).into_iter().filter(|one| is_wanted(one)) {
            let is_there = runs.results.run(runs.workload, &contender.name, repetition)?.is_some();
            if is_there || (contender.is_for_curve && repetition > 1) {
                continue;
            }
            runs.fill(contender)?;
            runs.find_healthy(contender)?;
            one(runs, contender, repetition).with_context(|| format!("in a run of {}", contender.name))?;
        }
    }
    // Where others are still to come, they begin with the same databases.
    if wanted.is_empty() { runs.results.remove_filled(runs.workload) } else { Ok(()) }
}

/// Another order in each repetition, so that nobody always comes after the same.
fn in_turn(contenders: &[Contender], repetition: u32) -> Vec<&Contender> {
    let mut turn: Vec<&Contender> = contenders.iter().collect();
    if repetition.is_multiple_of(2) {
        turn.reverse();
    }
    turn
}

fn one(runs: &Runs<'_>, contender: &Contender, repetition: u32) -> Result<()> {
    let start = Instant::now();
    let lengths = match runs.common.scale {
        Scale::Full => LENGTHS,
        Scale::Quick if contender.agent.is_some() && runs.workload.letter == 'a' => QUICK_LENGTHS_TO_ACT,
        Scale::Quick => QUICK_LENGTHS,
    };
    let run = runs.run(contender, repetition, lengths)?;
    runs.results.save(runs.workload, &run)?;
    let measured = &run.measured;
    println!(
        "  {:<24} {repetition}: list mean {:.3} ms, p99 {:.3} ms, {:.0} operations/s, compacted {:.1} MiB, {} actions; {:.0} s",
        contender.name,
        measured.list.mean_ns / 1e6,
        measured.list.p99_ns as f64 / 1e6,
        measured.operations_per_second,
        measured.compaction_written_bytes as f64 / f64::from(1 << 20),
        run.agent.as_ref().map_or(0, agent::AgentFigures::actions),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Of all runs that the directory holds, whenever they were made.
fn report(results: &Results, common: &Common, repetitions: u32) -> Result<()> {
    let tables = summary::tables(results, common, repetitions)?;
    let texts: Vec<String> = tables.iter().map(summary::Table::markdown).collect();
    println!("\n{}", texts.join("\n"));
    let write = |name: &str, text: String| {
        let file = results.directory().join(name);
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    };
    let promises = summary::promises(&tables);
    write("report.md", format!("{}\n{promises}\n", texts.join("\n")))?;
    write("runs.csv", summary::csv(&tables))?;
    for table in tables.iter().filter(|table| !table.workload.is_ycsb()) {
        write(&format!("{}.svg", table.workload.name), curve::picture(table))?;
    }
    println!("{promises}");
    Ok(())
}
