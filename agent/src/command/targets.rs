//! `sexton targets`: which processes on this node have a RocksDB inside, and what is known of one.

use crate::discovery::discover;
use crate::doctor::facts_text;
use crate::failure::Failure;
use crate::text::{print_line, shown};
use clap::Args;
use sexton_inspect::facts::Target;
use sexton_inspect::inspect::Inspector;

/// Arguments of `sexton targets`.
#[derive(Args, Debug)]
pub struct TargetsArguments {
    /// Look into this process only, and print all that is known of it.
    #[arg(long)]
    pid: Option<u32>,
    /// Ask a library that is in no table of layouts where its counters are. That runs its code, in a process
    /// that can do nothing but answer.
    #[arg(long)]
    ask_libraries: bool,
    /// Print one JSON array instead of text, an object a copy of RocksDB.
    #[arg(long)]
    json: bool,
}

/// Looks and prints; nothing is attached.
/// Errors: when there is no process with that pid, or no RocksDB in it that can be read.
pub fn run(arguments: &TargetsArguments) -> Result<(), Failure> {
    let targets = match arguments.pid {
        Some(pid) => inspector(arguments.ask_libraries).inspect_all(pid)?,
        None => all(arguments.ask_libraries),
    };
    if arguments.json {
        return super::print_json(&targets);
    }
    if targets.is_empty() {
        println!(
            "no process with a RocksDB that can be read; see `sexton targets --pid PID` for one you expect"
        );
    }
    for target in &targets {
        if arguments.pid.is_some() {
            print!("{}", facts_text(target));
            continue;
        }
        println!("{:<24} RocksDB {}", shown(&target.name), target.module.version);
        for database in &target.databases {
            print_line(format_args!("{:24} {}", "", database.path.display()));
        }
    }
    Ok(())
}

fn all(ask_libraries: bool) -> Vec<Target> {
    let mut targets = Vec::new();
    for result in discover(move || (inspector(ask_libraries), ()), |(), target| target.clone()) {
        match result {
            Ok(target) => targets.push(target),
            Err(error) => eprintln!("warning: {}", shown(&error.to_string())),
        }
    }
    targets
}

fn inspector(ask_libraries: bool) -> Inspector {
    let mut inspector = Inspector::new();
    if ask_libraries {
        inspector.ask_libraries();
    }
    inspector
}
