//! Much pain in small operations is seen, and none is looked for where nobody moves an iterator.
//!
//! Method: a Python program on Debian's RocksDB lists five keys of one of a thousand prefixes at random,
//! over 500 tombstones each time. What `sexton plan` says its readers lose is held against what the program
//! has measured around its calls, and so is what its lists lose after an agent has acted. What the agent
//! shows between windows is held against what it showed after one. Then the program only gets, past the block
//! cache, and the agent's windows are counted.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, list, number, text};
use sexton_tests::artifact;
use sexton_tests::small_lists::{SmallLists, TOMBSTONES, lists_per_second};
use std::path::Path;
use std::time::{Duration, Instant};

/// The greatest error of what a list is said to lose. The probes' own time is in what the agent measures.
const ERROR_MAX: f64 = 0.2;
/// The same of operations that lose some microseconds each: a window sees too little of one to learn its
/// price where the machine is slow, and the assumed price of a tombstone is held against what it costs there.
const ERROR_OF_TINY_MAX: f64 = 0.75;
/// Lists are fewer while they are probed, and the machine may be busy just then: the tombstones that are
/// seen are held against the sentinel's by `unrecorded`.
const SHARE_SEEN: std::ops::Range<f64> = 0.4..1.6;
/// How long the program measures what its lists lose, without probes.
const MEASURED: Duration = Duration::from_secs(1);
/// Cycles in which a service that only gets is to be left alone.
const CYCLES: f64 = 8.0;
/// Cycles without a window after which pain is still shown.
const CYCLES_BETWEEN: f64 = 3.0;
/// Windows that it takes to find out that nobody moves an iterator.
const WINDOWS_MAX: f64 = 2.0;
const LIMIT: Duration = Duration::from_secs(60);
/// Tombstones of each of very many operations.
const TOMBSTONES_OF_TINY: u64 = 50;
/// A list loses at least so many times less once it is healed.
const HEALED_FACTOR: f64 = 10.0;
/// Compactions that this may take of a database of a few files.
const JOBS_MAX: usize = 4;

fn plan(directory: &Path, pid: u32) -> Result<Value> {
    let pid = pid.to_string();
    let policy = "mode: advise\nprobes: { budget: 100% }\nloop: { window: 2s }\n";
    std::fs::write(directory.join("policy.yaml"), policy)?;
    let output =
        agent::output(directory, &["plan", "--once", "--policy", "policy.yaml", "--pid", &pid, "--json"])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "sexton plan ended with {}: {stderr}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// An agent that looks at the process twice a second, and opens windows only for pain.
fn watching(directory: &Path, pid: u32, more: &str) -> Result<Agent> {
    let policy = format!(
        "mode: advise\ntargets: [{{ name: host, match: {{ pid: {pid} }} }}]\n\
         probes: {{ budget: 100% }}\nloop: {{ interval: 500ms, window: 200ms, survey: 1h }}\n{more}"
    );
    let directory = directory.join("agent");
    std::fs::create_dir(&directory)?;
    Agent::start(&directory, &policy)
}

#[test]
fn many_small_operations_are_seen_with_their_pain() -> Result<()> {
    is_seen_with_its_pain(TOMBSTONES, ERROR_MAX)
}

/// Goal: what each of twenty thousand operations a second loses is little, and all of it is seen.
#[test]
fn very_many_tiny_operations_are_seen_with_their_pain() -> Result<()> {
    is_seen_with_its_pain(TOMBSTONES_OF_TINY, ERROR_OF_TINY_MAX)
}

fn is_seen_with_its_pain(tombstones: u64, error_max: f64) -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = SmallLists::start_over(directory.path(), tombstones, &[])?;
    program.go("list")?;
    let begun = program.say()?;
    std::thread::sleep(MEASURED);
    let before = program.say()?;
    let seen = plan(directory.path(), program.pid())?;
    let after = program.say()?;
    let (of_list, rate) = (program.lost_per_list(begun, before), lists_per_second(before, after));
    let pain = number(&seen, "/targets/0/pain_seconds_per_second")?;
    let unrecorded = number(&seen, "/targets/0/unplaced/unrecorded_seconds_per_second")?;
    let seen_of_list = number(&seen, "/targets/0/costs/seconds_per_tombstone")? * tombstones as f64;
    let lists = pain / seen_of_list;
    println!(
        "{rate:.0} lists a second lose {:.1} us each, {:.3} s; seen: {lists:.0} of {:.1} us, {pain:.3} s, and {unrecorded:.3} s in \
         no record",
        of_list * 1e6,
        of_list * rate,
        seen_of_list * 1e6
    );
    ensure!((seen_of_list / of_list - 1.0).abs() <= error_max, "a list loses {of_list}: {seen}");
    ensure!(SHARE_SEEN.contains(&(lists / rate)), "{rate} lists a second, {lists} are seen: {seen}");
    ensure!(unrecorded <= pain * ERROR_MAX, "a sample stands for all of them: {seen}");
    let plan = seen.pointer("/plan").context("no plan")?;
    let steps: Vec<&str> = list(plan, "steps")?.iter().map(|step| text(step, "/reason")).collect();
    let refusals = list(plan, "refusals")?;
    println!("{steps:?} {refusals:?}");
    // What is not done for so much pain is left because it does not pay, and the plan says why.
    let does_not_pay = |refusal: &Value| text(refusal, "/rule") == "does_not_pay";
    ensure!(!steps.is_empty() || refusals.iter().any(does_not_pay), "nothing is decided: {seen}");
    program.end()
}

