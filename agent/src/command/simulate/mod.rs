//! `sexton simulate`: what a policy would come to on a described or recorded workload, or on the agent's own
//! history, in simulated time.

mod history;
mod plot;
mod script;

use super::print_json;
use crate::failure::Failure;
use crate::policy_file;
use crate::text::print_line;
use clap::Args;
use script::Script;
use serde::Serialize;
use sexton_tuner::simulation::workload::{Report, Strategy};
use sexton_tuner::words;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  sexton simulate queue                                  nothing is done, and what the default policy would do
  sexton simulate queue --policy a.yaml --policy b.yaml  both policies, side by side
  sexton simulate my.yaml --plot my.svg                  a workload of your own, with a picture
  sexton simulate om.trace --options OPTIONS-000012      what a program did, as RocksDB recorded it
  sexton simulate --history /var/lib/sexton --policy a.yaml --policy b.yaml   what readers lost on this node

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
  { group_of: N }, { within: { from: N, count: N } }, { skewed: SHARE }; run: N are N keys in a row.

A trace is what DB::StartTrace writes, and db_bench --trace_file: writes and seeks with their keys. It knows neither
how far an iterator goes after a seek (--list) nor RocksDB's options (--options), nor what the database held:
keys that are read, merged or deleted before they are put are taken to have been there. SeekToFirst and SeekToLast
are not recorded.";

/// Arguments of `sexton simulate`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct SimulateArguments {
    /// Built-in workload (queue, directories, bucket, hashed, time-series), a file that describes one, or
    /// query traces of RocksDB, which are played in the order of time.
    #[arg(required_unless_present = "history")]
    workload: Vec<String>,
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
    #[command(flatten)]
    recorded: history::HistoryArguments,
    #[command(flatten)]
    untold: script::UntoldArguments,
}

/// One player's hour.
#[derive(Debug, Serialize)]
struct Played {
    policy: String,
    #[serde(flatten)]
    report: Report,
}

/// Plays the workload, or the history, once without anybody who acts, and once by each policy.
///
/// # Errors
/// A description or policy that is none, and a picture that cannot be written.
pub fn run(arguments: &SimulateArguments) -> Result<(), Failure> {
    if let Some(directory) = &arguments.recorded.history {
        return history::run(directory, &arguments.recorded, &arguments.policy, arguments.json);
    }
    let script = Script::of(&arguments.workload, &arguments.untold)?;
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
        let report = script
            .play(strategy, arguments.seed)
            .map_err(|error| Failure::new(error, "this is not expected: report it"))?;
        all.push(Played { policy, report });
    }
    if let Some(path) = &arguments.plot {
        std::fs::write(path, plot::picture(script.name(), &all)).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", path.display()), "choose another file")
        })?;
    }
    if arguments.json {
        return print_json(&all);
    }
    print_line(script.title());
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
