//! What a target can do to the agent, or through it to others, while it is watched: memory that nobody fills,
//! links where directories were, files for RocksDB's parser.
//!
//! Method: real programs that do these things, beside one that does not. What is opened is what the kernel
//! says (fanotify), what a child may do is what `/proc` says of it.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, count, list, why_unresponsive};
use sexton_tests::artifact;
use sexton_tests::hung_file_system::HungFileSystem;
use sexton_tests::opened::Opened;
use sexton_tests::process::{Lines, Process, children_that_run, status_word};
use sexton_tests::static_host::StaticHost;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/librocksdb.so.7.8";
/// What each exposed part of a unit adds up to, by `systemd-analyze security`.
const EXPOSURE_MAX: f64 = 2.0;

fn target_of(agent: &Agent, pid: u32) -> Result<Option<Value>> {
    let targets = agent.get("/api/v1/targets")?;
    let found =
        list(&targets, "targets")?.iter().find(|target| count(target, "/pid").ok() == Some(pid.into()));
    Ok(found.cloned())
}

fn policy(pids: &[u32]) -> String {
    let entry = |pid: &u32| format!("{{ name: \"t{pid}\", match: {{ pid: {pid} }} }}");
    let entries: Vec<String> = pids.iter().map(entry).collect();
    format!(
        "mode: observe\ntargets: [{}]\nloop: {{ interval: 1s, window: 200ms, survey: 1s }}\n\
         thresholds: {{ tombstones_per_operation: 10 }}\nprobes: {{ budget: 50% }}\n",
        entries.join(", ")
    )
}

/// A process that prints a line.
fn said(mut command: Command, line: &str) -> Result<(Process, Lines)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut lines = Lines::of(line, process.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |said| said == line)?;
    Ok((process, lines))
}

#[test]
fn a_thread_pointer_into_a_file_that_hangs_holds_up_nobody() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("stuck_thread");
    let mut compile = Command::new(artifact::installed("gcc", "gcc")?);
    compile.args(["-O1", "-pthread", "-o"]).arg(&program);
    compile.arg(artifact::repository().join("tests/c/stuck_thread.c"));
    ensure!(Process::start(compile)?.wait(LIMIT)?.success(), "gcc failed");
    let mounted = tempfile::tempdir()?;
    let files = HungFileSystem::mount(mounted.path(), Path::new(LIBRARY))?;
    let mut stuck = Command::new(program);
    stuck.arg(LIBRARY).arg(files.file());
    let (mut stuck, _lines) = said(stuck, "ready")?;
    files.hang();
    let mut host = StaticHost::start(&directory.path().join("db"), &[])?;
    let mut agent = Agent::start(directory.path(), &policy(&[stuck.pid(), host.pid()]))?;
    let seen = hold_up(&mut agent, &mut stuck, &mut host);
    // Whatever was seen: nothing that waits for the file system ends before it answers.
    drop(files);
    seen?;
    agent.stop()?;
    host.quit()
}

/// The target that cannot be read is called unresponsive, and the other one is watched as if nothing were.
fn hold_up(agent: &mut Agent, stuck: &mut Process, host: &mut StaticHost) -> Result<()> {
    let reason = agent.wait_for(LIMIT, "the target to be called unresponsive", |agent| {
        Ok(target_of(agent, stuck.pid())?.as_ref().and_then(why_unresponsive))
    })?;
    ensure!(reason.contains("totals"), "the reason is {reason}");
    let planned = host.list()?.tombstones_planned;
    agent.wait_for(LIMIT, "what the other target counts", |agent| {
        let target = target_of(agent, host.pid())?;
        let counted = target.map(|target| count(&target, "/totals/tombstones_skipped")).transpose()?;
        Ok((counted.unwrap_or_default() >= planned).then_some(()))
    })?;
    let cycles = |agent: &Agent| count(&agent.get("/healthz")?, "/cycles");
    let before = cycles(agent)?;
    agent.wait_for(LIMIT, "three more cycles", |agent| Ok((cycles(agent)? >= before + 3).then_some(())))?;
    ensure!(stuck.is_running()?, "the target has ended");
    Ok(())
}

/// Has RocksDB in it and a file of a database open whose directory is gone; where that was is a link to
/// another one.
const LINKER: &str = r#"import ctypes, os, sys
library, directory, victim = sys.argv[1:]
ctypes.CDLL(library)
os.makedirs(directory)
log, manifest = (open(f"{directory}/{name}", "wb") for name in ("000012.log", "MANIFEST-000004"))
lock = open(f"{directory}/LOCK", "wb")
for name in ("000012.log", "MANIFEST-000004", "LOCK"):
    os.unlink(f"{directory}/{name}")
os.rmdir(directory)
os.symlink(victim, directory)
print("linked", flush=True)
sys.stdin.read()
"#;

fn python(program: &str, arguments: &[&Path]) -> Result<Command> {
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.args(["-c", program]).args(arguments);
    Ok(command)
}

