//! Older versions of keys, merge operands and seeks behind range tombstones are counted exactly, and what a
//! compaction drops of them is compacted.
//!
//! Method: a Python program calls RocksDB's C API, lists keys that were overwritten, merged and deleted
//! by ranges, and prints what RocksDB's perf context counted, and how many older versions it has written
//! on the way. Another one holds a snapshot of keys that it has overwritten since, and gives it back when an
//! agent in mode `act` has refused to compact them.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Agent, Observer, count, list, number, text};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use sexton_tests::python_readers;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The window is closed when the program has read; this is for a program that does not.
const WINDOW_SECONDS: u64 = 300;
const LIMIT: Duration = Duration::from_secs(60);

/// A file of this RocksJava is read beside Debian's library, whose counts stand elsewhere.
const JAVA_VERSION: &str = "11.8.1";

/// A list skips at least so many times fewer keys once the versions between those that it sees are gone.
const HEALED_FACTOR: f64 = 2.0;

#[test]
fn what_lists_step_over_beside_tombstones() -> Result<()> {
    let _turn = agent::beside_others()?;
    let unpacked = tempfile::tempdir()?;
    for library in [artifact::debian_rocksdb()?, python_readers::java_library(JAVA_VERSION, unpacked.path())?]
    {
        counted_exactly(&library).with_context(|| library.display().to_string())?;
    }
    Ok(())
}

fn counted_exactly(library: &Path) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.arg(artifact::repository().join("tests/python/old_versions.py"));
    command.arg(library).arg(directory.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Process::start(command)?;
    let mut stdin = program.take_stdin().context("no standard input")?;
    let mut lines = Lines::of("python3", program.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |line| line == "ready").context("waiting for the database")?;
    let observer = Observer::start(program.pid(), WINDOW_SECONDS, &["--tombstones-per-operation", "0"])?;
    writeln!(stdin, "go")?;
    let counted = lines.until(LIMIT, |line| line.starts_with("counted "))?;
    let observed = observer.close(LIMIT)?;
    drop(stdin);
    ensure!(program.wait(LIMIT)?.success(), "the program failed");

    let counted: Vec<u64> = counted.split(' ').skip(1).map(str::parse).collect::<Result<_, _>>()?;
    let [deletes, keys, merges, reseeks, operations, old_versions] = counted.as_slice() else {
        anyhow::bail!("{counted:?}");
    };
    for (name, truth) in [
        ("tombstones_skipped", deletes),
        ("keys_skipped", keys),
        ("merge_operands", merges),
        ("range_deletion_reseeks", reseeks),
    ] {
        for of in ["total", "attributed", "recorded"] {
            let seen = count(&observed, &format!("/{of}/{name}"))?;
            ensure!(seen == *truth, "{of} {name}: {seen} of {truth}; {observed}");
        }
    }
    ensure!(*merges > 0 && *reseeks > 0 && *old_versions > 0, "this run shows nothing: {counted:?}");
    let observations = list(&observed, "observations")?;
    ensure!(observations.len() as u64 == *operations, "{operations} operations: {observed}");
    let seen: u64 = observations.iter().map(|seen| count(seen, "/old_versions")).sum::<Result<u64>>()?;
    ensure!(seen == *old_versions, "{seen} of {old_versions} older versions: {observed}");
    Ok(())
}

/// Goal: nothing is written for versions that a snapshot keeps, and they are dropped when it was given back.
#[test]
fn older_versions_are_compacted_once_no_snapshot_keeps_them() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(artifact::installed("python3", "python3")?);
    command.arg(artifact::repository().join("tests/python/overwritten.py"));
    command.arg(directory.path()).arg(artifact::debian_rocksdb()?);
    // Python opens libraries so that others cannot use them; loaded before, RocksDB is there for the hook.
    let libraries = [artifact::built("libsexton_hook.so")?, artifact::debian_rocksdb()?];
    command.env("LD_PRELOAD", libraries.map(|library| library.display().to_string()).join(":"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Process::start(command)?;
    let mut stdin = program.take_stdin().context("no standard input")?;
    let mut lines = Lines::of("python3", program.take_stdout().context("no standard output")?);
    lines.until(LIMIT, |line| line == "ready").context("waiting for the database")?;
    let mut said = |word: &str, answer: &str| -> Result<String> {
        writeln!(stdin, "{word}").context("telling the program what to do")?;
        lines.until(LIMIT, |line| line.starts_with(answer))
    };
    let policy = format!(
        "mode: act\ntargets: [{{ name: host, match: {{ pid: {} }}, executor: hook, remedies: [compact] }}]\n\
         loop: {{ interval: 1s, window: 300ms }}\nprobes: {{ budget: 50% }}\nthresholds: {{ pain: 1ms/s }}\n\
         margin: {{ benefit_cost_ratio_min: 0 }}\nguards: {{ process_uptime_min: 0s, disk_free_min: 1MiB }}\n",
        program.pid()
    );
    let state = directory.path().join("agent");
    std::fs::create_dir(&state)?;
    let mut agent = Agent::start(&state, &policy)?;
    let refusal = agent.wait_for(LIMIT, "a refusal", |agent| {
        let plan = agent.get("/api/v1/plan")?;
        let refusals = list(&plan["plan"], "refusals")?.clone();
        Ok(refusals.into_iter().find(|refusal| text(refusal, "/rule") == "pinned_by_snapshot"))
    })?;
    println!("{}", text(&refusal, "/reason"));
    let begun =
        |agent: &Agent| Ok::<_, anyhow::Error>(list(&agent.get("/api/v1/actions")?, "actions")?.clone());
    ensure!(begun(&agent)?.is_empty(), "something was done for what a snapshot keeps");
    said("release", "release")?;
    let before = skipped_per_list(&mut said)?;
    let helped = agent.wait_for(LIMIT, "an action that helped", |agent| {
        Ok(begun(agent)?.into_iter().find(|action| text(action, "/state") == "helped"))
    })?;
    let after = skipped_per_list(&mut said)?;
    println!("a list skipped {before} keys, and now {after}: {}", text(&helped, "/reason"));
    ensure!(after * HEALED_FACTOR <= before, "{before} keys skipped by a list, and then {after}: {helped}");
    ensure!(text(&helped, "/reason").contains("older versions"), "{helped}");
    ensure!(number(&helped, "/relief_delivered")? > 0.0, "{helped}");
    agent.stop()?;
    drop(stdin);
    ensure!(program.wait(LIMIT)?.success(), "the program failed");
    Ok(())
}

/// Keys that a list skips, over some of them.
fn skipped_per_list(said: &mut impl FnMut(&str, &str) -> Result<String>) -> Result<f64> {
    let mut now = || -> Result<[f64; 2]> {
        let line = said("say", "said ")?;
        let numbers: Vec<f64> = line.split(' ').skip(1).map(str::parse).collect::<Result<_, _>>()?;
        numbers.try_into().map_err(|_| anyhow::anyhow!("{line:?}"))
    };
    let first = now()?;
    loop {
        let later = now()?;
        // The first of them may have begun before.
        if later[0] >= first[0] + 4.0 {
            return Ok((later[1] - first[1]) / (later[0] - first[0]));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
