//! `libsexton_hook.so`: the small part of Sexton that runs inside a target and calls the RocksDB that is
//! already there.
//!
//! # Ways in
//! - A running JVM loads it by dynamic attach and calls [`Agent_OnAttach`], which says where to listen
//!   and which module holds RocksDB.
//! - `LD_PRELOAD`: a constructor looks whether the program exports RocksDB's C API. If it does not (a
//!   shell, a helper child) nothing at all is started.
//!
//! - A program may link it, as a C library or as a Rust crate ([`linked`]), and tell it of its databases.
//!
//! All start one thread that listens on a unix socket for the agent (`listener`, `session`). It finds
//! RocksDB's exported C API (`rocksdb`), checks every pointer it is given against the process' memory
//! (`verify`, over `memory` and `maps`) and runs at most one range compaction or flush at a time in a thread
//! of its own (`job`, `cancel`). Options that it changes are put back when the agent is gone (`changed`,
//! `lease`).
//!
//! # What it promises its host
//! It writes to no standard stream, installs no signal handler, changes neither the umask nor the
//! environment, and keeps every buffer bounded. No panic leaves it, as long as panics unwind (see [`linked`]
//! for `panic = "abort"`), and the host's own panics stay the host's (`panics`). Without a client it sleeps
//! in `accept`, and looks up once a second while there are options to put back. In threads of the host it
//! runs at start-up and, in front of the owner's own calls, where a database or a column family handle ends
//! (`owner`); `guard` sees to it that nothing is used after that:
//! - A handle that is in use is deleted when the use ends; the owner goes on at once.
//! - Closing a database that is in use has RocksDB give up manual compactions and waits for our call to
//!   return: milliseconds, or as long as a flush takes, or an automatic compaction that ours waits for. It
//!   has no limit of its own, as RocksDB's close has none: going on would free memory that is in use.
//! - Where nothing is in use, the owner's call does what it always did.
//!
//! Where the guard cannot stand (a RocksDB whose virtual tables have no symbols) databases are only used that
//! the program has registered itself.
//!
//! # What it cannot promise
//! A database whose close is already under way at the very moment the guard is put up, within microseconds of
//! the attach, is not seen closing.
//!
//! A checked pointer may also be a stale one: if the memory of a closed database has been reused for
//! another one whose column family has the same name and id at the same addresses, the other one is
//! compacted. That is harmless in kind: compaction changes no contents.
//!
//! In a preloaded program that forks and lets the parent exit (a daemon), the thread stays behind with
//! the parent: start such a program in the foreground.

mod access;
mod cancel;
mod changed;
mod commands;
mod functions;
mod guard;
mod job;
mod jvm;
mod lease;
mod limit;
pub mod linked;
mod listener;
mod log;
mod maps;
mod memory;
mod module;
mod options;
mod owner;
mod pages;
mod panics;
mod registered;
mod rocksdb;
mod scanners;
mod session;
mod settable;
mod socket;
mod start;
mod started;
mod thread;
mod verify;

use std::ffi::{CStr, c_char, c_int, c_void};

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
/// `vm` is the machine that calls, and `options` is null or a string that ends with a NUL byte, as the JVM
/// Tool Interface gives them. The last argument is not used.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is the JVM Tool Interface's")]
pub unsafe extern "C" fn Agent_OnAttach(vm: *mut c_void, options: *const c_char, _: *mut c_void) -> c_int {
    let outcome = panics::contain(|| {
        jvm::note(vm);
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
    let _ = panics::contain(|| {
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
    let _ = panics::contain(started::remove_socket_file);
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;
