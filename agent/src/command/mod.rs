//! The command line: one module a subcommand, each a thin layer over the library.

pub mod advise;
mod asked_agent;
pub mod completions;
pub mod doctor;
pub mod events;
pub mod history;
pub mod interrupt;
pub mod man;
pub mod observe;
pub mod plan;
pub mod policy;
mod remote;
pub mod run;
pub mod schedule;
pub mod scrub_bandwidth;
pub mod simulate;
pub mod targets;
pub mod thread_priority;
pub mod throttle;
pub mod top;

use crate::failure::{EXIT_FAILED, EXIT_USAGE, Failure};
use crate::text::json_shown;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde::Serialize;
use sexton_tuner::policy::ByteSize;

/// Keeps a RocksDB's tombstones in order, from outside the running process.
///
/// Sexton looks into the RocksDB of processes that are already running, unmodified; measures per seek the
/// tombstones skipped and the blocks missed; ranks key ranges by the time readers lose there; and, where a
/// policy says so, has exactly those ranges compacted. Without a policy it watches every RocksDB on the node
/// and only advises.
#[derive(Debug, Parser)]
#[command(name = "sexton", version, propagate_version = true, after_long_help = after_help())]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What people do with it, one line each.
const EXAMPLES: &str = "\
sexton run                                  watch every RocksDB on this node, advise only
sexton run --policy policies/default.yaml   the same, by a policy
sexton doctor                               what works on this node, what does not, why, and what to do
sexton top                                  a running agent's targets and worst ranges, live
sexton events --follow                      what a running agent does, line by line
sexton history --since 7d                   what readers lost in a week, and what was compacted
sexton throttle                             what slows a running agent's targets down, how far, and why
sexton scrub-bandwidth --pid 4711 2MiB      an Ozone DataNode's data scanners read 2 MiB a second now
sexton thread-priority io --pid 4711 --threads 'rocksdb:low*' 7
                                            its compactions are the last that its disk serves
sexton advise                               what databases are used for, and which compaction suits that
sexton targets                              which processes have a RocksDB inside
sexton targets --pid 4711                   what can be read in process 4711, and what cannot, and why
sexton observe --pid 4711 --seconds 5       attach probes for 5 seconds and show what they saw
sexton plan --once --json                   one cycle, the plan as JSON, nothing is changed
sexton policy explain p.yaml                what a policy would do on this node now, and where it says so
sexton schedule --policy p.yaml --next 7d   when its periods begin and end, for a week
sexton simulate queue --plot queue.svg      what a policy would come to, on a simulated workload
curl -s localhost:9776/api/v1/ranges        the worst key ranges of a running agent
man -l <(sexton man policy check)           a page of the manual that is not installed";

/// The variables that it reads.
const ENVIRONMENT: [(&str, &str); 1] =
    [("SEXTON_LOG", "what to log to standard error, e.g. info, debug, sexton::engine=debug (default: info)")];

/// What it ends with.
const EXIT_CODES: [(u8, &str); 3] =
    [(0, "done"), (EXIT_FAILED, "it could not be done"), (EXIT_USAGE, "invalid flags, or an invalid policy")];

/// The end of the whole program's help.
fn after_help() -> String {
    let examples = EXAMPLES.lines().map(|line| format!("  {line}\n")).collect::<String>();
    let environment = ENVIRONMENT.map(|(name, meaning)| format!("  {name}    {meaning}\n")).concat();
    format!("Examples:\n{examples}\nEnvironment:\n{environment}\n{}", exit_codes_text())
}

/// The end of every help.
fn exit_codes_text() -> String {
    format!("Exit codes:\n  {}", EXIT_CODES.map(|(code, meaning)| format!("{code}  {meaning}")).join("     "))
}

