//! Makes the calling process one that can only read one directory.
//!
//! Called first thing in the child, before a thread exists and before a foreign byte is read.

use super::wire::Failure;
use rustix::thread::CapabilitySet;
use sexton_sandbox::rooted::{self, Identity};
use sexton_sandbox::{Files, Limits, Sandbox, SandboxError, User, Work};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What the child may use. A MANIFEST of 65,536 files takes well under a second; memory goes to its own code,
/// RocksDB's caches and threads, and some 1 KiB per SST file; RocksDB is told to keep 20 files open.
const LIMITS: Limits = Limits {
    processor_time_seconds: Some(10),
    address_space_bytes: 2 << 30,
    open_files: 256,
    has_children: true,
};

/// An empty directory as far as RocksDB is concerned: it holds no name that could be a file of a
/// database. Given to it as WAL directory, so that it does not replay the target's WALs.
pub const WAL_DIRECTORY: &str = "/proc/self/fdinfo";

/// Opens `directory`, which has to be the one that is `expected`, then gives up all that reading it does not
/// need. The directory must be opened before, since a path below `/proc/PID/root` can no longer be resolved
/// afterwards.
/// Errors: [`Failure::Directory`] if it cannot be opened, [`Failure::Confinement`] if a fence that every
/// kernel has cannot be put up.
pub fn to_directory(directory: &Path, expected: Option<Identity>) -> Result<OwnedFd, Failure> {
    let unconfined = |error: SandboxError| Failure::Confinement { message: error.to_string() };
    sexton_sandbox::end_with_parent().map_err(unconfined)?;
    let descriptor = rooted::open_directory(directory, expected)
        .map_err(|error| Failure::Directory { message: error.to_string() })?;
    let sandbox = Sandbox {
        limits: Some(LIMITS),
        // The one that opens other users' files for reading.
        capabilities: CapabilitySet::DAC_READ_SEARCH,
        user: User::NobodyIfPossible,
        files: Some(Files {
            readable: Some(descriptor.as_fd()),
            listable_places: &[WAL_DIRECTORY],
            ..Files::default()
        }),
        work: Some(Work::ReadsFiles),
        ..Sandbox::default()
    };
    sandbox.enter().map_err(unconfined)?;
    Ok(descriptor)
}
