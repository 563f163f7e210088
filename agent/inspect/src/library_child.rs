//! The short-lived process that loads a foreign RocksDB library and asks it where its counters are.
//!
//! Loading runs whatever the library's constructors do. So the process first copies the library into memory
//! of its own, and then gives up everything: it becomes nobody, without capabilities, without a way to files
//! but the system's libraries, to the network, or to other processes, with little time and memory.

use super::library::{Answer, Offsets, WORDS};
use rustix::fs::{MemfdFlags, SealFlags};
use sexton_sandbox::{Files, Limits, Sandbox, User, Work};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Largest library that is loaded: with debug information RocksDB reaches some hundred megabytes.
const LIBRARY_BYTES_MAX: u64 = 1 << 30;
/// What it may use: memory for the library twice, what it links to, and a heap; the files of a library and of
/// what it links to.
const LIMITS: Limits = Limits {
    processor_time_seconds: Some(3),
    address_space_bytes: 4 << 30,
    open_files: 64,
    has_children: false,
};
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
    sexton_sandbox::end_with_parent().map_err(|error| error.to_string())?;
    let copy = copy(library).map_err(|error| format!("it cannot be copied: {error}"))?;
    let sandbox = Sandbox {
        limits: Some(LIMITS),
        user: User::Nobody,
        work: Some(Work::RunsCode),
        files: Some(Files { readable_places: &LIBRARY_PLACES, ..Files::default() }),
        ..Sandbox::default()
    };
    sandbox.enter().map_err(|error| error.to_string())?;
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
