//! The agent follows its targets: those that start, restart, load RocksDB late, become another program, end
//! in an open window, or live in namespaces of their own; and nothing of them stays behind.
//!
//! Method: real processes, the agent in its default configuration but for the processes of others, which are
//! none of its business here; its API as the witness of what it watches, `/proc/PID/fd` and `bpftool` as the
//! witnesses of what it holds.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, text};
use sexton_tests::artifact;
use sexton_tests::bpf_objects::BpfObjects;
use sexton_tests::process::{Lines, Process};
use sexton_tests::workload::{Start, Workload};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The defaults, for the processes that work in this directory: a machine may have other RocksDBs, which come
/// and go.
fn policy(directory: &Path) -> String {
    format!(
        "mode: advise\ntargets: [{{ name: ours, match: {{ command_line: \"{}/\" }} }}]\n",
        directory.display()
    )
}

const RESTARTS: usize = 50;
/// What is promised, of nine in ten on any machine: a target that was started again is watched again within
/// this time. The others meet whatever keeps both processors from the agent.
const PROMISE: Duration = Duration::from_secs(2);
/// How long anything else may take, on any machine.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a target goes on in a window before it ends: some hundred lists.
const IN_WINDOW: Duration = Duration::from_secs(2);
/// How often the API is asked: a hundredth of the promise.
const API_POLL: Duration = Duration::from_millis(20);
/// Debian's library, which `db_bench` uses too.
const LIBRARY: &str = "librocksdb.so.7.8";

/// The target of this process as the API shows it; of several the one that was seen last.
fn target(agent: &Agent, pid: u32) -> Result<Option<Value>> {
    let answer = agent.get("/api/v1/targets")?;
    let targets = agent::list(&answer, "targets")?;
    let mut of_process = targets.iter().filter(|target| count(target, "/pid").ok() == Some(u64::from(pid)));
    Ok(of_process.next().cloned())
}

/// Waits until the target of `pid` is in one of these states; gives how long it took, and the target.
fn wait_state(agent: &mut Agent, pid: u32, states: &[&str]) -> Result<(Duration, Value)> {
    let began = Instant::now();
    loop {
        let target = target(agent, pid)?;
        if let Some(target) = target.filter(|target| states.contains(&text(target, "/state"))) {
            return Ok((began.elapsed(), target));
        }
        ensure!(agent.process.is_running()?, "sexton ended:\n{}", agent.log_end());
        let waited = began.elapsed();
        ensure!(waited < LIMIT, "process {pid} is not {states:?} after {waited:?}:\n{}", agent.log_end());
        std::thread::sleep(API_POLL);
    }
}

/// `armed` is `watching` with a window open.
const WATCHED: &[&str] = &["watching", "armed"];
const LOST: &[&str] = &["lost"];

fn workload(directory: &Path, keys: u64) -> Result<Workload> {
    Workload::start(Start { directory, keys, seconds: 120, preload: None, stderr: Stdio::inherit() })
}

/// What an agent holds, counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    links: usize,
    programs: usize,
    maps: usize,
    descriptors: usize,
    in_kernel: (usize, usize, usize),
}

impl Held {
    /// `before` is what the kernel had before the agent started.
    fn now(agent: &Agent, before: &BpfObjects) -> Result<Held> {
        let objects = BpfObjects::now()?.since(before);
        let in_kernel = (objects.links.len(), objects.programs.len(), objects.maps.len());
        let mut held = Held { in_kernel, ..Held::default() };
        for entry in std::fs::read_dir(format!("/proc/{}/fd", agent.process.pid()))? {
            // One that was closed meanwhile is not held.
            let Ok(link) = std::fs::read_link(entry?.path()) else { continue };
            let link = link.to_string_lossy().into_owned();
            held.descriptors += 1;
            held.links += usize::from(link.contains("bpf_link") || link.contains("bpf-link"));
            held.programs += usize::from(link.contains("bpf-prog"));
            held.maps += usize::from(link.contains("bpf-map"));
        }
        Ok(held)
    }

