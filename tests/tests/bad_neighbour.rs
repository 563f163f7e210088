//! A target that answers nothing hurts no other: it is shown as unresponsive with the reason, the others keep
//! their cycles and their windows, and it is watched again soon after it has recovered.
//!
//! Method: three Python programs on Debian's RocksDB list over tombstones all the time. One of them is
//! stopped, frozen, has a hook that sends a byte every nine seconds, has its library on a file system that
//! hangs, or has 2,000 databases. Meanwhile the agent's cycles and the others' windows are counted as its API
//! shows them.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, text};
use sexton_tests::hung_file_system::HungFileSystem;
use sexton_tests::process::{Lines, Process};
use sexton_tests::{artifact, machine};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const READY_LIMIT: Duration = Duration::from_secs(120);
const WATCHED_LIMIT: Duration = Duration::from_secs(60);
/// A look at a target may take eight seconds, and it is looked at every ten.
const UNRESPONSIVE_LIMIT: Duration = Duration::from_secs(60);
/// How soon a target that has recovered is watched again.
const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// From one cycle to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the others are looked at while the bad one is bad.
const MEANWHILE: Duration = Duration::from_secs(6);
/// Seconds between two bytes of a hook that never gets to the end.
const TRICKLE_SECONDS: &str = "9";
const MANY_DATABASES: &str = "2000";

fn policy(pids: &[u32]) -> String {
    let entry = |pid: &u32| format!("  - {{ name: \"t{pid}\", match: {{ pid: {pid} }}, actuator: hook }}\n");
    let entries: String = pids.iter().map(entry).collect();
    format!(
        "\
mode: observe
targets:
{entries}thresholds: {{ tombstones_per_operation: 100, pain: 1us/s }}
loop: {{ interval: {}s, window: 300ms, survey: 1s }}
probes: {{ budget: 50% }}
",
        INTERVAL.as_secs()
    )
}

struct Target {
    process: Process,
    _lines: Lines,
}

impl Target {
    fn start(directory: &Path, name: &str, library: &Path, more: &[&str]) -> Result<Target> {
        let directory = directory.join(name);
        std::fs::create_dir(&directory)?;
        let mut command = Command::new(artifact::installed("python3", "python3")?);
        command.arg(artifact::repository().join("tests/python/list_one.py")).arg(&directory).arg(library);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
        lines.until(machine::patience(READY_LIMIT)?, |line| line == "ready").context("filling databases")?;
        Ok(Target { process, _lines: lines })
    }
}

/// Two targets that do what they should, a bad one, and the agent that watches all three.
struct Scene {
    good: [Target; 2],
    bad: Target,
    agent: Agent,
    _directory: tempfile::TempDir,
}

fn scene(library_of_bad: &Path, databases: &str, more: &[&str]) -> Result<Scene> {
    let directory = tempfile::tempdir()?;
    let library = artifact::debian_rocksdb()?;
    let start = |name| Target::start(directory.path(), name, &library, &["1"]);
    let good = [start("one")?, start("two")?];
    let bad = Target::start(directory.path(), "bad", library_of_bad, &[&[databases], more].concat())?;
    let pids = [good[0].process.pid(), good[1].process.pid(), bad.process.pid()];
    let agent = Agent::start(directory.path(), &policy(&pids))?;
    Ok(Scene { good, bad, agent, _directory: directory })
}

impl Scene {
    fn bad_pid(&self) -> u32 {
        self.bad.process.pid()
    }

    /// Until all three are watched and have had a window.
    fn settle(&mut self) -> Result<()> {
        let pids = [self.good[0].process.pid(), self.good[1].process.pid(), self.bad_pid()];
        self.agent.wait_for(machine::patience(WATCHED_LIMIT)?, "three targets with windows", |agent| {
            let seen = |pid: &u32| Ok(target(agent, *pid)?.is_some_and(|it| windows(&it) > 0));
            let seen: Result<Vec<bool>> = pids.iter().map(seen).collect();
            Ok(seen?.into_iter().all(|seen| seen).then_some(()))
        })
    }

    /// Until the bad one is shown as unresponsive; gives the reason.
    fn unresponsive(&mut self) -> Result<String> {
        let pid = self.bad_pid();
        self.agent.wait_for(
            machine::patience(UNRESPONSIVE_LIMIT)?,
            "the target to be unresponsive",
            |agent| {
                let Some(target) = target(agent, pid)? else { return Ok(None) };
                let gaps = list(&target, "gaps")?;
                let gap = gaps.iter().find(|gap| text(gap, "/what") == "the target does not respond");
                let reason = gap.map(|gap| text(gap, "/reason").to_owned());
                Ok(reason.filter(|_| text(&target, "/state") == "unresponsive"))
            },
        )
    }

    /// The others keep their cycles and windows.
    fn others_are_fine(&mut self) -> Result<()> {
        let pids = [self.good[0].process.pid(), self.good[1].process.pid()];
        let windows_of = |agent: &Agent| -> Result<Vec<u64>> {
            pids.iter().map(|pid| Ok(target(agent, *pid)?.map_or(0, |target| windows(&target)))).collect()
        };
        let before = windows_of(&self.agent)?;
        let (mut cycles, mut since) = (cycles(&self.agent)?, Instant::now());
        let mut longest = Duration::ZERO;
        let until = Instant::now() + MEANWHILE;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            let now = self::cycles(&self.agent)?;
            if now > cycles {
                (cycles, since) = (now, Instant::now());
            }
            longest = longest.max(since.elapsed());
        }
        let after = windows_of(&self.agent)?;
        println!("the longest cycle took {longest:?}; windows of the others: {before:?}, then {after:?}");
        ensure!(
            longest < machine::patience(2 * INTERVAL)?,
            "a cycle is late by more than an interval: {longest:?}"
        );
        ensure!(
            before.iter().zip(&after).all(|(before, after)| before < after),
            "the others have no windows"
        );
        Ok(())
    }

    /// The bad one has recovered: it is watched again, with a new window.
    fn watched_again(&mut self) -> Result<()> {
        let pid = self.bad_pid();
        let before = target(&self.agent, pid)?.map_or(0, |target| windows(&target));
        self.agent.wait_for(machine::patience(RECOVERY_MAX)?, "the target to be watched again", |agent| {
            let target = target(agent, pid)?;
            let is_back = |it: &Value| text(it, "/state") != "unresponsive" && windows(it) > before;
            Ok(target.is_some_and(|it| is_back(&it)).then_some(()))
        })
    }
}