/// Goal: a thousand prefixes that each hurt a little are few jobs of whole files, and these heal all of them.
#[test]
fn many_small_operations_are_healed_by_few_jobs() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    // Python opens libraries so that others cannot use them; loaded before, RocksDB is there for the hook.
    let libraries = [artifact::built("libsexton_hook.so")?, artifact::debian_rocksdb()?];
    let mut program = SmallLists::start_over(directory.path(), TOMBSTONES, &libraries)?;
    program.go("list")?;
    let begun = program.say()?;
    std::thread::sleep(MEASURED);
    let before = program.say()?;
    let policy = format!(
        "mode: act\ntargets: [{{ name: host, match: {{ pid: {} }}, executor: hook }}]\n\
         loop: {{ interval: 1s, window: 300ms }}\nprobes: {{ budget: 50% }}\n\
         guards: {{ process_uptime_min: 0s, disk_free_min: 1MiB }}\n",
        program.pid()
    );
    let state = directory.path().join("agent");
    std::fs::create_dir(&state)?;
    let mut agent = Agent::start(&state, &policy)?;
    let lost = |program: &SmallLists, from, to| program.lost_per_list(from, to);
    let (of_list, actions) = agent.wait_for(LIMIT, "lists that lose a tenth", |agent| {
        let from = program.say()?;
        std::thread::sleep(MEASURED);
        let to = program.say()?;
        let actions = list(&agent.get("/api/v1/actions")?, "actions")?.clone();
        let is_healed = lost(&program, from, to) <= lost(&program, begun, before) / HEALED_FACTOR;
        Ok(is_healed.then(|| (lost(&program, from, to), actions)))
    })?;
    let of_list_before = lost(&program, begun, before);
    println!("a list lost {:.1} us, and now {:.1}", of_list_before * 1e6, of_list * 1e6);
    let compactions = actions.iter().filter(|action| text(action, "/action") == "compact_range").count();
    ensure!(
        (1..=JOBS_MAX).contains(&compactions),
        "{compactions} compactions for one column family: {actions:?}"
    );
    agent.stop()?;
    program.end()
}

/// Goal: what readers lose is known between windows too, by what the last one saw and the sentinel sees.
#[test]
fn pain_is_shown_between_windows_at_the_pace_that_readers_have() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = SmallLists::start(directory.path())?;
    program.go("list")?;
    // No pain is worth a window but the first.
    let mut agent = watching(directory.path(), program.pid(), "thresholds: { pain: 1000s/s }\n")?;
    let pain_after = |agent: &mut Agent, cycles: f64, is_it: &dyn Fn(f64) -> bool| {
        let first = agent.metric("sexton_cycles_total")?.unwrap_or(0.0);
        agent.wait_for(LIMIT, "ranges with the pain that readers have", |agent| {
            let now = agent.metric("sexton_cycles_total")?.unwrap_or(0.0);
            let ranges = agent.get("/api/v1/ranges")?;
            let pains = list(&ranges, "ranges")?.iter().map(|it| number(it, "/pain_seconds_per_second"));
            let pain: f64 = pains.sum::<Result<f64>>()?;
            Ok((now >= first + cycles && is_it(pain)).then_some(pain))
        })
    };
    let seen = pain_after(&mut agent, 0.0, &|pain| pain > 0.0)?;
    let later = pain_after(&mut agent, CYCLES_BETWEEN, &|pain| pain > 0.0)?;
    program.go("rest")?;
    let rests = pain_after(&mut agent, CYCLES_BETWEEN, &|pain| pain < later / 10.0)?;
    println!("{seen:.4} s a second, later {later:.4} s, at rest {rests:.4} s");
    ensure!((0.2..5.0).contains(&(later / seen)), "{seen} s were lost a second, then {later} s");
    let windows = agent.metric("sexton_windows_total{target=\"host\"}")?;
    ensure!(windows == Some(1.0), "{windows:?} windows");
    agent.stop()?;
    program.end()
}

#[test]
fn a_service_that_only_gets_pays_for_no_windows() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut program = SmallLists::start(directory.path())?;
    program.go("get")?;
    let agent = watching(directory.path(), program.pid(), "")?;
    let metric = |name: &str| Ok::<f64, anyhow::Error>(agent.metric(name)?.unwrap_or(0.0));
    let windows = || metric("sexton_windows_total{target=\"host\"}");
    let cycles = || metric("sexton_cycles_total");
    let deadline = Instant::now() + LIMIT;
    let wait_for = |is_there: &dyn Fn() -> Result<bool>| -> Result<()> {
        while !is_there()? {
            ensure!(Instant::now() < deadline, "in vain; sexton's log ends:\n{}", agent.log_end());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    };
    wait_for(&|| Ok(windows()? > 0.0))?;
    let first = cycles()?;
    wait_for(&|| Ok(cycles()? >= first + CYCLES))?;
    let (windows, reads) = (windows()?, metric("sexton_block_reads_total{target=\"host\"}")?);
    println!("{windows} windows in {CYCLES} cycles with {reads} block reads");
    // A hundred a cycle would be 20 ms/s.
    ensure!(reads > 100.0 * CYCLES, "nothing was read: this run shows nothing");
    ensure!(windows <= WINDOWS_MAX, "windows on a service that only gets");
    agent.stop()?;
    program.end()
}
