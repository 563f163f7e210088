//! Entries that a compaction would drop: as TiKV chooses the regions that it compacts, by the tombstones and
//! old versions in their SST files.
//!
//! TiKV counts its own versions in a property of each file. Other databases have no such property: here a
//! deletion stands for itself and for the entry that it hides.

use super::{Prospect, Ranker, Unworthy};
use crate::words;

/// Fewest deletions that are reason enough, and their least share of all entries: TiKV's
/// `region-compact-min-tombstones` and `region-compact-tombstones-percent`.
const TOMBSTONES_MIN: (u64, f64) = (10_000, 0.3);

/// The same of entries that would be dropped: `region-compact-min-redundant-rows` and
/// `region-compact-redundant-rows-percent`.
const REDUNDANT_MIN: (u64, f64) = (50_000, 0.2);

/// Goes by the entries that no reader needs.
pub(super) struct VersionsRate;

fn redundant(job: &Prospect) -> u64 {
    job.deletions.saturating_mul(2).min(job.entries)
}

impl Ranker for VersionsRate {
    fn needs_readers(&self) -> bool {
        false
    }

    /// What would be dropped times its share, so that a job does not grow to what is needed.
    fn value(&self, job: &Prospect) -> f64 {
        let redundant = redundant(job) as f64;
        redundant * redundant / job.entries.max(1) as f64
    }

    fn judge(&self, job: &Prospect) -> Result<Option<String>, Unworthy> {
        let is_enough = |count: u64, (fewest, least): (u64, f64)| {
            count >= fewest && count as f64 >= job.entries as f64 * least
        };
        if is_enough(job.deletions, TOMBSTONES_MIN) || is_enough(redundant(job), REDUNDANT_MIN) {
            return Ok(None);
        }
        let [entries, deletions, would_go] = [job.entries, job.deletions, redundant(job)].map(words::count);
        let in_words = |(fewest, least): (u64, f64)| {
            format!("{} and {} of them", words::count(fewest), words::percent(least))
        };
        Err(Unworthy::BelowThreshold(format!(
            "of {entries} entries {deletions} are deletions, less than {}, and {would_go} would be dropped, less \
             than {}",
            in_words(TOMBSTONES_MIN),
            in_words(REDUNDANT_MIN),
        )))
    }
}
