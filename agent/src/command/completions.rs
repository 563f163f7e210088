//! `sexton completions`: completion scripts for shells.

use crate::failure::Failure;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `sexton completions`.
#[derive(Args, Debug)]
pub struct CompletionsArguments {
    /// Shell to complete for.
    shell: Shell,
}

/// Prints the script to standard output.
pub fn run(arguments: &CompletionsArguments) -> Result<(), Failure> {
    clap_complete::generate(
        arguments.shell,
        &mut super::Arguments::command(),
        "sexton",
        &mut std::io::stdout(),
    );
    Ok(())
}
