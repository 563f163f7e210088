//! Files that processes have mapped are examined by processes that can do nothing else: what a file is made
//! to do harms none of the agent's own, and who examines it has no rights.
//!
//! Method: real processes with files of that kind, beside the real agent. What its own threads took is what
//! the kernel says of them; what a child may do is what `/proc` says of it while it runs. A child is killed
//! or stopped where the file gives it most to do.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sexton_tests::agent::{self, Agent, count};
use sexton_tests::artifact;
use sexton_tests::process::{self, Lines, Process, children_that_run, status_word, threads_named};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
/// Files that say what is not so, as `files.py` makes them.
const KINDS: [&str; 8] = [
    "more_sections_than_memory",
    "more_programs_than_memory",
    "sections_of_zeros",
    "symbol_tables_beyond_counting",
    "symbol_tables_of_one_sparse_string_table",
    "a_symbol_table_as_large_as_the_file",
    "relocations_that_share_a_dynsym",
    "vtables_of_endless_code",
];
/// The one that there is most to do about: some tenths of a second.
const LONGEST: &str = "vtables_of_endless_code";
/// What starting processes and reading maps may take of the agent's own memory, and of the thread that looks
/// into processes.
const MEMORY_KIB_MAX: u64 = 4 << 10;
const PROCESSOR_TIME_MAX: Duration = Duration::from_millis(250);
/// The hidden subcommand of who examines a file.
const EXAMINE: &str = "internal-examine";
/// How long it is watched that nobody is asked again.
const QUIET: Duration = Duration::from_secs(5);

/// An agent that looks into the processes that have this directory on their command line.
fn agent_for(directory: &Path) -> Result<Agent> {
    let place = directory.join("files");
    std::fs::create_dir(&place)?;
    let policy = format!(
        "mode: observe\ntargets: [{{ name: x, match: {{ command_line: \"{}\" }} }}]\nloop: {{ interval: 1s, window: 200ms }}\n",
        place.display()
    );
    let agent = Agent::start_logging(directory, &policy, Some("debug"))?;
    Ok(agent)
}

/// A process that has a file of this kind mapped.
fn mapper(kind: &str, directory: &Path, name: &str) -> Result<Process> {
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.arg("-c").arg(include_str!("hostile/files.py")).arg(kind);
    command.arg(directory.join("files").join(name)).stdout(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |line| line == "mapped").context(kind.to_owned())?;
    Ok(process)
}

/// What the agent said last of a file.
fn verdict(agent: &Agent, name: &str) -> Option<String> {
    agent.log().lines().rev().find(|line| line.contains(&format!("/{name}"))).map(str::to_owned)
}

fn wait_for_verdict(agent: &mut Agent, name: &str) -> Result<String> {
    agent.wait_for(LIMIT, name, |agent| Ok(verdict(agent, name)))
}

/// The children of the agent that examine the file of this name.
fn examining(agent: &Agent, name: &str) -> Result<Vec<u32>> {
    let is_of_file = |child: &u32| {
        std::fs::read_link(format!("/proc/{child}/fd/0")).is_ok_and(|file| file.ends_with(name))
    };
    Ok(children_that_run(agent.process.pid(), EXAMINE)?.into_iter().filter(is_of_file).collect())
}

/// The most memory that a process has had itself.
fn memory_kib(pid: u32) -> Result<u64> {
    status_word(pid, "VmHWM").context("no VmHWM")?.parse().context("a number")
}

/// Processor time of the threads that look into processes; of those that have ended it is gone.
fn scouts_time(pid: u32) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in threads_named(pid, "sexton-scout")? {
        let times = std::fs::read_to_string(task.join("schedstat"))?;
        sum += Duration::from_nanos(times.split(' ').next().context("no times")?.parse()?);
    }
    Ok(sum)
}

#[test]
fn a_hostile_file_costs_the_agent_itself_nothing() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut agent = agent_for(directory.path())?;
    let pid = agent.process.pid();
    // A file of any process, so that everything that is made once is there.
    let _first = mapper("more_sections_than_memory", directory.path(), "first")?;
    wait_for_verdict(&mut agent, "first")?;
    let (memory, time) = (memory_kib(pid)?, scouts_time(pid)?);
    let mut mappers = Vec::new();
    for kind in KINDS {
        mappers.push(mapper(kind, directory.path(), kind)?);
        let said = wait_for_verdict(&mut agent, kind)?;
        println!("{kind}: {said}");
    }
    let (grown, took) = (memory_kib(pid)? - memory, scouts_time(pid)? - time);
    println!("the agent grew by {grown} KiB beyond {memory} KiB, and its scout took {took:?}");
    ensure!(grown <= MEMORY_KIB_MAX, "the agent itself grew by {grown} KiB");
    ensure!(took <= PROCESSOR_TIME_MAX, "the agent's own thread took {took:?}");
    agent.stop()
}

