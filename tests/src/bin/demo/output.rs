//! What the demo prints: a progress bar, a timeline, a table, and one JSON object as the last line.

use crate::phase::PhaseResult;
use indicatif::{ProgressBar, ProgressStyle};
use sexton::snapshot::ActionView;
use sexton_tests::workload::{Filled, Second};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

/// Lines between two column headings of the timeline.
const HEADING_INTERVAL: u64 = 20;
/// Filling is reported every so many percent when standard error is no terminal.
const PLAIN_STEP_PERCENT: u64 = 25;

pub struct Output {
    lines: u64,
    states_seen: BTreeMap<u64, String>,
}

/// What came of it all.
pub struct Verdict {
    pub before: PhaseResult,
    /// After its first action.
    pub after: PhaseResult,
    /// Bytes that the agent's actions rewrote.
    pub bytes_rewritten: u64,
    /// Bytes that a full compaction would have rewritten.
    pub bytes_full_compaction: u64,
}

/// The filling's progress: a bar on a terminal, plain lines elsewhere.
pub struct FillBar {
    bar: Option<ProgressBar>,
    next_percent: std::cell::Cell<u64>,
}

impl Output {
    pub fn new() -> Output {
        Output { lines: 0, states_seen: BTreeMap::new() }
    }

    /// What is about to happen.
    pub fn introduce(&self, keys: u64, directory: &Path) {
        println!("A queue on RocksDB: {keys} keys created, the oldest 40 % deleted, listed from the start.");
        println!("Its files are in {} and will be removed.", directory.display());
    }

