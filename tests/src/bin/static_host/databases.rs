//! What is stored, and which of it is deleted.

use anyhow::{Context, Result};
use rust_rocksdb::statistics::{StatsLevel, Ticker};
use rust_rocksdb::{BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, Options, WriteOptions};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Cache of each database, a fraction of its data: lists read blocks as well as hit them.
const BLOCK_CACHE_BYTES: usize = 256 << 10;
/// Keys in a row after which the deletions begin anew.
pub const STRIDE: u64 = 100;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub databases: u32,
    pub column_families: u32,
    /// Keys written to each column family.
    pub keys: u64,
    /// Of each [`STRIDE`] keys in a row, so many of the first are deleted.
    pub deleted_percent: u64,
}

impl Plan {
    /// Whether a key was deleted.
    pub fn is_deleted(&self, number: u64) -> bool {
        number % STRIDE < self.deleted_percent
    }

    /// The names of the column families.
    pub fn column_families(&self) -> Vec<String> {
        let name = |number| if number == 0 { "default".to_owned() } else { format!("family{number}") };
        (0..self.column_families).map(name).collect()
    }

    fn directory(&self, parent: &Path, number: u32) -> PathBuf {
        parent.join(format!("database{number}"))
    }
}

/// Key number `number`.
pub fn key(number: u64) -> Vec<u8> {
    format!("key{number:012}").into_bytes()
}

/// One open database, and its options, which hold its statistics.
pub struct Open {
    pub database: DB,
    options: Options,
}

pub struct Databases {
    pub plan: Plan,
    parent: PathBuf,
    open: RwLock<Vec<Open>>,
}

impl Databases {
    /// Makes the databases below `parent`, writes the keys, and deletes by plan. Keys and tombstones are in
    /// different files, and nothing compacts them.
    pub fn create(parent: &Path, plan: Plan) -> Result<Databases> {
        std::fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        for number in 0..plan.databases {
            let directory = plan.directory(parent, number);
            std::fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
        }
        let databases = Databases { plan, parent: parent.to_owned(), open: RwLock::new(Vec::new()) };
        databases.reopen()?;
        databases.open().iter().try_for_each(|open| fill(&open.database, plan))?;
        Ok(databases)
    }

    /// The databases, for as long as no one reopens them.
    pub fn open(&self) -> RwLockReadGuard<'_, Vec<Open>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reopen(&self) -> Result<()> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.clear();
        for number in 0..self.plan.databases {
            open.push(self.open_one(&self.plan.directory(&self.parent, number))?);
        }
        Ok(())
    }

    fn open_one(&self, directory: &Path) -> Result<Open> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(BLOCK_CACHE_BYTES));
        let mut family = options.clone();
        family.set_block_based_table_factory(&blocks);
        // Compactions would drop the tombstones that the lists are to meet.
        family.set_disable_auto_compactions(true);
        let families = self.plan.column_families();
        let families = families.into_iter().map(|name| ColumnFamilyDescriptor::new(name, family.clone()));
        let database = DB::open_cf_descriptors(&options, directory, families)
            .with_context(|| format!("opening {}", directory.display()))?;
        Ok(Open { database, options })
    }

    /// RocksDB's ticker `number.iter.skip`, over all databases.
    pub fn iterator_skips(&self) -> Result<u64> {
        Ok(self.open().iter().map(|open| open.options.get_ticker_count(Ticker::NumberIterSkip)).sum())
    }
}

fn fill(database: &DB, plan: Plan) -> Result<()> {
    let mut write = WriteOptions::default();
    write.disable_wal(true);
    for name in plan.column_families() {
        let family = database.cf_handle(&name).with_context(|| format!("no column family {name}"))?;
        for number in 0..plan.keys {
            database.put_cf_opt(&family, key(number), [b'v'; VALUE_BYTES], &write)?;
        }
        database.flush_cf(&family)?;
        for number in (0..plan.keys).filter(|&number| plan.is_deleted(number)) {
            database.delete_cf_opt(&family, key(number), &write)?;
        }
        database.flush_cf(&family)?;
    }
    Ok(())
}
