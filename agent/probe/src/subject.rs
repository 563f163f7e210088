//! What is probed to learn what probes cost: functions of our own, called by a thread of our own.
//!
//! They do next to nothing, but they are given what RocksDB's are given (an iterator, a key, a column
//! family's handle, counters to read), so that the programs go their whole way. Nobody else calls them: while
//! they are probed, nothing else is slower for it.

use rustix::time::{ClockId, clock_gettime};
use std::arch::naked_asm;
use std::hint::black_box;
use std::os::unix::thread::JoinHandleExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Iterators that are worked in turn. A host's iterators come and go, and their places in the maps are seldom
/// those just used: with a single one every access would find its line in the first cache.
pub const ITERATORS: usize = 256;

/// Words of the imitated objects: as many of an iterator as are searched for its column family.
const ITERATOR_WORDS: usize = 96;
/// Word of the iterator that holds its column family, somewhere in the middle as in a real one.
const COLUMN_FAMILY_WORD: usize = 12;
/// Word of the wrapping iterator that holds the iterator.
const WRAPPED_WORD: usize = 1;
const COUNTER_WORDS: usize = 64;
/// Word of the counters of what was skipped, some cache lines behind those of blocks.
const SKIP_COUNTERS_WORD: usize = 32;
/// Bytes of a key, a usual length.
const KEY_BYTES: usize = 32;
/// Words read between two calls, each in a cache line of its own: twice the first-level data cache. A host
/// does its own work between two firings, so that the kernel finds its lines gone, and then the host finds
/// its own gone. Called back to back the functions would tell two thirds of what a probe costs a real seek.
const OWN_WORK_LINES: usize = 1024;
/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Lines from one that is read to the next: a stride that no prefetcher follows, and prime to their number.
const OWN_WORK_STRIDE: usize = 389;

/// Which function positions the iterators of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positioning {
    /// One that begins with an instruction that the kernel emulates.
    Emulated,
    /// One whose first instruction it has to single-step.
    SingleStepped,
}

/// Processor time of one call in nanoseconds, by function: the mean of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    pub new_iterator_ns: f64,
    pub seek_ns: f64,
    pub iterator_end_ns: f64,
}

/// Where the functions begin, in our memory.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    pub new_iterator: u64,
    pub seek: u64,
    pub stepped_seek: u64,
    pub iterator_end: u64,
}

/// The thread that calls, waiting to be told so. It ends when this is dropped.
pub struct Subject {
    pub thread_pointer: u64,
    pub counters: u64,
    rounds: Option<SyncSender<(Positioning, usize)>>,
    timings: Receiver<Timing>,
    thread: Option<JoinHandle<()>>,
}

impl Subject {
    /// Offset of the iterator in the object that wraps it.
    pub const DB_ITER_OFFSET: u32 = (WRAPPED_WORD * 8) as u32;

    /// Offset of two counters that lie apart from the first ones, as in any PerfContext.
    pub const SKIP_COUNTERS_OFFSET: u32 = (SKIP_COUNTERS_WORD * 8) as u32;

    /// Starts the thread; `None` where there can be none.
    pub fn start() -> Option<Subject> {
        let counters = vec![0u64; COUNTER_WORDS].into_boxed_slice();
        let address = counters.as_ptr().addr() as u64;
        let (rounds, wanted) = sync_channel(0);
        let (results, timings) = sync_channel(0);
        let thread = std::thread::Builder::new().name("probe-prices".into()).spawn(move || {
            let objects = Objects::new();
            for (positioning, calls) in wanted {
                if results.send(objects.round(positioning, calls)).is_err() {
                    break;
                }
            }
            drop(counters);
        });
        let thread = thread.ok()?;
        // With glibc and musl on x86-64 a thread's handle is its thread pointer.
        let thread_pointer = thread.as_pthread_t();
        Some(Subject {
            thread_pointer,
            counters: address,
            rounds: Some(rounds),
            timings,
            thread: Some(thread),
        })
    }

