//! The sentinel: exact totals of a target's threads, with no probe in the target.
//!
//! Kernels before 6.1 cannot have one. Then it is absent: watching works, readings are empty and say
//! [`TotalsBy::Windows`], and all that is known of a target comes from its windows.

use super::abi::{
    Record, SEXTON_READING_HAS_COUNTERS, SEXTON_READING_HAS_PERF_LEVEL, SEXTON_SLOTS_PER_PROCESS_MAX,
    sexton_process, sexton_recipe, sexton_thread_reading,
};
use super::account::{Account, ThreadKey};
use super::loader::{Attachment, Loaded, Loader, Map, Passes, Ring};
use super::object::BpfObject;
use super::recipe::{Thresholds, recipe};
use super::thread_memory::read_counters;
use super::{Answer, Credit, KernelFeatures, ProbeError, Slot};
use serde::Serialize;
use sexton_inspect::facts::{Target, ThreadLevel};
use sexton_tuner::evidence::Counters;
use sexton_tuner::price_correction::Work;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Bytes of one pass that are read: more threads than a process has, and an end to the reading.
const PASS_BYTES_MAX: u64 = 64 * 1024 * 1024;

type EndedQueue = Arc<Mutex<Vec<sexton_thread_reading>>>;

/// Reads the totals of any number of targets. Nothing of it is in the target: a thread of the agent walks
/// the kernel's list of the target's threads, and then copies their counters out of their memory.
pub struct Sentinel {
    presence: Presence,
    watched: HashMap<Slot, Watched>,
}

enum Presence {
    Loaded(Programs),
    /// The kernel has none, and why.
    Absent(String),
}

/// The programs in the kernel.
struct Programs {
    object: Arc<dyn Loaded>,
    recipes: Map,
    processes: Map,
    passes: Map,
    _thread_end: Attachment,
    ended_ring: Box<dyn Ring>,
    ended: EndedQueue,
}

struct Watched {
    pid: u32,
    /// `None` where the sentinel is absent, or the target's threads have no counters.
    iterator: Option<Arc<dyn Passes>>,
    recipe: Arc<sexton_recipe>,
    account: Account,
}

/// Reads one target's totals, in whatever thread: it may block for as long as the target's memory cannot be
/// read.
#[derive(Clone)]
pub struct TotalsReader {
    slot: Slot,
    /// `None` where nothing can be read: see [`Sentinel::absence`], or the target's threads have no counters.
    source: Option<Source>,
}

/// What the totals of one target are read by.
#[derive(Clone)]
struct Source {
    iterator: Arc<dyn Passes>,
    passes: Map,
    pid: u32,
    recipe: Arc<sexton_recipe>,
}

/// What one pass over a target's threads has found; [`Sentinel::take`] makes a reading of it.
#[derive(Debug)]
pub struct Totals {
    at: Instant,
    threads: Option<Vec<sexton_thread_reading>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TotalsBy {
    /// The sentinel: all that the target's threads counted.
    #[default]
    Sentinel,
    /// The probes, while windows were open: the kernel has no sentinel, or the threads no counters.
    Windows,
}

/// What the sentinel read of one target at one moment.
#[derive(Clone, Debug)]
pub struct SentinelReading {
    /// When, on the monotonic clock.
    pub at: Instant,
    /// Whose totals are to be believed: this reading's, or, where there is no sentinel, the windows'.
    pub totals_by: TotalsBy,
    /// Sum over all threads, living and ended since the target is being watched; never falls. The least that
    /// was counted where the target sets its counters to zero.
    pub total: Counters,
    /// How often a thread's counters were found smaller than before: the target sets them to zero.
    pub resets: u64,
    /// Sum over all threads of what stands in their counters, or stood there when they ended.
    pub(super) standing: Counters,
    pub threads: u32,
    /// Living threads that have counters, that is, have used RocksDB.
    pub threads_with_counters: u32,
    /// Threads that ended since the target is being watched.
    pub threads_ended: u64,
    /// Those of them whose last counters could not be read.
    pub threads_ended_unread: u64,
    /// Lowest perf level of the threads that have counters.
    pub perf_level: Option<u8>,
    /// Perf level of each living thread whose level could be read.
    pub levels: Vec<ThreadLevel>,
    /// Totals of each living thread that has counters: to settle what a closing window left open, and to tell
    /// what threads did between two readings.
    pub(super) by_thread: HashMap<ThreadKey, Work>,
}

impl SentinelReading {
    /// Totals of each living thread that has counters.
    pub fn thread_counters(&self) -> Vec<Counters> {
        self.by_thread.values().map(|work| work.counters).collect()
    }