#[test]
fn who_examines_a_file_is_nobody_and_has_that_file() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let agent = agent_for(directory.path())?;
    let pid = agent.process.pid();
    let filters = |pid: u32| status_word(pid, "Seccomp_filters").and_then(|count| count.parse::<u32>().ok());
    let of_agent = filters(pid).context("the kernel counts no filters")?;
    let (mut confined, deadline) = (0, Instant::now() + LIMIT);
    for number in 0.. {
        ensure!(Instant::now() < deadline, "no child was seen behind its fences");
        let name = format!("{LONGEST}{number}");
        let _mapper = mapper(LONGEST, directory.path(), &name)?;
        while verdict(&agent, &name).is_none() {
            for child in examining(&agent, &name)? {
                // What is read after the filter is up holds.
                if filters(child).is_some_and(|count| count > of_agent) {
                    confined += usize::from(is_confined(child)?);
                }
            }
            ensure!(Instant::now() < deadline, "{name} has no verdict");
            std::thread::sleep(Duration::from_millis(5));
        }
        if confined >= 3 {
            break;
        }
    }
    agent.stop()
}

/// Whether a child was there to be looked at.
/// Errors: what it has that it should not have.
fn is_confined(child: u32) -> Result<bool> {
    let fields =
        ["Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"];
    let has: Vec<Option<String>> = fields.iter().map(|name| status_word(child, name)).collect();
    let files = std::fs::read_dir(format!("/proc/{child}/fd")).map(|entries| {
        entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect::<Vec<_>>()
    });
    let (Some(has), Ok(files)) = (has.into_iter().collect::<Option<Vec<String>>>(), files) else {
        return Ok(false);
    };
    // By root, who may, all of the bounding set is given up as well.
    let none = "0000000000000000";
    ensure!(has == ["65534", "65534", "", none, none, none, none, none, "1", "2"], "{fields:?} are {has:?}");
    let is_expected = |file: &&std::path::PathBuf| {
        let shown = file.to_string_lossy();
        shown.contains(LONGEST) || shown.starts_with("socket:") || shown == "/dev/null"
    };
    // Its standard streams, and the file once more. Nothing where it has just ended.
    ensure!(files.len() <= 4 && files.iter().all(|file| is_expected(&file)), "it has {files:?}");
    Ok(!files.is_empty())
}

#[test]
fn a_child_that_is_killed_or_stuck_is_a_verdict() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut agent = agent_for(directory.path())?;
    for (name, signal, why) in
        [("killed", Signal::KILL, "SIGKILL"), ("stuck", Signal::STOP, "did not answer")]
    {
        let mut mapper = mapper(LONGEST, directory.path(), name)?;
        let deadline = Instant::now() + LIMIT;
        let mut met = BTreeSet::new();
        while verdict(&agent, name).is_none() {
            for child in examining(&agent, name)? {
                if met.insert(child) {
                    // It may have ended just now.
                    let _ = process::signal(child, signal);
                }
            }
            ensure!(Instant::now() < deadline, "{name} has no verdict");
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = wait_for_verdict(&mut agent, name)?;
        ensure!(said.contains("could not be examined") && said.contains(why), "{name}: {said}");
        ensure!(met.len() == 1, "{} processes were started for one file", met.len());
        // Nobody is left, and the process is looked into again without another one.
        let cycles = count(&agent.get("/healthz")?, "/cycles")?;
        let until = Instant::now() + QUIET;
        while Instant::now() < until {
            let again = examining(&agent, name)?;
            ensure!(again.is_empty(), "{name}: {again:?} run again");
            std::thread::sleep(Duration::from_millis(20));
        }
        ensure!(count(&agent.get("/healthz")?, "/cycles")? > cycles, "{name}: the cycles stand still");
        ensure!(mapper.is_running()?, "{name}: the process has ended");
    }
    agent.stop()
}
