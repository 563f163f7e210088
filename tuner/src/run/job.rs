//! What an executor says of a job.

use super::identity::JobId;
use std::time::Duration;

/// How a job stands.
#[derive(Clone, Debug, PartialEq)]
pub enum JobStatus {
    /// It is being worked on.
    Running {
        /// Its number, where another run of the agent can ask after it by that.
        job: Option<JobId>,
        /// Whether it can be stopped.
        can_stop: bool,
    },
    /// It has ended.
    Ended(JobEnd),
    /// The executor cannot be heard any more, and why: the job may run on.
    Lost(String),
    /// The executor knows of no such job.
    Unknown,
}

/// How a job ended, and what its executor has seen of its work.
#[derive(Clone, Debug, PartialEq)]
pub struct JobEnd {
    /// How.
    pub result: JobResult,
    /// How long it took.
    pub duration: Duration,
    /// Bytes of the SST files that it replaced.
    pub bytes_replaced: u64,
    /// Bytes of the files that it had memtables flushed to first: they come and go while it runs.
    pub bytes_flushed: u64,
    /// Bytes that its process has written meanwhile, by whatever call; `None` where that cannot be read.
    pub bytes_written: Option<u64>,
    /// Deletions in the range's SST files before.
    pub deletions_before: u64,
    /// After.
    pub deletions_after: u64,
    /// What a command said, in words.
    pub message: Option<String>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobResult {
    /// It ran through.
    Done,
    /// It was stopped, and why.
    Cancelled(String),
    /// It could not be done.
    Failed {
        /// Why, and what to do about it.
        reason: String,
        /// Whether it may run on all the same.
        may_run_on: bool,
    },
}

impl JobEnd {
    /// An end of which nothing else is known.
    pub fn new(result: JobResult) -> JobEnd {
        JobEnd {
            result,
            duration: Duration::ZERO,
            bytes_replaced: 0,
            bytes_flushed: 0,
            bytes_written: None,
            deletions_before: 0,
            deletions_after: 0,
            message: None,
        }
    }

    /// Bytes that were written and are in no list of files, neither before nor after. RocksDB throws away
    /// what a job has written when it is stopped, and says nothing of it: that is at most what the process
    /// has written meanwhile, and at most the price; that, where nothing is known.
    pub fn bytes_transient(&self, cost_bytes: u64) -> u64 {
        match self.result {
            JobResult::Done => self.bytes_flushed,
            JobResult::Cancelled(_) => {
                let seen = self.bytes_replaced.saturating_add(self.bytes_flushed);
                let written = self.bytes_written.unwrap_or(u64::MAX);
                self.bytes_flushed.saturating_add(written.min(cost_bytes).saturating_sub(seen))
            }
            // What has not begun has written nothing, and where nothing is known it most often has not.
            JobResult::Failed { .. } => self.bytes_written.unwrap_or(0).min(cost_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: u64 = 1_000_000;

    fn ended(result: JobResult, bytes_replaced: u64, bytes_flushed: u64, written: Option<u64>) -> u64 {
        JobEnd { bytes_replaced, bytes_flushed, bytes_written: written, ..JobEnd::new(result) }
            .bytes_transient(PRICE)
    }

    fn cancelled(bytes_replaced: u64, bytes_flushed: u64, written: Option<u64>) -> u64 {
        ended(JobResult::Cancelled("a guard".to_owned()), bytes_replaced, bytes_flushed, written)
    }

    #[test]
    fn what_a_cancelled_part_had_written_counts() {
        assert_eq!(cancelled(0, 0, Some(700_000)), 700_000);
        assert_eq!(cancelled(0, 0, Some(0)), 0);
        // Others of the process write too: never more than it would have cost.
        assert_eq!(cancelled(0, 0, Some(1 << 40)), PRICE);
        assert_eq!(cancelled(0, 0, None), PRICE);
        // Jobs that had ended are in the files, and what was flushed was flushed.
        assert_eq!(cancelled(300_000, 0, Some(700_000)), 400_000);
        assert_eq!(cancelled(0, 100_000, Some(700_000)), 700_000);
    }

    #[test]
    fn what_a_failed_part_had_written_counts() {
        let failed = |written| {
            let result = JobResult::Failed { reason: String::new(), may_run_on: false };
            ended(result, 0, 0, written)
        };
        assert_eq!((failed(Some(700_000)), failed(Some(1 << 40)), failed(None)), (700_000, PRICE, 0));
    }

    #[test]
    fn what_a_part_flushes_first_counts() {
        assert_eq!(ended(JobResult::Done, 500_000, 70_000, Some(1 << 40)), 70_000);
        assert_eq!(ended(JobResult::Done, 500_000, 0, None), 0);
    }
}