    /// The sum over all threads but the living ones that are named.
    pub fn total_without(&self, threads: &HashSet<u32>) -> Counters {
        let named = self.by_thread.iter().filter(|((id, _), _)| threads.contains(id));
        named.fold(self.total, |total, (_, work)| total.minus(work.counters))
    }

    /// What each thread has done since an earlier reading; those that began since, or have set their counters
    /// to zero, are not among them.
    pub fn work_since(&self, earlier: &SentinelReading) -> HashMap<ThreadKey, Work> {
        let since =
            |(thread, now): (&ThreadKey, &Work)| Some((*thread, now.since(*earlier.by_thread.get(thread)?)?));
        self.by_thread.iter().filter_map(since).collect()
    }
}

impl Sentinel {
    /// Loads the programs and begins to listen for ending threads. Where the kernel is known to have no
    /// sentinel, one that is absent.
    pub fn load(features: &KernelFeatures) -> Result<Sentinel, ProbeError> {
        Sentinel::load_with(Loader::default(), features)
    }

    /// As [`Sentinel::load`], by the loader that is named.
    pub fn load_with(loader: Loader, features: &KernelFeatures) -> Result<Sentinel, ProbeError> {
        let presence = match &features.task_iterator {
            Answer::No(reason) => Presence::Absent(reason.clone()),
            Answer::Yes | Answer::Unknown(_) => Presence::Loaded(Programs::load(loader)?),
        };
        Ok(Sentinel { presence, watched: HashMap::new() })
    }

    /// Why there is no sentinel; `None` where there is one.
    pub fn absence(&self) -> Option<&str> {
        match &self.presence {
            Presence::Loaded(_) => None,
            Presence::Absent(reason) => Some(reason),
        }
    }

    /// Begins to watch a target; what its threads counted before is part of the first reading.
    /// Errors: [`ProbeError::Attach`] when the process has gone, [`ProbeError::Layout`],
    /// [`ProbeError::Access`], [`ProbeError::TooManyCopies`].
    pub fn watch(&mut self, target: &Target, slot: Slot) -> Result<(), ProbeError> {
        let pid = target.process.pid;
        // Thresholds and credit are the windows' business; the sentinel has none.
        let thresholds = Thresholds { tombstones_per_operation: 0, block_reads_per_operation: 0 };
        let recipe = recipe(target, thresholds, &Credit::unlimited())?;
        let (recipe, account) = (Arc::new(recipe), Account::default());
        self.watched.insert(slot, Watched { pid, iterator: None, recipe: Arc::clone(&recipe), account });
        if let Err(error) = self.begin(slot, &recipe) {
            self.forget(slot);
            return Err(error);
        }
        Ok(())
    }

    fn begin(&mut self, slot: Slot, recipe: &sexton_recipe) -> Result<(), ProbeError> {
        let process = self.process(recipe.process_id)?;
        let Presence::Loaded(loaded) = &self.presence else { return Ok(()) };
        if recipe.has_perf_context == 0 {
            return Ok(());
        }
        loaded.recipes.write(slot, recipe)?;
        loaded.processes.write(recipe.process_id, &process)?;
        let iterator = loaded.object.attach_iterator("sexton_sentinel", recipe.process_id)?;
        if let Some(watched) = self.watched.get_mut(&slot) {
            watched.iterator = Some(iterator);
        }
        Ok(())
    }

