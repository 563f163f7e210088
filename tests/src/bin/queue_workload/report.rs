//! What is printed: one JSON object a line.

use crate::pace::Done;
use crate::table::Table;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use sexton_tests::workload::{Ended, Line, Second};
use std::io::Write;
use std::time::Duration;

/// Significant digits of the histograms: percentiles within 0.1 %.
const DIGITS: u8 = 3;
/// No list takes longer; one that did would be counted as this.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Sums over the paced part.
pub struct Reporter {
    latencies: Histogram<u64>,
    ended: Ended,
    second: u64,
}

impl Reporter {
    pub fn new() -> Result<Reporter> {
        Ok(Reporter { latencies: histogram()?, ended: Ended::default(), second: 0 })
    }

    /// Prints one second and adds it to the sums.
    pub fn second(&mut self, table: &Table, elapsed: Duration, done: &Done) -> Result<()> {
        self.second += 1;
        let mut latencies = histogram()?;
        for list in &done.lists {
            latencies.saturating_record(nanoseconds(list.latency));
        }
        self.latencies.add(&latencies).context("adding up latencies")?;
        let second = Second {
            second: self.second,
            elapsed_ns: nanoseconds(elapsed),
            list_latencies_ns: done.lists.iter().map(|list| nanoseconds(list.latency)).collect(),
            lists_missed: done.lists_missed,
            list_p50_ns: latencies.value_at_quantile(0.5),
            list_p99_ns: latencies.value_at_quantile(0.99),
            list_max_ns: latencies.max(),
            keys_listed: done.lists.iter().map(|list| list.keys).sum(),
            tombstones_skipped: done.lists.iter().map(|list| list.tombstones_skipped).sum(),
            block_reads: done.lists.iter().map(|list| list.block_reads).sum(),
            creates: done.creates,
            deletes: done.deletes,
            write_latencies_ns: done.write_latencies_ns.clone(),
            writes_found_delayed: done.writes_found_delayed,
            stall_us: table.stall_us(),
            is_compacting: done.is_compacting,
            sst_bytes: table.levels()?.iter().map(|level| level.bytes).sum(),
            compaction_read_bytes: table.compaction_read_bytes(),
            compaction_write_bytes: table.compaction_write_bytes(),
        };
        self.ended.lists_missed += second.lists_missed;
        self.ended.tombstones_skipped += second.tombstones_skipped;
        self.ended.block_reads += second.block_reads;
        self.ended.creates += second.creates;
        self.ended.deletes += second.deletes;
        print(&Line::Second(Box::new(second)))
    }

    pub fn end(mut self, elapsed: Duration) -> Result<()> {
        self.ended.elapsed_ns = nanoseconds(elapsed);
        self.ended.lists = self.latencies.len();
        self.ended.list_p50_ns = self.latencies.value_at_quantile(0.5);
        self.ended.list_p99_ns = self.latencies.value_at_quantile(0.99);
        self.ended.list_max_ns = self.latencies.max();
        print(&Line::Ended(self.ended))
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_max(nanoseconds(LATENCY_MAX), DIGITS).context("making a histogram")
}

/// Prints one line, at once.
pub fn print(line: &Line) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, line).context("printing the report")?;
    output.write_all(b"\n").and_then(|()| output.flush()).context("printing the report")
}

/// `duration` in nanoseconds; some 584 years at most.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
