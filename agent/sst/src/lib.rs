//! Statistics of the SST files of a running database, from its directory alone: no hook, nothing changed.
//!
//! - [`read_database`] and [`read_directory`] start a short-lived, confined copy of the agent ([`child`])
//!   that opens the database read-only and prints its column families and live files;
//! - [`complete`] fills in the number of entries and deletions from the files' own [`properties`], for files
//!   that came from here or from a hook.
//!
//! Invariant: nothing in here creates, writes, locks or deletes a file in a target's directory. What the
//! numbers mean is not decided here but in the tuner.

pub mod child;
mod complete;
mod confine;
mod options;
pub mod properties;
mod reader;
mod wire;

pub use child::ChildArguments;
pub use complete::{Completion, FILES_READ_MAX, PropertiesCache, complete};
pub use reader::{CHILD_SUBCOMMAND, Reader};
pub use sexton_tuner::comparator::Order;

use serde::{Deserialize, Serialize};
use sexton_tuner::evidence::SstFile;
use sexton_tuner::options::ColumnFamilyOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Live SST files that are read of one database: 4 TiB in files of 64 MiB. With more, something of the
/// size of the agent's memory would have to be kept for it.
pub const FILES_MAX: usize = 65_536;

/// Column families that are read of one database; thousands are known, tens of thousands not.
pub const COLUMN_FAMILIES_MAX: usize = 4096;

/// Bytes kept of a file's smallest and largest key; longer ones are cut to a bound that holds as well.
pub const KEY_BYTES_MAX: usize = 1024;

/// A column family of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnFamily {
    /// Its name.
    pub name: String,
    /// Name of its comparator.
    pub comparator: String,
    /// The order of its keys; `None` where the comparator is not known, and then none of its files is read.
    pub order: Option<Order>,
    /// What its OPTIONS file says about compaction.
    #[serde(default)]
    pub options: ColumnFamilyOptions,
}

/// What was read of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseFiles {
    /// All column families, those included whose comparator is not known.
    pub column_families: Vec<ColumnFamily>,
    /// Live SST files of the column families with a known comparator. `smallest` and `largest` are in
    /// bytewise order even where the column family's own order is the reverse; keys longer than
    /// [`KEY_BYTES_MAX`] are cut to a bound. `entries` and `deletions` are zero until [`complete`] fills
    /// them in.
    pub files: Vec<SstFile>,
}

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

/// Reads column families and live SST files of the database in `path_from_agent` (`/proc/PID/root/...`).
/// Column families with an unknown comparator are listed without files.
///
/// # Errors
/// [`SstError`]; nothing of the target is changed in any case.
pub fn read_database(path_from_agent: &Path) -> Result<DatabaseFiles, SstError> {
    Reader::default().read(path_from_agent)
}

/// Reads the live SST files of the database in `path_from_agent`, all or nothing.
///
/// # Errors
/// Those of [`read_database`], and [`SstError::UnknownComparator`] if that leaves out any column family.
pub fn read_directory(path_from_agent: &Path) -> Result<Vec<SstFile>, SstError> {
    let database = read_database(path_from_agent)?;
    match database.column_families.into_iter().find(|family| family.order.is_none()) {
        Some(family) => Err(SstError::UnknownComparator {
            path: path_from_agent.to_owned(),
            column_family: family.name,
            comparator: family.comparator,
        }),
        None => Ok(database.files),
    }
}

#[cfg(test)]
mod tests;
