//! Why the journal cannot be kept, with what to do about it.

use super::store::SCHEMA_VERSION;
use std::io;
use std::path::PathBuf;

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    #[error("cannot use the state directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// Another agent has the directory; `holder` is "process 4711".
    #[error("the state directory {} is in use by {holder}", path.display())]
    Taken { path: PathBuf, holder: String },
    #[error("the state in {} has schema version {found}, this agent knows up to {SCHEMA_VERSION}", path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("the state in {} is corrupt ({reason}), and {count} earlier ones are set aside there already", path.display())]
    SetAsideTooOften { path: PathBuf, reason: String, count: usize },
    #[error("cannot open the state in {}: {reason}", path.display())]
    Open { path: PathBuf, reason: String },
    #[error("the state cannot be written: {reason}")]
    Write { reason: String },
    #[error("cannot write the audit log {}: {source}", path.display())]
    EventFile { path: PathBuf, source: io::Error },
}

impl JournalError {
    /// What an operator can do about it, one sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            JournalError::Directory { .. } | JournalError::Open { .. } => {
                "run as root, name a directory that this user may write to with --state-directory, or keep no state \
                 (`--state-directory none`)"
            }
            JournalError::Taken { .. } => {
                "one agent watches all of a node; for a second one name another directory with --state-directory"
            }
            JournalError::Newer { .. } => {
                "run the newer agent again, or move the directory away: history and cooldowns then begin anew"
            }
            JournalError::SetAsideTooOften { .. } => {
                "check the disk and its file system, then remove the directories store.broken-* in it"
            }
            JournalError::Write { .. } => "make room on the disk that the state directory is on",
            JournalError::EventFile { .. } => "name another file with --audit-log",
        }
    }
}
