//! A target's process, held so that its id cannot come to mean another one, and its `/tmp`.
//!
//! Paths inside a target are the target's to choose: every one is resolved below the target's own root
//! ([`rooted`]), so that no symbolic link in there leads back to the agent's files.

use super::error::ExecuteError;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal};
use sexton_inspect::facts::ProcessId;
use sexton_sandbox::rooted::{self, Links};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Mode bit: others may write.
const OTHERS_WRITE: u32 = 0o002;

/// Mode bit: only owners may rename and remove.
const STICKY: u32 = 0o1000;

/// A process that is held.
pub struct TargetProcess {
    /// Process id in the agent's namespace.
    pub pid: u32,
    /// Process id as the process itself knows it.
    pub namespaced_pid: u32,
    pub user_id: u32,
    pub group_id: u32,
    /// Signals that have a handler, bit 0 for signal 1.
    pub signals_caught: u64,
    start_time_ticks: u64,
    handle: OwnedFd,
    root: OwnedFd,
}

/// When the process that has this id now started; `None` where there is none.
fn start_time_ticks(pid: u32) -> Option<u64> {
    let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
    process.stat().ok().filter(|stat| stat.state != 'Z').map(|stat| stat.starttime)
}

impl TargetProcess {
    /// Takes hold of the process.
    ///
    /// # Errors
    /// [`ExecuteError::ProcessGone`] when it has ended, [`ExecuteError::Process`] without the rights.
    pub fn open(process: &ProcessId) -> Result<TargetProcess, ExecuteError> {
        let pid = process.pid;
        let gone = || ExecuteError::ProcessGone { pid };
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let handle = rustix::process::pidfd_open(raw, PidfdFlags::empty()).map_err(|error| match error {
            rustix::io::Errno::SRCH => gone(),
            error => ExecuteError::Process { pid, what: "take hold", source: error.into() },
        })?;
        // Signals go through the handle, which stands for one process only: was it the right one?
        if start_time_ticks(pid) != Some(process.start_time_ticks) {
            return Err(gone());
        }
        let proc = procfs::process::Process::new(raw.as_raw_nonzero().get());
        let status = proc.and_then(|proc| proc.status()).map_err(|error| ExecuteError::Process {
            pid,
            what: "read the status",
            source: io::Error::other(error),
        })?;
        let root = rustix::fs::open(
            format!("/proc/{pid}/root"),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| ExecuteError::Process {
            pid,
            what: "open the root directory",
            source: error.into(),
        })?;
        let innermost = status.nspid.as_ref().and_then(|ids| ids.last());
        Ok(TargetProcess {
            pid,
            namespaced_pid: innermost.and_then(|id| u32::try_from(*id).ok()).unwrap_or(pid),
            user_id: status.euid,
            group_id: status.egid,
            signals_caught: status.sigcgt,
            start_time_ticks: process.start_time_ticks,
            handle,
            root,
        })
    }

    pub fn is_alive(&self) -> bool {
        start_time_ticks(self.pid) == Some(self.start_time_ticks)
    }

    /// Sends a signal to this very process.
    pub fn signal(&self, signal: Signal) -> Result<(), ExecuteError> {
        rustix::process::pidfd_send_signal(&self.handle, signal).map_err(|error| ExecuteError::Process {
            pid: self.pid,
            what: "signal",
            source: error.into(),
        })
    }

    /// Opens a path inside the target's root, for looking.
    pub fn open_inside(&self, path: &Path) -> io::Result<OwnedFd> {
        rooted::open_inside(&self.root, path, Links::Followed)
    }

    /// The target's `/tmp`.
    ///
    /// # Errors
    /// When there is none, or strangers could replace what is put there.
    pub fn temporary_directory(&self) -> Result<Directory, ExecuteError> {
        let fail = |source| ExecuteError::Process { pid: self.pid, what: "open the /tmp", source };
        let directory = self.open_inside(Path::new("/tmp")).map_err(fail)?;
        let stat = rustix::fs::fstat(&directory).map_err(|error| fail(error.into()))?;
        let owner_is_trusted = stat.st_uid == 0 || stat.st_uid == self.user_id;
        if !owner_is_trusted || stat.st_mode & OTHERS_WRITE != 0 && stat.st_mode & STICKY == 0 {
            return Err(fail(io::Error::other(
                "others may replace files in there (not sticky, or not its own)",
            )));
        }
        Ok(Directory { directory })
    }
}

