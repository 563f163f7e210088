//! Orphaned compactions: the agent was killed in one, lost its connection to the hook, or has cancelled one
//! that did not end. What a hook has begun goes on without an agent, and is a compaction on its block device
//! until its RocksDB runs none.

use sexton_tuner::run::{ORPHAN_TIME_MAX, ProcessId};
use std::path::{Path, PathBuf};
use std::time::Instant;

struct Orphan {
    process: ProcessId,
    database: PathBuf,
    since: Instant,
}

/// All of them; there is one for each time that an agent or a connection was lost.
#[derive(Default)]
pub struct OrphanedCompactions(Vec<Orphan>);

impl OrphanedCompactions {
    /// Takes one in; what was known of the same database before is one with it, for a hook runs one at a
    /// time.
    pub fn add(&mut self, process: ProcessId, database: PathBuf) {
        self.0.retain(|orphan| orphan.process != process || orphan.database != database);
        self.0.push(Orphan { process, database, since: Instant::now() });
    }

    /// Whether one may run in this database.
    pub fn may_run_in(&self, process: &ProcessId, database: &Path) -> bool {
        self.0.iter().any(|orphan| orphan.process == *process && orphan.database == database)
    }

    /// Keeps those that may still run: `running` gives how many compactions a database runs, where it can be
    /// asked.
    pub fn keep(
        &mut self,
        is_alive: impl Fn(&ProcessId) -> bool,
        mut running: impl FnMut(&ProcessId, &Path) -> Option<u64>,
    ) {
        self.0.retain(|orphan| match running(&orphan.process, &orphan.database) {
            Some(running) => running > 0,
            None => is_alive(&orphan.process) && orphan.since.elapsed() < ORPHAN_TIME_MAX,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_is_forgotten_when_its_rocksdb_runs_no_compaction_or_its_process_has_ended() {
        let own = ProcessId { pid: 1, start_time_ticks: 2 };
        let gone = ProcessId { start_time_ticks: 1, ..own };
        let (one, two) = (PathBuf::from("/one"), PathBuf::from("/two"));
        let mut orphans = OrphanedCompactions::default();
        orphans.add(own, one.clone());
        orphans.add(own, one.clone());
        orphans.add(own, two.clone());
        orphans.add(gone, two.clone());
        assert_eq!(orphans.0.len(), 3);
        // Nobody can be asked yet.
        orphans.keep(|process| *process == own, |_, _| None);
        assert!(orphans.may_run_in(&own, &one) && orphans.may_run_in(&own, &two));
        assert!(!orphans.may_run_in(&gone, &two));
        orphans.keep(|process| *process == own, |_, database| Some(u64::from(database == one)));
        assert!(orphans.may_run_in(&own, &one) && !orphans.may_run_in(&own, &two));
        orphans.keep(|process| *process == own, |_, _| Some(0));
        assert!(orphans.0.is_empty());
    }
}
