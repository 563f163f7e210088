//! The journal: what the agent did, what it emitted, and what it has to put back or to measure, on disk and
//! in memory.
//!
//! Here live the state directory with its embedded RocksDB, the event log, the records of actions and
//! settings, and the counts of them. What an action does and when is decided by the tuner and carried out
//! elsewhere. Nothing here knows of HTTP or of how a target is reached.
//!
//! An action is on disk before it is begun. One that was under way when the agent ended is ended by the next
//! run, once: as the hook says, where that still knows of it, else as interrupted. What the target made of it
//! is not known then, so its range rests as if it had been done.

mod action_log;
mod batch;
pub mod clock;
mod counts;
mod cursors;
mod directory;
mod error;
mod event;
mod event_file;
mod event_log;
mod news;
mod pain;
mod record;
mod samples;
mod settings;
mod state;
mod store;
mod throttles;

#[cfg(test)]
mod tests;

pub use action_log::{ACTIONS_PUBLISHED_MAX, Journal, Listed};
pub use counts::ActionCounts;
pub use error::JournalError;
pub use event::{
    ActionName, EndName, Ended, Event, EventKind, OptionChange, Started, Subject, ThrottleChange,
};
pub use event_log::EVENTS_PUBLISHED_MAX;
pub use throttles::ThrottleKey;

/// Where the agent keeps its state when nobody says otherwise; systemd's `StateDirectory=sexton`.
pub const DIRECTORY_DEFAULT: &str = "/var/lib/sexton";
