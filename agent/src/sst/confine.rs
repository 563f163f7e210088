//! Makes the calling process one that can only read one directory.
//!
//! Called first thing in the child, before a thread exists and before a foreign byte is read. Several
//! fences, because none is everywhere: resource limits always hold, Landlock where the kernel has it
//! (5.13 and later, unless booted without), capabilities where the process had any.

use super::wire::Failure;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Processor time the child may use, seconds: a MANIFEST of 65,536 files takes well under one.
const PROCESSOR_TIME_SECONDS_MAX: u64 = 10;
/// Address space of the child: its own code, RocksDB's caches and threads, and some 1 KiB per SST file.
const ADDRESS_SPACE_BYTES_MAX: u64 = 2 << 30;
/// Files the child may have open at once; RocksDB is told to keep 20.
const OPEN_FILES_MAX: u64 = 256;
/// Newest Landlock version whose rights are asked for; older kernels enforce what they know.
const LANDLOCK_ABI: ABI = ABI::V6;

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
    limit_resources().map_err(|error| fences("setrlimit", &error))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::open(directory, flags, Mode::empty())
        .map_err(|error| Failure::Directory { message: error.to_string() })?;
    rustix::thread::set_no_new_privs(true).map_err(|error| fences("PR_SET_NO_NEW_PRIVS", &error))?;
    drop_capabilities().map_err(|error| fences("capset", &error))?;
    allow_only_reading(&descriptor).map_err(|error| fences("landlock", &error))?;
    Ok(descriptor)
}

fn limit_resources() -> rustix::io::Result<()> {
    // SAFETY: SIG_IGN is a valid disposition, and no handler of ours stands on this signal. Ignored, a
    // write beyond the file size limit fails with EFBIG instead of ending the process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limits = [
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Cpu, PROCESSOR_TIME_SECONDS_MAX),
        (Resource::As, ADDRESS_SPACE_BYTES_MAX),
        (Resource::Nofile, OPEN_FILES_MAX),
    ];
    for (resource, maximum) in limits {
        rustix::process::setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })?;
    }
    Ok(())
}

/// Keeps the one capability that opens other users' files for reading, if the process has it.
fn drop_capabilities() -> rustix::io::Result<()> {
    let had = rustix::thread::capabilities(None)?;
    let kept = had.permitted & CapabilitySet::DAC_READ_SEARCH;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}

/// No access to any file but reading below `directory`, no TCP, no signal to another process. Where the
/// kernel has no Landlock this does nothing, which is not an error: the other fences stand.
fn allow_only_reading(directory: &OwnedFd) -> Result<(), Box<dyn std::error::Error>> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
        .handle_access(AccessNet::from_all(LANDLOCK_ABI))?
        .scope(BitFlags::<Scope>::from(Scope::Signal) | Scope::AbstractUnixSocket)?
        .create()?
        .add_rule(PathBeneath::new(directory, read))?
        .add_rule(PathBeneath::new(PathFd::new(WAL_DIRECTORY)?, AccessFs::ReadDir))?
        .restrict_self()?;
    Ok(())
}
