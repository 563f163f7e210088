//! What Sexton costs a process that it looks at: `sexton-bench-overhead`.
//!
//! One `db_bench` makes cheap seeks on one core for the whole run; beside it, on another core, there is in
//! turn nothing and what is to be measured. Machines get slower and faster, by 5 % from one second to the
//! next and by more when their neighbours are busy, and that noise is as great over a tenth of a second as
//! over ten. So what is compared lies as close together as can be: what is the same for two neighbours of a
//! tenth of a second does not show in their ratio. There are as many as it takes for a 95 % interval of their
//! median that is narrow enough.
//!
//! Running agents are left to run, and the time in which they are at work is compared with the time around
//! it: `sentinel` and `windows`, by `moments`. Probes that are always on are compared in blocks, with and
//! without. `beside` is what runs beside the load, `statistics` the interval.

mod beside;
mod moments;
mod sentinel;
mod statistics;
mod windows;

use anyhow::{Context, Result};
use beside::{AgentsWord, AlwaysOn, Beside};
use clap::Parser;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use sexton_probe::governor::ProbePrices;
use sexton_tests::machine;
use sexton_tests::steady_seeks::{self, SteadySeeks};
use statistics::{Median, rounded};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const CORE_OF_LOAD: usize = 0;
const CORE_OF_OTHERS: usize = 1;
/// Pairs before an interval is looked at: fewer are narrow by chance.
const PAIRS_MIN: usize = 100;
/// A block: long enough for a dozen of db_bench's lines of progress.
const BLOCK: Duration = Duration::from_millis(120);
/// Pairs from one look at the interval to the next.
const PAIRS_PER_LOOK: usize = 20;
/// Time for the first seeks, which read the table into the cache.
const WARM_UP: Duration = Duration::from_secs(3);
/// Least ratio with the sentinel alone.
const SENTINEL_WANTED: f64 = 0.998;
/// Least ratio with windows at the default budget.
const WINDOWS_WANTED: f64 = 0.996;
/// How far the governor's figure may be from what the pairs show.
const COST_WANTED: std::ops::RangeInclusive<f64> = 0.75..=1.25;

/// Measures what Sexton costs a process that it looks at, in ten to twenty minutes on a quiet machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// Half width of the intervals that is wanted of probes that are always on.
    #[arg(long, default_value_t = 0.01)]
    half_width: f64,
    /// The same of a running agent, which costs far less.
    #[arg(long, default_value_t = 0.0005)]
    half_width_agent: f64,
    /// Most pairs of each comparison.
    #[arg(long, default_value_t = 5_000)]
    pairs_max: usize,
    /// Most seconds of each comparison.
    #[arg(long, default_value_t = 600)]
    seconds_max: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            eprintln!("help: it takes root, two cores and what `make setup` installs");
            ExitCode::FAILURE
        }
    }
}

/// Gives whether everything is as it should be.
fn run(arguments: &Arguments) -> Result<bool> {
    let _alone = sexton_tests::agent::exclusively()?;
    let started = Instant::now();
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    steady_seeks::fill(&database)?;
    // Children run where their parent runs when it starts them.
    run_on(CORE_OF_LOAD)?;
    let mut load = SteadySeeks::start(&database)?;
    run_on(CORE_OF_OTHERS)?;
    introduce(&mut load)?;

    let sentinel = sentinel::compare(&mut load, directory.path(), arguments)?;
    let (windows, word) = windows::compare(&mut load, directory.path(), arguments)?;
    let mut pair = AlwaysOn::seek_pair(load.pid(), word.prices)?;
    let always_on = compare("a pair on Seek, always on", &mut load, &mut pair, arguments)?;
    let mut all = AlwaysOn::all_probes(load.pid(), word.prices)?;
    let all_probes = compare("all probes, always on", &mut load, &mut all, arguments)?;

    println!("prices, corrected: {}", shown_prices(&word.prices));
    println!("took {:.0} s", started.elapsed().as_secs_f64());
    let passed = sentinel.value >= SENTINEL_WANTED
        && windows.value >= WINDOWS_WANTED
        && COST_WANTED.contains(&all_probes.cost.value);
    println!("{}", report(&sentinel, &windows, &word, &always_on, &all_probes));
    Ok(passed)
}

struct Comparison {
    /// Throughput with it, by throughput without.
    throughput: Median,
    /// What it says of its cost, by what the pairs show.
    cost: Median,
    /// Reader time that it says it cost, per time.
    cost_said: f64,
    /// Whether the interval got as narrow as wanted.
    narrow: bool,
}

/// One block without and one with, side by side.
struct Pair {
    throughput_ratio: f64,
    /// Reader time per time, by its own word.
    cost_said: f64,
}

impl Pair {
    /// What it says of its cost, by the share of the time that is missing.
    fn cost_ratio(&self) -> f64 {
        self.cost_said / (1.0 - self.throughput_ratio)
    }
}

