//! The one way to get something done in a target, whoever does it.

use super::error::ExecuteError;
use super::task::{JobId, JobStatus, Task};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a job is polled: what it has come to is known, and cancelling takes effect, within this time.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Gets tasks done. Nothing here waits: a poll takes as long as one question to the hook at most, and that
/// has a limit.
///
/// Whether, when and what to do is decided elsewhere (`sexton-tuner`); so is verifying that it helped.
pub trait Executor: Send {
    /// Begins a task. It goes on when it is polled.
    ///
    /// # Errors
    /// When it cannot be begun: nothing was done.
    fn start(&mut self, task: &Task) -> Result<JobId, ExecuteError>;

    /// Where the jobs are that were begun.
    fn jobs(&mut self) -> &mut Jobs;

    /// Takes a job a step further, and says how it stands. One that has ended is forgotten.
    fn poll(&mut self, job: JobId) -> JobStatus {
        self.jobs().poll(job)
    }

    /// Has a job end before its time, where that is possible. It ends as [`super::JobEnd::Cancelled`].
    fn cancel(&mut self, job: JobId) {
        self.jobs().cancel(job);
    }

    /// Whether a compaction that runs can be stopped; where not, it is looked at before it begins and not
    /// while it runs.
    fn can_stop(&self) -> bool {
        true
    }

    /// What an operator would run to the same end, one shell line each.
    fn describe(&self, task: &Task) -> Vec<String>;
}

/// One job of an executor.
pub trait Job: Send {
    /// Takes it a step further.
    fn poll(&mut self) -> JobStatus;

    /// Notes that it is to end.
    fn cancel(&mut self);
}

/// Jobs that have been begun and have not ended.
#[derive(Default)]
pub struct Jobs(BTreeMap<JobId, Box<dyn Job>>);

impl Jobs {
    pub fn add(&mut self, job: impl Job + 'static) -> JobId {
        let id = JobId::unused();
        self.0.insert(id, Box::new(job));
        id
    }

    fn poll(&mut self, id: JobId) -> JobStatus {
        let Some(job) = self.0.get_mut(&id) else {
            let reason = "no such job: it has ended, or another executor has it".to_owned();
            return JobStatus::Ended(Err(ExecuteError::Request { reason }));
        };
        let status = job.poll();
        if matches!(status, JobStatus::Ended(_)) {
            self.0.remove(&id);
        }
        status
    }

    fn cancel(&mut self, id: JobId) {
        if let Some(job) = self.0.get_mut(&id) {
            job.cancel();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::task::JobOutcome;
    use super::*;

    /// Drives a task to its end, as an engine with nothing else to do would.
    pub fn run(executor: &mut dyn Executor, task: &Task) -> Result<JobOutcome, ExecuteError> {
        run_until(executor, task, || false)
    }

    /// The same; it is cancelled as soon as `is_cancelled` says so.
    pub fn run_until(
        executor: &mut dyn Executor,
        task: &Task,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<JobOutcome, ExecuteError> {
        let job = executor.start(task)?;
        loop {
            match executor.poll(job) {
                JobStatus::Ended(result) => {
                    assert!(matches!(executor.poll(job), JobStatus::Ended(Err(_))), "it is forgotten");
                    return result;
                }
                JobStatus::Running(progress) => std::thread::sleep(progress.poll_again_in),
            }
            if is_cancelled() {
                executor.cancel(job);
            }
        }
    }
}
