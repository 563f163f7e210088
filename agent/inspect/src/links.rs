//! Which SST files of a database have hard links elsewhere, and when its files and its directory were born.
//!
//! Only metadata is read: one look at each file of the directory. What they tell of the database is decided
//! in [`sexton_tuner::lineage`].

use super::facts::DatabaseDirectory;
use sexton_sandbox::rooted;
use sexton_tuner::lineage::{EldestFile, Inode, LinkedFile, Links};
use std::fs::Metadata;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// SST files of one database that are looked at. A checkpoint shares most of its files at first, so that
/// these tell enough of any.
pub const SST_FILES_MAX: usize = 65_536;

/// Reads a database's links.
/// Errors: what reading the directory gives. Files that vanish meanwhile are left out.
pub fn read(database: &DatabaseDirectory) -> io::Result<Links> {
    // Whoever owns it can put a link to another directory in its place.
    let opened = rooted::open_directory(&database.path_from_agent, database.place())?;
    let opened_path = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let directory = std::fs::metadata(&opened_path)?;
    let entries = std::fs::read_dir(&opened_path)?;
    let numbered = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        Some((sst_number(entry.file_name().to_str()?)?, entry))
    });
    let mut links = Links {
        directory: database.path.display().to_string(),
        inode: inode(&directory),
        born_unix_ns: born_unix_ns(&directory),
        ..Links::default()
    };
    for (number, entry) in numbered.take(SST_FILES_MAX) {
        // Of the entry itself: no link is followed.
        let Some(metadata) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
        let born = born_unix_ns(&metadata);
        let is_elder = |born: &i64| links.eldest.is_none_or(|eldest| *born < eldest.born_unix_ns);
        if let Some(born_unix_ns) = born.filter(is_elder) {
            links.eldest = Some(EldestFile { number, born_unix_ns });
        }
        if metadata.nlink() > 1 {
            links.files.push(LinkedFile { number, inode: inode(&metadata), born_unix_ns: born });
        }
    }
    Ok(links)
}

fn sst_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".sst")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn inode(metadata: &Metadata) -> Inode {
    Inode { device: metadata.dev(), number: metadata.ino() }
}

/// `None` where the file system keeps no birth time, or one from before the epoch.
fn born_unix_ns(metadata: &Metadata) -> Option<i64> {
    let since_epoch = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_epoch.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::lineage::{Lineage, lineages};
    use std::path::Path;
    use std::time::Duration;

    fn database(path: &Path) -> DatabaseDirectory {
        DatabaseDirectory {
            path: path.to_owned(),
            path_from_agent: path.to_owned(),
            is_read_only: false,
            inode: 0,
            device: None,
        }
    }

    /// Births are as coarse as the kernel's clock, which moves on every few milliseconds.
    fn let_the_clock_move_on() {
        std::thread::sleep(Duration::from_millis(30));
    }

    #[test]
    fn a_directory_of_hard_links_is_told_from_the_one_that_the_files_were_born_in() {
        let directory = tempfile::tempdir().unwrap();
        let [live, checkpoint] = ["live", "checkpoint"].map(|name| directory.path().join(name));
        std::fs::create_dir(&live).unwrap();
        let_the_clock_move_on();
        for name in ["000007.sst", "000008.sst", "000009.log", "other.sst"] {
            std::fs::write(live.join(name), "data").unwrap();
        }
        let_the_clock_move_on();
        std::fs::create_dir(&checkpoint).unwrap();
        for name in ["000007.sst", "000009.log", "other.sst"] {
            std::fs::hard_link(live.join(name), checkpoint.join(name)).unwrap();
        }
        std::fs::write(checkpoint.join("000010.sst"), "its own").unwrap();
        std::os::unix::fs::symlink(live.join("000008.sst"), checkpoint.join("000011.sst")).unwrap();

        let [live, checkpoint] = [live, checkpoint].map(|path| read(&database(&path)).unwrap());
        let numbers = |links: &Links| links.files.iter().map(|file| file.number).collect::<Vec<_>>();
        assert_eq!((numbers(&live), numbers(&checkpoint)), (vec![7], vec![7]));
        if live.born_unix_ns.is_none() {
            println!("this file system keeps no birth times");
            return;
        }
        let told = lineages(&[&checkpoint, &live]);
        assert!(
            matches!(told.first(), Some(Lineage::Derived { reason }) if reason.contains("live")),
            "{told:?}"
        );
        assert_eq!(told.get(1), Some(&Lineage::Own));
        // Where nobody has the live one open, and when it has removed its own link.
        assert!(matches!(lineages(&[&checkpoint]).first(), Some(Lineage::Derived { .. })));
        std::fs::remove_file(directory.path().join("live/000007.sst")).unwrap();
        let checkpoint = read(&database(&directory.path().join("checkpoint"))).unwrap();
        assert!(checkpoint.files.is_empty());
        assert!(matches!(lineages(&[&checkpoint]).first(), Some(Lineage::Derived { .. })));
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(read(&database(Path::new("/nowhere/at/all"))).is_err());
    }
}
