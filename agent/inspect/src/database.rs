//! Which databases a process has open, from its file descriptors.
//!
//! RocksDB keeps `LOCK` open as long as a database is open for writing; a read-only or secondary instance
//! shows by its SST, `MANIFEST` or log files, none of which it has open for writing. What is inside those
//! files is the business of `sst`.

use super::facts::DatabaseDirectory;
use super::process::inside_and_from_agent;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use sexton_sandbox::rooted;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Descriptors of one process that are looked at: `max_open_files=-1` keeps every SST open, and a large
/// store has some hundred thousand.
pub const DESCRIPTORS_MAX: usize = 1 << 20;

/// Databases of one process: an Ozone datanode opens one for each volume, a Kafka Streams application one
/// for each task.
pub const DIRECTORIES_MAX: usize = 256;

/// Entries of a database directory that are looked at for its newest `OPTIONS` file.
pub const ENTRIES_MAX: usize = 1 << 20;

/// Open files of one directory that are compared with what lies there: files of a database are deleted while
/// it is looked at.
const WITNESSES_MAX: usize = 16;

/// A file that a process has open.
struct OpenFile {
    name: OsString,
    /// `/proc/PID/fd/NUMBER`.
    descriptor: PathBuf,
}

/// The databases of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenDatabases {
    /// Directories, those open for writing first, each group in order of path.
    pub directories: Vec<DatabaseDirectory>,
    /// Whether a limit cut the search short.
    pub truncated: bool,
}

/// What an open file says of its directory; the greater, the surer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sign {
    /// `*.sst`, `*.log` or `MANIFEST-*`.
    DataFile,
    /// `*.log` or `MANIFEST-*`, open for writing: an environment of the program's own may do without the
    /// lock.
    WrittenFile,
    /// `LOCK`, which its owner keeps open as long as the database is open.
    Lock,
}

/// Finds the databases that a process has open.
/// Errors: what reading `/proc/PID/fd` gives. Single descriptors that vanish meanwhile are skipped.
pub fn find(pid: u32) -> io::Result<OpenDatabases> {
    let proc = Path::new("/proc").join(pid.to_string());
    let mut found = OpenDatabases::default();
    // Directory -> the surest sign, and the files that gave it.
    let mut signs: BTreeMap<PathBuf, (Sign, Vec<OpenFile>)> = BTreeMap::new();
    for (number, entry) in std::fs::read_dir(proc.join("fd"))?.enumerate() {
        if number >= DESCRIPTORS_MAX {
            found.truncated = true;
            break;
        }
        let Ok(entry) = entry else { continue };
        let descriptor = entry.path();
        let Ok(link) = std::fs::read_link(&descriptor) else { continue };
        let Some((directory, sign)) = classify(&link, || is_open_for_writing(&descriptor)) else { continue };
        let Some(name) = link.file_name().map(OsStr::to_owned) else { continue };
        let file = OpenFile { name, descriptor };
        // Some more than the limit, as not every one proves to be a database.
        let is_full = signs.len() >= 4 * DIRECTORIES_MAX;
        match signs.get_mut(&directory) {
            Some(known) if known.0 < sign => *known = (sign, vec![file]),
            Some((known, files)) if *known == sign && files.len() < WITNESSES_MAX => files.push(file),
            Some(_) => {}
            None if is_full => found.truncated = true,
            None => {
                signs.insert(directory, (sign, vec![file]));
            }
        }
    }
    let mut databases: Vec<(Sign, DatabaseDirectory)> = signs
        .into_iter()
        .filter_map(|(shown, (sign, files))| Some((sign, reach(pid, &shown, sign, &files)?)))
        .collect();
    databases.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.path.cmp(&b.1.path)));
    found.truncated |= databases.len() > DIRECTORIES_MAX;
    databases.truncate(DIRECTORIES_MAX);
    found.directories = databases.into_iter().map(|(_, directory)| directory).collect();
    Ok(found)
}

/// The directory that an open file belongs to, when its name is one of RocksDB's. A file that was deleted is
/// none: what is in that directory now need not be what was there.
fn classify(link: &Path, is_written: impl FnOnce() -> bool) -> Option<(PathBuf, Sign)> {
    if !link.is_absolute() {
        return None;
    }
    let name = link.file_name()?.to_str()?;
    let sign = if name == "LOCK" {
        Some(Sign::Lock)
    } else {
        let is_appended_to = !name.ends_with(".sst");
        let sign = || if is_appended_to && is_written() { Sign::WrittenFile } else { Sign::DataFile };
        is_data_file(name).then(sign)
    };
    Some((link.parent()?.to_path_buf(), sign?))
}

