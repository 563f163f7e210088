//! The queue's table: one column family of a RocksDB, and the three things that are done to it.

use anyhow::{Context, Result, ensure};
use rust_rocksdb::perf::{PerfContext, PerfMetric};
use rust_rocksdb::statistics::{StatsLevel, Ticker};
use rust_rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamily, ColumnFamilyDescriptor,
    CompactOptions, DB, DBCompressionType, Options, WaitForCompactOptions, WriteOptions,
};
use sexton_tests::workload::{COLUMN_FAMILY, Level, OTHER_COLUMN_FAMILY, PREFIX, Verified};
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
/// Small, so that the files are many and a range does not share its files with half of the table.
const TARGET_FILE_BYTES: u64 = 8 << 20;
/// FNV-1a, 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
/// What is written at a time where that is limited: a compaction can be cancelled in between.
const LIMITED_WRITE_BYTES: u64 = 16 << 10;
/// How often the limiter gives out what has come in, microseconds; RocksDB's default.
const LIMITER_REFILL_US: i64 = 100_000;
/// Chance of what is less urgent; RocksDB's default.
const LIMITER_FAIRNESS: i32 = 10;
/// L0 files from which on RocksDB compacts those of the other column family: as many as those at which it
/// delays writes by default.
const LEVEL0_FILES_ELSEWHERE_MAX: i32 = 20;
/// RocksDB's own compactions settle within seconds; when not, the paced part begins anyway.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

pub struct Table {
    database: DB,
    options: Options,
    write: WriteOptions,
    /// Keys below one prefix; 0: all.
    bucket_keys: u64,
}

/// What kind of table it is.
pub struct Settings<'a> {
    /// Where its database is created.
    pub directory: &'a Path,
    /// Keys below one prefix; 0: all.
    pub bucket_keys: u64,
    /// Size at which a memtable is flushed.
    pub write_buffer_bytes: usize,
    /// L0 files from which on RocksDB compacts them.
    pub level0_compaction_files: u16,
    /// Whether RocksDB compacts nothing by itself.
    pub disable_auto_compactions: bool,
    /// Files in L0 of [`OTHER_COLUMN_FAMILY`].
    pub level0_files_elsewhere: u16,
    /// Bytes a second that flushes and compactions may write; 0: any.
    pub background_bytes_per_second: u32,
}

pub struct List {
    /// From the creation of the iterator to its end.
    pub latency: Duration,
    pub keys: u64,
    /// Tombstones stepped over, by `PerfContext`.
    pub tombstones_skipped: u64,
    /// Blocks read from files, by `PerfContext`.
    pub block_reads: u64,
}

