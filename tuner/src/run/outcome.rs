//! How an action ended, and what came of it.

use super::moment::Moment;
use crate::guard::Guard;
use crate::verify::{Aftermath, Cause, Verdict};
use serde::{Deserialize, Serialize};

/// How an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran through.
    Done,
    /// There was nothing left to do when its turn came.
    Skipped,
    /// It could not be done.
    Failed,
    /// Somebody cancelled it, or its time was over.
    Cancelled,
    /// A guard stopped it for good.
    Aborted(Guard),
    /// The agent ended first, and nobody knows what came of it.
    Interrupted,
}

impl Outcome {
    /// Name, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Skipped => "skipped",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::Aborted(_) => "stopped",
            Outcome::Interrupted => "interrupted",
        }
    }
}

/// The end of an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at: Moment,
    /// How.
    pub outcome: Outcome,
    /// What came of it, in words.
    pub message: String,
    /// How long it took, pauses included, seconds.
    #[serde(default)]
    pub duration_seconds: f64,
    /// Bytes of the SST files it replaced, flushed first, or had written when it was stopped.
    #[serde(default)]
    pub bytes_rewritten: u64,
    /// Those of them that were in no file before and in none after: flushed first, or thrown away.
    #[serde(default)]
    pub bytes_transient: u64,
    /// Deletions in the range's SST files before.
    #[serde(default)]
    pub deletions_before: u64,
    /// After.
    #[serde(default)]
    pub deletions_after: u64,
    /// Deletions in the column family's memtables before; `None` where RocksDB could not be asked.
    #[serde(default)]
    pub memtable_deletions_before: Option<u64>,
    /// After.
    #[serde(default)]
    pub memtable_deletions_after: Option<u64>,
    /// Snapshots that were held in the database; `None` where it could not be asked.
    #[serde(default)]
    pub snapshots: Option<u64>,
    /// How long ago the oldest of them was taken, seconds.
    #[serde(default)]
    pub oldest_snapshot_age_seconds: Option<u64>,
    /// The oldest snapshot's sequence number: where a later one is the oldest, this one was released.
    #[serde(default)]
    pub oldest_snapshot_sequence: Option<u64>,
    /// Whether the action's range has to rest for the cooldown.
    #[serde(default)]
    pub rests: bool,
    /// Whether its job may run on, unseen.
    #[serde(default)]
    pub may_run_on: bool,
}

impl End {
    /// An end without measurements.
    pub fn new(at: Moment, outcome: Outcome, message: impl Into<String>) -> End {
        End {
            at,
            outcome,
            message: message.into(),
            duration_seconds: 0.0,
            bytes_rewritten: 0,
            bytes_transient: 0,
            deletions_before: 0,
            deletions_after: 0,
            memtable_deletions_before: None,
            memtable_deletions_after: None,
            snapshots: None,
            oldest_snapshot_age_seconds: None,
            oldest_snapshot_sequence: None,
            rests: false,
            may_run_on: false,
        }
    }

    /// What it left behind, for the verification.
    pub fn aftermath(&self) -> Aftermath {
        Aftermath {
            deletions_before: self.deletions_before,
            deletions_after: self.deletions_after,
            memtable_deletions_before: self.memtable_deletions_before,
            bytes_rewritten: self.bytes_rewritten.saturating_sub(self.bytes_transient),
            snapshots: self.snapshots,
            oldest_snapshot_age_seconds: self.oldest_snapshot_age_seconds,
        }
    }
}

/// What the windows after an action say of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// Whether the pain fell as promised.
    pub helped: bool,
    /// Pain in the range's keys after it.
    pub pain_after_seconds_per_second: f64,
    /// By how much it fell, at the pace that readers had before, at least 0.
    pub delivered_seconds_per_second: f64,
    /// Why it did not help.
    pub cause: Option<Cause>,
    /// In words.
    pub reason: String,
    /// How many times in a row acting in the same way on these keys has not helped.
    #[serde(default)]
    pub failures_in_a_row: u32,
}

impl Verification {
    /// What a verdict says, as the last of so many failures in a row.
    pub fn of(verdict: Verdict, failures_in_a_row: u32) -> Verification {
        let Verdict { helped, pain_after_seconds_per_second, delivered_seconds_per_second, cause, reason } =
            verdict;
        Verification {
            helped,
            pain_after_seconds_per_second,
            delivered_seconds_per_second,
            cause,
            reason,
            failures_in_a_row,
        }
    }
}