/// The kernel shows a descriptor as a link whose permissions are the ways in which it was opened.
fn is_open_for_writing(descriptor: &Path) -> bool {
    std::fs::symlink_metadata(descriptor).is_ok_and(|link| link.mode() & libc::S_IWUSR != 0)
}

fn is_data_file(name: &str) -> bool {
    let numbered = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let manifest = name.strip_prefix("MANIFEST-").is_some_and(numbered);
    manifest || [".sst", ".log"].iter().any(|suffix| name.strip_suffix(suffix).is_some_and(numbered))
}

/// The directory as its process sees it and as it is reached from here, if it holds a RocksDB and one of the
/// files that the process has open: its owner can put a link, a mount or another directory in its place, and
/// have us read what it may not read itself.
fn reach(pid: u32, shown: &Path, sign: Sign, files: &[OpenFile]) -> Option<DatabaseDirectory> {
    let (path, path_from_agent) = inside_and_from_agent(pid, shown);
    let directory = rooted::open_directory(&path_from_agent, None).ok()?;
    let is_there = |file: &OpenFile| rooted::is_same_file(&directory, &file.name, &file.descriptor);
    if !files.iter().any(is_there) || !is_rocksdb(&directory) {
        return None;
    }
    let status = rustix::fs::fstat(&directory).ok();
    Some(DatabaseDirectory {
        path,
        path_from_agent,
        is_read_only: sign == Sign::DataFile,
        inode: status.as_ref().map_or(0, |status| status.st_ino),
        device: status.as_ref().map(|status| status.st_dev),
    })
}

/// Whether a directory holds a RocksDB: LevelDB has a `CURRENT`, too, but neither of the others.
fn is_rocksdb(directory: &OwnedFd) -> bool {
    let is_file = |name: &str| {
        let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile)
    };
    is_file("CURRENT") && (is_file("IDENTITY") || newest_options_file(directory).is_some())
}

/// The name of a database's `OPTIONS` file that has the greatest number.
pub fn newest_options_file(directory: &OwnedFd) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = rustix::fs::openat(directory, ".", flags, Mode::empty()).ok()?;
    let entries = rustix::fs::Dir::read_from(listing).ok()?.take(ENTRIES_MAX);
    let numbered = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().to_str().ok()?;
        Some((name.strip_prefix("OPTIONS-")?.parse::<u64>().ok()?, name.to_owned()))
    });
    numbered.max().map(|(_, name)| name)
}

