//! One run: a queue of its own, filled and settled, then measured.

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rustix::process::Signal;
use sexton_tests::agent::{Agent, STOP_LIMIT, count, list, text};
use sexton_tests::artifact;
use sexton_tests::workload::{self, Second, Start, Workload};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// The table is filled and settled before the first second is reported.
const FILL_LIMIT: Duration = Duration::from_secs(240);
/// Seconds at the start that are not measured: the first lists read the tombstones' blocks from the files.
const WARM_UP_SECONDS: u64 = 3;
/// Seconds that the workload goes on beyond those that are measured, so that it is ended and does not end.
const SPARE_SECONDS: u64 = 60;
/// Lists a second: as many as the queue's two list threads can keep up with although each of them takes 0.4 s
/// without an agent. So both kinds of run do the same work, and none has a processor more to spare because
/// its lists are not made.
pub const LISTS_PER_SECOND: &str = "4";
/// Greatest latency that is told apart.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant digits of the percentiles.
const DIGITS: u8 = 3;

/// What goes on beside the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Alone,
    /// An agent in mode act.
    Sexton,
    /// One compaction of the whole table, in one call.
    Unsliced,
}

impl Kind {
    pub fn in_words(self) -> &'static str {
        match self {
            Kind::Alone => "alone",
            Kind::Sexton => "sexton",
            Kind::Unsliced => "unsliced",
        }
    }
}

/// How much and how long.
pub struct Lengths {
    /// Keys before the measured part.
    pub keys: u64,
    /// Length of the measured part, seconds.
    pub seconds: u64,
    /// Seconds at its end in which lists are measured.
    pub list_seconds: u64,
}

pub struct Figures {
    /// Creates and deletes, 99th percentile.
    pub writer_p99_ns: u64,
    pub writer_max_ns: u64,
    /// Lists, 99th percentile.
    pub list_p99_ns: u64,
    pub lists: usize,
    /// Looks that found writes delayed or stopped, and one more where RocksDB counted any time of a stall.
    pub stalls: u64,
    /// Written by compactions, bytes. What they read came from the block cache in part, and is counted by
    /// nobody then.
    pub compaction_written_bytes: u64,
    /// Slices that the agent compacted.
    pub slices: usize,
    /// Times that it paused one.
    pub pauses: u64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (p99, max) = (self.writer_p99_ns as f64 / 1e3, self.writer_max_ns as f64 / 1e6);
        let (list, compacted) = (self.list_p99_ns as f64 / 1e6, self.compaction_written_bytes as f64 / 1e6);
        write!(
            formatter,
            "writer p99 {p99:.1} us, max {max:.1} ms; {} lists, p99 {list:.2} ms; stalls {}; compactions wrote \
             {compacted:.0} MB; {} slices, {} pauses",
            self.lists, self.stalls, self.slices, self.pauses
        )
    }
}

/// Fills a queue, measures it, and leaves nothing behind.
pub fn run(kind: Kind, lengths: &Lengths) -> Result<Figures> {
    let directory = tempfile::Builder::new().prefix("sexton-bench-").tempdir()?;
    let hook = artifact::built("libsexton_hook.so")?;
    let seconds = WARM_UP_SECONDS + lengths.seconds + SPARE_SECONDS;
    let start = Start {
        directory: &directory.path().join("db"),
        keys: lengths.keys,
        seconds,
        preload: (kind == Kind::Sexton).then_some(hook.as_path()),
        stderr: File::create(directory.path().join("workload.log"))?.into(),
    };
    let compact_at = WARM_UP_SECONDS.to_string();
    let mut arguments = vec!["--lists-per-second", LISTS_PER_SECOND];
    if kind == Kind::Unsliced {
        arguments.extend(["--compact-at", &compact_at]);
    }
    let mut workload = Workload::start_with(start, &arguments, &[])?;
    let pid = workload.process.pid();
    let mut before = workload.second(FILL_LIMIT)?;
    for _ in 1..WARM_UP_SECONDS {
        before = workload.second(FILL_LIMIT)?;
    }
    let agent = match kind {
        Kind::Sexton => Some(Agent::start(directory.path(), &policy(pid))?),
        Kind::Alone | Kind::Unsliced => None,
    };
    let mut measured = Vec::new();
    while (measured.len() as u64) < lengths.seconds {
        let second = workload.second(FILL_LIMIT)?;
        // Of an unsliced run only the time of the compaction counts.
        if kind == Kind::Unsliced && !second.is_compacting && !measured.is_empty() {
            break;
        }
        measured.push(second);
    }
    let (slices, pauses) = agent.as_ref().map(done).transpose()?.unwrap_or_default();
    agent.map_or(Ok(()), Agent::stop)?;
    workload.process.signal(Signal::TERM)?;
    workload.process.wait(STOP_LIMIT)?;
    remove_socket(pid);
    figures(&before, &measured, lengths, (slices, pauses))
}

