//! The keeper: a process that writes the perf level of threads and puts it back when nobody wants it any
//! more.
//!
//! It must outlive the agent by the moment that takes, so signals that end a whole group or service pass it
//! by; it ends with its standard input. It keeps the one capability that reaches into the target.
//!
//! Its memory is that of the program that the process ran when the keeper began: after an `execve` nothing is
//! written any more. A thread is written to only right after it was seen alive under the same start time,
//! with the level that is noted as its former one. Between the two a thread could end; its block stays
//! allocated until its stack is used for another thread, whose own level is RocksDB's default, the value
//! that is written.

use super::request::Request;
use super::{LEVEL_COUNTS, LEVEL_OFF};
use rustix::thread::CapabilitySet;
use sexton_inspect::facts::ProcessId;
use sexton_inspect::memory::MemoryError;
use sexton_inspect::process::is_alive;
use sexton_inspect::program_memory::ProgramMemory;
use std::collections::HashMap;
use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// Hidden subcommand of the agent's binary that runs [`main`].
pub const CHILD_SUBCOMMAND: &str = "internal-keep-perf-level";

/// How long it is looked at again what was put back. An operation that saved the raised level when it began
/// and restores it when it ends brings it back: seconds cover the longest lists there are.
const SETTLE_TIME: Duration = Duration::from_secs(3);

/// How often it is looked at meanwhile.
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);

/// Threads that are remembered; those that have ended make room. Beyond it none is raised.
const THREADS_MAX: usize = 65_536;

/// Arguments of the hidden subcommand.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ChildArguments {
    /// Process whose threads are written to.
    pid: u32,
    /// When it started, clock ticks since boot.
    start_time_ticks: u64,
    /// Where the process has the level that its threads begin with.
    initial_level: u64,
}

/// Entry point of the hidden subcommand: takes requests until the input ends, then puts everything back.
pub fn main(arguments: ChildArguments) -> ExitCode {
    if let Err(error) = confine() {
        warn!(%error, "the keeper of the perf level cannot confine itself: nothing is raised");
        return ExitCode::FAILURE;
    }
    let process = ProcessId { pid: arguments.pid, start_time_ticks: arguments.start_time_ticks };
    let memory = match ProgramMemory::open(process) {
        Ok(memory) => memory,
        Err(error) => {
            warn!(%error, "the keeper of the perf level cannot reach the process: nothing is raised");
            return ExitCode::FAILURE;
        }
    };
    if !begins_at_the_default(&memory, arguments.initial_level) {
        warn!("what is taken for the perf level does not begin as RocksDB's does: nothing is raised");
        return ExitCode::FAILURE;
    }
    let mut kept = Kept { process, memory, former: HashMap::new() };
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if let Some(request) = Request::parse(&line) {
            kept.raise(&request);
        }
    }
    kept.put_back(SETTLE_TIME);
    ExitCode::SUCCESS
}

/// Whether threads begin with RocksDB's own default, as it is in every version: else the level is another
/// variable.
pub fn begins_at_the_default(memory: &ProgramMemory, initial_level: u64) -> bool {
    memory.read_u8(initial_level).is_ok_and(|level| level == LEVEL_COUNTS)
}

/// Signals pass by, rights go.
fn confine() -> std::io::Result<()> {
    // A group of its own: Ctrl-C in a terminal is the agent's business.
    rustix::process::setpgid(None, None)?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: SIG_IGN is a valid disposition, and no handler of ours stands on these signals.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    sexton_sandbox::give_up_privileges(CapabilitySet::SYS_PTRACE)
}

/// A thread's byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Byte {
    thread_id: u32,
    start_ticks: u64,
    address: u64,
}

/// What is to be put back.
struct Kept {
    process: ProcessId,
    memory: ProgramMemory,
    former: HashMap<Byte, u8>,
}

impl Kept {
    fn raise(&mut self, request: &Request) {
        let Request { thread_id, start_ticks, address } = *request;
        let byte = Byte { thread_id, start_ticks, address };
        if self.former.len() >= THREADS_MAX {
            let process = self.process;
            self.former.retain(|byte, _| lives(&process, byte));
        }
        if self.former.len() >= THREADS_MAX || !lives(&self.process, &byte) {
            return;
        }
        match self.swap_unless(&byte, |level| level != LEVEL_OFF, LEVEL_COUNTS) {
            // Noted by its last value: what the program itself has set meanwhile is what it wants.
            Ok(Some(former)) => {
                debug!(thread_id, former, "perf level raised");
            }
            Ok(None) => {}
            Err(error) => warn!(thread_id, %error, "the perf level cannot be raised"),
        }
    }

