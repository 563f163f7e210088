//! Threads of the hook: small, silent, and out of the way of the host's signals.

use crate::panics;
use std::mem::MaybeUninit;
use std::panic::AssertUnwindSafe;
use std::thread::Builder;

/// Stack of the listener, which parses JSON of bounded depth and calls short functions of RocksDB.
pub const LISTENER_STACK_BYTES: usize = 512 * 1024;

/// Stack of the compaction's thread: as much as RocksDB's own compaction threads have, for files are
/// compacted in it. RocksDB may call a comparator written in Java, too, and the JVM wants its default of 1
/// MiB for that. Only touched pages cost memory.
pub const COMPACTION_STACK_BYTES: usize = 8 * 1024 * 1024;

/// Signals a thread raises by its own instructions. They stay deliverable: the kernel kills a process
/// whose thread faults with them blocked, and a JVM handles some of them (a comparator in Java may poll
/// a safepoint in our thread).
const SYNCHRONOUS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

/// Starts a detached thread with every signal blocked except [`SYNCHRONOUS`]; a panic in `run` ends
/// the thread and nothing else. The calling thread's mask is restored before this returns.
pub fn spawn(name: &str, stack_bytes: usize, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are valid for writing; `sigfillset` initialises `blocked` before it is changed
    // and read, and `pthread_sigmask` initialises `before`.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in SYNCHRONOUS {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        let code = libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr());
        if code != 0 {
            return Err(std::io::Error::from_raw_os_error(code));
        }
    }
    let spawned = Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(move || {
        if panics::contain(AssertUnwindSafe(run)).is_err() {
            crate::log::line("a thread of the hook panicked and ended");
        }
    });
    // SAFETY: `before` was initialised by the first, successful call; a null old set is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    spawned.map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::sync::mpsc;

    fn blocked_signals() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn signals_are_blocked_in_the_thread_and_not_in_the_caller() {
        let before = blocked_signals();
        let (sender, receiver) = mpsc::channel();
        spawn("hook-test", LISTENER_STACK_BYTES, move || sender.send(blocked_signals()).unwrap()).unwrap();
        let inside = receiver.recv().unwrap();
        let bit = |signal: i32| 1u64 << (signal - 1);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGCHLD] {
            assert_ne!(inside & bit(signal), 0, "signal {signal}");
        }
        for signal in SYNCHRONOUS {
            assert_eq!(inside & bit(signal), 0, "signal {signal}");
        }
        assert_eq!(blocked_signals(), before);
    }
}
