//! The embedded RocksDB: opening it, reading it, writing batches to it.
//!
//! What the records mean is not known here. It is kept small in memory, and tells a torn end of its log,
//! which a killed agent may leave, from corruption, which nobody may pass over in silence.

use super::batch::{Batch, Kind};
use rust_rocksdb::{
    BlockBasedOptions, Cache, DB, DBRecoveryMode, Direction, Error, ErrorKind, IteratorMode, LogLevel,
    Options, WriteBatch, WriteOptions,
};
use serde::de::DeserializeOwned;
use std::path::Path;

/// The memtable: some thousand records.
const WRITE_BUFFER_BYTES: usize = 1 << 20;
/// Blocks are read at the start only.
const BLOCK_CACHE_BYTES: usize = 1 << 20;
/// Files that are open at a time; there are a handful.
const OPEN_FILES_MAX: i32 = 32;
/// Size of RocksDB's own log, and how many of them are kept: each opening begins a new one.
const LOG_BYTES_MAX: usize = 256 << 10;
/// See [`LOG_BYTES_MAX`].
const LOG_FILES_MAX: usize = 3;

/// Version of what is written. Version 1 had the actions' views as the API shows them; each of its records is
/// read, and written in the new form when it changes next. A newer store is refused.
pub const SCHEMA_VERSION: u32 = 2;

/// The oldest version that is read.
const SCHEMA_VERSION_MIN: u32 = 1;

/// Name of the record with the schema version.
const SCHEMA: &str = "schema";

/// Why a store cannot be opened or read.
#[derive(Debug, PartialEq, Eq)]
pub enum StoreError {
    /// What is there is damaged.
    Corrupt(String),
    /// A newer agent wrote it.
    Newer(u32),
    Full(String),
    /// Anything else: permissions, a broken disk.
    Other(String),
}

pub struct Store {
    database: DB,
    synced: WriteOptions,
}

impl Store {
    /// Opens the store in `path`, a new one where nothing is there.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        let database = DB::open(&options(), path).map_err(failure)?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let store = Store { database, synced };
        store.check_schema()?;
        Ok(store)
    }

    fn check_schema(&self) -> Result<(), StoreError> {
        let key = Kind::Agent.key(SCHEMA);
        match self.database.get(&key).map_err(failure)? {
            Some(bytes) => match parse::<u32>(&key, &bytes)? {
                SCHEMA_VERSION => Ok(()),
                // From here on it is nothing that an older agent could read.
                SCHEMA_VERSION_MIN..SCHEMA_VERSION => self.write_schema(),
                newer @ SCHEMA_VERSION.. => Err(StoreError::Newer(newer)),
                older => Err(StoreError::Corrupt(format!("there never was a schema version {older}"))),
            },
            None if self.database.iterator(IteratorMode::Start).next().is_some() => {
                Err(StoreError::Corrupt("records without a schema version".to_owned()))
            }
            None => self.write_schema(),
        }
    }

    fn write_schema(&self) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.put(Kind::Agent, SCHEMA, &SCHEMA_VERSION);
        self.write(&batch, true)
    }

    /// One record, if it is there.
    pub fn get<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Result<Option<T>, StoreError> {
        let key = kind.key(name);
        let bytes = self.database.get(&key).map_err(failure)?;
        bytes.map(|bytes| parse(&key, &bytes)).transpose()
    }

    /// The last `count_max` records of a kind, last first, with their names. Backwards: the oldest numbers
    /// are removed all the time, and a seek from the front would walk over the tombstones of all of them.
    pub fn last<T: DeserializeOwned>(
        &self,
        kind: Kind,
        count_max: usize,
    ) -> Result<Vec<(String, T)>, StoreError> {
        let prefix = kind.prefix();
        // Names are of printable characters: none is as great as this.
        let end = format!("{prefix}\u{10ffff}");
        let from = IteratorMode::From(end.as_bytes(), Direction::Reverse);
        let mut records = Vec::new();
        for entry in self.database.iterator(from).take(count_max) {
            let (key, value) = entry.map_err(failure)?;
            let key = String::from_utf8_lossy(&key).into_owned();
            let Some(name) = key.strip_prefix(prefix) else { break };
            records.push((name.to_owned(), parse(&key, &value)?));
        }
        Ok(records)
    }

    /// Writes a batch; where it is `durable`, to the disk before this returns.
    pub fn write(&self, batch: &Batch, durable: bool) -> Result<(), StoreError> {
        let mut writes = WriteBatch::default();
        for (key, value) in &batch.writes {
            match value {
                Some(value) => writes.put(key, value),
                None => writes.delete(key),
            }
        }
        let written = if durable {
            self.database.write_opt(&writes, &self.synced)
        } else {
            self.database.write(&writes)
        };
        written.map_err(failure)
    }
}

