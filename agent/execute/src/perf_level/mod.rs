//! The executor of the perf level: it is raised in a target's threads, and put back whatever happens to the
//! agent.
//!
//! RocksDB counts only in threads whose thread-local `rocksdb::perf_level` is at least `kEnableCount`, which
//! is its own default; some programs turn it off. Where the policy says `raise_perf_level: true`, that one
//! byte is written. The writing is done by a process of its own, the keeper ([`child`]): it notes the former
//! value before it writes, and when its standard input ends, because the agent stops watching or was killed,
//! it puts back what still is as it wrote it, and ends.
//!
//! The level is raised for as long as the target is watched, not only in windows: without counters the
//! sentinel would see no pain, and so no window would ever be opened for it.
//!
//! Invariant: nothing but this byte is ever written into a target.

pub mod child;
mod executor;
mod request;

pub use child::{CHILD_SUBCOMMAND, ChildArguments};
pub use executor::PerfLevelExecutor;

use request::Request;
use sexton_inspect::facts::{ProcessId, RocksDbModule, ThreadLevel};
use sexton_inspect::layout::check_invariants;
use sexton_tuner::evidence::Counters;
use std::collections::HashMap;
use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Perf level at which RocksDB counts and does not measure time (`kEnableCount`), its own default.
pub const LEVEL_COUNTS: u8 = 2;

/// `kDisable`: the only level that is raised. One that RocksDB does not have is not a level but another byte,
/// read at a wrong address.
pub const LEVEL_OFF: u8 = 1;

/// `kOutOfBounds` of the newest versions: every level is below. None is zero: `kUninitialized` cannot be set.
pub const LEVEL_OUT_OF_BOUNDS: u8 = 7;

/// How often one thread's level is raised. An operation under way may restore the level that it had saved,
/// some times in a row by chance; a program that turns it off again and again does so on purpose.
const ATTEMPTS_MAX: u32 = 10;

/// Threads that are kept account of: more than a process has; beyond it none is raised.
const THREADS_MAX: usize = 65_536;

/// How long a keeper whose target has gone may take to end. Where the target lives it stays some seconds to
/// look after what it has put back, and nobody waits for it.
const END_WAIT_MAX: Duration = Duration::from_millis(200);

/// How often it is asked whether it has ended.
const END_POLL: Duration = Duration::from_millis(5);

/// Why what was read of a target may be something else than RocksDB's, so that nothing may be written; `None`
/// where all of it makes sense.
pub fn doubt(module: &RocksDbModule, counters: &[Counters], levels: &[ThreadLevel]) -> Option<String> {
    if !module.sites.has_a_seek() {
        return Some("no function of DBIter was found beside the counters".into());
    }
    if module.initial_perf_level().is_none() {
        return Some("a thread's perf_level begins as zero, which RocksDB's does not".into());
    }
    doubtful_reading(counters, levels)
}

fn doubtful_reading(counters: &[Counters], levels: &[ThreadLevel]) -> Option<String> {
    if let Err(reason) = check_invariants(counters) {
        return Some(reason);
    }
    let is_level = |level: &ThreadLevel| (1..LEVEL_OUT_OF_BOUNDS).contains(&level.level);
    if let Some(other) = levels.iter().find(|level| !is_level(level)) {
        let ThreadLevel { level, thread_id, .. } = other;
        return Some(format!("perf_level is {level} in thread {thread_id}, which RocksDB never sets"));
    }
    // RocksDB's own threads keep it; a byte that is the same everywhere can be anything.
    let has_default = levels.iter().any(|level| level.level == LEVEL_COUNTS);
    (!has_default).then(|| "no thread has RocksDB's default level".into())
}

/// Why the perf level cannot be raised.
#[derive(Debug, Error)]
pub enum KeeperError {
    #[error("the keeper of the perf level cannot be started: {source}")]
    Start { source: io::Error },
    #[error("the keeper of the perf level does not answer: {source}")]
    Lost { source: io::Error },
}

impl KeeperError {
    /// What an operator can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            KeeperError::Start { .. } => {
                "check that the agent's executable can be run and that pids are left"
            }
            KeeperError::Lost { .. } => {
                "see the agent's log; threads that were raised stay at RocksDB's own default level"
            }
        }
    }
}

/// The agent's half: says which threads are to be raised. Dropping it has everything put back.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
    /// `None` only while being dropped.
    input: Option<ChildStdin>,
    /// How often each thread was asked for.
    asked: HashMap<(u32, u64), u32>,
}

