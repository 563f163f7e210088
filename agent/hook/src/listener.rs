//! The thread that waits for the agent: one client at a time.

use crate::commands::Hook;
use crate::rocksdb::RocksDb;
use crate::session::{Next, serve, wait_for_client};
use crate::{log, owner, socket};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failed `accept`: the host may be out of descriptors, which is not ours to make worse.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Serves clients until one tells the hook to go.
pub fn run(listener: &UnixListener, library: Option<&OsStr>) {
    let rocksdb = match RocksDb::find(library) {
        Ok(rocksdb) => {
            let missing = rocksdb.missing.join(" ");
            log::line(&format!("RocksDB in {}, functions missing: {missing}", rocksdb.library));
            Some(Arc::new(rocksdb))
        }
        Err(reason) => {
            log::line(&reason);
            None
        }
    };
    let unguarded = rocksdb.as_ref().and_then(|rocksdb| owner::install(rocksdb).err());
    if let Some(reason) = &unguarded {
        log::line(&format!("no guard in front of the owners' calls: {reason}"));
    }
    let mut hook = Hook::new(rocksdb, unguarded);
    loop {
        hook.tend();
        if let Some(patience) = hook.patience() {
            match wait_for_client(listener.as_fd(), patience) {
                Ok(false) => continue,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // What goes wrong with waiting goes wrong with accepting, too.
                Ok(true) | Err(_) => {}
            }
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                log::line(&format!("accept: {error}"));
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        match socket::peer(&stream) {
            Ok(peer) if peer.is_allowed(socket::effective_user()) => {
                log::line(&format!("serving process {} of user {}", peer.process, peer.user));
                if serve(&stream, peer, listener.as_fd(), &mut hook) == Next::End {
                    log::line("told to go");
                    return;
                }
            }
            Ok(peer) => log::line(&format!("dropped a client of user {}, who may not speak", peer.user)),
            Err(error) => log::line(&format!("dropped a client that is not known: {error}")),
        }
    }
}
