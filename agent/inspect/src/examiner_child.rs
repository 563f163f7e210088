//! The short-lived process that examines one file, confined, and answers what it found.
//!
//! It is given the open file as its standard input and can open no other, and a socket as its standard
//! output.

use super::debug_file::{self, DebugSymbols};
use super::elf::ElfError;
use super::finding::Finding;
use super::module;
use super::source::{Allowance, Source};
use serde::Serialize;
use sexton_sandbox::{Files, Limits, Sandbox, User, Work};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;

/// What it may use. What a file may take of it is less (`source`): half a second of an idle processor, some
/// seconds of one that is emulated, and 64 MiB beside its own program, which has as much, and the dictionary
/// that unpacking reserves.
const LIMITS: Limits = Limits {
    processor_time_seconds: Some(10),
    address_space_bytes: 512 << 20,
    open_files: 16,
    has_children: false,
};

/// Arguments of the hidden subcommand [`super::examiner::CHILD_SUBCOMMAND`].
#[derive(Clone, Debug, clap::Args)]
pub struct ChildArguments {
    /// The file is the debug file of this build, and its symbols are asked for.
    #[arg(long)]
    debug_file_of: Option<String>,
    /// What the file's debug file says, a JSON object; without it that was not looked for.
    #[arg(long, conflicts_with = "debug_file_of")]
    debug_symbols: Option<String>,
}

/// Entry point of the hidden subcommand: examines the file that is its standard input and answers. Must run
/// before the process has started a thread.
pub fn main(arguments: &ChildArguments) -> ExitCode {
    let answered = match (confined_file(), &arguments.debug_file_of) {
        (Ok(file), Some(build_id)) => answer(&debug_symbols(&file, build_id)),
        (Ok(file), None) => {
            let symbols = arguments.debug_symbols.as_ref();
            // What cannot be read was not said by the agent.
            answer(&module(&file, symbols.and_then(|text| serde_json::from_str(text).ok()).as_ref()))
        }
        (Err(error), _) => {
            let reason = format!("could not confine itself ({error}): nothing was read");
            answer(&Finding::Unreadable(ElfError::NotExamined { reason }))
        }
    };
    if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a file is; see [`module::examine`].
pub(super) fn module(file: &File, debug_symbols: Option<&DebugSymbols>) -> Finding {
    let allowance = Allowance::default();
    match Source::of_file(file, &allowance) {
        Ok(source) => module::examine(&source, debug_symbols),
        Err(error) => Finding::Unreadable(error),
    }
}

/// What a debug file says; nothing where it is another build's or cannot be understood.
pub(super) fn debug_symbols(file: &File, build_id: &str) -> DebugSymbols {
    let allowance = Allowance::default();
    let source = Source::of_file(file, &allowance);
    source.and_then(|source| debug_file::symbols(&source, build_id)).unwrap_or_default()
}

/// The file that is the standard input, after everything was given up that reading it does not need.
/// Errors: which fence could not be put up.
fn confined_file() -> Result<File, String> {
    sexton_sandbox::end_with_parent().map_err(|error| error.to_string())?;
    let file = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let sandbox = Sandbox {
        limits: Some(LIMITS),
        user: User::NobodyIfPossible,
        files: Some(Files::default()),
        work: Some(Work::ReadsOpened),
        ..Sandbox::default()
    };
    sandbox.enter().map_err(|error| error.to_string())?;
    Ok(File::from(file))
}

fn answer(answer: &impl Serialize) -> bool {
    let text = serde_json::to_vec(answer);
    let mut output = std::io::stdout();
    text.is_ok_and(|text| output.write_all(&text).and_then(|()| output.flush()).is_ok())
}
