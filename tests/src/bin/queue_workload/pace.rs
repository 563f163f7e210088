//! The paced part: one thread that writes, some that list, and this one that reports every second.

use crate::report::{self, Reporter};
use crate::table::{List, Table};
use anyhow::{Context, Result};
use rust_rocksdb::perf::PerfContext;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// Threads that list.
    pub list_threads: u32,
    /// How long.
    pub duration: Duration,
}

/// What the threads did since it was last taken.
#[derive(Default)]
pub struct Done {
    /// Lists that ended.
    pub lists: Vec<List>,
    /// Lists that were due while all threads were in a list.
    pub lists_missed: u64,
    /// Keys created.
    pub creates: u64,
    /// Keys deleted.
    pub deletes: u64,
}

/// When the next list is due: one schedule for all list threads.
struct Schedule {
    due: Instant,
    interval: Duration,
}

impl Schedule {
    /// Takes the next turn: when to start, and how many turns have passed with nobody free to take them.
    fn take(&mut self, now: Instant) -> (Instant, u64) {
        let mut missed = 0;
        while self.due + self.interval <= now {
            self.due += self.interval;
            missed += 1;
        }
        let turn = self.due;
        self.due += self.interval;
        (turn, missed)
    }
}

/// Runs the paced part, which goes on from `creates` created and `deletes` deleted keys.
pub fn run(table: &Table, pace: &Pace, creates: u64, deletes: u64) -> Result<()> {
    let start = Instant::now();
    let stop = AtomicBool::new(false);
    let done = Mutex::new(Done::default());
    let interval = SECOND / pace.lists_per_second.max(1);
    let schedule = Mutex::new(Schedule { due: start, interval });
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(table, pace, (creates, deletes), &done, &stop));
        let listers: Vec<_> =
            (0..pace.list_threads).map(|_| scope.spawn(|| list(table, &schedule, &done, &stop))).collect();
        let reported = report_seconds(table, pace, start, &done, || {
            writer.is_finished() || listers.iter().any(|lister| lister.is_finished())
        });
        stop.store(true, Ordering::Relaxed);
        let threads = std::iter::once(writer).chain(listers);
        let ended: Result<Vec<()>> = threads
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
    failed: impl Fn() -> bool,
) -> Result<()> {
    let mut reporter = Reporter::new()?;
    let mut second = Duration::ZERO;
    while second < pace.duration {
        second += SECOND;
        std::thread::sleep(second.saturating_sub(start.elapsed()));
        if failed() {
            return Ok(());
        }
        let done = std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner));
        reporter.second(table, start.elapsed(), &done)?;
    }
    reporter.end(start.elapsed())
}

/// Creates and deletes at the pace; what is late, because RocksDB stalled, is made up for.
fn write(
    table: &Table,
    pace: &Pace,
    (mut creates, mut deletes): (u64, u64),
    done: &Mutex<Done>,
    stop: &AtomicBool,
) -> Result<()> {
    let start = Instant::now();
    let (creates_before, deletes_before) = (creates, deletes);
    while !stop.load(Ordering::Relaxed) {
        let elapsed_ns = u128::from(report::nanoseconds(start.elapsed()));
        let due =
            |rate: u32| u64::try_from(u128::from(rate) * elapsed_ns / 1_000_000_000).unwrap_or(u64::MAX);
        let (creates_taken, deletes_taken) = (creates, deletes);
        while creates - creates_before < due(pace.creates_per_second) {
            table.create(creates)?;
            creates += 1;
        }
        while deletes - deletes_before < due(pace.deletes_per_second) {
            table.delete(deletes)?;
            deletes += 1;
        }
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.creates += creates - creates_taken;
        done.deletes += deletes - deletes_taken;
        drop(done);
        std::thread::sleep(WRITER_TICK);
    }
    Ok(())
}

fn list(table: &Table, schedule: &Mutex<Schedule>, done: &Mutex<Done>, stop: &AtomicBool) -> Result<()> {
    let context = PerfContext::default();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let (turn, missed) = schedule.lock().unwrap_or_else(PoisonError::into_inner).take(now);
        std::thread::sleep(turn.saturating_duration_since(now));
        let list = table.list(&context).context("in a list thread")?;
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        done.lists.push(list);
        done.lists_missed += missed;
    }
    Ok(())
}
