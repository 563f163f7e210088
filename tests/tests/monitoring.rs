//! What an operator is shown and told: alerts with their pages, the dashboard, the metrics, against a real
//! Prometheus that scrapes a real agent.
//!
//! Method: the rules that come with the project, with time running 300 times faster, so that ten minutes of
//! pain are two seconds. Each situation is brought about, the alert is waited for, the situation is ended,
//! and the alert has to clear. That each alert waits as long as it says, and what it says, is tested by
//! promtool (`deploy/prometheus/rules_test.yml`), and so are situations that take hours. The dashboard is
//! made by `sexton_tests::grafana`; `BLESS=1` writes it anew.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sexton_tests::agent::{self, Agent};
use sexton_tests::prometheus::{self, Prometheus};
use sexton_tests::small_disk::SmallDisk;
use sexton_tests::workload::{COLUMN_FAMILY, Start, Workload};
use sexton_tests::{artifact, grafana};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Room for the state, and little more.
const DISK_BYTES: u64 = 4 << 20;
/// Enough for tombstones that readers lose a tenth of their time to.
const KEYS: u64 = 300_000;
/// A target that is only there.
const FEW_KEYS: u64 = 1_000;
/// What every page about an alert says, in this order.
const CHAPTERS: [&str; 3] = ["## What it means", "## What to look at", "## What to do"];

fn deployed(path: &str) -> PathBuf {
    artifact::repository().join("deploy").join(path)
}

fn rules() -> Result<String> {
    let path = deployed("prometheus/rules.yml");
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// What follows `mark` on the lines of a text that have it.
fn named<'text>(text: &'text str, mark: &str) -> BTreeSet<&'text str> {
    text.lines().filter_map(|line| Some(line.split_once(mark)?.1.trim())).collect()
}

#[test]
fn every_alert_has_a_page_and_tests_in_which_it_fires_and_is_quiet() -> Result<()> {
    let rules = rules()?;
    let alerts = named(&rules, "- alert: ");
    ensure!(alerts.len() > 10, "only {} alerts", alerts.len());
    let mut pages = BTreeSet::new();
    for entry in std::fs::read_dir(deployed("runbooks"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let places: Vec<_> = CHAPTERS.iter().map(|chapter| text.find(&format!("\n{chapter}\n"))).collect();
        ensure!(
            places.iter().all(Option::is_some) && places.is_sorted(),
            "{name}: the chapters are {CHAPTERS:?}"
        );
        ensure!(text.starts_with(&format!("# {name}\n")), "{name}: the title is another one");
        for linked in named(&text, "](").iter().filter_map(|rest| rest.split_once(')')).map(|(path, _)| path)
        {
            ensure!(deployed("runbooks").join(linked).is_file(), "{name}: no page {linked}");
        }
        pages.insert(name);
    }
    ensure!(
        pages.iter().map(String::as_str).eq(alerts.iter().copied()),
        "alerts {alerts:?}, pages {pages:?}"
    );
    let linked = named(&rules, "runbook: deploy/runbooks/");
    let expected: Vec<String> = alerts.iter().map(|alert| format!("{alert}.md")).collect();
    ensure!(linked.iter().copied().eq(expected.iter().map(String::as_str)), "{linked:?}");

    let tests = std::fs::read_to_string(deployed("prometheus/rules_test.yml"))?;
    for alert in alerts {
        let cases: Vec<&str> = tests.split(&format!("alertname: {alert}\n")).skip(1).collect();
        let quiet = cases.iter().filter(|case| case.trim_start().starts_with("exp_alerts: []")).count();
        ensure!(quiet > 0 && quiet < cases.len(), "{alert}: {quiet} of {} cases are quiet", cases.len());
    }
    Ok(())
}

#[test]
fn the_dashboard_is_up_to_date() -> Result<()> {
    let path = deployed("grafana/sexton.json");
    let wanted = serde_json::to_string_pretty(&grafana::dashboard())? + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(deployed("grafana"))?;
        std::fs::write(&path, &wanted)?;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    ensure!(committed == wanted, "run this test with BLESS=1 and commit {}", path.display());
    Ok(())
}

/// What changes in the policy from one situation to the next.
#[derive(Clone, Copy)]
struct Situation<'a> {
    directory: &'a Path,
    queue: u32,
    queue_mode: &'a str,
    hookless_mode: &'a str,
    /// Reader time that a job has to relieve.
    pain: &'a str,
    /// The program that sets the queue's throttle.
    throttle: &'a str,
}

impl Situation<'_> {
    fn policy(&self) -> String {
        let Situation { directory, queue, queue_mode, hookless_mode, pain, throttle } = self;
        format!(
            r#"mode: advise
targets:
  - name: queue
    match: {{ pid: {queue} }}
    mode: {queue_mode}
    executor: hook
    remedies: [compact]
    column_families:
      - name: {COLUMN_FAMILY}
        prefix: {{ delimiter: "/", count: 3 }}
    throttles:
      - {{ name: limit, inside: "1", outside: "2", command: ["{throttle}", "{{value}}"] }}
  - name: hookless
    match: {{ command_line: "{directory}/hookless" }}
    mode: {hookless_mode}
    executor: hook
thresholds: {{ tombstones_per_operation: 100, block_reads_per_operation: 64, pain: {pain}, density: 0.0 }}
margin: {{ benefit_cost_ratio_min: 0 }}
loop: {{ interval: 500ms, window: 300ms, survey: 500ms }}
probes: {{ budget: 50% }}
io_budget: {{ rate: 1GiB/s, burst: 100GiB }}
cooldown: 1s
guards: {{ process_uptime_min: 0s }}
"#,
            directory = directory.display()
        )
    }

    /// Puts it in force while the agent runs.
    fn set(&self) -> Result<()> {
        Ok(std::fs::write(self.directory.join("policy.yaml"), self.policy())?)
    }
}

