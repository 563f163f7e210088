//! Deletions that one operation steps over: as MongoRocks chooses what to compact, at the end of an
//! iterator's life.

use super::{Prospect, Ranker, Unworthy};
use crate::words;

/// Fewest tombstones of an operation: MongoRocks' `kSkippedDeletionsThreshold`.
const TOMBSTONES_PER_OPERATION_MIN: f64 = 50_000.0;

/// Goes by the tombstones of one operation.
pub(super) struct DeletesPerOperation;

impl Ranker for DeletesPerOperation {
    fn value(&self, job: &Prospect) -> f64 {
        job.tombstones_per_operation
    }

    fn judge(&self, job: &Prospect) -> Result<Option<String>, Unworthy> {
        if job.tombstones_per_operation < TOMBSTONES_PER_OPERATION_MIN {
            let (found, least) =
                (words::number(job.tombstones_per_operation), words::number(TOMBSTONES_PER_OPERATION_MIN));
            let reason = format!("an operation steps over {found} tombstones, less than {least}");
            return Err(Unworthy::BelowThreshold(reason));
        }
        Ok(None)
    }
}
