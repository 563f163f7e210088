//! The metrics of `/metrics`, made anew from the snapshot for every scrape.
//!
//! Names and units follow Prometheus' conventions. No label is a key: ranges are told apart by their rank.
//! [`METRICS`] is the list of all; `deploy/prometheus/metrics.md` is generated from it.

use super::tally::{STATES, Tally};
use crate::snapshot::{Snapshot, TargetState, TargetView};
use prometheus::core::Collector;
use prometheus::{CounterVec, Encoder, GaugeVec, Opts, Registry, TextEncoder};
use std::collections::{BTreeMap, BTreeSet};

/// Targets that are exposed; a node has some dozens. Further ones would only make series.
pub const TARGETS_EXPOSED_MAX: usize = 256;
/// Ranges exposed per target, by rank: enough to see whether pain is in one place or in many.
pub const RANGES_EXPOSED_MAX: usize = 10;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never falls while the agent runs.
    Counter,
    /// Any value.
    Gauge,
}

/// One metric family.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

const TARGET: &[&str] = &["target"];

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

/// Every metric there is, in the order of the list in `deploy/prometheus/metrics.md`.
pub const METRICS: &[Metric] = &[
    gauge("sexton_build_info", &["version"], "Version of the agent; always 1."),
    counter(
        "sexton_cycles_total",
        &[],
        "Loops of observing, ranking, planning and acting that were completed.",
    ),
    gauge("sexton_snapshot_timestamp_seconds", &[], "When the state shown here was published, as Unix time."),
    gauge("sexton_off_peak", &[], "Whether the off-peak window is open (1) or not (0)."),
    gauge("sexton_budget_bytes_per_second", &[], "Bytes a second that actions may rewrite now."),
    gauge("sexton_target_up", TARGET, "Whether the process is there (1) or has gone (0)."),
    gauge(
        "sexton_target_readable",
        TARGET,
        "Whether the counters of the process can be read (1) or not (0).",
    ),
    gauge(
        "sexton_target_gaps",
        TARGET,
        "Things that could not be found out about the process; /api/v1/targets names them.",
    ),
    gauge("sexton_target_hook", TARGET, "Whether a hook answers inside the process (1) or not (0)."),
    gauge(
        "sexton_acting",
        TARGET,
        "Whether the policy lets Sexton act on the process: 1 in mode act, else 0.",
    ),
    gauge("sexton_target_threads", TARGET, "Threads of the process with a perf_context at the last reading."),
    counter(
        "sexton_target_threads_ended_total",
        TARGET,
        "Threads that ended, taking what they counted since the last reading along.",
    ),
    gauge(
        "sexton_target_perf_level",
        TARGET,
        "Lowest RocksDB perf level of any thread; counters move from 2 on.",
    ),
    counter(
        "sexton_tombstones_skipped_total",
        TARGET,
        "Tombstones that readers stepped over (internal_delete_skipped_count).",
    ),
    counter(
        "sexton_keys_skipped_total",
        TARGET,
        "Internal keys that readers stepped over (internal_key_skipped_count).",
    ),
    counter(
        "sexton_block_reads_total",
        TARGET,
        "Blocks that were not in the block cache and were read from files (block_read_count).",
    ),
    counter(
        "sexton_block_read_bytes_total",
        TARGET,
        "Bytes of the blocks read from files (block_read_byte).",
    ),
    counter(
        "sexton_block_cache_hits_total",
        TARGET,
        "Blocks found in the block cache (block_cache_hit_count).",
    ),
    counter(
        "sexton_tombstones_attributed_total",
        TARGET,
        "Part of the tombstones skipped that windows attributed to operations.",
    ),
    counter("sexton_windows_total", TARGET, "Windows opened: short times with probes in the process."),
    counter("sexton_window_seconds_total", TARGET, "Time that probes were in the process."),
    counter("sexton_operations_total", TARGET, "Iterator operations seen in windows."),
    counter(
        "sexton_operations_painful_total",
        TARGET,
        "Iterator operations seen in windows that were painful.",
    ),
    counter(
        "sexton_records_lost_total",
        TARGET,
        "Painful operations whose record did not fit into the ring buffer.",
    ),
    gauge(
        "sexton_seek_pain_ratio",
        TARGET,
        "Seek pain: seconds of reader time lost to tombstones and block misses per second, all ranges together.",
    ),
    gauge(
        "sexton_range_seek_pain_ratio",
        &["target", "rank"],
        "Seek pain of the best ranked ranges, seconds per second; rank 1 is relieved first.",
    ),
    gauge("sexton_plan_steps", &[], "Steps of the current plan."),
    gauge("sexton_plan_cost_bytes", &[], "Bytes that the current plan would rewrite."),
    gauge("sexton_plan_budget_bytes", &[], "Bytes that the current plan may spend."),
    gauge("sexton_actions_running", TARGET, "Actions that run now."),
    counter(
        "sexton_actions_total",
        &["target", "state"],
        "Actions that ended (done, failed, cancelled) and what verifying the done ones found (helped, did_not_help).",
    ),
    counter("sexton_bytes_rewritten_total", TARGET, "Bytes of the SST files that ended actions replaced."),
];

