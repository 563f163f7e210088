//! What the threads of a host measure: one recorder each, so that they do not wait for each other.

use crate::order::{Latencies, Second};
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Significant digits: percentiles within 0.1 %.
const DIGITS: u8 = 3;
/// No operation takes longer; one that did would be counted as this.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Latencies since the last [`Recorder::forget`], and counts.
pub struct Recorder {
    pub list: Histogram<u64>,
    pub seek: Histogram<u64>,
    pub get: Histogram<u64>,
    pub write: Histogram<u64>,
    pub operations: u64,
    pub tombstones: u64,
    pub block_reads: u64,
    /// Lists and gets whose answers were compared with what was written; never forgotten.
    pub answers: u64,
    /// Of the second under way.
    pub second: Second,
}

impl Recorder {
    fn new() -> Result<Recorder> {
        let histogram =
            || Histogram::new_with_max(nanoseconds(LATENCY_MAX), DIGITS).context("making a histogram");
        Ok(Recorder {
            list: histogram()?,
            seek: histogram()?,
            get: histogram()?,
            write: histogram()?,
            operations: 0,
            tombstones: 0,
            block_reads: 0,
            answers: 0,
            second: Second::default(),
        })
    }

    pub fn list(&mut self, latency: Duration, seek: Duration) {
        self.list.saturating_record(nanoseconds(latency));
        self.seek.saturating_record(nanoseconds(seek));
        self.second.lists += 1;
        self.second.list_ns += nanoseconds(latency);
        self.operations += 1;
        self.answers += 1;
    }

    pub fn get(&mut self, latency: Duration) {
        self.get.saturating_record(nanoseconds(latency));
        self.operations += 1;
        self.answers += 1;
    }

    pub fn write(&mut self, latency: Duration) {
        self.write.saturating_record(nanoseconds(latency));
        self.operations += 1;
    }

    fn forget(&mut self) {
        for histogram in [&mut self.list, &mut self.seek, &mut self.get, &mut self.write] {
            histogram.reset();
        }
        (self.operations, self.tombstones, self.block_reads) = (0, 0, 0);
    }

    fn add(&mut self, other: &Recorder) -> Result<()> {
        self.list.add(&other.list).context("adding up latencies")?;
        self.seek.add(&other.seek).context("adding up latencies")?;
        self.get.add(&other.get).context("adding up latencies")?;
        self.write.add(&other.write).context("adding up latencies")?;
        self.operations += other.operations;
        self.tombstones += other.tombstones;
        self.block_reads += other.block_reads;
        self.answers += other.answers;
        Ok(())
    }
}

/// The recorders of all threads.
pub struct Recorders(Vec<Mutex<Recorder>>);

impl Recorders {
    pub fn new(threads: usize) -> Result<Recorders> {
        (0..threads).map(|_| Recorder::new().map(Mutex::new)).collect::<Result<_>>().map(Recorders)
    }

    /// One mutex for each thread.
    pub fn iter(&self) -> impl Iterator<Item = &Mutex<Recorder>> {
        self.0.iter()
    }

    pub fn forget(&self) {
        self.0.iter().for_each(|recorder| lock(recorder).forget());
    }

    /// What has been counted since this was last asked.
    pub fn take_second(&self) -> Second {
        let mut sum = Second::default();
        for recorder in &self.0 {
            let second = std::mem::take(&mut lock(recorder).second);
            sum.lists += second.lists;
            sum.lists_missed += second.lists_missed;
            sum.list_ns += second.list_ns;
        }
        sum
    }

    pub fn sum(&self) -> Result<Recorder> {
        let mut sum = Recorder::new()?;
        self.0.iter().try_for_each(|recorder| sum.add(&lock(recorder)))?;
        Ok(sum)
    }
}

/// A recorder is whole after each of its calls, whatever happened to a thread that had it.
pub fn lock(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a histogram comes to.
pub fn latencies(histogram: &Histogram<u64>) -> Latencies {
    Latencies {
        count: histogram.len(),
        mean_ns: if histogram.is_empty() { 0.0 } else { histogram.mean() },
        p50_ns: histogram.value_at_quantile(0.5),
        p99_ns: histogram.value_at_quantile(0.99),
        max_ns: histogram.max(),
    }
}

/// `duration` in nanoseconds; some 584 years at most.
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
