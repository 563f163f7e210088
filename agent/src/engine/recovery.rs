//! What earlier runs have left running: actions that are in doubt are asked after, and compactions that
//! nobody waits for any more are followed until their RocksDB runs none.

use super::Engine;
use crate::session::{READINGS_LIMIT, Session};
use sexton_execute::ExecuteError;
use sexton_hook_protocol::{CompactionState, ErrorKind, Finished};
use sexton_inspect::process::is_alive;
use sexton_journal::clock;
use sexton_tuner::run::{ActionId, End, InDoubt, JobId, Outcome, ProcessId};
use std::time::Duration;

/// How long the hook of an action in doubt is waited for: a first window brings it in, and a busy node opens
/// that late.
const HOOK_WAIT_MAX: Duration = Duration::from_secs(120);

/// What can be said of an action in doubt now.
enum Fate {
    /// Not yet known.
    Open,
    /// It will never be known.
    Unknown,
    Ended(Finished),
}

impl Engine {
    /// Asks the hooks what became of actions that an earlier run could not end.
    pub(super) fn end_in_doubt(&mut self) {
        let in_doubt = self.history.in_doubt();
        let in_doubt: Vec<(ActionId, ProcessId, InDoubt)> =
            in_doubt.map(|(action, in_doubt)| (action.id, action.process, in_doubt.clone())).collect();
        for (id, process, in_doubt) in in_doubt {
            match self.fate(&process, &in_doubt) {
                Fate::Open => {}
                Fate::Unknown => self.history.interrupt(id),
                Fate::Ended(finished) => self.history.end_in_doubt(id, end_of(in_doubt.job, &finished)),
            }
        }
    }

    fn fate(&mut self, process: &ProcessId, in_doubt: &InDoubt) -> Fate {
        if !is_alive(process) {
            return Fate::Unknown;
        }
        let waited = clock::now().since(&in_doubt.since);
        let patience = if waited < HOOK_WAIT_MAX { Fate::Open } else { Fate::Unknown };
        let mut targets = self.roster.watched.iter_mut().filter(|it| it.target.process == *process);
        let Some(watched) = targets.find(|watched| watched.hook.is_connected) else { return patience };
        let job = in_doubt.job.0;
        let ask = move |session: &mut Session| session.converse(|hook| hook.compaction_status(job));
        let Some(Some(state)) = watched.call("an earlier run's job", READINGS_LIMIT, ask) else {
            return patience;
        };
        match state {
            Ok(CompactionState::Running { .. }) => Fate::Open,
            Ok(CompactionState::Finished(finished)) => Fate::Ended(finished),
            Err(ExecuteError::Hook { kind: ErrorKind::NotFound, .. }) => Fate::Unknown,
            Err(_) => patience,
        }
    }

    /// Takes in what an earlier run was killed in, and forgets what has ended since.
    pub(super) fn follow_orphans(&mut self) {
        for (process, database) in self.history.take_interrupted() {
            self.orphans.add(process, database);
        }
        let watched = &mut self.roster.watched;
        self.orphans.keep(is_alive, |process, database| {
            let watched = watched.iter_mut().find(|watched| watched.target.process == *process)?;
            watched.running_compactions(vec![database.to_owned()]).pop()?.1
        });
    }
}

/// What the hook says of a job. What it changed nobody has measured.
fn end_of(job: JobId, finished: &Finished) -> End {
    let seconds = Duration::from_nanos(finished.duration_ns).as_secs_f64();
    let (outcome, ended) = match finished {
        Finished { cancelled: true, .. } => (Outcome::Cancelled, "was cancelled"),
        Finished { ok: true, .. } => (Outcome::Done, "was done"),
        Finished { .. } => (Outcome::Failed, "failed"),
    };
    let why = finished.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let message = format!(
        "the agent ended while it was under way; the hook says that its job {} {ended} after {seconds:.1} s{why}",
        job.0
    );
    let end = End::new(clock::now(), outcome, message);
    End { duration_seconds: seconds, rests: outcome == Outcome::Done, ..end }
}

/// Whether a compaction that failed so may run on: the hook could not be heard any more, or it would not be
/// stopped.
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
    use super::*;

    #[test]
    fn a_compaction_that_would_not_be_stopped_counts_as_one_that_may_run_on() {
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
}
