//! Why a process cannot be made a target, and what to do about it.

use super::elf::ElfError;
use super::process::means_gone;
use super::tls::TlsError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why [`inspect`](super::inspect::Inspector::inspect) gave no target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    #[error("there is no process {pid}, or it ended while being looked at")]
    NoSuchProcess { pid: u32 },
    #[error("process {pid} has no RocksDB inside{}", hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default())]
    NoRocksDb {
        pid: u32,
        /// What came nearest: a library with the name but without the symbols.
        hint: Option<String>,
    },
    #[error("no entry of the policy matches process {pid} ({name})")]
    NotMatched {
        pid: u32,
        name: String,
        /// Whether an entry looks for words in the command line, which is too long to be seen whole.
        is_cut: bool,
    },
    #[error("may not look into process {pid}: permission denied for {}", path.display())]
    PermissionDenied { pid: u32, path: PathBuf },
    #[error("{} of process {pid} is no valid ELF file: {source}", path.display())]
    CorruptElf { pid: u32, path: PathBuf, source: ElfError },
    #[error("{} of process {pid} is not examined: {source}", path.display())]
    TooMuch { pid: u32, path: PathBuf, source: ElfError },
    #[error("{} of process {pid} could not be examined: {source}", path.display())]
    NotExamined { pid: u32, path: PathBuf, source: ElfError },
    #[error("RocksDB in {} of process {pid} cannot be read: {what}", path.display())]
    Unsupported { pid: u32, path: PathBuf, what: String },
    #[error("the thread-local storage of {} in process {pid} cannot be found: {source}", path.display())]
    ThreadLocalStorage { pid: u32, path: PathBuf, source: TlsError },
    #[error(
        "process {pid} has not answered within {waited:?}: whoever reads its memory or its files has to wait"
    )]
    Unresponsive { pid: u32, waited: Duration },
    #[error("cannot read {} of process {pid}: {source}", path.display())]
    Io { pid: u32, path: PathBuf, source: io::Error },
}

impl InspectError {
    /// Sorts an error of reading something of a process.
    pub(super) fn from_io(pid: u32, path: &Path, error: io::Error) -> InspectError {
        if means_gone(&error) {
            return InspectError::NoSuchProcess { pid };
        }
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::PermissionDenied => InspectError::PermissionDenied { pid, path },
            _ => InspectError::Io { pid, path, source: error },
        }
    }

    /// What an operator can do about it, one sentence.
    pub fn remedy(&self) -> &str {
        match self {
            InspectError::NoSuchProcess { .. } => {
                "Give the pid of a running process; `sexton targets` lists them."
            }
            InspectError::NoRocksDb { .. } => {
                "Give the pid of a process that uses RocksDB; `sexton targets` lists them. A RocksDB whose symbols \
                 were stripped and that was built without RTTI is not recognised: install its debug symbols, or \
                 use a build that keeps `.symtab`."
            }
            InspectError::NotMatched { .. } => {
                "Add an entry to the policy's `targets`, or correct its `match`."
            }
            InspectError::PermissionDenied { .. } => {
                "Run sexton as root, or give it CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE, CAP_BPF and CAP_PERFMON."
            }
            InspectError::CorruptElf { .. } => {
                "The file was changed or cut after the process loaded it: install it again and restart the process."
            }
            InspectError::TooMuch { .. } => {
                "Strip the file of what is for debuggers alone (`strip --strip-debug`) and restart the process."
            }
            InspectError::NotExamined { .. } => {
                "It is tried again after 15 seconds. See whether the file lies on a file system that hangs, and \
                 whether the node is short of memory or of processes."
            }
            InspectError::Unsupported { .. } => {
                "Only x86-64 processes with the GNU C library can be watched."
            }
            InspectError::ThreadLocalStorage { source, .. } => source.remedy(),
            InspectError::Unresponsive { .. } => {
                "See whether it has files or memory on a file system that hangs (`grep -E 'nfs|fuse' \
                 /proc/PID/mounts`). All other processes are watched meanwhile."
            }
            InspectError::Io { .. } => "See the system's message; try again if it was passing.",
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn a_process_that_ends_while_being_read_is_gone() {
        for code in [libc::ENOENT, libc::ESRCH] {
            let error =
                InspectError::from_io(7, Path::new("/proc/7/maps"), io::Error::from_raw_os_error(code));
            assert!(matches!(error, InspectError::NoSuchProcess { pid: 7 }));
        }
        let error =
            InspectError::from_io(7, Path::new("/proc/7/maps"), io::Error::from_raw_os_error(libc::EACCES));
        assert!(matches!(error, InspectError::PermissionDenied { .. }));
        assert!(error.to_string().contains("/proc/7/maps"));
        assert!(error.remedy().contains("root"));
    }

    #[test]
    fn the_hint_is_in_the_message() {
        let without = InspectError::NoRocksDb { pid: 7, hint: None };
        assert_eq!(without.to_string(), "process 7 has no RocksDB inside");
        let with = InspectError::NoRocksDb { pid: 7, hint: Some("it is stripped".into()) };
        assert_eq!(with.to_string(), "process 7 has no RocksDB inside: it is stripped");
    }
}
