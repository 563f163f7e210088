//! What a played workload came to.

use serde::Serialize;

/// One interval.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    pub at_seconds: u64,
    /// Reader time lost to tombstones, in truth.
    pub pain_seconds_per_second: f64,
    /// Tombstones that readers stepped over.
    pub tombstones_skipped: u64,
    pub actions: u64,
    /// Those that rewrote files and dropped no tombstone.
    pub actions_in_vain: u64,
    /// Bytes that the actions wrote and read.
    pub written_bytes: u64,
    pub read_bytes: u64,
    /// Bytes that RocksDB wrote by itself: flushes and compactions.
    pub written_by_rocksdb_bytes: u64,
    /// Tombstones in the tree.
    pub deletions: u64,
    pub size_bytes: u64,
}

/// All intervals, and their sums.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub workload: String,
    /// Reader time lost to tombstones, in seconds.
    pub pain_seconds: f64,
    pub tombstones_skipped: u64,
    pub actions: u64,
    pub actions_in_vain: u64,
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub written_by_rocksdb_bytes: u64,
    pub samples: Vec<Sample>,
}

impl Report {
    pub(super) fn new(workload: &str) -> Report {
        Report { workload: workload.to_owned(), ..Report::default() }
    }

    pub(super) fn add(&mut self, sample: Sample) {
        let before = self.samples.last().map_or(0, |before| before.at_seconds);
        self.pain_seconds += sample.pain_seconds_per_second * sample.at_seconds.saturating_sub(before) as f64;
        self.tombstones_skipped += sample.tombstones_skipped;
        self.actions += sample.actions;
        self.actions_in_vain += sample.actions_in_vain;
        self.written_bytes += sample.written_bytes;
        self.read_bytes += sample.read_bytes;
        self.written_by_rocksdb_bytes += sample.written_by_rocksdb_bytes;
        self.samples.push(sample);
    }
}
