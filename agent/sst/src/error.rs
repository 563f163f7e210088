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
        /// What the system said.
        message: String,
    },
    /// The directory holds no `CURRENT` file.
    #[error("{path} holds no RocksDB database (no file CURRENT): check the directory in the policy")]
    NotADatabase {
        /// Database directory.
        path: PathBuf,
    },
    /// A comparator whose order is not known: the order of keys is only known to the program itself.
    #[error(
        "column family {column_family} of {path} is ordered by {comparator:?}, whose order Sexton does \
         not know: its files cannot be read from outside; use the hook, which asks the process itself"
    )]
    UnknownComparator {
        /// Database directory.
        path: PathBuf,
        /// Column family.
        column_family: String,
        /// Name of the comparator.
        comparator: String,
    },
    /// RocksDB could not open the database.
    #[error("RocksDB cannot read {path}: {message}; it is tried again with the next cycle")]
    RocksDb {
        /// Database directory.
        path: PathBuf,
        /// What RocksDB said.
        message: String,
    },
    /// More than is read of one database.
    #[error(
        "{path} has {count} {what}, more than the {count_max} that are read: use the hook for this database"
    )]
    TooMany {
        /// Database directory.
        path: PathBuf,
        /// `SST files` or `column families`.
        what: String,
        /// How many there are.
        count: u64,
        /// How many are read.
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
        /// Database directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The reading process could not give up its rights, so it read nothing.
    #[error("the process that was to read {path} could not confine itself ({message}): nothing was read")]
    Confinement {
        /// Database directory.
        path: PathBuf,
        /// What failed.
        message: String,
    },
    /// The reading process did not finish in time and was killed.
    #[error(
        "reading {path} took longer than {}: the disk may be overloaded; it is tried again with the next \
         cycle",
        humane(*limit)
    )]
    TimedOut {
        /// Database directory.
        path: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// The reading process ended without having said all.
    #[error("the process that read {path} ended early ({status}) after {lines} lines: {message}")]
    Cut {
        /// Database directory.
        path: PathBuf,
        /// How it ended: `exit status: 1`, `signal: 11 (SIGSEGV)`.
        status: String,
        /// Lines read before.
        lines: usize,
        /// What was wrong with its output.
        message: String,
    },
}

fn humane(limit: Duration) -> String {
    format!("{:.1} s", limit.as_secs_f64())
}
