//! What one look at a database has found, whether or not anybody reads there: its files, its options, and
//! what readers and writers have counted so far.

use crate::facts::evidence::{Counters, SstFile};
use crate::facts::key::Key;
use crate::facts::oldest_snapshot::Sequences;
use crate::facts::options::ColumnFamilyOptions;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Files of a column family whose index is worth reading in one look, the newest ones: as many as are
/// flushed between two looks of a busy database.
const MARKED_FILES_MAX: usize = 8;

/// Files of all column families together, so that a look at hundreds of them stays a look.
const MARKED_FILES_OF_ALL_MAX: usize = 64;

/// What an SST file says of itself beside its numbers of entries and deletions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDetails {
    /// Bytes of its keys and values before compression (`raw.key.size`, `raw.value.size`).
    pub raw_bytes: u64,
    /// `merge.operands`.
    pub merge_operands: u64,
    /// `num.range-deletions`.
    pub range_deletions: u64,
    /// `file.creation.time`, else `creation.time`; 0 where it has neither.
    pub created_unix_s: u64,
    /// `property.collectors`: names of the collectors that it was written with.
    pub collectors: String,
}

/// One live SST file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SightedFile {
    pub file: SstFile,
    /// `None` where they could not be read.
    pub sequences: Option<Sequences>,
    /// `None` where the file could not be read.
    pub details: Option<TableDetails>,
    /// Some of its keys, in order, by its index; empty where that was not read.
    pub marks: Vec<Key>,
}

/// One look at a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sighting {
    pub at: Timestamp,
    /// Sizes of its WAL files by their number.
    pub wal_bytes: BTreeMap<u64, u64>,
    /// All live files of all column families.
    pub files: Vec<SightedFile>,
    pub options: BTreeMap<String, ColumnFamilyOptions>,
    /// What the process's threads have counted, those left out that RocksDB compacts with; `None` where
    /// nobody counts.
    pub readers: Option<Counters>,
}

/// Files whose index tells in which order keys are written: the newest of each column family.
pub fn worth_marking(files: &[SightedFile]) -> Vec<u64> {
    let newest_first = |file: &&SightedFile| Reverse(file.sequences.map_or(0, |numbers| numbers.largest));
    let mut by_age: Vec<&SightedFile> = files.iter().collect();
    by_age.sort_by_key(newest_first);
    let mut of_family: BTreeMap<&str, usize> = BTreeMap::new();
    by_age.retain(|file| {
        let taken = of_family.entry(&file.file.column_family).or_default();
        *taken += 1;
        *taken <= MARKED_FILES_MAX
    });
    by_age.iter().take(MARKED_FILES_OF_ALL_MAX).map(|file| file.file.number).collect()
}
