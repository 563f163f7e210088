//! Priorities of a process' threads by their names: what the kernel's schedulers for processors and for block
//! devices go by.
//!
//! A thread that ends while it is dealt with counts for nothing.

use crate::error::ExecuteError;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::io;
use std::str::FromStr;
use wildmatch::WildMatch;

/// Threads of one process that are looked at.
const THREADS_MAX: usize = 65_536;

/// Names that an error lists.
const NAMES_SHOWN_MAX: usize = 20;

/// `IOPRIO_WHO_PROCESS`: a thread, in spite of its name.
const WHO_THREAD: libc::c_int = 1;

/// Where the class stands in an I/O priority.
const CLASS_SHIFT: libc::c_int = 13;

/// `IOPRIO_CLASS_*`.
const CLASS_NONE: libc::c_int = 0;
const CLASS_REAL_TIME: libc::c_int = 1;
const CLASS_BEST_EFFORT: libc::c_int = 2;
const CLASS_IDLE: libc::c_int = 3;

/// The last level of a class.
const LEVEL_MAX: libc::c_int = 7;

/// Which threads of which process.
#[derive(Clone, Debug)]
pub struct Threads {
    pub pid: u32,
    /// Glob on their names, of which the kernel keeps 15 bytes: `rocksdb:low*`.
    pub names: String,
}

/// A thread's I/O priority, as `ionice` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoPriority {
    /// None of its own: it follows the niceness.
    None,
    /// Best effort, 0 (first) to 7.
    BestEffort(u8),
    /// Only while nobody else wants the device.
    Idle,
    /// Real time: before all others. It is shown, and never set.
    RealTime(u8),
}

impl Display for IoPriority {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            IoPriority::None => formatter.write_str("none"),
            IoPriority::BestEffort(level) => write!(formatter, "{level}"),
            IoPriority::Idle => formatter.write_str("idle"),
            IoPriority::RealTime(level) => write!(formatter, "realtime:{level}"),
        }
    }
}

impl FromStr for IoPriority {
    type Err = String;

    fn from_str(text: &str) -> Result<IoPriority, String> {
        match (text, text.parse::<u8>()) {
            ("none", _) => Ok(IoPriority::None),
            ("idle", _) => Ok(IoPriority::Idle),
            (_, Ok(level)) if libc::c_int::from(level) <= LEVEL_MAX => Ok(IoPriority::BestEffort(level)),
            _ => Err("an I/O priority is 0 (first) to 7, idle, or none".to_owned()),
        }
    }
}

impl IoPriority {
    fn of_kernel(value: libc::c_int) -> IoPriority {
        let level = u8::try_from(value & LEVEL_MAX).unwrap_or(0);
        match value >> CLASS_SHIFT {
            CLASS_REAL_TIME => IoPriority::RealTime(level),
            CLASS_BEST_EFFORT => IoPriority::BestEffort(level),
            CLASS_IDLE => IoPriority::Idle,
            _ => IoPriority::None,
        }
    }

    fn for_kernel(self) -> libc::c_int {
        match self {
            IoPriority::None => CLASS_NONE << CLASS_SHIFT,
            IoPriority::BestEffort(level) => CLASS_BEST_EFFORT << CLASS_SHIFT | libc::c_int::from(level),
            IoPriority::Idle => CLASS_IDLE << CLASS_SHIFT | LEVEL_MAX,
            IoPriority::RealTime(level) => CLASS_REAL_TIME << CLASS_SHIFT | libc::c_int::from(level),
        }
    }
}

impl Threads {
    /// The I/O priorities that these threads have, each once.
    ///
    /// # Errors
    /// [`ExecuteError::Threads`] where there are none, or the kernel refuses.
    pub fn io_priorities(&self) -> Result<BTreeSet<IoPriority>, ExecuteError> {
        self.each(|thread| get_io_priority(thread).map(IoPriority::of_kernel))
    }

    /// Gives each of them an I/O priority.
    ///
    /// # Errors
    /// As [`Threads::io_priorities`]; some of them may have it then.
    pub fn set_io_priority(&self, priority: IoPriority) -> Result<(), ExecuteError> {
        self.each(|thread| set_io_priority(thread, priority.for_kernel())).map(|_| ())
    }

    /// The nicenesses that these threads have, each once.
    ///
    /// # Errors
    /// As [`Threads::io_priorities`].
    pub fn nicenesses(&self) -> Result<BTreeSet<i32>, ExecuteError> {
        self.each(|thread| Ok(getpriority_process(Some(thread))?))
    }

