//! The threads that read and write: at the workload's pace, or as fast as they can where it has none.

use super::queues::Queues;
use super::recorder::{Recorder, lock};
use super::store::Store;
use super::ycsb::{Done, Ycsb};
use anyhow::{Context, Result};
use rust_rocksdb::perf::PerfContext;
use sexton_tests::turns::Turns;
use sexton_tuner::simulation::random::Random;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Granularity of the writer: fine enough to be steady, coarse enough to cost nothing.
const WRITER_TICK: Duration = Duration::from_millis(5);
/// Pauses are taken in pieces, so that the end is noticed.
const PAUSE_PIECE: Duration = Duration::from_millis(50);

/// Creates and deletes; what is late, because RocksDB stalled, is made up for.
pub fn write(
    queues: &Queues,
    store: &Store,
    recorder: &Mutex<Recorder>,
    mut random: Random,
    stop: &AtomicBool,
) -> Result<()> {
    let start = Instant::now();
    let (mut created, mut deleted) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let due = |per_second: u64| (per_second as f64 * start.elapsed().as_secs_f64()) as u64;
        let timed = |work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
            let start = Instant::now();
            work()?;
            lock(recorder).write(start.elapsed());
            Ok(())
        };
        while created < due(queues.shape.creates_per_second) {
            timed(&mut || queues.create_any(store, &mut random))?;
            created += 1;
        }
        while deleted + queues.rows_per_delete() <= due(queues.shape.deletes_per_second) {
            timed(&mut || queues.delete_any(store, &mut random))?;
            deleted += queues.rows_per_delete();
        }
        std::thread::sleep(WRITER_TICK);
    }
    Ok(())
}

/// Lists, and after each list gets one row.
pub fn read(
    queues: &Queues,
    store: &Store,
    turns: &Turns,
    recorder: &Mutex<Recorder>,
    mut random: Random,
    stop: &AtomicBool,
) -> Result<()> {
    let context = PerfContext::default();
    while !stop.load(Ordering::Relaxed) {
        let missed = turns.wait();
        let list = queues.list(store, &context, &mut random)?;
        let get = queues.get(store, &mut random)?;
        let mut recorder = lock(recorder);
        recorder.list(list.latency, list.seek);
        recorder.get(get);
        recorder.tombstones += list.tombstones;
        recorder.block_reads += list.block_reads;
        recorder.second.lists_missed += missed;
    }
    Ok(())
}

/// YCSB's operations, one after the other.
pub fn operate(
    ycsb: &Ycsb,
    store: &Store,
    recorder: &Mutex<Recorder>,
    mut random: Random,
    stop: &AtomicBool,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let done = ycsb.operate(store, &mut random)?;
        let mut recorder = lock(recorder);
        match done {
            Done::Get(latency) => recorder.get(latency),
            Done::Write(latency) => recorder.write(latency),
            Done::Scan(latency, seek) => recorder.list(latency, seek),
        }
    }
    Ok(())
}

/// Compacts everything, again and again: what an operator's timer does.
pub fn compact(store: &Store, interval: Duration, begin: &AtomicBool, stop: &AtomicBool) -> Result<()> {
    while !begin.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE_PIECE);
    }
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        for number in 0..store.tables() {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            store.table(number).context("compacting everything")?.compact();
        }
        pause(interval.saturating_sub(start.elapsed()), stop);
    }
    Ok(())
}

/// Holds RocksDB snapshots, one after the other.
pub fn hold_snapshots(store: &Store, held: Duration, apart: Duration, stop: &AtomicBool) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        store.hold_snapshots(|| pause(held, stop));
        pause(apart, stop);
    }
    Ok(())
}

fn pause(duration: Duration, stop: &AtomicBool) {
    let until = Instant::now() + duration;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(PAUSE_PIECE));
    }
}
