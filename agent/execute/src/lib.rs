//! Acting on a target: whatever is done in one goes through an [`Executor`], which is told what, does it when
//! it is polled, and says how it stands. Whether, when and what to do is decided elsewhere (`sexton-tuner`);
//! so is verifying that it helped.
//!
//! - `hook_executor`: our library inside the target; [`HookClient`] is the conversation with it, `attach` and
//!   `library` bring it in. What the RocksDB there says of itself while it works are [`Properties`].
//! - `exec`: commands of the policy.
//! - `guard_command`: commands that hold a lock while something is done, or are asked before; no executor.
//! - `sql`: statements to a MyRocks server.
//! - [`perf_level`]: a process that writes one byte a thread, and puts it back whatever happens to the agent.
//!
//! Beside them stand the priorities of a process' [`Threads`], which a policy's commands change.
//!
//! A new executor is a file here, its lines in this one, and its kind in the policy.

mod attach;
mod bounded;
mod error;
mod exec;
mod executor;
mod flush_watch;
#[cfg(test)]
mod fuzz;
mod guard_command;
mod hook;
mod hook_executor;
mod library;
pub mod perf_level;
mod process;
mod properties;
mod sql;
mod sql_client;
mod sql_trouble;
mod standstill;
mod task;
mod template;
mod thread_priority;
mod words;

pub use attach::check as check_attachable;
pub use error::ExecuteError;
pub use exec::{CommandExecutor, run_throttle};
pub use executor::{Executor, Job, Jobs, POLL_INTERVAL};
pub use guard_command::{AskedCommand, GuardCommand, Question, Said};
pub use hook::{HookClient, HookOptions, SharedHook};
pub use hook_executor::HookExecutor;
pub use library::{CLibrary, LIBRARY_FILE_NAME as HOOK_LIBRARY_FILE_NAME, find as find_hook_library};
pub use properties::Properties;
pub use sql::{ServerState, SqlExecutor};
pub use sql_trouble::SqlTrouble;
pub use standstill::{held, of as standstill};
pub use task::{
    CommandEnd, CompactTask, FlushTask, HandlePointers, JobEnd, JobId, JobOutcome, JobStatus, OptionTask,
    PerfLevelTask, Progress, SettingTask, Task, ThrottleTask,
};
pub use thread_priority::{IoPriority, Threads};

use perf_level::PerfLevelExecutor;
use sexton_tuner::policy::{ExecutorKind, TargetPolicy};
use std::path::PathBuf;

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
    let user = site.entry.commands_user.as_deref();
    Ok(match (task, site.entry.executor) {
        (Task::Compact(_), ExecutorKind::Exec) => {
            Box::new(CommandExecutor::new(site.entry.exec.as_ref(), user, site.shows_keys)?)
        }
        (Task::Compact(_), ExecutorKind::Sql) => Box::new(SqlExecutor::of(site.entry)?),
        (Task::Set(SettingTask::Throttle(_)) | Task::Read(SettingTask::Throttle(_)), _) => {
            Box::new(CommandExecutor::default())
        }
        (Task::Set(SettingTask::PerfLevel(_)), _) => Box::new(PerfLevelExecutor::default()),
        _ => Box::new(HookExecutor::new(site.hook.cloned(), site.policy_path.cloned())),
    })
}