fn target(agent: &Agent, pid: u32) -> Result<Option<Value>> {
    let targets = agent.get("/api/v1/targets")?;
    let of_pid = |target: &&Value| target.get("pid").and_then(Value::as_u64) == Some(u64::from(pid));
    Ok(list(&targets, "targets")?.iter().find(of_pid).cloned())
}

fn windows(target: &Value) -> u64 {
    target.get("windows").and_then(Value::as_u64).unwrap_or_default()
}

fn cycles(agent: &Agent) -> Result<u64> {
    count(&agent.get("/healthz")?, "/cycles")
}

#[test]
fn one_that_is_stopped_is_said_to_be_and_hurts_nobody() -> Result<()> {
    let _alone = agent::exclusively()?;
    let mut scene = scene(&artifact::debian_rocksdb()?, "1", &[])?;
    scene.settle()?;
    scene.bad.process.signal(Signal::STOP)?;
    let reason = scene.unresponsive()?;
    ensure!(reason.contains("a signal has stopped it"), "{reason}");
    scene.others_are_fine()?;
    scene.bad.process.signal(Signal::CONT)?;
    scene.watched_again()?;
    scene.agent.stop()
}

/// A control group of its own, thawed and taken away when it is dropped.
struct Freezer {
    directory: PathBuf,
    switch: &'static str,
    words: [&'static str; 2],
}

impl Freezer {
    fn of(pid: u32) -> Result<Freezer> {
        let roots = [
            ("/sys/fs/cgroup", "cgroup.freeze", ["0", "1"]),
            ("/sys/fs/cgroup/unified", "cgroup.freeze", ["0", "1"]),
            ("/sys/fs/cgroup/freezer", "freezer.state", ["THAWED", "FROZEN"]),
        ];
        for (root, switch, words) in roots {
            let directory = Path::new(root).join(format!("sexton-tests-{pid}"));
            if !Path::new(root).join("cgroup.procs").exists() || std::fs::create_dir(&directory).is_err() {
                continue;
            }
            let freezer = Freezer { directory, switch, words };
            let moved = std::fs::write(freezer.directory.join("cgroup.procs"), pid.to_string());
            if moved.is_ok() && freezer.directory.join(switch).exists() {
                println!("frozen by {}", freezer.directory.join(switch).display());
                return Ok(freezer);
            }
        }
        anyhow::bail!("no control group can be made: neither cgroup.freeze nor freezer.state can be written")
    }

    fn set(&self, is_frozen: bool) -> Result<()> {
        let word = self.words[usize::from(is_frozen)];
        std::fs::write(self.directory.join(self.switch), word).context("switching the freezer")
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = self.set(false);
        let _ = std::fs::remove_dir(&self.directory);
    }
}

#[test]
fn one_that_is_frozen_is_said_to_be_and_hurts_nobody() -> Result<()> {
    let _alone = agent::exclusively()?;
    let mut scene = scene(&artifact::debian_rocksdb()?, "1", &[])?;
    scene.settle()?;
    let freezer = Freezer::of(scene.bad_pid())?;
    freezer.set(true)?;
    let reason = scene.unresponsive()?;
    ensure!(reason.contains("its control group is frozen"), "{reason}");
    scene.others_are_fine()?;
    freezer.set(false)?;
    scene.watched_again()?;
    scene.agent.stop()
}

#[test]
fn one_whose_hook_never_ends_an_answer_is_said_to_be_and_hurts_nobody() -> Result<()> {
    let _alone = agent::exclusively()?;
    let mut scene = scene(&artifact::debian_rocksdb()?, "1", &[TRICKLE_SECONDS])?;
    let reason = scene.unresponsive()?;
    ensure!(reason.contains("hook"), "{reason}");
    scene.others_are_fine()?;
    scene.agent.stop()
}

#[test]
fn one_whose_library_cannot_be_read_is_said_to_be_and_hurts_nobody() -> Result<()> {
    let _alone = agent::exclusively()?;
    let mounted = tempfile::tempdir()?;
    let files = HungFileSystem::mount(mounted.path(), &artifact::debian_rocksdb()?)?;
    let mut scene = scene(&files.file(), "1", &[])?;
    scene.settle()?;
    files.hang();
    let reason = scene.unresponsive()?;
    ensure!(reason.contains("files"), "{reason}");
    scene.others_are_fine()?;
    files.recover();
    scene.watched_again()?;
    scene.agent.stop()
}

#[test]
fn one_with_two_thousand_databases_hurts_nobody() -> Result<()> {
    let _alone = agent::exclusively()?;
    let mut scene = scene(&artifact::debian_rocksdb()?, MANY_DATABASES, &[])?;
    scene.settle()?;
    scene.others_are_fine()?;
    scene.agent.stop()
}
