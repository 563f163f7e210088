//! Statistics of the SST files of a running database, from its directory alone: no hook, nothing changed.
//!
//! - [`read_database`] and [`read_directory`] start a short-lived, confined copy of the agent ([`child`])
//!   that opens the database read-only and prints its column families and live files;
//! - [`complete`] fills in the number of entries and deletions from the files' own [`properties`], for files
//!   that came from here or from a hook;
//! - [`IndexCache`] holds what the files' index blocks say of where inside of them their data lies.
//!
//! Invariant: nothing in here creates, writes, locks or deletes a file in a target's directory. What the
//! numbers mean is not decided here but in the tuner.

pub mod child;
mod codec;
mod complete;
mod confine;
mod database;
mod error;
mod index;
mod index_cache;
mod options;
mod properties;
mod reader;
mod tails;
mod wire;

pub use child::ChildArguments;
pub use complete::{Completion, FILES_READ_MAX, PropertiesCache, complete};
pub use database::{COLUMN_FAMILIES_MAX, ColumnFamily, DatabaseFiles, FILES_MAX, KEY_BYTES_MAX};
pub use error::SstError;
pub use index_cache::{IndexCache, IndexesRead};
pub use options::{DatabaseOptions, OPTIONS_BYTES_MAX};
pub use reader::{CHILD_SUBCOMMAND, Place, Reader};
pub use sexton_tuner::comparator::Order;

use sexton_tuner::evidence::SstFile;

/// Reads column families and live SST files of the database in `place`.
/// Column families with an unknown comparator are listed without files.
/// Errors: [`SstError`]; nothing of the target is changed in any case.
pub fn read_database(place: Place<'_>) -> Result<DatabaseFiles, SstError> {
    Reader::default().read(place)
}

/// Reads the live SST files of the database in `place`, all or nothing.
/// Errors: those of [`read_database`], and [`SstError::UnknownComparator`] if that leaves out any column
/// family.
pub fn read_directory(place: Place<'_>) -> Result<Vec<SstFile>, SstError> {
    let database = read_database(place)?;
    match database.column_families.into_iter().find(|family| family.order.is_none()) {
        Some(family) => Err(SstError::UnknownComparator {
            path: place.path.to_owned(),
            column_family: family.name,
            comparator: family.comparator,
        }),
        None => Ok(database.files),
    }
}

#[cfg(test)]
mod tests;
