//! `sexton doctor`: what works here, what does not, why, and what to do.

use crate::doctor::{examine, text};
use crate::failure::Failure;
use crate::policy_file;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `sexton doctor`.
#[derive(Args, Debug)]
pub struct DoctorArguments {
    /// Look only at this process.
    #[arg(long)]
    pid: Option<u32>,
    /// The policy (YAML) to act by: whether the servers that it names would take statements is found out, and
    /// whether the values of its throttles can be read: of targets in mode act, by its commands.
    #[arg(long)]
    policy: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Looks and prints; no probe is armed and nothing is changed.
/// Errors: when the policy is none, or something essential is missing: the report is printed all the same.
pub fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    let policy = arguments.policy.as_deref().map(policy_file::load).transpose()?;
    let report = examine(arguments.pid, policy);
    if arguments.json {
        super::print_json(&report)?;
    } else {
        print!("{}", text(&report));
    }
    match report.ok {
        true => Ok(()),
        false => Err(Failure::new(&report.summary, "the report says what to do about each")),
    }
}
