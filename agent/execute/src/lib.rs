//! Acting on a target: whatever is done in one goes through an [`Executor`], which is told what, does it when
//! it is polled, and says how it stands. Whether, when and what to do is decided elsewhere (`sexton-tuner`);
//! so is verifying that it helped.
//!
//! - `hook_executor`: our library inside the target; [`HookClient`] is the conversation with it, `attach` and
//!   `library` bring it in. What the RocksDB there says of itself while it works are [`Properties`].
//! - `exec`: commands of the policy.
//! - `sql`: statements to a MyRocks server.
//!
//! A new executor is a file here, a line in [`executor_for`], and its kind in the policy.

mod attach;
mod bounded;
mod error;
mod exec;
mod executor;
mod flush_watch;
#[cfg(test)]
mod fuzz;
mod hook;
mod hook_executor;
mod library;
mod process;
mod properties;
mod sql;
mod sql_client;
mod sql_trouble;
mod standstill;
mod task;
mod template;

pub use attach::check as check_attachable;
pub use error::ExecuteError;
pub use executor::{Executor, Job, Jobs, POLL_INTERVAL, Site, executor_for};
pub use hook::{HookClient, HookOptions, SharedHook};
pub use hook_executor::HookExecutor;
pub use library::{LIBRARY_FILE_NAME as HOOK_LIBRARY_FILE_NAME, find as find_hook_library};
pub use properties::Properties;
pub use sql::{ServerState, SqlExecutor};
pub use sql_trouble::SqlTrouble;
pub use standstill::of as standstill;
pub use task::{
    CommandEnd, CompactTask, FlushTask, HandlePointers, JobEnd, JobId, JobOutcome, JobStatus, OptionTask,
    Progress, SettingTask, Task, ThrottleTask,
};
