//! The short-lived process that loads a foreign RocksDB library and asks it where its counters are.
//!
//! Loading runs whatever the library's constructors do. So the process first copies the library into memory of
//! its own, and then gives up everything: it becomes nobody, without capabilities, without a way to files but
//! the system's libraries, to the network, or to other processes, with little time and memory.

use super::library::{Answer, Offsets, WORDS};
use landlock::PathFd;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{DumpableBehavior, Resource, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use sexton_sandbox::{Limits, allow_only_reading, limit_resources, set_limit};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Largest library that is loaded: with debug information RocksDB reaches some hundred megabytes.
const LIBRARY_BYTES_MAX: u64 = 1 << 30;
/// What it may use: memory for the library twice, what it links to, and a heap; the files of a library and of what it
/// links to.
const LIMITS: Limits = Limits { processor_time_seconds: 3, address_space_bytes: 4 << 30, open_files: 64 };
/// User and group of a process that owns nothing.
const NOBODY: u32 = 65_534;
/// Where the system's libraries are, which the library links to, and where the dynamic linker looks them up.
const LIBRARY_PLACES: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache"];

/// Numbers of counters in RocksDB's `c.h`, the same since 5.11.
const BLOCK_CACHE_HIT_COUNT: c_int = 1;
const BLOCK_READ_COUNT: c_int = 2;
const BLOCK_READ_BYTE: c_int = 3;
const INTERNAL_KEY_SKIPPED_COUNT: c_int = 10;
const INTERNAL_DELETE_SKIPPED_COUNT: c_int = 11;

/// Arguments of the hidden subcommand [`super::library::CHILD_SUBCOMMAND`].
#[derive(Clone, Debug, clap::Args)]
pub struct ChildArguments {
    /// The library, as the agent reaches it.
    pub library: PathBuf,
}

/// Entry point of the hidden subcommand: asks the library and prints its [`Answer`]. Must run before the
/// process has started a thread.
pub fn main(library: &Path) -> ExitCode {
    let answer = match confined_copy(library).and_then(|copy| ask(&copy)) {
        Ok(offsets) => Answer::Offsets(offsets),
        Err(reason) => Answer::Failed(reason),
    };
    let is_answered = matches!(answer, Answer::Offsets(_));
    let written = serde_json::to_vec(&answer).is_ok_and(|text| std::io::stdout().write_all(&text).is_ok());
    if is_answered && written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Copies the library, then gives up all that loading the copy does not need.
fn confined_copy(library: &Path) -> Result<OwnedFd, String> {
    fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String {
        move |error| format!("{what}: {error}")
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(failed("PR_SET_PDEATHSIG"))?;
    let copy = copy(library).map_err(failed("it cannot be copied"))?;
    limit_resources(&LIMITS).map_err(failed("setrlimit"))?;
    // For nobody: no process and no thread.
    set_limit(Resource::Nproc, 0).map_err(failed("setrlimit"))?;
    become_nobody().map_err(failed("it is not possible to become nobody"))?;
    rustix::thread::set_no_new_privs(true).map_err(failed("PR_SET_NO_NEW_PRIVS"))?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(failed("capset"))?;
    // The copy is opened by its name below /proc/self, which else would be root's.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(failed("PR_SET_DUMPABLE"))?;
    // A place that is not there has no library.
    let places = LIBRARY_PLACES.iter().filter_map(|place| PathFd::new(place).ok());
    allow_only_reading(places, &[]).map_err(failed("landlock"))?;
    Ok(copy)
}

/// The library's bytes in memory that nobody can change any more.
fn copy(library: &Path) -> std::io::Result<OwnedFd> {
    let source = File::open(library)?;
    let copy = rustix::fs::memfd_create("library", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut target = File::from(copy);
    let count = std::io::copy(&mut source.take(LIBRARY_BYTES_MAX + 1), &mut target)?;
    if count > LIBRARY_BYTES_MAX {
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is larger than 1 GiB"));
    }
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&target, seals)?;
    Ok(target.into())
}

/// Leaves the network and, as root, the user. Another user than root stays what it is.
fn become_nobody() -> std::io::Result<()> {
    // SAFETY: the process has one thread and no descriptor table or memory that it shares. Without the right
    // to it this fails, and the other fences stand.
    let _ = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWIPC) };
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // SAFETY: plain system calls; an empty list of groups is not read.
    let results = unsafe {
        [
            libc::setgroups(0, std::ptr::null()),
            libc::setresgid(NOBODY, NOBODY, NOBODY),
            libc::setresuid(NOBODY, NOBODY, NOBODY),
        ]
    };
    if results == [0; 3] { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

type Create = unsafe extern "C" fn() -> *mut c_void;
type Metric = unsafe extern "C" fn(*mut c_void, c_int) -> u64;

/// Loads the copy and asks it.
fn ask(copy: &OwnedFd) -> Result<Offsets, String> {
    let path =
        CString::new(format!("/proc/self/fd/{}", copy.as_raw_fd())).map_err(|error| error.to_string())?;
    // SAFETY: a NUL-terminated path. The library's constructors run: that is what this process is for.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(format!("it cannot be loaded here: {}", loader_error()));
    }
    let create = function(handle, c"rocksdb_perfcontext_create")?;
    let metric = function(handle, c"rocksdb_perfcontext_metric")?;
    // SAFETY: the C API has these functions with these types since 5.11.
    let (create, metric) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Create>(create),
            std::mem::transmute::<*mut c_void, Metric>(metric),
        )
    };
    // SAFETY: `create` takes nothing and gives a structure whose first word points to the calling thread's
    // `PerfContext`, or null.
    let context = unsafe { create() };
    if context.is_null() {
        return Err("it has no PerfContext".into());
    }
    // SAFETY: as above. No known `PerfContext` has fewer than `WORDS` words; if this one has, words of this
    // process, which ends now, are lost, and the answer is checked by who asked.
    unsafe {
        let words = *context.cast::<*mut u64>();
        if words.is_null() {
            return Err("it has no PerfContext".into());
        }
        for index in 0..WORDS {
            words.add(index).write(8 * index as u64);
        }
    }
    // SAFETY: `metric` reads one counter of the structure that `create` gave.
    let offset_of = |number| unsafe { metric(context, number) };
    Ok(Offsets {
        block_cache_hit_count: offset_of(BLOCK_CACHE_HIT_COUNT),
        block_read_count: offset_of(BLOCK_READ_COUNT),
        block_read_byte: offset_of(BLOCK_READ_BYTE),
        internal_key_skipped_count: offset_of(INTERNAL_KEY_SKIPPED_COUNT),
        internal_delete_skipped_count: offset_of(INTERNAL_DELETE_SKIPPED_COUNT),
    })
}

fn function(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: a handle of `dlopen` and a NUL-terminated name.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if address.is_null() {
        Err(format!("it has no function {}", name.to_string_lossy()))
    } else {
        Ok(address)
    }
}

fn loader_error() -> String {
    // SAFETY: null, or a NUL-terminated text that stays until the next call of this thread.
    let message: *const c_char = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the dynamic linker does not say why".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
