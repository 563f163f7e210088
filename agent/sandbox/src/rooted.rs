//! Directories and files of others, opened so that no name leads to anything but what lies there.
//!
//! A path below `/proc/PID/root` is resolved by the kernel in our own mount namespace as soon as it meets an
//! absolute link, and whoever owns a directory on the way can put a link or a mount there at any time. So a
//! path is resolved below its process' root, without any link: the kernel shows the paths of open files
//! resolved, so a link in one was put there later. What is opened is then compared with what was meant.
//!
//! `openat2` would do this in one call, but systemd refuses it to every service with `RestrictSUIDSGID=`, and
//! so to every one with `DynamicUser=`: no filter sees the flags behind its pointer.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links that are followed in one path: as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// What becomes of symbolic links in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Opening fails.
    Refused,
    /// They lead where their text leads below the same root, those of `/proc` too.
    Followed,
}

/// Opens what `path` leads to below `root`, which it cannot leave, for looking (`O_PATH`).
/// Errors: what opening gives; `ELOOP` for a link that is refused, and for too many of them.
pub fn open_inside(root: impl AsFd, path: &Path, links: Links) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |directory: &OwnedFd, name: &OsStr| rustix::fs::openat(directory, name, flags, Mode::empty());
    let root = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    // Where we are: each directory lies in the one before it, so that `..` needs no look at the file system.
    let mut places = Vec::new();
    let mut rest: Vec<OsString> = steps(path);
    let mut links_followed = 0;
    while let Some(step) = rest.pop() {
        let here = places.last().unwrap_or(&root);
        if step == ".." {
            places.pop();
            continue;
        }
        if step == "/" {
            places.clear();
            continue;
        }
        let next = open(here, &step)?;
        if FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) != FileType::Symlink {
            places.push(next);
            continue;
        }
        links_followed += 1;
        if links == Links::Refused || links_followed > LINKS_MAX {
            return Err(rustix::io::Errno::LOOP.into());
        }
        let text = rustix::fs::readlinkat(&next, "", Vec::new())?.into_bytes();
        rest.extend(steps(Path::new(&OsString::from_vec(text))));
    }
    Ok(places.pop().unwrap_or(root))
}

/// The steps of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let steps = path.components().filter(|step| *step != Component::CurDir);
    let mut steps: Vec<OsString> = steps.map(|step| step.as_os_str().to_owned()).collect();
    steps.reverse();
    steps
}

/// Device and inode of a directory.
pub type Identity = (u64, u64);

/// Opens a directory, for what is below it to be opened. `path` may begin with `/proc/PID/root`. Where
/// `expected` is given, it has to be that very directory.
/// Errors: what resolving gives, `ELOOP` for a link among them; `NotFound` for another directory.
pub fn open_directory(path: &Path, expected: Option<Identity>) -> io::Result<OwnedFd> {
    let (root, inside) = split(path);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, &root, flags, Mode::empty())?;
    let directory = open_inside(&root, &inside, Links::Refused)?;
    let found = rustix::fs::fstat(&directory)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(rustix::io::Errno::NOTDIR.into());
    }
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
    // A name alone cannot lead anywhere.
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
    let named = rustix::fs::statat(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW);
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
        expect("/proc/12/root", "/proc/12/root", "");
        expect("/proc/self/root/a", "/proc/self/root", "a");
        expect("/proc/12/cwd/a", "/", "proc/12/cwd/a");
        expect("/proc/sys/root/a", "/", "proc/sys/root/a");
        expect("/data", "/", "data");
        expect("/", "/", "");
    }

    #[test]
    fn links_are_followed_below_the_root_only() {
        let (path, _gone) = scratch();
        std::fs::create_dir_all(path.join("deep/er")).unwrap();
        std::fs::write(path.join("deep/file"), "").unwrap();
        let links = [
            ("absolute", "/deep/file"),
            ("upwards", "deep/er/../../../../deep/file"),
            ("over", "absolute"),
            ("etc", "/etc/passwd"),
            ("self", "self"),
        ];
        for (name, text) in links {
            symlink(text, path.join(name)).unwrap();
        }
        let root = File::open(&path).unwrap();
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
        let meant = std::fs::metadata(path.join("deep/file")).unwrap().ino();
        for name in
            ["deep/file", "/deep/./file", "../deep/file", "absolute", "upwards", "over", "deep/er/../file"]
        {
            assert_eq!(
                inode(&open_inside(&root, Path::new(name), Links::Followed).unwrap()),
                meant,
                "{name}"
            );
        }
        for name in ["etc", "self", "deep/file/more", "none"] {
            assert!(open_inside(&root, Path::new(name), Links::Followed).is_err(), "{name}");
        }
        assert!(open_inside(&root, Path::new("absolute"), Links::Refused).is_err());
        for name in ["", "/", ".", "..", "deep/.."] {
            let found = open_inside(&root, Path::new(name), Links::Refused).unwrap();
            assert_eq!(inode(&found), root.metadata().unwrap().ino(), "{name}");
        }
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
