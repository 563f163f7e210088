//! Queues of rows: what is in them, and what is done to them.
//!
//! Rows of a queue have numbers. Which of them exist is known at any moment from two counters, so that each
//! answer can be compared with what was written, and all rows at the end.

use super::choice::Choice;
use super::rows;
use super::store::{Expired, Layout, Store, Table};
use crate::workload::{Expiry, Filling, Order, Shape, Spread};
use anyhow::{Context, Result, ensure};
use rust_rocksdb::perf::{PerfContext, PerfMetric};
use sexton_tuner::simulation::random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lists of a hundred that go to hot queues, where not all queues are hot.
const HOT_PERCENT: u64 = 80;

/// Rows created and deleted in a queue so far: those in between are there.
#[derive(Debug, Default)]
struct Counters {
    created: AtomicU64,
    deleted: AtomicU64,
}

impl Counters {
    /// Rows that exist: from the first number up to, and without, the second.
    fn live(&self) -> (u64, u64) {
        let deleted = self.deleted.load(Ordering::Acquire);
        (deleted, self.created.load(Ordering::Acquire))
    }
}

pub struct Queues {
    pub shape: Shape,
    counters: Arc<Vec<Counters>>,
    /// Which of the hot queues, and which of all.
    hot: Choice,
    any: Choice,
}

/// What a list or a get took and found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    pub latency: Duration,
    /// Of the positioning call alone.
    pub seek: Duration,
    pub tombstones: u64,
    pub block_reads: u64,
}

impl Queues {
    /// Queues with nothing in them.
    pub fn new(shape: Shape) -> Queues {
        let choice = |count| match shape.spread {
            Spread::Even => Choice::even(count),
            Spread::Zipf => Choice::zipf(count),
        };
        let (hot, any) = (choice(shape.queues() / shape.queues_per_hot), choice(shape.queues()));
        let counters = (0..shape.queues()).map(|_| Counters::default()).collect();
        Queues { shape, counters: Arc::new(counters), hot, any }
    }

    /// Says what [`Queues::fill`] has left in the databases.
    pub fn assume_filled(&self) {
        for (queue, counters) in (0..).zip(self.counters.iter()) {
            let deleted = if self.shape.is_hot(queue) { self.shape.deleted } else { 0 };
            counters.created.store(self.shape.created, Ordering::Release);
            counters.deleted.store(deleted, Ordering::Release);
        }
    }

    pub fn layout(&self) -> Layout {
        Layout {
            databases: self.shape.databases,
            families: self.shape.families,
            write_buffer_bytes: self.shape.write_buffer_bytes,
        }
    }

    /// For the compaction filter, where rows expire by one.
    pub fn expired(&self) -> Option<Expired> {
        let (counters, order, queues) =
            (Arc::clone(&self.counters), self.shape.order, self.shape.queues_per_family);
        (self.shape.expiry == Expiry::Filter).then(|| -> Expired {
            Arc::new(move |table, key| {
                let queue = rows::queue_of(key).map(|queue| table * queues + queue);
                let counters = queue.and_then(|queue| counters.get(usize::try_from(queue).ok()?));
                let number = rows::number_of(key, order);
                counters.zip(number).is_some_and(|(counters, number)| number < counters.live().0)
            })
        })
    }

    fn counters(&self, queue: u64) -> Result<&Counters> {
        let counters = usize::try_from(queue).ok().and_then(|queue| self.counters.get(queue));
        counters.with_context(|| format!("there is no queue {queue}"))
    }

