//! Compactions give way: the I/O priority of the threads that compact is a throttle like any other.
//!
//! Method: a real program on RocksDB, and the command as a policy's throttle calls it. What a thread has is
//! read with `ionice`, not from what Sexton says.

use anyhow::{Context, Result, ensure};
use sexton_tests::agent::{self, Agent};
use sexton_tests::artifact;
use sexton_tests::process::threads_named;
use sexton_tests::workload::Workload;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The I/O priorities of a process' threads whose names begin so, as `ionice` prints them.
fn io_priorities(pid: u32, name: &str) -> Result<Vec<String>> {
    let mut priorities = Vec::new();
    for thread in threads_named(pid, name)? {
        let mut command = Command::new(artifact::installed("ionice", "util-linux")?);
        let id = thread.file_name().context("a thread without an id")?;
        let output = command.arg("-p").arg(id).output()?;
        priorities.push(String::from_utf8(output.stdout)?.trim().to_owned());
    }
    priorities.sort();
    priorities.dedup();
    Ok(priorities)
}

fn policy(pid: u32, sexton: &Path) -> String {
    let sexton = sexton.display();
    format!(
        r#"mode: act
targets:
  - name: queue
    match: {{ pid: {pid} }}
    throttles:
      - name: compaction_io_priority
        inside: "4"
        outside: "7"
        command: ["{sexton}", thread-priority, io, --pid, "{{pid}}", --threads, "rocksdb:low*", "{{value}}"]
        get: ["{sexton}", thread-priority, io, --pid, "{{pid}}", --threads, "rocksdb:low*"]
loop: {{ interval: 200ms, window: 100ms, survey: 600s }}
"#
    )
}

#[test]
fn the_threads_that_compact_have_the_wanted_io_priority_and_get_theirs_back() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    // A policy's commands have no capability, and whoever has none may not touch what has some.
    let workload = Workload::small_without_capabilities(&directory.path().join("db"))?;
    let pid = workload.process.pid();
    let before = io_priorities(pid, "rocksdb:low")?;
    let others = io_priorities(pid, "rocksdb:high")?;
    ensure!(before.len() == 1 && before != ["best-effort: prio 7"], "{before:?}");

    let policy = policy(pid, &artifact::built("sexton")?);
    let mut agent = Agent::start(directory.path(), &policy)?;
    agent.wait_for(LIMIT, "the wanted priority", |_| {
        Ok((io_priorities(pid, "rocksdb:low")? == ["best-effort: prio 7"]).then_some(()))
    })?;
    ensure!(io_priorities(pid, "rocksdb:high")? == others, "threads that flush were changed too");
    agent.stop()?;
    ensure!(io_priorities(pid, "rocksdb:low")? == before, "the agent has left another priority");
    Ok(())
}

#[test]
fn nicenesses_are_shown_and_raised_and_what_cannot_be_done_is_said() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let workload = Workload::small(&directory.path().join("db"))?;
    let pid = workload.process.pid().to_string();
    let run = |arguments: &[&str]| {
        let common = ["thread-priority", "nice", "--pid", &pid, "--threads"];
        let output = agent::output(directory.path(), &[&common[..], arguments].concat())?;
        let said = if output.status.success() { output.stdout } else { output.stderr };
        Ok::<String, anyhow::Error>(String::from_utf8(said)?.trim().to_owned())
    };
    let before: i32 = run(&["rocksdb:low*"])?.parse().context("a niceness")?;
    let nicer = (before + 3).min(19).to_string();
    ensure!(run(&["rocksdb:low*", &nicer])? == nicer);
    ensure!(run(&["rocksdb:*"])? == format!("{before} {nicer}"), "{}", run(&["rocksdb:*"])?);
    let refused = run(&["no such thread"])?;
    ensure!(
        refused.contains("no thread is named no such thread") && refused.contains("rocksdb:low"),
        "{refused}"
    );
    Ok(())
}
