//! A thread that lists when it is told to, and says what its `PerfContext` counted.

use crate::databases::{Databases, Plan, key};
use anyhow::{Context, Result, anyhow, bail, ensure};
use rust_rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use rust_rocksdb::{ColumnFamily, DB, DBRawIterator};
use sexton_tests::static_host::ThreadCounters;
use sexton_tuner::evidence::Counters;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Keys that a list returns after its first.
const KEYS_PER_LIST: u64 = 60;

/// What one thread did in one step.
pub struct Done {
    pub operations: u64,
    /// Tombstones between the keys that were returned, by the plan.
    pub tombstones_planned: u64,
    pub thread: ThreadCounters,
}

/// The thread, seen from outside.
pub struct Worker {
    begin: SyncSender<()>,
    done: Receiver<Result<Done>>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts thread number `number`; it waits for [`Worker::begin`].
    pub fn start(databases: Arc<Databases>, number: u32, level: PerfStatsLevel) -> Result<Worker> {
        let (begin, beginning) = sync_channel(0);
        let (ending, done) = sync_channel(1);
        let work = move || {
            set_perf_stats(level);
            // Ends when the other side of the channel is gone.
            while beginning.recv().is_ok() {
                if ending.send(step(&databases, number)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("lister{number}")).spawn(work)?;
        Ok(Worker { begin, done, thread })
    }

    pub fn begin(&self) -> Result<()> {
        self.begin.send(()).context("a thread has ended")
    }

    /// Waits for what it did.
    pub fn done(&self) -> Result<Done> {
        self.done.recv().context("a thread has ended")?
    }

    pub fn end(self) -> Result<()> {
        drop(self.begin);
        self.thread.join().map_err(|_| anyhow!("a thread panicked"))
    }
}

/// RocksDB's perf level of this number.
pub fn perf_level(number: u8) -> Result<PerfStatsLevel> {
    Ok(match number {
        1 => PerfStatsLevel::Disable,
        2 => PerfStatsLevel::EnableCount,
        other => bail!("perf level {other}: 1 and 2 are what a host is observed at"),
    })
}

fn step(databases: &Databases, number: u32) -> Result<Done> {
    let context = PerfContext::default();
    let before = counters(&context);
    let mut done = Done { operations: 0, tombstones_planned: 0, thread: ThreadCounters::default() };
    for open in databases.open().iter() {
        for name in databases.plan.column_families() {
            let family = open.database.cf_handle(&name).context("a column family is gone")?;
            list(&open.database, family, databases.plan, u64::from(number), &mut done)?;
        }
    }
    let thread_id = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get())?;
    done.thread = ThreadCounters { thread_id, counters: counters(&context).minus(before) };
    Ok(done)
}

/// What the calling thread has counted so far.
fn counters(context: &PerfContext) -> Counters {
    Counters {
        tombstones_skipped: context.metric(PerfMetric::InternalDeleteSkippedCount),
        keys_skipped: context.metric(PerfMetric::InternalKeySkippedCount),
        block_reads: context.metric(PerfMetric::BlockReadCount),
        block_read_bytes: context.metric(PerfMetric::BlockReadByte),
        block_cache_hits: context.metric(PerfMetric::BlockCacheHitCount),
        merge_operands: context.metric(PerfMetric::InternalMergeCount),
        range_deletion_reseeks: context.metric(PerfMetric::InternalRangeDelReseekCount),
    }
}

/// All kinds of positioning calls, `Seek` once more on a used iterator. Each thread begins a key farther
/// in than the one before it.
fn list(database: &DB, family: &ColumnFamily, plan: Plan, offset: u64, done: &mut Done) -> Result<()> {
    let middle = (plan.keys / 2).saturating_add(offset);
    let mut iterator = database.raw_iterator_cf(family);
    for start in [middle, offset] {
        iterator.seek(key(start));
        walk(&mut iterator, Direction::Forward, start, plan, done)?;
    }
    let mut iterator = database.raw_iterator_cf(family);
    iterator.seek_for_prev(key(middle));
    walk(&mut iterator, Direction::Backward, middle, plan, done)?;
    let mut iterator = database.raw_iterator_cf(family);
    iterator.seek_to_first();
    walk(&mut iterator, Direction::Forward, 0, plan, done)?;
    let mut iterator = database.raw_iterator_cf(family);
    iterator.seek_to_last();
    walk(&mut iterator, Direction::Backward, plan.keys.saturating_sub(1), plan, done)
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

/// Goes on from where the iterator was positioned, and checks each key that it returns against the plan.
fn walk(
    iterator: &mut DBRawIterator<'_>,
    direction: Direction,
    start: u64,
    plan: Plan,
    done: &mut Done,
) -> Result<()> {
    done.operations += 1;
    let mut returned = 0;
    let forward = start..plan.keys;
    let backward = (0..plan.keys.min(start.saturating_add(1))).rev();
    let numbers: &mut dyn Iterator<Item = u64> = match direction {
        Direction::Forward => &mut { forward },
        Direction::Backward => &mut { backward },
    };
    for number in numbers {
        if plan.is_deleted(number) {
            done.tombstones_planned += 1;
            continue;
        }
        ensure!(iterator.key() == Some(&key(number)), "not at key {number}, where the plan is");
        returned += 1;
        if returned > KEYS_PER_LIST {
            return Ok(());
        }
        match direction {
            Direction::Forward => iterator.next(),
            Direction::Backward => iterator.prev(),
        }
    }
    ensure!(!iterator.valid(), "the iterator is not at its end");
    Ok(iterator.status()?)
}
