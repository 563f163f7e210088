//! Tombstones are charged to the iterator that walked over them, not to the one that its thread positioned
//! last; where that does not show, nothing is done.
//!
//! Method: a Python program positions an iterator before forty thousand tombstones, positions one of another
//! column family, and moves the first one.

use anyhow::{Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, Observer, count, list, text};
use sexton_tests::two_iterators::{TOMBSTONES, TwoIterators, WALKED};
use std::time::{Duration, Instant};

/// The window is closed when the program has moved; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const LIMIT: Duration = Duration::from_secs(60);
const STEPS: u64 = 5;

fn observe(program: &mut TwoIterators, word: &str, mechanism: &[&str]) -> Result<Value> {
    let observer = Observer::start(program.pid(), WINDOW_SECONDS, mechanism)?;
    for _ in 0..STEPS {
        program.step(word)?;
    }
    observer.close(LIMIT)
}

/// Of small operations only a sample is listed.
fn large(observed: &Value) -> Result<Vec<&Value>> {
    let is_large = |seen: &&Value| {
        let skipped = |part| count(seen, part).unwrap_or(0);
        skipped("/seek/tombstones_skipped") + skipped("/scan/tombstones_skipped") >= TOMBSTONES
    };
    Ok(list(observed, "observations")?.iter().filter(is_large).collect())
}

#[test]
fn the_iterator_that_moved_is_charged() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = TwoIterators::start(directory.path())?;
    for mechanism in [&[][..], &["--loader", "aya"], &["--mechanism", "perf-cookie"]] {
        let observed = observe(&mut program, "first", mechanism)?;
        let sum = count(&observed, "/attributed/tombstones_skipped")?;
        ensure!(sum == STEPS * TOMBSTONES, "{mechanism:?}: not all is attributed: {observed}");
        let observations = large(&observed)?;
        ensure!(observations.len() as u64 == STEPS, "{mechanism:?}: {observed}");
        for seen in observations {
            ensure!(text(seen, "/column_family") == WALKED, "{mechanism:?}: the wrong one: {seen}");
            ensure!(count(seen, "/scan/tombstones_skipped")? == TOMBSTONES, "{mechanism:?}: {seen}");
            ensure!(seen["ambiguous"] == false, "{mechanism:?}: it is told apart: {seen}");
        }
    }
    program.end()
}

#[test]
fn where_both_have_moved_it_is_said_and_nothing_is_planned() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let database = directory.path().join("db");
    let mut program = TwoIterators::start(&database)?;
    let observed = observe(&mut program, "both", &[])?;
    let sum = count(&observed, "/attributed/tombstones_skipped")?;
    ensure!(sum == STEPS * (TOMBSTONES + 2), "not all is attributed: {observed}");
    let observations = large(&observed)?;
    ensure!(observations.len() as u64 == STEPS, "{observed}");
    ensure!(observations.iter().all(|seen| seen["ambiguous"] == true), "it is not said: {observed}");

    let policy = format!(
        "mode: advise\ntargets: [{{ name: host, match: {{ pid: {} }} }}]\n\
         loop: {{ interval: 1s, window: 1s, survey: 1s }}\n",
        program.pid()
    );
    let agent_directory = directory.path().join("agent");
    std::fs::create_dir(&agent_directory)?;
    let agent = Agent::start(&agent_directory, &policy)?;
    let deadline = Instant::now() + LIMIT;
    loop {
        program.step("both")?;
        let plan = agent.get("/api/v1/plan")?;
        let steps = plan.pointer("/plan/steps").and_then(Value::as_array);
        ensure!(steps.is_none_or(Vec::is_empty), "something is planned: {plan}");
        if plan.to_string().contains("ambiguous_iterator") {
            break;
        }
        ensure!(Instant::now() < deadline, "no refusal; sexton's log ends:\n{}", agent.log_end());
    }
    agent.stop()?;
    program.end()
}