    /// Gives each of them a niceness, -20 (first) to 19. To lower it takes CAP_SYS_NICE.
    ///
    /// # Errors
    /// As [`Threads::set_io_priority`].
    pub fn set_niceness(&self, niceness: i32) -> Result<(), ExecuteError> {
        self.each(|thread| Ok(setpriority_process(Some(thread), niceness)?)).map(|_| ())
    }

    /// What `visit` gives for each thread that has such a name and is still there.
    fn each<T: Ord>(&self, visit: impl Fn(Pid) -> io::Result<T>) -> Result<BTreeSet<T>, ExecuteError> {
        let refuse = |reason: String| ExecuteError::Threads { pid: self.pid, reason };
        let directory = format!("/proc/{}/task", self.pid);
        let entries =
            std::fs::read_dir(&directory).map_err(|error| refuse(format!("{directory}: {error}")))?;
        let pattern = WildMatch::new(&self.names);
        let (mut found, mut others) = (BTreeSet::new(), BTreeSet::new());
        for entry in entries.flatten().take(THREADS_MAX) {
            let Ok(name) = std::fs::read_to_string(entry.path().join("comm")) else { continue };
            let name = name.trim_end_matches('\n');
            if !pattern.matches(name) {
                others.insert(name.to_owned());
                continue;
            }
            let id = entry.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
            let Some(id) = id else { continue };
            match visit(id) {
                Ok(value) => drop(found.insert(value)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => {
                    return Err(refuse(format!("thread {} ({name}): {error}", id.as_raw_nonzero())));
                }
            }
        }
        if found.is_empty() {
            let shown: Vec<String> = others.into_iter().take(NAMES_SHOWN_MAX).collect();
            return Err(refuse(format!("no thread is named {}; some are {}", self.names, shown.join(", "))));
        }
        Ok(found)
    }
}

fn get_io_priority(thread: Pid) -> io::Result<libc::c_int> {
    // SAFETY: takes and gives numbers.
    let value = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_THREAD, thread.as_raw_nonzero().get()) };
    libc::c_int::try_from(value).ok().filter(|value| *value >= 0).ok_or_else(io::Error::last_os_error)
}

fn set_io_priority(thread: Pid, value: libc::c_int) -> io::Result<()> {
    // SAFETY: takes numbers; no memory of this process is touched.
    let code =
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, thread.as_raw_nonzero().get(), value) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn priorities_are_written_as_they_are_read() {
        for text in ["none", "0", "7", "idle"] {
            let priority: IoPriority = text.parse().unwrap();
            assert_eq!(priority.to_string(), text);
            assert_eq!(IoPriority::of_kernel(priority.for_kernel()), priority);
        }
        for text in ["8", "-1", "", "realtime:0", "best"] {
            assert!(text.parse::<IoPriority>().is_err(), "{text}");
        }
        assert_eq!(IoPriority::of_kernel(1 << 13 | 3).to_string(), "realtime:3");
    }

    #[test]
    fn threads_are_found_by_name_and_only_they_are_changed() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let named = std::thread::Builder::new().name("priority:low0".into());
        let thread = named.spawn(move || {
            ready.send(()).unwrap();
            let _ = receiver.recv();
        });
        is_ready.recv().unwrap();
        let threads = |names: &str| Threads { pid: std::process::id(), names: names.into() };
        let (low, none) = (threads("priority:low*"), threads("no such name"));
        low.set_io_priority(IoPriority::BestEffort(6)).unwrap();
        assert_eq!(low.io_priorities().unwrap(), BTreeSet::from([IoPriority::BestEffort(6)]));
        low.set_io_priority(IoPriority::Idle).unwrap();
        assert_eq!(low.io_priorities().unwrap(), BTreeSet::from([IoPriority::Idle]));
        low.set_io_priority(IoPriority::None).unwrap();
        assert_eq!(low.io_priorities().unwrap(), BTreeSet::from([IoPriority::None]));
        let before = low.nicenesses().unwrap();
        let nicer = before.first().unwrap() + 1;
        low.set_niceness(nicer.min(19)).unwrap();
        assert_eq!(low.nicenesses().unwrap(), BTreeSet::from([nicer.min(19)]));
        assert!(threads("*").nicenesses().unwrap().contains(before.first().unwrap()));
        let error = none.io_priorities().unwrap_err().to_string();
        assert!(error.contains("no such name") && error.contains("priority:low0"), "{error}");
        drop(sender);
        thread.unwrap().join().unwrap();
    }
}
