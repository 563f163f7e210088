//! Directories and files of others, opened so that no name leads to anything but what lies there.
//!
//! A path below `/proc/PID/root` is resolved by the kernel in our own mount namespace as soon as it meets an
//! absolute link, and whoever owns a directory on the way can put a link or a mount there at any time. So a
//! path is resolved below its process' root, without any link: the kernel shows the paths of open files
//! resolved, so a link in one was put there later. What is opened is then compared with what was meant.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Device and inode of a directory.
pub type Identity = (u64, u64);

/// Opens a directory, for what is below it to be opened. `path` may begin with `/proc/PID/root`. Where
/// `expected` is given, it has to be that very directory.
/// Errors: what resolving gives, `ELOOP` for a link among them; `NotFound` for another directory.
pub fn open_directory(path: &Path, expected: Option<Identity>) -> io::Result<OwnedFd> {
    let (root, inside) = split(path);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, &root, flags, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let directory = rustix::fs::openat2(&root, &inside, flags, Mode::empty(), resolve)?;
    let found = rustix::fs::fstat(&directory)?;
    match expected {
        Some(expected) if expected != (found.st_dev, found.st_ino) => {
            Err(io::Error::new(io::ErrorKind::NotFound, "another directory is there now"))
        }
        _ => Ok(directory),
    }
}

/// Opens a regular file in a directory. Looks before it opens, since opening a device can have effects of its
/// own, and opening a pipe waits for its other end.
/// Errors: what opening gives; `InvalidInput` for anything but a regular file, links among it.
pub fn open_regular(directory: impl AsFd, name: impl AsRef<Path>) -> io::Result<File> {
    let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    // A name alone cannot lead anywhere; `openat2`, whose flags no filter sees, is not needed for it.
    let mut parts = name.as_ref().components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else {
        return Err(not_regular());
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    if !found.metadata()?.is_file() {
        return Err(not_regular());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let again = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(File::from(rustix::fs::open(again, flags, Mode::empty())?))
}

/// Whether the file of that name in a directory is the one that `path`, a link below `/proc/PID/fd`, is.
pub fn is_same_file(directory: impl AsFd, name: impl AsRef<Path>, path: &Path) -> bool {
    let named = rustix::fs::statat(directory, name.as_ref(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    match (named, std::fs::metadata(path)) {
        (Ok(named), Ok(open)) => (named.st_dev, named.st_ino) == (open.dev(), open.ino()),
        _ => false,
    }
}

/// The root directory that a path is below, and the rest of it.
fn split(path: &Path) -> (PathBuf, PathBuf) {
    let mut parts = path.components();
    let begins = [Component::RootDir, Component::Normal("proc".as_ref())];
    let is_of_process = begins.into_iter().all(|part| parts.next() == Some(part))
        && parts.next().is_some_and(|part| is_process(part.as_os_str().as_encoded_bytes()))
        && parts.next() == Some(Component::Normal("root".as_ref()));
    let (root, inside) = match is_of_process {
        true => (path.components().take(4).collect(), parts.as_path()),
        false => (PathBuf::from("/"), path.strip_prefix("/").unwrap_or(path)),
    };
    // `openat2` wants some path; the root itself is `.`.
    let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
    (root, inside.to_owned())
}

fn is_process(name: &[u8]) -> bool {
    name == b"self" || name.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    /// A directory whose path has no link in it, as the kernel shows paths.
    fn scratch() -> (PathBuf, impl Drop) {
        struct Gone(PathBuf);
        impl Drop for Gone {
            fn drop(&mut self) {
                let _ = std::fs::remove_dir_all(&self.0);
            }
        }
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("sexton-rooted-{}-{number}", std::process::id());
        let path = std::env::temp_dir().canonicalize().unwrap().join(name);
        std::fs::create_dir(&path).unwrap();
        (path.clone(), Gone(path))
    }

    fn through_root(path: &Path) -> PathBuf {
        Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap())
    }

    #[test]
    fn a_path_is_split_at_the_root_of_its_process() {
        let expect = |path: &str, root: &str, inside: &str| {
            assert_eq!(split(Path::new(path)), (PathBuf::from(root), PathBuf::from(inside)), "{path}");
        };
        expect("/proc/12/root/data/om.db", "/proc/12/root", "data/om.db");
        expect("/proc/12/root", "/proc/12/root", ".");
        expect("/proc/self/root/a", "/proc/self/root", "a");
        expect("/proc/12/cwd/a", "/", "proc/12/cwd/a");
        expect("/proc/sys/root/a", "/", "proc/sys/root/a");
        expect("/data", "/", "data");
        expect("/", "/", ".");
    }

    #[test]
    fn a_directory_that_became_a_link_is_not_opened() {
        let (path, _gone) = scratch();
        std::fs::create_dir_all(path.join("victim/db")).unwrap();
        symlink(path.join("victim"), path.join("mine")).unwrap();
        for form in [path.clone(), through_root(&path)] {
            assert!(open_directory(&form.join("victim/db"), None).is_ok());
            assert!(open_directory(&form.join("mine/db"), None).is_err());
            assert!(open_directory(&form.join("mine"), None).is_err());
        }
    }

    #[test]
    fn another_directory_in_its_place_is_not_the_one_that_was_meant() {
        let (path, _gone) = scratch();
        let database = path.join("db");
        std::fs::create_dir(&database).unwrap();
        let data = std::fs::metadata(&database).unwrap();
        let identity = Some((data.dev(), data.ino()));
        assert!(open_directory(&database, identity).is_ok());
        std::fs::rename(&database, path.join("old")).unwrap();
        std::fs::create_dir(&database).unwrap();
        assert_eq!(open_directory(&database, identity).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn only_regular_files_that_lie_there_are_opened() {
        let (path, _gone) = scratch();
        std::fs::write(path.join("file"), "what is in it").unwrap();
        std::fs::create_dir(path.join("inner")).unwrap();
        symlink("file", path.join("link")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path.join("pipe")).status().unwrap();
        assert!(made.success());
        let directory = open_directory(&path, None).unwrap();
        let mut text = String::new();
        open_regular(&directory, "file").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "what is in it");
        for name in ["inner", "link", "pipe", "../file", "/etc/passwd", "none", "."] {
            assert!(open_regular(&directory, name).is_err(), "{name}");
        }
    }
}
