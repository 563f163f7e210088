//! How fast the API answers: `sexton-bench-api`, run by `make bench-api`.
//!
//! Makes the history of five weeks, starts an agent on it and on a queue whose readers lose time, and has
//! clients poll ranges and heatmaps, as dashboards do. Latencies are those of whole answers, as the clients
//! see them. Meanwhile it looks when cycles end. Then each heatmap is asked for once, as nobody has before.
//! The last line is one JSON object; the program fails where a limit is not kept.

mod clients;
mod history;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use clients::{Answer, Client};
use sexton_tests::agent::{self, Agent};
use sexton_tests::machine;
use sexton_tests::workload::Workload;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// As the default policy has it.
const CYCLE_INTERVAL: Duration = Duration::from_secs(5);
/// A cycle that ends by so much later than an interval after the one before is late: its window, and what it
/// waits for at most.
const CYCLE_SLACK: Duration = Duration::from_secs(3);
/// How often it is looked whether a cycle has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(60);

/// What is allowed.
const ANSWER_P99_MAX: Duration = Duration::from_millis(50);
const HEATMAP_MAX: Duration = Duration::from_millis(100);
const HISTORY_BYTES_MAX: u64 = 200 << 20;

/// Spans, seconds, that heatmaps are asked for over: an hour, a day, a week, five weeks.
const SPANS: [u32; 4] = [3_600, 86_400, 604_800, 3_024_000];
const METRICS: [&str; 6] =
    ["pain", "operations", "tombstones_skipped", "block_misses", "bytes_compacted", "actions"];

/// Measures how fast the API answers.
#[derive(Debug, Parser)]
struct Arguments {
    /// Clients that poll at the same time.
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// Each of them asks once in so many milliseconds.
    #[arg(long, default_value_t = 1_000)]
    interval: u64,
    /// Length of one measurement, seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Measurements.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// Intervals of keys in the history.
    #[arg(long, default_value_t = 100_000)]
    intervals: usize,
}

/// One measurement.
struct Measured {
    ranges_p99: Duration,
    heatmap_p99: Duration,
    longest: Duration,
    answers: usize,
    bytes: usize,
    cycles: u64,
    cycle_gap: Duration,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let _turn = agent::exclusively()?;
    let directory = tempfile::tempdir().context("making a temporary directory")?;
    let state = directory.path().join("state");
    let made = history::five_weeks(jiff::Timestamp::now().as_second(), arguments.intervals)?;
    let intervals = made.cells();
    history::store(&state, &made)?;
    drop(made);
    let workload = Workload::hurting(&directory.path().join("db"))?;
    let pid = workload.process.pid();
    let policy = format!("mode: advise\ntargets: [{{ name: queue, match: {{ pid: {pid} }} }}]\n");
    let mut agent = Agent::start(directory.path(), &policy)?;
    agent.wait_for(LIMIT, "ranges", |agent| {
        let ranges = agent.get("/api/v1/ranges")?;
        Ok((!agent::list(&ranges, "ranges")?.is_empty()).then_some(()))
    })?;
    let processors = std::thread::available_parallelism().context("counting processors")?;
    println!("{processors} x {}, Linux {}", machine::processor(), machine::kernel_release());
    println!("{intervals} intervals in memory; {arguments:?}");
    let mut measured = Vec::new();
    for number in 1..=arguments.repetitions {
        let one = measure(&agent, &arguments)?;
        println!("{number}: {one}");
        measured.push(one);
    }
    let heatmap = slowest_heatmap(&agent)?;
    agent.stop()?;
    report(&measured, heatmap, intervals, history::bytes_on_disk(&state)?)
}

fn heatmap(span: u32, metric: &str, statistic: &str, rows: u32) -> String {
    format!("/api/v1/heatmap?span_seconds={span}&metric={metric}&statistic={statistic}&rows={rows}")
}

/// Half of what is asked for are ranges, half heatmaps, of those that dashboards show first.
fn polled() -> Vec<String> {
    let heatmaps = SPANS.iter().map(|span| heatmap(*span, "pain", "max", 256));
    let ranges = ["", "?sort=pain&limit=200", "?sort=tombstones_per_seek", "?column_family=keyTable"];
    let ranges = ranges.iter().map(|query| format!("/api/v1/ranges{query}"));
    ranges.zip(heatmaps).flat_map(|(ranges, heatmap)| [ranges, heatmap]).collect()
}

