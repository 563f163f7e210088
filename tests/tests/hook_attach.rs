//! A JVM that takes no hook is not asked for it again and again, and one that stands still not at all.
//!
//! Method: a real JVM and a real agent in mode act, with a window in each cycle; each window's end is an
//! occasion to bring the hook in. How often the JVM was asked is counted inside it, by the library that it
//! was asked to load.

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, list, text, why_unresponsive};
use sexton_tests::artifact;
use sexton_tests::jvm::Program;
use sexton_tests::process::Process;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The program ends by itself after this, whatever happens to the test.
const PROGRAM_SECONDS: u64 = 240;
/// How long a cycle, compiling, or attaching may take.
const LIMIT: Duration = Duration::from_secs(90);
/// Pause after the first failure; each is twice as long as the one before.
const FIRST_PAUSE_SECONDS: f64 = 5.0;
/// So many windows more than tries have to be seen.
const WINDOWS_WITHOUT_A_TRY: f64 = 5.0;

fn policy(pid: u32) -> String {
    format!(
        r#"mode: act
targets:
  - name: java
    match: {{ pid: {pid} }}
    executor: hook
    # Nothing is to be done in this test.
    column_families: [{{ name: none }}]
loop: {{ interval: 500ms, window: 200ms, survey: 500ms }}
probes: {{ budget: 50% }}
guards: {{ process_uptime_min: 0s }}
"#
    )
}

#[test]
fn a_jvm_that_cannot_load_the_hook_is_asked_less_and_less_often() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let program = Program::start(directory.path(), PROGRAM_SECONDS)?;
    let attempts = directory.path().join("attempts");
    let library = refusing_library(directory.path(), &attempts)?;
    let started = Instant::now();
    let policy = policy(program.pid());
    let library = library.to_str().context("a path that is no text")?;
    let mut agent = Agent::start_with(directory.path(), &policy, &["--hook-library", library])?;
    let (tries, windows) = agent.wait_for(LIMIT, "windows without a try", |agent| {
        let tries = count_lines(&attempts) as f64;
        let windows = windows(agent)?;
        Ok((tries >= 2.0 && windows >= tries + WINDOWS_WITHOUT_A_TRY).then_some((tries, windows)))
    })?;
    let elapsed = started.elapsed().as_secs_f64();
    // At once, after 5 s, 15 s, 35 s, ...
    let most = 1.0 + (elapsed / FIRST_PAUSE_SECONDS + 1.0).log2().floor();
    ensure!(tries <= most, "{tries} tries in {elapsed:.0} s and {windows} windows, and not {most}");
    let gap = hook_gap(&agent)?.context("that there is no hook is no gap")?;
    ensure!(text(&gap, "/reason").contains("again after"), "it does not say when it is tried again: {gap}");
    agent.stop()?;
    program.end()
}

#[test]
fn a_jvm_that_is_stopped_is_asked_when_it_goes_on_and_prints_no_thread_dump() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = Program::start(directory.path(), PROGRAM_SECONDS)?;
    let pid = i32::try_from(program.pid()).ok().and_then(Pid::from_raw).context("no process id")?;
    let policy = policy(program.pid());
    kill_process(pid, Signal::STOP)?;
    let mut agent = Agent::start(directory.path(), &policy)?;
    let reason = agent.wait_for(LIMIT, "the target to be unresponsive", |agent| {
        let targets = agent.get("/api/v1/targets")?;
        Ok(list(&targets, "targets")?.first().and_then(why_unresponsive))
    })?;
    ensure!(reason.contains("a signal has stopped it"), "another reason: {reason}");
    kill_process(pid, Signal::CONT)?;
    agent.wait_for(LIMIT, "the hook", |agent| {
        let targets = agent.get("/api/v1/targets")?;
        Ok((targets.pointer("/targets/0/hook") == Some(&Value::Bool(true))).then_some(()))
    })?;
    agent.stop()?;
    ensure!(!program.has_dumped_threads()?, "it was sent a SIGQUIT while it was stopped");
    program.end()
}

/// A library whose every loading is counted in `attempts`.
fn refusing_library(directory: &Path, attempts: &Path) -> Result<PathBuf> {
    let library = directory.join("refusing_agent.so");
    let mut command = Command::new(artifact::installed("gcc", "gcc")?);
    command.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]);
    command.arg(format!("-DATTEMPTS=\"{}\"", attempts.display()));
    command.arg(artifact::repository().join("tests/c/refusing_agent.c")).arg("-o").arg(&library);
    let status = Process::start(command)?.wait(LIMIT)?;
    ensure!(status.success(), "compiling refusing_agent.c ended with {status}: run `make setup`");
    Ok(library)
}

fn count_lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Windows that were opened on the one target.
fn windows(agent: &Agent) -> Result<f64> {
    let targets = agent.get("/api/v1/targets")?;
    let name = text(&targets, "/targets/0/series");
    Ok(agent.metric(&format!("sexton_windows_total{{target=\"{name}\"}}"))?.unwrap_or_default())
}

/// Why there is no hook, if that is known.
fn hook_gap(agent: &Agent) -> Result<Option<Value>> {
    let targets = agent.get("/api/v1/targets")?;
    let gaps = targets.pointer("/targets/0/gaps").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(gaps.into_iter().find(|gap| text(gap, "/what") == "no hook answers in the target"))
}
