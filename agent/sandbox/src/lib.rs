//! What a process of ours gives up before it deals with what is not ours: the one place that does it.
//!
//! Several fences, because none is everywhere: capabilities, resource limits and the filter of system calls
//! always hold, Landlock where the kernel has it (5.13 and later, unless booted without), another user and
//! leaving the network where the process may. Who needs which is said by [`Sandbox`]: the child that reads a
//! database, the child that examines a file, the child that loads a library, the listener, the keeper of a
//! perf level. Commands of the policy only give up their privileges ([`give_up_privileges`]).

mod files;
pub mod rooted;
mod system_calls;

pub use files::{Files, landlock_version};
pub use system_calls::Work;

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use thiserror::Error;

/// User and group of a process that owns nothing.
const NOBODY: u32 = 65_534;

/// What a process gives up. It enters the sandbox before it starts a thread.
#[derive(Debug)]
pub struct Sandbox<'a> {
    /// What it may use; `None`: what it could before.
    pub limits: Option<Limits>,
    /// The capabilities that it keeps, where it has them.
    pub capabilities: CapabilitySet,
    /// The user that it becomes.
    pub user: User,
    /// The files that it can still reach; `None`: those of its user.
    pub files: Option<Files<'a>>,
    /// What it still does; `None`: any system call.
    pub work: Option<Work>,
    /// Whether it has what no other process of its user may read in its memory.
    pub has_secrets: bool,
}

/// Whose a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The one that it was.
    Same,
    /// One that owns nothing, where the process may change its user. Else what its user may do is up to the
    /// other fences.
    NobodyIfPossible,
    /// As root, one that owns nothing, or nothing at all is done; and out of the network. Another user than
    /// root stays what it is.
    Nobody,
}

/// What a process may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `None`: as much as the agent has left it.
    pub processor_time_seconds: Option<u64>,
    pub address_space_bytes: u64,
    pub open_files: u64,
    /// Whether it can start another process or thread, as nobody.
    pub has_children: bool,
}

/// A fence that could not be put up: the process must not go on.
#[derive(Debug, Error)]
#[error("{fence}: {message}")]
pub struct SandboxError {
    fence: &'static str,
    message: String,
}

fn at<E: Display>(fence: &'static str) -> impl FnOnce(E) -> SandboxError {
    move |error| SandboxError { fence, message: error.to_string() }
}

impl Default for Sandbox<'_> {
    /// Gives up all capabilities, and nothing else.
    fn default() -> Self {
        Sandbox {
            limits: None,
            capabilities: CapabilitySet::empty(),
            user: User::Same,
            files: None,
            work: None,
            has_secrets: false,
        }
    }
}

impl Sandbox<'_> {
    /// Puts up all fences around the calling process, for good.
    /// Errors: Of the first fence that every kernel has and that could not be put up.
    pub fn enter(self) -> Result<(), SandboxError> {
        let parent = rustix::process::getppid();
        // Under pressure it goes before the agent does. Nobody needs a right to be the first.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        if let Some(limits) = &self.limits {
            limits.impose().map_err(at("setrlimit"))?;
        }
        bound(self.capabilities);
        self.user.become_it().map_err(at("it is not possible to become nobody"))?;
        give_up_privileges(self.capabilities).map_err(at("its capabilities"))?;
        if self.user != User::Same {
            // Its own files below /proc/self else would be root's.
            rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
                .map_err(at("PR_SET_DUMPABLE"))?;
            // The kernel forgets it when the user changes; the parent may have ended before it was set again.
            end_with_parent()?;
            if rustix::process::getppid() != parent {
                return Err(at("its parent")("it has ended"));
            }
        }
        if self.has_secrets {
            rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
                .map_err(at("PR_SET_DUMPABLE"))?;
        }
        self.files.map_or(Ok(()), |files| files.allow_nothing_else().map_err(at("landlock")))?;
        self.work.map_or(Ok(()), |work| work.allow_nothing_else().map_err(at("seccomp")))
    }
}

