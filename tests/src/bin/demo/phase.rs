//! What the workload reported over a phase of the demo, added up.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use sexton_tests::workload::Second;

/// Significant digits: percentiles within 0.1 %.
const DIGITS: u8 = 3;
/// No list takes longer than ten minutes, nanoseconds.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// Sums over some seconds.
pub struct Phase {
    latencies: Histogram<u64>,
    tombstones_skipped: u64,
    block_reads: u64,
    seconds: u64,
    sst_bytes: u64,
}

/// What a phase came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct PhaseResult {
    /// Median list latency, nanoseconds.
    pub list_p50_ns: u64,
    /// 99th percentile, nanoseconds.
    pub list_p99_ns: u64,
    /// Lists that ended in a second.
    pub lists_per_second: f64,
    /// Tombstones that a list stepped over.
    pub tombstones_per_list: f64,
    /// Blocks that a list read from the files.
    pub block_reads_per_list: f64,
}

impl Phase {
    pub fn new() -> Result<Phase> {
        Ok(Phase {
            latencies: Histogram::new_with_max(LATENCY_MAX_NS, DIGITS).context("making a histogram")?,
            tombstones_skipped: 0,
            block_reads: 0,
            seconds: 0,
            sst_bytes: 0,
        })
    }

    /// Adds one second.
    pub fn add(&mut self, second: &Second) {
        for latency_ns in &second.list_latencies_ns {
            self.latencies.saturating_record(*latency_ns);
        }
        self.tombstones_skipped += second.tombstones_skipped;
        self.block_reads += second.block_reads;
        self.seconds += 1;
        self.sst_bytes = second.sst_bytes;
    }

    /// Seconds added.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Live SST files' sizes at the end of the last second, bytes: what a full compaction would rewrite.
    pub fn sst_bytes(&self) -> u64 {
        self.sst_bytes
    }

    /// Percentiles and averages; zeros for an empty phase.
    pub fn result(&self) -> PhaseResult {
        let lists = self.latencies.len();
        let per_list = |sum: u64| if lists == 0 { 0.0 } else { sum as f64 / lists as f64 };
        PhaseResult {
            list_p50_ns: self.latencies.value_at_quantile(0.5),
            list_p99_ns: self.latencies.value_at_quantile(0.99),
            lists_per_second: if self.seconds == 0 { 0.0 } else { lists as f64 / self.seconds as f64 },
            tombstones_per_list: per_list(self.tombstones_skipped),
            block_reads_per_list: per_list(self.block_reads),
        }
    }
}
