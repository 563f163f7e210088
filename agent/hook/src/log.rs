//! The hook's own log, for debugging: nowhere unless the variable `SEXTON_HOOK_LOG` names a file.
//!
//! Never a standard stream of the host, never more than [`LOG_BYTES_MAX`], never a key.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;

/// Bytes that one process logs; then it falls silent. A day of one slice a minute fits.
const LOG_BYTES_MAX: usize = 256 * 1024;

/// Bytes of one line.
const LINE_BYTES_MAX: usize = 1024;

struct Log {
    file: File,
    bytes_left: usize,
}

static LOG: Mutex<Option<Log>> = Mutex::new(None);

/// Opens the log if the environment names one. Called once, while the library is loaded, since reading
/// the environment later could race with a host that changes it.
pub fn open_from_environment() {
    // SAFETY: reads the auxiliary vector; in a set-user-id program the environment is not to be believed.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    // SAFETY: the name is NUL-terminated.
    let value = unsafe { libc::getenv(c"SEXTON_HOOK_LOG".as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: not null, so it points to a NUL-terminated string of the environment, copied right here.
    let path = unsafe { CStr::from_ptr(value) }.to_bytes().to_vec();
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(std::ffi::OsStr::from_bytes(&path));
    if let (Ok(file), Ok(mut log)) = (opened, LOG.lock()) {
        *log = Some(Log { file, bytes_left: LOG_BYTES_MAX });
    }
}

/// Logs one line, with the process id; drops it where there is no log or no room.
pub fn line(text: &str) {
    let Ok(mut guard) = LOG.lock() else { return };
    let Some(log) = guard.as_mut() else { return };
    let mut bytes = format!("sexton-hook[{}]: {text}", std::process::id()).into_bytes();
    bytes.truncate(LINE_BYTES_MAX);
    bytes.push(b'\n');
    match log.bytes_left.checked_sub(bytes.len()) {
        Some(left) if log.file.write_all(&bytes).is_ok() => log.bytes_left = left,
        _ => *guard = None,
    }
}
