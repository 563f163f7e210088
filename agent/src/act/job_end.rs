//! How jobs ended, for the ledger.

use sexton_execute::{ExecuteError, JobEnd as Ending, JobOutcome};
use sexton_tuner::run::{Event, JobEnd, JobResult, JobStatus};

pub fn gone(target: &str) -> ExecuteError {
    ExecuteError::Request { reason: format!("{target} has gone, or does not respond") }
}

/// That a job has not even begun.
pub fn failed(error: &ExecuteError) -> Event<'static> {
    ended_badly(format!("{error}; {}", error.remedy()), false)
}

/// That a job came to nothing.
pub fn ended_badly(reason: String, may_run_on: bool) -> Event<'static> {
    Event::Job(JobStatus::Ended(JobEnd {
        bytes_written: Some(0),
        ..JobEnd::new(JobResult::Failed { reason, may_run_on })
    }))
}

/// How a job ended, for the ledger.
pub fn ended(result: Result<JobOutcome, ExecuteError>, bytes_written: Option<u64>) -> Event<'static> {
    let end = match result {
        Err(error) => JobEnd {
            bytes_written,
            ..JobEnd::new(JobResult::Failed {
                reason: format!("{error}; {}", error.remedy()),
                may_run_on: may_run_on(&error),
            })
        },
        Ok(outcome) => of_outcome(outcome, bytes_written),
    };
    Event::Job(JobStatus::Ended(end))
}

fn of_outcome(outcome: JobOutcome, bytes_written: Option<u64>) -> JobEnd {
    let result = match outcome.end {
        Ending::NotBegun { reason } => return not_begun(reason),
        Ending::Cancelled { reason } => JobResult::Cancelled(reason),
        Ending::Done => JobResult::Done,
    };
    JobEnd {
        duration: outcome.duration,
        bytes_replaced: outcome.bytes_replaced,
        bytes_flushed: outcome.bytes_flushed,
        bytes_written,
        deletions_before: outcome.deletions_before,
        deletions_after: outcome.deletions_after,
        message: outcome.command.map(|command| command.in_words()),
        ..JobEnd::new(result)
    }
}

/// Nothing was done and nothing written; the next plan weighs it anew.
pub fn not_begun(reason: String) -> JobEnd {
    JobEnd { bytes_written: Some(0), ..JobEnd::new(JobResult::Cancelled(reason)) }
}

/// Whether what failed so may run on: the hook could not be heard any more, or it would not be stopped.
fn may_run_on(error: &ExecuteError) -> bool {
    matches!(
        error,
        ExecuteError::Connection { .. }
            | ExecuteError::UnexpectedAnswer { .. }
            | ExecuteError::StillRunning { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_compaction_that_would_not_be_stopped_counts_as_one_that_may_run_on() {
        let error = ExecuteError::StillRunning {
            pid: 1,
            job: 7,
            reason: "it was asked for".into(),
            waited: Duration::from_secs(60),
        };
        assert!(may_run_on(&error));
        assert!(error.to_string().contains("was to stop because it was asked for"), "{error}");
        assert!(!may_run_on(&ExecuteError::ProcessGone { pid: 1 }));
    }
}
