//! What happens to an action after the plan: its kind, its state, and how one becomes the next.
//!
//! An action is a value. What the API shows, what is stored and what is counted are derived from it. What
//! never lives here: clocks, files, targets. Time, readings and the state of jobs come in as arguments; what
//! is to be done goes out as effects.

mod action;
mod admit;
mod budget;
mod claim;
pub mod consent;
mod context;
pub mod cooldown;
mod device_rate;
mod doubt;
mod ending;
mod event;
mod identity;
mod job;
mod kept;
mod kind;
mod ledger;
mod may_act;
mod moment;
mod news;
mod offer;
mod outcome;
mod part;
mod paused;
mod rejection;
mod retrying;
mod running;
mod setting;
mod state;
mod step;
mod verifying;
mod wanted;

pub use action::Action;
pub use budget::Budget;
pub use claim::Claim;
pub use event::{Admission, Effect, Event, Input, Measurement, Record, WindowSeen};
pub use identity::{ActionId, DatabaseIdentity, DeviceId, JobId, Place, ProcessId};
pub use job::{JobEnd, JobResult, JobStatus};
pub use kept::{
    KeptSetting, KeptState, LEFT_BEHIND, RESTORE_INTERVAL, Restoration, SettingEvent, SettingRecord,
};
pub use kind::ActionKind;
pub use ledger::{ACTIONS_STORED_MAX, Ledger, ORPHAN_TIME_MAX, Orphan, Stored};
pub use moment::Moment;
pub use news::News;
pub use offer::{Offer, Subject};
pub use outcome::{End, Outcome, Verification};
pub use paused::{PAUSE_MAX, PAUSE_MIN};
pub use rejection::{RejectedBy, Rejection};
pub use running::{CANCEL_INTERVAL, CANCEL_TIME_MAX, MEASURE_TIME_MAX};
pub use setting::{RestoreCommands, Setting, SettingChange, SettingKind};
pub use state::{ActionState, InDoubt, Paused, Phase, Retrying, Running, SettingFailure, Stop, StopReason};
pub use step::step;
pub use verifying::VERIFY_WINDOWS_MAX;
pub use wanted::{ReadingsKind, Wanted};
