//! The system calls that a process in a sandbox can still make, by seccomp: all others fail as if forbidden.
//!
//! What a library does where a call is forbidden is its own affair, and mostly another way to the same end; a
//! process that only parses needs few. `clone3` fails as on a kernel without it, so that the C library takes
//! `clone`, whose flags can be looked at.

use libc::{c_long, sock_filter, sock_fprog};
use std::io;

/// What a process in a sandbox still does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads files below a directory that was opened before, with threads of its own, and writes to what is
    /// open: no file for writing, no process, no socket, no signal to another process, no code made or
    /// loaded.
    ReadsFiles,
    /// Reads files that were opened before, on one thread, and writes to what is open: no file is opened or
    /// looked up by a name.
    ReadsOpened,
    /// Loads code and runs it, on one thread, and writes to what is open.
    RunsCode,
    /// Accepts connections on sockets that listen already, and speaks on them and on pairs of sockets, on one
    /// thread: no file is opened, no address bound or connected to.
    Serves,
}

/// When a call is let through.
#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    /// The argument of this index has none of these bits.
    Lacks(u32, u32),
    /// It has all of these bits.
    Has(u32, u32),
    /// Its lower half is this.
    Is(u32, u32),
}

use When::{Always, Has, Is, Lacks};

/// Whatever a process does that reads what is open, computes and ends.
const COMMON: &[(c_long, When)] = &[
    (libc::SYS_read, Always),
    (libc::SYS_readv, Always),
    (libc::SYS_pread64, Always),
    (libc::SYS_preadv, Always),
    (libc::SYS_write, Always),
    (libc::SYS_writev, Always),
    (libc::SYS_close, Always),
    (libc::SYS_lseek, Always),
    (libc::SYS_fstat, Always),
    (libc::SYS_fstatfs, Always),
    (libc::SYS_fcntl, Always),
    (libc::SYS_dup, Always),
    (libc::SYS_poll, Always),
    (libc::SYS_munmap, Always),
    (libc::SYS_mremap, Always),
    (libc::SYS_madvise, Always),
    (libc::SYS_brk, Always),
    (libc::SYS_futex, Always),
    (libc::SYS_set_robust_list, Always),
    (libc::SYS_rseq, Always),
    (libc::SYS_set_tid_address, Always),
    (libc::SYS_rt_sigaction, Always),
    (libc::SYS_rt_sigprocmask, Always),
    (libc::SYS_rt_sigreturn, Always),
    (libc::SYS_sigaltstack, Always),
    (libc::SYS_restart_syscall, Always),
    (libc::SYS_sched_yield, Always),
    (libc::SYS_sched_getaffinity, Always),
    (libc::SYS_getcpu, Always),
    (libc::SYS_getpid, Always),
    (libc::SYS_gettid, Always),
    (libc::SYS_getuid, Always),
    (libc::SYS_geteuid, Always),
    (libc::SYS_getgid, Always),
    (libc::SYS_getegid, Always),
    (libc::SYS_getrandom, Always),
    (libc::SYS_getrusage, Always),
    (libc::SYS_sysinfo, Always),
    (libc::SYS_uname, Always),
    (libc::SYS_clock_gettime, Always),
    (libc::SYS_clock_getres, Always),
    (libc::SYS_gettimeofday, Always),
    (libc::SYS_time, Always),
    (libc::SYS_nanosleep, Always),
    (libc::SYS_clock_nanosleep, Always),
    (libc::SYS_exit, Always),
    (libc::SYS_exit_group, Always),
    // The name of a thread.
    (libc::SYS_prctl, Is(0, libc::PR_SET_NAME as u32)),
    // Its own limits are read; without a new value nothing is set.
    (libc::SYS_getrlimit, Always),
    (libc::SYS_prlimit64, Is(2, 0)),
];

/// Opening files for reading, and looking at them.
const FILES: &[(c_long, When)] = &[
    (libc::SYS_open, Lacks(1, WRITING)),
    (libc::SYS_openat, Lacks(2, WRITING)),
    (libc::SYS_stat, Always),
    (libc::SYS_lstat, Always),
    (libc::SYS_newfstatat, Always),
    (libc::SYS_statx, Always),
    (libc::SYS_statfs, Always),
    (libc::SYS_access, Always),
    (libc::SYS_faccessat, Always),
    (libc::SYS_readlink, Always),
    (libc::SYS_readlinkat, Always),
    (libc::SYS_getdents64, Always),
    (libc::SYS_getcwd, Always),
    (libc::SYS_fadvise64, Always),
    (libc::SYS_readahead, Always),
];

/// Memory that is not executed.
const DATA: &[(c_long, When)] = &[
    (libc::SYS_mmap, Lacks(2, libc::PROT_EXEC as u32)),
    (libc::SYS_mprotect, Lacks(2, libc::PROT_EXEC as u32)),
];

