//! Rules that need nothing but a range, its database and the policy: whether these may be acted on, and
//! whether it is worth it.

use super::Rule;
use crate::facts::comparator::Order;
use crate::facts::evidence::Evidence;
use crate::facts::lineage::Lineage;
use crate::policy::{Naming, Policy, TargetPolicy};
use crate::rank::RangeAssessment;
use crate::words;

/// Least share of a range's pain that compaction must relieve; below it readers wait for block reads.
const RELIEF_SHARE_MIN: f64 = 0.1;

/// The rule that forbids something, and why.
pub(crate) type Refused = (Rule, String);

/// Whether a comparator's order is bytewise: ranges are, and in another order their ends would be the wrong
/// way round, or somewhere else.
pub(crate) fn is_bytewise(comparator: &str) -> bool {
    Order::of_comparator(comparator) == Some(Order::Bytewise)
}

/// Whether the database may be acted on at all. A checkpoint may be where the policy names it, and what is
/// open for reading only never: RocksDB compacts nothing there.
pub(crate) fn may_be_acted_on(policy: &TargetPolicy, evidence: &Evidence) -> Result<(), Refused> {
    let (name, database) = (&policy.name, &evidence.database);
    let is_named = match policy.naming(database) {
        Naming::Excluded(pattern) => {
            let reason = format!("the policy's target {name} excludes {database} ({pattern})");
            return Err((Rule::ExcludedDatabase, reason));
        }
        Naming::NotIncluded => {
            let reason = format!("the policy's target {name} does not include {database}");
            return Err((Rule::ExcludedDatabase, reason));
        }
        Naming::Included => true,
        Naming::Unnamed => false,
    };
    if evidence.is_read_only {
        let reason = format!("the process has {database} open only for reading");
        return Err((Rule::ReadOnlyDatabase, reason));
    }
    match &evidence.lineage {
        Lineage::Derived { reason } if !is_named => Err((
            Rule::Checkpoint,
            format!(
                "{database} is a checkpoint of another database: {reason}; databases.include can name it"
            ),
        )),
        Lineage::Unknown { reason } if !is_named => Err((
            Rule::PossibleCheckpoint,
            format!(
                "{database} may be a checkpoint of another database: {reason}; databases.include can name it"
            ),
        )),
        Lineage::Own | Lineage::Derived { .. } | Lineage::Unknown { .. } => Ok(()),
    }
}

/// Whether doing something about what is dead in it would help a range's readers.
pub(crate) fn helps(range: &RangeAssessment) -> Result<(), Refused> {
    let pain = words::pain(range.pain_seconds_per_second);
    let enough = range.pain_seconds_per_second * RELIEF_SHARE_MIN;
    if range.relief_seconds_per_second < enough
        && range.relief_seconds_per_second + range.unexplained_seconds_per_second >= enough
    {
        let what = match range.unexplained_tombstones_per_seek > 0.0 {
            true => format!(
                "of {} tombstones that each operation skips {} are",
                words::number(range.tombstones_per_seek),
                words::number(range.unexplained_tombstones_per_seek),
            ),
            false => "most of the hidden entries that each operation steps over are".to_owned(),
        };
        let reason = format!(
            "{what} neither in SST files nor known to be in memtables: whether a compaction would drop them is not \
             known"
        );
        return Err((Rule::Unexplained, reason));
    }
    if range.relief_seconds_per_second < enough {
        let misses = words::number(range.misses_per_seek);
        let relief = words::pain(range.relief_seconds_per_second);
        let reason = format!(
            "of {pain} only {relief} are lost to what a compaction drops: readers wait for {misses} block reads each"
        );
        return Err((Rule::NoRelief, reason));
    }
    Ok(())
}

/// Whether a job relieves enough to be worth an action.
pub(crate) fn relieves_enough(policy: &Policy, relief_seconds_per_second: f64) -> Result<(), Refused> {
    is_enough(policy, "compacting relieves", relief_seconds_per_second)
}

/// Whether readers lose enough for something else to be done about it.
pub(crate) fn hurts_enough(policy: &Policy, pain_seconds_per_second: f64) -> Result<(), Refused> {
    is_enough(policy, "readers lose", pain_seconds_per_second)
}

fn is_enough(policy: &Policy, what: &str, seconds_per_second: f64) -> Result<(), Refused> {
    if seconds_per_second >= policy.thresholds.pain.seconds_per_second() {
        return Ok(());
    }
    let reason = format!("{what} {}, less than {}", words::pain(seconds_per_second), policy.thresholds.pain);
    Err((Rule::BelowThreshold, reason))
}
