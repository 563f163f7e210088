//! The metrics against a snapshot in which each has a value, and the list against its copy in `deploy`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::*;
use crate::snapshot::{
    AgentView, FamilyWaits, GapView, PeriodView, PlanView, PressureView, ProbePriceView, ProbeView,
    RangeView, RefusalView, SignalView, StateView, ThrottleView,
};
use sexton_tuner::evidence::Counters;
use sexton_tuner::waits::{Spread, Waits};
use std::collections::BTreeSet;
use std::path::Path;

/// A snapshot in which every metric has a value.
fn full() -> Snapshot {
    let target = TargetView {
        name: "OzoneManagerStarter-4711".to_owned(),
        series: "ozone-om".to_owned(),
        mode: "act".to_owned(),
        executor: "hook".to_owned(),
        totals: Counters { tombstones_skipped: 123_456_789_012, ..Counters::default() },
        window_seconds: 2.5,
        probes: ProbeView {
            cost_seconds: 0.25,
            learnt_cost_seconds: 0.125,
            price_correction_ratio: 2.0,
            price_correction_windows: 17,
            prices: vec![ProbePriceView { kind: "seek".to_owned(), seconds: 5e-6 }],
            available_seconds: -0.5,
            ..ProbeView::default()
        },
        block_reads_timed: 11,
        block_read_seconds: 0.5,
        perf_level: Some(2),
        pain_seconds_per_second: 0.25,
        gaps: vec![GapView::default()],
        ..TargetView::default()
    };
    let range = |begin: &str| RangeView {
        target: "OzoneManagerStarter-4711".to_owned(),
        begin: begin.to_owned(),
        pain_seconds_per_second: 0.125,
        cache_hit_ratio: Some(0.75),
        ..RangeView::default()
    };
    let refusal = |rule: &str| RefusalView {
        target: "OzoneManagerStarter-4711".to_owned(),
        subject: "secret-key".to_owned(),
        rule: rule.to_owned(),
        ..RefusalView::default()
    };
    let refusals = vec![refusal("over_budget"), refusal("cooldown"), refusal("over_budget")];
    let counts = ActionCounts {
        done: 1,
        helped: 1,
        running: 1,
        failing: 1,
        bytes_rewritten: 1000,
        ..ActionCounts::default()
    };
    Snapshot {
        at: "2026-11-20T10:00:00.5Z".to_owned(),
        agent: AgentView {
            version: "0.1.0".to_owned(),
            cycles: 7,
            schedule: vec![PeriodView { name: "off-peak".to_owned(), is_open: true }],
            probe_prices: vec![ProbePriceView { kind: "seek".to_owned(), seconds: 2.5e-6 }],
            state: StateView { is_writable: true, waiting: 3, ..StateView::default() },
            events_told: [("slice_done".to_owned(), 4)].into(),
            ..AgentView::default()
        },
        targets: vec![target, TargetView { state: TargetState::Lost, ..TargetView::default() }],
        ranges: (0..20).map(|at| range(&format!("secret-key-{at}"))).collect(),
        plan: PlanView { refusals, ..PlanView::default() },
        action_counts: [("OzoneManagerStarter-4711".to_owned(), counts)].into(),
        throttles: vec![throttle()],
        waits: vec![waits(), waits()],
        pressures: vec![pressure()],
        ..Snapshot::default()
    }
}

/// Of one of two databases with a column family of the same name.
fn waits() -> FamilyWaits {
    let waits = Waits {
        // 8,192 to 16,384 ns, and a second.
        seeks: Spread::new(&[[0; 13].as_slice(), &[3], &[0; 16], &[1]].concat(), 1_000_040_000),
        tombstones: Spread::new(&[2, 5], 14),
        ..Waits::default()
    };
    let target = "OzoneManagerStarter-4711".to_owned();
    FamilyWaits { target, column_family: "keyTable".to_owned(), waits }
}

fn throttle() -> ThrottleView {
    ThrottleView {
        target: "OzoneManagerStarter-4711".to_owned(),
        name: "limit".to_owned(),
        wanted: Some("2750".to_owned()),
        observed: Some("2750.0".to_owned()),
        state: "in_force".to_owned(),
        slowest: Some(500.0),
        fastest: Some(5000.0),
        ..ThrottleView::default()
    }
}

fn pressure() -> PressureView {
    let signal = |name: &str, value: Option<f64>| SignalView {
        name: name.to_owned(),
        kind: "device_latency".to_owned(),
        value,
        pressure: value.map(|_| 0.5),
        ..SignalView::default()
    };
    PressureView {
        target: "OzoneManagerStarter-4711".to_owned(),
        pressure: Some(0.5),
        signals: vec![signal("disk", Some(0.004)), signal("other", None)],
    }
}

