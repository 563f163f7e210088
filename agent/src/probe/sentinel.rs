//! The sentinel: exact totals of a target's threads, with no probe in the target.

use super::abi::{Record, SEXTON_READING_HAS_COUNTERS, SEXTON_READING_HAS_PERF_LEVEL, sexton_thread_reading};
use super::account::Account;
use super::iterator::attach_to_process;
use super::recipe::{Thresholds, recipe};
use super::skeleton::{SentinelSkel, SentinelSkelBuilder, object_room};
use super::{ProbeError, Slot};
use crate::target::facts::Target;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use sexton_tuner::evidence::Counters;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;
use std::rc::Rc;
use std::time::Instant;

/// Bytes of one pass that are read: more threads than a process has, and an end to the reading.
const PASS_BYTES_MAX: u64 = 64 * 1024 * 1024;

type EndedQueue = Rc<RefCell<Vec<sexton_thread_reading>>>;

/// Reads the totals of any number of targets. Nothing of it is in the target: a thread of the agent walks
/// the kernel's list of the target's threads and copies their counters out of their memory.
pub struct Sentinel {
    skeleton: SentinelSkel<'static>,
    _thread_end: Link,
    ended_ring: RingBuffer<'static>,
    ended: EndedQueue,
    watched: HashMap<u32, Watched>,
}

struct Watched {
    iterator: Link,
    account: Account,
}

/// What the sentinel read of one target at one moment.
#[derive(Clone, Debug)]
pub struct SentinelReading {
    /// When, on the monotonic clock.
    pub at: Instant,
    /// Sum over all threads, living and ended since the target is being watched.
    pub total: Counters,
    /// Living threads.
    pub threads: u32,
    /// Living threads that have counters, that is, have used RocksDB.
    pub threads_with_counters: u32,
    /// Threads that ended since the target is being watched.
    pub threads_ended: u64,
    /// Those of them whose last counters could not be read.
    pub threads_ended_unread: u64,
    /// Lowest perf level of the threads that have counters.
    pub perf_level: Option<u8>,
    /// Totals by thread id and start, to settle what a closing window left open.
    pub(super) by_thread: HashMap<(u32, u64), Counters>,
}

impl SentinelReading {
    /// Totals of each living thread that has counters.
    pub fn thread_counters(&self) -> Vec<Counters> {
        self.by_thread.values().copied().collect()
    }
}

impl Sentinel {
    /// Loads the programs and begins to listen for ending threads.
    ///
    /// # Errors
    /// [`ProbeError::Load`], [`ProbeError::Attach`].
    pub fn load() -> Result<Sentinel, ProbeError> {
        let load_error = |source| ProbeError::Load { object: "sentinel", source };
        let open = SentinelSkelBuilder::default().open(object_room()).map_err(load_error)?;
        let skeleton = open.load().map_err(load_error)?;
        let thread_end = skeleton.progs.sexton_thread_end.attach().map_err(|source| ProbeError::Attach {
            what: "the thread-end tracepoint",
            pid: 0,
            source,
        })?;
        let ended = EndedQueue::default();
        let queue = Rc::clone(&ended);
        let mut ring = RingBufferBuilder::new();
        ring.add(&skeleton.maps.sexton_ended, move |bytes| {
            if let Some(reading) = sexton_thread_reading::from_bytes(bytes) {
                queue.borrow_mut().push(reading);
            }
            0
        })
        .map_err(load_error)?;
        let ended_ring = ring.build().map_err(load_error)?;
        Ok(Sentinel { skeleton, _thread_end: thread_end, ended_ring, ended, watched: HashMap::new() })
    }

