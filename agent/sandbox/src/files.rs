//! The files that a process in a sandbox can reach, by Landlock.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope,
};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Newest Landlock version whose rights are asked for; older kernels enforce what they know.
const LANDLOCK_ABI: ABI = ABI::V6;

/// All files that can be reached. No other one is read or written, nothing is listened at or connected to by
/// TCP, and no signal goes to another process.
#[derive(Debug, Default)]
pub struct Files<'a> {
    /// A directory below which files are read, opened before.
    pub readable: Option<BorrowedFd<'a>>,
    /// Places that are read, with what is below them. One that is not there holds nothing.
    pub readable_places: &'a [&'a str],
    /// Directories that are listed, and of which no file is read.
    pub listable_places: &'a [&'a str],
}

impl Files<'_> {
    /// Where the kernel has no Landlock this does nothing, which is not an error: the other fences stand.
    pub(super) fn allow_nothing_else(&self) -> Result<(), RulesetError> {
        let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
        let readable = open(self.readable_places);
        let listable = open(self.listable_places);
        let given = self.readable.iter().map(|place| Ok::<_, RulesetError>(PathBeneath::new(*place, read)));
        let readable = readable.iter().map(|place| Ok::<_, RulesetError>(PathBeneath::new(place, read)));
        let listable =
            listable.iter().map(|place| Ok::<_, RulesetError>(PathBeneath::new(place, AccessFs::ReadDir)));
        Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
            .handle_access(AccessNet::from_all(LANDLOCK_ABI))?
            .scope(BitFlags::<Scope>::from(Scope::Signal) | Scope::AbstractUnixSocket)?
            .create()?
            .add_rules(given)?
            .add_rules(readable)?
            .add_rules(listable)?
            .restrict_self()?;
        Ok(())
    }
}

/// The version of Landlock that this kernel has; `None` where it has none, or was booted without.
pub fn landlock_version() -> Option<u32> {
    /// `LANDLOCK_CREATE_RULESET_VERSION`.
    const VERSION: libc::c_uint = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: asked for its version the call takes no attributes, makes nothing and gives a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

fn open(places: &[&str]) -> Vec<OwnedFd> {
    let open = |place: &&str| rustix::fs::open(*place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    places.iter().filter_map(open).collect()
}
