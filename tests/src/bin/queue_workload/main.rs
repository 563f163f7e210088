//! A process with a RocksDB of its own that is used as a queue: `sexton-queue-workload`.
//!
//! One table in the manner of an object store's key table: new keys are appended, the oldest are
//! deleted, and readers list the table from its start, so that each list walks over all tombstones
//! that compaction has left. Creates, deletes and lists stand 20 to 8 to 1. The table is filled at full
//! speed; then the same mix goes on at a steady pace. It knows nothing of Sexton.
//!
//! `table` is the database, `pace` the threads of the paced part, `report` what is printed.

mod pace;
mod report;
mod table;

use anyhow::{Context, Result};
use clap::Parser;
use sexton_tests::workload::{Filled, Filling, Line};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use table::{Settings, Table};

/// Keys between two lines about the filling: some ten lines a second.
const FILL_REPORT_KEYS: u64 = 40_000;
const CREATES_PER_ROUND: u64 = 20;
const DELETES_PER_ROUND: u64 = 8;

/// Fills a RocksDB table in the manner of a queue, then creates, deletes and lists at a steady pace.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory of the database; it is created and must not hold one yet.
    #[arg(long)]
    directory: PathBuf,
    /// Keys to create, at full speed, before the paced part.
    #[arg(long, default_value_t = 8_000_000)]
    keys: u64,
    /// Whether the oldest keys are deleted while the table is filled.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    fill_deletes: bool,
    /// Keys that are deleted in one go before the paced part, the oldest.
    #[arg(long, default_value_t = 0)]
    deletes_at_start: u64,
    /// Size at which a memtable is flushed.
    #[arg(long, default_value_t = 64 << 20)]
    write_buffer_bytes: usize,
    /// Length of the paced part, seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Creates a second in the paced part.
    #[arg(long, default_value_t = 1_100)]
    creates_per_second: u32,
    /// Deletes a second in the paced part.
    #[arg(long, default_value_t = 440)]
    deletes_per_second: u32,
    /// Lists a second in the paced part, over all list threads.
    #[arg(long, default_value_t = 55)]
    lists_per_second: u32,
    /// Threads that list; when all are in a list, the lists due meanwhile are counted as missed.
    #[arg(long, default_value_t = 2)]
    list_threads: u32,
    /// Keys in a bucket: so many follow each other below one prefix, and lists begin at the prefix of the
    /// oldest key; 0: all keys are below one.
    #[arg(long, default_value_t = 0)]
    bucket_keys: u64,
    /// Pause between two reads of the whole table that compare it with what was written, milliseconds; 0:
    /// none.
    #[arg(long, default_value_t = 0)]
    verify_interval_ms: u64,
    /// L0 files from which on RocksDB compacts them by itself.
    #[arg(long, default_value_t = 4)]
    level0_compaction_files: u16,
    /// Whether RocksDB compacts nothing by itself, as in a bulk load.
    #[arg(long)]
    disable_auto_compactions: bool,
    /// Files in L0 of a second column family that nobody reads, and that RocksDB leaves there.
    #[arg(long, default_value_t = 0)]
    level0_files_elsewhere: u16,
    /// Bytes a second that RocksDB may write in flushes and compactions (its rate limiter); 0: as many as it
    /// can.
    #[arg(long, default_value_t = 0)]
    background_bytes_per_second: u32,
    /// Lookups of a live key before each list, for as long as the file of `--lookups-while` is there.
    #[arg(long, default_value_t = 0, requires = "lookups_while")]
    lookups_per_list: u32,
    /// See `--lookups-per-list`.
    #[arg(long)]
    lookups_while: Option<PathBuf>,
    /// Second of the paced part in which the whole table is compacted in one call, as an operator's tool
    /// does.
    #[arg(long)]
    compact_at: Option<u64>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let table = Table::open(&Settings {
        directory: &arguments.directory,
        bucket_keys: arguments.bucket_keys,
        write_buffer_bytes: arguments.write_buffer_bytes,
        level0_compaction_files: arguments.level0_compaction_files,
        disable_auto_compactions: arguments.disable_auto_compactions,
        level0_files_elsewhere: arguments.level0_files_elsewhere,
        background_bytes_per_second: arguments.background_bytes_per_second,
    })?;
    let deletes_per_round = if arguments.fill_deletes { DELETES_PER_ROUND } else { 0 };
    let (creates, mut deletes) = fill(&table, arguments.keys, deletes_per_round)?;
    for _ in 0..arguments.deletes_at_start {
        table.delete(deletes)?;
        deletes += 1;
    }
    let pace = pace::Pace {
        creates_per_second: arguments.creates_per_second,
        deletes_per_second: arguments.deletes_per_second,
        lists_per_second: arguments.lists_per_second,
        list_threads: arguments.list_threads,
        lookups_per_list: arguments.lookups_per_list,
        lookups_while: arguments.lookups_while,
        verify_interval: Duration::from_millis(arguments.verify_interval_ms),
        duration: Duration::from_secs(arguments.seconds),
        compact_at: arguments.compact_at.map(Duration::from_secs),
    };
    pace::run(&table, &pace, creates, deletes)
}

/// Creates `keys` keys, and deletes the oldest, so many to a list; returns how many of both.
fn fill(table: &Table, keys: u64, deletes_per_round: u64) -> Result<(u64, u64)> {
    let start = Instant::now();
    let (mut creates, mut deletes, mut reported) = (0, 0, 0);
    while creates < keys {
        for _ in 0..CREATES_PER_ROUND {
            table.create(creates)?;
            creates += 1;
        }
        for _ in 0..deletes_per_round {
            table.delete(deletes)?;
            deletes += 1;
        }
        if creates - reported >= FILL_REPORT_KEYS {
            reported = creates;
            report::print(&Line::Filling(Filling { creates, creates_wanted: keys }))?;
        }
    }
    table.checkpoint()?;
    table.settle().context("waiting for RocksDB's own compactions after the filling")?;
    let levels = table.levels()?;
    report::print(&Line::Filled(Filled {
        creates,
        deletes,
        elapsed_ns: report::nanoseconds(start.elapsed()),
        sst_files: levels.iter().map(|level| level.files).sum(),
        sst_bytes: levels.iter().map(|level| level.bytes).sum(),
        sst_deletions: levels.iter().map(|level| level.deletions).sum(),
        levels,
    }))?;
    Ok((creates, deletes))
}
