//! Why an engine cannot be had.

use sexton_inspect::error::InspectError;
use sexton_journal::JournalError;
use sexton_probe::ProbeError;

/// Why an engine cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A process that was named is no target.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The kernel refuses the programs.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The state cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The system has no descriptors left to wait for events with.
    #[error("cannot wait for events: {0}")]
    Descriptors(std::io::Error),
}

impl EngineError {
    /// What an operator can do about it, one sentence.
    pub fn remedy(&self) -> &str {
        match self {
            EngineError::Inspect(error) => error.remedy(),
            EngineError::Probe(error) => error.remedy(),
            EngineError::Journal(error) => error.remedy(),
            EngineError::Descriptors(_) => "raise the limit of open files",
        }
    }
}
