//! Why SST files could not be read.

use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Why the SST files of a database could not be read. Each message says what to do.
#[derive(Debug, Error)]
pub enum SstError {
    /// The directory cannot be opened.
    #[error(
        "cannot open the database directory {path}: {message}; the process may have gone, or the agent lacks \
         CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH"
    )]
    Directory {
        /// Database directory, as the agent reaches it.
        path: PathBuf,
        message: String,
    },
    /// The directory holds no `CURRENT` file.
    #[error("{path} holds no RocksDB database (no file CURRENT): check the directory in the policy")]
    NotADatabase { path: PathBuf },
    /// A comparator whose order is not known: the order of keys is only known to the program itself.
    #[error(
        "column family {column_family} of {path} is ordered by {comparator:?}, whose order Sexton does \
         not know: its files cannot be read from outside; use the hook, which asks the process itself"
    )]
    UnknownComparator { path: PathBuf, column_family: String, comparator: String },
    /// RocksDB could not open the database.
    #[error("RocksDB cannot read {path}: {message}; it is tried again with the next cycle")]
    RocksDb { path: PathBuf, message: String },
    /// More than is read of one database.
    #[error(
        "{path} has {count} {what}, more than the {count_max} that are read: use the hook for this database"
    )]
    TooMany {
        path: PathBuf,
        /// `SST files` or `column families`.
        what: String,
        count: u64,
        count_max: u64,
    },
    /// The reading process could not be started.
    #[error(
        "cannot start {executable} to read {path}: {source}; check that it is executable and that pids are \
         left"
    )]
    Spawn {
        /// Executable that was to be started.
        executable: PathBuf,
        path: PathBuf,
        source: std::io::Error,
    },
    /// The reading process could not give up its rights, so it read nothing.
    #[error("the process that was to read {path} could not confine itself ({message}): nothing was read")]
    Confinement { path: PathBuf, message: String },
    /// The reading process did not finish in time and was killed.
    #[error(
        "reading {path} took longer than {}: the disk may be overloaded; it is tried again with the next \
         cycle",
        humane(*limit)
    )]
    TimedOut { path: PathBuf, limit: Duration },
    /// The reading process ended without having said all.
    #[error("the process that read {path} ended early ({status}) after {lines} lines: {message}")]
    Cut {
        path: PathBuf,
        /// How it ended: `exit status: 1`, `signal: 11 (SIGSEGV)`.
        status: String,
        lines: usize,
        /// What was wrong with its output.
        message: String,
    },
}

fn humane(limit: Duration) -> String {
    format!("{:.1} s", limit.as_secs_f64())
}