fn measure(agent: &Agent, arguments: &Arguments) -> Result<Measured> {
    let over = AtomicBool::new(false);
    let (interval, length) =
        (Duration::from_millis(arguments.interval), Duration::from_secs(arguments.seconds));
    let (answers, cycles) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch_cycles(agent, &over));
        let answers = clients::poll(agent.address, arguments.clients, interval, length, &polled());
        over.store(true, Ordering::Relaxed);
        (answers, watching.join())
    });
    let (cycles, cycle_gap) = cycles.map_err(|_| anyhow::anyhow!("watching cycles panicked"))??;
    let answers = answers?;
    let of = |is_heatmap: bool| {
        answers.iter().filter(move |answer| answer.is_heatmap == is_heatmap).map(|answer| answer.took)
    };
    Ok(Measured {
        ranges_p99: p99(of(false)),
        heatmap_p99: p99(of(true)),
        longest: answers.iter().map(|answer| answer.took).max().unwrap_or_default(),
        answers: answers.len(),
        bytes: answers.iter().map(|answer: &Answer| answer.bytes).sum(),
        cycles,
        cycle_gap,
    })
}

fn p99(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times.get((times.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}

/// How many cycles ended until it is over, and the longest time between the ends of two.
fn watch_cycles(agent: &Agent, over: &AtomicBool) -> Result<(u64, Duration)> {
    let count = || -> Result<u64> { agent::count(&agent.get("/healthz")?, "/cycles") };
    let (first, mut last, mut since) = (count()?, count()?, Instant::now());
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_INTERVAL);
        let now = count()?;
        longest = longest.max(since.elapsed());
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok((last - first, longest))
}

/// Each heatmap once, and the longest time that one took.
fn slowest_heatmap(agent: &Agent) -> Result<(Duration, String)> {
    let client = Client::new(agent.address);
    let mut slowest = (Duration::ZERO, String::new());
    for (span, metric) in SPANS.iter().flat_map(|span| METRICS.iter().map(move |metric| (span, metric))) {
        for (statistic, rows) in [("max", 1_536), ("sum", 1_536), ("sum", 64)] {
            let path = heatmap(*span, metric, statistic, rows);
            let answer = client.ask(&path)?;
            if answer.took > slowest.0 {
                slowest = (answer.took, path);
            }
        }
    }
    Ok(slowest)
}

impl std::fmt::Display for Measured {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{} answers, {} MiB: p99 of ranges {:.1?}, of heatmaps {:.1?}, longest {:.1?}; {} cycles, at most {:.1?} apart",
            self.answers,
            self.bytes >> 20,
            self.ranges_p99,
            self.heatmap_p99,
            self.longest,
            self.cycles,
            self.cycle_gap
        )
    }
}

/// Prints the worst of all, and fails where it is beyond a limit.
fn report(
    measured: &[Measured],
    heatmap: (Duration, String),
    intervals: usize,
    history_bytes: u64,
) -> Result<()> {
    let worst = |of: fn(&Measured) -> Duration| measured.iter().map(of).max().unwrap_or_default();
    let (ranges, heatmaps) = (worst(|one| one.ranges_p99), worst(|one| one.heatmap_p99));
    let gap = worst(|one| one.cycle_gap);
    println!("slowest heatmap that was asked for once: {:.1?}, {}", heatmap.0, heatmap.1);
    let ms = |time: Duration| (time.as_secs_f64() * 10_000.0).round() / 10.0;
    let summary = serde_json::json!({
        "intervals": intervals,
        "ranges_p99_ms": ms(ranges),
        "heatmap_p99_ms": ms(heatmaps),
        "cycle_gap_max_ms": ms(gap),
        "heatmap_first_max_ms": ms(heatmap.0),
        "history_bytes": history_bytes,
    });
    println!("{summary}");
    ensure!(ranges.max(heatmaps) < ANSWER_P99_MAX, "answers take longer than {ANSWER_P99_MAX:?}");
    ensure!(gap < CYCLE_INTERVAL + CYCLE_SLACK, "a cycle was late");
    ensure!(heatmap.0 < HEATMAP_MAX, "a heatmap takes longer than {HEATMAP_MAX:?}");
    ensure!(history_bytes < HISTORY_BYTES_MAX, "the history takes more than {HISTORY_BYTES_MAX} bytes");
    Ok(())
}
