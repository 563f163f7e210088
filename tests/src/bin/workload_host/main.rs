//! A program that uses a RocksDB in one of eight ways: `sexton-workload-host`.
//!
//! What it does is paced, so that several of it run side by side. The memtable is small, so that files are
//! flushed every second or two. It prints `ready` when its database is filled, and goes on until its standard
//! input ends. It knows nothing of Sexton.

mod uses;

use anyhow::Result;
use clap::Parser;
use rust_rocksdb::{DB, DBCompressionType, Options};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uses::{Use, User};

/// A memtable holds some thousand entries.
const WRITE_BUFFER_BYTES: usize = 256 << 10;
const FILE_BYTES: u64 = 1 << 20;
const LEVEL_BYTES: u64 = 4 << 20;
/// How often its pace is kept.
const TURN: Duration = Duration::from_millis(10);

/// Uses a RocksDB database in one way.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory of the database; it is created.
    #[arg(long)]
    directory: PathBuf,
    /// What it is used for.
    #[arg(long = "use", value_enum)]
    used_for: Use,
}

fn main() -> Result<()> {
    let Arguments { directory, used_for } = Arguments::parse();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_target_file_size_base(FILE_BYTES);
    options.set_max_bytes_for_level_base(LEVEL_BYTES);
    options.set_compression_type(DBCompressionType::None);
    let database = DB::open(&options, &directory)?;
    let mut user = User::new(used_for, &database)?;
    println!("ready");
    let has_ended = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let has_ended = Arc::clone(&has_ended);
        move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            has_ended.store(true, Ordering::SeqCst);
        }
    });
    let begun = Instant::now();
    let mut turns = 0;
    while !has_ended.load(Ordering::SeqCst) {
        user.turn()?;
        turns += 1;
        // What a busy machine has taken away is not made up for at once.
        std::thread::sleep((begun + TURN * turns).saturating_duration_since(Instant::now()).max(TURN / 4));
    }
    Ok(())
}
