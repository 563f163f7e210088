//! The executor `hook`: what the library inside the target does.
//!
//! A job goes on by [`steps`]: a [`compaction`] has many, a [`flush`] some, setting an [`option`] one.

mod compaction;
mod flush;
mod option;
mod steps;
mod stop;

use crate::error::ExecuteError;
use crate::executor::{Executor, Jobs};
use crate::hook::SharedHook;
use crate::task::{JobId, SettingTask, Task};
use crate::template::shell_word;
use compaction::Compaction;
use flush::Flush;
use option::SetOption;
use std::path::PathBuf;
use std::time::Duration;
use steps::Steps;

/// How long a compaction that is to stop is waited for. RocksDB gives up one that runs within a key or so;
/// what has not ended after this waits for something that may take hours, and other targets wait for this
/// agent.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(60);

/// Has the hook compact, flush and set options.
pub struct HookExecutor {
    hook: Option<SharedHook>,
    /// For describing: the file that the agent runs with.
    policy_path: Option<PathBuf>,
    cancel_limit: Duration,
    /// Whether what was begun can be stopped.
    can_stop: bool,
    jobs: Jobs,
}

impl HookExecutor {
    /// Over a connection; without one it can only describe.
    pub fn new(hook: Option<SharedHook>, policy_path: Option<PathBuf>) -> HookExecutor {
        HookExecutor {
            hook,
            policy_path,
            cancel_limit: CANCEL_TIME_MAX,
            can_stop: true,
            jobs: Jobs::default(),
        }
    }

    /// How long a compaction that is to stop is waited for before it is given up on.
    #[must_use]
    pub fn giving_up_after(self, cancel_limit: Duration) -> HookExecutor {
        HookExecutor { cancel_limit, ..self }
    }

    fn hook(&self, pid: u32) -> Result<SharedHook, ExecuteError> {
        self.hook.clone().ok_or(ExecuteError::NoHook { pid })
    }
}

impl Executor for HookExecutor {
    fn start(&mut self, task: &Task) -> Result<JobId, ExecuteError> {
        match task {
            Task::Compact(task) => {
                let compaction = Compaction::new(task, self.cancel_limit)?;
                let steps = Steps::new(self.hook(task.process.pid)?, compaction);
                self.can_stop = task.files.is_none();
                Ok(self.jobs.add(steps))
            }
            Task::Flush(task) => {
                let flush = Flush::new(task.clone());
                let steps = Steps::new(self.hook(task.process.pid)?, flush);
                Ok(self.jobs.add(steps))
            }
            Task::Set(SettingTask::Option(task)) => {
                let steps = Steps::new(self.hook(task.process.pid)?, SetOption(task.clone()));
                Ok(self.jobs.add(steps))
            }
            _ => Err(ExecuteError::Unsupported { executor: "hook", what: "set or read that" }),
        }
    }

    fn jobs(&mut self) -> &mut Jobs {
        &mut self.jobs
    }

    fn can_stop(&self) -> bool {
        self.can_stop
    }

    /// No tool outside of the process can compact an open database, so the command is this agent's own, in
    /// mode `act`.
    fn describe(&self, task: &Task) -> Vec<String> {
        let Task::Compact(task) = task else { return Vec::new() };
        vec![match &self.policy_path {
            Some(policy) => format!(
                "sexton run --policy {}  # with `mode: act` for {}",
                shell_word(&policy.to_string_lossy()),
                shell_word(&task.target)
            ),
            None => format!(
                "sexton run --policy act.yaml  # a policy with `mode: act` and `pid: {}` as a target",
                task.process.pid
            ),
        }]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::exec::tests::request;
    use crate::task::HandlePointers;

    #[test]
    fn without_a_hook_it_only_describes() {
        let mut executor = HookExecutor::new(None, Some("/etc/sexton/my policy.yaml".into()));
        let mut request = request(b"a", None);
        let line = executor.describe(&Task::Compact(request.clone())).remove(0);
        assert!(line.starts_with("sexton run --policy '/etc/sexton/my policy.yaml'"), "{line}");
        let line = HookExecutor::new(None, None).describe(&Task::Compact(request.clone())).remove(0);
        assert!(line.contains("4711"), "{line}");
        let unseen = executor.start(&Task::Compact(request.clone())).unwrap_err();
        assert!(unseen.to_string().starts_with("no probe has seen"), "{unseen}");
        request.handles = Some(HandlePointers { database: 8, column_family_handle: 16, column_family_id: 2 });
        let error = executor.start(&Task::Compact(request)).unwrap_err();
        assert!(matches!(error, ExecuteError::NoHook { pid: 4711 }), "{error}");
    }
}
