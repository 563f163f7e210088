//! Host processes: one that fills, one that finds out what a list takes where nothing is wrong, and one for
//! each run, with an agent beside it where the contender has one.

use crate::agent::{self, AgentFigures};
use crate::contender::Contender;
use crate::hand_over;
use crate::order::{Filled, Lengths, Line, Order, Settings, Task};
use crate::results::{Common, Results, Run};
use crate::workload::Workload;
use anyhow::{Context, Result, bail, ensure};
use sexton_tests::agent::Agent;
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Filling 10,000,000 rows takes half a minute on a quiet machine, and RocksDB's compactions as long again.
const FILL_LIMIT: Duration = Duration::from_secs(900);
/// Reading all rows of the largest database at the end, or compacting it.
const READ_LIMIT: Duration = Duration::from_secs(300);
/// How much later than planned a part of a run may end.
const LATE_LIMIT: Duration = Duration::from_secs(60);

/// The bench's runs on one workload.
pub struct Runs<'a> {
    pub results: &'a Results,
    pub common: &'a Common,
    pub workload: &'a Workload,
}

/// A host process and its report.
struct Host {
    process: Process,
    lines: Lines,
    log: PathBuf,
}

impl Runs<'_> {
    /// The databases that a contender begins with, unless they are there.
    pub fn fill(&self, contender: &Contender) -> Result<()> {
        if self.results.filled(self.workload, contender)?.is_some() {
            return Ok(());
        }
        let directory = self.results.filled_directory(self.workload, contender);
        hand_over::remove(&directory)?;
        let order = self.order(&directory, Task::Fill, contender.filling_settings());
        let mut host = self.start(&order, false)?;
        let Line::Filled(filled) = host.line(FILL_LIMIT)? else { bail!("another line than of a filling") };
        host.end()?;
        print_filled(contender, &filled);
        // What is still to be written would disturb the runs that follow.
        rustix::fs::sync();
        self.results.save_filled(self.workload, contender, &filled)
    }

    /// Finds out what a list takes where nothing is wrong, unless that is known.
    pub fn find_healthy(&self, contender: &Contender) -> Result<()> {
        if self.results.healthy(self.workload)?.is_some() {
            return Ok(());
        }
        let directory = self.hand_over(contender)?;
        let mut host = self.start(&self.order(&directory, Task::Healthy, Settings::default()), false)?;
        let Line::Healthy(healthy) = host.line(READ_LIMIT)? else { bail!("another line than of lists") };
        host.end()?;
        self.results.save_healthy(self.workload, &healthy)
    }

    /// One run, whole.
    pub fn run(&self, contender: &Contender, repetition: u32, lengths: Lengths) -> Result<Run> {
        let start = Instant::now();
        let directory = self.hand_over(contender)?;
        let order = self.order(&directory, Task::Run(lengths), contender.settings.clone());
        let mut host = self.start(&order, contender.agent.is_some())?;
        let lead = Duration::from_secs(lengths.lead_seconds);
        let Line::Ready = host.line(READ_LIMIT + lead)? else { bail!("another line than of readiness") };
        let agent = contender.agent.map(|settings| {
            let policy = agent::policy(host.process.pid(), &directory, settings, self.common.scale);
            let directory = self.work().join("agent");
            hand_over::remove(&directory)?;
            std::fs::create_dir_all(&directory)?;
            Agent::start(&directory, &policy)
        });
        let agent = agent.transpose().context("starting the agent")?;
        let seconds = lengths.settle_seconds + lengths.measured_seconds;
        let Line::Measured(measured) = host.line(Duration::from_secs(seconds) + LATE_LIMIT)? else {
            bail!("another line than of a measurement")
        };
        let figures = agent.map(ended).transpose()?;
        let Line::Verified(verified) = host.line(READ_LIMIT)? else { bail!("another line than of rows") };
        host.end()?;
        Ok(Run {
            workload: self.workload.name.to_owned(),
            contender: contender.name.clone(),
            repetition,
            took_seconds: start.elapsed().as_secs_f64(),
            measured: *measured,
            verified,
            agent: figures,
        })
    }

    fn work(&self) -> PathBuf {
        self.results.directory().join("work")
    }

    fn hand_over(&self, contender: &Contender) -> Result<PathBuf> {
        let directory = self.work().join("databases");
        hand_over::hand_over(&self.results.filled_directory(self.workload, contender), &directory)?;
        Ok(directory)
    }

    fn order(&self, directory: &Path, task: Task, settings: Settings) -> Order {
        Order {
            workload: self.workload.name.to_owned(),
            scale: self.common.scale,
            seed: self.common.seed,
            directory: directory.to_owned(),
            task,
            settings,
        }
    }

    /// Starts this program as a host.
    fn start(&self, order: &Order, with_hook: bool) -> Result<Host> {
        std::fs::create_dir_all(self.work()).context("creating the directory of runs")?;
        let log = self.work().join("host.log");
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command.arg("host").arg(serde_json::to_string(order).context("writing an order")?);
        if with_hook {
            command.env("LD_PRELOAD", artifact::built("libsexton_hook.so")?);
        }
        let stderr = File::create(&log).context("creating the host's log")?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut process = Process::start(command)?;
        let lines = Lines::of("the host", process.take_stdout().context("no standard output")?);
        Ok(Host { process, lines, log })
    }
}

impl Host {
    fn line(&mut self, limit: Duration) -> Result<Line> {
        let line = self.lines.next(limit)?;
        let line = line.with_context(|| format!("the host has ended:\n{}", self.said()))?;
        serde_json::from_str(&line).with_context(|| format!("the host printed no report: {line}"))
    }

    fn end(mut self) -> Result<()> {
        let status = self.process.wait(LATE_LIMIT)?;
        ensure!(status.success(), "the host ended with {status}:\n{}", self.said());
        // The hook removes it itself where its process ends in order.
        let _ = std::fs::remove_file(format!("/tmp/.sexton-hook-{}.sock", self.process.pid()));
        Ok(())
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// What an agent has come to at its end.
fn ended(agent: Agent) -> Result<AgentFigures> {
    let figures = agent::figures(&agent).with_context(|| format!("its log ends:\n{}", agent.log_end()))?;
    agent.stop()?;
    Ok(figures)
}

fn print_filled(contender: &Contender, filled: &Filled) {
    println!(
        "  filled ({}) in {:.1} s: {} files, {:.1} MiB, {} deletions",
        contender.filled_name(),
        filled.seconds,
        filled.sst_files,
        filled.sst_bytes as f64 / f64::from(1 << 20),
        filled.sst_deletions
    );
}