    /// The slots of a process that are being watched.
    fn process(&self, pid: u32) -> Result<sexton_process, ProbeError> {
        let mut process = sexton_process::default();
        for (slot, _) in self.watched.iter().filter(|(_, watched)| watched.pid == pid) {
            let room = process.slots.get_mut(process.count as usize);
            *room.ok_or(ProbeError::TooManyCopies { pid, max: SEXTON_SLOTS_PER_PROCESS_MAX as usize })? =
                *slot;
            process.count += 1;
        }
        Ok(process)
    }

    /// Stops watching a slot; nothing happens if it was not watched.
    pub fn forget(&mut self, slot: Slot) {
        let Some(watched) = self.watched.remove(&slot) else { return };
        let others = self.process(watched.pid).unwrap_or_default();
        let Presence::Loaded(loaded) = &self.presence else { return };
        // A slot with no process in it is read for nobody; a map that cannot be written has no entry.
        let _ = loaded.recipes.write(slot, &sexton_recipe::default());
        match others.count {
            0 => loaded.processes.remove(&watched.pid),
            _ => drop(loaded.processes.write(watched.pid, &others)),
        }
    }

    /// Who reads the totals of a watched slot.
    pub fn reader(&self, slot: Slot) -> Result<TotalsReader, ProbeError> {
        let watched = self.watched.get(&slot).ok_or(ProbeError::NotWatched { slot })?;
        let source = match (&self.presence, &watched.iterator) {
            (Presence::Loaded(loaded), Some(iterator)) => Some(Source {
                iterator: Arc::clone(iterator),
                passes: loaded.passes.clone(),
                pid: watched.pid,
                recipe: Arc::clone(&watched.recipe),
            }),
            _ => None,
        };
        Ok(TotalsReader { slot, source })
    }

    /// Adds what was read of a slot to what its ended threads had counted. Totals of a slot are to be given
    /// in the order in which they were read.
    pub fn take(&mut self, slot: Slot, totals: Totals) -> Result<SentinelReading, ProbeError> {
        let Some(threads) = totals.threads else { return Ok(SentinelReading::absent()) };
        // After the pass: a thread that ended in between is in both, and its end has the last word.
        let ended = self.take_ended(slot)?;
        let watched = self.watched.get_mut(&slot).ok_or(ProbeError::NotWatched { slot })?;
        watched.account.take(&threads, &ended);
        Ok(reading(totals.at, &threads, &watched.account))
    }

    /// Reads the totals of a watched slot. Of a process that has ended, the last ones.
    pub fn read(&mut self, slot: Slot) -> Result<SentinelReading, ProbeError> {
        let totals = self.reader(slot)?.read()?;
        self.take(slot, totals)
    }

