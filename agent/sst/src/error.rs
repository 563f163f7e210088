//! Why SST files could not be read.

use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Why the SST files of a database could not be read. Each message says what to do.
#[derive(Debug, Error)]
pub enum SstError {
    #[error(
        "cannot open the database directory {path}: {message}; the process may have gone, or the agent lacks \
         CAP_SYS_PTRACE or CAP_DAC_READ_SEARCH"
    )]
    Directory { path: PathBuf, message: String },
    #[error("{path} holds no RocksDB database (no file CURRENT): check the directory in the policy")]
    NotADatabase { path: PathBuf },
    #[error(
        "column family {column_family} of {path} is ordered by {comparator:?}, whose order Sexton does \
         not know: its files cannot be read from outside; use the hook, which asks the process itself"
    )]
    UnknownComparator { path: PathBuf, column_family: String, comparator: String },
    #[error("RocksDB cannot read {path}: {message}; it is tried again with the next cycle")]
    RocksDb { path: PathBuf, message: String },
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
    #[error(
        "cannot start {executable} to read {path}: {source}; check that it is executable and that pids are \
         left"
    )]
    Spawn { executable: PathBuf, path: PathBuf, source: std::io::Error },
    #[error("the process that was to read {path} could not confine itself ({message}): nothing was read")]
    Confinement { path: PathBuf, message: String },
    #[error(
        "reading {path} took longer than {}: the disk may be overloaded; it is tried again with the next \
         cycle",
        humane(*limit)
    )]
    TimedOut { path: PathBuf, limit: Duration },
    #[error("the process that read {path} ended early ({status}) after {lines} lines: {message}")]
    Cut {
        path: PathBuf,
        /// How it ended: `exit status: 1`, `signal: 11 (SIGSEGV)`.
        status: String,
        lines: usize,
        message: String,
    },
}

fn humane(limit: Duration) -> String {
    format!("{:.1} s", limit.as_secs_f64())
}