    pub fn fill_bar(&self) -> FillBar {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            let style = ProgressStyle::with_template("filling {wide_bar} {percent:>3} % {elapsed}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        FillBar { bar, next_percent: std::cell::Cell::new(PLAIN_STEP_PERCENT) }
    }

    pub fn filled(&self, filled: &Filled, pid: u32) {
        println!(
            "Filled in {:.0} s; the queue is process {pid}. RocksDB's own compactions are on and have settled:",
            seconds(filled.elapsed_ns)
        );
        for level in &filled.levels {
            println!(
                "  L{}  {:>3} files  {:>9}  {:>9} tombstones",
                level.level,
                level.files,
                mebibytes(level.bytes),
                level.deletions
            );
        }
    }

    /// A heading in the timeline.
    pub fn phase(&mut self, title: &str) {
        println!("-- {title}");
        if self.lines == 0 {
            self.heading();
        }
    }

    fn heading(&self) {
        println!(
            "{:>5} {:>10} {:>10} {:>7} {:>12} {:>10}  action",
            "s", "list p50", "list p99", "lists", "tombstones", "pain s/s"
        );
    }

    /// One second of the timeline.
    pub fn second(&mut self, second: &Second, pain: Option<f64>, note: &str) {
        if self.lines > 0 && self.lines.is_multiple_of(HEADING_INTERVAL) {
            self.heading();
        }
        self.lines += 1;
        let lists = second.list_latencies_ns.len();
        let per_list =
            u64::try_from(lists).ok().and_then(|lists| second.tombstones_skipped.checked_div(lists));
        println!(
            "{:>5} {:>10} {:>10} {:>7} {:>12} {:>10}  {note}",
            second.second,
            milliseconds(second.list_p50_ns),
            milliseconds(second.list_p99_ns),
            lists,
            per_list.unwrap_or_default(),
            pain.map(|pain| format!("{pain:.4}")).unwrap_or_default(),
        );
    }

    /// What has become of the actions since this was last asked: "#1 #2 done, 37.1 MiB; #3 running, ...".
    pub fn action_note(&mut self, actions: &[ActionView]) -> String {
        let mut changed: BTreeMap<&str, Vec<&ActionView>> = BTreeMap::new();
        for action in actions {
            if self.states_seen.get(&action.id) != Some(&action.state) {
                self.states_seen.insert(action.id, action.state.clone());
                changed.entry(action.state.as_str()).or_default().push(action);
            }
        }
        let notes: Vec<String> = changed.into_iter().map(|(state, actions)| note(state, &actions)).collect();
        notes.join("; ")
    }

    /// The table, the verdict in words and the JSON object; success only when the promise was kept.
    pub fn conclude(&self, verdict: &Verdict, gain_wanted: f64) -> ExitCode {
        table(verdict);
        let gain = ratio(verdict.before.list_p99_ns, verdict.after.list_p99_ns);
        let fast = gain >= gain_wanted;
        let cheap = verdict.bytes_rewritten < verdict.bytes_full_compaction;
        if fast {
            println!("The 99th percentile of list latency fell {gain:.0} times.");
        } else {
            println!(
                "FAILED: the 99th percentile fell only {gain:.1} times; at least {gain_wanted:.0} were promised."
            );
        }
        if !cheap {
            println!("FAILED: no fewer bytes were rewritten than a full compaction would have rewritten.");
        }
        println!(
            "{}",
            serde_json::json!({
                "list_p99_before_ns": verdict.before.list_p99_ns,
                "list_p99_after_ns": verdict.after.list_p99_ns,
                "list_p50_before_ns": verdict.before.list_p50_ns,
                "list_p50_after_ns": verdict.after.list_p50_ns,
                "bytes_rewritten": verdict.bytes_rewritten,
                "bytes_full_compaction": verdict.bytes_full_compaction,
            })
        );
        if fast && cheap { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn note(state: &str, actions: &[&ActionView]) -> String {
    let ids: Vec<String> = actions.iter().map(|action| format!("#{}", action.id)).collect();
    let ids = ids.join(" ");
    match (state, actions) {
        ("done", _) => {
            format!("{ids} done, {}", mebibytes(actions.iter().map(|action| action.bytes_rewritten).sum()))
        }
        ("running", [action, ..]) => {
            let end = action.end.as_deref().map_or("the end", last_part);
            format!("{ids} compacts {} to {end}", last_part(&action.begin))
        }
        ("failed" | "cancelled", [action, ..]) => format!("{ids} {state}: {}", action.outcome),
        _ => format!("{ids} {}", state.replace('_', " ")),
    }
}

/// What tells the keys of one bucket apart: the last part, without the byte that ends a range.
fn last_part(key: &str) -> &str {
    key.trim_end_matches("\\x00").rsplit('/').find(|part| !part.is_empty()).unwrap_or(key)
}

fn table(verdict: &Verdict) {
    let (before, after) = (&verdict.before, &verdict.after);
    println!();
    println!("{:<32} {:>12} {:>12}", "", "before", "after");
    let row = |name: &str, before: String, after: String| println!("{name:<32} {before:>12} {after:>12}");
    row("list p50", milliseconds(before.list_p50_ns), milliseconds(after.list_p50_ns));
    row("list p99", milliseconds(before.list_p99_ns), milliseconds(after.list_p99_ns));
    row("lists a second (55 wanted)", tenths(before.lists_per_second), tenths(after.lists_per_second));
    row("tombstones skipped per list", tenths(before.tombstones_per_list), tenths(after.tombstones_per_list));
    row("block misses per list", tenths(before.block_reads_per_list), tenths(after.block_reads_per_list));
    println!();
    println!("rewritten by the agent           {:>12}", mebibytes(verdict.bytes_rewritten));
    println!("a full compaction would rewrite  {:>12}", mebibytes(verdict.bytes_full_compaction));
    println!();
}

impl FillBar {
    /// Shows how far it is.
    pub fn show(&self, done: u64, wanted: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(wanted);
            bar.set_position(done);
            return;
        }
        let percent = (done * 100).checked_div(wanted).unwrap_or_default();
        if percent >= self.next_percent.get() {
            eprintln!("filling: {percent} %");
            self.next_percent.set(percent + PLAIN_STEP_PERCENT);
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn ratio(before: u64, after: u64) -> f64 {
    before as f64 / after.max(1) as f64
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn milliseconds(nanoseconds: u64) -> String {
    format!("{:.2} ms", nanoseconds as f64 / 1e6)
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}
