//! Where in a column family readers lose time that a compaction would give back: key by key, as far as it is
//! known, and not range by range.

use crate::facts::evidence::{EventCosts, Observation};
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use crate::loss::read_time::{UNITS_PER_TOMBSTONE, events};
use crate::lsm::hidden_entries::HiddenEntries;
use crate::lsm::ruler::{running, shared_out, within};
use crate::lsm::tombstone_placement::Placement;

/// Where the first and the last of what goes with memtables lie does not matter: such a share of it on
/// either side.
const MEMTABLE_TAIL: f64 = 0.05;

/// Running sums by the marks of a [`Placement`]; empty where no reader was seen.
#[derive(Clone, Debug, Default)]
pub struct ReliefMap {
    /// Nanoseconds of the window that go with tombstones in files.
    in_files: Vec<f64>,
    /// And with those in memtables.
    in_memtables: Vec<f64>,
    /// And with entries in files that others hide.
    hidden: Vec<f64>,
}

/// What readers lose between two keys that a compaction would give back, in the unit of the map.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Relief {
    in_files: f64,
    pub(crate) in_memtables: f64,
    hidden: f64,
}

impl Relief {
    pub(crate) fn total(&self) -> f64 {
        self.in_files + self.in_memtables + self.hidden
    }
}

impl ReliefMap {
    pub(crate) fn of(
        placement: &Placement,
        hidden_entries: &HiddenEntries,
        observations: &[&Observation],
        costs: &EventCosts,
    ) -> ReliefMap {
        let (mut in_files, mut in_memtables, mut hidden) = (Vec::new(), Vec::new(), Vec::new());
        for operation in observations {
            let seen = events(operation);
            let units = seen.tombstones * UNITS_PER_TOMBSTONE + seen.hidden.units();
            if units == 0 {
                continue;
            }
            let unit_ns = costs.loss(operation).relief_ns as f64 * operation.weight as f64 / units as f64;
            if seen.hidden.units() > 0 {
                let met = hidden_entries.met(placement, operation);
                hidden.push((met.grid, unit_ns * met.in_files as f64));
            }
            if seen.tombstones == 0 {
                continue;
            }
            let ns = unit_ns * UNITS_PER_TOMBSTONE as f64;
            for met in placement.met(operation, seen.tombstones).0 {
                in_files.push((met.grid, ns * met.in_files as f64));
                in_memtables.push((met.grid, ns * met.in_memtables as f64));
            }
        }
        let [files, memtables] = placement.deletions_by_interval();
        ReliefMap {
            in_files: running(shared_out(&files, in_files)),
            in_memtables: running(shared_out(&memtables, in_memtables)),
            hidden: running(hidden_entries.shared_out(hidden)),
        }
    }

    /// Whether a key lies among those that tombstones in memtables can have, where most of what is lost there
    /// goes with these. A flush makes one file of them, and only what overlaps it takes them along: a job of
    /// a part of these keys relieves all of it or nothing.
    pub(crate) fn divides_memtables(&self, placement: &Placement, key: &Key) -> bool {
        let all = self.in_memtables.last().copied().unwrap_or(0.0);
        let first = self.in_memtables.partition_point(|sum| *sum <= all * MEMTABLE_TAIL).saturating_sub(1);
        let last = self.in_memtables.partition_point(|sum| *sum < all * (1.0 - MEMTABLE_TAIL));
        let here = (within(&self.in_files, (first, last)), within(&self.in_memtables, (first, last)));
        let in_files = here.0 + within(&self.hidden, (first, last));
        here.1 > 0.0 && here.1 >= in_files && placement.is_within(key, (first, last))
    }

    pub(crate) fn of_range(&self, placement: &Placement, range: &KeyRange) -> Relief {
        let sums = [&self.in_files, &self.in_memtables, &self.hidden];
        let [in_files, in_memtables, hidden] = placement.sums_within(sums.map(Vec::as_slice), range);
        Relief { in_files, in_memtables, hidden }
    }
}
