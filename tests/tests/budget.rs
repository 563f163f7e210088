//! What probes cost a target stays within its budget, however many seeks there are to look at.
//!
//! Method: Debian's `db_bench` makes some hundred thousand seeks a second, each far cheaper than its probes, and
//! the policy asks for a window all the time. Armed all the time, the probes would take more than half of
//! the process's time; only the governor keeps them from it.

use anyhow::{Result, ensure};
use sexton::probe::{KernelFeatures, Mechanism, Windows, governor};
use sexton_tests::agent::{self, Agent, count, number};
use sexton_tests::steady_seeks::{self, SteadySeeks};
use std::time::{Duration, Instant};

/// Windows come every few seconds at the default budget, and more rarely where a busy machine makes taking probes away last.
const WINDOWS_LIMIT: Duration = Duration::from_secs(240);
/// Windows that are waited for: what the first may spend is there from the start, the others have to wait.
const WINDOWS: u64 = 4;
/// The default: 1 % of one core.
const BUDGET_RATIO: f64 = 0.01;
/// What the budget can be exceeded by: what it had at the start, and what comes in from one poll to the next and
/// while probes are taken away, on a busy machine.
const EXCEEDED_SECONDS_MAX: f64 = 0.15;

const POLICY: &str = "mode: observe\nloop: { interval: 1s, window: 1s, survey: 1s }\n";

#[test]
fn windows_cost_no_more_than_the_budget() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let load = start_load(directory.path())?;
    let started = Instant::now();
    let mut agent = Agent::start(directory.path(), &format!("{POLICY}{}", target(&load)))?;
    let answer = agent.wait_for(WINDOWS_LIMIT, "some windows", |agent| {
        let answer = agent.get("/api/v1/targets")?;
        let windows = count(&answer, "/targets/0/windows").unwrap_or(0);
        Ok((windows >= WINDOWS).then_some(answer))
    })?;
    let cost_seconds = number(&answer, "/targets/0/probes/cost_seconds")?;
    let allowed_seconds = BUDGET_RATIO * started.elapsed().as_secs_f64() + EXCEEDED_SECONDS_MAX;
    ensure!(cost_seconds > 0.0, "windows cost nothing: {answer}");
    ensure!(cost_seconds <= allowed_seconds, "{cost_seconds} s spent, {allowed_seconds} s allowed: {answer}");
    ensure!(count(&answer, "/targets/0/operations")? > 1_000, "the windows saw little: {answer}");
    ensure!(count(&answer, "/targets/0/probes/windows_cut")? > 0, "no window was cut short: {answer}");
    agent.stop()
}

#[test]
fn with_a_budget_of_nothing_no_probe_is_armed() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let load = start_load(directory.path())?;
    let policy = format!("{POLICY}probes: {{ budget: 0% }}\n{}", target(&load));
    let mut agent = Agent::start(directory.path(), &policy)?;
    let answer = agent.wait_for(WINDOWS_LIMIT, "some cycles", |agent| {
        let cycles = agent.metric("sexton_cycles_total")?.unwrap_or(0.0);
        let answer = agent.get("/api/v1/targets")?;
        let hits = count(&answer, "/targets/0/totals/block_cache_hits").unwrap_or(0);
        Ok((cycles >= 4.0 && hits > 0).then_some(answer))
    })?;
    ensure!(count(&answer, "/targets/0/windows")? == 0, "a window was opened: {answer}");
    ensure!(number(&answer, "/targets/0/probes/cost_seconds")? == 0.0, "something was spent: {answer}");
    agent.stop()
}

/// The prices are measured on functions of the agent's own; that all of their calls ran into probes is checked
/// there.
#[test]
fn every_kind_of_hit_has_a_price_under_every_mechanism() -> Result<()> {
    let _alone = agent::exclusively()?;
    let features = KernelFeatures::probe();
    let mechanisms = Mechanism::ALL.into_iter().filter_map(|mechanism| mechanism.check(&features).ok());
    for mechanism in mechanisms {
        let prices = governor::calibrate(&mut Windows::load(mechanism)?)?;
        let followed = [prices.seek_ns, prices.new_iterator_ns, prices.iterator_end_ns];
        ensure!(followed.iter().all(|ns| *ns > prices.skipped_entry_ns), "{mechanism:?}: {prices:?}");
        ensure!(prices.skipped_entry_ns > 0.0 && prices.single_step_ns > 0.0, "{mechanism:?}: {prices:?}");
    }
    Ok(())
}

fn start_load(directory: &std::path::Path) -> Result<SteadySeeks> {
    let database = directory.join("db");
    steady_seeks::fill(&database)?;
    SteadySeeks::start(&database)
}

fn target(load: &SteadySeeks) -> String {
    format!("targets: [{{ name: load, match: {{ pid: {} }} }}]\n", load.pid())
}
