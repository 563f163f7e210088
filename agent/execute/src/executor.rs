//! The one way to get something done in a target, whoever does it.

use super::error::ExecuteError;
use super::exec::CommandExecutor;
use super::hook::SharedHook;
use super::hook_executor::HookExecutor;
use super::sql::SqlExecutor;
use super::task::{JobId, JobStatus, Task};
use super::template::CommandTemplate;
use sexton_tuner::policy::{ActuatorKind, TargetPolicy};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that a compaction may take. Its bytes are bounded by the budget; a disk that needs longer for
/// them is hurting already.
pub const COMPACTION_TIME_LIMIT: Duration = Duration::from_secs(600);

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

/// What an executor needs to know of the target that it works on.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The policy's entry for it.
    pub entry: &'a TargetPolicy,
    /// The connection to the hook inside, where there is one.
    pub hook: Option<&'a SharedHook>,
    pub policy_path: Option<&'a PathBuf>,
    /// Whether what is described may show whole keys.
    pub shows_keys: bool,
}

/// Who does a task: of compactions the policy says it, the rest is a matter of the task.
///
/// # Errors
/// [`ExecuteError::Template`], [`ExecuteError::Request`] where the policy's entry cannot be followed.
pub fn executor_for(task: &Task, site: &Site<'_>) -> Result<Box<dyn Executor>, ExecuteError> {
    let hook = || HookExecutor::new(site.hook.cloned(), site.policy_path.cloned());
    Ok(match (task, site.entry.actuator) {
        (Task::Compact(_), ActuatorKind::Exec) => {
            let exec = site.entry.exec.as_ref();
            let template = exec.map(|exec| CommandTemplate::new(&exec.compact)).transpose()?;
            let time_limit = exec.map_or(COMPACTION_TIME_LIMIT, |exec| exec.timeout.duration());
            Box::new(CommandExecutor::new(template, time_limit, site.shows_keys))
        }
        (Task::Compact(_), ActuatorKind::Sql) => {
            let missing =
                || ExecuteError::Request { reason: "the policy does not say where the server is".to_owned() };
            Box::new(SqlExecutor::new(site.entry.sql.as_ref().ok_or_else(missing)?))
        }
        (Task::Set(setting) | Task::Read(setting), _) if setting.is_of_commands() => {
            Box::new(CommandExecutor::new(None, COMPACTION_TIME_LIMIT, site.shows_keys))
        }
        _ => Box::new(hook()),
    })
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