fn text() -> String {
    encoded(&full())
}

fn encoded(snapshot: &Snapshot) -> String {
    let mut labels = Labels::default();
    labels.observe(snapshot);
    encode(snapshot, &labels).unwrap()
}

#[test]
fn shows_the_snapshot() {
    let text = text();
    let expected = [
        r#"sexton_build_info{version="0.1.0"} 1"#,
        "sexton_cycles_total 7",
        "sexton_snapshot_timestamp_seconds 1795168800.5",
        r#"sexton_target_up{target="ozone-om"} 1"#,
        r#"sexton_target_up{target=""} 0"#,
        r#"sexton_target_act_mode{target="ozone-om"} 1"#,
        r#"sexton_target_executor_info{executor="hook",target="ozone-om"} 1"#,
        r#"sexton_plan_refusals{rule="over_budget",target="ozone-om"} 2"#,
        r#"sexton_plan_refusals{rule="cooldown",target="ozone-om"} 1"#,
        r#"sexton_tombstones_skipped_total{target="ozone-om"} 123456789012"#,
        r#"sexton_window_seconds_total{target="ozone-om"} 2.5"#,
        r#"sexton_probe_cost_seconds_total{target="ozone-om"} 0.25"#,
        r#"sexton_probe_budget_available_seconds{target="ozone-om"} -0.5"#,
        r#"sexton_probe_learnt_cost_seconds_total{target="ozone-om"} 0.125"#,
        r#"sexton_probe_price_seconds{kind="seek"} 0.0000025"#,
        r#"sexton_probe_corrected_price_seconds{kind="seek",target="ozone-om"} 0.000005"#,
        r#"sexton_probe_price_correction_ratio{target="ozone-om"} 2"#,
        r#"sexton_probe_price_correction_windows{target="ozone-om"} 17"#,
        r#"sexton_block_reads_timed_total{target="ozone-om"} 11"#,
        r#"sexton_block_read_seconds_total{target="ozone-om"} 0.5"#,
        r#"sexton_range_block_cache_hit_ratio{rank="1",target="ozone-om"} 0.75"#,
        r#"sexton_seek_pain_ratio{target="ozone-om"} 0.25"#,
        r#"sexton_range_seek_pain_ratio{rank="10",target="ozone-om"} 0.125"#,
        r#"sexton_actions_total{state="done",target="ozone-om"} 1"#,
        r#"sexton_actions_total{state="helped",target="ozone-om"} 1"#,
        r#"sexton_actions_total{state="failed",target="ozone-om"} 0"#,
        r#"sexton_actions_running{target="ozone-om"} 1"#,
        r#"sexton_throttles_failing{target="ozone-om"} 1"#,
        r#"sexton_bytes_rewritten_total{target="ozone-om"} 1000"#,
        r#"sexton_throttle_wanted{target="ozone-om",throttle="limit"} 2750"#,
        r#"sexton_throttle_observed{target="ozone-om",throttle="limit"} 2750"#,
        r#"sexton_throttle_in_force{target="ozone-om",throttle="limit"} 1"#,
        r#"sexton_throttle_slowest{target="ozone-om",throttle="limit"} 500"#,
        r#"sexton_pressure_ratio{target="ozone-om"} 0.5"#,
        r#"sexton_pressure_signal_ratio{signal="disk",target="ozone-om"} 0.5"#,
        r#"sexton_pressure_signal_value{kind="device_latency",signal="disk",target="ozone-om"} 0.004"#,
        r#"sexton_pressure_signal_readable{signal="other",target="ozone-om"} 0"#,
        r#"sexton_seek_latency_seconds_bucket{column_family="keyTable",target="ozone-om",le="0.000004096"} 0"#,
        r#"sexton_seek_latency_seconds_bucket{column_family="keyTable",target="ozone-om",le="0.000016384"} 6"#,
        r#"sexton_seek_latency_seconds_bucket{column_family="keyTable",target="ozone-om",le="4.294967296"} 8"#,
        r#"sexton_seek_latency_seconds_bucket{column_family="keyTable",target="ozone-om",le="+Inf"} 8"#,
        r#"sexton_seek_latency_seconds_count{column_family="keyTable",target="ozone-om"} 8"#,
        r#"sexton_seek_latency_seconds_sum{column_family="keyTable",target="ozone-om"} 2.00008"#,
        r#"sexton_tombstones_per_operation_bucket{column_family="keyTable",target="ozone-om",le="1"} 4"#,
        r#"sexton_tombstones_per_operation_sum{column_family="keyTable",target="ozone-om"} 28"#,
        r#"sexton_list_latency_seconds_count{column_family="keyTable",target="ozone-om"} 0"#,
        "sexton_state_writable 1",
        "sexton_state_waiting_batches 3",
        r#"sexton_events_total{event="slice_done"} 4"#,
    ];
    for line in expected {
        assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains(r#"rank="11""#), "no more ranges than the maximum");
    assert!(!text.contains("secret"), "no key is shown");
}

#[test]
fn every_metric_of_the_list_is_shown_and_no_other() {
    let text = text();
    let shown: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let listed: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(shown, listed);
}

#[test]
fn names_follow_the_conventions() {
    for metric in METRICS {
        assert!(metric.name.starts_with("sexton_"), "{}", metric.name);
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        assert!(metric.help.ends_with('.'), "{}", metric.name);
        assert!(metric.labels.iter().all(|label| !label.contains("key")), "{}", metric.name);
    }
}

#[test]
fn odd_values_and_names_do_no_harm() {
    let mut snapshot = full();
    snapshot.targets[0].pain_seconds_per_second = f64::NAN;
    snapshot.targets[0].window_seconds = -1.0;
    snapshot.targets[0].series = "a\"b\nc\\d".to_owned();
    snapshot.targets[1].pain_seconds_per_second = -0.0;
    snapshot.at = "yesterday".to_owned();
    let text = encoded(&snapshot);
    assert!(text.contains(r#"sexton_seek_pain_ratio{target="a\"b\nc\\d"} 0"#), "{text}");
    assert!(text.contains(r#"sexton_window_seconds_total{target="a\"b\nc\\d"} 0"#), "{text}");
    assert!(text.contains("sexton_seek_pain_ratio{target=\"\"} 0\n"), "{text}");
}

#[test]
fn column_families_are_bounded() {
    let family = |at: usize| FamilyWaits { column_family: format!("{at:04}"), ..waits() };
    let snapshot = Snapshot { waits: (0..1_000).map(family).collect(), ..full() };
    let text = encoded(&snapshot);
    let shown = text.lines().filter(|line| line.starts_with("sexton_seek_latency_seconds_count{")).count();
    assert_eq!(shown, histograms::FAMILIES_EXPOSED_MAX);
}

#[test]
fn targets_are_bounded() {
    let target = |at: usize| TargetView { name: format!("java-{at}"), ..TargetView::default() };
    let targets = (0..2 * TARGETS_EXPOSED_MAX).map(target).collect();
    let snapshot = Snapshot { targets, ..Snapshot::default() };
    let text = encoded(&snapshot);
    let shown = text.lines().filter(|line| line.starts_with("sexton_target_up{")).count();
    assert_eq!(shown, TARGETS_EXPOSED_MAX);
}

/// `deploy/prometheus/metrics.md` says what [`METRICS`] says; `BLESS=1` writes it anew.
#[test]
fn the_list_of_metrics_is_up_to_date() {
    let mut list = String::from(
        "# Metrics\n\nWhat `/metrics` shows. Generated from `agent/src/api/metrics/list.rs`; after a change run\n\
         `BLESS=1 cargo test -p sexton --lib the_list_of_metrics_is_up_to_date`.\n\n\
         | name | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in METRICS {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let labels = metric.labels.join(", ");
        list.push_str(&format!("| `{}` | {kind} | {labels} | {} |\n", metric.name, metric.help));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/metrics.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &list).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, list, "run this test with BLESS=1 and commit {}", path.display());
}

/// Names with a colon are recorded by the rules themselves.
#[test]
fn alerts_and_dashboard_use_metrics_of_the_list() {
    let listed: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    for path in ["prometheus/rules.yml", "grafana/sexton.json"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path);
        let text = std::fs::read_to_string(path).unwrap();
        let is_of_name = |character: char| character.is_ascii_lowercase() || "_:".contains(character);
        let words = text.split(|character| !is_of_name(character));
        let words = words.filter(|word| word.starts_with("sexton_"));
        let used: BTreeSet<&str> = words.map(|word| word.strip_suffix("_bucket").unwrap_or(word)).collect();
        assert!(used.len() >= 10, "{used:?}");
        assert!(used.is_subset(&listed), "{:?} is not in the list", used.difference(&listed));
    }
}