    /// Waits until the agent holds what it held before: windows open and close, and so do connections.
    fn wait_equal(agent: &Agent, before: &BpfObjects, wanted: &Held) -> Result<()> {
        let began = Instant::now();
        loop {
            let held = Held::now(agent, before)?;
            if held == *wanted {
                return Ok(());
            }
            ensure!(began.elapsed() < LIMIT, "the agent holds {held:?}, and held {wanted:?} before");
            std::thread::sleep(API_POLL);
        }
    }
}

#[test]
fn fifty_restarts_under_load_are_followed_within_two_seconds_and_nothing_leaks() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let before = BpfObjects::now()?;
    let mut agent = Agent::start(directory.path(), &policy(directory.path()))?;
    let database = |number: usize| directory.path().join(format!("db{number}"));

    let mut running = workload(&database(0), 40_000)?;
    wait_state(&mut agent, running.process.pid(), &["watching"])?;
    // Its database is open then, and the sentinel reads it.
    let first = wait_counts(&mut agent, running.process.pid())?;
    ensure!(agent::list(&first, "gaps")?.is_empty(), "the target has gaps: {first}");
    let held = Held::now(&agent, &before)?;
    // Somebody else's RocksDB comes, and stays to the end: nothing of the agent hangs on it.
    let elsewhere = tempfile::tempdir()?;
    let mut neighbour = LateHost::start(&elsewhere.path().join("db"), 0.0)?;
    neighbour.wait_open()?;
    ensure!(held.links > 0 && held.programs > 0 && held.maps > 0, "the agent holds nothing: {held:?}");

    let mut delays = Vec::new();
    for number in 1..=RESTARTS {
        // Under load: the queue is being filled, listed, or both.
        std::thread::sleep(Duration::from_millis(200 + 37 * (number as u64 % 20)));
        // Dropping a process is `kill -9` of its pid.
        drop(running);
        std::fs::remove_dir_all(database(number - 1))?;
        running = workload(&database(number), 40_000)?;
        let (delay, _) = wait_state(&mut agent, running.process.pid(), WATCHED)?;
        delays.push(delay);
    }
    delays.sort_unstable();
    let quantile = |share: f64| {
        let rank = (share * delays.len() as f64).ceil() as usize;
        delays.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    };
    println!(
        "from a process's start until it is watched, {RESTARTS} restarts: p50 {:?}, p90 {:?}, p99 {:?}, max {:?}",
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(1.0)
    );
    println!("all: {delays:?}");
    ensure!(quantile(0.9) <= PROMISE, "the 90th percentile is {:?}: {delays:?}", quantile(0.9));

    // It is read, not only listed.
    wait_counts(&mut agent, running.process.pid())?;
    Held::wait_equal(&agent, &before, &held)?;
    ensure!(neighbour.process.is_running()?, "the other RocksDB has ended too early");
    let answer = agent.get("/api/v1/targets")?;
    let pid = u64::from(neighbour.process.pid());
    let is_neighbour = |target: &Value| count(target, "/pid").ok() == Some(pid);
    ensure!(
        !agent::list(&answer, "targets")?.iter().any(is_neighbour),
        "somebody else's is a target: {answer}"
    );
    let alive = agent::list(&answer, "targets")?.iter().filter(|target| text(target, "/state") != "lost");
    let ours = alive.filter(|target| text(target, "/name").starts_with("sexton-queue-workload"));
    ensure!(ours.count() == 1, "other than one target is shown as alive: {answer}");
    let objects = BpfObjects::now()?.since(&before);
    agent.stop()?;
    objects.wait_gone(LIMIT)
}

/// Waits until the sentinel has counted tombstones in the process.
fn wait_counts(agent: &mut Agent, pid: u32) -> Result<Value> {
    agent.wait_for(LIMIT, "tombstones to be counted", |agent| {
        let target = target(agent, pid)?;
        Ok(target.filter(|target| count(target, "/totals/tombstones_skipped").is_ok_and(|number| number > 0)))
    })
}