impl Keeper {
    /// Starts the keeper of one process, whose threads begin with the level at `initial_level`.
    pub fn start(process: ProcessId, initial_level: u64) -> Result<Keeper, KeeperError> {
        let start = || {
            let mut command = Command::new("/proc/self/exe");
            command.arg(CHILD_SUBCOMMAND).args(
                [u64::from(process.pid), process.start_time_ticks, initial_level]
                    .map(|number| number.to_string()),
            );
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
            let input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            // A keeper that hangs must not hold up the agent.
            rustix::fs::fcntl_setfl(&input, rustix::fs::OFlags::NONBLOCK)?;
            Ok(Keeper { child, input: Some(input), asked: HashMap::new() })
        };
        start().map_err(|source| KeeperError::Start { source })
    }

    /// Has all of these threads raised that are too low and have not been asked for too often. Whether it
    /// worked shows in the next reading.
    pub fn raise(&mut self, levels: &[ThreadLevel]) -> Result<(), KeeperError> {
        self.forget_the_ended(levels);
        for level in levels.iter().filter(|level| level.level == LEVEL_OFF) {
            let key = (level.thread_id, level.start_boot_ns);
            let attempts = self.asked.get(&key).copied().unwrap_or_default();
            if attempts >= ATTEMPTS_MAX || attempts == 0 && self.asked.len() >= THREADS_MAX {
                continue;
            }
            match self.send(&Request::of(level)) {
                Ok(()) => self.asked.insert(key, attempts + 1),
                // The pipe is full: the rest is asked for with the next reading.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(source) => return Err(KeeperError::Lost { source }),
            };
        }
        Ok(())
    }

    /// Threads of these whose level counts because it was raised.
    pub fn raised(&self, levels: &[ThreadLevel]) -> u32 {
        let is_raised = |level: &&ThreadLevel| {
            level.level == LEVEL_COUNTS && self.asked.contains_key(&(level.thread_id, level.start_boot_ns))
        };
        u32::try_from(levels.iter().filter(is_raised).count()).unwrap_or(u32::MAX)
    }

    /// Threads of these that stay too low although they were asked for as often as they may be.
    pub fn refused(&self, levels: &[ThreadLevel]) -> u32 {
        let is_refused = |level: &&ThreadLevel| {
            let attempts = self.asked.get(&(level.thread_id, level.start_boot_ns)).copied();
            level.level < LEVEL_COUNTS && attempts.unwrap_or_default() >= ATTEMPTS_MAX
        };
        u32::try_from(levels.iter().filter(is_refused).count()).unwrap_or(u32::MAX)
    }

    fn forget_the_ended(&mut self, levels: &[ThreadLevel]) {
        let living: std::collections::HashSet<(u32, u64)> =
            levels.iter().map(|level| (level.thread_id, level.start_boot_ns)).collect();
        self.asked.retain(|thread, _| living.contains(thread));
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        // One write of less than PIPE_BUF: all of a line or nothing.
        input.write_all(request.line().as_bytes())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The end of its input is the keeper's sign to put everything back.
        drop(self.input.take());
        let deadline = Instant::now() + END_WAIT_MAX;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(END_POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(level: u8) -> ThreadLevel {
        ThreadLevel { thread_id: 7, start_boot_ns: 1, level, address: 4096 }
    }

    #[test]
    fn a_reading_that_does_not_make_sense_is_doubted() {
        let counted = Counters { tombstones_skipped: 5, ..Counters::default() };
        let pointer = Counters { keys_skipped: 0x7f00_0000_1000, ..Counters::default() };
        assert_eq!(doubtful_reading(&[counted], &[level(1), level(2), level(6)]), None);
        let of = |counters: &[Counters], levels: &[ThreadLevel]| {
            doubtful_reading(counters, levels).unwrap_or_default()
        };
        assert!(of(&[counted, pointer], &[level(1)]).contains("no thread can have counted"));
        // Zeros can be read anywhere.
        assert!(of(&[Counters::default()], &[level(1), level(0)]).contains("perf_level is 0 in thread 7"));
        assert!(of(&[counted], &[level(1), level(0xd8)]).contains("perf_level is 216"));
        assert!(of(&[counted], &[level(1), level(1)]).contains("no thread has"));
    }
}
