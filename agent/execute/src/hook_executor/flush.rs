//! A flush, which nothing can stop.

use super::steps::{Step, Stepwise};
use crate::error::ExecuteError;
use crate::executor::POLL_INTERVAL;
use crate::hook::HookClient;
use crate::task::{FlushTask, JobOutcome, Progress};
use sexton_hook_protocol::CompactionState;
use std::time::{Duration, Instant};

/// How long a flush is waited for: a memtable is written in a second or two, and nothing can stop it.
const FLUSH_TIME_LIMIT: Duration = Duration::from_secs(60);

/// A flush, perhaps begun.
pub struct Flush {
    task: FlushTask,
    begun: Option<(u64, Instant)>,
    is_to_stop: bool,
}

impl Flush {
    pub fn new(task: FlushTask) -> Flush {
        Flush { task, begun: None, is_to_stop: false }
    }
}

impl Stepwise for Flush {
    fn step(&mut self, hook: &mut HookClient, progress: &mut Progress) -> Result<Step, ExecuteError> {
        let goes_on =
            |why: String| Err(ExecuteError::Request { reason: format!("{why}, and the flush goes on") });
        let Some((id, began)) = self.begun else {
            let id = hook.flush(&self.task.column_family)?;
            self.begun = Some((id, Instant::now()));
            progress.hook_job = Some(id);
            return Ok(Step::Next);
        };
        match hook.compaction_status(id)? {
            CompactionState::Finished(finished) if finished.ok => {
                Ok(Step::Ended(JobOutcome { duration: began.elapsed(), ..JobOutcome::default() }))
            }
            CompactionState::Finished(finished) => Err(ExecuteError::Request {
                reason: finished.error.unwrap_or_else(|| "the flush failed".to_owned()),
            }),
            CompactionState::Running { .. } if began.elapsed() >= FLUSH_TIME_LIMIT => {
                goes_on(format!("it takes longer than {FLUSH_TIME_LIMIT:?}"))
            }
            CompactionState::Running { .. } if self.is_to_stop => goes_on("the agent ends".to_owned()),
            CompactionState::Running { .. } => Ok(Step::Wait(POLL_INTERVAL)),
        }
    }

    fn cancel(&mut self) {
        self.is_to_stop = true;
    }
}
