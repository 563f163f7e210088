//! `sexton policy`: checking and explaining policies without running them.

mod explain;

use crate::failure::Failure;
use crate::policy_file;
use crate::text::shown;
use clap::{Args, Subcommand};
use explain::ExplainArguments;
use std::path::PathBuf;

/// Arguments of `sexton policy`.
#[derive(Args, Debug)]
pub struct PolicyArguments {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Check policy files; the first error is shown with a picture of its line.
    Check {
        /// Files to check, each a policy; of a directory all `*.yaml` together.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Say in sentences what a policy would do on this node now, and on which line each value stands.
    Explain(ExplainArguments),
    /// Print the JSON Schema of a policy, for editors.
    Schema,
}

/// Checks, or prints the schema.
/// Errors: the first policy that is not one.
pub fn run(arguments: &PolicyArguments) -> Result<(), Failure> {
    match &arguments.command {
        PolicyCommand::Check { files } => {
            for file in files {
                let policy = policy_file::load(file)?;
                for warning in policy_file::warnings(&policy) {
                    eprintln!("warning: {}: {}", file.display(), shown(&warning));
                }
                println!("{}: ok", file.display());
            }
        }
        PolicyCommand::Explain(arguments) => explain::run(arguments)?,
        PolicyCommand::Schema => println!("{}", sexton_tuner::policy::schema()),
    }
    Ok(())
}
