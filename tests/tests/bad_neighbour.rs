//! A target that answers nothing hurts no other: it is shown as unresponsive with the reason, the others keep
//! their cycles, their windows and the guards of their slices, and it is watched again soon after it has
//! recovered.
//!
//! Method: one agent watches seven programs. Two do what they should: a Python program on Debian's RocksDB
//! that lists over tombstones all the time, and a queue that is compacted in slices that last for seconds.
//! Five do not: one has 2,000 databases, one has a hook that sends a byte every nine seconds, and while a
//! slice runs one is stopped, one is frozen, and the library of one lies on a file system that hangs. From
//! before the first of these until after the last has recovered, the agent's cycles and the others' windows
//! are counted as its API shows them, and the guards' readings as its log does.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, text, why_unresponsive};
use sexton_tests::hung_file_system::HungFileSystem;
use sexton_tests::process::{Lines, Process};
use sexton_tests::workload::{self, Workload};
use sexton_tests::{artifact, http, machine};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const READY_LIMIT: Duration = Duration::from_secs(120);
const WATCHED_LIMIT: Duration = Duration::from_secs(60);
/// A hook has ten seconds for an answer, and a target's files five; a slice begins in a few cycles.
const SEEN_LIMIT: Duration = Duration::from_secs(60);
/// How soon a target that has recovered is watched again.
const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// From one cycle to the next.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long all the faults last together, after each has been noticed.
const MEANWHILE: Duration = Duration::from_secs(6);
/// How often the agent is asked for its cycles.
const POLL: Duration = Duration::from_millis(50);
/// What the guards of a slice wait for from one reading to the next, and what a busy machine adds.
const BETWEEN_READINGS_MAX: Duration = Duration::from_millis(400);
/// Readings while the faults last: those of five seconds of slices.
const READINGS_MIN: usize = 20;
/// Seconds between two bytes of a hook that never gets to the end.
const TRICKLE_SECONDS: &str = "9";
const MANY_DATABASES: &str = "2000";
/// What the agent logs for each reading of a running slice's guards.
const GUARDS_ASKED: &str = "the guards are asked";
const LOG_FILTER: &str = "info,sexton::act=debug";

fn policy(watched: &[u32], queue: u32) -> String {
    let entry = |pid: &u32| format!("  - {{ name: \"t{pid}\", match: {{ pid: {pid} }}, executor: hook }}\n");
    let entries: String = watched.iter().map(entry).collect();
    format!(
        "\
mode: observe
targets:
{entries}  - name: queue
    mode: act
    match: {{ pid: {queue} }}
    executor: hook
    remedies: [compact]
    column_families:
      - name: {}
        prefix: {{ delimiter: \"/\", count: 3 }}
thresholds: {{ tombstones_per_operation: 100, pain: 1us/s }}
loop: {{ interval: {}s, window: 300ms, survey: 1s }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 64MiB/s, burst: 1GiB }}
cooldown: 2s
guards: {{ process_uptime_min: 0s, latency_ratio_max: 1000 }}
keys: shown
",
        workload::COLUMN_FAMILY,
        INTERVAL.as_secs()
    )
}

/// A Python program that lists.
struct Lister {
    process: Process,
    lines: Lines,
}

impl Lister {
    fn start(directory: &Path, name: &str, library: &Path, more: &[&str]) -> Result<Lister> {
        let directory = directory.join(name);
        std::fs::create_dir(&directory)?;
        let mut command = Command::new(artifact::installed("python3", "python3")?);
        command.arg(artifact::repository().join("tests/python/list_one.py")).arg(&directory).arg(library);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
        Ok(Lister { process, lines })
    }

    fn ready(&mut self) -> Result<()> {
        let ready = self.lines.until(machine::patience(READY_LIMIT)?, |line| line == "ready");
        ready.map(drop).context("filling databases")
    }

    fn pid(&self) -> u32 {
        self.process.pid()
    }
}

/// A directory in memory, where there is such a place: each database that is opened waits for a disk a dozen
/// times.
fn quick_directory() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? })
}

/// All seven, and the agent that watches them.
struct Scene {
    lister: Lister,
    queue: Workload,
    many: Lister,
    trickling: Lister,
    stopped: Lister,
    frozen: Lister,
    hanging: Lister,
    files: HungFileSystem,
    agent: Agent,
    _directories: [tempfile::TempDir; 3],
}

