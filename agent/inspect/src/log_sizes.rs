//! How long the files are in which RocksDB writes down what changes: the WAL, which tells what was written
//! since the last look, and MANIFEST and OPTIONS, which are as they were where neither files nor options have
//! changed.

use super::facts::DatabaseDirectory;
use sexton_sandbox::rooted;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

/// Entries of the directory that are looked at: more than a database of 65,536 SST files has.
const ENTRIES_MAX: usize = 131_072;

/// Files of either kind that are told; some WAL files are kept until all column families were flushed.
const FILES_MAX: usize = 1024;

/// Sizes of a database's log files, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSizes {
    /// WAL files, by their number. There are none where the database has them elsewhere.
    pub wal: BTreeMap<u64, u64>,
    /// MANIFEST and OPTIONS files, by name.
    pub metadata: BTreeMap<String, u64>,
}

/// Those in a database's directory.
/// Errors: what reading the directory gives.
pub fn read(database: &DatabaseDirectory) -> io::Result<LogSizes> {
    let opened = rooted::open_directory(&database.path_from_agent, database.place())?;
    let mut sizes = LogSizes::default();
    for entry in std::fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd()))?.take(ENTRIES_MAX) {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let wal = wal_number(name);
        let is_metadata = name.starts_with("MANIFEST-") || name.starts_with("OPTIONS-");
        if wal.is_none() && !is_metadata {
            continue;
        }
        // Of the entry itself: no link is followed.
        let Some(file) = entry.metadata().ok().filter(std::fs::Metadata::is_file) else { continue };
        match wal {
            Some(number) if sizes.wal.len() < FILES_MAX => drop(sizes.wal.insert(number, file.len())),
            None if sizes.metadata.len() < FILES_MAX => {
                sizes.metadata.insert(name.to_owned(), file.len());
            }
            _ => {}
        }
    }
    Ok(sizes)
}

fn wal_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_log_files_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let files = [
            ("000007.log", "four"),
            ("000008.log", ""),
            ("LOG", "x"),
            ("000009.sst", "data"),
            ("MANIFEST-000005", "edits"),
            ("OPTIONS-000006", "[]"),
        ];
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        std::os::unix::fs::symlink("000007.log", directory.path().join("000010.log")).unwrap();
        let database = DatabaseDirectory {
            path: directory.path().to_owned(),
            path_from_agent: directory.path().to_owned(),
            is_read_only: false,
            inode: 0,
            device: None,
        };
        let sizes = read(&database).unwrap();
        assert_eq!(sizes.wal, BTreeMap::from([(7, 4), (8, 0)]));
        let metadata = [("MANIFEST-000005", 5), ("OPTIONS-000006", 2)];
        assert_eq!(sizes.metadata, metadata.map(|(name, size)| (name.to_owned(), size)).into());
        assert!(read(&DatabaseDirectory { path_from_agent: "/nowhere/at/all".into(), ..database }).is_err());
    }
}
