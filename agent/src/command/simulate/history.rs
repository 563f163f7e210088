//! Policies side by side on the history that an agent has recorded.

use crate::command::{print_json, read_size};
use crate::failure::Failure;
use crate::text::{print_line, shown};
use crate::{history, policy_file};
use clap::Args;
use serde::Serialize;
use sexton_tuner::history::History;
use sexton_tuner::policy::{ByteSize, Policy};
use sexton_tuner::simulation::replay::{Replayed, actions_recorded, replay};
use sexton_tuner::words;
use std::path::{Path, PathBuf};

/// Arguments about a recorded history.
#[derive(Args, Debug)]
pub(super) struct HistoryArguments {
    /// Instead of a workload: the history of an agent, which is in its state directory (/var/lib/sexton) or a
    /// copy of it. Policies are played on what readers lost there, minute by minute, their first entry on all
    /// targets as in mode act.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["workload", "plot"])]
    pub(super) history: Option<PathBuf>,
    /// Bytes that each recorded range of keys is taken to have: how large files are is not in a history.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = read_size, requires = "history")]
    range_bytes: ByteSize,
}

/// What one policy comes to.
#[derive(Debug, Serialize)]
struct Line {
    policy: String,
    #[serde(flatten)]
    replayed: Replayed,
}

/// Plays nothing, and each policy.
///
/// # Errors
/// A directory without a history, and a policy that is none.
pub(super) fn run(
    directory: &Path,
    arguments: &HistoryArguments,
    policies: &[PathBuf],
    as_json: bool,
) -> Result<(), Failure> {
    let history = load(directory)?;
    let recorded = actions_recorded(&history).round();
    if recorded >= 1.0 {
        eprintln!(
            "warning: the agent that recorded this has acted {recorded} times itself: what these actions relieved is \
             nobody's to relieve here"
        );
    }
    let mut players = vec![("nothing is done".to_owned(), None)];
    for path in policies {
        players.push((path.display().to_string(), Some(policy_file::load(path)?)));
    }
    if policies.is_empty() {
        players.push(("default policy".to_owned(), Some(Policy::default())));
    }
    let mut lines = Vec::new();
    for (policy, played) in players {
        let replayed = replay(&history, played.as_ref(), arguments.range_bytes.bytes());
        let replayed = replayed.map_err(|error| Failure::new(error, "this is not expected: report it"))?;
        lines.push(Line { policy, replayed });
    }
    if as_json {
        return print_json(&lines);
    }
    print_line(format!(
        "{}, replayed; each range of keys has {}",
        directory.display(),
        arguments.range_bytes
    ));
    print_line(format!(
        "{:<28} {:>10} {:>8} {:>12} {:>14} {:>9}",
        "policy", "pain", "actions", "rewritten", "peak", "refusals"
    ));
    lines.iter().for_each(print);
    Ok(())
}

fn print(Line { policy, replayed }: &Line) {
    let Replayed { pain_seconds, bytes, bytes_per_second_peak, actions, refusals } = replayed;
    let peak = format!("{}/s", words::bytes(*bytes_per_second_peak as u64));
    print_line(format!(
        "{:<28} {:>10} {actions:>8} {:>12} {peak:>14} {:>9}",
        shown(policy),
        words::seconds(*pain_seconds),
        words::bytes(*bytes),
        refusals.values().sum::<u64>()
    ));
    if !refusals.is_empty() {
        let each: Vec<String> = refusals.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
        print_line(format!("  refused: {}", each.join(", ")));
    }
}

/// The history in a state directory, or in the directory of its files.
fn load(directory: &Path) -> Result<History, Failure> {
    let inner = directory.join("history");
    let history = history::load(if inner.is_dir() { &inner } else { directory });
    if history.is_empty() {
        let help = "name an agent's state directory: it has history/1min.parquet and others";
        return Err(Failure::new(format!("{} has no history that can be read", directory.display()), help));
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::history::{Amounts, Bucket, Cell, LAYERS, Metric, Place};
    use sexton_tuner::range::KeyRange;

    #[test]
    fn a_state_directory_and_its_history_are_the_same() {
        let state = tempfile::tempdir().unwrap();
        assert!(load(state.path()).unwrap_err().cause().contains("has no history"));
        let place = Place { target: "om".into(), database: "/db".into(), column_family: "cf".into() };
        let sums = Amounts::default().with(Metric::Pain, 1.0).with(Metric::Operations, 2.0);
        let counted = Bucket::of([(place, Cell::new(&KeyRange::everything(), sums, 60.0))]);
        let mut history = History::default();
        history.record(jiff::Timestamp::now().as_second(), &counted);
        let inner = state.path().join("history");
        (0..LAYERS.len()).for_each(|layer| history::store(&inner, layer, &history).unwrap());
        assert_eq!(load(state.path()).unwrap(), history);
        assert_eq!(load(&inner).unwrap(), history);
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!(read_size("2MiB").unwrap().bytes(), 2 << 20);
        assert!(read_size("2000").is_err());
    }
}
