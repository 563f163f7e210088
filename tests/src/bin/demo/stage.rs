//! The processes of the demo: the workload with the hook in it, and the agent.

use crate::interrupt;
use crate::output::Output;
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use sexton::snapshot::{ActionView, TargetView};
use sexton_tests::agent::{Agent, STOP_LIMIT};
use sexton_tests::artifact;
use sexton_tests::workload::{COLUMN_FAMILY, Filled, Line, Second, Start, Workload};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The workload ends by itself even when the demo is gone: longer than any demo.
const WORKLOAD_SECONDS: u64 = 240;
/// The same where the demo is kept open.
const WORKLOAD_KEPT_SECONDS: u64 = 24 * 3_600;
/// Filling takes 16 s here.
const FILL_LIMIT: Duration = Duration::from_secs(150);
/// A second of the report comes late when the machine is busy.
const SECOND_LIMIT: Duration = Duration::from_secs(20);
/// How often Ctrl-C is looked for.
const POLL: Duration = Duration::from_millis(50);

/// The running workload and the directory that holds everything.
pub struct Stage {
    // Dropped in this order: the other two are in use until the workload has ended.
    workload: Workload,
    _hook_socket: HookSocket,
    directory: TempDir,
}

/// The socket of the hook in the workload: a process that is ended by a signal leaves it behind.
struct HookSocket(PathBuf);

impl Drop for HookSocket {
    fn drop(&mut self) {
        // It is not there when the process has removed it itself.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Stage {
    /// Makes a temporary directory and starts the workload in it, with the hook preloaded.
    pub fn set(keys: u64, is_kept: bool) -> Result<Stage> {
        let directory = tempfile::Builder::new().prefix("sexton-demo-").tempdir();
        let directory = directory.context("making a temporary directory")?;
        let log =
            File::create(directory.path().join("workload.log")).context("creating the workload's log")?;
        let workload = Workload::start(Start {
            directory: &directory.path().join("db"),
            keys,
            seconds: if is_kept { WORKLOAD_KEPT_SECONDS } else { WORKLOAD_SECONDS },
            preload: Some(&artifact::built("libsexton_hook.so")?),
            stderr: log.into(),
        })?;
        let socket = PathBuf::from(format!("/tmp/.sexton-hook-{}.sock", workload.process.pid()));
        Ok(Stage { workload, _hook_socket: HookSocket(socket), directory })
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn pid(&self) -> u32 {
        self.workload.process.pid()
    }

    /// Shows the filling until it is done.
    pub fn fill(&mut self, output: &mut Output) -> Result<Filled> {
        let bar = output.fill_bar();
        loop {
            match self.line(FILL_LIMIT)? {
                Line::Filling(filling) => bar.show(filling.creates, filling.creates_wanted),
                Line::Filled(filled) => {
                    bar.finish();
                    return Ok(filled);
                }
                Line::Second(_) | Line::Verified(_) | Line::Ended(_) => {}
            }
        }
    }

    /// The next second of the workload.
    pub fn second(&mut self) -> Result<Second> {
        loop {
            if let Line::Second(second) = self.line(SECOND_LIMIT)? {
                return Ok(*second);
            }
        }
    }

    /// Waits for one second of the workload and does not count it.
    pub fn skip_second(&mut self) -> Result<()> {
        self.second().map(|_| ())
    }

    /// The next line of the workload's report; fails when it ends or Ctrl-C was pressed.
    fn line(&mut self, limit: Duration) -> Result<Line> {
        let deadline = Instant::now() + limit;
        loop {
            interrupt::check()?;
            if let Some(line) = self.workload.waiting()? {
                return Ok(line);
            }
            if !self.workload.process.is_running()? {
                bail!("the workload ended:\n{}", self.workload_log());
            }
            if Instant::now() >= deadline {
                bail!("the workload reported nothing for {limit:?}:\n{}", self.workload_log());
            }
            std::thread::sleep(POLL);
        }
    }

    fn workload_log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("workload.log")).unwrap_or_default()
    }

    /// Starts `sexton run` with a policy for the workload alone.
    pub fn start_agent(&self) -> Result<Agent> {
        Agent::start(self.directory.path(), &policy(self.pid()))
    }

    /// Ends the workload and removes the directory.
    pub fn end(mut self) -> Result<()> {
        self.workload.process.signal(Signal::TERM)?;
        self.workload.process.wait(STOP_LIMIT)?;
        self.directory.close().context("removing the temporary directory")
    }
}

/// What the demo tells the agent: act on this process alone, look often, and spend no more than the
/// demo's database could need.
fn policy(pid: u32) -> String {
    format!(
        r#"mode: act
targets:
  - name: demo
    match: {{ pid: {pid} }}
    executor: hook
    remedies: [compact]
    column_families:
      - name: {COLUMN_FAMILY}
        prefix: {{ delimiter: "/", count: 3 }}
thresholds: {{ tombstones_per_operation: 1000, block_reads_per_operation: 64, pain: 20ms/s }}
loop: {{ interval: 3s, window: 1s, survey: 60s }}
io_budget: {{ rate: 64MiB/s, burst: 1GiB }}
cooldown: 5s
guards: {{ process_uptime_min: 0s }}
range_bytes_max: 64MiB
keys: shown
"#
    )
}

/// The agent's actions, oldest first.
pub fn actions(agent: &Agent) -> Result<Vec<ActionView>> {
    let mut answer = agent.get("/api/v1/actions")?;
    let list = answer.get_mut("actions").map(serde_json::Value::take).context("no actions in the answer")?;
    let mut actions: Vec<ActionView> = serde_json::from_value(list).context("reading the agent's actions")?;
    actions.sort_by_key(|action| action.id);
    Ok(actions)
}

/// Whether the agent has worked off its plan: it has compacted a range, has measured that it helped, and
/// compacts nothing now.
pub fn is_relieved(actions: &[ActionView]) -> bool {
    actions.iter().any(|action| action.action == "compact_range" && action.state == "helped")
        && actions.iter().all(|action| action.state != "running")
}

/// Seek pain of the workload as the agent sees it, seconds a second.
pub fn pain(agent: &Agent) -> Result<f64> {
    let mut answer = agent.get("/api/v1/targets")?;
    let list = answer.get_mut("targets").map(serde_json::Value::take).context("no targets in the answer")?;
    let targets: Vec<TargetView> = serde_json::from_value(list).context("reading the agent's targets")?;
    // Plus zero: the sum of nothing is -0.0.
    Ok(targets.iter().map(|target| target.pain_seconds_per_second).sum::<f64>() + 0.0)
}
