//! The process whose databases are measured. It knows nothing of Sexton: it has an order, and reports.

mod choice;
mod pace;
mod queues;
mod recorder;
mod rows;
mod store;
mod ycsb;

use crate::order::{self, Filled, Healthy, Lengths, Line, Measured, Order, Second, Task, Verified};
use crate::workload::{self, Kind, Scale, Workload};
use anyhow::{Context, Result, bail};
use queues::Queues;
use recorder::{Recorders, latencies};
use rust_rocksdb::perf::PerfContext;
use sexton_tests::turns::Turns;
use sexton_tuner::simulation::random::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use store::{Figures, Store};
use ycsb::Ycsb;

/// Threads that read, of each host.
const READERS: usize = 2;
/// Lists by which it is found out what one takes where nothing is wrong, after some that fill the cache.
const HEALTHY_LISTS: u32 = 300;
const QUICK_HEALTHY_LISTS: u32 = 50;
const WARM_UP_LISTS: u32 = 300;
const SECOND: Duration = Duration::from_secs(1);

/// What the process has to do.
enum Load {
    Queues(Queues),
    Ycsb(Ycsb),
}

impl Load {
    fn of(workload: &Workload, order: &Order) -> Load {
        match &workload.kind {
            Kind::Queues(shape) => Load::Queues(Queues::new(shape.scaled(order.scale))),
            Kind::Ycsb(mix) => Load::Ycsb(Ycsb::new(*mix, order.scale)),
        }
    }

    fn open(&self, order: &Order) -> Result<Store> {
        let (layout, expired) = match self {
            Load::Queues(queues) => (queues.layout(), queues.expired()),
            Load::Ycsb(_) => (Ycsb::layout(), None),
        };
        Store::open(&order.directory, &layout, &order.settings, expired.as_ref())
    }

    fn assume_filled(&self) {
        match self {
            Load::Queues(queues) => queues.assume_filled(),
            Load::Ycsb(ycsb) => ycsb.assume_filled(),
        }
    }

    fn verify(&self, store: &Store) -> Result<u64> {
        match self {
            Load::Queues(queues) => queues.verify(store),
            Load::Ycsb(ycsb) => ycsb.verify(store),
        }
    }
}

/// Does what is ordered.
pub fn carry_out(order: &Order) -> Result<()> {
    let workloads = workload::selected(&order.workload)?;
    let workload = workloads.first().context("no workload")?;
    let load = Load::of(workload, order);
    match order.task {
        Task::Fill => fill(&load, order),
        Task::Healthy => healthy(&load, order),
        Task::Run(lengths) => run(&load, order, lengths),
    }
}

fn fill(load: &Load, order: &Order) -> Result<()> {
    let start = Instant::now();
    let store = load.open(order)?;
    match load {
        Load::Queues(queues) => queues.fill(&store)?,
        Load::Ycsb(ycsb) => ycsb.fill(&store)?,
    }
    let (sst_files, sst_deletions) = store.files_and_deletions()?;
    order::print(&Line::Filled(Filled {
        seconds: start.elapsed().as_secs_f64(),
        sst_files,
        sst_bytes: store.figures()?.sst_bytes,
        sst_deletions,
    }))
}

fn healthy(load: &Load, order: &Order) -> Result<()> {
    load.assume_filled();
    let store = load.open(order)?;
    store.each_table(|_, table| {
        table.compact();
        Ok(())
    })?;
    let Load::Queues(queues) = load else {
        return order::print(&Line::Healthy(Healthy::default()));
    };
    let (context, mut random) = (PerfContext::default(), Random::of(order.seed, 0));
    for _ in 0..WARM_UP_LISTS {
        queues.list(&store, &context, &mut random)?;
    }
    // At the pace of a run: between two lists processors' caches forget, which is no tombstone's fault.
    let turns = Turns::new(Instant::now(), queues.shape.lists_per_second);
    let lists = match order.scale {
        Scale::Full => HEALTHY_LISTS,
        Scale::Quick => QUICK_HEALTHY_LISTS,
    };
    let mut sum = Duration::ZERO;
    for _ in 0..lists {
        turns.wait();
        sum += queues.list(&store, &context, &mut random)?.latency;
        queues.get(&store, &mut random)?;
    }
    let list_mean_ns = sum.as_nanos() as f64 / f64::from(lists);
    order::print(&Line::Healthy(Healthy { list_mean_ns }))
}

/// What the threads share.
struct Shared<'a> {
    load: &'a Load,
    store: &'a Store,
    recorders: &'a Recorders,
    turns: Turns,
    /// The contender begins.
    begin: AtomicBool,
    stop: AtomicBool,
}