    /// Has an iterator created, positioned and ended so many times.
    pub fn round(&self, positioning: Positioning, calls: usize) -> Option<Timing> {
        self.rounds.as_ref()?.send((positioning, calls)).ok()?;
        self.timings.recv().ok()
    }

    pub fn functions(&self) -> Functions {
        let address = |function: *const ()| function.addr() as u64;
        Functions {
            new_iterator: address(new_iterator as *const ()),
            seek: address(seek as *const ()),
            stepped_seek: address(stepped_seek as *const ()),
            iterator_end: address(iterator_end as *const ()),
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.rounds = None;
        if let Some(thread) = self.thread.take() {
            // It cannot panic; and if it did, there would be nothing to clean up.
            let _ = thread.join();
        }
    }
}

/// The imitated objects: words that hold each other's addresses.
struct Objects {
    iterators: Vec<[usize; ITERATOR_WORDS]>,
    wrapping: Vec<[usize; 2]>,
    handle: Box<[usize; 2]>,
    slice: [usize; 2],
    _key: Box<[u8; KEY_BYTES]>,
    _column_family: Box<[usize; 4]>,
    own_work: Vec<[usize; LINE_WORDS]>,
}

impl Objects {
    fn new() -> Objects {
        let column_family = Box::new([0; 4]);
        let key = Box::new([b'k'; KEY_BYTES]);
        let mut iterator = [0; ITERATOR_WORDS];
        if let Some(word) = iterator.get_mut(COLUMN_FAMILY_WORD) {
            *word = column_family.as_ptr().addr();
        }
        let iterators = vec![iterator; ITERATORS];
        Objects {
            wrapping: iterators.iter().map(|iterator| [0, iterator.as_ptr().addr()]).collect(),
            iterators,
            handle: Box::new([0, column_family.as_ptr().addr()]),
            slice: [key.as_ptr().addr(), KEY_BYTES],
            _key: key,
            _column_family: column_family,
            own_work: vec![[1; LINE_WORDS]; OWN_WORK_LINES],
        }
    }

    /// What a host does between two calls, as far as its caches are concerned.
    fn work(&self) -> usize {
        let places = (0..OWN_WORK_LINES).map(|step| step * OWN_WORK_STRIDE % OWN_WORK_LINES);
        places.filter_map(|place| self.own_work.get(place)?.first()).sum()
    }

