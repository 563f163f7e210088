//! The databases of a host process: opening, the operations, RocksDB's own figures.

use crate::order::Settings;
use anyhow::{Context, Result};
use rust_rocksdb::compaction_filter::Decision;
use rust_rocksdb::statistics::{StatsLevel, Ticker};
use rust_rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamily, ColumnFamilyDescriptor,
    CompactOptions, DB, DBCompressionType, DBRawIterator, Options, WaitForCompactOptions, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Cache of all databases together.
const BLOCK_CACHE_BYTES: usize = 256 << 20;
/// Uncompressed size of a data block.
const BLOCK_BYTES: usize = 16 << 10;
/// Small, so that the files are many.
const TARGET_FILE_BYTES: u64 = 8 << 20;
/// RocksDB's own compactions after a filling; when they take longer, the filled database is used as it is.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

/// What databases a workload has.
#[derive(Clone, Debug)]
pub struct Layout {
    pub databases: u64,
    /// Column families of each.
    pub families: u64,
    /// Size at which a memtable is flushed.
    pub write_buffer_bytes: usize,
}

/// Whether a row of the table with this number has expired.
pub type Expired = Arc<dyn Fn(u64, &[u8]) -> bool + Send + Sync>;

/// The open databases.
pub struct Store {
    databases: Vec<Database>,
    families: u64,
    write: WriteOptions,
}

struct Database {
    handle: DB,
    options: Options,
    families: Vec<String>,
}

/// One column family.
#[derive(Clone, Copy)]
pub struct Table<'s> {
    database: &'s DB,
    family: &'s ColumnFamily,
    write: &'s WriteOptions,
}

/// What RocksDB has done since its databases were opened, and what its files take now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub flushed_bytes: u64,
    pub compaction_read_bytes: u64,
    pub compaction_written_bytes: u64,
    pub stall_us: u64,
    pub sst_bytes: u64,
    /// Obsolete files included.
    pub disk_bytes: u64,
}

impl Store {
    pub fn open(
        directory: &Path,
        layout: &Layout,
        settings: &Settings,
        expired: Option<&Expired>,
    ) -> Result<Store> {
        let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES);
        let numbers = 0..layout.databases;
        let open = |number| {
            Database::open(
                &directory.join(number_name("db", number)),
                number,
                layout,
                settings,
                expired,
                &cache,
            )
        };
        let databases = numbers.map(open).collect::<Result<_>>()?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(Store { databases, families: layout.families, write })
    }

    /// Column families of all databases.
    pub fn tables(&self) -> u64 {
        self.databases.len() as u64 * self.families
    }

    /// The column family of this number, counted through all databases.
    pub fn table(&self, number: u64) -> Result<Table<'_>> {
        let find = || {
            let database = self.databases.get(usize::try_from(number / self.families).ok()?)?;
            let name = database.families.get(usize::try_from(number % self.families).ok()?)?;
            let family = database.handle.cf_handle(name)?;
            Some(Table { database: &database.handle, family, write: &self.write })
        };
        find().with_context(|| format!("there is no table {number}"))
    }

    pub fn each_table(&self, mut visit: impl FnMut(u64, Table<'_>) -> Result<()>) -> Result<()> {
        (0..self.tables()).try_for_each(|number| visit(number, self.table(number)?))
    }

    /// Waits until RocksDB has no compaction of its own left to do.
    pub fn settle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_timeout(u64::try_from(SETTLE_LIMIT.as_micros()).unwrap_or(u64::MAX));
        for database in &self.databases {
            match database.handle.wait_for_compact(&options) {
                Err(error) if error.kind() == rust_rocksdb::ErrorKind::TimedOut => {}
                result => result.context("waiting for RocksDB's own compactions")?,
            }
        }
        Ok(())
    }

    pub fn figures(&self) -> Result<Figures> {
        let mut sum = Figures::default();
        for database in &self.databases {
            let ticker = |ticker| database.options.get_ticker_count(ticker);
            sum.flushed_bytes += ticker(Ticker::FlushWriteBytes);
            sum.compaction_read_bytes += ticker(Ticker::CompactReadBytes);
            sum.compaction_written_bytes += ticker(Ticker::CompactWriteBytes);
            sum.stall_us += ticker(Ticker::StallMicros);
            for name in &database.families {
                let family = database.handle.cf_handle(name).context("a column family is gone")?;
                let property = |name: &str| -> Result<u64> {
                    let value = database.handle.property_int_value_cf(family, name)?;
                    value.with_context(|| format!("RocksDB does not know {name}"))
                };
                sum.sst_bytes += property("rocksdb.live-sst-files-size")?;
                sum.disk_bytes += property("rocksdb.total-sst-files-size")?;
            }
        }
        Ok(sum)
    }

    /// Live SST files, and deletions in them.
    pub fn files_and_deletions(&self) -> Result<(u64, u64)> {
        let mut sums = (0, 0);
        for database in &self.databases {
            for file in database.handle.live_files().context("asking for the live files")? {
                sums = (sums.0 + 1, sums.1 + file.num_deletions);
            }
        }
        Ok(sums)
    }

    /// Holds RocksDB snapshots of all databases until `wait` returns.
    pub fn hold_snapshots(&self, wait: impl FnOnce()) {
        let snapshots: Vec<_> = self.databases.iter().map(|database| database.handle.snapshot()).collect();
        wait();
        drop(snapshots);
    }
}

