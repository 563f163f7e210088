//! The `sexton` binary: reads the command line and calls the library.

use sexton::command::{
    Command, advise, completions, doctor, events, history, man, observe, plan, policy, run, schedule,
    scrub_bandwidth, simulate, targets, thread_priority, throttle, top,
};
use signal_hook::consts::SIGPIPE;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let arguments = sexton::command::parse();
    // What deals with foreign files and connections must not start a thread or open a file before it is
    // confined.
    match &arguments.command {
        Command::ReadSst(arguments) => return sexton_sst::child::main(arguments),
        Command::Examine(arguments) => return sexton_inspect::examiner_child::main(arguments),
        Command::AskLibrary(arguments) => return sexton_inspect::library_child::main(&arguments.library),
        Command::Listen => return sexton::api::listener::main(),
        _ => {}
    }
    sexton::log::start(default_log(&arguments.command));
    if !matches!(arguments.command, Command::Run(_)) {
        end_with_the_reader();
    }
    sexton_probe::forward_libbpf_messages();
    let result = match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Observe(arguments) => observe::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Events(arguments) => events::run(arguments),
        Command::History(arguments) => history::run(arguments),
        Command::Throttle(arguments) => throttle::run(arguments),
        Command::ScrubBandwidth(arguments) => scrub_bandwidth::run(arguments),
        Command::ThreadPriority(arguments) => thread_priority::run(arguments),
        Command::Advise(arguments) => advise::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Targets(arguments) => targets::run(arguments),
        Command::Schedule(arguments) => schedule::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Policy(arguments) => policy::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments),
        Command::KeepPerfLevel(arguments) => return sexton_execute::perf_level::child::main(*arguments),
        Command::ReadSst(_) | Command::Examine(_) | Command::AskLibrary(_) | Command::Listen => {
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Whoever reads the output may have enough of it, as `head` has. That ends a command as it ends any program,
/// where Rust would make an error of it. An agent that runs has sockets of its own, and lives on.
fn end_with_the_reader() {
    let is_wanted = Arc::new(AtomicBool::new(true));
    if let Err(error) = signal_hook::flag::register_conditional_default(SIGPIPE, is_wanted) {
        tracing::debug!(%error, "SIGPIPE stays ignored");
    }
}

/// What is logged where SEXTON_LOG does not say.
fn default_log(command: &Command) -> &'static str {
    match command {
        // Lines of a log would be written across the screen.
        Command::Top(arguments) if arguments.is_live() => "off",
        // It says itself what it finds, in its own words.
        Command::Doctor(_) => "error",
        _ => "info",
    }
}