/// The metrics in Prometheus' text format.
///
/// # Errors
/// What the `prometheus` crate says; it means that [`METRICS`] is wrong.
pub fn encode(snapshot: &Snapshot, tally: &Tally) -> Result<String, prometheus::Error> {
    let scrape = Scrape::new()?;
    scrape.agent(snapshot);
    for target in snapshot.targets.iter().take(TARGETS_EXPOSED_MAX) {
        scrape.target(target);
        scrape.ranges(snapshot, &target.name);
    }
    scrape.actions(snapshot, tally);
    let mut text = Vec::new();
    TextEncoder::new().encode(&scrape.registry.gather(), &mut text)?;
    String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
}

enum Family {
    Counter(CounterVec),
    Gauge(GaugeVec),
}

/// The families of one scrape.
struct Scrape {
    registry: Registry,
    families: BTreeMap<&'static str, Family>,
}

impl Scrape {
    fn new() -> Result<Scrape, prometheus::Error> {
        let registry = Registry::new();
        let mut families = BTreeMap::new();
        for metric in METRICS {
            let options = Opts::new(metric.name, metric.help);
            let family = match metric.kind {
                Kind::Counter => {
                    Family::Counter(registered(&registry, CounterVec::new(options, metric.labels)?)?)
                }
                Kind::Gauge => Family::Gauge(registered(&registry, GaugeVec::new(options, metric.labels)?)?),
            };
            families.insert(metric.name, family);
        }
        Ok(Scrape { registry, families })
    }

    /// Sets a gauge or adds to a counter. What is not a number, or for a counter below zero, is shown as 0.
    fn set(&self, name: &str, labels: &[&str], value: f64) {
        debug_assert!(self.families.contains_key(name), "{name} is not in METRICS");
        match self.families.get(name) {
            Some(Family::Gauge(gauge)) => {
                if let Ok(gauge) = gauge.get_metric_with_label_values(labels) {
                    gauge.set(if value.is_finite() { value } else { 0.0 });
                }
            }
            Some(Family::Counter(counter)) => {
                if let Ok(counter) = counter.get_metric_with_label_values(labels) {
                    counter.inc_by(if value.is_finite() { value.max(0.0) } else { 0.0 });
                }
            }
            None => {}
        }
    }

