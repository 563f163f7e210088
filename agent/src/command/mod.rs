//! The command line: one module a subcommand, each a thin layer over the library.

pub mod completions;
pub mod doctor;
pub mod events;
pub mod interrupt;
pub mod observe;
pub mod plan;
pub mod policy;
pub mod run;
pub mod schedule;
pub mod simulate;
pub mod targets;
pub mod top;

use crate::failure::Failure;
use crate::text::json_shown;
use clap::{Parser, Subcommand};
use serde::Serialize;

/// Keeps a RocksDB's tombstones in order, from outside the running process.
///
/// Sexton looks into the RocksDB of processes that are already running, unmodified; measures per seek the
/// tombstones skipped and the blocks missed; ranks key ranges by the time readers lose there; and, where a
/// policy says so, has exactly those ranges compacted. Without a policy it watches every RocksDB on the node
/// and only advises.
#[derive(Debug, Parser)]
#[command(name = "sexton", version, propagate_version = true, after_long_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sexton run                                  watch every RocksDB on this node, advise only
  sexton run --policy policies/default.yaml   the same, by a policy
  sexton doctor                               what works on this node, what does not, why, and what to do
  sexton top                                  a running agent's targets and worst ranges, live
  sexton events --follow                      what a running agent does, line by line
  sexton targets                              which processes have a RocksDB inside
  sexton targets --pid 4711                   what can be read in process 4711, and what cannot, and why
  sexton observe --pid 4711 --seconds 5       arm the probes for 5 seconds and show what they saw
  sexton plan --once --json                   one cycle, the plan as JSON, nothing is changed
  sexton schedule --policy p.yaml --next 7d   when which values hold, for a week
  sexton simulate queue --plot queue.svg      what a policy would come to, on a simulated workload
  curl -s localhost:9776/api/v1/ranges        the worst key ranges of a running agent

Environment:
  SEXTON_LOG    what to log to standard error, e.g. info, debug, sexton::engine=debug (default: info)

Exit codes:
  0  done     1  it could not be done     2  the flags or the policy make no sense";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch, rank, plan and, in mode act, compact; serves the HTTP API until stopped.
    Run(run::RunArguments),
    /// Run one cycle and print the plan; never changes anything.
    Plan(plan::PlanArguments),
    /// Arm the probes on one process for a while and print what they saw.
    Observe(observe::ObserveArguments),
    /// Show a running agent's targets and worst ranges, live.
    Top(top::TopArguments),
    /// Show what a running agent has done and met, and go on with it.
    Events(events::EventsArguments),
    /// Say what works on this node and in each RocksDB, what does not, why, and what to do.
    Doctor(doctor::DoctorArguments),
    /// List the processes of this node that have a RocksDB inside, or all that is known of one.
    Targets(targets::TargetsArguments),
    /// List when a policy's schedule changes what holds, and to what.
    Schedule(schedule::ScheduleArguments),
    /// Play a policy on a described workload, in simulated time.
    Simulate(simulate::SimulateArguments),
    /// Check policies, or print their JSON Schema.
    Policy(policy::PolicyArguments),
    /// Print a shell's completion script.
    Completions(completions::CompletionsArguments),
    /// Reads a database directory's SST metadata on behalf of the agent.
    #[command(name = sexton_sst::CHILD_SUBCOMMAND, hide = true)]
    ReadSst(sexton_sst::ChildArguments),
    /// Asks a RocksDB library where its counters are, on behalf of the agent.
    #[command(name = sexton_inspect::library::CHILD_SUBCOMMAND, hide = true)]
    AskLibrary(sexton_inspect::library_child::ChildArguments),
    /// Raises the perf level of a target's threads on behalf of the agent, and puts it back.
    #[command(name = sexton_execute::perf_level::CHILD_SUBCOMMAND, hide = true)]
    KeepPerfLevel(sexton_execute::perf_level::ChildArguments),
}

/// Prints one JSON document that a terminal can show.
fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
    println!("{}", json_shown(&json));
    Ok(())
}
