//! The paced part: one thread that writes, some that list, and this one that reports every second.

use crate::report::{self, Reporter};
use crate::table::{List, Table};
use anyhow::{Context, Result};
use rust_rocksdb::perf::PerfContext;
use sexton_tests::turns::Turns;
use sexton_tests::workload::Line;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often RocksDB is asked whether it delays writes.
const DELAY_LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Granularity of the writer: fine enough to be steady, coarse enough to cost nothing.
const WRITER_TICK: Duration = Duration::from_millis(5);
const SECOND: Duration = Duration::from_secs(1);

/// Rates of the paced part.
pub struct Pace {
    /// Creates a second.
    pub creates_per_second: u32,
    /// Deletes a second.
    pub deletes_per_second: u32,
    /// Lists a second, over all threads.
    pub lists_per_second: u32,
    pub list_threads: u32,
    /// Lookups of a live key before each list, for as long as that file is there.
    pub lookups_per_list: u32,
    pub lookups_while: Option<PathBuf>,
    /// Pause between two reads of the whole table; zero: none.
    pub verify_interval: Duration,
    pub duration: Duration,
    /// When the whole table is compacted in one call.
    pub compact_at: Option<Duration>,
}

/// Keys created and deleted since the table was made.
struct Written {
    creates: AtomicU64,
    deletes: AtomicU64,
}

/// What the threads did since it was last taken.
#[derive(Default)]
pub struct Done {
    pub lists: Vec<List>,
    /// Lists that were due while all threads were in a list.
    pub lists_missed: u64,
    pub creates: u64,
    pub deletes: u64,
    /// How long each create and delete took, nanoseconds.
    pub write_latencies_ns: Vec<u64>,
    /// Times that writes were found to be delayed or stopped.
    pub writes_found_delayed: u64,
    /// Whether the whole table is being compacted.
    pub is_compacting: bool,
}

/// Runs the paced part, which goes on from `creates` created and `deletes` deleted keys.
pub fn run(table: &Table, pace: &Pace, creates: u64, deletes: u64) -> Result<()> {
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    let done = Mutex::new(Done::default());
    let turns = Turns::new(start, u64::from(pace.lists_per_second));
    let written = Written { creates: AtomicU64::new(creates), deletes: AtomicU64::new(deletes) };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(table, pace, &written, &done, &stop));
        let listers =
            (0..pace.list_threads).map(|_| scope.spawn(|| list(table, pace, &written, &turns, &done, &stop)));
        let mut threads: Vec<_> = std::iter::once(writer).chain(listers).collect();
        if !pace.verify_interval.is_zero() {
            threads.push(scope.spawn(|| verify(table, pace.verify_interval, &written, &stop)));
        }
        let compactor = pace.compact_at.map(|at| scope.spawn(move || compact(table, start + at)));
        let reported = report_seconds(table, pace, start, &done, |done| {
            done.is_compacting = pace.compact_at.is_some_and(|at| start.elapsed() >= at)
                && compactor.as_ref().is_some_and(|compactor| !compactor.is_finished());
            threads.iter().any(|thread| thread.is_finished())
        });
        stop.store(true, Ordering::Relaxed);
        threads.extend(compactor);
        let ended: Result<Vec<()>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
            .collect();
        // A thread that failed is the cause; the report only noticed.
        ended.and(reported)
    })
}

fn report_seconds(
    table: &Table,
    pace: &Pace,
    start: Instant,
    done: &Mutex<Done>,
    failed: impl Fn(&mut Done) -> bool,
) -> Result<()> {
    let mut reporter = Reporter::new()?;
    let mut second = Duration::ZERO;
    while second < pace.duration {
        second += SECOND;
        let mut found_delayed = 0;
        while start.elapsed() < second {
            std::thread::sleep(second.saturating_sub(start.elapsed()).min(DELAY_LOOK_INTERVAL));
            found_delayed += u64::from(table.delays_writes()?);
        }
        let mut done = std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
        done.writes_found_delayed = found_delayed;
        if failed(&mut done) {
            return Ok(());
        }
        reporter.second(table, start.elapsed(), &done)?;
    }
    reporter.end(start.elapsed())
}

/// Creates and deletes at the pace; what is late, because RocksDB stalled, is made up for.
fn write(table: &Table, pace: &Pace, written: &Written, done: &Mutex<Done>, stop: &AtomicBool) -> Result<()> {
    let start = Instant::now();
    let (mut creates, mut deletes) =
        (written.creates.load(Ordering::Acquire), written.deletes.load(Ordering::Acquire));
    let (creates_before, deletes_before) = (creates, deletes);
    while !stop.load(Ordering::Relaxed) {
        let elapsed_ns = u128::from(report::nanoseconds(start.elapsed()));
        let due =
            |rate: u32| u64::try_from(u128::from(rate) * elapsed_ns / 1_000_000_000).unwrap_or(u64::MAX);
        let (creates_taken, deletes_taken) = (creates, deletes);
        let mut latencies_ns = Vec::new();
        while creates - creates_before < due(pace.creates_per_second) {
            latencies_ns.push(timed(|| table.create(creates))?);
            creates += 1;
            written.creates.store(creates, Ordering::Release);
        }
        while deletes - deletes_before < due(pace.deletes_per_second) {
            latencies_ns.push(timed(|| table.delete(deletes))?);
            deletes += 1;
            written.deletes.store(deletes, Ordering::Release);
        }
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.creates += creates - creates_taken;
        done.deletes += deletes - deletes_taken;
        done.write_latencies_ns.append(&mut latencies_ns);
        drop(done);
        std::thread::sleep(WRITER_TICK);
    }
    Ok(())
}

/// Reads the whole table again and again.
fn verify(table: &Table, interval: Duration, written: &Written, stop: &AtomicBool) -> Result<()> {
    let counts = || (written.creates.load(Ordering::Acquire), written.deletes.load(Ordering::Acquire));
    while !stop.load(Ordering::Relaxed) {
        report::print(&Line::Verified(table.verify(counts)?))?;
        std::thread::sleep(interval);
    }
    Ok(())
}

/// How long a write took, nanoseconds.
fn timed(write: impl FnOnce() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    write()?;
    Ok(report::nanoseconds(start.elapsed()))
}

/// Compacts the whole table in one call when the time has come.
fn compact(table: &Table, at: Instant) -> Result<()> {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
    table.compact()
}

fn list(
    table: &Table,
    pace: &Pace,
    written: &Written,
    turns: &Turns,
    done: &Mutex<Done>,
    stop: &AtomicBool,
) -> Result<()> {
    let context = PerfContext::default();
    while !stop.load(Ordering::Relaxed) {
        let missed = turns.wait();
        if pace.lookups_while.as_ref().is_some_and(|file| file.exists()) {
            for _ in 0..pace.lookups_per_list {
                table.look_up(written.creates.load(Ordering::Acquire).saturating_sub(1))?;
            }
        }
        let list =
            table.list(&context, written.deletes.load(Ordering::Acquire)).context("in a list thread")?;
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.lists.push(list);
        done.lists_missed += missed;
    }
    Ok(())
}