/// A Python program that loads RocksDB after a while.
struct LateHost {
    process: Process,
    stdout: Lines,
}

impl LateHost {
    fn start(database: &Path, seconds: f64) -> Result<LateHost> {
        let mut command = Command::new(artifact::installed("python3", "python3")?);
        command.arg(artifact::repository().join("tests/tests/follow/late_host.py"));
        command.arg(LIBRARY).arg(database).arg(seconds.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdout = Lines::of("late_host.py", process.take_stdout().context("no standard output")?);
        Ok(LateHost { process, stdout })
    }

    /// Waits until its database is open.
    fn wait_open(&mut self) -> Result<()> {
        self.stdout.until(LIMIT, |line| line == "open").map(drop)
    }
}

#[test]
fn a_library_that_is_loaded_late_is_found_and_its_database_too() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    let mut agent = Agent::start(directory.path(), &policy(directory.path()))?;
    let mut host = LateHost::start(&database, 3.3)?;
    host.wait_open()?;
    let (delay, _) = wait_state(&mut agent, host.process.pid(), WATCHED)?;
    println!("from the database's opening until it is watched: {delay:?}");
    agent.wait_for(LIMIT, "the database to be known", |agent| {
        let target = target(agent, host.process.pid())?.context("the target has gone")?;
        let databases = agent::list(&target, "databases")?;
        Ok(databases.iter().any(|shown| shown.as_str() == database.to_str()).then_some(()))
    })?;
    wait_counts(&mut agent, host.process.pid())?;
    agent.stop()
}

#[test]
fn a_process_that_becomes_another_program_is_another_target_or_none() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut agent = Agent::start(directory.path(), &policy(directory.path()))?;

    // A shell becomes a host, the host becomes itself again, and then a program without RocksDB.
    let script = artifact::repository().join("tests/tests/follow/late_host.py");
    let python = artifact::installed("python3", "python3")?;
    let host = |number: u32| {
        let database = directory.path().join(format!("db{number}"));
        format!("{} {} {LIBRARY} {} 0.2", python.display(), script.display(), database.display())
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("sleep 1; exec {}", host(1))]);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process::start(shell)?;
    let pid = process.pid();
    let mut stdin = process.take_stdin().context("no standard input")?;
    let mut stdout = Lines::of("late_host.py", process.take_stdout().context("no standard output")?);

    stdout.until(LIMIT, |line| line == "open")?;
    let (delay, first) = wait_state(&mut agent, pid, WATCHED)?;
    println!("a shell that became a host is watched {delay:?} after its database's opening");
    let counted = wait_counts(&mut agent, pid)?;

    writeln!(stdin, "{}", host(2))?;
    stdout.until(LIMIT, |line| line == "open")?;
    let second = agent.wait_for(LIMIT, "the new program to be another target", |agent| {
        let target = target(agent, pid)?;
        let databases = |target: &Value| target.pointer("/databases").map(Value::to_string);
        let is_new = |target: &Value| databases(target).is_some_and(|shown| shown.contains("db2"));
        Ok(target.filter(|target| WATCHED.contains(&text(target, "/state")) && is_new(target)))
    })?;
    ensure!(text(&second, "/name") == text(&first, "/name"), "the name has changed: {second}");
    let tombstones = |target: &Value| count(target, "/totals/tombstones_skipped");
    // A new program counts from the beginning, and thousands at each list.
    ensure!(tombstones(&second)? <= tombstones(&wait_counts(&mut agent, pid)?)?, "{counted}, then {second}");
    let answer = agent.get("/api/v1/targets")?;
    let named =
        agent::list(&answer, "targets")?.iter().filter(|target| target.get("name") == second.get("name"));
    ensure!(named.count() == 1, "two targets have one name: {answer}");

    writeln!(stdin, "/bin/sleep 60")?;
    let (delay, _) = wait_state(&mut agent, pid, LOST)?;
    println!("a host that became `sleep` is let go {delay:?} after");
    ensure!(process.is_running()?, "the process itself has ended");
    agent.stop()
}