/// An open directory; names in it are plain file names, never followed through symbolic links.
pub struct Directory {
    directory: OwnedFd,
}

impl Directory {
    /// The directory's descriptor, for the `*at` calls.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.directory
    }

    /// What `name` is; `None` if it is not there.
    pub fn stat(&self, name: &str) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a new file; fails if there is anything of that name.
    pub fn create_new(&self, name: &str, mode: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, name, flags, Mode::from_raw_mode(mode))?)
    }

    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    /// Connects to the socket `name`, which must belong to `user_id` or root. Does not wait: a socket
    /// with a full backlog gives [`io::ErrorKind::WouldBlock`].
    pub fn connect(&self, name: &str, user_id: u32) -> io::Result<UnixStream> {
        let stat = self.stat(name)?.ok_or(io::ErrorKind::NotFound)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(io::Error::other(format!("{name} is not a socket")));
        }
        if stat.st_uid != user_id && stat.st_uid != 0 {
            return Err(io::Error::other(format!("{name} belongs to user {}, not {user_id}", stat.st_uid)));
        }
        let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd()));
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

/// The process that listens on the other end of `stream`, in the agent's namespace.
pub fn peer_pid(stream: &UnixStream) -> io::Result<u32> {
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(u32::try_from(credentials.pid.as_raw_nonzero().get()).unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    pub fn own() -> ProcessId {
        let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
        ProcessId { pid: std::process::id(), start_time_ticks: stat.starttime }
    }

    #[test]
    fn a_process_is_known_by_its_start_time() {
        let process = TargetProcess::open(&own()).unwrap();
        assert!(process.is_alive());
        assert_eq!(process.user_id, rustix::process::geteuid().as_raw());
        let reused = ProcessId { start_time_ticks: own().start_time_ticks + 1, ..own() };
        assert!(matches!(TargetProcess::open(&reused), Err(ExecuteError::ProcessGone { .. })));
        let never = ProcessId { pid: u32::MAX, start_time_ticks: 1 };
        assert!(matches!(TargetProcess::open(&never), Err(ExecuteError::ProcessGone { .. })));
    }

    #[test]
    fn an_ended_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let stat = procfs::process::Process::new(i32::try_from(pid).unwrap()).unwrap().stat().unwrap();
        let process = TargetProcess::open(&ProcessId { pid, start_time_ticks: stat.starttime }).unwrap();
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
        assert!(process.signal(Signal::TERM).is_err());
    }

    #[test]
    fn names_in_a_directory_are_not_followed_and_sockets_must_be_owned() {
        let folder = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            Directory { directory: rustix::fs::open(folder.path(), flags, Mode::empty()).unwrap() };
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        assert!(directory.create_new("link", 0o600).is_err());
        assert!(directory.connect("link", 0).unwrap_err().to_string().contains("not a socket"));
        assert_eq!(directory.connect("none", 0).unwrap_err().kind(), io::ErrorKind::NotFound);
        let socket = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(peer_pid(&directory.connect("socket", user).unwrap()).unwrap(), std::process::id());
        if user == 0 {
            std::os::unix::fs::chown(&socket, Some(12345), None).unwrap();
            assert!(
                directory.connect("socket", 54321).unwrap_err().to_string().contains("belongs to user 12345")
            );
        }
        drop(listener);
    }

    #[test]
    fn an_open_temporary_directory_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        let mut process = TargetProcess::open(&own()).unwrap();
        process.root =
            rustix::fs::open(folder.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let set = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path().join("tmp"), permissions).unwrap();
        };
        set(0o777);
        assert!(process.temporary_directory().is_err());
        for mode in [0o1777, 0o755] {
            set(mode);
            assert!(process.temporary_directory().is_ok(), "{mode:o}");
        }
    }

    #[test]
    fn an_absolute_link_stays_inside_the_root() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink("/real", folder.path().join("tmp")).unwrap();
        std::fs::write(folder.path().join("real/file"), "inside").unwrap();
        let mut process = TargetProcess::open(&own()).unwrap();
        process.root =
            rustix::fs::open(folder.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(process.open_inside(Path::new("/tmp/file")).is_ok());
        assert!(process.open_inside(Path::new("/tmp/../../../etc/passwd")).is_err());
    }
}