fn run(load: &Load, order: &Order, lengths: Lengths) -> Result<()> {
    load.assume_filled();
    let store = load.open(order)?;
    let recorders = Recorders::new(READERS + 1)?;
    let lists_per_second = match load {
        Load::Queues(queues) => queues.shape.lists_per_second,
        Load::Ycsb(_) => 1,
    };
    let shared = Shared {
        load,
        store: &store,
        recorders: &recorders,
        turns: Turns::new(Instant::now(), lists_per_second),
        begin: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    };
    let measured = std::thread::scope(|scope| {
        let threads = start_threads(scope, &shared, order);
        let measured = measure(&shared, lengths, || threads.iter().any(ScopedJoinHandle::is_finished));
        shared.stop.store(true, Ordering::Relaxed);
        let ended: Result<Vec<()>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked")))
            .collect();
        // A thread that failed is the cause; the measurement only noticed.
        ended.and(measured)
    })?;
    order::print(&Line::Measured(Box::new(measured)))?;
    let rows = load.verify(&store).context("reading all rows at the end")?;
    order::print(&Line::Verified(Verified { rows, answers: recorders.sum()?.answers }))
}

fn start_threads<'s>(
    scope: &'s Scope<'s, '_>,
    shared: &'s Shared<'_>,
    order: &Order,
) -> Vec<ScopedJoinHandle<'s, Result<()>>> {
    let (store, stop) = (shared.store, &shared.stop);
    let mut threads = Vec::new();
    for (number, recorder) in (1..).zip(shared.recorders.iter()) {
        let random = Random::of(order.seed, number);
        threads.push(match shared.load {
            Load::Queues(queues) if number == 1 => {
                scope.spawn(move || pace::write(queues, store, recorder, random, stop))
            }
            Load::Queues(queues) => {
                let turns = &shared.turns;
                scope.spawn(move || pace::read(queues, store, turns, recorder, random, stop))
            }
            // As many threads as processors, so that what runs beside them shows.
            Load::Ycsb(_) if number == 1 => continue,
            Load::Ycsb(ycsb) => scope.spawn(move || pace::operate(ycsb, store, recorder, random, stop)),
        });
    }
    if let Some(seconds) = order.settings.compact_interval_seconds {
        let interval = Duration::from_secs(seconds);
        threads.push(scope.spawn(move || pace::compact(store, interval, &shared.begin, stop)));
    }
    if let Load::Queues(queues) = shared.load
        && let Some(snapshots) = queues.shape.snapshots
    {
        let held = Duration::from_secs(snapshots.held_seconds);
        let apart = Duration::from_secs(snapshots.pause_seconds);
        threads.push(scope.spawn(move || pace::hold_snapshots(store, held, apart, stop)));
    }
    threads
}

/// Waits for the parts of the run, and adds up what happened in them.
fn measure(shared: &Shared<'_>, lengths: Lengths, failed: impl Fn() -> bool) -> Result<Measured> {
    wait_until(Instant::now() + SECOND * u32::try_from(lengths.lead_seconds)?, &failed)?;
    let (before, processor_before) = (shared.store.figures()?, processor_seconds());
    shared.recorders.take_second();
    order::print(&Line::Ready)?;
    shared.begin.store(true, Ordering::Relaxed);
    let begin = Instant::now();
    let (mut seconds, mut last, mut disk_peak_bytes) = (Vec::new(), before, before.disk_bytes);
    let mut measured_from = begin;
    if lengths.settle_seconds == 0 {
        shared.recorders.forget();
    }
    for second in 1..=u32::try_from(lengths.settle_seconds + lengths.measured_seconds)? {
        wait_until(begin + SECOND * second, &failed)?;
        let now = shared.store.figures()?;
        seconds.push(Second {
            compaction_bytes: compacted(&now) - compacted(&last),
            sst_bytes: now.sst_bytes,
            ..shared.recorders.take_second()
        });
        disk_peak_bytes = disk_peak_bytes.max(now.disk_bytes);
        last = now;
        if u64::from(second) == lengths.settle_seconds {
            shared.recorders.forget();
            measured_from = Instant::now();
        }
    }
    let recorded = shared.recorders.sum()?;
    let per_list = |count: u64| count as f64 / recorded.list.len().max(1) as f64;
    Ok(Measured {
        list: latencies(&recorded.list),
        seek: latencies(&recorded.seek),
        get: latencies(&recorded.get),
        write: latencies(&recorded.write),
        operations_per_second: recorded.operations as f64 / measured_from.elapsed().as_secs_f64(),
        tombstones_per_list: per_list(recorded.tombstones),
        block_reads_per_list: per_list(recorded.block_reads),
        seconds,
        flushed_bytes: last.flushed_bytes - before.flushed_bytes,
        compaction_read_bytes: last.compaction_read_bytes - before.compaction_read_bytes,
        compaction_written_bytes: last.compaction_written_bytes - before.compaction_written_bytes,
        stall_us: last.stall_us - before.stall_us,
        sst_bytes_before: before.sst_bytes,
        sst_bytes_after: last.sst_bytes,
        disk_peak_bytes,
        processor_seconds: processor_seconds() - processor_before,
    })
}

fn compacted(figures: &Figures) -> u64 {
    figures.compaction_read_bytes + figures.compaction_written_bytes
}

/// Fails as soon as a thread has ended: none ends by itself.
fn wait_until(moment: Instant, failed: &impl Fn() -> bool) -> Result<()> {
    while Instant::now() < moment {
        if failed() {
            bail!("a thread has ended");
        }
        std::thread::sleep(moment.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
    }
    Ok(())
}

/// Processor time of this process, all threads that ever were included.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
