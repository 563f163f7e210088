//! What the database is used for, a hundred turns a second.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use rust_rocksdb::{DB, IteratorMode};

/// Bytes of a value.
const VALUE: [u8; 100] = [7; 100];
/// Odd, so that multiplying by it gives each number another one, far from the number before it.
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// Keys that are read, and keys that are overwritten.
const READ_KEYS: u64 = 40_000;
const OVERWRITTEN_KEYS: u64 = 4_000;
/// Entries that a time series keeps, and how often it drops those that are older, in turns.
const KEPT_ENTRIES: u64 = 15_000;
const TURNS_BETWEEN_DROPS: u64 = 50;
/// Series that each grow at their end.
const SERIES: u64 = 8;
/// Entries between the end of a queue and its front, and those that are there before they are deleted again
/// where keys come in no order.
const BACKLOG: u64 = 3_000;
/// Turns between two lists of a queue.
const TURNS_BETWEEN_LISTS: u64 = 5;

/// One of eight ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Use {
    /// New keys in no order.
    WriteOnly,
    /// The same keys again and again.
    Overwrite,
    /// Gets, and a put now and then.
    ReadMostlyFewUpdates,
    /// Gets, and nearly as many puts.
    ReadMostlyManyUpdates,
    /// Keys that begin with the time; the oldest files are dropped.
    TimeSeries,
    /// Keys that begin with their series, each of which grows.
    TimeSeriesByPrefix,
    /// Puts at the end, deletes and lists at the front.
    Queue,
    /// Keys that grow, of which none goes.
    MonotonicLog,
    /// Puts and deletes in no order.
    InsertAndDelete,
}

/// Whoever uses it.
pub struct User<'d> {
    used_for: Use,
    database: &'d DB,
    /// Entries written so far.
    written: u64,
    turns: u64,
}

impl<'d> User<'d> {
    /// Fills the database where it is to be read.
    pub fn new(used_for: Use, database: &'d DB) -> Result<User<'d>> {
        let mut user = User { used_for, database, written: 0, turns: 0 };
        if matches!(used_for, Use::ReadMostlyFewUpdates | Use::ReadMostlyManyUpdates) {
            for number in 0..READ_KEYS {
                user.put(scattered(number))?;
            }
            database.flush()?;
        }
        Ok(user)
    }

    /// What it does in a hundredth of a second.
    pub fn turn(&mut self) -> Result<()> {
        self.turns += 1;
        match self.used_for {
            Use::WriteOnly => self.puts(30, scattered),
            Use::Overwrite => self.puts(30, |number| scattered(number % OVERWRITTEN_KEYS)),
            Use::ReadMostlyFewUpdates => {
                self.gets(30)?;
                self.puts(u64::from(self.turns.is_multiple_of(10)), |number| scattered(number % READ_KEYS))
            }
            Use::ReadMostlyManyUpdates => {
                self.gets(10)?;
                self.puts(15, |number| scattered(number % READ_KEYS))
            }
            Use::TimeSeries => {
                self.puts(30, ordered)?;
                let oldest = self.written.saturating_sub(KEPT_ENTRIES);
                if self.turns.is_multiple_of(TURNS_BETWEEN_DROPS) && oldest > 0 {
                    self.database.delete_file_in_range(ordered(0), ordered(oldest))?;
                }
                Ok(())
            }
            Use::TimeSeriesByPrefix => self.puts(30, |number| {
                let mut key = ordered(number % SERIES).to_vec();
                key.extend(ordered(number / SERIES));
                key
            }),
            Use::Queue => self.queue(),
            Use::MonotonicLog => self.puts(30, ordered),
            Use::InsertAndDelete => {
                let newest = self.written;
                self.puts(20, scattered)?;
                (newest..self.written)
                    .filter_map(|number| number.checked_sub(BACKLOG))
                    .try_for_each(|number| Ok(self.database.delete(scattered(number))?))
            }
        }
    }

    fn queue(&mut self) -> Result<()> {
        let newest = self.written;
        self.puts(20, ordered)?;
        for number in (newest..self.written).filter_map(|number| number.checked_sub(BACKLOG)) {
            self.database.delete(ordered(number))?;
        }
        if self.turns.is_multiple_of(TURNS_BETWEEN_LISTS) {
            for entry in self.database.iterator(IteratorMode::Start).take(10) {
                entry?;
            }
        }
        Ok(())
    }

    fn puts<K: AsRef<[u8]>>(&mut self, count: u64, key: impl Fn(u64) -> K) -> Result<()> {
        (0..count).try_for_each(|_| self.put(key(self.written)))
    }

    fn put(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.written += 1;
        Ok(self.database.put(key, VALUE)?)
    }

    fn gets(&self, count: u64) -> Result<()> {
        for at in 0..count {
            let number = (self.turns * count + at).wrapping_mul(HASH) % READ_KEYS;
            ensure!(self.database.get(scattered(number))?.is_some(), "key {number} is lost");
        }
        Ok(())
    }
}

fn ordered(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn scattered(number: u64) -> [u8; 8] {
    number.wrapping_mul(HASH).to_be_bytes()
}