/// Measures pairs until the interval of their median is narrow enough, or for as long as is allowed.
fn compare(
    name: &str,
    load: &mut SteadySeeks,
    beside: &mut dyn Beside,
    arguments: &Arguments,
) -> Result<Comparison> {
    let until = Instant::now() + Duration::from_secs(arguments.seconds_max);
    let mut pairs: Vec<Pair> = Vec::new();
    loop {
        // Without, with, with, without: what goes on beside is started once for two pairs.
        let without = load.rate_over(BLOCK)?;
        beside.start().with_context(|| format!("starting {name}"))?;
        let first = with(load, beside)?;
        let second = with(load, beside)?;
        beside.stop().with_context(|| format!("ending {name}"))?;
        pairs.push(first.beside(without));
        pairs.push(second.beside(load.rate_over(BLOCK)?));
        if !pairs.len().is_multiple_of(PAIRS_PER_LOOK) {
            continue;
        }
        let comparison = Comparison::of(&pairs, arguments.half_width);
        let Some(comparison) = comparison.filter(|_| pairs.len() >= PAIRS_MIN) else { continue };
        let is_over = pairs.len() >= arguments.pairs_max || Instant::now() >= until;
        if comparison.narrow || is_over {
            println!("{name}: {comparison}");
            return Ok(comparison);
        }
    }
}

struct With {
    rate: f64,
    cost_said: f64,
}

impl With {
    fn beside(self, rate_without: f64) -> Pair {
        Pair { throughput_ratio: self.rate / rate_without, cost_said: self.cost_said }
    }
}

fn with(load: &mut SteadySeeks, beside: &mut dyn Beside) -> Result<With> {
    let (began, before_ns) = (Instant::now(), beside.cost_ns()?);
    let rate = load.rate_over(BLOCK)?;
    let cost_ns = beside.cost_ns()?.saturating_sub(before_ns);
    Ok(With { rate, cost_said: cost_ns as f64 / began.elapsed().as_nanos() as f64 })
}

impl Comparison {
    /// `None` where there are too few pairs to say anything.
    fn of(pairs: &[Pair], half_width: f64) -> Option<Comparison> {
        let median = |value: fn(&Pair) -> f64| Median::of(&pairs.iter().map(value).collect::<Vec<f64>>());
        let throughput = median(|pair| pair.throughput_ratio)?;
        Some(Comparison {
            throughput,
            cost: median(Pair::cost_ratio)?,
            cost_said: median(|pair| pair.cost_said)?.value,
            narrow: throughput.half_width() <= half_width,
        })
    }
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = if self.narrow { "" } else { ", the interval is wider than wanted" };
        write!(
            formatter,
            "throughput {} pairs{width}; says itself that it costs {:.2} % of a core",
            self.throughput,
            self.cost_said * 100.0
        )
    }
}

/// This thread and all children that it starts from now on run on one core.
fn run_on(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores)
        .with_context(|| format!("running on core {core}: the bench takes two cores"))
}

/// Says what is measured on what.
fn introduce(load: &mut SteadySeeks) -> Result<()> {
    println!("machine: {}, Linux {}", machine::processor(), machine::kernel_release());
    println!("load: {}", load.command());
    load.rate_over(WARM_UP)?;
    let rate = load.rate_over(Duration::from_secs(2))?;
    println!("alone: {rate:.0} seeks/s, {:.2} us each", 1e6 / rate);
    Ok(())
}

fn shown_prices(prices: &ProbePrices) -> String {
    let shown = prices.by_kind().map(|(kind, ns)| format!("{kind} {ns:.0} ns"));
    shown.join(", ")
}

fn report(
    sentinel: &Median,
    windows: &Median,
    word: &AgentsWord,
    always_on: &Comparison,
    all_probes: &Comparison,
) -> Value {
    let ratio = |comparison: &Comparison| rounded(comparison.throughput.value);
    let interval = |comparison: &Comparison| comparison.throughput.interval();
    json!({
        "throughput_ratio_sentinel": rounded(sentinel.value),
        "throughput_ratio_sentinel_interval": sentinel.interval(),
        "throughput_ratio_windows": rounded(windows.value),
        "throughput_ratio_windows_interval": windows.interval(),
        "throughput_ratio_always_on": ratio(always_on),
        "throughput_ratio_always_on_interval": interval(always_on),
        "throughput_ratio_all_probes": ratio(all_probes),
        "throughput_ratio_all_probes_interval": interval(all_probes),
        "governor_cost_ratio": rounded(all_probes.cost.value),
        "governor_cost_ratio_interval": all_probes.cost.interval(),
        "governor_cost_ratio_pair": rounded(always_on.cost.value),
        "governor_cost_ratio_learnt": rounded(all_probes.cost.value / word.correction_ratio),
        "price_correction_ratio": rounded(word.correction_ratio),
        "price_correction_windows": word.correction_windows,
    })
}