/// Threads.
const READS_FILES: &[(c_long, When)] = &[(libc::SYS_clone, Has(0, libc::CLONE_THREAD as u32))];

/// Memory that is executed.
const RUNS_CODE: &[(c_long, When)] = &[
    (libc::SYS_mmap, Always),
    (libc::SYS_mprotect, Always),
    // Set by constructors of libraries.
    (libc::SYS_arch_prctl, Always),
];

/// Sockets that are there, or come in pairs, and waiting for them. A runtime wakes itself by an event.
const SERVES: &[(c_long, When)] = &[
    (libc::SYS_accept4, Always),
    (libc::SYS_recvfrom, Always),
    (libc::SYS_recvmsg, Always),
    (libc::SYS_sendto, Always),
    (libc::SYS_sendmsg, Always),
    (libc::SYS_shutdown, Always),
    (libc::SYS_getsockname, Always),
    (libc::SYS_getpeername, Always),
    (libc::SYS_getsockopt, Always),
    (libc::SYS_socketpair, Is(0, libc::AF_UNIX as u32)),
    (libc::SYS_epoll_create1, Always),
    (libc::SYS_epoll_ctl, Always),
    (libc::SYS_epoll_wait, Always),
    (libc::SYS_epoll_pwait, Always),
    (libc::SYS_eventfd2, Always),
];

/// Flags of `open` that change something.
const WRITING: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u32;

/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xC000_003E;
/// Calls of the x32 interface begin here.
const X32: u32 = 0x4000_0000;

/// Offsets in `seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const FORBID: u32 = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const THERE_ALREADY: u32 = libc::SECCOMP_RET_ERRNO | libc::EEXIST as u32;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

impl Work {
    /// Lets nothing else through, for good, in this thread and those that it makes.
    pub(super) fn allow_nothing_else(self) -> io::Result<()> {
        let filter = self.filter();
        let program = sock_fprog {
            len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies the program, which is `len` instructions that `filter` owns, and changes
        // nothing of it.
        let done = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER as libc::c_ulong, &raw const program)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn filter(self) -> Vec<sock_filter> {
        let own = match self {
            Work::ReadsFiles => [FILES, DATA, READS_FILES],
            Work::ReadsOpened => [DATA, &[], &[]],
            Work::RunsCode => [FILES, RUNS_CODE, &[]],
            Work::Serves => [DATA, SERVES, &[]],
        };
        let mut filter = vec![
            statement(LOAD, ARCHITECTURE_AT),
            jump(IF_EQUAL, ARCHITECTURE, 1, 0),
            statement(RETURN, KILL),
            statement(LOAD, NUMBER_AT),
            jump(IF_AT_LEAST, X32, 0, 1),
            statement(RETURN, KILL),
        ];
        for (number, when) in COMMON.iter().chain(own.into_iter().flatten()) {
            let rule = rule(*when);
            filter.push(jump(IF_EQUAL, *number as u32, 0, rule.len() as u8));
            filter.extend(rule);
        }
        let like_an_old_kernel = [libc::SYS_clone3, libc::SYS_openat2, libc::SYS_faccessat2];
        for number in like_an_old_kernel {
            filter.extend([jump(IF_EQUAL, number as u32, 0, 1), statement(RETURN, UNKNOWN)]);
        }
        // A library that makes sure of a directory goes on where it is there already.
        for number in [libc::SYS_mkdir, libc::SYS_mkdirat] {
            filter.extend([jump(IF_EQUAL, number as u32, 0, 1), statement(RETURN, THERE_ALREADY)]);
        }
        // A signal to itself is how a process aborts.
        let own_pid = std::process::id();
        filter.extend([
            jump(IF_EQUAL, libc::SYS_tgkill as u32, 0, 3),
            statement(LOAD, argument(0)),
            jump(IF_EQUAL, own_pid, 0, 1),
            statement(RETURN, ALLOW),
            statement(RETURN, FORBID),
        ]);
        filter
    }
}

/// What is asked of a call whose number is known, until it is let through or forbidden.
fn rule(when: When) -> Vec<sock_filter> {
    let decide = |code, value, (is_so, is_not): (u32, u32)| {
        vec![jump(code, value, 0, 1), statement(RETURN, is_so), statement(RETURN, is_not)]
    };
    let masked = |index, mask, value, returns| {
        let ask = decide(IF_EQUAL, value, returns);
        [vec![statement(LOAD, argument(index)), statement(AND, mask)], ask].concat()
    };
    match when {
        Always => vec![statement(RETURN, ALLOW)],
        Lacks(index, bits) => masked(index, bits, 0, (ALLOW, FORBID)),
        Has(index, bits) => masked(index, bits, bits, (ALLOW, FORBID)),
        Is(index, value) => masked(index, u32::MAX, value, (ALLOW, FORBID)),
    }
}

/// Where the lower half of an argument is.
const fn argument(index: u32) -> u32 {
    ARGUMENTS_AT + 8 * index
}

const fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}
