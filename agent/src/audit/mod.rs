//! What the agent says about its own doings: typed events, one line for people and one of JSON each.
//!
//! Here live the events ([`What`]), how they read ([`Event`]'s `Display`), and the file that they are appended to
//! ([`AuditLog`]). Who tells them, and that none is told twice, is the engine's; keys come in as the policy allows
//! them to be shown.

mod event;
mod file;

pub use event::{Event, Subject, What};
pub use file::AuditLog;
