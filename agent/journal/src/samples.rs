//! Where the agent was when it ended: when each database was last sampled, and what the last plan still
//! wanted.
//!
//! A plan is made of what a window sees now, never of what an earlier run saw. So what was wanted is no
//! order: it says which databases to look at first.

use super::batch::{Batch, Kind};
use super::state::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sexton_tuner::plan::{Action, COMPACTIONS_MAX, CompactRange, Plan};
use sexton_tuner::run::{DatabaseIdentity, Place};
use std::collections::BTreeMap;

/// Databases remembered; a node has some dozens. Beyond that the ones that were not looked at for longest go.
const DATABASES_MAX: usize = 1_000;

/// What is remembered of one database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    database: DatabaseIdentity,
    /// When a window on its process was last open, seconds since the Unix epoch.
    window_unix_s: i64,
    /// What the plan made of that window wanted and has not been begun.
    wanted: Vec<Place>,
}

/// What is remembered of all databases.
#[derive(Debug, Default)]
pub struct Samples {
    by_database: BTreeMap<DatabaseIdentity, Sample>,
}

impl Samples {
    /// What an earlier run has left.
    pub fn load(state: &State) -> Samples {
        let records: Vec<(String, Sample)> = state.last(Kind::Sample, DATABASES_MAX);
        let samples = records.into_iter().map(|(_, sample)| (sample.database.clone(), sample));
        Samples { by_database: samples.collect() }
    }

    /// Time since a window was last open on the target of these databases, nanoseconds; `None` where one of
    /// them was never looked at, or something was still wanted of it: then there is no reason to wait.
    pub fn since_window_ns(&self, databases: &[DatabaseIdentity], now: Timestamp) -> Option<u64> {
        let samples = databases.iter().map(|database| self.by_database.get(database));
        let samples = samples.collect::<Option<Vec<&Sample>>>()?;
        if samples.iter().any(|sample| !sample.wanted.is_empty()) {
            return None;
        }
        let oldest_s = samples.iter().map(|sample| sample.window_unix_s).min()?;
        // A time to come is a clock that was set back.
        let since_s = u64::try_from(now.as_second().saturating_sub(oldest_s)).ok()?;
        Some(since_s.saturating_mul(1_000_000_000))
    }

    /// A window on `target`, which has these databases open, is over, and this plan was made of it. Gives
    /// what to write.
    pub fn note(
        &mut self,
        target: &str,
        databases: &[DatabaseIdentity],
        plan: &Plan,
        now: Timestamp,
    ) -> Batch {
        let mut batch = Batch::default();
        for database in databases {
            let compactions = plan.actions.iter().filter_map(compaction);
            let path = database.path.display().to_string();
            let wanted = compactions.filter(|compact| compact.target == target && compact.database == path);
            let wanted = wanted.take(COMPACTIONS_MAX).map(|compact| Place {
                database: database.clone(),
                column_family: compact.column_family.clone(),
                range: compact.range.clone(),
            });
            let wanted = wanted.collect();
            let sample = Sample { database: database.clone(), window_unix_s: now.as_second(), wanted };
            self.put(sample, &mut batch);
        }
        self.drop_excess(&mut batch);
        batch
    }

    /// Something is being done there: it is wanted no more. Gives what to write.
    pub fn begin(&mut self, place: &Place) -> Batch {
        let mut batch = Batch::default();
        if let Some(mut sample) = self.by_database.get(&place.database).cloned() {
            sample.wanted.retain(|wanted| wanted != place);
            self.put(sample, &mut batch);
        }
        batch
    }

    fn put(&mut self, sample: Sample, batch: &mut Batch) {
        batch.put(Kind::Sample, &name(&sample.database), &sample);
        self.by_database.insert(sample.database.clone(), sample);
    }

    fn drop_excess(&mut self, batch: &mut Batch) {
        while self.by_database.len() > DATABASES_MAX {
            let oldest = self.by_database.values().min_by_key(|sample| sample.window_unix_s);
            let Some(database) = oldest.map(|sample| sample.database.clone()) else { return };
            batch.delete(Kind::Sample, &name(&database));
            batch.delete(Kind::Pain, &name(&database));
            batch.delete(Kind::Cursor, &name(&database));
            self.by_database.remove(&database);
        }
    }
}

fn compaction(action: &Action) -> Option<&CompactRange> {
    match action {
        Action::CompactRange(compact) => Some(compact),
        _ => None,
    }
}

/// What the records of a database are named.
pub fn name(database: &DatabaseIdentity) -> String {
    format!("{}:{}", database.inode, database.path.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn database(inode: u64) -> DatabaseIdentity {
        DatabaseIdentity { path: "/db".into(), inode }
    }

    /// A plan that wants one range of `/db` compacted in `java-1`.
    fn plan() -> Plan {
        let before = serde_json::json!({
            "target": "java-1", "database": "/db", "column_family": "default",
            "range": { "begin": "61", "end": "62" }, "operations_per_second": 1.0, "tombstones_per_seek": 1.0,
            "memtable_tombstones_per_seek": 0.0, "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1,
            "deletions": 1, "density": 1.0, "pain_seconds_per_second": 1.0, "relief_seconds_per_second": 1.0,
            "cost_bytes": 1, "relief_per_byte": 1.0, "reason": ""
        });
        serde_json::from_value(serde_json::json!({
            "at": "2026-11-20T10:00:00Z", "budget_bytes": 1, "cost_bytes": 1, "refusals": [], "assessments": [],
            "actions": [{
                "action": "compact_range", "target": "java-1", "database": "/db", "column_family": "default",
                "range": { "begin": "61", "end": "62" }, "before": before,
                "bottommost": "force", "cost_bytes": 1, "relief_seconds_per_second": 1.0, "deletions": 1, "reason": ""
            }]
        }))
        .unwrap()
    }

    #[test]
    fn a_database_is_due_when_it_was_never_seen_or_something_is_wanted() {
        let (one, nothing) = ([database(1)], Plan { actions: Vec::new(), ..plan() });
        let mut samples = Samples::default();
        assert_eq!(samples.since_window_ns(&one, at(100)), None);
        samples.note("java-1", &one, &nothing, at(100));
        assert_eq!(samples.since_window_ns(&one, at(107)), Some(7 * SECOND_NS));
        assert_eq!(samples.since_window_ns(&one, at(90)), None, "the clock was set back");
        let both = [database(1), database(2)];
        assert_eq!(samples.since_window_ns(&both, at(107)), None, "the other one was never seen");
        samples.note("java-1", &one, &plan(), at(110));
        assert_eq!(samples.since_window_ns(&one, at(111)), None, "something is wanted of it");
        let place = samples.by_database.get(&database(1)).unwrap().wanted.first().unwrap().clone();
        samples.begin(&place);
        assert_eq!(samples.since_window_ns(&one, at(111)), Some(SECOND_NS));
        samples.note("java-2", &one, &plan(), at(112));
        assert_eq!(samples.since_window_ns(&one, at(112)), Some(0), "that is wanted of another target");
    }

    #[test]
    fn what_is_remembered_outlives_the_agent_and_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = State::open(folder.path()).unwrap();
        let mut samples = Samples::default();
        for number in 0..DATABASES_MAX as u64 + 10 {
            let second = i64::try_from(number).unwrap();
            state.append(samples.note("java-1", &[database(number)], &plan(), at(second)));
        }
        let loaded = Samples::load(&state);
        assert_eq!(loaded.by_database, samples.by_database);
        assert_eq!(loaded.by_database.len(), DATABASES_MAX);
        assert!(!loaded.by_database.contains_key(&database(9)), "the oldest have gone");
    }
}
