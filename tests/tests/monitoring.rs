//! What an operator is shown and told: alerts with their pages, the dashboard, the metrics, against a real
//! Prometheus that scrapes a real agent.
//!
//! Method: the rules that come with the project, with time running 300 times faster, so that ten minutes of
//! pain are two seconds. Each situation is brought about, the alert is waited for, the situation is ended,
//! and the alert has to clear. Situations that take days, or a fault of the agent's own, are made up:
//! Prometheus scrapes what an agent would show. That each alert waits as long as it says, and what it says,
//! is tested by promtool (`deploy/prometheus/rules_test.yml`). The dashboard is made by
//! `sexton_tests::grafana`; `BLESS=1` writes it anew.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sexton_tests::agent::{self, Agent};
use sexton_tests::exposition::Exposition;
use sexton_tests::prometheus::{self, Prometheus, RULES_HOUR, RULES_HOUR_SHORT};
use sexton_tests::small_disk::SmallDisk;
use sexton_tests::workload::{COLUMN_FAMILY, Start, Workload};
use sexton_tests::{artifact, grafana};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Room for the state, and little more.
const DISK_BYTES: u64 = 4 << 20;
/// Enough for tombstones that readers lose a tenth of their time to.
const KEYS: u64 = 300_000;
/// A target that is only there.
const FEW_KEYS: u64 = 1_000;
/// How long the made-up agent shows ordinary pain before it rises: a day at the shorter pace, and a little
/// more.
const ORDINARY: Duration = Duration::from_secs(32);
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
        let is_made_up = MADE_UP.iter().any(|situation| situation.alert == alert);
        let waits = ["until_firing", "until_clear"].map(|wait| format!("{wait}(LIMIT, \"{alert}\", "));
        let is_staged = waits.iter().all(|wait| include_str!("monitoring.rs").contains(wait));
        ensure!(is_made_up != is_staged, "{alert} is to be staged here, or else made up");
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
    /// Which use of its cores is no pressure, and which is full.
    cores: &'a str,
}

/// No process uses so little of its cores, or so much.
const ALWAYS_PRESSED: &str = "low: 0%, high: 0.001%";
const NEVER_PRESSED: &str = "low: 100%, high: 101%";