    /// Iterators are created, positioned and ended, as a host does it, with work of its own after each. What
    /// that and reading the clock take is in every time alike, with probes and without.
    fn round(&self, positioning: Positioning, calls: usize) -> Timing {
        let position: extern "C" fn(usize, usize) -> usize = match positioning {
            Positioning::Emulated => seek,
            Positioning::SingleStepped => stepped_seek,
        };
        // Called through pointers that the compiler knows nothing of: with the arguments of the C convention.
        let (create, position, end) = (
            black_box(new_iterator as extern "C" fn(usize, usize, usize, usize) -> usize),
            black_box(position),
            black_box(iterator_end as extern "C" fn(usize) -> usize),
        );
        let (slice, handle) = (self.slice.as_ptr().addr(), self.handle.as_ptr().addr());
        let mut times = [0; 3];
        for (wrapping, iterator) in self.wrapping.iter().zip(&self.iterators).cycle().take(calls) {
            let (wrapping, iterator) = (wrapping.as_ptr().addr(), iterator.as_ptr().addr());
            let begin = processor_ns();
            black_box(create(handle, 0, handle, wrapping));
            black_box(self.work());
            let created = processor_ns();
            black_box(position(iterator, slice));
            black_box(self.work());
            let positioned = processor_ns();
            black_box(end(wrapping));
            black_box(self.work());
            let spans = [created - begin, positioned - created, processor_ns() - positioned];
            times.iter_mut().zip(spans).for_each(|(time, span)| *time += span);
        }
        let [new_iterator, seek, iterator_end] = times.map(|time| time as f64 / calls.max(1) as f64);
        Timing { new_iterator_ns: new_iterator, seek_ns: seek, iterator_end_ns: iterator_end }
    }
}

/// Processor time of this thread. Time in which it waits for a processor is nobody's price.
fn processor_ns() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Stands for `DBImpl::NewIterator(this, options, handle)`; gives the last argument.
///
/// Written in assembly, as all of them: what a probe costs hangs on the first instruction, and that must be
/// the same however this is compiled.
// SAFETY: keeps to the C calling convention: the one register that it must keep, it saves and restores.
#[unsafe(naked)]
extern "C" fn new_iterator(_database: usize, _options: usize, _handle: usize, _wrapping: usize) -> usize {
    naked_asm!("push rbx", "mov rax, rcx", "pop rbx", "ret")
}

/// Stands for `DBIter::Seek(this, key)`.
// SAFETY: as above.
#[unsafe(naked)]
extern "C" fn seek(_iterator: usize, _key: usize) -> usize {
    naked_asm!("push rbx", "lea rax, [rdi + rsi]", "pop rbx", "ret")
}

/// Stands for a `DBIter::Seek` that begins with no `push`.
// SAFETY: it writes no register but that of the result.
#[unsafe(naked)]
extern "C" fn stepped_seek(_iterator: usize, _key: usize) -> usize {
    naked_asm!("lea rax, [rdi + rsi]", "ret")
}

/// Stands for the deleting destructor of `ArenaWrappedDBIter`.
// SAFETY: as above.
#[unsafe(naked)]
extern "C" fn iterator_end(_wrapping: usize) -> usize {
    naked_asm!("push rbx", "mov rax, rdi", "pop rbx", "ret")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use sexton_inspect::facts::SiteKind;
    use sexton_inspect::{memory, prologue};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    #[test]
    fn the_functions_begin_as_they_are_said_to() {
        let functions = Subject::start().unwrap().functions();
        let kind = |address| {
            let code = memory::read(std::process::id(), address, prologue::PROLOGUE_BYTES).unwrap();
            prologue::choose(&code).unwrap().kind
        };
        let emulated = [functions.new_iterator, functions.seek, functions.iterator_end];
        assert_eq!(emulated.map(kind), [SiteKind::Emulated; 3]);
        assert_eq!(kind(functions.stepped_seek), SiteKind::SingleStepped);
    }

    #[test]
    fn every_call_takes_some_time_and_not_much() {
        let subject = Subject::start().unwrap();
        for positioning in [Positioning::Emulated, Positioning::SingleStepped] {
            let timing = subject.round(positioning, 100).unwrap();
            assert!(timing.seek_ns > 0.0 && timing.new_iterator_ns > 0.0 && timing.iterator_end_ns > 0.0);
        }
        assert_eq!(subject.round(Positioning::Emulated, 0).unwrap(), Timing::default());
    }

    /// Three others want the only processor that the subject may run on: it waits for three quarters of the
    /// time.
    #[test]
    fn waiting_for_a_processor_is_no_part_of_a_call() {
        const CALLS: usize = 20_000;
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor)).unwrap();
        let mut only = CpuSet::new();
        only.set(first);
        // Threads begin with the affinity of the one that starts them.
        sched_setaffinity(None, &only).unwrap();
        let is_over = AtomicBool::new(false);
        let (elapsed, timing) = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let (subject, began) = (Subject::start().unwrap(), Instant::now());
            let timing = subject.round(Positioning::Emulated, CALLS);
            is_over.store(true, Ordering::Relaxed);
            (began.elapsed(), timing.unwrap())
        });
        let said_ns = (timing.new_iterator_ns + timing.seek_ns + timing.iterator_end_ns) * CALLS as f64;
        assert!(said_ns > 0.0);
        assert!(2.0 * said_ns < elapsed.as_nanos() as f64, "{said_ns} ns of {elapsed:?}");
    }
}