/// Reads the first bytes of a regular file in a directory that somebody else controls.
/// Errors: what opening and reading gives; `InvalidInput` for anything but a regular file.
pub(super) fn read_head(directory: &OwnedFd, name: &str, length_max: u64) -> io::Result<Vec<u8>> {
    let file = rooted::open_regular(directory, name)?;
    let mut content = Vec::new();
    file.take(length_max).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "tests"
    )]
    use super::*;
    use std::fs::File;

    fn sign_of(link: &str) -> Option<(String, Sign)> {
        classify(Path::new(link), || false).map(|(path, sign)| (path.display().to_string(), sign))
    }

    #[test]
    fn names_of_rocksdb_are_known() {
        assert_eq!(sign_of("/data/om.db/LOCK"), Some(("/data/om.db".into(), Sign::Lock)));
        for name in ["000012.sst", "000013.log", "MANIFEST-000005"] {
            assert_eq!(sign_of(&format!("/data/om.db/{name}")), Some(("/data/om.db".into(), Sign::DataFile)));
        }
        let others = [
            "/d/LOCK (deleted)",
            "/d/000012.sst (deleted)",
            "/d/.sst",
            "/d/a.sst",
            "/d/MANIFEST-",
            "/d/server.log",
            "socket:[12]",
            "/",
        ];
        for link in others {
            assert_eq!(sign_of(link), None, "{link}");
        }
    }

    /// A directory that looks like a database, with its lock held open by this process.
    fn make_database(directory: &Path) -> File {
        std::fs::create_dir_all(directory).unwrap();
        for (name, content) in [("CURRENT", "MANIFEST-000005\n"), ("IDENTITY", "an identity")] {
            std::fs::write(directory.join(name), content).unwrap();
        }
        File::create(directory.join("LOCK")).unwrap()
    }

    #[test]
    fn an_open_lock_shows_the_database_and_a_closed_one_does_not() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        let open = root.join("with space").join("open.db");
        let _lock = make_database(&open);
        drop(make_database(&root.join("closed.db")));
        let leveldb = root.join("level.db");
        let _other = make_database(&leveldb);
        std::fs::remove_file(leveldb.join("IDENTITY")).unwrap();

        let found = find(std::process::id()).unwrap();
        let ours: Vec<_> = found.directories.iter().filter(|d| d.path.starts_with(&root)).collect();
        assert_eq!(ours.len(), 1);
        assert_eq!(ours[0].path, open);
        assert!(ours[0].path_from_agent.starts_with(format!("/proc/{}/root", std::process::id())));
        assert!(ours[0].path_from_agent.join("CURRENT").is_file());
    }

    /// As RocksDB holds them: a read-only instance reads the manifest and lets go of it, and keeps SST files
    /// open.
    #[test]
    fn a_database_without_lock_and_written_files_is_read_only() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().canonicalize().unwrap();
        let [live, read, lockless] = ["live.db", "read.db", "lockless.db"].map(|name| root.join(name));
        let _lock = make_database(&live);
        drop((make_database(&read), make_database(&lockless)));
        for directory in [&live, &read, &lockless] {
            std::fs::write(directory.join("000007.sst"), "").unwrap();
            std::fs::write(directory.join("MANIFEST-000005"), "").unwrap();
        }
        let _tables = [&live, &read].map(|directory| File::open(directory.join("000007.sst")).unwrap());
        let _manifest = File::open(read.join("MANIFEST-000005")).unwrap();
        let _written = File::options().append(true).open(lockless.join("MANIFEST-000005")).unwrap();

        let found = find(std::process::id()).unwrap();
        let shown = found.directories.iter().filter(|directory| directory.path.starts_with(&root));
        let shown: Vec<_> = shown.map(|directory| (directory.path.clone(), directory.is_read_only)).collect();
        assert_eq!(shown, [(live, false), (lockless, false), (read, true)]);
    }

    #[test]
    fn the_newest_options_file_is_the_one_with_the_greatest_number() {
        let directory = tempfile::tempdir().unwrap();
        for name in
            ["OPTIONS-000007", "OPTIONS-000012", "OPTIONS-000099.dbtmp", "OPTIONS-1000000", "000001.sst"]
        {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let opened = rooted::open_directory(directory.path(), None).unwrap();
        assert_eq!(newest_options_file(&opened).as_deref(), Some("OPTIONS-1000000"));
    }

    #[test]
    fn a_link_or_a_directory_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("LOG")).unwrap();
        std::fs::write(directory.path().join("plain"), "0123456789").unwrap();
        let opened = rooted::open_directory(directory.path(), None).unwrap();
        assert!(read_head(&opened, "LOG", 10).is_err());
        assert!(read_head(&opened, ".", 10).is_err());
        assert_eq!(read_head(&opened, "plain", 4).unwrap(), b"0123");
    }

    /// Who may read a directory's name, but not what is in it, has the agent read it.
    #[test]
    fn a_link_where_a_directory_was_leads_to_no_other_database() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let victim = root.join("victim/db");
        let _lock = make_database(&victim);
        std::fs::write(victim.join("000012.log"), "").unwrap();
        let mine = root.join("mine");
        let before = |name: &str| {
            std::fs::create_dir_all(mine.join("db")).unwrap();
            File::create(mine.join("db").join(name)).unwrap()
        };
        for name in ["000012.log", "000012.sst", "MANIFEST-000001", "LOCK"] {
            let open = before(name);
            // Deleted with its directory, and a link put in its place.
            std::fs::remove_dir_all(&mine).unwrap();
            std::os::unix::fs::symlink(root.join("victim"), &mine).unwrap();
            let found = find(std::process::id()).unwrap();
            assert!(found.directories.iter().all(|found| !found.path.starts_with(&mine)), "{name}");
            std::fs::remove_file(&mine).unwrap();
            drop(open);
        }
    }
}
