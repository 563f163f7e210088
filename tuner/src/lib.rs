//! Decides which key ranges of a RocksDB to compact, and why.
//!
//! Evidence (what was observed) and a policy (what the operator wants) go in; a plan comes out. What
//! never lives here: files, sockets, clocks, BPF, threads. Time comes in as an argument. That is what
//! makes a dry run, a simulation and a property test the same call as the real thing.

pub mod advice;
pub mod facts;
pub mod history;
pub mod limits;
pub mod loss;
pub mod lsm;
pub mod plan;
pub mod policy;
pub mod rank;
pub mod run;
pub mod simulation;
pub mod verify;
pub mod words;

pub use facts::{
    comparator, evidence, exposition, heat, index_marks, key, latency, lineage, oldest_snapshot, options,
    primitives, range, sighting, waits,
};
pub use limits::{
    attention, back_off, bucket, charge, controller, daily, governor, guard, pressure, price_correction,
    sampling, schedule, throttle,
};
pub use loss::{ledger, relief, unplaced};
pub use lsm::tombstone_placement as placement;
pub use lsm::{compact_files, cost, replaced, rest, share};
pub use plan::{ends, job, primitive, reprice};

pub use bucket::BudgetBucket;
pub use evidence::Evidence;
pub use key::Key;
pub use plan::planner::plan;
pub use plan::{
    Action, Budget, CompactRange, Flush, Plan, PlanInput, PlanTarget, Refusal, Rule, SetOptions, SetThrottle,
};
pub use policy::{Policy, PolicyError, TargetPolicy};
pub use range::KeyRange;
pub use rank::{AssessError, RangeAssessment, assess, families, index_blocks};
pub use throttle::{
    KnownThrottles, ThrottleRestore, ThrottleSetting, ThrottleState, ThrottleStep, throttle_values,
};
pub use verify::{Cause, Claim, Verdict, verdict};