impl Situation<'_> {
    fn policy(&self) -> String {
        let Situation { directory, queue, queue_mode, hookless_mode, pain, throttle, cores } = self;
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
    pressure: {{ signals: [{{ name: cores, kind: core_utilization, {cores} }}] }}
    throttles:
      - {{ name: limit, inside: "1", outside: "2", command: ["{throttle}", "{{value}}"] }}
      - name: rate
        control: {{ slowest: 100, fastest: 1000, interval_min: 1s, calm: 1s }}
        command: ["true", "{{value}}"]
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

/// Each expression of the dashboard is one; gives those that nothing answers now.
fn unanswered_by_the_dashboard(prometheus: &Prometheus) -> Result<BTreeSet<(&'static str, String)>> {
    let annotation = ("Actions that ended", grafana::ANNOTATION);
    let mut unanswered = BTreeSet::new();
    for (title, expression) in grafana::expressions().chain([annotation]) {
        let expression = expression
            .replace("$instance", ".*")
            .replace("$target", ".*")
            .replace("$__rate_interval", "5s")
            .replace("$__interval", "5s");
        if prometheus.query(&expression)?.is_empty() {
            unanswered.insert((title, expression));
        }
    }
    Ok(unanswered)
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
    let _turn = agent::beside_others()?;
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
        cores: NEVER_PRESSED,
    };
    let agent = Agent::start(directory, &advising.policy())?;
    let prometheus = Prometheus::start(&directory.join("prometheus"), agent.address, &rules()?, RULES_HOUR)?;
    prometheus.until_firing(LIMIT, "SextonSeekPainHigh", "queue")?;
    prometheus.until_firing(LIMIT, "SextonExecutorSilent", "hookless")?;
    lint_metrics(&agent)?;
    let unanswered_in_pain = unanswered_by_the_dashboard(&prometheus)?;

    // It may act, finds nothing worth it, and cannot set its throttle.
    let refusing = Situation {
        queue_mode: "act",
        hookless_mode: "observe",
        pain: "100s/s",
        throttle: "false",
        cores: ALWAYS_PRESSED,
        ..advising
    };
    refusing.set()?;
    prometheus.until_clear(LIMIT, "SextonSeekPainHigh", "queue")?;
    prometheus.until_clear(LIMIT, "SextonExecutorSilent", "hookless")?;
    prometheus.until_firing(LIMIT, "SextonThrottleFailing", "queue")?;
    prometheus.until_firing(LIMIT, "SextonPlanRefused", "queue")?;
    prometheus.until_firing(LIMIT, "SextonSettingStuckAtBound", "queue")?;
    // Of a plan that refuses all, the one has refusals and the other has steps.
    let unanswered = &unanswered_in_pain & &unanswered_by_the_dashboard(&prometheus)?;
    let wanted = |(title, _): &&(&str, String)| !["Actions that ended", "Guards that object"].contains(title);
    ensure!(!unanswered.iter().any(|it| wanted(&it)), "nothing from {unanswered:?}");
    Situation { queue_mode: "act", hookless_mode: "observe", ..advising }.set()?;
    prometheus.until_clear(LIMIT, "SextonPlanRefused", "queue")?;
    prometheus.until_clear(LIMIT, "SextonSettingStuckAtBound", "queue")?;

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

/// What an agent shows in a situation that is made up, and after it; everything else is as it should be.
struct MadeUp {
    alert: &'static str,
    /// For which target; empty for the agent itself.
    subject: &'static str,
    firing: &'static str,
    /// Whether `COUNTER` grows meanwhile.
    is_growing: bool,
    quiet: &'static str,
}

const MADE_UP: &[MadeUp] = &[
    MadeUp {
        alert: "SextonPinnedBySnapshot",
        subject: "queue",
        firing: r#"sexton_plan_refusals{target="queue",rule="pinned_by_snapshot"} 2"#,
        is_growing: false,
        quiet: r#"sexton_plan_refusals{target="queue",rule="cooldown"} 2"#,
    },
    MadeUp {
        alert: "SextonReliefNotDelivered",
        subject: "queue",
        firing: "sexton_relief_promised_ratio_total{target=\"queue\"} COUNTER\n\
                 sexton_relief_delivered_ratio_total{target=\"queue\"} 1",
        is_growing: true,
        quiet: "sexton_relief_promised_ratio_total{target=\"queue\"} COUNTER\n\
                sexton_relief_delivered_ratio_total{target=\"queue\"} COUNTER",
    },
    MadeUp {
        alert: "SextonWriteStallNear",
        subject: "queue",
        firing: r#"sexton_guard_blocking{target="queue",guard="level0_files"} 1"#,
        is_growing: false,
        quiet: r#"sexton_guard_blocking{target="queue",guard="level0_files"} 0"#,
    },
    MadeUp {
        alert: "SextonTargetUnreadable",
        subject: "queue",
        firing: r#"sexton_target_readable{target="queue"} 0"#,
        is_growing: false,
        quiet: r#"sexton_target_readable{target="queue"} 1"#,
    },
    MadeUp {
        alert: "SextonActionsFailing",
        subject: "queue",
        firing: r#"sexton_actions_total{target="queue",state="failed"} COUNTER"#,
        is_growing: true,
        quiet: r#"sexton_actions_total{target="queue",state="failed"} COUNTER"#,
    },
    MadeUp {
        alert: "SextonProbeBudgetExceeded",
        subject: "queue",
        firing: r#"sexton_probe_cost_seconds_total{target="queue"} COUNTER"#,
        is_growing: true,
        quiet: r#"sexton_probe_cost_seconds_total{target="queue"} COUNTER"#,
    },
    MadeUp {
        alert: "SextonAgentStale",
        subject: "",
        firing: "sexton_snapshot_timestamp_seconds 1790000000",
        is_growing: false,
        quiet: "sexton_snapshot_timestamp_seconds 4790000000",
    },
    MadeUp {
        alert: "SextonSeekPainRising",
        subject: "queue",
        firing: r#"sexton_seek_pain_ratio{target="queue"} 0.5"#,
        is_growing: false,
        quiet: r#"sexton_seek_pain_ratio{target="queue"} 0.02"#,
    },
];

/// What an agent shows of a target that is well.
const WELL: &[(&str, &str)] = &[
    (r#"sexton_build_info{version="0"}"#, "1"),
    (r#"sexton_target_up{target="queue"}"#, "1"),
    (r#"sexton_target_act_mode{target="queue"}"#, "1"),
    (r#"sexton_target_unresponsive{target="queue"}"#, "0"),
    (r#"sexton_probe_budget_ratio{target="queue"}"#, "0.01"),
    (r#"sexton_seek_pain_ratio{target="queue"}"#, "0.02"),
];

/// A target that is well but for these lines.
fn well_but_for(lines: &str) -> String {
    let is_told = |name: &str| lines.lines().any(|line| line.starts_with(name));
    let well =
        WELL.iter().filter(|(name, _)| !is_told(name)).map(|(name, value)| format!("{name} {value}\n"));
    well.chain([lines.to_owned(), "\n".to_owned()]).collect()
}

#[test]
fn alerts_on_what_takes_days_or_a_fault_fire_and_clear() -> Result<()> {
    let _turn = agent::beside_others()?;
    let directory = tempfile::tempdir()?;
    let exposition = Exposition::serve()?;
    exposition.show(&well_but_for(""), false);
    let started = Instant::now();
    let start = |name: &str, hour| {
        Prometheus::start(&directory.path().join(name), exposition.address, &rules()?, hour)
    };
    let (prometheus, by_the_day) = (start("prometheus", RULES_HOUR)?, start("by_the_day", RULES_HOUR_SHORT)?);
    for MadeUp { alert, subject, firing, is_growing, quiet } in MADE_UP {
        let is_by_the_day = *alert == "SextonSeekPainRising";
        let prometheus = if is_by_the_day { &by_the_day } else { &prometheus };
        if is_by_the_day {
            exposition.show(&well_but_for(""), false);
            std::thread::sleep(ORDINARY.saturating_sub(started.elapsed()));
        }
        exposition.show(&well_but_for(firing), *is_growing);
        prometheus.until_firing(LIMIT, alert, subject)?;
        exposition.show(&well_but_for(quiet), false);
        prometheus.until_clear(LIMIT, alert, subject)?;
    }
    Ok(())
}
