//! What happens to an action after the plan: its kind, its state, and how one becomes the next.
//!
//! An action is a value. What the API shows, what is stored and what is counted are derived from it. What never lives
//! here: clocks, files, targets. Time, readings and the state of jobs come in as arguments; what is to be done goes out
//! as effects.

mod action;
mod claim;
mod identity;
mod kind;
mod moment;
mod outcome;
mod setting;
mod state;

pub use action::Action;
pub use claim::Claim;
pub use identity::{ActionId, DatabaseIdentity, DeviceId, JobId, Place, ProcessId};
pub use kind::ActionKind;
pub use moment::Moment;
pub use outcome::{End, Outcome, Verification};
pub use setting::{PerfLevelChange, Setting, SettingChange, SettingKind};
pub use state::{ActionState, InDoubt, Paused, Phase, Retrying, Running, Stop, StopReason};
