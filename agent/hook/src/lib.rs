//! `libsexton_hook.so`: the small part of Sexton that runs inside a target and calls the RocksDB that is
//! already there.
//!
//! # Ways in
//! - A running JVM loads it by dynamic attach and calls [`Agent_OnAttach`], which says where to listen
//!   and which module holds RocksDB.
//! - `LD_PRELOAD`: a constructor looks whether the program exports RocksDB's C API. If it does not (a
//!   shell, a helper child) nothing at all is started.
//!
//! Both start one thread that listens on a unix socket for the agent (`listener`, `session`). It finds
//! RocksDB's exported C API (`rocksdb`), checks every pointer it is given against the process' memory
//! (`verify`, over `memory` and `maps`) and runs at most one range compaction at a time in a thread of
//! its own (`compaction`).
//!
//! # What it promises its host
//! It writes to no standard stream, installs no signal handler, changes neither the umask nor the
//! environment, never runs in a thread of the host beyond start-up, and keeps every buffer bounded. No
//! panic leaves it. Without a client it sleeps in `accept`.
//!
//! # What it cannot promise
//! The agent's pointers are checked immediately before each use, but between the check and the end of
//! the call the host may close its database. RocksDB then destroys the object the call works on, as it
//! would for any other thread that still used a closed database, and the process may crash. The
//! window is one `rocksdb_livefiles` or property call (microseconds to milliseconds), or one slice of
//! a compaction: the agent keeps slices small. A host that closes databases while it runs (rather than
//! on its way out) needs a guard on close, which this library does not have yet.
//!
//! A checked pointer may also be a stale one: if the memory of a closed database has been reused for
//! another one whose column family has the same name and id at the same addresses, the other one is
//! compacted. That is harmless in kind: compaction changes no contents.
//!
//! In a preloaded program that forks and lets the parent exit (a daemon), the thread stays behind with
//! the parent: start such a program in the foreground.

mod compaction;
mod functions;
mod limit;
mod listener;
mod log;
mod maps;
mod memory;
mod module;
mod options;
mod pages;
mod rocksdb;
mod session;
mod socket;
mod start;
mod thread;
mod verify;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::catch_unwind;

/// `JNI_OK`.
const OK: c_int = 0;

/// Our return code for options that are not understood.
const BAD_OPTIONS: c_int = 1;

/// Our return code when the socket could not be bound or the thread not be started.
const CANNOT_START: c_int = 2;

/// Our return code after a panic, which would be a bug of ours.
const PANICKED: c_int = 3;

/// Entry of dynamic attach. Options are `socket=PATH,library=PATH`; the library's path is the last and
/// may hold commas. Binds the socket, starts the listener and returns; while it runs, the JVM's
/// attach listener is busy. Attaching again while the listener runs changes nothing and is a success.
///
/// Returns 0, or 1 for options it does not understand, 2 where it could not start, 3 for a bug.
///
/// # Safety
/// `options` is null or a string that ends with a NUL byte, as the JVM Tool Interface gives it. The
/// other arguments are not used.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is the JVM Tool Interface's")]
pub unsafe extern "C" fn Agent_OnAttach(_vm: *mut c_void, options: *const c_char, _: *mut c_void) -> c_int {
    let outcome = catch_unwind(|| {
        let text = if options.is_null() {
            b""
        } else {
            // SAFETY: not null, and the caller promises a NUL-terminated string that outlives the call.
            unsafe { CStr::from_ptr(options) }.to_bytes()
        };
        let options = match options::parse(text) {
            Ok(options) => options,
            Err(reason) => {
                log::line(&format!("attach: {reason}"));
                return BAD_OPTIONS;
            }
        };
        match start::start(options) {
            Ok(()) => OK,
            Err(reason) => {
                log::line(&format!("attach: {reason}"));
                CANNOT_START
            }
        }
    });
    outcome.unwrap_or(PANICKED)
}

/// Runs when the library is loaded: before `main` when preloaded, within `dlopen` when attached.
extern "C" fn constructor() {
    let _ = catch_unwind(|| {
        log::open_from_environment();
        if rocksdb::is_exported_globally()
            && let Err(reason) = start::start(options::Options::preload())
        {
            log::line(&format!("preload: {reason}"));
        }
    });
}

/// Runs when the process ends in an orderly way: removes the socket's file.
extern "C" fn destructor() {
    let _ = catch_unwind(start::remove_socket_file);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;
