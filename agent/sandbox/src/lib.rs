//! Short-lived copies of the agent that deal with foreign bytes: how they are started, and the fences that all of
//! them put up around themselves.
//!
//! Several fences, because none is everywhere: resource limits always hold, Landlock where the kernel has it (5.13 and
//! later, unless booted without). What one of them gives up beyond that stands where it is:
//! the reader of SST files reads one directory, the child that asks a library loads it.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::process::{Resource, Rlimit};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Newest Landlock version whose rights are asked for; older kernels enforce what they know.
const LANDLOCK_ABI: ABI = ABI::V6;

/// What such a process may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processor time, seconds.
    pub processor_time_seconds: u64,
    /// Address space, bytes.
    pub address_space_bytes: u64,
    /// Files open at once.
    pub open_files: u64,
}

/// The running program, even if its file has been replaced since.
pub fn own_executable() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Starts `executable`, the agent or a stand-in for it, with a hidden subcommand and the path it is about. It sees
/// nothing of the agent's environment, and only its output is of interest.
///
/// # Errors
/// As the system gives them.
pub fn start(executable: &Path, subcommand: &str, path: &Path) -> std::io::Result<Child> {
    Command::new(executable)
        .arg(subcommand)
        .arg(path)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// Limits what the calling process may use; it writes no file and leaves no core.
///
/// # Errors
/// As the system gives them.
pub fn limit_resources(limits: &Limits) -> rustix::io::Result<()> {
    // SAFETY: SIG_IGN is a valid disposition, and no handler of ours stands on this signal. Ignored, a
    // write beyond the file size limit fails with EFBIG instead of ending the process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let maxima = [
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Cpu, limits.processor_time_seconds),
        (Resource::As, limits.address_space_bytes),
        (Resource::Nofile, limits.open_files),
    ];
    maxima.into_iter().try_for_each(|(resource, maximum)| set_limit(resource, maximum))
}

/// Sets both limits of a resource, for good.
///
/// # Errors
/// As the system gives them.
pub fn set_limit(resource: Resource, maximum: u64) -> rustix::io::Result<()> {
    rustix::process::setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })
}

/// No access to any file but reading below `readable` and listing `listable`, no TCP, no signal to another process.
/// Where the kernel has no Landlock this does nothing, which is not an error: the other fences stand.
///
/// # Errors
/// Of a kernel that has Landlock and refuses.
pub fn allow_only_reading<R: AsFd>(
    readable: impl IntoIterator<Item = R>,
    listable: &[PathFd],
) -> Result<(), RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let readable = readable.into_iter().map(|place| Ok::<_, RulesetError>(PathBeneath::new(place, read)));
    let listable =
        listable.iter().map(|place| Ok::<_, RulesetError>(PathBeneath::new(place, AccessFs::ReadDir)));
    Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
        .handle_access(AccessNet::from_all(LANDLOCK_ABI))?
        .scope(BitFlags::<Scope>::from(Scope::Signal) | Scope::AbstractUnixSocket)?
        .create()?
        .add_rules(readable)?
        .add_rules(listable)?
        .restrict_self()?;
    Ok(())
}