impl Database {
    fn open(
        directory: &Path,
        number: u64,
        layout: &Layout,
        settings: &Settings,
        expired: Option<&Expired>,
        cache: &Cache,
    ) -> Result<Database> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_max_background_jobs(2);
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        let families: Vec<String> = (0..layout.families).map(|family| number_name("table", family)).collect();
        let first_table = number * layout.families;
        let descriptors = families.iter().zip(first_table..).map(|(name, table)| {
            let expired = expired.cloned().map(|expired| (table, expired));
            ColumnFamilyDescriptor::new(name, family_options(layout, settings, expired, cache))
        });
        let descriptors: Vec<ColumnFamilyDescriptor> = descriptors.collect();
        std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
        let handle = DB::open_cf_descriptors(&options, directory, descriptors)
            .with_context(|| format!("opening the database in {}", directory.display()))?;
        let database = Database { handle, options, families };
        database.set(&settings.options)?;
        Ok(database)
    }

    fn set(&self, options: &[(String, String)]) -> Result<()> {
        let options: Vec<(&str, &str)> =
            options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if options.is_empty() {
            return Ok(());
        }
        for name in &self.families {
            let family = self.handle.cf_handle(name).context("a column family is gone")?;
            self.handle.set_options_cf(family, &options).with_context(|| format!("setting {options:?}"))?;
        }
        Ok(())
    }
}

fn family_options(
    layout: &Layout,
    settings: &Settings,
    expired: Option<(u64, Expired)>,
    cache: &Cache,
) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_block_size(BLOCK_BYTES);
    let mut options = Options::default();
    options.set_write_buffer_size(layout.write_buffer_bytes);
    options.set_target_file_size_base(TARGET_FILE_BYTES);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_block_based_table_factory(&blocks);
    if let Some(collector) = settings.collector {
        options.add_compact_on_deletion_collector_factory(
            collector.window,
            collector.trigger,
            collector.ratio,
        );
    }
    if let Some((table, expired)) = expired {
        options.set_compaction_filter("expired", move |_level, key: &[u8], _value: &[u8]| {
            if expired(table, key) { Decision::Remove } else { Decision::Keep }
        });
    }
    options
}

impl<'s> Table<'s> {
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.database.put_cf_opt(self.family, key, value, self.write).context("writing a row")
    }

    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.database.delete_cf_opt(self.family, key, self.write).context("deleting a row")
    }

    pub fn delete_range(&self, begin: &[u8], end: &[u8]) -> Result<()> {
        self.database
            .delete_range_cf_opt(self.family, begin, end, self.write)
            .context("deleting a range of rows")
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.database.get_cf(self.family, key).context("reading a row")
    }

    pub fn iterator(&self) -> DBRawIterator<'s> {
        self.database.raw_iterator_cf(self.family)
    }

    pub fn flush(&self) -> Result<()> {
        self.database.flush_cf(self.family).context("flushing a memtable")
    }

    /// Compacts all of it in one call, the bottommost level too.
    pub fn compact(&self) {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.database.compact_range_cf_opt(self.family, None::<&[u8]>, None::<&[u8]>, &options);
    }
}

/// `db007`, `table012`.
fn number_name(what: &str, number: u64) -> String {
    format!("{what}{number:03}")
}
