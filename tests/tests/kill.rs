//! An agent that is killed leaves nothing behind, and its target does not notice.
//!
//! Method: `kill -9` while a window is open, with `bpftool` as the witness of what is in the kernel and
//! the queue workload's own report as the witness of its progress.

use anyhow::{Result, ensure};
use sexton_tests::agent::{self, Observer};
use sexton_tests::bpf_objects::BpfObjects;
use sexton_tests::machine;
use sexton_tests::workload::{Start, Workload};
use std::process::Stdio;
use std::time::Duration;

/// The kernel frees programs a grace period after their last descriptor.
const GONE_LIMIT: Duration = Duration::from_secs(5);
const SECOND_LIMIT: Duration = Duration::from_secs(30);

#[test]
fn killing_the_agent_in_an_open_window_leaves_nothing_on_any_kernel() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let mut workload = Workload::start(Start {
        directory: &directory.path().join("db"),
        keys: 200_000 / machine::slowness()?,
        seconds: 120,
        preload: None,
        stderr: Stdio::inherit(),
    })?;
    workload.second(SECOND_LIMIT)?;
    let before = BpfObjects::now()?;

    let observer = Observer::start(workload.process.pid(), 100, &[])?;
    let armed = BpfObjects::now()?.since(&before);
    ensure!(!armed.programs.is_empty(), "no program named sexton_* is loaded while the window is open");
    // Before Linux 5.15 perf events were no links.
    let has_links = machine::kernel_version()? >= [5, 15, 0];
    ensure!(armed.links.is_empty() != has_links, "not the links of an open window: {armed:?}");
    ensure!(!armed.maps.is_empty(), "such a program uses no map while the window is open");
    // The window is in use when the agent dies, not only open.
    ensure!(!workload.second(SECOND_LIMIT)?.list_latencies_ns.is_empty(), "the target lists nothing");
    // Dropping the process is `kill -9` of its pid.
    drop(observer);
    armed.wait_gone(GONE_LIMIT)?;

    for _ in 0..3 {
        let second = workload.second(SECOND_LIMIT)?;
        ensure!(second.creates > 0 && second.deletes > 0, "the target has stopped writing: {second:?}");
        ensure!(!second.list_latencies_ns.is_empty(), "the target has stopped listing: {second:?}");
    }
    ensure!(workload.process.is_running()?, "the target has ended");
    Ok(())
}
