//! What an interval's readers met: the truth, and what the agent sees of it.

use super::operator::{COLUMN_FAMILY, TARGET};
use super::turn::{DATABASE, Turn};
use crate::facts::evidence::{Counters, Evidence, Observation};
use crate::simulation::lsm::picture::observe;
use crate::simulation::lsm::{Tree, Work};

/// Sums over an interval.
#[derive(Default)]
pub(super) struct Seen {
    /// Those in the window.
    operations: Vec<Observation>,
    tombstones: f64,
    pain_ns: f64,
}

impl Seen {
    /// An operation that was made so often, and so often while the window was open.
    pub(super) fn take(&mut self, operation: Observation, pain_ns: u64, times: f64, weight: u64) {
        self.pain_ns += pain_ns as f64 * times;
        self.tombstones += operation.total().tombstones_skipped as f64 * times;
        if weight > 0 {
            self.operations.push(Observation { weight, ..operation });
        }
    }

    /// As the agent has it, of an interval and a window of so many seconds.
    pub(super) fn evidence(&self, tree: &Tree, (seconds, window_seconds): (f64, f64)) -> Evidence {
        let mut evidence =
            Evidence { target: TARGET.to_owned(), database: DATABASE.to_owned(), ..Evidence::default() };
        tree.add_to(&mut evidence, COLUMN_FAMILY);
        observe(&mut evidence, &self.operations, (window_seconds * 1e9) as u64);
        evidence.sentinel.duration_ns = (seconds * 1e9) as u64;
        evidence.sentinel.counters =
            Counters { tombstones_skipped: self.tombstones as u64, ..Counters::default() };
        tree.add_index_marks(&mut evidence);
        evidence
    }

    /// The whole of it.
    pub(super) fn turn(&self, tree: &Tree, by_rocksdb: Work, seconds: (f64, f64)) -> Turn {
        Turn {
            by_rocksdb,
            evidence: self.evidence(tree, seconds),
            pain_seconds: self.pain_ns / 1e9,
            tombstones_skipped: self.tombstones.round() as u64,
        }
    }
}
