//! Why the state cannot be kept, with what to do about it.

use super::SCHEMA_VERSION;
use std::io;
use std::path::PathBuf;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The directory cannot be made or used.
    #[error("cannot use the state directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another agent has the directory.
    #[error("the state directory {} is in use by {holder}", path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
        /// Who has it: "process 4711".
        holder: String,
    },
    /// A newer agent has written the state.
    #[error("the state in {} has schema version {found}, this agent knows up to {SCHEMA_VERSION}", path.display())]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its schema version.
        found: u32,
    },
    /// Corrupt states have been set aside so often that this is no accident.
    #[error("the state in {} is corrupt ({reason}), and {count} earlier ones are set aside there already", path.display())]
    SetAsideTooOften {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// How many there are.
        count: usize,
    },
    /// The state is there and cannot be opened.
    #[error("cannot open the state in {}: {reason}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// RocksDB's words.
        reason: String,
    },
    /// Something could not be written.
    #[error("the state cannot be written: {reason}")]
    Write {
        /// RocksDB's words.
        reason: String,
    },
}

impl StateError {
    /// What an operator can do about it, one sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            StateError::Directory { .. } | StateError::Open { .. } => {
                "run as root, name a directory that this user may write to with --state-directory, or keep no state \
                 (`--state-directory none`)"
            }
            StateError::Taken { .. } => {
                "one agent watches all of a node; for a second one name another directory with --state-directory"
            }
            StateError::Newer { .. } => {
                "run the newer agent again, or move the directory away: history and cooldowns then begin anew"
            }
            StateError::SetAsideTooOften { .. } => {
                "check the disk and its file system, then remove the directories store.broken-* in it"
            }
            StateError::Write { .. } => "make room on the disk that the state directory is on",
        }
    }
}