#[test]
fn a_target_that_ends_in_a_window_leaves_its_sums_and_no_account() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let timing = "loop: { interval: 20s, window: 20s, survey: 20s }\n";
    let policy = format!("{}{timing}", policy(directory.path()));
    let mut agent = Agent::start(directory.path(), &policy)?;
    let mut first = workload(&directory.path().join("first"), 200_000)?;
    first.second(LIMIT)?;
    wait_state(&mut agent, first.process.pid(), &["armed"])?;
    // Lists are under way when it ends.
    std::thread::sleep(IN_WINDOW);
    let pid = first.process.pid();
    drop(first);
    let (delay, lost) = wait_state(&mut agent, pid, LOST)?;
    println!("a target that ended in a window is let go {delay:?} after");
    ensure!(count(&lost, "/windows")? == 1, "the window is not counted: {lost}");
    ensure!(count(&lost, "/operations")? > 0, "the window saw nothing: {lost}");
    let both = |name: &str| count(&lost, &format!("/{name}/tombstones_skipped"));
    ensure!(both("attributed")? > 0 && both("attributed")? <= both("totals")?, "the sums are wrong: {lost}");

    // The next target gets its place in the kernel's tables, and none of its operations.
    let mut second = workload(&directory.path().join("second"), 200_000)?;
    second.second(LIMIT)?;
    wait_state(&mut agent, second.process.pid(), &["armed"])?;
    std::thread::sleep(IN_WINDOW);
    let pid = second.process.pid();
    second.process.signal(Signal::KILL)?;
    let (_, lost) = wait_state(&mut agent, pid, LOST)?;
    let both = |name: &str| count(&lost, &format!("/{name}/tombstones_skipped"));
    ensure!(both("attributed")? > 0 && both("attributed")? <= both("totals")?, "the sums are wrong: {lost}");
    agent.stop()
}

#[test]
fn a_target_in_namespaces_of_its_own_is_followed_and_its_files_are_read() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut agent = Agent::start(directory.path(), &policy(directory.path()))?;
    // The database lies on a file system that is mounted in there only.
    let private = directory.path().join("private");
    std::fs::create_dir(&private)?;
    let script = format!(
        "mount -t tmpfs none {private} && exec {workload} --directory {private}/db --keys 200000 --seconds 60",
        private = private.display(),
        workload = artifact::built("sexton-queue-workload")?.display(),
    );
    let mut command = Command::new(artifact::installed("unshare", "util-linux")?);
    command.args(["--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let unshare = Process::start(command)?;
    let inside = agent.wait_for(LIMIT, "the target inside to be watched", |agent| {
        let answer = agent.get("/api/v1/targets")?;
        let ours = agent::list(&answer, "targets")?.iter().find(|target| {
            target.pointer("/databases/0").and_then(Value::as_str).is_some_and(|path| {
                Path::new(path) == private.join("db") && WATCHED.contains(&text(target, "/state"))
            })
        });
        Ok(ours.cloned())
    })?;
    let pid = u32::try_from(count(&inside, "/pid")?)?;
    ensure!(pid != unshare.pid(), "that is not the process inside: {inside}");
    ensure!(!private.join("db").exists(), "the mount is not private");
    wait_counts(&mut agent, pid)?;
    // A range is only ranked with what its SST files say.
    agent.wait_for(LIMIT, "a range of the target to be ranked", |agent| {
        let answer = agent.get("/api/v1/ranges")?;
        let ranges = agent::list(&answer, "ranges")?;
        let ours = |range: &&Value| text(range, "/target") == text(&inside, "/name");
        Ok(ranges.iter().find(ours).cloned())
    })?;
    let shown = target(&agent, pid)?.context("the target has gone")?;
    ensure!(agent::list(&shown, "gaps")?.is_empty(), "the target has gaps: {shown}");
    agent.stop()
}
