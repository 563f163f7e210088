//! `sexton scrub-bandwidth`: how many bytes a second the data scanners of an Ozone DataNode may read.
//!
//! Ozone itself cannot be told at run time. As a throttle's `command` and `get` this is what has scrubbing
//! follow the schedule, and pressure; it needs no running agent, and no more rights than the DataNode's user
//! has.

use crate::failure::Failure;
use crate::text::print_line;
use clap::Args;
use serde::Serialize;
use sexton_execute::{HookClient, HookOptions};
use sexton_hook_protocol::{SCRUB_BYTES_PER_SECOND_MAX, SCRUB_BYTES_PER_SECOND_MIN, Scanner};
use sexton_inspect::inspect::Inspector;
use sexton_tuner::policy::ByteSize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Arguments of `sexton scrub-bandwidth`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
The first line printed is the bandwidth in bytes a second. It applies to each volume's scanner, and lasts until the
DataNode is started again: then hdds.container.scrub.volume.bytes.per.second of its configuration holds.

Sexton's hook is loaded into the DataNode's Java virtual machine where it is not there yet, as by an agent that acts.
Run it as the DataNode's user, or as root.")]
pub struct ScrubBandwidthArguments {
    /// The DataNode's process.
    #[arg(long)]
    pid: u32,
    /// Bytes a second: 5242880, or 5MiB; from 64 KiB to 16 GiB. Without it the bandwidth is shown.
    #[arg(value_name = "BYTES", value_parser = bandwidth)]
    bytes_per_second: Option<u64>,
    /// The hook's library. Default: beside this program, or in /usr/lib/sexton.
    #[arg(long, value_name = "FILE")]
    hook_library: Option<PathBuf>,
    /// Print one JSON object instead of text, with all scanners.
    #[arg(long)]
    json: bool,
}

fn bandwidth(text: &str) -> Result<u64, String> {
    match text.parse().or_else(|_| super::read_size(text).map(ByteSize::bytes))? {
        bytes @ SCRUB_BYTES_PER_SECOND_MIN..=SCRUB_BYTES_PER_SECOND_MAX => Ok(bytes),
        _ => Err("it is not between 64KiB and 16GiB a second".to_owned()),
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report<'a> {
    scanners: &'a [Scanner],
}

/// Asks the hook in the DataNode, and prints what it says.
/// Errors: when there is no such process, no hook can be had in it, or no scanner runs.
pub fn run(arguments: &ScrubBandwidthArguments) -> Result<(), Failure> {
    let target = Inspector::new().inspect(arguments.pid)?;
    let options = HookOptions { library: arguments.hook_library.clone(), may_attach: true };
    let mut hook = HookClient::connect(&target, &options)?;
    let scanners = match arguments.bytes_per_second {
        Some(bytes_per_second) => hook.set_scrub_bandwidth(bytes_per_second),
        None => hook.scanners(),
    }?;
    if arguments.json {
        return super::print_json(&Report { scanners: &scanners });
    }
    print_line(in_words(&scanners));
    Ok(())
}

/// The bandwidth; several numbers where the scanners differ.
fn in_words(scanners: &[Scanner]) -> String {
    let different: BTreeSet<u64> = scanners.iter().map(|scanner| scanner.bytes_per_second).collect();
    different.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_numbers_or_sizes_within_bounds() {
        assert_eq!(bandwidth("5242880"), Ok(5 << 20));
        assert_eq!(bandwidth("5MiB"), Ok(5 << 20));
        for refused in ["0", "63KiB", "17GiB", "5 apples", "", "-1"] {
            assert!(bandwidth(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn one_number_unless_the_scanners_differ() {
        let scanner = |bytes_per_second| Scanner { name: String::new(), bytes_per_second };
        assert_eq!(in_words(&[scanner(2), scanner(2)]), "2");
        assert_eq!(in_words(&[scanner(10), scanner(2)]), "2 10");
    }
}
