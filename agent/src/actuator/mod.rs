//! Acting on a target: compacting a range, setting a throttle, or saying how an operator would.
//!
//! An [`Actuator`] does what it is told and reports what came of it. Whether, when and what to do is
//! decided elsewhere (`sexton-tuner`); so is verifying that it helped. Calls block: the engine makes them
//! from a thread of its own.
//!
//! - [`HookActuator`]: our library inside the target; [`HookClient`] is the conversation with it, `attach`
//!   and `library` bring it in.
//!   What the RocksDB there says of itself while it works are [`Properties`].
//! - [`ExecActuator`]: a command of the policy.
//! - [`SqlActuator`]: statements to a MyRocks server.
//! - [`AdviseActuator`]: nobody; only the commands are shown.

mod advise;
mod attach;
mod bounded;
mod error;
mod exec;
#[cfg(test)]
mod fuzz;
mod hook;
mod hook_actuator;
mod library;
mod process;
mod properties;
mod request;
mod sql;
mod sql_client;
mod sql_trouble;
mod standstill;
mod template;

pub use advise::AdviseActuator;
pub use attach::check as check_attachable;
pub use error::ActuatorError;
pub use exec::ExecActuator;
pub use hook::{HookClient, HookOptions};
pub use hook_actuator::HookActuator;
pub use library::{LIBRARY_FILE_NAME as HOOK_LIBRARY_FILE_NAME, find as find_hook_library};
pub use properties::{Properties, PropertyReport};
pub use request::{
    CommandEnd, CompactEnd, CompactOutcome, CompactRequest, HandlePointers, ThrottleOutcome, ThrottleRequest,
};
pub use sql::{ServerState, SqlActuator};
pub use sql_trouble::SqlTrouble;
pub use template::CommandTemplate;

use std::sync::atomic::AtomicBool;

/// One way of acting on a target. Calls block until the action has ended.
pub trait Actuator {
    /// Short name, as in the policy: `hook`, `exec`, `sql`, `advise`.
    fn name(&self) -> &'static str;

    /// Compacts the request's range. Setting `cancelled` stops it within a second or so where the
    /// target allows that; the outcome then says [`CompactEnd::Cancelled`].
    ///
    /// # Errors
    /// When nothing was done, or it is not known what was.
    fn compact_range(
        &mut self,
        request: &CompactRequest,
        cancelled: &AtomicBool,
    ) -> Result<CompactOutcome, ActuatorError>;

    /// Whether a compaction that runs can be stopped; where not, it is looked at before it begins and not while
    /// it runs.
    fn can_stop(&self) -> bool {
        true
    }

    /// Sets a throttle of the target to a value.
    ///
    /// # Errors
    /// When it could not be set, or this actuator has no throttles.
    fn set_throttle(&mut self, setting: &ThrottleRequest) -> Result<ThrottleOutcome, ActuatorError>;

    /// What an operator would run to the same end, one shell line each. Whole keys are in them only
    /// where the actuator was told to show keys.
    fn commands_for(&self, request: &CompactRequest) -> Vec<String>;
}
