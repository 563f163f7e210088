//! The keeper as an executor. It keeps what it has raised for as long as it lives.

use super::Keeper;
use crate::error::ExecuteError;
use crate::executor::{Executor, Job, Jobs};
use crate::task::{JobId, JobOutcome, JobStatus, PerfLevelTask, SettingTask, Task};
use sexton_inspect::facts::ThreadLevel;

/// Raises the perf level of one target's threads; dropping it restores their former levels.
#[derive(Default)]
pub struct PerfLevelExecutor {
    keeper: Option<Keeper>,
    jobs: Jobs,
}

impl PerfLevelExecutor {
    /// Whether anything has been raised that is not restored yet.
    pub fn is_active(&self) -> bool {
        self.keeper.is_some()
    }

    /// Threads of these that count because they were raised.
    pub fn raised(&self, levels: &[ThreadLevel]) -> u32 {
        self.keeper.as_ref().map_or(0, |keeper| keeper.raised(levels))
    }

    /// Threads of these that do not stay raised.
    pub fn refused(&self, levels: &[ThreadLevel]) -> u32 {
        self.keeper.as_ref().map_or(0, |keeper| keeper.refused(levels))
    }

    fn raise(&mut self, task: &PerfLevelTask) -> Result<(), ExecuteError> {
        let keeper = match &mut self.keeper {
            Some(keeper) => keeper,
            none => {
                tracing::info!(pid = task.process.pid, "raising the perf level, as the policy says");
                none.insert(Keeper::start(task.process, task.initial_level)?)
            }
        };
        Ok(keeper.raise(&task.levels)?)
    }
}

impl Executor for PerfLevelExecutor {
    /// Asks the keeper, which waits for nobody. Whether it worked shows in the next reading of the threads.
    fn start(&mut self, task: &Task) -> Result<JobId, ExecuteError> {
        let Task::Set(SettingTask::PerfLevel(task)) = task else {
            let what = "do anything but raise it";
            return Err(ExecuteError::Unsupported { executor: "perf level", what });
        };
        if let Err(error) = self.raise(task) {
            // What a keeper still holds it puts back when its input ends.
            self.keeper = None;
            return Err(error);
        }
        Ok(self.jobs.add(Asked))
    }

    fn jobs(&mut self) -> &mut Jobs {
        &mut self.jobs
    }

    /// There is no command for it.
    fn describe(&self, _: &Task) -> Vec<String> {
        Vec::new()
    }
}

/// The keeper has been asked: that is all there is to wait for.
struct Asked;

impl Job for Asked {
    fn poll(&mut self) -> JobStatus {
        JobStatus::Ended(Ok(JobOutcome::default()))
    }

    fn cancel(&mut self) {}
}
