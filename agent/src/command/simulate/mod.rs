//! `sexton simulate`: what a policy would come to on a described workload, in simulated time.

mod plot;

use super::print_json;
use crate::failure::Failure;
use crate::policy_file;
use crate::text::print_line;
use clap::Args;
use serde::Serialize;
use sexton_tuner::simulation::workload::{BUILTIN, Report, Strategy, Workload, builtin, play};
use sexton_tuner::words;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest description: the longest that anybody writes by hand has some hundred lines.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  sexton simulate queue                                  nothing is done, and what the default policy would do
  sexton simulate queue --policy a.yaml --policy b.yaml  both policies, side by side
  sexton simulate my.yaml --plot my.svg                  a workload of your own, with a picture

A workload's description, for example:
  name: mine
  keys: { directories: 1000 }      # or decimal, prefixed, big_endian
  load: 500000                     # keys that are there when it begins
  duration: 1h
  options: { write_buffer_size: '4194304' }   # RocksDB's, as in an OPTIONS file
  writers:
    - { do: put, at: next, per_second: 200 }
    - { do: delete, at: { oldest: { keep: 100000 } }, per_second: 200 }
  readers:
    - { at: first, list: 100, per_second: 20 }
  What is written: put, delete, single_delete, merge, delete_range. Where: any, next, first, { oldest: { keep: N } },
  { group_of: N }, { within: { from: N, count: N } }, { skewed: SHARE }; run: N are N keys in a row.";

/// Arguments of `sexton simulate`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct SimulateArguments {
    /// Built-in workload (queue, directories, bucket, hashed, time-series), or a file that describes one.
    workload: String,
    /// Policy to play; several are shown side by side. Default: the default policy.
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// Print JSON, with every interval.
    #[arg(long)]
    json: bool,
    /// Draw pain, bytes and actions over time into an SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Number that all chance comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One player's hour.
#[derive(Debug, Serialize)]
struct Played {
    policy: String,
    #[serde(flatten)]
    report: Report,
}

/// Plays the workload once without anybody who acts, and once by each policy.
///
/// # Errors
/// A description or policy that is none, and a picture that cannot be written.
pub fn run(arguments: &SimulateArguments) -> Result<(), Failure> {
    let workload = match builtin(&arguments.workload) {
        Some(workload) => workload,
        None => described(Path::new(&arguments.workload))?,
    };
    let mut players = vec![("nothing is done".to_owned(), Strategy::Nothing)];
    for path in &arguments.policy {
        let policy = policy_file::load(path)?;
        players.push((path.display().to_string(), Strategy::Planner(Box::new(policy))));
    }
    if arguments.policy.is_empty() {
        players.push(("default policy".to_owned(), Strategy::Planner(Box::default())));
    }
    let mut all = Vec::new();
    for (policy, strategy) in players {
        let report = play(&workload, strategy, arguments.seed)
            .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
        all.push(Played { policy, report });
    }
    if let Some(path) = &arguments.plot {
        std::fs::write(path, plot::picture(&workload.name, &all)).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", path.display()), "choose another file")
        })?;
    }
    if arguments.json {
        return print_json(&all);
    }
    print_line(format!("{} for {}, simulated", workload.name, workload.duration));
    print_line(format!(
        "{:<28} {:>10} {:>8} {:>8} {:>12} {:>12} {:>14}",
        "policy", "pain", "actions", "in vain", "rewritten", "by RocksDB", "pain at end"
    ));
    all.iter().for_each(|played| print_line(line(played)));
    Ok(())
}

fn line(Played { policy, report }: &Played) -> String {
    let at_end = report.samples.last().map_or(0.0, |sample| sample.pain_seconds_per_second);
    format!(
        "{policy:<28} {:>10} {:>8} {:>8} {:>12} {:>12} {:>14}",
        words::seconds(report.pain_seconds),
        report.actions,
        report.actions_in_vain,
        words::bytes(report.written_bytes),
        words::bytes(report.written_by_rocksdb_bytes),
        words::pain(at_end),
    )
}

fn described(path: &Path) -> Result<Workload, Failure> {
    let unreadable = |error: std::io::Error| {
        let cause = format!(
            "there is no built-in workload {}, and no such file can be read: {error}",
            path.display()
        );
        Failure::usage(cause, format!("name a file, or one of {}", BUILTIN.join(", ")))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(DESCRIPTION_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    Workload::parse(&text).map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display()), "sexton simulate --help shows a description")
    })
}