impl Limits {
    /// It writes no file and leaves no core.
    fn impose(&self) -> rustix::io::Result<()> {
        // SAFETY: SIG_IGN is a valid disposition, and no handler of ours stands on this signal. Ignored, a
        // write beyond the file size limit fails with EFBIG instead of ending the process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let maxima = [
            (Resource::Fsize, Some(0)),
            (Resource::Core, Some(0)),
            (Resource::Cpu, self.processor_time_seconds),
            (Resource::As, Some(self.address_space_bytes)),
            (Resource::Nofile, Some(self.open_files)),
            (Resource::Nproc, (!self.has_children).then_some(0)),
        ];
        let mut imposed = maxima.into_iter().filter_map(|(resource, maximum)| Some((resource, maximum?)));
        imposed.try_for_each(|(resource, maximum)| {
            rustix::process::setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })
        })
    }
}

/// Programs that this process starts get their standard input, output and error, and none of its other
/// descriptors, whoever has opened them. Before Linux 5.11 this does nothing: those that the process opens
/// itself are kept from them in any case.
pub fn keep_descriptors() {
    let first = libc::STDERR_FILENO.unsigned_abs() + 1;
    // SAFETY: the call marks descriptors and closes none.
    let _ =
        unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// The calling process ends with the agent, however that ends.
pub fn end_with_parent() -> Result<(), SandboxError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(at("PR_SET_PDEATHSIG"))
}

/// Keeps no capability but these, where the process has them, and can gain none: an `execve` by user 0 gives
/// a process all of its bounding set, but never more than it had where it may gain nothing. Makes system
/// calls about the calling process and nothing else, so it can stand between `fork` and `exec`.
pub fn give_up_privileges(kept: CapabilitySet) -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_no_new_privs(true)?;
    bound(kept);
    let kept = rustix::thread::capabilities(None)?.permitted & kept;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// Takes all but these from the bounding set. Needs CAP_SETPCAP, which not every agent has, and which is not
/// at work any more where another user has taken over; what stays cannot be gained.
fn bound(kept: CapabilitySet) {
    for capability in CapabilitySet::all().difference(kept).iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
}

impl User {
    fn become_it(self) -> io::Result<()> {
        match self {
            User::Same => Ok(()),
            User::NobodyIfPossible if may_change_user() => become_nobody(),
            User::NobodyIfPossible => Ok(()),
            User::Nobody => {
                // SAFETY: the process has one thread and no descriptor table or memory that it shares.
                // Without the right to it this fails, and the other fences stand.
                let _ = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWIPC) };
                if rustix::process::geteuid().is_root() { become_nobody() } else { Ok(()) }
            }
        }
    }
}

/// Whether the process may become another user.
pub fn may_change_user() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Changes the user; what capabilities there are stay permitted until they are given up.
fn become_nobody() -> io::Result<()> {
    become_user(NOBODY, NOBODY, &[])
}

/// Becomes a user in every respect; what capabilities there are stay permitted until they are given up. Makes
/// system calls about the calling process and nothing else, so it can stand between `fork` and `exec`.
pub fn become_user(user_id: u32, group_id: u32, further_groups: &[u32]) -> io::Result<()> {
    rustix::thread::set_keep_capabilities(true)?;
    // SAFETY: plain system calls; so many groups are there as is said.
    let results = unsafe {
        [
            libc::setgroups(further_groups.len(), further_groups.as_ptr()),
            libc::setresgid(group_id, group_id, group_id),
            libc::setresuid(user_id, user_id, user_id),
        ]
    };
    if results == [0; 3] { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The running program, even if its file has been replaced since.
pub fn own_executable() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Starts `executable`, the agent or a stand-in for it, with a hidden subcommand and what else is to be said.
/// It sees nothing of the agent's environment, and has no descriptor of it but these two.
pub fn start(
    executable: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    input: Stdio,
    output: Stdio,
) -> io::Result<Child> {
    Command::new(executable)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::process::CommandExt;

    /// A shell that has given up what `kept` does not name says what it has.
    fn status_with(kept: CapabilitySet) -> Vec<String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status"]);
        // SAFETY: what runs between fork and exec makes system calls about its own process; it allocates
        // nothing and takes no lock.
        unsafe { command.pre_exec(move || give_up_privileges(kept)) };
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
    }

    /// As root this is what `execve` would give back if the process could gain anything.
    #[test]
    fn who_has_given_up_all_capabilities_has_none_and_gains_none() {
        let none = "0000000000000000";
        assert_eq!(status_with(CapabilitySet::empty()), [none, none, none, none, "1"]);
    }
}