fn options() -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES));
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_max_background_jobs(2);
    options.set_max_log_file_size(LOG_BYTES_MAX);
    options.set_keep_log_file_num(LOG_FILES_MAX);
    options.set_log_level(LogLevel::Warn);
    // Statistics of its own would take a thread and grow its log.
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    // Space that is reserved and not written looks like records on a disk that is full.
    options.set_allow_fallocate(false);
    // RocksDB's default stops at the first damaged record of the log and says nothing.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options
}

fn parse<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| StoreError::Corrupt(format!("record {key}: {error}")))
}

/// What RocksDB says, sorted by what can be done about it.
fn failure(error: Error) -> StoreError {
    let kind = error.kind();
    let message = error.into_string();
    let is_missing = message.contains("No such file or directory");
    match kind {
        ErrorKind::Corruption | ErrorKind::NotSupported | ErrorKind::InvalidArgument => {
            StoreError::Corrupt(message)
        }
        ErrorKind::IOError if is_missing => StoreError::Corrupt(message),
        _ if is_full(&message) => StoreError::Full(message),
        _ => StoreError::Other(message),
    }
}

/// Whether a message of RocksDB's says that there is no room.
fn is_full(message: &str) -> bool {
    ["No space left on device", "No space", "Disk quota exceeded"].iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::batch::numbered;
    use super::*;

    fn write(store: &Store, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let mut batch = Batch::default();
            batch.put(Kind::Action, &numbered(number), &format!("value {number}"));
            store.write(&batch, number.is_multiple_of(2)).unwrap();
        }
    }

    #[test]
    fn the_last_records_come_last_first_and_of_their_kind_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        write(&store, 1..=20);
        let mut batch = Batch::default();
        batch.put(Kind::Event, &numbered(1), &"an event");
        batch.delete(Kind::Action, &numbered(20));
        store.write(&batch, true).unwrap();
        let last: Vec<(String, String)> = store.last(Kind::Action, 3).unwrap();
        let values: Vec<&str> = last.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(values, ["value 19", "value 18", "value 17"]);
        assert_eq!(store.last::<String>(Kind::Event, 10).unwrap().len(), 1);
        assert!(store.last::<String>(Kind::Throttle, 10).unwrap().is_empty());
        assert_eq!(store.get::<String>(Kind::Event, &numbered(1)).unwrap().unwrap(), "an event");
        assert_eq!(store.get::<String>(Kind::Event, &numbered(2)).unwrap(), None);
    }

    #[test]
    fn what_was_written_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        write(&Store::open(folder.path()).unwrap(), 1..=10);
        assert_eq!(Store::open(folder.path()).unwrap().last::<String>(Kind::Action, 100).unwrap().len(), 10);
    }

    #[test]
    fn a_newer_schema_is_told_from_damage() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut batch = Batch::default();
        batch.put(Kind::Agent, SCHEMA, &(SCHEMA_VERSION + 1));
        store.write(&batch, true).unwrap();
        drop(store);
        assert_eq!(Store::open(folder.path()).err(), Some(StoreError::Newer(SCHEMA_VERSION + 1)));
    }

    /// Each file of a store in turn is overwritten with noise: the store opens as it was, or says that it is
    /// corrupt; it never opens with fewer records in silence.
    #[test]
    fn damage_is_noticed() {
        for victim in ["CURRENT", "MANIFEST", ".sst", ".log"] {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path()).unwrap();
            write(&store, 1..=50);
            store.database.flush().unwrap();
            write(&store, 51..=100);
            drop(store);
            let entries = std::fs::read_dir(folder.path()).unwrap().flatten();
            let named = |name: &str| name.contains(victim) && !name.starts_with("LOG");
            let damaged = entries.filter(|entry| named(&entry.file_name().to_string_lossy())).map(|entry| {
                let mut bytes = std::fs::read(entry.path()).unwrap();
                let half = bytes.len() / 2;
                for byte in bytes.iter_mut().skip(half / 2).take(half) {
                    *byte = byte.wrapping_mul(31).wrapping_add(7);
                }
                std::fs::write(entry.path(), bytes).unwrap();
            });
            assert!(damaged.count() > 0, "{victim}");
            let read = Store::open(folder.path())
                .and_then(|store| store.last::<String>(Kind::Action, 1_000))
                .map(|records| records.len());
            assert!(matches!(read, Err(StoreError::Corrupt(_)) | Ok(100)), "{victim}: {read:?}");
        }
    }
}
