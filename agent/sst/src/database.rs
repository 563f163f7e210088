//! What is read of a database, and how much of it at most.

use serde::{Deserialize, Serialize};
use sexton_tuner::comparator::Order;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::oldest_snapshot::Sequences;
use sexton_tuner::options::ColumnFamilyOptions;
use std::collections::BTreeMap;

/// Live SST files that are read of one database: 4 TiB in files of 64 MiB. With more, something of the
/// size of the agent's memory would have to be kept for it.
pub const FILES_MAX: usize = 65_536;

/// Column families that are read of one database; thousands are known, tens of thousands not.
pub const COLUMN_FAMILIES_MAX: usize = 4096;

/// Bytes kept of a file's smallest and largest key; longer ones are cut to a bound that holds as well.
pub const KEY_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnFamily {
    pub name: String,
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
    /// [`KEY_BYTES_MAX`] are cut to a bound. `entries` and `deletions` are zero until [`super::complete`]
    /// fills them in.
    pub files: Vec<SstFile>,
    /// The files' sequence numbers, by their number.
    pub sequences: BTreeMap<u64, Sequences>,
}
