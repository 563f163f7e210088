//! Whether the hook listens in this process, and where.

use std::path::PathBuf;
use std::sync::Mutex;

pub struct Started {
    pub socket: PathBuf,
    /// The process that started it: in a forked child the thread is not there.
    pub process: u32,
}

/// The listener of this copy of the library.
pub static STARTED: Mutex<Option<Started>> = Mutex::new(None);

/// Notes that the listener goes, so that this copy of the library or another one can start anew.
pub fn stop() {
    remove_socket_file();
    if let Ok(mut started) = STARTED.lock() {
        *started = None;
    }
}

/// Removes the socket's file, if this process is the one that listens.
pub fn remove_socket_file() {
    if let Ok(started) = STARTED.try_lock()
        && let Some(started) = started.as_ref()
        && started.process == std::process::id()
    {
        let _ = std::fs::remove_file(&started.socket);
    }
}
