//! A program with a RocksDB in which compacting some files is cheaper than any range: `sexton-files-host`.
//!
//! Below live keys all over its key space lie, in an older file of L0, tombstones of a few of them. So a
//! range takes along the newer file, which is large, and the older file can be merged into the deepest
//! level without it. RocksDB compacts nothing by itself.
//!
//! It links the hook, tells it of its column family, and prints `ready`. A line `compact` on its standard
//! input begins a compaction of everything, which takes as long as the program likes, and prints
//! `compacting`; a line `release` lets it go on, and prints `compacted`. At the end of its standard input
//! it closes the database, and fails where keys are lost.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rust_rocksdb::compaction_filter::Decision;
use rust_rocksdb::{
    AsColumnFamilyRef, ColumnFamilyDescriptor, DB, DBCompressionType, Direction, IteratorMode, Options,
};
use sexton_hook::linked;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

const KEYS: u32 = 2_000;
/// Keys that are deleted, in the midst of them.
const DELETED: std::ops::Range<u32> = 800..1_200;
/// Bytes of a value below, and of one in the newer file of L0.
const VALUE_BYTES: usize = 500;
const NEWER_VALUE_BYTES: usize = 10_000;
const POLL: Duration = Duration::from_millis(1);

/// Compacts files, and holds compactions up.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory of the database; it is created.
    directory: PathBuf,
    /// Walks a second over what was deleted.
    #[arg(long, default_value_t = 0)]
    walks_per_second: u32,
}

/// What the compaction filter does: it keeps every key, and a compaction for as long as it is held.
#[derive(Default)]
struct Held {
    is_held: AtomicBool,
    has_begun: AtomicBool,
}

impl Held {
    fn keep(&self) -> Decision {
        while self.is_held.load(Ordering::SeqCst) {
            self.has_begun.store(true, Ordering::SeqCst);
            sleep(POLL);
        }
        Decision::Keep
    }
}

fn main() -> Result<()> {
    let Arguments { directory, walks_per_second } = Arguments::parse();
    let held = Arc::new(Held::default());
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options.set_write_buffer_size(64 << 20);
    options.set_compression_type(DBCompressionType::None);
    let filter = Arc::clone(&held);
    options.set_compaction_filter("one that waits", move |_, _, _| filter.keep());
    let family = ColumnFamilyDescriptor::new("default", options.clone());
    let database = Arc::new(DB::open_cf_descriptors(&options, &directory, [family])?);
    fill(&database)?;
    let handle = database.cf_handle("default").context("no column family")?;
    linked::start()?;
    linked::register(handle.inner().cast())?;
    let has_ended = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (database, has_ended) = (Arc::clone(&database), Arc::clone(&has_ended));
        move || walk(&database, walks_per_second, &has_ended)
    });
    println!("ready");

    let mut compaction: Option<JoinHandle<()>> = None;
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            "compact" => {
                held.is_held.store(true, Ordering::SeqCst);
                let database = Arc::clone(&database);
                compaction =
                    Some(std::thread::spawn(move || database.compact_range(None::<&[u8]>, None::<&[u8]>)));
                while !held.has_begun.load(Ordering::SeqCst) {
                    sleep(POLL);
                }
                println!("compacting");
            }
            "release" => {
                held.is_held.store(false, Ordering::SeqCst);
                let ended = compaction.take().context("nothing is compacted")?.join();
                ensure!(ended.is_ok(), "the compaction has panicked");
                println!("compacted");
            }
            other => anyhow::bail!("{other:?} is neither `compact` nor `release`"),
        }
    }
    held.is_held.store(false, Ordering::SeqCst);
    has_ended.store(true, Ordering::SeqCst);
    reader.join().map_err(|_| anyhow::anyhow!("the reader has panicked"))??;
    let keys = u32::try_from(database.iterator(IteratorMode::Start).count())?;
    linked::unregister(handle.inner().cast())?;
    ensure!(keys == KEYS - (DELETED.end - DELETED.start) / 2, "{keys} keys are left");
    Ok(())
}

/// Walks over the keys that were deleted, so often a second, until the program ends.
fn walk(database: &DB, per_second: u32, has_ended: &AtomicBool) -> Result<()> {
    while per_second > 0 && !has_ended.load(Ordering::SeqCst) {
        let (first, end) = (key(DELETED.start), key(DELETED.end));
        let from = IteratorMode::From(first.as_bytes(), Direction::Forward);
        let seen = database
            .iterator(from)
            .take_while(|entry| entry.as_ref().is_ok_and(|(found, _)| **found < *end.as_bytes()));
        ensure!(seen.count() == DELETED.len() / 2, "keys are lost, or there again");
        sleep(Duration::from_secs(1) / per_second);
    }
    Ok(())
}

fn key(number: u32) -> String {
    format!("key{number:09}")
}

fn fill(database: &DB) -> Result<()> {
    for number in 0..KEYS {
        database.put(key(number), vec![b'v'; VALUE_BYTES])?;
    }
    database.flush()?;
    database.compact_range(None::<&[u8]>, None::<&[u8]>);
    for number in DELETED {
        database.delete(key(number))?;
    }
    database.flush()?;
    // Half of what was deleted is written anew.
    for number in (0..KEYS).step_by(2) {
        let value: Vec<u8> = (0..NEWER_VALUE_BYTES).map(|at| (at as u32 ^ number) as u8).collect();
        database.put(key(number), value)?;
    }
    database.flush()?;
    Ok(())
}
