//! Why an engine cannot be had.

use sexton_inspect::error::InspectError;
use sexton_journal::JournalError;
use sexton_probe::ProbeError;

/// Why an engine cannot be had.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum EngineError {
    /// A process that was named is no target.
    Inspect(#[from] InspectError),
    /// The kernel refuses the programs.
    Probe(#[from] ProbeError),
    /// The state cannot be used.
    Journal(#[from] JournalError),
}

impl EngineError {
    /// What an operator can do about it, one sentence.
    pub fn remedy(&self) -> &str {
        match self {
            EngineError::Inspect(error) => error.remedy(),
            EngineError::Probe(error) => error.remedy(),
            EngineError::Journal(error) => error.remedy(),
        }
    }
}
