//! The queue's table: one column family of a RocksDB, and the three things that are done to it.

use anyhow::{Context, Result};
use rust_rocksdb::perf::{PerfContext, PerfMetric};
use rust_rocksdb::statistics::{StatsLevel, Ticker};
use rust_rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, Options,
    WaitForCompactOptions, WriteOptions,
};
use sexton_tests::workload::{COLUMN_FAMILY, Level, PREFIX};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a value, about what an object store keeps of a small object.
const VALUE_BYTES: usize = 120;
/// Keys that a list returns.
const KEYS_PER_LIST: u64 = 100;
/// Cache of the whole database.
const BLOCK_CACHE_BYTES: usize = 256 << 20;
/// Uncompressed size of a data block.
const BLOCK_BYTES: usize = 16 << 10;
/// Size at which a memtable is flushed.
const WRITE_BUFFER_BYTES: usize = 64 << 20;
/// Small, so that the files are many and a range does not share its files with half of the table.
const TARGET_FILE_BYTES: u64 = 8 << 20;
/// RocksDB's own compactions settle within seconds; when not, the paced part begins anyway.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// The table.
pub struct Table {
    database: DB,
    options: Options,
    write: WriteOptions,
}

/// What one list cost.
pub struct List {
    /// From the creation of the iterator to its end.
    pub latency: Duration,
    /// Keys returned.
    pub keys: u64,
    /// Tombstones stepped over, by `PerfContext`.
    pub tombstones_skipped: u64,
    /// Blocks read from files, by `PerfContext`.
    pub block_reads: u64,
}

impl Table {
    /// Creates the database.
    pub fn open(directory: &Path) -> Result<Table> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES));
        blocks.set_block_size(BLOCK_BYTES);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_error_if_exists(true);
        options.create_missing_column_families(true);
        options.set_max_background_jobs(2);
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        let mut table_options = Options::default();
        table_options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        table_options.set_target_file_size_base(TARGET_FILE_BYTES);
        table_options.set_compression_type(DBCompressionType::Lz4);
        table_options.set_block_based_table_factory(&blocks);
        let families = [ColumnFamilyDescriptor::new(COLUMN_FAMILY, table_options)];
        let database = DB::open_cf_descriptors(&options, directory, families)
            .with_context(|| format!("creating a database in {}", directory.display()))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(Table { database, options, write })
    }

    fn family(&self) -> Result<&ColumnFamily> {
        self.database.cf_handle(COLUMN_FAMILY).context("the column family is gone")
    }

    /// Writes key number `number`.
    pub fn create(&self, number: u64) -> Result<()> {
        let value = value(number);
        self.database.put_cf_opt(self.family()?, key(number), value, &self.write).context("writing a key")
    }

    /// Deletes key number `number`.
    pub fn delete(&self, number: u64) -> Result<()> {
        self.database.delete_cf_opt(self.family()?, key(number), &self.write).context("deleting a key")
    }

    /// Reads the first keys of the table, as a directory listing does.
    pub fn list(&self, context: &PerfContext) -> Result<List> {
        let tombstones = context.metric(PerfMetric::InternalDeleteSkippedCount);
        let block_reads = context.metric(PerfMetric::BlockReadCount);
        let start = Instant::now();
        let mut iterator = self.database.raw_iterator_cf(self.family()?);
        iterator.seek(PREFIX);
        let mut keys = 0;
        while iterator.valid() && keys < KEYS_PER_LIST {
            keys += 1;
            iterator.next();
        }
        iterator.status().context("listing")?;
        drop(iterator);
        Ok(List {
            latency: start.elapsed(),
            keys,
            tombstones_skipped: context.metric(PerfMetric::InternalDeleteSkippedCount) - tombstones,
            block_reads: context.metric(PerfMetric::BlockReadCount) - block_reads,
        })
    }

    /// Flushes the memtable, as an object store does whenever it takes a checkpoint of its tables.
    pub fn checkpoint(&self) -> Result<()> {
        self.database.flush_cf(self.family()?).context("flushing the memtable")
    }

    /// Waits until RocksDB has no compaction of its own left to do.
    pub fn settle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_timeout(u64::try_from(SETTLE_LIMIT.as_micros()).unwrap_or(u64::MAX));
        match self.database.wait_for_compact(&options) {
            Err(error) if error.kind() == rust_rocksdb::ErrorKind::TimedOut => Ok(()),
            result => Ok(result?),
        }
    }

    /// The levels that have files.
    pub fn levels(&self) -> Result<Vec<Level>> {
        let mut levels: BTreeMap<u32, Level> = BTreeMap::new();
        for file in self.database.live_files().context("asking for the live files")? {
            let number = u32::try_from(file.level).unwrap_or_default();
            let level = levels.entry(number).or_insert(Level { level: number, ..Level::default() });
            level.files += 1;
            level.bytes += u64::try_from(file.size).unwrap_or(u64::MAX);
            level.deletions += file.num_deletions;
        }
        Ok(levels.into_values().collect())
    }

    /// RocksDB's ticker `COMPACT_READ_BYTES`.
    pub fn compaction_read_bytes(&self) -> u64 {
        self.options.get_ticker_count(Ticker::CompactReadBytes)
    }

    /// RocksDB's ticker `COMPACT_WRITE_BYTES`.
    pub fn compaction_write_bytes(&self) -> u64 {
        self.options.get_ticker_count(Ticker::CompactWriteBytes)
    }
}

fn key(number: u64) -> String {
    format!("{PREFIX}key{number:012}")
}

/// Bytes that LZ4 cannot shorten: a xorshift generator seeded with the key's number.
fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut value = [0; VALUE_BYTES];
    for chunk in value.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (byte, random) in chunk.iter_mut().zip(state.to_le_bytes()) {
            *byte = random;
        }
    }
    value
}
