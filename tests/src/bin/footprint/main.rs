//! What the agent itself takes while nothing is wrong: `sexton-footprint`, run by `make bench-footprint`.
//!
//! Starts a RocksDB that is written to and not in pain, the agent on it in its default configuration, and
//! reads the agent's memory and processor time from `/proc`, those of its children included: of memory that
//! both have each counts its share. Then the same while the node starts hundreds of short-lived processes a
//! second. The last line is one JSON object.

mod sample;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use sample::{Sample, node};
use sexton_tests::agent::{self, Agent};
use sexton_tests::artifact;
use sexton_tests::process::Process;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const POLICY: &str = "mode: advise\n";
/// The first window, which is always opened, and the first reading of all processes are over by then.
const SETTLING: Duration = Duration::from_secs(10);
/// How often the agent's memory is looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);

/// Measures the idle agent's memory and processor time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Length of one measurement, seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Measurements of the idle agent.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// Processes a second that are started in the last measurement.
    #[arg(long, default_value_t = 500)]
    execs_per_second: u32,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(
        rustix::process::geteuid().is_root(),
        "the agent loads BPF programs and looks into other processes: run `make bench-footprint` as root"
    );
    let directory = tempfile::tempdir().context("making a temporary directory")?;
    print_setting(&arguments)?;
    let target = target(directory.path())?;
    let mut agent = Agent::start(directory.path(), POLICY)?;
    agent.wait_for(LIMIT, "the target to be watched", |agent| {
        let answer = agent.get("/api/v1/targets")?;
        let pid = Some(u64::from(target.pid()));
        Ok(agent::list(&answer, "targets")?
            .iter()
            .any(|target| agent::count(target, "/pid").ok() == pid)
            .then_some(()))
    })?;
    std::thread::sleep(SETTLING);
    let length = Duration::from_secs(arguments.seconds);
    let mut idle = Vec::new();
    for number in 1..=arguments.repetitions {
        let sample = measure(&agent, length)?;
        println!("idle {number}: {sample}");
        idle.push(sample);
    }
    let (busy, rate) = while_starting(arguments.execs_per_second, || measure(&agent, length))?;
    println!("{rate:.0} processes a second started: {busy}");
    agent.stop()?;
    let resident_bytes =
        idle.iter().map(|sample| sample.resident_bytes).max().context("nothing was measured")?;
    let mut ratios: Vec<f64> = idle.iter().map(|sample| sample.cpu_ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let cpu_ratio = ratios.last().context("nothing was measured")?;
    let summary = serde_json::json!({
        "resident_bytes": resident_bytes,
        "children_bytes": busy.children_bytes,
        "cpu_ratio": cpu_ratio,
        "execs_per_second": rate,
        "cpu_ratio_at_execs": busy.cpu_ratio,
    });
    println!("{summary}");
    Ok(())
}

fn print_setting(arguments: &Arguments) -> Result<()> {
    println!("{}", node()?);
    let version = agent::command()?.arg("--version").output().context("asking the agent's version")?;
    println!("{}", String::from_utf8_lossy(&version.stdout).trim());
    println!(
        "{} measurements of {} s each; the greatest of them counts; policy: {}",
        arguments.repetitions,
        arguments.seconds,
        POLICY.trim()
    );
    Ok(())
}

/// A queue that is written to and hardly listed: nobody waits for tombstones.
fn target(directory: &Path) -> Result<Process> {
    let mut command = Command::new(artifact::built("sexton-queue-workload")?);
    command.arg("--directory").arg(directory.join("db"));
    command.args(["--keys", "40000", "--seconds", "3600", "--deletes-per-second", "0"]);
    command.args(["--list-threads", "0"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Process::start(command)
}

/// The agent over this time.
fn measure(agent: &Agent, length: Duration) -> Result<Sample> {
    let before = sample::Reading::of(agent.process.pid())?;
    let began = Instant::now();
    let mut resident_bytes = before.resident_bytes;
    while began.elapsed() < length {
        std::thread::sleep(SAMPLE_INTERVAL.min(length.saturating_sub(began.elapsed())));
        resident_bytes = resident_bytes.max(sample::Reading::of(agent.process.pid())?.resident_bytes);
    }
    let after = sample::Reading::of(agent.process.pid())?;
    Ok(Sample::between(&before, &after, began.elapsed(), resident_bytes))
}

/// Starts `true` this many times a second while `body` runs; gives what it gives, and the rate that was had.
fn while_starting<T>(per_second: u32, body: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let (stop, started) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let due = began.elapsed().as_secs_f64() * f64::from(per_second);
                if started.load(Ordering::Relaxed) as f64 >= due {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                started.fetch_add(1, Ordering::Relaxed);
                // One that cannot be started is not counted as less load: the rate is checked by people.
                let _ = Command::new("true").stdin(Stdio::null()).status();
            }
        });
        let result = body();
        stop.store(true, Ordering::Relaxed);
        result
    });
    let rate = started.into_inner() as f64 / began.elapsed().as_secs_f64();
    Ok((result?, rate))
}
