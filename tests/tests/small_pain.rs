//! Much pain in small operations is seen, and none is looked for where nobody moves an iterator.
//!
//! Method: a Python program on Debian's RocksDB lists five keys of one of a thousand prefixes at random,
//! over 500 tombstones each time. What `sexton plan` says its readers lose is held against what the program
//! has measured around its calls. Then it only gets, past the block cache, and the agent's windows are
//! counted.

use anyhow::{Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, number};
use sexton_tests::small_lists::{SmallLists, TOMBSTONES, lists_per_second};
use std::path::Path;
use std::time::{Duration, Instant};

/// The greatest error of what a list is said to lose. The probes' own time is in what the agent measures.
const ERROR_MAX: f64 = 0.2;
/// Lists are fewer while they are probed, and the machine may be busy just then: the tombstones that are
/// seen are held against the sentinel's by `unrecorded`.
const SHARE_SEEN: std::ops::Range<f64> = 0.4..1.6;
/// How long the program measures what its lists lose, without probes.
const MEASURED: Duration = Duration::from_secs(1);
/// Cycles in which a service that only gets is to be left alone.
const CYCLES: f64 = 8.0;
/// Windows that it takes to find out that nobody moves an iterator.
const WINDOWS_MAX: f64 = 2.0;
const LIMIT: Duration = Duration::from_secs(60);

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

#[test]
fn many_small_operations_are_seen_with_their_pain() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let mut program = SmallLists::start(directory.path())?;
    program.go("list")?;
    let begun = program.say()?;
    std::thread::sleep(MEASURED);
    let before = program.say()?;
    let seen = plan(directory.path(), program.pid())?;
    let after = program.say()?;
    let (of_list, rate) = (program.lost_per_list(begun, before), lists_per_second(before, after));
    let pain = number(&seen, "/targets/0/pain_seconds_per_second")?;
    let unrecorded = number(&seen, "/targets/0/unplaced/unrecorded_seconds_per_second")?;
    let seen_of_list = number(&seen, "/targets/0/costs/seconds_per_tombstone")? * TOMBSTONES as f64;
    let lists = pain / seen_of_list;
    println!(
        "{rate:.0} lists a second lose {:.1} us each, {:.3} s; seen: {lists:.0} of {:.1} us, {pain:.3} s, and {unrecorded:.3} s in \
         no record",
        of_list * 1e6,
        of_list * rate,
        seen_of_list * 1e6
    );
    ensure!((seen_of_list / of_list - 1.0).abs() <= ERROR_MAX, "a list loses {of_list}: {seen}");
    ensure!(SHARE_SEEN.contains(&(lists / rate)), "{rate} lists a second, {lists} are seen: {seen}");
    ensure!(unrecorded <= pain * ERROR_MAX, "a sample stands for all of them: {seen}");
    program.end()
}

#[test]
fn a_service_that_only_gets_pays_for_no_windows() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let mut program = SmallLists::start(directory.path())?;
    program.go("get")?;
    let policy = format!(
        "mode: advise\ntargets: [{{ name: host, match: {{ pid: {} }} }}]\n\
         probes: {{ budget: 100% }}\nloop: {{ interval: 500ms, window: 200ms, survey: 1h }}\n",
        program.pid()
    );
    let agent_directory = directory.path().join("agent");
    std::fs::create_dir(&agent_directory)?;
    let agent = Agent::start(&agent_directory, &policy)?;
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