    fn agent(&self, snapshot: &Snapshot) {
        let agent = &snapshot.agent;
        self.set("sexton_build_info", &[&agent.version], 1.0);
        self.set("sexton_cycles_total", &[], agent.cycles as f64);
        if let Ok(at) = snapshot.at.parse::<jiff::Timestamp>() {
            self.set("sexton_snapshot_timestamp_seconds", &[], at.as_millisecond() as f64 / 1000.0);
        }
        self.set("sexton_off_peak", &[], truth(agent.off_peak));
        self.set("sexton_budget_bytes_per_second", &[], agent.budget_bytes_per_second as f64);
        self.set("sexton_plan_steps", &[], snapshot.plan.steps.len() as f64);
        self.set("sexton_plan_cost_bytes", &[], snapshot.plan.cost_bytes as f64);
        self.set("sexton_plan_budget_bytes", &[], snapshot.plan.budget_bytes as f64);
    }

    fn target(&self, target: &TargetView) {
        let label = [target.name.as_str()];
        let whole = |name, value: u64| self.set(name, &label, value as f64);
        whole("sexton_target_up", u64::from(target.state != TargetState::Lost));
        let readable = !matches!(target.state, TargetState::Lost | TargetState::Blind);
        whole("sexton_target_readable", u64::from(readable));
        whole("sexton_target_gaps", target.gaps.len() as u64);
        whole("sexton_target_hook", u64::from(target.hook));
        whole("sexton_acting", u64::from(target.mode == "act"));
        whole("sexton_target_threads", u64::from(target.threads));
        whole("sexton_target_threads_ended_total", target.threads_ended);
        if let Some(level) = target.perf_level {
            whole("sexton_target_perf_level", u64::from(level));
        }
        whole("sexton_tombstones_skipped_total", target.totals.tombstones_skipped);
        whole("sexton_keys_skipped_total", target.totals.keys_skipped);
        whole("sexton_block_reads_total", target.totals.block_reads);
        whole("sexton_block_read_bytes_total", target.totals.block_read_bytes);
        whole("sexton_block_cache_hits_total", target.totals.block_cache_hits);
        whole("sexton_tombstones_attributed_total", target.attributed.tombstones_skipped);
        whole("sexton_windows_total", target.windows);
        self.set("sexton_window_seconds_total", &label, target.window_seconds);
        whole("sexton_operations_total", target.operations);
        whole("sexton_operations_painful_total", target.operations_painful);
        whole("sexton_records_lost_total", target.records_lost);
        self.set("sexton_seek_pain_ratio", &label, target.pain_seconds_per_second);
    }

    fn ranges(&self, snapshot: &Snapshot, target: &str) {
        let ranges = snapshot.ranges.iter().filter(|range| range.target == target);
        for (at, range) in ranges.take(RANGES_EXPOSED_MAX).enumerate() {
            let rank = (at + 1).to_string();
            self.set("sexton_range_seek_pain_ratio", &[target, &rank], range.pain_seconds_per_second);
        }
    }

    fn actions(&self, snapshot: &Snapshot, tally: &Tally) {
        let running = |name: &str| {
            let of_target = snapshot.actions.iter().filter(|action| action.target == name);
            of_target.filter(|action| action.ended_at.is_none()).count()
        };
        let shown = snapshot.targets.iter().take(TARGETS_EXPOSED_MAX);
        let names: BTreeSet<&str> = shown.map(|target| target.name.as_str()).collect();
        for name in &names {
            self.set("sexton_actions_running", &[name], running(name) as f64);
        }
        // From zero on for every target, so that the first action shows as an increase.
        for name in names {
            self.set("sexton_bytes_rewritten_total", &[name], 0.0);
            for state in STATES {
                self.set("sexton_actions_total", &[name, state], 0.0);
            }
        }
        for (name, counts) in tally.targets() {
            self.set("sexton_bytes_rewritten_total", &[name], counts.bytes_rewritten as f64);
            for (state, count) in STATES.iter().zip(counts.actions) {
                self.set("sexton_actions_total", &[name, state], count as f64);
            }
        }
    }
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

    use super::*;
    use crate::snapshot::{ActionView, AgentView, GapView, RangeView};
    use sexton_tuner::evidence::Counters;
    use std::path::Path;