fn queue(directory: &Path) -> Result<Workload> {
    let hook = artifact::built("libsexton_hook.so")?;
    let directory = directory.join("queue");
    let start = Start {
        directory: &directory,
        keys: KEYS,
        seconds: 600,
        preload: Some(&hook),
        stderr: Stdio::inherit(),
    };
    let arguments = ["--disable-auto-compactions", "--write-buffer-bytes=4194304"];
    let mut workload = Workload::start_with(start, &arguments, &[])?;
    workload.second(LIMIT)?;
    Ok(workload)
}

/// A target without a hook: nobody preloaded it, and a native process cannot be attached to.
fn hookless(directory: &Path) -> Result<Workload> {
    let directory = directory.join("hookless");
    let start = Start {
        directory: &directory,
        keys: FEW_KEYS,
        seconds: 600,
        preload: None,
        stderr: Stdio::inherit(),
    };
    let mut workload = Workload::start(start)?;
    workload.second(LIMIT)?;
    Ok(workload)
}

/// Each expression of the dashboard is one, and all but those that ask for what did not happen give
/// something.
fn answer_the_dashboard(prometheus: &Prometheus) -> Result<()> {
    const MAY_BE_EMPTY: [&str; 2] = ["Actions that ended", "Guards that object"];
    let annotation = ("Actions that ended", grafana::ANNOTATION);
    for (title, expression) in grafana::expressions().chain([annotation]) {
        let expression = expression
            .replace("$instance", ".*")
            .replace("$target", ".*")
            .replace("$__rate_interval", "5s")
            .replace("$__interval", "5s");
        let series = prometheus.query(&expression)?;
        ensure!(!series.is_empty() || MAY_BE_EMPTY.contains(&title), "{title}: nothing from {expression}");
    }
    Ok(())
}

/// `promtool check metrics` has nothing to say.
fn lint_metrics(agent: &Agent) -> Result<()> {
    let mut command = Command::new(prometheus::program("promtool")?);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("starting promtool")?;
    child.stdin.take().context("no standard input")?.write_all(agent.metrics()?.as_bytes())?;
    let output = child.wait_with_output()?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.trim().is_empty(), "promtool check metrics: {said}");
    Ok(())
}

#[test]
fn alerts_fire_in_their_situations_and_clear_and_the_dashboard_has_data() -> Result<()> {
    let _alone = agent::exclusively()?;
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let disk = SmallDisk::mount(&directory.join("state"), DISK_BYTES)?;
    let queue = queue(directory)?;
    let mut bare = hookless(directory)?;
    let advising = Situation {
        directory,
        queue: queue.process.pid(),
        queue_mode: "advise",
        hookless_mode: "act",
        pain: "1ms/s",
        throttle: "true",
    };
    let agent = Agent::start(directory, &advising.policy())?;
    let prometheus = Prometheus::start(&directory.join("prometheus"), agent.address, &rules()?)?;
    prometheus.until_firing(LIMIT, "SextonSeekPainHigh", "queue")?;
    prometheus.until_firing(LIMIT, "SextonExecutorSilent", "hookless")?;
    lint_metrics(&agent)?;
    answer_the_dashboard(&prometheus)?;

    // It may act, finds nothing worth it, and cannot set its throttle.
    let refusing = Situation {
        queue_mode: "act",
        hookless_mode: "observe",
        pain: "100s/s",
        throttle: "false",
        ..advising
    };
    refusing.set()?;
    prometheus.until_clear(LIMIT, "SextonSeekPainHigh", "queue")?;
    prometheus.until_clear(LIMIT, "SextonExecutorSilent", "hookless")?;
    prometheus.until_firing(LIMIT, "SextonThrottleFailing", "queue")?;
    prometheus.until_firing(LIMIT, "SextonPlanRefused", "queue")?;
    Situation { queue_mode: "act", hookless_mode: "observe", ..advising }.set()?;
    prometheus.until_clear(LIMIT, "SextonPlanRefused", "queue")?;

    std::fs::write(directory.join("policy.yaml"), "mode: sometimes\n")?;
    disk.fill()?;
    prometheus.until_firing(LIMIT, "SextonPolicyInvalid", "")?;
    prometheus.until_firing(LIMIT, "SextonStateNotWritable", "")?;
    disk.empty()?;
    Situation { hookless_mode: "observe", ..advising }.set()?;
    prometheus.until_clear(LIMIT, "SextonPolicyInvalid", "")?;
    prometheus.until_clear(LIMIT, "SextonStateNotWritable", "")?;

    queue.process.signal(Signal::STOP)?;
    prometheus.until_firing(LIMIT, "SextonTargetUnresponsive", "queue")?;
    queue.process.signal(Signal::CONT)?;
    prometheus.until_clear(LIMIT, "SextonTargetUnresponsive", "queue")?;

    bare.process.signal(Signal::KILL)?;
    bare.process.wait(LIMIT)?;
    std::fs::remove_dir_all(directory.join("hookless"))?;
    prometheus.until_firing(LIMIT, "SextonTargetLost", "hookless")?;
    let _again = hookless(directory)?;
    prometheus.until_clear(LIMIT, "SextonTargetLost", "hookless")?;

    agent.process.signal(Signal::STOP)?;
    prometheus.until_firing(LIMIT, "SextonAgentDown", "")?;
    agent.process.signal(Signal::CONT)?;
    prometheus.until_clear(LIMIT, "SextonAgentDown", "")?;
    prometheus.until_clear(LIMIT, "SextonThrottleFailing", "queue")?;
    agent.stop()
}
