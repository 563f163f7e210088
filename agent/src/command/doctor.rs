//! `sexton doctor`: what works here, what does not, why, and what to do.

use crate::doctor::{examine, text};
use crate::failure::Failure;
use clap::Args;

/// Arguments of `sexton doctor`.
#[derive(Args, Debug)]
pub struct DoctorArguments {
    /// Look only at this process.
    #[arg(long)]
    pid: Option<u32>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Looks and prints; no probe is armed and nothing is changed.
///
/// # Errors
/// When something essential is missing: the report is printed all the same.
pub fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    let report = examine(arguments.pid);
    if arguments.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
        println!("{json}");
    } else {
        print!("{}", text(&report));
    }
    match report.ok {
        true => Ok(()),
        false => Err(Failure::new(&report.summary, "the report says what to do about each")),
    }
}