    /// A snapshot in which every metric has a value.
    fn full() -> Snapshot {
        let target = TargetView {
            name: "ozone-om".to_owned(),
            mode: "act".to_owned(),
            totals: Counters { tombstones_skipped: 123_456_789_012, ..Counters::default() },
            window_seconds: 2.5,
            perf_level: Some(2),
            pain_seconds_per_second: 0.25,
            gaps: vec![GapView::default()],
            ..TargetView::default()
        };
        let range = |begin: &str| RangeView {
            target: "ozone-om".to_owned(),
            begin: begin.to_owned(),
            pain_seconds_per_second: 0.125,
            ..RangeView::default()
        };
        let action = |id, ended_at: Option<&str>| ActionView {
            id,
            target: "ozone-om".to_owned(),
            state: if ended_at.is_some() { "helped" } else { "running" }.to_owned(),
            ended_at: ended_at.map(str::to_owned),
            bytes_rewritten: 1000,
            ..ActionView::default()
        };
        Snapshot {
            at: "2026-11-20T10:00:00.5Z".to_owned(),
            agent: AgentView { version: "0.1.0".to_owned(), cycles: 7, ..AgentView::default() },
            targets: vec![target, TargetView { state: TargetState::Lost, ..TargetView::default() }],
            ranges: (0..20).map(|at| range(&format!("secret-key-{at}"))).collect(),
            actions: vec![action(2, None), action(1, Some("2026-11-20T10:00:00Z"))],
            ..Snapshot::default()
        }
    }

    fn text() -> String {
        let snapshot = full();
        let mut tally = Tally::default();
        tally.observe(&snapshot);
        encode(&snapshot, &tally).unwrap()
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
            r#"sexton_acting{target="ozone-om"} 1"#,
            r#"sexton_tombstones_skipped_total{target="ozone-om"} 123456789012"#,
            r#"sexton_window_seconds_total{target="ozone-om"} 2.5"#,
            r#"sexton_seek_pain_ratio{target="ozone-om"} 0.25"#,
            r#"sexton_range_seek_pain_ratio{rank="10",target="ozone-om"} 0.125"#,
            r#"sexton_actions_total{state="done",target="ozone-om"} 1"#,
            r#"sexton_actions_total{state="helped",target="ozone-om"} 1"#,
            r#"sexton_actions_total{state="failed",target="ozone-om"} 0"#,
            r#"sexton_actions_running{target="ozone-om"} 1"#,
            r#"sexton_bytes_rewritten_total{target="ozone-om"} 1000"#,
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
        snapshot.targets[0].name = "a\"b\nc\\d".to_owned();
        snapshot.at = "yesterday".to_owned();
        let text = encode(&snapshot, &Tally::default()).unwrap();
        assert!(text.contains(r#"sexton_seek_pain_ratio{target="a\"b\nc\\d"} 0"#), "{text}");
        assert!(text.contains(r#"sexton_window_seconds_total{target="a\"b\nc\\d"} 0"#), "{text}");
    }

    #[test]
    fn targets_are_bounded() {
        let target = |at: usize| TargetView { name: format!("java-{at}"), ..TargetView::default() };
        let targets = (0..2 * TARGETS_EXPOSED_MAX).map(target).collect();
        let snapshot = Snapshot { targets, ..Snapshot::default() };
        let text = encode(&snapshot, &Tally::default()).unwrap();
        let shown = text.lines().filter(|line| line.starts_with("sexton_target_up{")).count();
        assert_eq!(shown, TARGETS_EXPOSED_MAX);
    }

    /// `deploy/prometheus/metrics.md` says what [`METRICS`] says; `BLESS=1` writes it anew.
    #[test]
    fn the_list_of_metrics_is_up_to_date() {
        let mut list = String::from(
            "# Metrics\n\nWhat `/metrics` shows. Generated from `agent/src/api/metrics.rs`; after a change there run\n\
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
}