impl Table {
    pub fn open(settings: &Settings<'_>) -> Result<Table> {
        let directory = settings.directory;
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES));
        blocks.set_block_size(BLOCK_BYTES);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_error_if_exists(true);
        options.create_missing_column_families(true);
        options.set_max_background_jobs(2);
        if settings.background_bytes_per_second > 0 {
            let rate = i64::from(settings.background_bytes_per_second);
            options.set_ratelimiter(rate, LIMITER_REFILL_US, LIMITER_FAIRNESS);
            options.set_writable_file_max_buffer_size(LIMITED_WRITE_BYTES);
        }
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        let mut table_options = Options::default();
        table_options.set_write_buffer_size(settings.write_buffer_bytes);
        table_options.set_level_zero_file_num_compaction_trigger(settings.level0_compaction_files.into());
        table_options.set_disable_auto_compactions(settings.disable_auto_compactions);
        table_options.set_target_file_size_base(TARGET_FILE_BYTES);
        table_options.set_compression_type(DBCompressionType::Lz4);
        table_options.set_block_based_table_factory(&blocks);
        let mut other_options = Options::default();
        other_options.set_level_zero_file_num_compaction_trigger(LEVEL0_FILES_ELSEWHERE_MAX);
        let families = [
            ColumnFamilyDescriptor::new(COLUMN_FAMILY, table_options),
            ColumnFamilyDescriptor::new(OTHER_COLUMN_FAMILY, other_options),
        ];
        let database = DB::open_cf_descriptors(&options, directory, families)
            .with_context(|| format!("creating a database in {}", directory.display()))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let table = Table { database, options, write, bucket_keys: settings.bucket_keys };
        table.fill_level0_elsewhere(settings.level0_files_elsewhere)?;
        Ok(table)
    }

    fn fill_level0_elsewhere(&self, files: u16) -> Result<()> {
        let other = self.database.cf_handle(OTHER_COLUMN_FAMILY).context("the column family is gone")?;
        for number in 0..files {
            let number = u64::from(number);
            self.database.put_cf_opt(other, self.key(number), value(number), &self.write)?;
            self.database.flush_cf(other).context("flushing a memtable")?;
        }
        Ok(())
    }

    fn family(&self) -> Result<&ColumnFamily> {
        self.database.cf_handle(COLUMN_FAMILY).context("the column family is gone")
    }

    /// Writes key number `number`.
    pub fn create(&self, number: u64) -> Result<()> {
        let value = value(number);
        self.database
            .put_cf_opt(self.family()?, self.key(number), value, &self.write)
            .context("writing a key")
    }

    /// Deletes key number `number`.
    pub fn delete(&self, number: u64) -> Result<()> {
        self.database.delete_cf_opt(self.family()?, self.key(number), &self.write).context("deleting a key")
    }

    /// What the keys of a bucket begin with: the one that key number `number` is in.
    fn prefix(&self, number: u64) -> String {
        match number.checked_div(self.bucket_keys) {
            Some(bucket) => format!("/vol1/bucket{bucket:08}/"),
            None => PREFIX.to_owned(),
        }
    }

    fn key(&self, number: u64) -> String {
        format!("{}key{number:012}", self.prefix(number))
    }

    /// Reads the first keys of the bucket that key number `oldest` is in, as a directory listing does.
    pub fn list(&self, context: &PerfContext, oldest: u64) -> Result<List> {
        let tombstones = context.metric(PerfMetric::InternalDeleteSkippedCount);
        let block_reads = context.metric(PerfMetric::BlockReadCount);
        let start = Instant::now();
        let mut iterator = self.database.raw_iterator_cf(self.family()?);
        iterator.seek(self.prefix(oldest));
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

    /// Positions an iterator at key number `number`, which must be there.
    pub fn look_up(&self, number: u64) -> Result<()> {
        let mut iterator = self.database.raw_iterator_cf(self.family()?);
        iterator.seek(self.key(number));
        iterator.status().context("looking a key up")?;
        ensure!(iterator.key() == Some(self.key(number).as_bytes()), "key {number} is missing");
        Ok(())
    }

    /// Reads the whole table as of one moment; fails at the first key or value that was not written so.
    /// `written` gives how many keys have been created and deleted.
    pub fn verify(&self, written: impl Fn() -> (u64, u64)) -> Result<Verified> {
        let before = written();
        let mut iterator = self.database.raw_iterator_cf(self.family()?);
        iterator.seek_to_first();
        let after = written();
        let mut verified = Verified { checksum: FNV_OFFSET, ..Verified::default() };
        let mut expected = None;
        while let Some((key_read, value_read)) = iterator.item() {
            let number = match expected {
                Some(number) => number,
                None => number_of(key_read).context("a key that nobody wrote")?,
            };
            verified.first = expected.map_or(number, |_| verified.first);
            ensure!(
                key_read == self.key(number).as_bytes(),
                "key {number} is missing: {key_read:?} stands there"
            );
            ensure!(value_read == value(number), "key {number} has another value");
            verified.checksum = fnv(fnv(verified.checksum, key_read), value_read);
            verified.keys += 1;
            expected = Some(number + 1);
            iterator.next();
        }
        iterator.status().context("reading the whole table")?;
        let end = verified.first + verified.keys;
        // One write may be under way at either moment.
        let right =
            (before.1..=after.1 + 1).contains(&verified.first) && (before.0..=after.0 + 1).contains(&end);
        ensure!(right, "keys {} to {end} are there; written: {before:?} to {after:?}", verified.first);
        Ok(verified)
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

    /// Compacts the whole table in one call, the bottommost level too.
    pub fn compact(&self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.database.compact_range_cf_opt(self.family()?, None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    /// Whether RocksDB delays or has stopped writes now.
    pub fn delays_writes(&self) -> Result<bool> {
        let property = |name: &str| -> Result<bool> {
            let value = self.database.property_int_value(name).with_context(|| format!("reading {name}"))?;
            Ok(value.with_context(|| format!("RocksDB does not know {name}"))? > 0)
        };
        Ok(property("rocksdb.actual-delayed-write-rate")? || property("rocksdb.is-write-stopped")?)
    }

    /// RocksDB's ticker `STALL_MICROS`.
    pub fn stall_us(&self) -> u64 {
        self.options.get_ticker_count(Ticker::StallMicros)
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

/// The number in a key.
fn number_of(key: &[u8]) -> Option<u64> {
    std::str::from_utf8(key).ok()?.rsplit_once("/key")?.1.parse().ok()
}

/// FNV-1a over further bytes, eight at a time: each was compared with what it must be already.
fn fnv(sum: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(sum, |sum, chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(byte, read)| *byte = *read);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(FNV_PRIME)
    })
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
