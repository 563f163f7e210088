//! What is said of each database of a process that has several, and of one whose files are gone.
//!
//! Method: a Python program on Debian's RocksDB lists four of its nine databases in turn: one ten times as
//! often as the others, one whose tombstones are in its memtable, one with an Env of its own. `sexton plan`
//! is asked; then the directories are deleted under the program, which lists on, and it is asked again.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, list, number, text};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Filling the databases takes a second here.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// One thread that does nothing but wait loses a second a second; the rest is what a window's ends can do.
const LOST_BY_ONE_THREAD_MAX: f64 = 1.5;
/// Of ten lists to one; a window can begin and end in a round.
const TIMES_AS_MUCH: std::ops::Range<f64> = 5.0..20.0;
const POLICY: &str = "\
mode: advise
thresholds: { pain: 100us/s }
probes: { budget: 50% }
loop: { window: 2s }
keys: shown
";

fn start(directory: &Path) -> Result<(Process, Lines)> {
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.arg(artifact::repository().join("tests/python/list_in_turn.py")).arg(directory);
    command.arg(artifact::debian_rocksdb()?).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process::start(command)?;
    let mut lines = Lines::of("python3", process.take_stdout().context("no standard output")?);
    lines.until(READY_LIMIT, |line| line == "ready").context("waiting for the databases to be filled")?;
    Ok((process, lines))
}

fn plan(directory: &Path, pid: u32, extra: &[&str]) -> Result<String> {
    let pid = pid.to_string();
    let arguments = [&["plan", "--once", "--policy", "policy.yaml", "--pid", &pid], extra].concat();
    let output = agent::output(directory, &arguments)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "sexton plan ended with {}: {stderr}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn plan_json(directory: &Path, pid: u32) -> Result<Value> {
    let printed = plan(directory, pid, &["--json"])?;
    serde_json::from_str(&printed).with_context(|| format!("no JSON: {printed}"))
}

/// Ranges of the database with this name.
fn ranges_of<'a>(plan: &'a Value, name: &str) -> Result<Vec<&'a Value>> {
    let is_it = |range: &&Value| text(range, "/database").ends_with(&format!("/{name}"));
    Ok(list(plan, "ranges")?.iter().filter(is_it).collect())
}

fn pain_of(plan: &Value, name: &str) -> Result<f64> {
    let ranges = ranges_of(plan, name)?;
    ranges.iter().map(|range| number(range, "/pain_seconds_per_second")).sum()
}

fn refusals(plan: &Value, rule: &str) -> Vec<String> {
    let refusals = plan.pointer("/plan/refusals").and_then(Value::as_array).cloned().unwrap_or_default();
    let of_rule = refusals.iter().filter(|refusal| text(refusal, "/rule") == rule);
    of_rule.map(|refusal| text(refusal, "/reason").to_owned()).collect()
}

#[test]
fn each_database_is_charged_its_own_and_one_without_files_is_shown() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let databases = directory.path().join("databases");
    std::fs::create_dir(&databases)?;
    std::fs::write(directory.path().join("policy.yaml"), POLICY)?;
    let (process, _lines) = start(&databases)?;

    let seen = plan_json(directory.path(), process.pid())?;
    let (often, rare, fresh) = (pain_of(&seen, "often")?, pain_of(&seen, "rare")?, pain_of(&seen, "fresh")?);
    let own = pain_of(&seen, "own")?;
    println!("lost a second: often {often:.4} s, rare {rare:.4} s, fresh {fresh:.4} s, own {own:.4} s");
    ensure!(TIMES_AS_MUCH.contains(&(often / rare)), "listed ten times as often: {often} and {rare}: {seen}");
    ensure!(often + rare + fresh + own < LOST_BY_ONE_THREAD_MAX, "one thread cannot wait so long: {seen}");
    ensure!(ranges_of(&seen, "idle0")?.is_empty(), "nobody reads it: {seen}");

    // No hook is there to be asked what memtables hold.
    let in_memtable = ranges_of(&seen, "fresh")?;
    let range = in_memtable.first().context("the range of fresh")?;
    let skipped = number(range, "/tombstones_per_seek")?;
    let unexplained = number(range, "/unexplained_tombstones_per_seek")?;
    ensure!(skipped > 9_000.0 && unexplained > skipped * 0.9, "explained by what: {range}");
    ensure!(
        !refusals(&seen, "unexplained").is_empty(),
        "it is acted on, or refused for something else: {seen}"
    );
    let worst = list(&seen, "ranges")?.first().context("no range")?;
    ensure!(!text(worst, "/database").ends_with("/fresh"), "a range without deletions comes first: {seen}");

    // No file of it shows in the process, and it is the only one of which none is seen.
    let of_own = ranges_of(&seen, "own")?;
    ensure!(own > 0.0 && !of_own.is_empty(), "readers wait in it: {seen}");
    ensure!(of_own.iter().all(|range| range.pointer("/cost_bytes").is_some_and(Value::is_null)), "{seen}");
    ensure!(
        refusals(&seen, "files_not_seen").len() == of_own.len(),
        "nobody says why nothing is done: {seen}"
    );

    std::fs::remove_dir_all(&databases)?;
    let blind = plan_json(directory.path(), process.pid())?;
    let pain = number(&blind, "/targets/0/pain_seconds_per_second")?;
    println!("lost a second without files: {pain:.4} s");
    ensure!(pain > rare, "readers wait as before: {blind}");
    let (often, rare) = (pain_of(&blind, "often")?, pain_of(&blind, "rare")?);
    ensure!(TIMES_AS_MUCH.contains(&(often / rare)), "by database, as before: {often} and {rare}: {blind}");
    for range in list(&blind, "ranges")? {
        ensure!(range.pointer("/cost_bytes").is_some_and(Value::is_null), "a cost of files unseen: {range}");
        ensure!(text(range, "/reason").contains("cannot be seen"), "{range}");
    }
    ensure!(!refusals(&blind, "files_not_seen").is_empty(), "nobody says why nothing is done: {blind}");
    let steps = blind.pointer("/plan/steps").and_then(Value::as_array).context("no steps")?;
    ensure!(steps.is_empty(), "a plan for files that nobody sees: {blind}");
    let printed = plan(directory.path(), process.pid(), &[])?;
    ensure!(printed.contains("(files_not_seen)") && printed.contains("is not known"), "{printed}");
    Ok(())
}
