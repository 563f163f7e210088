//! Jobs in steps, each of which is one question to the hook, or several that share the time of one. A job
//! holds the connection for a poll and not longer: between two polls others may ask.

use crate::error::ExecuteError;
use crate::executor::Job;
use crate::hook::{HookClient, SharedHook};
use crate::task::{JobOutcome, JobStatus, Progress};
use sexton_hook_protocol::limits::ANSWER_WAIT_MAX;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// A poll begins no further step after this time. Nearly all steps take less than a millisecond.
const POLL_TIME: Duration = Duration::from_millis(20);

/// Something that the hook does in steps.
pub trait Stepwise: Send {
    /// Takes the next step. What is new goes into `progress`.
    fn step(&mut self, hook: &mut HookClient, progress: &mut Progress) -> Result<Step, ExecuteError>;

    fn cancel(&mut self);
}

/// What a step has come to.
pub enum Step {
    /// The next one can be taken at once.
    Next,
    /// There is nothing to do before so long.
    Wait(Duration),
    Ended(JobOutcome),
}

/// A job over the hook's connection.
pub struct Steps<S> {
    hook: SharedHook,
    work: S,
}

impl<S: Stepwise> Steps<S> {
    pub fn new(hook: SharedHook, work: S) -> Steps<S> {
        Steps { hook, work }
    }
}

impl<S: Stepwise> Job for Steps<S> {
    fn poll(&mut self) -> JobStatus {
        let began = Instant::now();
        let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = Progress::default();
        loop {
            match hook.within(ANSWER_WAIT_MAX, |hook| self.work.step(hook, &mut progress)) {
                Ok(Step::Ended(outcome)) => return JobStatus::Ended(Ok(outcome)),
                Ok(Step::Wait(pause)) => {
                    progress.poll_again_in = pause;
                    return JobStatus::Running(progress);
                }
                // The hook's number of the job is told before anything else is done.
                Ok(Step::Next) if began.elapsed() < POLL_TIME && progress.hook_job.is_none() => {}
                Ok(Step::Next) => return JobStatus::Running(progress),
                Err(error) => return JobStatus::Ended(Err(error)),
            }
        }
    }

    fn cancel(&mut self) {
        self.work.cancel();
    }
}
