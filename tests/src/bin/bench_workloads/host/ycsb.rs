//! YCSB's core workloads on one column family: nothing is wrong there, so nothing should be done, and
//! nothing lost.

use super::choice::Choice;
use super::rows;
use super::store::{Layout, Store};
use crate::workload::{Mix, Order, Scale};
use anyhow::{Context, Result, ensure};
use sexton_tuner::simulation::random::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rows that are loaded.
const RECORDS: u64 = 500_000;
const VALUE_BYTES: usize = 400;
const WRITE_BUFFER_BYTES: usize = 16 << 20;
/// Most rows of a scan, as in YCSB.
const SCAN_ROWS_MAX: u64 = 100;
/// The row's number in each value, and a version.
const HEAD_BYTES: usize = 16;

pub struct Ycsb {
    mix: Mix,
    records: u64,
    /// Rows written so far: all numbers below it.
    end: AtomicU64,
    /// Held while a row is inserted, so that no thread finds one missing below the end.
    inserting: Mutex<()>,
    /// Counts up with each value written.
    version: AtomicU64,
    popular: Choice,
}

/// What an operation was and what it took.
#[derive(Clone, Copy, Debug)]
pub enum Done {
    Get(Duration),
    Write(Duration),
    /// The whole, and the positioning call.
    Scan(Duration, Duration),
}

impl Ycsb {
    pub fn new(mix: Mix, scale: Scale) -> Ycsb {
        let records = scale.of(RECORDS);
        Ycsb {
            mix,
            records,
            end: AtomicU64::new(0),
            inserting: Mutex::new(()),
            version: AtomicU64::new(0),
            popular: Choice::zipf(records),
        }
    }

    /// Says what [`Ycsb::fill`] has left in the database.
    pub fn assume_filled(&self) {
        self.end.store(self.records, Ordering::Release);
    }

    pub fn layout() -> Layout {
        Layout { databases: 1, families: 1, write_buffer_bytes: WRITE_BUFFER_BYTES }
    }

    pub fn fill(&self, store: &Store) -> Result<()> {
        for number in 0..self.records {
            self.put(store, number)?;
        }
        store.table(0)?.flush()?;
        store.settle()
    }

    fn put(&self, store: &Store, number: u64) -> Result<()> {
        let version = self.version.fetch_add(1, Ordering::Relaxed);
        store.table(0)?.put(&key(number), &value(number, version))
    }

    /// One operation of the mix.
    pub fn operate(&self, store: &Store, random: &mut Random) -> Result<Done> {
        let chance = random.between(0, 100);
        let inserts = self.mix.updates + self.mix.inserts;
        let scans = inserts + self.mix.scans;
        let start = Instant::now();
        if chance < self.mix.updates {
            self.put(store, self.pick(random))?;
        } else if chance < inserts {
            let _alone = self.inserting.lock().unwrap_or_else(PoisonError::into_inner);
            self.put(store, self.end.load(Ordering::Acquire))?;
            self.end.fetch_add(1, Ordering::AcqRel);
        } else if chance < scans {
            return self.scan(store, random);
        } else {
            let number = self.pick(random);
            self.get(store, number)?;
            if chance >= scans + self.mix.read_modify_writes {
                return Ok(Done::Get(start.elapsed()));
            }
            self.put(store, number)?;
        }
        Ok(Done::Write(start.elapsed()))
    }

    /// A row that has been written.
    fn pick(&self, random: &mut Random) -> u64 {
        let rank = self.popular.pick(random);
        if self.mix.reads_latest {
            return self.end.load(Ordering::Acquire).saturating_sub(1 + rank);
        }
        rank
    }

    fn get(&self, store: &Store, number: u64) -> Result<()> {
        let value = store.table(0)?.get(&key(number))?;
        let value = value.with_context(|| format!("row {number} is missing"))?;
        check(number, &value)
    }

    fn scan(&self, store: &Store, random: &mut Random) -> Result<Done> {
        let (begin, rows_wanted) = (key(self.pick(random)), random.between(1, SCAN_ROWS_MAX + 1));
        let start = Instant::now();
        let mut iterator = store.table(0)?.iterator();
        let seek_start = Instant::now();
        iterator.seek(&begin);
        let seek = seek_start.elapsed();
        ensure!(iterator.key() == Some(begin.as_slice()), "a row is missing where a scan begins");
        let mut rows_read = 0;
        while iterator.valid() && rows_read < rows_wanted {
            rows_read += 1;
            iterator.next();
        }
        iterator.status().context("scanning")?;
        drop(iterator);
        Ok(Done::Scan(start.elapsed(), seek))
    }

    /// Reads everything, while nobody writes; gives the rows.
    pub fn verify(&self, store: &Store) -> Result<u64> {
        let mut iterator = store.table(0)?.iterator();
        iterator.seek_to_first();
        let mut found = 0;
        while let Some((key, value)) = iterator.item() {
            let number = rows::number_of(key, Order::Hashed).context("a key that nobody wrote")?;
            check(number, value)?;
            found += 1;
            iterator.next();
        }
        iterator.status().context("reading all rows")?;
        let written = self.end.load(Ordering::Acquire);
        ensure!(found == written, "{found} rows of {written}");
        Ok(found)
    }
}

fn key(number: u64) -> Vec<u8> {
    rows::key("user", number, Order::Hashed)
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let mut value = Vec::with_capacity(VALUE_BYTES);
    value.extend(number.to_le_bytes());
    value.extend(version.to_le_bytes());
    value.extend(rows::value(version, number, VALUE_BYTES - HEAD_BYTES));
    value
}

/// Fails where a value is not one that was written for the row.
fn check(number: u64, found: &[u8]) -> Result<()> {
    let version = found.get(8..HEAD_BYTES).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let written = version.map(|version| value(number, version));
    ensure!(written.as_deref() == Some(found), "row {number} has a value that nobody wrote");
    Ok(())
}