    /// Begins to watch a target; what its threads counted before is part of the first reading.
    ///
    /// # Errors
    /// [`ProbeError::Attach`] when the process has gone, [`ProbeError::Layout`], [`ProbeError::Access`].
    pub fn watch(&mut self, target: &Target, slot: Slot) -> Result<(), ProbeError> {
        let pid = target.process.pid;
        // Thresholds are the windows' business; the sentinel has none.
        let thresholds = Thresholds { tombstones_per_operation: 0, block_reads_per_operation: 0 };
        let recipe = recipe(target, slot, thresholds)?;
        self.skeleton
            .maps
            .sexton_watched
            .update(&pid.to_ne_bytes(), recipe.as_bytes(), MapFlags::ANY)
            .map_err(|source| ProbeError::Access { what: "the map of watched processes", source })?;
        match attach_to_process(&self.skeleton.progs.sexton_sentinel, pid) {
            Ok(iterator) => {
                self.watched.insert(pid, Watched { iterator, account: Account::default() });
                Ok(())
            }
            Err(error) => {
                self.forget(pid);
                Err(error)
            }
        }
    }

    /// Stops watching a process; nothing happens if it was not watched.
    pub fn forget(&mut self, pid: u32) {
        self.watched.remove(&pid);
        // Absent is as good as removed.
        let _ = self.skeleton.maps.sexton_watched.delete(&pid.to_ne_bytes());
    }

    /// Reads the totals of a watched process. Of a process that has ended, the last ones.
    ///
    /// # Errors
    /// [`ProbeError::NotWatched`], [`ProbeError::Access`].
    pub fn read(&mut self, pid: u32) -> Result<SentinelReading, ProbeError> {
        let watched = self.watched.get(&pid).ok_or(ProbeError::NotWatched { pid })?;
        let pass = read_pass(&watched.iterator)?;
        let at = Instant::now();
        // After the pass: a thread that ended in between is in both, and its end has the last word.
        let ended = self.take_ended(pid)?;
        let watched = self.watched.get_mut(&pid).ok_or(ProbeError::NotWatched { pid })?;
        watched.account.take(&pass, &ended);
        Ok(reading(at, &pass, &watched.account))
    }

    /// Readings of ended threads of `pid`; those of other processes stay for their turn.
    fn take_ended(&mut self, pid: u32) -> Result<Vec<sexton_thread_reading>, ProbeError> {
        self.ended_ring
            .consume()
            .map_err(|source| ProbeError::Access { what: "the ring of ended threads", source })?;
        let mut queue = self.ended.borrow_mut();
        queue.retain(|reading| self.watched.contains_key(&reading.process_id));
        let (ours, others) = queue.drain(..).partition(|reading| reading.process_id == pid);
        *queue = others;
        Ok(ours)
    }
}

fn read_pass(link: &Link) -> Result<Vec<sexton_thread_reading>, ProbeError> {
    let access_error = |source| ProbeError::Access { what: "the sentinel's iterator", source };
    let iterator = Iter::new(link).map_err(access_error)?;
    let mut bytes = Vec::new();
    iterator.take(PASS_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| access_error(error.into()))?;
    Ok(bytes
        .chunks_exact(size_of::<sexton_thread_reading>())
        .filter_map(sexton_thread_reading::from_bytes)
        .collect())
}

fn reading(at: Instant, pass: &[sexton_thread_reading], account: &Account) -> SentinelReading {
    let with_counters = || pass.iter().filter(|thread| thread.flags & SEXTON_READING_HAS_COUNTERS != 0);
    SentinelReading {
        at,
        total: account.total(),
        threads: pass.len() as u32,
        threads_with_counters: with_counters().count() as u32,
        threads_ended: account.threads_ended(),
        threads_ended_unread: account.threads_ended_unread(),
        perf_level: with_counters()
            .filter(|thread| thread.flags & SEXTON_READING_HAS_PERF_LEVEL != 0)
            .map(|thread| u8::try_from(thread.perf_level).unwrap_or(u8::MAX))
            .min(),
        by_thread: with_counters()
            .map(|thread| ((thread.thread_id, thread.start_boot_ns), thread.counters.into()))
            .collect(),
    }
}
