//! What windows have seen of the databases of a target. It fades within minutes, so it is written seldom and
//! never waited for.

use super::batch::{Batch, Kind};
use super::samples::name;
use super::state::State;
use serde::{Deserialize, Serialize};
use sexton_tuner::ledger::PainLedger;
use sexton_tuner::run::DatabaseIdentity;

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The databases that the target had open.
    databases: Vec<DatabaseIdentity>,
    ledger: PainLedger,
}

/// What was kept of a target that has these databases open. What was seen in one that has given way to
/// another one in the same place is left out.
pub fn load(state: &State, databases: &[DatabaseIdentity]) -> Option<PainLedger> {
    let Kept { databases: known, mut ledger } = state.get(Kind::Pain, &name(databases.first()?))?;
    ledger.retain(|path| {
        let mut same = databases.iter().filter(|database| known.contains(database));
        same.any(|database| database.path.display().to_string() == path)
    });
    Some(ledger)
}

/// What to write; nothing for a target without databases.
pub fn put(databases: &[DatabaseIdentity], ledger: &PainLedger) -> Batch {
    let mut batch = Batch::default();
    if let Some(first) = databases.first() {
        let kept = Kept { databases: databases.to_vec(), ledger: ledger.clone() };
        batch.put(Kind::Pain, &name(first), &kept);
    }
    batch
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::evidence::{Observation, Window};

    fn database(path: &str, inode: u64) -> DatabaseIdentity {
        DatabaseIdentity { path: path.into(), inode }
    }

    fn observation() -> Observation {
        serde_json::from_value(serde_json::json!({
            "column_family": "default", "kind": "seek", "key": "61", "seek_latency_ns": 1, "scan_elapsed_ns": 1,
            "seek": {
                "tombstones_skipped": 7, "keys_skipped": 0, "block_reads": 0, "block_read_bytes": 0, "block_cache_hits": 0
            },
            "scan": {
                "tombstones_skipped": 0, "keys_skipped": 0, "block_reads": 0, "block_read_bytes": 0, "block_cache_hits": 0
            }
        }))
        .unwrap()
    }

    #[test]
    fn what_was_seen_outlives_the_agent_and_not_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let both = [database("/one", 1), database("/two", 2)];
        let mut ledger = PainLedger::default();
        let seen = [observation()];
        let window = Window { duration_ns: 1, ..Window::default() };
        ledger.take(&window, [("/one", &seen[..]), ("/two", &seen[..])], jiff::Timestamp::UNIX_EPOCH);
        {
            let (mut state, _) = State::open(folder.path()).unwrap();
            state.append(put(&both, &ledger));
            state.append(put(&[], &ledger));
        }
        let (state, _) = State::open(folder.path()).unwrap();
        assert_eq!(load(&state, &both), Some(ledger.clone()));
        assert_eq!(load(&state, &[database("/three", 3)]), None);
        assert_eq!(load(&state, &[]), None);
        let replaced = load(&state, &[database("/one", 1), database("/two", 9)]).unwrap();
        assert_eq!(replaced.databases(), [String::from("/one")].into());
    }
}
