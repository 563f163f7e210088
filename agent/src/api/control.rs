//! The socket for what changes something: who asks is known there, by the kernel's word.
//!
//! Root, the agent's own user and its group may ask. The file's mode keeps others out; that the one who
//! connects is one of these is looked at all the same, since a directory can be given to others.

use std::io;
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

/// Whether this user may ask for changes.
pub(super) fn may_ask(user_id: u32, group_id: u32) -> bool {
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
    fn others_may_not_ask() {
        let own = rustix::process::geteuid().as_raw();
        assert!(may_ask(0, 0) && may_ask(own, 99));
        assert!(!may_ask(own + 12_345, rustix::process::getegid().as_raw() + 12_345));
    }
}
