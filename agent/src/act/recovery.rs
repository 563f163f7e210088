//! What earlier runs have left running: jobs that are in doubt are asked after, and those that nobody waits
//! for any more are followed until their RocksDB runs none.

use super::Actor;
use super::job_end::not_begun;
use crate::observe::Observer;
use crate::session::{Answer, READINGS_LIMIT, RunningCompactions, Session};
use sexton_execute::ExecuteError;
use sexton_hook_protocol::{CompactionState, ErrorKind, Finished};
use sexton_inspect::facts::{ProcessId, TargetId};
use sexton_inspect::process::is_alive;
use sexton_journal::clock;
use sexton_tuner::run::{self, ActionId, ActionState, JobEnd, JobId, JobResult, JobStatus, Ledger};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

impl Actor {
    /// Goes on from what earlier runs have left.
    pub fn take_stored(&mut self, observer: &mut Observer, stored: run::Stored) {
        let (ledger, effects) = Ledger::load(stored, &observer.policy, clock::now(), is_alive);
        self.ledger = ledger;
        self.throttles.known = self.journal.throttles(is_alive);
        self.carry_out(observer, effects);
    }

    /// Asks the hooks what became of actions that an earlier run could not end.
    pub fn ask_after_jobs(&mut self, observer: &mut Observer) {
        let in_doubt = self.ledger.actions().filter_map(|action| match &action.state {
            ActionState::InDoubt(in_doubt) => Some((action.id, action.process, in_doubt.job)),
            _ => None,
        });
        let in_doubt: Vec<(ActionId, ProcessId, JobId)> = in_doubt.collect();
        for (action, process, job) in in_doubt {
            if !is_alive(&process) {
                self.hear(observer, action, run::Event::TargetGone);
                continue;
            }
            let mut targets = observer.roster.watched.iter_mut().filter(|it| it.target.process == process);
            let Some(watched) = targets.find(|watched| watched.hook.is_connected) else { continue };
            let ask = move |session: &mut Session| {
                let state = session.converse(|hook| hook.compaction_status(job.0));
                match state.and_then(status_of) {
                    Some(status) => Answer::Recalled { action, status },
                    None => Answer::Nothing,
                }
            };
            watched.ask(&observer.post, "an earlier run's job", READINGS_LIMIT, ask);
        }
    }

    /// The hook of an action in doubt has answered.
    pub fn take_recalled(&mut self, observer: &mut Observer, id: ActionId, status: JobStatus) {
        let state = self.ledger.action(id).map(|action| &action.state);
        if let Some(ActionState::InDoubt(_)) = state {
            self.hear(observer, id, run::Event::Job(status));
        }
    }

    /// Asks the RocksDBs in which something may run unseen whether it does.
    pub fn ask_after_orphans(&mut self, observer: &mut Observer) {
        for watched in observer.roster.watched.iter_mut().filter(|watched| watched.hook.is_connected) {
            let orphans = self.ledger.orphans().iter();
            let own = orphans.filter(|orphan| orphan.process == watched.target.process);
            let databases: BTreeSet<PathBuf> =
                own.filter_map(|orphan| Some(orphan.database.as_ref()?.path.clone())).collect();
            if !databases.is_empty() {
                let databases: Vec<PathBuf> = databases.into_iter().collect();
                watched.ask(
                    &observer.post,
                    "the count of running compactions",
                    READINGS_LIMIT,
                    move |session| Answer::Orphans(session.running(&databases)),
                );
            }
        }
        self.ledger.follow_orphans(clock::now(), |_| None);
    }

    /// Forgets what has ended since.
    pub fn take_orphans(&mut self, target: TargetId, running: &RunningCompactions) {
        self.ledger.follow_orphans(clock::now(), |orphan| {
            let database = orphan.database.as_ref().filter(|_| orphan.process == target.process)?;
            running.iter().find(|(path, _)| *path == database.path)?.1
        });
    }
}

/// What the hook's word about a job is worth; `None`: nothing yet.
fn status_of(state: Result<CompactionState, ExecuteError>) -> Option<JobStatus> {
    match state {
        Ok(CompactionState::Running { .. }) => Some(JobStatus::Running { job: None, can_stop: false }),
        Ok(CompactionState::Finished(finished)) => Some(JobStatus::Ended(end_of(finished))),
        Err(ExecuteError::Hook { kind: ErrorKind::NotFound, .. }) => Some(JobStatus::Unknown),
        Err(_) => None,
    }
}

/// What the hook says of a job. What it changed nobody has measured.
fn end_of(finished: Finished) -> JobEnd {
    let reason = finished.error.as_ref().map(ToString::to_string).unwrap_or_default();
    if finished.busy {
        return not_begun(reason);
    }
    let result = match finished {
        Finished { cancelled: true, .. } => JobResult::Cancelled(reason),
        Finished { ok: true, .. } => JobResult::Done,
        Finished { .. } => JobResult::Failed { reason, may_run_on: false },
    };
    JobEnd { duration: Duration::from_nanos(finished.duration_ns), ..JobEnd::new(result) }
}
