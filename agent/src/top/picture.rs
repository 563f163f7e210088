//! What is shown: the published state of an agent as of one moment.

use crate::snapshot::{RangeView, Snapshot, TargetView};

/// Targets and ranges of an agent as of one moment.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// When the agent made it, RFC 3339.
    pub at: String,
    /// Loops it has completed.
    pub cycles: u64,
    /// Its targets.
    pub targets: Vec<TargetView>,
    /// Ranked ranges of all targets, most pain relieved per byte first.
    pub ranges: Vec<RangeView>,
}

impl From<&Snapshot> for Picture {
    fn from(snapshot: &Snapshot) -> Picture {
        Picture {
            at: snapshot.at.clone(),
            cycles: snapshot.agent.cycles,
            targets: snapshot.targets.clone(),
            ranges: snapshot.ranges.clone(),
        }
    }
}
