//! Makes the calling process one that can only read one directory.
//!
//! Called first thing in the child, before a thread exists and before a foreign byte is read. Beyond the fences of
//! [`sexton_sandbox`] it gives up its capabilities.

use super::wire::Failure;
use landlock::PathFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, CapabilitySets};
use sexton_sandbox::{Limits, allow_only_reading, limit_resources};
use std::os::fd::OwnedFd;
use std::path::Path;

/// What the child may use. A MANIFEST of 65,536 files takes well under a second; memory goes to its own code, RocksDB's
/// caches and threads, and some 1 KiB per SST file; RocksDB is told to keep 20 files open.
const LIMITS: Limits = Limits { processor_time_seconds: 10, address_space_bytes: 2 << 30, open_files: 256 };

/// An empty directory as far as RocksDB is concerned: it holds no name that could be a file of a
/// database. Given to it as WAL directory, so that it does not replay the target's WALs.
pub const WAL_DIRECTORY: &str = "/proc/self/fdinfo";

/// Opens `directory`, then gives up all that reading it does not need. The directory must be opened
/// before, since a path below `/proc/PID/root` can no longer be resolved afterwards.
///
/// # Errors
/// [`Failure::Directory`] if it cannot be opened, [`Failure::Confinement`] if a fence that every
/// kernel has cannot be put up.
pub fn to_directory(directory: &Path) -> Result<OwnedFd, Failure> {
    let fences = |what: &str, error: &dyn std::fmt::Display| Failure::Confinement {
        message: format!("{what}: {error}"),
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| fences("PR_SET_PDEATHSIG", &error))?;
    limit_resources(&LIMITS).map_err(|error| fences("setrlimit", &error))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open(directory, flags, Mode::empty())
        .map_err(|error| Failure::Directory { message: error.to_string() })?;
    rustix::thread::set_no_new_privs(true).map_err(|error| fences("PR_SET_NO_NEW_PRIVS", &error))?;
    drop_capabilities().map_err(|error| fences("capset", &error))?;
    let listable = [PathFd::new(WAL_DIRECTORY).map_err(|error| fences("landlock", &error))?];
    allow_only_reading([&descriptor], &listable).map_err(|error| fences("landlock", &error))?;
    Ok(descriptor)
}

/// Keeps the one capability that opens other users' files for reading, if the process has it.
fn drop_capabilities() -> rustix::io::Result<()> {
    let had = rustix::thread::capabilities(None)?;
    let kept = had.permitted & CapabilitySet::DAC_READ_SEARCH;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}
