//! Symbols in a separate file with debug information, as distributions put them into
//! `/usr/lib/debug/.build-id/`.
//!
//! Finding and opening it is the agent's part, reading it that of the process that examines it.

use super::elf::{ElfError, ElfHeaders, Symbol};
use super::source::Source;
use super::symbols::WANTED;
use rustix::fs::{CWD, Mode, OFlags, openat};
use sexton_sandbox::rooted::{self, Links};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Digits of a build id: SHA-1 has 40; linkers make none that is longer than a SHA-512.
const BUILD_ID_DIGITS: std::ops::RangeInclusive<usize> = 4..=128;

/// Those of the wanted symbols that a debug file has, by name.
pub type DebugSymbols = BTreeMap<String, Symbol>;

/// The wanted symbols in a debug file, if it is that of this build.
/// Errors: [`ElfError`] where it cannot be understood, or reading it is too much.
pub(super) fn symbols(source: &Source<'_>, build_id: &str) -> Result<DebugSymbols, ElfError> {
    let headers = ElfHeaders::read_without_code(source)?;
    // Whoever put it there may have taken another build's.
    if headers.build_id(source).as_deref() != Some(build_id) {
        return Ok(DebugSymbols::new());
    }
    let found = headers.symbols(source, &WANTED)?;
    source.allowance().check()?;
    Ok(found.into_iter().map(|(name, symbol)| (name.to_owned(), symbol)).collect())
}

/// The debug file of a build below a root directory; `None` where there is none.
pub(super) fn find(root: &Path, build_id: &str) -> Option<File> {
    open(root, &relative_path(build_id)?)
}

fn relative_path(build_id: &str) -> Option<PathBuf> {
    let plain = build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (first, rest) =
        build_id.split_at_checked(2).filter(|_| plain && BUILD_ID_DIGITS.contains(&build_id.len()))?;
    Some(PathBuf::from(format!("usr/lib/debug/.build-id/{first}/{rest}.debug")))
}

/// Opens a regular file below a root directory, which may be another process's: links lead nowhere out of
/// it. Looks before it opens, since opening a device can have effects of its own.
fn open(root: &Path, path: &Path) -> Option<File> {
    let directory =
        openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let found = File::from(rooted::open_inside(&directory, path, Links::Followed).ok()?);
    let is_regular = found.metadata().ok()?.is_file();
    // Whoever holds a lease on the file is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let again = || openat(CWD, format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty()).ok();
    is_regular.then(again)?.map(File::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn a_build_id_names_a_path_and_nothing_else_does() {
        let path = relative_path("a1b2c3d4").unwrap();
        assert_eq!(path, Path::new("usr/lib/debug/.build-id/a1/b2c3d4.debug"));
        for wrong in ["", "a", "../../etc", "a1/b2", "é1b2c3"] {
            assert_eq!(relative_path(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_link_leads_nowhere_out_of_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("inside"), "x").unwrap();
        std::os::unix::fs::symlink("/inside", root.path().join("absolute")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("outside")).unwrap();
        assert!(open(root.path(), Path::new("absolute")).is_some());
        assert!(open(root.path(), Path::new("outside")).is_none());
        assert!(open(root.path(), Path::new(".")).is_none());
    }
}
