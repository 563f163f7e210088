//! The demo: `sexton-demo`.
//!
//! Starts a queue on RocksDB, measures how slow its lists are, starts the agent on it with a policy that
//! says `act`, and measures again. It ends by itself, kills only what it started and leaves nothing
//! behind. `stage` runs the processes, `phase` adds up what the workload reports, `output` prints.

mod interrupt;
mod output;
mod phase;
mod stage;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use output::Output;
use phase::Phase;
use sexton_tests::agent::Agent;
use stage::Stage;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What the demo promises: the 99th percentile falls at least by this factor.
const GAIN_WANTED: f64 = 50.0;
/// The agent looks, plans and acts within seconds; a slow machine takes longer.
const RELIEF_LIMIT: Duration = Duration::from_secs(75);

/// Shows what Sexton does to a queue on RocksDB, in less than three minutes.
#[derive(Debug, Parser)]
struct Arguments {
    /// Keys that the queue has seen before the demo measures.
    #[arg(long, default_value_t = 8_000_000)]
    keys: u64,
    /// Length of the measurement before the agent starts, seconds.
    #[arg(long, default_value_t = 15)]
    before_seconds: u64,
    /// Length of the measurement after the agent has relieved the queue, seconds.
    #[arg(long, default_value_t = 20)]
    after_seconds: u64,
    /// Goes on after that, for whoever looks at the dashboard, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(_) if interrupt::requested() => {
            eprintln!("interrupted; nothing is left running, the database is removed");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            eprintln!(
                "help: see the lines above; `sexton targets --pid PID` shows what it finds in a process"
            );
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    interrupt::watch()?;
    ensure!(
        rustix::process::geteuid().is_root(),
        "the agent loads BPF programs and looks into another process: run the demo as root (`sudo make demo`)"
    );
    let mut output = Output::new();
    let mut stage = Stage::set(arguments.keys, arguments.keep)?;
    output.introduce(arguments.keys, stage.directory());
    let filled = stage.fill(&mut output)?;
    output.filled(&filled, stage.pid());

    // The first lists read the tombstones' blocks from the files; from then on they are cached.
    stage.skip_second()?;
    let mut before = Phase::new()?;
    output.phase("before: nothing helps the readers");
    for _ in 0..arguments.before_seconds {
        let second = stage.second()?;
        before.add(&second);
        output.second(&second, None, "");
    }
    let bytes_full_compaction = before.sst_bytes();

    output.phase("sexton starts: it watches, ranks, compacts");
    let agent = stage.start_agent()?;
    println!("  its dashboard: http://{}/", agent.address);
    let (after, agent) = watch(arguments, &mut stage, agent, &mut output)?;
    let actions = stage::actions(&agent)?;
    agent.stop().context("ending the agent")?;
    stage.end()?;

    let verdict = output::Verdict {
        before: before.result(),
        after: after.result(),
        bytes_rewritten: actions.iter().map(|action| action.bytes_rewritten).sum(),
        bytes_full_compaction,
    };
    Ok(output.conclude(&verdict, GAIN_WANTED))
}

/// Prints the timeline until the agent has worked off its first plan and has measured that it helped, and
/// the time after that.
fn watch(
    arguments: &Arguments,
    stage: &mut Stage,
    agent: Agent,
    output: &mut Output,
) -> Result<(Phase, Agent)> {
    let started = Instant::now();
    let mut after = Phase::new()?;
    let mut agent = agent;
    let mut relieved = false;
    while arguments.keep || after.seconds() < arguments.after_seconds {
        let second = stage.second()?;
        ensure!(agent.process.is_running()?, "the agent ended:\n{}", agent.log_end());
        if relieved {
            after.add(&second);
        }
        let actions = stage::actions(&agent)?;
        let note = output.action_note(&actions);
        output.second(&second, Some(stage::pain(&agent)?), &note);
        if !relieved && stage::is_relieved(&actions) {
            relieved = true;
            output.phase("after: the same load, the same program");
        }
        ensure!(
            relieved || started.elapsed() < RELIEF_LIMIT,
            "the agent has relieved nothing within {RELIEF_LIMIT:?}; its log ends:\n{}",
            agent.log_end()
        );
    }
    Ok((after, agent))
}
