//! Symbols in a separate file with debug information, as distributions put them into
//! `/usr/lib/debug/.build-id/`.

use super::elf::{ElfError, ElfHeaders, Symbol};
use super::source::{Allowance, Source};
use rustix::fs::{CWD, Mode, OFlags, openat};
use sexton_sandbox::rooted::{self, Links};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Bytes of a build id: SHA-1 has 20; linkers make none that is longer than a SHA-512.
const BUILD_ID_DIGITS: std::ops::RangeInclusive<usize> = 4..=128;

/// The wanted symbols in the debug file of this build id below one of these root directories; none where
/// there is no such file, or none that can be understood. Reading it is part of examining the file that it is
/// for.
pub(super) fn symbols(
    build_id: &str,
    roots: &[PathBuf],
    wanted: &[&'static str],
    allowance: &Allowance,
) -> Result<BTreeMap<&'static str, Symbol>, ElfError> {
    let found = roots.iter().find_map(|root| read(root, build_id, wanted, allowance));
    allowance.check()?;
    Ok(found.unwrap_or_default())
}

fn read(
    root: &Path,
    build_id: &str,
    wanted: &[&'static str],
    allowance: &Allowance,
) -> Option<BTreeMap<&'static str, Symbol>> {
    let file = open(root, &relative_path(build_id)?)?;
    let source = Source::of_file(&file, allowance).ok()?;
    let headers = ElfHeaders::read_without_code(&source).ok()?;
    // Whoever put it there may have taken another build's.
    (headers.build_id(&source)? == build_id).then(|| headers.symbols(&source, wanted).ok())?
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
    is_regular.then(|| File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).ok())?
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