/// A database that is nobody's target, and whose owner would not like it to be read.
fn victim(directory: &Path) -> Result<PathBuf> {
    let victim = directory.join("victim");
    StaticHost::start(&victim, &["--keys", "1000"])?.quit()?;
    let database = victim.join("database0");
    ensure!(database.join("CURRENT").exists(), "the program has made no database");
    Ok(database)
}

#[test]
fn a_link_where_a_directory_was_leads_to_no_other_database() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let victim = victim(directory.path())?;
    let opened = Opened::watch(&victim)?;
    let linker = python(LINKER, &[Path::new(LIBRARY), &directory.path().join("a/db"), &victim])?;
    let (linker, _lines) = said(linker, "linked")?;
    // One more, whose directory is a database until it is watched.
    let open = directory.path().join("open");
    let mut host = StaticHost::start(&open, &[])?;
    let of_host = host.pid();
    let mut agent = Agent::start(directory.path(), &policy(&[linker.pid(), of_host]))?;
    let databases = |agent: &Agent, pid| -> Result<Option<usize>> {
        target_of(agent, pid)?.map(|target| Ok(list(&target, "databases")?.len())).transpose()
    };
    let both = |agent: &Agent| -> Result<(Option<usize>, Option<usize>)> {
        Ok((databases(agent, linker.pid())?, databases(agent, of_host)?))
    };
    agent.wait_for(LIMIT, "both targets", |agent| {
        let (linker, host) = both(agent)?;
        Ok((linker.is_some() && host.is_some_and(|databases| databases > 0)).then_some(()))
    })?;
    let (of_linker, _) = both(&agent)?;
    ensure!(of_linker == Some(0), "the link is taken for a database");
    std::fs::rename(&open, directory.path().join("moved"))?;
    std::os::unix::fs::symlink(directory.path().join("victim"), &open)?;
    // Windows that see something read the files of its databases.
    let windows = |agent: &Agent| -> Result<u64> {
        target_of(agent, of_host)?.map_or(Ok(0), |target| count(&target, "/windows"))
    };
    let until = windows(&agent)? + 3;
    agent.wait_for(LIMIT, "three windows", |agent| {
        host.list()?;
        Ok((windows(agent)? >= until).then_some(()))
    })?;
    agent.stop()?;
    let others = opened.by_others(&victim.join("CURRENT"), &[of_host])?;
    ensure!(others.is_empty(), "somebody has opened {others:?}");
    host.quit()
}

#[test]
fn the_child_that_reads_databases_is_nobody_and_can_only_read() -> Result<()> {
    const DAC_READ_SEARCH: u64 = 1 << 2;
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut host = StaticHost::start(&directory.path().join("db"), &["--databases", "8", "--keys", "40000"])?;
    let agent = Agent::start(directory.path(), &policy(&[host.pid()]))?;
    let filters = |pid: u32| status_word(pid, "Seccomp_filters").and_then(|count| count.parse::<u32>().ok());
    let of_agent = filters(agent.process.pid()).context("the kernel counts no filters")?;
    let deadline = Instant::now() + LIMIT;
    let mut confined = 0;
    while confined < 3 {
        ensure!(Instant::now() < deadline, "no child was seen behind its fences");
        host.list()?;
        for _ in 0..200 {
            for child in children_that_run(agent.process.pid(), "internal-read-sst")? {
                // Before the filter is up it is no foreign byte that it deals with. What is read after it
                // holds.
                if filters(child).is_none_or(|count| count <= of_agent) {
                    continue;
                }
                let of = |name| status_word(child, name);
                let (Some(user), Some(capabilities), Some(gain)) =
                    (of("Uid"), of("CapPrm"), of("NoNewPrivs"))
                else {
                    continue;
                };
                ensure!(user == "65534" && gain == "1", "user {user}, may gain: {gain}");
                let capabilities = u64::from_str_radix(&capabilities, 16)?;
                ensure!(capabilities & !DAC_READ_SEARCH == 0, "it has capabilities: {capabilities:#x}");
                confined += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    agent.stop()?;
    host.quit()
}

#[test]
fn the_shipped_unit_is_closed() -> Result<()> {
    // By itself: the drop-ins beside it open what acting and old kernels need.
    let directory = tempfile::tempdir()?;
    let unit = directory.path().join("sexton.service");
    std::fs::copy(artifact::repository().join("deploy/systemd/sexton.service"), &unit)?;
    let mut command = Command::new(artifact::installed("systemd-analyze", "systemd")?);
    let output = command.args(["security", "--offline=true", "--no-pager"]).arg(&unit).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let level = said.lines().find_map(|line| line.split_once("exposure level for sexton.service: "));
    let level = level.and_then(|(_, rest)| rest.split(' ').next()).with_context(|| said.clone())?;
    ensure!(level.parse::<f64>()? <= EXPOSURE_MAX, "the unit is exposed: {said}");
    Ok(())
}
