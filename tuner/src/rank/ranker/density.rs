//! Dense keys: as Apache Ozone's range compaction chooses them, by the statistics of SST files alone.

use super::{Prospect, Ranker, Unworthy};
use crate::words;

/// Fewest deletions of a job: Ozone's `bucket_compact_min_tombstones`, and TiKV's
/// `region-compact-min-tombstones`.
const DELETIONS_MIN: u64 = 10_000;

/// Goes by deletions.
pub(super) struct Density {
    /// Fewest deletions per entry.
    pub(super) least: f64,
}

/// Deletions per entry.
fn density(job: &Prospect) -> f64 {
    job.deletions as f64 / job.entries.max(1) as f64
}

impl Ranker for Density {
    fn needs_readers(&self) -> bool {
        false
    }

    /// Deletions times their density, so that a dense job does not grow to what is sparse.
    fn value(&self, job: &Prospect) -> f64 {
        job.deletions as f64 * density(job)
    }

    fn judge(&self, job: &Prospect) -> Result<Option<String>, Unworthy> {
        let (deletions, cost) = (words::count(job.deletions), words::bytes(job.cost_bytes));
        if job.deletions < DELETIONS_MIN {
            let least = words::count(DELETIONS_MIN);
            return Err(Unworthy::BelowThreshold(format!(
                "{deletions} deletions in SST files, less than {least}"
            )));
        }
        let density = density(job);
        if density < self.least {
            let (density, least) = (words::percent(density), words::percent(self.least));
            let reason = format!(
                "{density} of the entries are deletions, less than {least}; compacting would rewrite {cost}"
            );
            return Err(Unworthy::LowDensity(reason));
        }
        Ok(None)
    }
}