    /// Readings of ended threads of a slot; those of other slots stay for their turn.
    fn take_ended(&self, slot: Slot) -> Result<Vec<sexton_thread_reading>, ProbeError> {
        let Presence::Loaded(loaded) = &self.presence else { return Ok(Vec::new()) };
        loaded
            .ended_ring
            .consume()
            .map_err(|source| ProbeError::Access { what: "the ring of ended threads", source })?;
        let mut queue = loaded.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // A slot may have had another process a moment ago.
        queue.retain(|reading| {
            self.watched.get(&reading.slot).is_some_and(|watched| watched.pid == reading.process_id)
        });
        let (ours, others) = queue.drain(..).partition(|reading| reading.slot == slot);
        *queue = others;
        Ok(ours)
    }
}

impl Programs {
    fn load(loader: Loader) -> Result<Programs, ProbeError> {
        let object = loader.load(BpfObject::Sentinel, None, &|_| true)?;
        let ended = EndedQueue::default();
        let queue = Arc::clone(&ended);
        let take = move |bytes: &[u8]| {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.extend(sexton_thread_reading::from_bytes(bytes));
        };
        Ok(Programs {
            recipes: Map::of(&*object, "sexton_watched")?,
            processes: Map::of(&*object, "sexton_processes")?,
            passes: Map::of(&*object, "sexton_passes")?,
            _thread_end: object.attach_tracepoint("sexton_thread_end")?,
            ended_ring: object.ring("sexton_ended", Box::new(take))?,
            ended,
            object,
        })
    }
}

impl TotalsReader {
    /// One pass over the threads of the slot's process, and then over their memory.
    pub fn read(&self) -> Result<Totals, ProbeError> {
        let Some(Source { iterator, passes, pid, recipe }) = &self.source else {
            return Ok(Totals { at: Instant::now(), threads: None });
        };
        let reader = rustix::thread::gettid().as_raw_pid().cast_unsigned();
        passes.write(reader, &self.slot)?;
        let bytes = iterator.pass(PASS_BYTES_MAX);
        // One that cannot be removed is written over by the thread's next pass.
        passes.remove(&reader);
        let bytes = bytes.map_err(|source| ProbeError::Access { what: "the sentinel's iterator", source })?;
        let mut threads: Vec<sexton_thread_reading> = bytes
            .chunks_exact(size_of::<sexton_thread_reading>())
            .filter_map(sexton_thread_reading::from_bytes)
            .collect();
        threads.iter_mut().for_each(|reading| read_counters(*pid, recipe, reading));
        Ok(Totals { at: Instant::now(), threads: Some(threads) })
    }
}

impl SentinelReading {
    /// A reading that tells of these threads, and nothing else.
    pub fn of_threads(threads: impl IntoIterator<Item = (ThreadKey, Work)>) -> SentinelReading {
        let by_thread = threads.into_iter().collect();
        SentinelReading { totals_by: TotalsBy::Sentinel, by_thread, ..SentinelReading::absent() }
    }

    /// What is read where there is no sentinel.
    fn absent() -> SentinelReading {
        SentinelReading {
            at: Instant::now(),
            totals_by: TotalsBy::Windows,
            total: Counters::default(),
            resets: 0,
            standing: Counters::default(),
            threads: 0,
            threads_with_counters: 0,
            threads_ended: 0,
            threads_ended_unread: 0,
            perf_level: None,
            levels: Vec::new(),
            by_thread: HashMap::new(),
        }
    }
}

fn thread_level(thread: &sexton_thread_reading) -> ThreadLevel {
    ThreadLevel {
        thread_id: thread.thread_id,
        start_boot_ns: thread.start_boot_ns,
        level: u8::try_from(thread.perf_level).unwrap_or(u8::MAX),
        address: thread.perf_level_address,
    }
}

fn reading(at: Instant, pass: &[sexton_thread_reading], account: &Account) -> SentinelReading {
    let with_counters = || pass.iter().filter(|thread| thread.flags & SEXTON_READING_HAS_COUNTERS != 0);
    let with_level = with_counters().filter(|thread| thread.flags & SEXTON_READING_HAS_PERF_LEVEL != 0);
    let levels: Vec<ThreadLevel> = with_level.map(thread_level).collect();
    SentinelReading {
        at,
        totals_by: TotalsBy::Sentinel,
        total: account.total(),
        resets: account.resets(),
        standing: account.standing(),
        threads: pass.len() as u32,
        threads_with_counters: with_counters().count() as u32,
        threads_ended: account.threads_ended(),
        threads_ended_unread: account.threads_ended_unread(),
        perf_level: levels.iter().map(|thread| thread.level).min(),
        levels,
        by_thread: with_counters()
            .map(|thread| {
                let work = Work { processor_ns: thread.processor_ns, counters: thread.counters.into() };
                ((thread.thread_id, thread.start_boot_ns), work)
            })
            .collect(),
    }
}
