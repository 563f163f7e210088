//! One line of the table, and all of them as `sexton top --json` prints them.

use super::rates::Rates;
use crate::snapshot::{GapView, RangeView, TargetState, TargetView};
use serde::Serialize;

/// What `sexton top --json` prints: one object. Rates are `null` where two snapshots were not enough.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// When the agent made the snapshot, RFC 3339.
    pub at: String,
    /// Loops the agent has completed.
    pub cycles: u64,
    pub source: String,
    /// One entry a target, in the order of the table.
    pub targets: Vec<Row>,
    /// Ranked ranges of all targets, keys as the agent's policy shows them.
    pub ranges: Vec<RangeView>,
}

/// One target, as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name, `java-4711`.
    pub name: String,
    pub pid: u32,
    /// `watching`, `armed`, `blind` or `lost`.
    pub state: TargetState,
    /// Mode that the policy gives it.
    pub mode: String,
    #[serde(flatten)]
    pub rates: Rates,
    /// Reader time lost per second, seconds.
    pub pain_seconds_per_second: f64,
    /// What is missing of it, why and what to do.
    pub gaps: Vec<GapView>,
}

impl Row {
    /// The line of one target.
    pub fn new(target: &TargetView, rates: Rates) -> Row {
        Row {
            name: target.name.clone(),
            pid: target.pid,
            state: target.state,
            mode: target.mode.clone(),
            // What is gone has no rates, only a past.
            rates: if target.state == TargetState::Lost { Rates::default() } else { rates },
            pain_seconds_per_second: target.pain_seconds_per_second,
            gaps: target.gaps.clone(),
        }
    }
}
