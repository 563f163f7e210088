//! Decides which key ranges of a RocksDB to compact, and why.
//!
//! Evidence (what was observed) and a policy (what the operator wants) go in; a plan comes out. What
//! never lives here: files, sockets, clocks, BPF, threads. Time comes in as an argument. That is what
//! makes a dry run, a simulation and a property test the same call as the real thing.

#![warn(missing_docs)]

pub mod attention;
pub mod back_off;
mod candidate;
pub mod charge;
pub mod comparator;
mod concentrate;
pub mod cost;
pub mod daily;
pub mod ends;
pub mod evidence;
mod frames;
pub mod governor;
pub mod guard;
pub mod heat;
pub mod key;
pub mod latency;
pub mod lineage;
pub mod options;
mod pain;
pub mod plan;
pub mod policy;
mod prefix;
pub mod price_correction;
mod queue;
pub mod range;
pub mod rank;
mod ranker;
pub mod relief;
mod remedy;
pub mod replaced;
pub mod reprice;
pub mod rest;
pub mod run;
pub mod schedule;
pub mod share;
pub mod slice;
pub mod throttle;
pub mod verify;
pub mod words;

mod attribute;
mod left_out;
mod planner;
#[cfg(test)]
mod simulation;
mod walk;

pub use evidence::Evidence;
pub use key::Key;
pub use plan::{
    Action, Budget, CompactRange, Flush, Plan, PlanInput, PlanTarget, Refusal, Rule, SetOptions, SetThrottle,
};
pub use planner::plan;
pub use policy::{Policy, PolicyError, TargetPolicy};
pub use range::KeyRange;
pub use rank::{AssessError, RangeAssessment, assess};
pub use schedule::{BudgetBucket, io_budget_at};
pub use throttle::{KnownThrottles, ThrottleSetting, ThrottleState, ThrottleStep, throttle_values};
pub use verify::{Cause, Claim, Verdict, verdict};