    /// Writes `level` unless what is there is to stay; gives what was there before. It is noted first:
    /// whatever comes after the writing, it is known what to put back.
    fn swap_unless(
        &mut self,
        byte: &Byte,
        stays: fn(u8) -> bool,
        level: u8,
    ) -> Result<Option<u8>, MemoryError> {
        let former = self.memory.read_u8(byte.address)?;
        if stays(former) {
            return Ok(None);
        }
        self.former.insert(*byte, former);
        self.memory.write_u8(byte.address, level)?;
        Ok(Some(former))
    }

    /// Gives each thread that lives its own former level, unless the program has set another one meanwhile;
    /// and again for some time, where an operation under way restores the raised one.
    fn put_back(&self, settle_time: Duration) {
        let until = Instant::now() + settle_time;
        while !self.former.is_empty() && is_alive(&self.process) {
            self.put_back_once();
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(SETTLE_INTERVAL);
        }
    }

    fn put_back_once(&self) {
        for (byte, former) in &self.former {
            if !lives(&self.process, byte) {
                continue;
            }
            let is_ours = self.memory.read_u8(byte.address).is_ok_and(|level| level == LEVEL_COUNTS);
            if is_ours && let Err(error) = self.memory.write_u8(byte.address, *former) {
                warn!(thread_id = byte.thread_id, %error, "the perf level cannot be put back");
            }
        }
    }
}

/// Whether the thread still is the one that was meant.
fn lives(process: &ProcessId, byte: &Byte) -> bool {
    let (Ok(pid), Ok(thread)) = (i32::try_from(process.pid), i32::try_from(byte.thread_id)) else {
        return false;
    };
    let task = procfs::process::Process::new(pid).and_then(|process| process.task_from_tid(thread));
    let stat = task.and_then(|task| task.stat());
    stat.is_ok_and(|stat| stat.starttime == byte.start_ticks && !matches!(stat.state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    fn ourselves() -> (Kept, Request, &'static AtomicU8) {
        let process = sexton_inspect::process::process_id(std::process::id()).unwrap();
        let byte: &'static AtomicU8 = Box::leak(Box::new(AtomicU8::new(1)));
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let task = procfs::process::Process::myself().unwrap().task_from_tid(thread).unwrap();
        let request = Request {
            thread_id: u32::try_from(thread).unwrap(),
            start_ticks: task.stat().unwrap().starttime,
            address: byte.as_ptr() as u64,
        };
        let memory = ProgramMemory::open(process).unwrap();
        (Kept { process, memory, former: HashMap::new() }, request, byte)
    }

    #[test]
    fn a_level_is_raised_and_put_back() {
        let (mut kept, request, byte) = ourselves();
        kept.raise(&request);
        assert_eq!(byte.load(Ordering::SeqCst), LEVEL_COUNTS);
        kept.put_back(Duration::ZERO);
        assert_eq!(byte.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_the_program_sets_itself_stays() {
        let (mut kept, request, byte) = ourselves();
        kept.raise(&request);
        byte.store(3, Ordering::SeqCst);
        kept.raise(&request);
        kept.put_back(Duration::ZERO);
        assert_eq!(byte.load(Ordering::SeqCst), 3);
        byte.store(0, Ordering::SeqCst);
        kept.raise(&request);
        kept.put_back(Duration::ZERO);
        assert_eq!(byte.load(Ordering::SeqCst), 0);
    }

    /// Seen with db_bench: one thread in three runs of eight kept the raised level.
    #[test]
    fn a_level_that_an_operation_had_saved_is_put_back_when_it_comes_back() {
        let (mut kept, request, byte) = ourselves();
        kept.raise(&request);
        let operation = std::thread::spawn(move || {
            let saved = LEVEL_COUNTS;
            while byte.load(Ordering::SeqCst) == saved {
                std::thread::yield_now();
            }
            byte.store(saved, Ordering::SeqCst);
        });
        kept.put_back(Duration::from_millis(500));
        operation.join().unwrap();
        assert_eq!(byte.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn another_thread_of_the_same_id_is_left_alone() {
        let (mut kept, request, byte) = ourselves();
        kept.raise(&Request { start_ticks: request.start_ticks + 1, ..request });
        kept.raise(&Request { thread_id: u32::MAX, ..request });
        assert_eq!(byte.load(Ordering::SeqCst), 1);
        assert!(kept.former.is_empty());
    }

    #[test]
    fn what_is_no_level_is_never_written() {
        let (mut kept, request, byte) = ourselves();
        for other in [0, 7, 0x7f, 0xff] {
            byte.store(other, Ordering::SeqCst);
            kept.raise(&request);
            assert_eq!(byte.load(Ordering::SeqCst), other);
        }
        assert!(kept.former.is_empty());
    }

    #[test]
    fn a_level_that_counts_already_is_not_touched() {
        let (mut kept, request, byte) = ourselves();
        byte.store(5, Ordering::SeqCst);
        kept.raise(&request);
        assert!(kept.former.is_empty());
        assert_eq!(byte.load(Ordering::SeqCst), 5);
    }
}
