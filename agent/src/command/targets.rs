//! `sexton targets`: which processes on this node have a RocksDB inside.

use crate::failure::Failure;
use crate::text::{json_shown, print_line, shown};
use clap::Args;
use sexton_inspect::inspect::Inspector;

/// Arguments of `sexton targets`.
#[derive(Args, Debug)]
pub struct TargetsArguments {
    /// Print one JSON array instead of text.
    #[arg(long)]
    json: bool,
}

/// Looks through all processes and prints; nothing is attached.
///
/// # Errors
/// Only when the result cannot be printed.
pub fn run(arguments: &TargetsArguments) -> Result<(), Failure> {
    let (targets, errors): (Vec<_>, Vec<_>) =
        Inspector::new().discover().into_iter().partition(Result::is_ok);
    let targets: Vec<_> = targets.into_iter().flatten().collect();
    for error in errors.iter().filter_map(|error| error.as_ref().err()) {
        eprintln!("warning: {}", shown(&error.to_string()));
    }
    if arguments.json {
        let json = serde_json::to_string_pretty(&targets)
            .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
        println!("{}", json_shown(&json));
        return Ok(());
    }
    if targets.is_empty() {
        println!(
            "no process with a RocksDB that can be read; see `sexton inspect --pid PID` for one you expect"
        );
    }
    for target in &targets {
        let version = &target.module.version;
        let name = shown(&target.name);
        println!("{name:<24} RocksDB {}.{}", version.major, version.minor);
        if target.is_command_line_cut {
            println!("{:24} a command line of which only the first MiB can be matched", "");
        }
        for database in &target.databases {
            print_line(format_args!("{:24} {}", "", database.path.display()));
        }
    }
    Ok(())
}
