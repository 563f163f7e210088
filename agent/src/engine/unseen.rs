//! Slices whose end nobody has seen: the agent was killed in one, lost its connection to the hook, or has cancelled one
//! that did not end. What a hook has
//! begun goes on without an agent, and is a compaction on its block device until its RocksDB runs none.

use super::Engine;
use super::guards::running_compactions;
use sexton_execute::ExecuteError;
use sexton_inspect::facts::ProcessId;
use sexton_inspect::process::is_alive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long such a slice is taken to run where its RocksDB cannot be asked: none may take longer.
const UNSEEN_MAX: Duration = Duration::from_secs(600);

/// A slice whose end nobody has seen.
struct UnseenSlice {
    process: ProcessId,
    database: PathBuf,
    since: Instant,
}

/// All of them; there is one for each time that an agent or a connection was lost.
#[derive(Default)]
pub struct UnseenSlices(Vec<UnseenSlice>);

impl UnseenSlices {
    /// Takes one in; what was known of the same database before is one with it, for a hook runs one slice at a time.
    pub fn add(&mut self, process: ProcessId, database: PathBuf) {
        self.0.retain(|slice| slice.process != process || slice.database != database);
        self.0.push(UnseenSlice { process, database, since: Instant::now() });
    }

    /// Whether one may run in this database.
    pub fn may_run_in(&self, process: &ProcessId, database: &Path) -> bool {
        self.0.iter().any(|slice| slice.process == *process && slice.database == database)
    }

    /// Keeps those that may still run: `running` gives how many compactions a database runs, where it can be asked.
    fn keep(&mut self, running: impl Fn(&ProcessId, &Path) -> Option<u64>) {
        self.0.retain(|slice| match running(&slice.process, &slice.database) {
            Some(running) => running > 0,
            None => is_alive(&slice.process) && slice.since.elapsed() < UNSEEN_MAX,
        });
    }
}

impl Engine {
    /// Takes in what an earlier run was killed in, and forgets what has ended since.
    pub(super) fn follow_unseen_slices(&mut self) {
        for (process, database) in self.history.take_interrupted() {
            self.unseen.add(process, database);
        }
        let watched = &self.roster.watched;
        self.unseen.keep(|process, database| {
            let watched = watched.iter().find(|watched| watched.target.process == *process)?;
            running_compactions(watched, database)
        });
    }
}

/// Whether a slice that failed so may run on: the hook could not be heard any more, or it would not be stopped.
pub fn may_run_on(error: &ExecuteError) -> bool {
    matches!(
        error,
        ExecuteError::Connection { .. }
            | ExecuteError::UnexpectedAnswer { .. }
            | ExecuteError::StillRunning { .. }
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_slice_that_would_not_be_stopped_counts_as_one_that_may_run_on() {
        let error = ExecuteError::StillRunning {
            pid: 1,
            job: 7,
            reason: "it was asked for".into(),
            waited: Duration::from_secs(60),
        };
        assert!(may_run_on(&error));
        assert!(error.to_string().contains("was to stop because it was asked for"), "{error}");
        assert!(!may_run_on(&ExecuteError::ProcessGone { pid: 1 }));
    }

    #[test]
    fn a_slice_is_forgotten_when_its_rocksdb_runs_no_compaction_or_its_process_has_ended() {
        let own = sexton_inspect::process::process_id(std::process::id()).unwrap();
        let gone = ProcessId { start_time_ticks: 1, ..own };
        let (one, two) = (PathBuf::from("/one"), PathBuf::from("/two"));
        let mut slices = UnseenSlices::default();
        slices.add(own, one.clone());
        slices.add(own, one.clone());
        slices.add(own, two.clone());
        slices.add(gone, two.clone());
        assert_eq!(slices.0.len(), 3);
        // Nobody can be asked yet.
        slices.keep(|_, _| None);
        assert!(slices.may_run_in(&own, &one) && slices.may_run_in(&own, &two));
        assert!(!slices.may_run_in(&gone, &two));
        slices.keep(|_, database| Some(u64::from(database == one)));
        assert!(slices.may_run_in(&own, &one) && !slices.may_run_in(&own, &two));
        slices.keep(|_, _| Some(0));
        assert!(slices.0.is_empty());
    }
}