impl Scene {
    fn start() -> Result<Scene> {
        let (directory, quick, mounted) = (tempfile::tempdir()?, quick_directory()?, tempfile::tempdir()?);
        let library = artifact::debian_rocksdb()?;
        let files = HungFileSystem::mount(mounted.path(), &library)?;
        let start = |name, more: &[&str]| Lister::start(directory.path(), name, &library, more);
        let mut many = Lister::start(quick.path(), "many", &library, &[MANY_DATABASES])?;
        // A slice takes 20 seconds.
        let mut queue = Workload::slowly_compacted(&directory.path().join("queue"), 50_000)?;
        let mut lister = start("lister", &["1"])?;
        let mut trickling = start("trickling", &["1", TRICKLE_SECONDS])?;
        let (mut stopped, mut frozen) = (start("stopped", &["1"])?, start("frozen", &["1"])?);
        let mut hanging = Lister::start(directory.path(), "hanging", &files.file(), &["1"])?;
        for started in [&mut lister, &mut trickling, &mut stopped, &mut frozen, &mut hanging, &mut many] {
            started.ready()?;
        }
        queue.second(machine::patience(READY_LIMIT)?)?;
        let watched = [&lister, &many, &trickling, &stopped, &frozen, &hanging].map(Lister::pid);
        let policy = policy(&watched, queue.process.pid());
        let agent = Agent::start_logging(directory.path(), &policy, Some(LOG_FILTER))?;
        let _directories = [mounted, directory, quick];
        Ok(Scene { lister, queue, many, trickling, stopped, frozen, hanging, files, agent, _directories })
    }

    /// Until all have had a window, but for the one whose hook trickles, and a slice runs.
    fn settle(&mut self) -> Result<()> {
        let listers = [&self.lister, &self.many, &self.stopped, &self.frozen, &self.hanging];
        let pids: Vec<u32> = listers.map(Lister::pid).into_iter().chain([self.queue.process.pid()]).collect();
        self.agent.wait_for(machine::patience(WATCHED_LIMIT)?, "windows on all targets", |agent| {
            let targets = targets(agent)?;
            let has_window = |pid| targets.get(pid).is_some_and(|target| windows(target) > 0);
            Ok(pids.iter().all(has_window).then_some(()))
        })?;
        self.agent.wait_for(machine::patience(SEEN_LIMIT)?, "a slice that runs", |agent| {
            let actions = agent.get("/api/v1/actions")?;
            let mut actions = list(&actions, "actions")?.iter();
            Ok(actions.any(|action| text(action, "/state") == "running").then_some(()))
        })
    }

    /// Until a target is shown as unresponsive for this reason.
    fn is_noticed(&mut self, pid: u32, why: &str) -> Result<()> {
        let began = Instant::now();
        let limit = machine::patience(SEEN_LIMIT)?;
        let reason = self.agent.wait_for(limit, "the target to be unresponsive", |agent| {
            Ok(targets(agent)?.get(&pid).and_then(why_unresponsive))
        })?;
        println!("after {:.1} s: {reason}", began.elapsed().as_secs_f64());
        ensure!(reason.contains(why), "for another reason: {reason}");
        Ok(())
    }

    /// Windows of those that do what they should.
    fn windows_of_the_others(&self) -> Result<[u64; 2]> {
        let targets = targets(&self.agent)?;
        let pids = [self.lister.pid(), self.queue.process.pid()];
        Ok(pids.map(|pid| targets.get(&pid).map_or(0, windows)))
    }

    /// Until all that were bad respond again, and have had a window since.
    fn recover(&mut self) -> Result<()> {
        let bad = [&self.trickling, &self.stopped, &self.frozen, &self.hanging].map(Lister::pid);
        let windows_before: BTreeMap<u32, u64> =
            targets(&self.agent)?.iter().map(|(pid, target)| (*pid, windows(target))).collect();
        let is_back = |target: &Value, before: u64| {
            text(target, "/state") != "unresponsive" && windows(target) > before
        };
        self.agent.wait_for(machine::patience(RECOVERY_MAX)?, "all to be watched again", |agent| {
            let targets = targets(agent)?;
            let is_back = |pid: &u32| {
                let before = windows_before.get(pid).copied().unwrap_or_default();
                targets.get(pid).is_some_and(|target| is_back(target, before))
            };
            Ok(bad.iter().all(is_back).then_some(()))
        })
    }
}

/// The targets by their pids.
fn targets(agent: &Agent) -> Result<BTreeMap<u32, Value>> {
    let mut by_pid = BTreeMap::new();
    for target in list(&agent.get("/api/v1/targets")?, "targets")? {
        by_pid.insert(u32::try_from(count(target, "/pid")?)?, target.clone());
    }
    Ok(by_pid)
}

fn windows(target: &Value) -> u64 {
    target.get("windows").and_then(Value::as_u64).unwrap_or_default()
}

