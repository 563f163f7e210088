//! A workload on a tree, for hours of simulated time, and somebody who decides what is compacted.
//!
//! A [`Workload`] says which keys are written, deleted and listed, and how often. [`play`] plays it
//! against a [`Strategy`]: the real planner with some policy, or something as simple as a compaction
//! every so often. What readers lose and what was written for it is counted exactly, whatever the planner
//! was shown. A [`Recording`] is what a program did, as RocksDB's own traces tell it, and
//! [`play_recording`] plays that. [`watch`] does nothing and tells what the agent would have seen with some
//! budget for its probes.

mod builtin;
mod choice;
mod description;
mod operator;
mod play;
mod probes;
mod recording;
mod repeater;
mod report;
mod seen;
mod turn;

pub use builtin::{BUILTIN, builtin};
pub use description::{Workload, WorkloadError};
pub use operator::Strategy;
pub use play::{play, play_at, play_recording};
pub use probes::{Looking, Watched, watch};
pub use recording::{Recording, Untold};
pub use report::{Report, Sample};
