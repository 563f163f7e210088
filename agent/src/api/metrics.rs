//! The metrics of `/metrics`, made anew from the snapshot for every scrape.
//!
//! No label is a key: ranges are told apart by their rank. Which metrics there are is said in [`list`].

mod histograms;
mod labels;
pub mod list;

pub use self::labels::Labels;

use self::list::{Kind, METRICS};
use crate::snapshot::{Snapshot, TargetState, TargetView};
use prometheus::core::Collector;
use prometheus::{CounterVec, Encoder, GaugeVec, Opts, Registry, TextEncoder};
use sexton_journal::ActionCounts;
use sexton_tuner::guard::Guard;
use std::collections::BTreeMap;
use strum::VariantArray;

/// Targets that are exposed: all that can be watched, and those that have gone lately.
pub const TARGETS_EXPOSED_MAX: usize = 544;
/// Ranges exposed per target, by rank: enough to see whether pain is in one place or in many.
pub const RANGES_EXPOSED_MAX: usize = 10;
/// Throttles exposed per target: a daemon has some ten.
pub const THROTTLES_EXPOSED_MAX: usize = 64;

/// The metrics in Prometheus' text format.
/// Errors: what the `prometheus` crate says; it means that [`METRICS`] is wrong.
pub fn encode(snapshot: &Snapshot, labels: &Labels) -> Result<String, prometheus::Error> {
    let scrape = Scrape::new()?;
    scrape.agent(snapshot);
    scrape.refusals(snapshot, labels);
    scrape.throttles(snapshot, labels);
    let mut running = BTreeMap::new();
    for (label, target) in labels.shown(snapshot).into_iter().take(TARGETS_EXPOSED_MAX) {
        scrape.target(label, target);
        scrape.ranges(snapshot, label, &target.name);
        // From zero on, so that the first action shows as an increase.
        scrape.action_counts(label, &ActionCounts::default());
        running.insert(label, (0, 0));
    }
    for (target, counts) in &snapshot.action_counts {
        let label = labels.of(target);
        scrape.action_counts(label, counts);
        let (running, failing) = running.entry(label).or_default();
        (*running, *failing) = (*running + counts.running, *failing + counts.failing);
    }
    for (label, (running, failing)) in running {
        scrape.set("sexton_actions_running", &[label], running as f64);
        scrape.set("sexton_throttles_failing", &[label], failing as f64);
    }
    let mut text = Vec::new();
    TextEncoder::new().encode(&scrape.registry.gather(), &mut text)?;
    TextEncoder::new().encode(&histograms::histograms(snapshot, labels), &mut text)?;
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
                // Not set here: see `histograms`.
                Kind::Histogram => continue,
            };
            families.insert(metric.name, family);
        }
        Ok(Scrape { registry, families })
    }

    /// Sets a gauge or adds to a counter. What is not a number, or for a counter below zero, is shown as 0.
    fn set(&self, name: &str, labels: &[&str], value: f64) {
        // The sum of no floats is -0, which would be shown with its sign; this takes it off.
        let value = if value.is_finite() { value + 0.0 } else { 0.0 };
        debug_assert!(self.families.contains_key(name), "{name} is not in METRICS");
        match self.families.get(name) {
            Some(Family::Gauge(gauge)) => {
                if let Ok(gauge) = gauge.get_metric_with_label_values(labels) {
                    gauge.set(value);
                }
            }
            Some(Family::Counter(counter)) => {
                if let Ok(counter) = counter.get_metric_with_label_values(labels) {
                    counter.inc_by(value.max(0.0));
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
        for period in &agent.schedule {
            self.set("sexton_schedule_period_open", &[&period.name], truth(period.is_open));
        }
        self.set("sexton_budget_bytes_per_second", &[], agent.budget_bytes_per_second as f64);
        for price in &agent.probe_prices {
            self.set("sexton_probe_price_seconds", &[&price.kind], price.seconds);
        }
        self.set("sexton_policy_current", &[], truth(agent.policy_trouble.is_none()));
        self.set("sexton_state_writable", &[], truth(agent.state.is_writable));
        self.set("sexton_workers_left_behind", &[], agent.workers_left_behind as f64);
        self.set("sexton_state_waiting_batches", &[], agent.state.waiting as f64);
        for (event, count) in &agent.events_told {
            self.set("sexton_events_total", &[event], *count as f64);
        }
        self.set("sexton_plan_steps", &[], snapshot.plan.steps.len() as f64);
        self.set("sexton_plan_cost_bytes", &[], snapshot.plan.cost_bytes as f64);
        self.set("sexton_plan_budget_bytes", &[], snapshot.plan.budget_bytes as f64);
    }

    fn target(&self, name: &str, target: &TargetView) {
        let label = [name];
        let whole = |name, value: u64| self.set(name, &label, value as f64);
        whole("sexton_target_up", u64::from(target.state != TargetState::Lost));
        let readable = !matches!(target.state, TargetState::Lost | TargetState::Blind);
        whole("sexton_target_readable", u64::from(readable));
        whole("sexton_target_unresponsive", u64::from(target.state == TargetState::Unresponsive));
        whole("sexton_target_gaps", target.gaps.len() as u64);
        whole("sexton_target_hook", u64::from(target.hook));
        whole("sexton_target_act_mode", u64::from(target.mode == "act"));
        self.set("sexton_target_executor_info", &[name, &target.executor], 1.0);
        whole("sexton_target_threads", u64::from(target.threads));
        whole("sexton_target_threads_ended_total", target.threads_ended);
        whole("sexton_target_threads_ended_unread_total", target.threads_ended_unread);
        if let Some(level) = target.perf_level {
            whole("sexton_target_perf_level", u64::from(level));
        }
        whole("sexton_target_perf_level_raised_threads", u64::from(target.perf_level_raised_threads));
        whole("sexton_tombstones_skipped_total", target.totals.tombstones_skipped);
        whole("sexton_keys_skipped_total", target.totals.keys_skipped);
        whole("sexton_old_versions_skipped_total", target.old_versions_skipped);
        whole("sexton_merge_operands_total", target.totals.merge_operands);
        whole("sexton_range_deletion_reseeks_total", target.totals.range_deletion_reseeks);
        whole("sexton_block_reads_total", target.totals.block_reads);
        whole("sexton_block_read_bytes_total", target.totals.block_read_bytes);
        whole("sexton_block_cache_hits_total", target.totals.block_cache_hits);
        whole("sexton_tombstones_attributed_total", target.attributed.tombstones_skipped);
        whole("sexton_windows_total", target.windows);
        self.set("sexton_window_seconds_total", &label, target.window_seconds);
        self.set("sexton_window_duty_ratio", &label, target.probes.duty_ratio);
        whole("sexton_windows_truncated_total", target.probes.windows_cut);
        whole("sexton_windows_deferred_total", target.probes.windows_put_off);
        self.set("sexton_probe_cost_seconds_total", &label, target.probes.cost_seconds);
        self.set("sexton_probe_learnt_cost_seconds_total", &label, target.probes.learnt_cost_seconds);
        self.set("sexton_probe_price_correction_ratio", &label, target.probes.price_correction_ratio);
        whole("sexton_probe_price_correction_windows", target.probes.price_correction_windows);
        for price in &target.probes.prices {
            self.set("sexton_probe_corrected_price_seconds", &[name, &price.kind], price.seconds);
        }
        self.set("sexton_probe_budget_ratio", &label, target.probes.budget_ratio);
        self.set("sexton_probe_budget_available_seconds", &label, target.probes.available_seconds);
        whole("sexton_operations_total", target.operations);
        whole("sexton_operations_recorded_total", target.operations_recorded);
        whole("sexton_operations_estimated_total", target.operations_estimated);
        whole("sexton_records_lost_total", target.records_lost);
        whole("sexton_block_reads_timed_total", target.block_reads_timed);
        self.set("sexton_block_read_seconds_total", &label, target.block_read_seconds);
        self.set("sexton_seek_pain_ratio", &label, target.pain_seconds_per_second);
        let unplaced = target.unplaced;
        let unrecorded = unplaced.unrecorded_seconds_per_second;
        self.set("sexton_seek_pain_unrecorded_ratio", &label, unrecorded);
        let unowned = unplaced.unowned_tombstone_seconds_per_second;
        self.set("sexton_seek_pain_unowned_ratio", &label, unowned);
        let of_reads = unplaced.unowned_block_read_seconds_per_second;
        self.set("sexton_block_reads_unowned_ratio", &label, of_reads);
        self.set("sexton_tombstone_cost_seconds", &label, target.costs.seconds_per_tombstone);
        self.set("sexton_block_read_cost_seconds", &label, target.costs.seconds_per_block_read);
        self.guards(name, target);
    }

    /// From zero on for every guard of a target that is acted on.
    fn guards(&self, name: &str, target: &TargetView) {
        for guard in Guard::VARIANTS.iter().map(|guard| guard.name()) {
            let view = target.guards.iter().find(|view| view.guard == guard);
            if view.is_none() && target.mode != "act" {
                continue;
            }
            let (refusals, objects) = view.map_or((0, false), |view| (view.refusals, view.objects));
            self.set("sexton_guard_refusals_total", &[name, guard], refusals as f64);
            self.set("sexton_guard_blocking", &[name, guard], truth(objects));
        }
    }

    fn ranges(&self, snapshot: &Snapshot, label: &str, target: &str) {
        let ranges = snapshot.ranges.iter().filter(|range| range.target == target);
        for (at, range) in ranges.take(RANGES_EXPOSED_MAX).enumerate() {
            let rank = (at + 1).to_string();
            self.set("sexton_range_seek_pain_ratio", &[label, &rank], range.pain_seconds_per_second);
            let of_reads = range.block_read_seconds_per_second;
            self.set("sexton_range_block_read_pain_ratio", &[label, &rank], of_reads);
            if let Some(ratio) = range.cache_hit_ratio {
                self.set("sexton_range_block_cache_hit_ratio", &[label, &rank], ratio);
            }
        }
    }

    fn throttles(&self, snapshot: &Snapshot, labels: &Labels) {
        let mut exposed: BTreeMap<&str, usize> = BTreeMap::new();
        for view in &snapshot.throttles {
            let label = [labels.of(&view.target), view.name.as_str()];
            let count = exposed.entry(label[0]).or_default();
            *count += 1;
            if *count > THROTTLES_EXPOSED_MAX {
                continue;
            }
            let number = |value: &Option<String>| value.as_ref().and_then(|value| value.trim().parse().ok());
            let numbers = [
                ("sexton_throttle_wanted", number(&view.wanted)),
                ("sexton_throttle_observed", number(&view.observed)),
                ("sexton_throttle_slowest", view.slowest),
                ("sexton_throttle_fastest", view.fastest),
            ];
            for (name, value) in numbers {
                value.into_iter().for_each(|value: f64| self.set(name, &label, value));
            }
            self.set("sexton_throttle_in_force", &label, truth(view.state == "in_force"));
        }
        for view in &snapshot.pressures {
            let target = labels.of(&view.target);
            view.pressure.into_iter().for_each(|ratio| self.set("sexton_pressure_ratio", &[target], ratio));
            for signal in &view.signals {
                let label = [target, signal.name.as_str()];
                self.set("sexton_pressure_signal_readable", &label, truth(signal.value.is_some()));
                if let Some(ratio) = signal.pressure {
                    self.set("sexton_pressure_signal_ratio", &label, ratio);
                }
                if let Some(value) = signal.value {
                    self.set("sexton_pressure_signal_value", &[target, &signal.name, &signal.kind], value);
                }
            }
        }
    }

    /// Rules that refuse nothing are left out: there are some forty.
    fn refusals(&self, snapshot: &Snapshot, labels: &Labels) {
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for refusal in &snapshot.plan.refusals {
            *counts.entry((labels.of(&refusal.target), &refusal.rule)).or_default() += 1;
        }
        for ((label, rule), count) in counts {
            self.set("sexton_plan_refusals", &[label, rule], count as f64);
        }
    }

    /// Counts of several targets with the same label add up.
    fn action_counts(&self, label: &str, counts: &ActionCounts) {
        self.set("sexton_bytes_rewritten_total", &[label], counts.bytes_rewritten as f64);
        self.set("sexton_slice_pauses_total", &[label], counts.pauses as f64);
        self.set("sexton_relief_promised_ratio_total", &[label], counts.relief_promised);
        self.set("sexton_relief_delivered_ratio_total", &[label], counts.relief_delivered);
        for (state, count) in counts.by_state() {
            self.set("sexton_actions_total", &[label, state], count as f64);
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
mod tests;
