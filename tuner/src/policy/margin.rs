//! When a job pays.

use super::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a job pays: what it saves readers against what it costs them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MarginPolicy {
    /// How many times the reader time that it costs a job has to save. Not 1: tombstones come back bit by
    /// bit, so on average half of the relief is left until they are back. With 0 every job pays. Default: 2.
    pub benefit_cost_ratio_min: f64,
    /// No relief counts for longer than that, however long the tombstones stay away: readers move on, and
    /// RocksDB compacts by itself. Default: 1h.
    pub horizon: TimeSpan,
}

impl Default for MarginPolicy {
    fn default() -> MarginPolicy {
        MarginPolicy { benefit_cost_ratio_min: 2.0, horizon: TimeSpan::from_seconds(3600) }
    }
}