/// Counts the agent's cycles, on a thread of its own.
struct Cycles {
    is_over: Arc<AtomicBool>,
    counting: JoinHandle<Result<(u64, Duration)>>,
}

impl Cycles {
    fn count(address: SocketAddr) -> Cycles {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let counting = std::thread::spawn(move || {
            let cycles = || count(&http::get_json(address, "/healthz")?, "/cycles");
            let first = cycles()?;
            let (mut last, mut since, mut longest) = (first, Instant::now(), Duration::ZERO);
            while !until.load(Ordering::Relaxed) {
                std::thread::sleep(POLL);
                let now = cycles()?;
                longest = longest.max(since.elapsed());
                if now > last {
                    (last, since) = (now, Instant::now());
                }
            }
            Ok((last - first, longest))
        });
        Cycles { is_over, counting }
    }

    /// How many there were, and the longest time from one to the next.
    fn end(self) -> Result<(u64, Duration)> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.counting.join() {
            Ok(counted) => counted,
            Err(_) => bail!("counting cycles has panicked"),
        }
    }
}

/// When the guards of each running action were asked, by the agent's log.
fn readings(log: &str) -> Result<BTreeMap<String, Vec<jiff::Timestamp>>> {
    let mut readings: BTreeMap<String, Vec<jiff::Timestamp>> = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains(GUARDS_ASKED)) {
        let mut words = line.split_whitespace();
        let at = words.next().context("a line without a time")?.parse()?;
        let action = words.next_back().context("a line without an action")?;
        readings.entry(action.to_owned()).or_default().push(at);
    }
    Ok(readings)
}

/// The guards of running slices were asked all the time in this part of the agent's log.
fn guards_were_asked(log: &str) -> Result<()> {
    let readings = readings(log)?;
    let mut gaps: Vec<Duration> = Vec::new();
    for times in readings.values() {
        gaps.extend(times.windows(2).map(|pair| pair[1].duration_since(pair[0]).unsigned_abs()));
    }
    gaps.sort();
    let (Some(longest), Some(median)) = (gaps.last(), gaps.get(gaps.len() / 2)) else {
        bail!("no slice has run");
    };
    println!("{} readings of guards, {median:?} apart, at most {longest:?}", gaps.len());
    ensure!(gaps.len() >= READINGS_MIN, "only {} readings of the guards", gaps.len());
    ensure!(*median < machine::patience(BETWEEN_READINGS_MAX)?, "{median:?} between two readings of guards");
    ensure!(*longest < machine::patience(INTERVAL)?, "{longest:?} between two readings of guards");
    Ok(())
}

#[test]
fn targets_that_do_not_answer_are_said_to_be_and_hurt_nobody() -> Result<()> {
    let _turn = agent::beside_others()?;
    let mut scene = Scene::start()?;
    scene.settle()?;
    let (windows_before, log_before) = (scene.windows_of_the_others()?, scene.agent.log().len());
    let cycles = Cycles::count(scene.agent.address);

    scene.is_noticed(scene.trickling.pid(), "hook")?;
    scene.stopped.process.signal(Signal::STOP)?;
    scene.is_noticed(scene.stopped.pid(), "a signal has stopped it")?;
    let freezer = Freezer::of(scene.frozen.pid())?;
    freezer.set(true)?;
    scene.is_noticed(scene.frozen.pid(), "its control group is frozen")?;
    scene.files.hang();
    scene.is_noticed(scene.hanging.pid(), "files")?;
    std::thread::sleep(MEANWHILE);
    let log_meanwhile = scene.agent.log();

    scene.stopped.process.signal(Signal::CONT)?;
    freezer.set(false)?;
    scene.files.recover();
    // From here on it hangs up.
    scene.trickling.process.signal(Signal::USR1)?;
    let began = Instant::now();
    scene.recover()?;
    println!("watched again after {:.1} s", began.elapsed().as_secs_f64());

    let (cycles, longest) = cycles.end()?;
    let windows_after = scene.windows_of_the_others()?;
    println!(
        "{cycles} cycles, {longest:?} at most; the others' windows: {windows_before:?}, {windows_after:?}"
    );
    ensure!(
        longest < machine::patience(2 * INTERVAL)?,
        "a cycle was late by more than an interval: {longest:?}"
    );
    ensure!(
        windows_before.iter().zip(windows_after).all(|(before, after)| before + 2 < after),
        "the others have no windows: {windows_before:?}, then {windows_after:?}"
    );
    guards_were_asked(log_meanwhile.get(log_before..).unwrap_or_default())?;
    let many = targets(&scene.agent)?.get(&scene.many.pid()).map_or(0, windows);
    ensure!(many > 0, "the one with many databases has no window");
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
