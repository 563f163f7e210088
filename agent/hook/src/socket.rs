//! The hook's socket: private from its first moment, and who may speak on it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Clients that may wait while another one is served; there is one agent on a node.
const BACKLOG: i32 = 4;

/// Mode of the socket's file: its owner alone.
const SOCKET_MODE: libc::mode_t = 0o600;

/// What became of [`bind`].
pub enum Bound {
    Listening(UnixListener),
    /// A hook of this very process listens there already.
    ServedAlready,
}

/// Binds `path` and listens. A socket file that a former process of the same user left behind is
/// replaced; anything else in the way is left alone and an error.
///
/// The mode is set before the file exists (the kernel takes it from the unbound socket), so the
/// process' umask is not touched and nobody else can ever connect.
pub fn bind(path: &Path) -> Result<Bound, String> {
    let fail = |what: &str, error: io::Error| format!("{what} {}: {error}", path.display());
    let socket = new_socket().map_err(|error| fail("cannot make a socket for", error))?;
    match bind_to(&socket, path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if remove_stale(path)? {
                return Ok(Bound::ServedAlready);
            }
            bind_to(&socket, path).map_err(|error| fail("cannot bind", error))?;
        }
        outcome => outcome.map_err(|error| fail("cannot bind", error))?,
    }
    let mode = std::fs::symlink_metadata(path).map_err(|error| fail("cannot look at", error))?.mode();
    if mode & 0o077 != 0 {
        let _ = std::fs::remove_file(path);
        return Err(format!("{} would have been open to others (mode {mode:o})", path.display()));
    }
    // SAFETY: `listen` on a descriptor that is owned here.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } != 0 {
        return Err(fail("cannot listen on", io::Error::last_os_error()));
    }
    Ok(Bound::Listening(UnixListener::from(socket)))
}

fn new_socket() -> io::Result<OwnedFd> {
    // SAFETY: plain system calls; the descriptor is owned by nobody else.
    unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(descriptor);
        if libc::fchmod(descriptor, SOCKET_MODE) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }
}

fn bind_to(socket: &OwnedFd, path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = name.as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `address` is initialised and as long as `length` says.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Removes the socket file of a process that is gone. `true`: this process listens there itself.
fn remove_stale(path: &Path) -> Result<bool, String> {
    let metadata = std::fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !metadata.file_type().is_socket() || metadata.uid() != effective_user() {
        return Err(format!("{} is in the way and is not a socket of this user", path.display()));
    }
    match UnixStream::connect(path) {
        Ok(stream) if peer(&stream).is_ok_and(|peer| peer.process == std::process::id()) => Ok(true),
        Ok(_) => Err(format!("another process listens on {}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
                .map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
            Ok(false)
        }
        Err(error) => Err(format!("cannot tell who listens on {}: {error}", path.display())),
    }
}

/// Who is on the other end, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id in this process' namespace, 0 from outside of it.
    pub process: u32,
    /// Effective user at the time of connecting.
    pub user: u32,
}

impl Peer {
    /// Whether it may speak: root, or this process' own effective user.
    pub fn is_allowed(&self, own_user: u32) -> bool {
        self.user == 0 || self.user == own_user
    }
}

/// Asks the kernel who is on the other end.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` has the size given and may hold any bytes.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { process: u32::try_from(credentials.pid).unwrap_or_default(), user: credentials.uid })
}

pub fn effective_user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::path::PathBuf;

    fn fresh_path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sexton-hook-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn listening(path: &Path) -> UnixListener {
        match bind(path).unwrap() {
            Bound::Listening(listener) => listener,
            Bound::ServedAlready => panic!("served already"),
        }
    }

    #[test]
    fn private_whatever_the_umask_and_closed_on_exec() {
        let path = fresh_path("mode");
        // SAFETY: always succeeds; no other test here depends on the umask.
        let before = unsafe { libc::umask(0) };
        let listener = listening(&path);
        // SAFETY: as above.
        unsafe { libc::umask(before) };
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode() & 0o7777, SOCKET_MODE);
        // SAFETY: asks for the flags of a descriptor that is open.
        assert_eq!(unsafe { libc::fcntl(listener.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn own_socket_is_recognised_and_a_stale_one_replaced() {
        let path = fresh_path("stale");
        let listener = listening(&path);
        assert!(matches!(bind(&path), Ok(Bound::ServedAlready)));
        drop(listener);
        let listener = listening(&path);
        let client = UnixStream::connect(&path).unwrap();
        let seen = peer(&client).unwrap();
        assert_eq!(seen, Peer { process: std::process::id(), user: effective_user() });
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn other_files_are_left_alone() {
        let path = fresh_path("file");
        std::fs::write(&path, "precious").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", &path).unwrap();
        assert!(bind(&path).is_err());
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
        std::fs::remove_file(path).unwrap();
        assert!(bind(Path::new(&format!("/tmp/{}", "x".repeat(200)))).is_err());
    }

    #[test]
    fn root_and_oneself_may_speak() {
        let from = |user| Peer { process: 1, user };
        assert!(from(0).is_allowed(1000) && from(1000).is_allowed(1000));
        assert!(!from(1001).is_allowed(1000) && !from(1000).is_allowed(0) && !from(65534).is_allowed(0));
    }
}
