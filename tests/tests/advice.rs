//! What real databases are used for is told rightly, while they are used.
//!
//! Method: nine programs use a RocksDB each, all at the same time, in ways that are known: `workload_host`.
//! An agent looks at them as at any process. What it advises is asked for by its API and by `sexton advise`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sexton_tests::agent::{self, Agent, list, text};
use sexton_tests::artifact;
use sexton_tests::process::{Lines, Process};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

/// How each is used, and what it is to be told for.
const USES: [(&str, &str); 9] = [
    ("write_only", "write_only"),
    ("overwrite", "overwrite"),
    ("read_mostly_few_updates", "read_mostly_few_updates"),
    ("read_mostly_many_updates", "read_mostly_many_updates"),
    ("time_series", "time_series"),
    ("time_series_by_prefix", "time_series"),
    ("queue", "queue"),
    ("monotonic_log", "monotonic_log"),
    ("insert_and_delete", "insert_and_delete"),
];

/// The one whose files lie behind each other, and whose old ones go: only there may the oldest be dropped.
const DROPPED_BY_AGE: &str = "time_series";

/// Files are flushed every second or two, and several are wanted; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);

/// Looks after which all are still told for the same.
const LOOKS_MORE: u64 = 2;

/// A program that uses a database until it is dropped.
struct Host {
    used_for: &'static str,
    process: Process,
    _stdin: ChildStdin,
    _lines: Lines,
}

impl Host {
    fn start(directory: &Path, used_for: &'static str) -> Result<Host> {
        let mut command = Command::new(artifact::built("sexton-workload-host")?);
        command.arg("--directory").arg(directory.join(used_for)).arg(format!("--use={used_for}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command)?;
        let stdin = process.take_stdin().context("no standard input")?;
        let mut lines =
            Lines::of("sexton-workload-host", process.take_stdout().context("no standard output")?);
        lines.until(LIMIT, |line| line == "ready").context("waiting for the database")?;
        Ok(Host { used_for, process, _stdin: stdin, _lines: lines })
    }
}

/// Advice on the database of a host, if there is any.
fn of_host<'a>(all: &'a [Value], host: &Host) -> Option<&'a Value> {
    all.iter().find(|advice| text(advice, "/target").ends_with(&format!("-{}", host.process.pid())))
}

/// No database whose data is not ordered by time is to be compacted by age.
fn check_fifo(all: &[Value], hosts: &[Host]) -> Result<()> {
    for host in hosts.iter().filter(|host| host.used_for != DROPPED_BY_AGE) {
        let advised = of_host(all, host).map_or("", |advice| text(advice, "/recommendation/strategy"));
        ensure!(advised != "fifo_with_ttl", "FIFO is advised to {}: {all:?}", host.used_for);
    }
    Ok(())
}

fn misnamed(all: &[Value], hosts: &[Host]) -> Vec<String> {
    let named = hosts.iter().zip(USES).filter_map(|(host, (_, wanted))| {
        let advice = of_host(all, host);
        let found = advice.map_or("nothing", |advice| text(advice, "/workload"));
        (found != wanted)
            .then(|| format!("{}: {}", host.used_for, advice.map_or("nothing", |it| text(it, "/workload"))))
    });
    named.collect()
}

#[test]
fn each_workload_is_named_and_fifo_is_kept_for_data_in_the_order_of_time() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let hosts = USES.iter().map(|(used_for, _)| Host::start(directory.path(), used_for));
    let hosts = hosts.collect::<Result<Vec<Host>>>()?;
    let targets: Vec<String> = hosts
        .iter()
        .map(|host| format!("  - {{ name: {}, match: {{ pid: {} }} }}", host.used_for, host.process.pid()))
        .collect();
    let policy = format!(
        "mode: advise\nkeys: redacted\nloop: {{ interval: 150ms, window: 100ms, survey: 2s }}\ntargets:\n{}\n",
        targets.join("\n")
    );
    let place = directory.path().join("agent");
    std::fs::create_dir(&place)?;
    let mut agent = Agent::start(&place, &policy)?;

    let mut missing = Vec::new();
    let named = agent.wait_for(LIMIT, "all workloads to be named", |agent| {
        let answer = agent.get("/api/v1/advice")?;
        let all = list(&answer, "advice")?;
        check_fifo(all, &hosts)?;
        missing = misnamed(all, &hosts);
        Ok(missing.is_empty().then(|| all.to_vec()))
    });
    let named = named.with_context(|| format!("still to be named: {missing:?}"))?;
    for advice in &named {
        println!("{} {}", text(advice, "/target"), advice.pointer("/because").unwrap_or(&Value::Null));
    }

    // They stay so.
    let watched = |all: &[Value]| {
        all.iter().filter_map(|it| it.pointer("/figures/watched_seconds")?.as_f64()).sum::<f64>()
    };
    let until = watched(&named) + (2 * LOOKS_MORE * USES.len() as u64) as f64;
    let later = agent.wait_for(LIMIT, "further looks", |agent| {
        let answer = agent.get("/api/v1/advice")?;
        let all = list(&answer, "advice")?;
        check_fifo(all, &hosts)?;
        Ok((watched(all) >= until).then(|| all.to_vec()))
    })?;
    ensure!(
        misnamed(&later, &hosts).is_empty(),
        "{:?} are named otherwise later: {later:?}",
        misnamed(&later, &hosts)
    );
    let by_age = hosts.iter().find(|host| host.used_for == DROPPED_BY_AGE).context("no time series")?;
    let by_age = of_host(&later, by_age).context("nothing is said of it")?;
    ensure!(
        text(by_age, "/recommendation/strategy") == "fifo_with_ttl",
        "the oldest may be dropped: {by_age}"
    );
    let log = later.iter().find(|it| text(it, "/workload") == "monotonic_log").context("no log")?;
    ensure!(
        list(log, "never")?.iter().any(|never| never.as_str().is_some_and(|it| it.contains("FIFO"))),
        "{log}"
    );
    let queue = later.iter().find(|it| text(it, "/workload") == "queue").context("no queue")?;
    says_so(&place, &agent, text(queue, "/target"))?;
    agent.stop()
}

/// `sexton advise` says the same.
fn says_so(directory: &Path, agent: &Agent, queue: &str) -> Result<()> {
    let url = format!("http://{}", agent.address);
    let output = agent::output(directory, &["advise", "--url", &url, queue])?;
    let shown = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && shown.contains("default: queue"), "{output:?}");
    ensure!(
        shown.contains("CompactOnDeletionCollector") && !shown.contains("default: write-only"),
        "{shown}"
    );
    let json = agent::output(directory, &["advise", "--url", &url, "--json"])?;
    let page: Value = serde_json::from_slice(&json.stdout)?;
    ensure!(list(&page, "advice")?.len() == USES.len(), "{page}");
    let unknown = agent::output(directory, &["advise", "--url", &url, "nobody"])?;
    ensure!(!unknown.status.success(), "nobody is advised: {unknown:?}");
    Ok(())
}
