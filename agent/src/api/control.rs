//! The socket for what changes something: who asks is known there, by the kernel's word.
//!
//! Root, the agent's own user and its group may ask. The file's mode keeps others out; that the one who
//! connects is one of these is looked at all the same, since a directory can be given to others.

use super::pair::Malformed;
use rustix::net::{RecvFlags, SocketType, UCred, recv, sockopt};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Its owner and its group connect, which takes the right to write.
const MODE: u32 = 0o660;

/// Listens at `path`, in a directory that is made where there is none.
/// Errors: what binding gives; `AddrInUse` where another agent listens there.
pub fn bind_control(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        std::fs::create_dir(directory)?;
    }
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        // Left behind by an agent that was killed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_our_socket(path) => {
            std::fs::remove_file(path)?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn is_our_socket(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket() && data.uid() == own)
}

/// Whether who is at the other end of this connection to the socket at `path` is still there and may ask.
/// Errors: it is no such connection, which the listener knows as well.
pub fn is_of_who_may_ask(connection: OwnedFd, path: &Path) -> Result<bool, Malformed> {
    let wrong = |what: &str| Malformed(format!("a connection to the control socket {what}"));
    let unreadable = |error: rustix::io::Errno| wrong(&format!("cannot be asked about: {error}"));
    let connection = UnixStream::from(connection);
    // An end of a pair has no name, and would be of whoever has made the pair: the agent, perhaps. The socket
    // that listens is the agent's, too.
    let own = connection.local_addr().map_err(|error| wrong(&format!("is none: {error}")))?;
    let is_stream = sockopt::socket_type(&connection).map_err(unreadable)? == SocketType::STREAM;
    let is_listening = sockopt::socket_acceptconn(&connection).map_err(unreadable)?;
    if own.as_pathname() != Some(path) || !is_stream || is_listening {
        return Err(wrong("is something else"));
    }
    let UCred { uid, gid, .. } = sockopt::socket_peercred(&connection).map_err(unreadable)?;
    if !may_ask(uid.as_raw(), gid.as_raw()) {
        tracing::warn!(user = uid.as_raw(), "a user who may not ask for changes has tried to");
        return Ok(false);
    }
    Ok(is_there(&connection))
}

/// A connection that one end has closed has an end to read.
fn is_there(connection: &UnixStream) -> bool {
    match recv(connection, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, length)) => length > 0,
        Err(error) => error == rustix::io::Errno::AGAIN,
    }
}

/// Whether this user may ask for changes.
fn may_ask(user_id: u32, group_id: u32) -> bool {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    user_id == 0 || user_id == own.0 || group_id == own.1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/control.sock");
        let first = bind_control(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert_eq!(bind_control(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        assert!(bind_control(&path).is_ok());
        let file = directory.path().join("file");
        std::fs::write(&file, "of somebody").unwrap();
        assert!(bind_control(&file).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"of somebody");
    }

    #[test]
    fn a_connection_is_what_it_is_and_no_other_descriptor_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let listener = bind_control(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let asked = |connection: OwnedFd| is_of_who_may_ask(connection, &path);
        assert!(asked(accepted.try_clone().unwrap().into()).unwrap());
        assert!(is_of_who_may_ask(accepted.try_clone().unwrap().into(), Path::new("/other")).is_err());
        let others: [OwnedFd; 5] = [
            listener.into(),
            client.try_clone().unwrap().into(),
            UnixStream::pair().unwrap().0.into(),
            std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
            std::fs::File::open("/").unwrap().into(),
        ];
        for other in others {
            assert!(asked(other).is_err());
        }
        drop(client);
        assert!(!asked(accepted.into()).unwrap(), "nobody is there any more");
    }

    #[test]
    fn others_may_not_ask() {
        let own = rustix::process::geteuid().as_raw();
        assert!(may_ask(0, 0) && may_ask(own, 99));
        assert!(!may_ask(own + 12_345, rustix::process::getegid().as_raw() + 12_345));
    }
}