/// A workload that is ended by a signal leaves its hook's socket behind.
fn remove_socket(pid: u32) {
    // It is not there in a run without a hook.
    let _ = std::fs::remove_file(Path::new("/tmp").join(format!(".sexton-hook-{pid}.sock")));
}

/// Counters are of the end of a second: what the first of them did is told from the one before it. A
/// compaction may begin and end within one.
fn figures(
    before: &Second,
    seconds: &[Second],
    lengths: &Lengths,
    (slices, pauses): (usize, u64),
) -> Result<Figures> {
    let mut writes = histogram()?;
    for latency_ns in seconds.iter().flat_map(|second| &second.write_latencies_ns) {
        writes.saturating_record(*latency_ns);
    }
    let mut lists = histogram()?;
    let list_seconds = usize::try_from(lengths.list_seconds)?;
    for second in seconds.iter().rev().take(list_seconds) {
        second.list_latencies_ns.iter().for_each(|latency_ns| lists.saturating_record(*latency_ns));
    }
    ensure!(!writes.is_empty() && !lists.is_empty(), "nothing was written or listed");
    let last = seconds.last().context("no second was measured")?;
    let found_delayed: u64 = seconds.iter().map(|second| second.writes_found_delayed).sum();
    Ok(Figures {
        writer_p99_ns: writes.value_at_quantile(0.99),
        writer_max_ns: writes.max(),
        list_p99_ns: lists.value_at_quantile(0.99),
        lists: seconds.iter().map(|second| second.list_latencies_ns.len()).sum(),
        stalls: found_delayed + u64::from(last.stall_us > before.stall_us),
        compaction_written_bytes: last.compaction_write_bytes.saturating_sub(before.compaction_write_bytes),
        slices,
        pauses,
    })
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_NS_MAX, DIGITS).context("making a histogram")
}

/// Slices that the agent compacted, and how often it paused one; fails where it has done nothing.
fn done(agent: &Agent) -> Result<(usize, u64)> {
    let answer = agent.get("/api/v1/actions")?;
    let actions = list(&answer, "actions")?;
    ensure!(!actions.is_empty(), "the agent did nothing; its log ends:\n{}", agent.log_end());
    let pauses = actions.iter().map(|action| count(action, "/pauses").unwrap_or(0)).sum();
    // One whose deletions an earlier one had dropped already is not carried out.
    let carried_out = actions.iter().filter(|action| text(action, "/state") != "skipped");
    Ok((carried_out.count(), pauses))
}

/// Act on this process alone. All is as by default, budget and guards too, but for the age of a process that
/// was started just now, and for a cooldown that is short enough for ranges to be compacted again within the
/// run.
fn policy(pid: u32) -> String {
    workload::policy(
        pid,
        "act",
        "[compact]",
        "\
cooldown: 10s
guards: { process_uptime_min: 0s }
",
    )
}