/// The command line as it is parsed: as derived, and the help of each subcommand ends with the exit codes.
pub fn command_line() -> clap::Command {
    fn with_exit_codes(command: clap::Command) -> clap::Command {
        let own = command.get_after_long_help().or(command.get_after_help()).map(|own| format!("{own}\n\n"));
        let text = format!("{}{}", own.unwrap_or_default(), exit_codes_text());
        command.after_long_help(text).mut_subcommands(with_exit_codes)
    }
    Arguments::command().mut_subcommands(with_exit_codes)
}

/// Reads the command line; ends the process where it asks for help, or for what there is not.
pub fn parse() -> Arguments {
    let matches = command_line().get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch, rank, plan and, in mode act, compact; serves the HTTP API until stopped.
    Run(run::RunArguments),
    /// Run one cycle and print the plan; never changes anything.
    Plan(plan::PlanArguments),
    /// Attach probes to one process for some seconds and print what they saw.
    Observe(observe::ObserveArguments),
    /// Show a running agent's targets and worst ranges, live.
    Top(top::TopArguments),
    /// Show what a running agent has done and met, and go on with it.
    Events(events::EventsArguments),
    /// Show what readers lost over the last weeks, and what was compacted, as a running agent remembers it.
    History(history::HistoryArguments),
    /// Show a running agent's throttles: wanted and observed values, bounds, pressure, and why.
    Throttle(throttle::ThrottleArguments),
    /// Show or set how many bytes a second the data scanners of an Ozone DataNode may read.
    ScrubBandwidth(scrub_bandwidth::ScrubBandwidthArguments),
    /// Show or set the priorities of a process' threads by their names, those that compact for instance.
    ThreadPriority(thread_priority::ThreadPriorityArguments),
    /// Say what column families are used for, which compaction suits that, and what must not be done.
    Advise(advise::AdviseArguments),
    /// Say what works on this node and in each RocksDB, what does not, why, and what to do.
    Doctor(doctor::DoctorArguments),
    /// List the processes of this node that have a RocksDB inside, or all that is known of one.
    Targets(targets::TargetsArguments),
    /// List when the periods of a policy's schedule begin and end, and the values that hold then.
    Schedule(schedule::ScheduleArguments),
    /// Play a policy on a described workload, in simulated time.
    Simulate(simulate::SimulateArguments),
    /// Check policies, or print their JSON Schema.
    Policy(policy::PolicyArguments),
    /// Print a shell's completion script.
    Completions(completions::CompletionsArguments),
    /// Print a page of the manual, or write them all.
    Man(man::ManArguments),
    /// Reads a database directory's SST metadata on behalf of the agent.
    #[command(name = sexton_sst::CHILD_SUBCOMMAND, hide = true)]
    ReadSst(sexton_sst::ChildArguments),
    /// Examines one file that a process has mapped, on behalf of the agent.
    #[command(name = sexton_inspect::examiner::CHILD_SUBCOMMAND, hide = true)]
    Examine(sexton_inspect::examiner_child::ChildArguments),
    /// Asks a RocksDB library where its counters are, on behalf of the agent.
    #[command(name = sexton_inspect::library::CHILD_SUBCOMMAND, hide = true)]
    AskLibrary(sexton_inspect::library_child::ChildArguments),
    /// Accepts connections and speaks HTTP on behalf of the agent.
    #[command(name = crate::api::listener::CHILD_SUBCOMMAND, hide = true)]
    Listen,
    /// Raises the perf level of a target's threads on behalf of the agent, and puts it back.
    #[command(name = sexton_execute::perf_level::CHILD_SUBCOMMAND, hide = true)]
    KeepPerfLevel(sexton_execute::perf_level::ChildArguments),
}

/// Reads a size as a policy has it.
fn read_size(text: &str) -> Result<ByteSize, String> {
    let size = serde_json::from_value(serde_json::Value::String(text.to_owned()));
    size.map_err(|_| "write a size with its unit, such as 64MiB".to_owned())
}

/// Prints one JSON document that a terminal can show.
fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
    println!("{}", json_shown(&json));
    Ok(())
}