    fn table<'s>(&self, store: &'s Store, queue: u64) -> Result<Table<'s>> {
        store.table(queue / self.shape.queues_per_family)
    }

    fn prefix(&self, queue: u64) -> String {
        rows::prefix(queue % self.shape.queues_per_family)
    }

    /// Creates all rows, and deletes those that are to be gone.
    pub fn fill(&self, store: &Store) -> Result<()> {
        let (created, deleted) = (self.shape.created, self.shape.deleted);
        let hot = |queue: &u64| self.shape.is_hot(*queue);
        for round in 1..=created {
            for queue in 0..self.shape.queues() {
                self.create(store, queue)?;
            }
            if self.shape.filling == Filling::Mixed {
                for queue in (0..self.shape.queues()).filter(hot) {
                    self.delete_up_to(store, queue, round * deleted / created)?;
                }
            }
        }
        if self.shape.filling == Filling::DeletesLast {
            store.each_table(|_, table| {
                table.flush()?;
                table.compact();
                Ok(())
            })?;
        }
        for queue in (0..self.shape.queues()).filter(hot) {
            self.delete_up_to(store, queue, deleted)?;
        }
        store.each_table(|_, table| table.flush())?;
        store.settle()
    }

    fn delete_up_to(&self, store: &Store, queue: u64, wanted: u64) -> Result<()> {
        while self.counters(queue)?.live().0 + self.rows_per_delete() <= wanted {
            self.delete(store, queue)?;
        }
        Ok(())
    }

    /// A row more in any queue.
    pub fn create_any(&self, store: &Store, random: &mut Random) -> Result<()> {
        self.create(store, self.any.pick(random))
    }

    fn create(&self, store: &Store, queue: u64) -> Result<()> {
        let counters = self.counters(queue)?;
        let number = counters.created.load(Ordering::Acquire);
        let key = rows::key(&self.prefix(queue), number, self.shape.order);
        self.table(store, queue)?.put(&key, &rows::value(queue, number, self.shape.value_bytes))?;
        counters.created.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// Rows that go at a time.
    pub fn rows_per_delete(&self) -> u64 {
        match self.shape.expiry {
            Expiry::DeleteRange { rows } => rows,
            Expiry::Delete | Expiry::Filter => 1,
        }
    }

    /// The oldest rows of a hot queue, unless there would be too few left for a list.
    pub fn delete_any(&self, store: &Store, random: &mut Random) -> Result<()> {
        let queue = self.hot.pick(random) * self.shape.queues_per_hot;
        let (oldest, end) = self.counters(queue)?.live();
        if end - oldest > self.rows_per_delete() + 2 * self.shape.rows_per_list {
            self.delete(store, queue)?;
        }
        Ok(())
    }

    fn delete(&self, store: &Store, queue: u64) -> Result<()> {
        let counters = self.counters(queue)?;
        let oldest = counters.deleted.load(Ordering::Acquire);
        let table = self.table(store, queue)?;
        let key = |number| rows::key(&self.prefix(queue), number, self.shape.order);
        match self.shape.expiry {
            Expiry::Delete => table.delete(&key(oldest))?,
            Expiry::DeleteRange { rows } => table.delete_range(&key(oldest), &key(oldest + rows))?,
            Expiry::Filter => {}
        }
        counters.deleted.store(oldest + self.rows_per_delete(), Ordering::Release);
        Ok(())
    }

    /// Which queue is listed next.
    fn pick(&self, random: &mut Random) -> u64 {
        if self.shape.queues_per_hot > 1 && random.between(0, 100) >= HOT_PERCENT {
            self.any.pick(random)
        } else {
            self.hot.pick(random) * self.shape.queues_per_hot
        }
    }

    /// Reads the first rows of a queue, as a directory listing does; fails where they are not those that
    /// were written.
    pub fn list(&self, store: &Store, context: &PerfContext, random: &mut Random) -> Result<Read> {
        let queue = self.pick(random);
        let (table, prefix) = (self.table(store, queue)?, self.prefix(queue));
        let begin = match self.shape.order {
            Order::Created => prefix.clone().into_bytes(),
            Order::Hashed => rows::key(&prefix, random.between(0, u64::MAX), Order::Hashed),
        };
        let tombstones = context.metric(PerfMetric::InternalDeleteSkippedCount);
        let block_reads = context.metric(PerfMetric::BlockReadCount);
        let before = self.counters(queue)?.live();
        let start = Instant::now();
        let mut iterator = table.iterator();
        let seek_start = Instant::now();
        iterator.seek(&begin);
        let seek = seek_start.elapsed();
        let mut numbers = Vec::new();
        while (numbers.len() as u64) < self.shape.rows_per_list
            && let Some(key) = iterator.key().filter(|key| key.starts_with(prefix.as_bytes()))
        {
            let number = rows::number_of(key, self.shape.order).context("a key that nobody wrote")?;
            // An expired row that no compaction has removed.
            if self.shape.expiry != Expiry::Filter || number >= before.0 {
                numbers.push(number);
            }
            iterator.next();
        }
        iterator.status().context("listing")?;
        drop(iterator);
        let latency = start.elapsed();
        let after = self.counters(queue)?.live();
        self.check_list(&numbers, before, after).with_context(|| format!("a list of queue {queue}"))?;
        Ok(Read {
            latency,
            seek,
            tombstones: context.metric(PerfMetric::InternalDeleteSkippedCount) - tombstones,
            block_reads: context.metric(PerfMetric::BlockReadCount) - block_reads,
        })
    }

    /// Compares a list with the rows that were there before and after it; one write may be under way at
    /// either moment.
    fn check_list(&self, numbers: &[u64], before: (u64, u64), after: (u64, u64)) -> Result<()> {
        let (oldest_max, end_max) = (after.0 + self.rows_per_delete(), after.1 + 1);
        for number in numbers {
            ensure!(
                (before.0..end_max).contains(number),
                "row {number}, and there are {before:?} to {after:?}"
            );
        }
        if self.shape.order == Order::Hashed {
            return Ok(());
        }
        let first = numbers.first().context("it is empty")?;
        ensure!(*first <= oldest_max, "it begins with row {first}; there are {before:?} to {after:?}");
        let gap = numbers.iter().zip(numbers.iter().skip(1)).find(|(one, next)| **one + 1 != **next);
        ensure!(gap.is_none(), "a row is missing between {gap:?}");
        let wanted = self.shape.rows_per_list.min(before.1.saturating_sub(oldest_max));
        ensure!(numbers.len() as u64 >= wanted, "{} rows of {wanted}", numbers.len());
        Ok(())
    }

    /// Reads one of the younger rows of a queue; fails where it is not what was written.
    pub fn get(&self, store: &Store, random: &mut Random) -> Result<Duration> {
        let queue = self.pick(random);
        let (oldest, end) = self.counters(queue)?.live();
        let number = random.between(oldest + (end - oldest) / 2, end);
        let key = rows::key(&self.prefix(queue), number, self.shape.order);
        let table = self.table(store, queue)?;
        let start = Instant::now();
        let value = table.get(&key)?;
        let latency = start.elapsed();
        let written = rows::value(queue, number, self.shape.value_bytes);
        ensure!(value.as_ref() == Some(&written), "row {number} of queue {queue} is not what was written");
        Ok(latency)
    }

    /// Reads everything, while nobody writes; gives the rows. Fails where one is missing, is not what was
    /// written, or should not be there.
    pub fn verify(&self, store: &Store) -> Result<u64> {
        let mut found: Vec<u64> = vec![0; self.counters.len()];
        store.each_table(|table_number, table| {
            let mut iterator = table.iterator();
            iterator.seek_to_first();
            while let Some((key, value)) = iterator.item() {
                let local = rows::queue_of(key).context("a key that nobody wrote")?;
                let queue = table_number * self.shape.queues_per_family + local;
                let number = rows::number_of(key, self.shape.order).context("a key that nobody wrote")?;
                let (oldest, end) = self.counters(queue)?.live();
                ensure!(number < end, "row {number} of queue {queue} was never written");
                let is_expired = number < oldest;
                ensure!(
                    !is_expired || self.shape.expiry == Expiry::Filter,
                    "row {number} of queue {queue} was deleted"
                );
                let written = rows::value(queue, number, self.shape.value_bytes);
                ensure!(value == written, "row {number} of queue {queue} has another value");
                if let Some(found) = found.get_mut(usize::try_from(queue)?) {
                    *found += u64::from(!is_expired);
                }
                iterator.next();
            }
            iterator.status().context("reading all rows")
        })?;
        for (queue, (found, counters)) in (0..).zip(found.iter().zip(self.counters.iter())) {
            let (oldest, end) = counters.live();
            ensure!(*found == end - oldest, "queue {queue} has {found} rows of {}", end - oldest);
        }
        Ok(found.iter().sum())
    }
}
