//! Histograms of what operations waited for: the kernel's powers of two, a few of them.
//!
//! They are those of windows, so they are a sample of all operations. An operation that did not end within
//! its window is in none.

use super::labels::Labels;
use super::list::{Kind, METRICS, Metric};
use crate::snapshot::Snapshot;
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric as Series, MetricFamily, MetricType};
use sexton_tuner::waits::{Spread, Waits};
use std::collections::BTreeMap;

/// Column families exposed, of all targets: with a dozen buckets each, some 20,000 series.
pub const FAMILIES_EXPOSED_MAX: usize = 512;

/// Upper bounds of times are 2^n nanoseconds for these n, from 4 us to 17 s; each is four times the one
/// before.
const TIME_EXPONENTS: [usize; 12] = [12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34];

/// Upper bounds of counts are 2^n - 1 for these n, from 1 to two million.
const COUNT_EXPONENTS: [usize; 11] = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21];

const NANOSECONDS: f64 = 1e9;

/// All histograms of the list that have a value.
pub fn histograms(snapshot: &Snapshot, labels: &Labels) -> Vec<MetricFamily> {
    let mut waits: BTreeMap<(&str, &str), Waits> = BTreeMap::new();
    for family in &snapshot.waits {
        let name = (labels.of(&family.target), family.column_family.as_str());
        if waits.contains_key(&name) || waits.len() < FAMILIES_EXPOSED_MAX {
            waits.entry(name).or_default().merge(&family.waits);
        }
    }
    let listed = METRICS.iter().filter(|metric| metric.kind == Kind::Histogram && !waits.is_empty());
    listed.map(|metric| family(metric, &waits)).collect()
}

fn family(metric: &Metric, waits: &BTreeMap<(&str, &str), Waits>) -> MetricFamily {
    let series = waits.iter().map(|((target, column_family), waits)| {
        let labels = [("column_family", column_family), ("target", target)];
        let mut series = Series::from_label(labels.map(|(name, value)| label(name, value)).into());
        series.set_histogram(histogram(metric.name, waits));
        series
    });
    let mut family = MetricFamily::default();
    family.set_name(metric.name.to_owned());
    family.set_help(metric.help.to_owned());
    family.set_field_type(MetricType::HISTOGRAM);
    family.set_metric(series.collect());
    family
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}

fn histogram(name: &str, waits: &Waits) -> Histogram {
    match name {
        "sexton_seek_latency_seconds" => of_times(&waits.seeks),
        "sexton_list_latency_seconds" => of_times(&waits.lists),
        "sexton_block_read_latency_seconds" => of_times(&waits.block_reads),
        "sexton_tombstones_per_operation" => of_counts(&waits.tombstones),
        _ => Histogram::default(),
    }
}

fn of_times(spread: &Spread) -> Histogram {
    let bound = |exponent: usize| 2_f64.powi(i32::try_from(exponent).unwrap_or(0)) / NANOSECONDS;
    shown(spread, spread.sum as f64 / NANOSECONDS, &TIME_EXPONENTS, bound)
}

fn of_counts(spread: &Spread) -> Histogram {
    let bound = |exponent: usize| 2_f64.powi(i32::try_from(exponent).unwrap_or(0)) - 1.0;
    shown(spread, spread.sum as f64, &COUNT_EXPONENTS, bound)
}

/// What is below 2^n lies in the first n buckets.
fn shown(spread: &Spread, sum: f64, exponents: &[usize], bound: impl Fn(usize) -> f64) -> Histogram {
    let below = |exponent: usize| {
        let buckets = spread.histogram.buckets().iter().take(exponent);
        buckets.fold(0_u64, |sum, count| sum.saturating_add(*count))
    };
    let buckets = exponents.iter().map(|exponent| {
        let mut bucket = Bucket::default();
        bucket.set_cumulative_count(below(*exponent));
        bucket.set_upper_bound(bound(*exponent));
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(spread.histogram.count());
    histogram.set_sample_sum(sum);
    histogram
}
