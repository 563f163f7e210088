//! Latencies by powers of two, and the 99th percentile before an action beside that while it runs.

use serde::{Deserialize, Serialize};

/// Buckets that are kept: the last one holds what took nine minutes and more.
pub const BUCKETS_MAX: usize = 40;

/// Fewest latencies whose 99th percentile means anything: of fewer it is the greatest.
pub const SAMPLES_MIN: u64 = 100;

/// Counts by latency: the bucket at index n holds those that took from 2^n to 2^(n+1) nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyHistogram {
    buckets: Vec<u64>,
}

impl LatencyHistogram {
    /// From the kernel's buckets; what lies beyond [`BUCKETS_MAX`] is in the last one.
    pub fn new(buckets: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::default();
        histogram.add(buckets);
        histogram
    }

    /// Adds counts, bucket by bucket; a sum that does not fit stays at its greatest.
    pub fn add(&mut self, buckets: &[u64]) {
        self.buckets.resize(self.buckets.len().max(buckets.len().min(BUCKETS_MAX)), 0);
        for (index, count) in buckets.iter().enumerate() {
            if let Some(bucket) = self.buckets.get_mut(index.min(BUCKETS_MAX - 1)) {
                *bucket = bucket.saturating_add(*count);
            }
        }
    }

    /// The counts, as far as there are any.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        self.add(&other.buckets);
    }

    /// Counts half as much, so that what is added later counts twice as much as what was there.
    pub fn fade(&mut self) {
        for bucket in &mut self.buckets {
            *bucket /= 2;
        }
    }

    /// How many latencies are in it.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The latency in nanoseconds that this share of them, 0 to 1, does not exceed; `None` of nothing. Within
    /// a bucket they are taken to be spread evenly.
    pub fn quantile_ns(&self, share: f64) -> Option<f64> {
        let wanted = self.count() as f64 * share.clamp(0.0, 1.0);
        let mut below = 0.0;
        let mut greatest = None;
        for (exponent, count) in (0_i32..).zip(&self.buckets) {
            let (count, begin_ns) = (*count as f64, 2_f64.powi(exponent));
            if count == 0.0 {
                continue;
            }
            if below + count >= wanted {
                return Some(begin_ns + begin_ns * ((wanted - below) / count).clamp(0.0, 1.0));
            }
            below += count;
            greatest = Some(begin_ns * 2.0);
        }
        greatest
    }
}

/// What operations waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Positioning calls, from entry to return.
    pub seeks: LatencyHistogram,
    /// Block reads from files.
    pub block_reads: LatencyHistogram,
}

impl Latencies {
    /// Adds others.
    pub fn merge(&mut self, other: &Latencies) {
        self.seeks.merge(&other.seeks);
        self.block_reads.merge(&other.block_reads);
    }

    /// Counts half as much, as [`LatencyHistogram::fade`].
    pub fn fade(&mut self) {
        self.seeks.fade();
        self.block_reads.fade();
    }
}

/// A 99th percentile before an action and while it runs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyReading {
    pub before_ns: f64,
    pub now_ns: f64,
}

impl LatencyReading {
    /// `None` where there are too few latencies, before or now, for a 99th percentile.
    pub fn of(before: &LatencyHistogram, now: &LatencyHistogram) -> Option<LatencyReading> {
        if before.count() < SAMPLES_MIN || now.count() < SAMPLES_MIN {
            return None;
        }
        Some(LatencyReading { before_ns: before.quantile_ns(0.99)?, now_ns: now.quantile_ns(0.99)? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let mut histogram = LatencyHistogram::new(&[0, 0, 0, 99]);
        histogram.add(&[0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(histogram.count(), 100);
        assert_eq!(histogram.quantile_ns(0.99), Some(16.0));
        assert_eq!(histogram.quantile_ns(1.0), Some(128.0));
        assert_eq!(LatencyHistogram::default().quantile_ns(0.5), None);
        assert_eq!(LatencyHistogram::new(&[0, 0]).quantile_ns(0.5), None);
    }

    #[test]
    fn a_percentile_takes_enough_latencies_on_both_sides() {
        let (few, many) = (LatencyHistogram::new(&[0, 99]), LatencyHistogram::new(&[0, 100]));
        assert_eq!(LatencyReading::of(&few, &many), None);
        assert_eq!(LatencyReading::of(&many, &few), None);
        let same = LatencyReading::of(&many, &many).unwrap();
        assert_eq!(same.before_ns, same.now_ns);
    }

    #[test]
    fn what_fades_counts_half() {
        let mut histogram = LatencyHistogram::new(&[8, 4]);
        histogram.fade();
        histogram.merge(&LatencyHistogram::new(&[0, 0, 1]));
        assert_eq!(histogram, LatencyHistogram::new(&[4, 2, 1]));
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_lie_within_the_histogram(
            buckets in proptest::collection::vec(any::<u64>(), 0..64),
            one in 0.0..1.0f64,
            two in 0.0..1.0f64,
        ) {
            let histogram = LatencyHistogram::new(&buckets);
            let (low, high) = (one.min(two), one.max(two));
            if let (Some(low_ns), Some(high_ns)) = (histogram.quantile_ns(low), histogram.quantile_ns(high)) {
                prop_assert!(low_ns <= high_ns && low_ns >= 1.0);
                prop_assert!(high_ns <= 2_f64.powi(i32::try_from(BUCKETS_MAX).unwrap()));
            } else {
                prop_assert_eq!(histogram.count(), 0);
            }
        }
    }
}
