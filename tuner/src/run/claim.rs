//! What an action promises: what came of it is measured against that.

use crate::rank::RangeAssessment;
use crate::verify::Seen;
use serde::{Deserialize, Serialize};

/// What readers lost before an action, and what it promises to relieve of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The range as it was before the action; where an action is for several, the worst of them.
    pub before: RangeAssessment,
    /// Pain that the action promises to relieve in that range, seconds per second.
    pub promised_seconds_per_second: f64,
    /// Windows that have passed since the action without enough to judge by.
    #[serde(default)]
    pub windows_waited: u32,
    /// What they have shown.
    #[serde(default)]
    pub seen: Seen,
}
