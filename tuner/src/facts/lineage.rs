//! Whose the SST files of a database are: which of those that share files by hard links was there first.
//!
//! A checkpoint, a snapshot and a backup made of hard links have the files of the database that they were
//! taken of. Right after the taking all files of both have two links, so that the links alone do not tell
//! which is which. What tells is when things were born: a database's directory is there before its own files
//! are. A file that is older than the directory it stands in was linked into it. It still tells when the
//! older database has compacted and removed its own link, so that nothing is shared any more: what goes by a
//! checkpoint's files (the metadata of a snapshot) may go by them still.
//!
//! One kind of file tells nothing: RocksDB flushes memtables while it makes a checkpoint, into a file of the
//! database that is born after the checkpoint's directory and then linked there. Of two databases that are
//! both known, the one with the older directory is the owner of such a file. Where the other is not known, a
//! file is taken for the database's own only if it was born long after the directory; else it cannot be told,
//! and that is said.
//!
//! Reading all this is the agent's.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The making of a checkpoint flushes memtables after it has made the directory: a file that was born later
/// than so long after the directory is none of these. A flush takes seconds, more on a busy disk.
pub const CHECKPOINT_FLUSH_NS_MAX: i64 = 60_000_000_000;

/// A file or a directory, whatever it is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Inode {
    /// Device of its file system.
    pub device: u64,
    pub number: u64,
}

/// An SST file that has a hard link somewhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedFile {
    /// File number, as in `000123.sst`.
    pub number: u64,
    /// What all its links name.
    pub inode: Inode,
    /// When it was born, nanoseconds since the Unix epoch; `None`: the file system does not say.
    pub born_unix_ns: Option<i64>,
}

/// An SST file and when it was born.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EldestFile {
    /// File number, as in `000123.sst`.
    pub number: u64,
    /// When it was born, nanoseconds since the Unix epoch.
    pub born_unix_ns: i64,
}

/// What is known of the files of one open database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// Directory, for showing.
    pub directory: String,
    /// The directory itself: one database may be known by several names, and open in several processes.
    pub inode: Inode,
    /// When the directory was born, nanoseconds since the Unix epoch; `None`: the file system does not say.
    pub born_unix_ns: Option<i64>,
    /// The one of its SST files that was born first, as far as births are known.
    pub eldest: Option<EldestFile>,
    /// Its SST files that have a link elsewhere.
    pub files: Vec<LinkedFile>,
}

/// Whose a database's SST files are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Lineage {
    /// Its own: all were born in it, and the database was there before those that share them.
    #[default]
    Own,
    /// It was made of the files of an older database: a checkpoint, a snapshot or a backup.
    Derived {
        /// How that is known, in words.
        reason: String,
    },
    /// It shares files, and whether it is the older one cannot be told.
    Unknown {
        /// Why not, in words.
        reason: String,
    },
}

/// The lineage of each of these databases, in their order. All that are open should be among them: what is
/// not open is told by the births of files alone.
pub fn lineages(databases: &[&Links]) -> Vec<Lineage> {
    let mut holders: HashMap<Inode, Vec<&Links>> = HashMap::new();
    for database in databases {
        for file in &database.files {
            holders.entry(file.inode).or_default().push(database);
        }
    }
    databases.iter().map(|database| lineage(database, &holders)).collect()
}

fn lineage(database: &Links, holders: &HashMap<Inode, Vec<&Links>>) -> Lineage {
    let Some(born) = database.born_unix_ns else {
        if database.files.is_empty() {
            return Lineage::Own;
        }
        return unknown("the file system does not say when its directory was made");
    };
    let sharing = database.files.iter().filter_map(|file| holders.get(&file.inode)).flatten();
    let others: Vec<&Links> = sharing.copied().filter(|other| other.inode != database.inode).collect();
    let is_older = |other: &&Links| other.born_unix_ns.is_some_and(|other| other < born);
    // Of several the oldest, which is likely the one that all of them were taken of.
    if let Some(older) =
        others.iter().copied().filter(is_older).min_by_key(|other| (other.born_unix_ns, &other.directory))
    {
        let reason = format!("it shares SST files by hard links with {}, which is older", older.directory);
        return Lineage::Derived { reason };
    }
    if let Some(file) = database.eldest.filter(|file| file.born_unix_ns < born) {
        let reason =
            format!("its file {:06}.sst is older than its directory, into which it was linked", file.number);
        return Lineage::Derived { reason };
    }
    if let Some(twin) = others.iter().find(|other| other.born_unix_ns.is_none_or(|other| other == born)) {
        let reason = format!("nothing tells whether it or {} was made first", twin.directory);
        return unknown(&reason);
    }
    // Older than all others that are open, if there are any.
    if database.files.is_empty() || !others.is_empty() || database.files.iter().any(|file| is_own(file, born))
    {
        return Lineage::Own;
    }
    unknown(
        "those of its SST files that have hard links elsewhere were made together with its directory, as a checkpoint's \
         are",
    )
}

/// Whether a file was born so long after the directory that no making of a checkpoint can have flushed it.
fn is_own(file: &LinkedFile, directory_born: i64) -> bool {
    file.born_unix_ns.is_some_and(|born| born.saturating_sub(directory_born) > CHECKPOINT_FLUSH_NS_MAX)
}

fn unknown(reason: &str) -> Lineage {
    Lineage::Unknown { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000_000;

    /// A database whose directory was born at a second; its files are inode and second of birth.
    fn database(name: &str, inode: u64, born_s: i64, files: &[(u64, i64)]) -> Links {
        let file = |(inode, born_s): &(u64, i64)| LinkedFile {
            number: *inode,
            inode: Inode { device: 1, number: *inode },
            born_unix_ns: Some(born_s * SECOND),
        };
        let files: Vec<LinkedFile> = files.iter().map(file).collect();
        Links {
            directory: name.to_owned(),
            inode: Inode { device: 1, number: inode },
            born_unix_ns: Some(born_s * SECOND),
            eldest: eldest(&files),
            files,
        }
    }

    fn eldest(files: &[LinkedFile]) -> Option<EldestFile> {
        let born =
            |file: &LinkedFile| Some(EldestFile { number: file.number, born_unix_ns: file.born_unix_ns? });
        files.iter().filter_map(born).min_by_key(|file| file.born_unix_ns)
    }

    fn kinds(databases: &[Links]) -> Vec<&'static str> {
        let databases: Vec<&Links> = databases.iter().collect();
        let kind = |lineage| match lineage {
            Lineage::Own => "own",
            Lineage::Derived { .. } => "derived",
            Lineage::Unknown { .. } => "unknown",
        };
        lineages(&databases).into_iter().map(kind).collect()
    }

    #[test]
    fn without_links_elsewhere_files_are_the_databases_own() {
        assert_eq!(kinds(&[database("/a", 1, 100, &[]), database("/b", 2, 50, &[])]), ["own", "own"]);
    }

    /// All files of both are shared, and have two links each.
    #[test]
    fn right_after_its_making_the_checkpoint_is_told_from_the_live_database() {
        let files = [(10, 200), (11, 300)];
        let (live, checkpoint) = (database("/live", 1, 100, &files), database("/checkpoint", 2, 400, &files));
        assert_eq!(kinds(&[live.clone(), checkpoint.clone()]), ["own", "derived"]);
        assert_eq!(kinds(&[checkpoint, live]), ["derived", "own"]);
    }

    #[test]
    fn each_is_told_by_itself_where_the_other_is_not_open() {
        let files = [(10, 200), (11, 300)];
        assert_eq!(kinds(&[database("/live", 1, 100, &files)]), ["own"]);
        assert_eq!(kinds(&[database("/checkpoint", 2, 400, &files)]), ["derived"]);
    }

    /// Its files have no other link any more.
    #[test]
    fn a_checkpoint_stays_one_when_the_live_database_has_compacted_its_files_away() {
        let shared = database("/checkpoint", 2, 400, &[(10, 200)]);
        assert_eq!(kinds(&[Links { files: Vec::new(), ..shared }]), ["derived"]);
    }

    #[test]
    fn of_two_checkpoints_of_a_database_that_is_not_open_neither_is_the_owner() {
        let files = [(10, 200)];
        let two = [database("/one", 2, 400, &files), database("/two", 3, 500, &files)];
        assert_eq!(kinds(&two), ["derived", "derived"]);
    }

    /// What the making of a checkpoint flushes is younger than both directories.
    #[test]
    fn a_file_flushed_for_the_checkpoint_belongs_to_the_older_directory() {
        let files = [(10, 401)];
        let (live, checkpoint) = (database("/live", 1, 100, &files), database("/checkpoint", 2, 400, &files));
        assert_eq!(kinds(&[live.clone(), checkpoint.clone()]), ["own", "derived"]);
        // By themselves: it was flushed 300 s after the one directory was made, and 1 s after the other.
        assert_eq!(kinds(&[live]), ["own"]);
        assert_eq!(kinds(&[checkpoint]), ["unknown"]);
    }

    /// A checkpoint that has lived on has files of its own, which a checkpoint of it shares.
    #[test]
    fn a_checkpoint_of_a_checkpoint_does_not_make_it_an_owner() {
        let first = database("/first", 2, 400, &[(10, 200), (11, 600)]);
        let second = database("/second", 3, 700, &[(10, 200), (11, 600)]);
        assert_eq!(kinds(&[first, second]), ["derived", "derived"]);
    }

    #[test]
    fn where_nothing_tells_the_age_neither_is_the_owner() {
        let files = [(10, 300)];
        let twins = [database("/one", 1, 100, &files), database("/two", 2, 100, &files)];
        assert_eq!(kinds(&twins), ["unknown", "unknown"]);
        let mute =
            |name, inode| Links { born_unix_ns: None, eldest: None, ..database(name, inode, 0, &files) };
        assert_eq!(kinds(&[mute("/one", 1), mute("/two", 2)]), ["unknown", "unknown"]);
        assert_eq!(kinds(&[mute("/one", 1)]), ["unknown"]);
    }

    #[test]
    fn one_database_in_two_processes_is_not_its_own_checkpoint() {
        let files = [(10, 300)];
        let twice = [database("/live", 1, 100, &files), database("/mnt/live", 1, 100, &files)];
        assert_eq!(kinds(&twice), ["own", "own"]);
    }

    fn any_database() -> impl Strategy<Value = Links> {
        let file = (0u64..4, proptest::option::of(0i64..200)).prop_map(|(inode, born)| LinkedFile {
            number: inode,
            inode: Inode { device: 1, number: inode },
            born_unix_ns: born.map(|second| second * SECOND),
        });
        let files = proptest::collection::vec(file, 0..4);
        (0u64..4, proptest::option::of(0i64..200), files).prop_map(|(inode, born, files)| Links {
            directory: format!("/{inode}"),
            inode: Inode { device: 1, number: 100 + inode },
            born_unix_ns: born.map(|second| second * SECOND),
            eldest: eldest(&files),
            files,
        })
    }

    proptest! {
        /// Whatever is known of them: of two directories that share a file at most one is the owner.
        #[test]
        fn a_file_has_one_owner_at_most(databases in proptest::collection::vec(any_database(), 0..6)) {
            let all: Vec<&Links> = databases.iter().collect();
            let lineages = lineages(&all);
            prop_assert_eq!(lineages.len(), databases.len());
            let owners: Vec<&Links> =
                databases.iter().zip(&lineages).filter(|(_, lineage)| **lineage == Lineage::Own).map(|(one, _)| one).collect();
            for (at, one) in owners.iter().enumerate() {
                for two in owners.iter().skip(at + 1).filter(|two| two.inode != one.inode) {
                    let shares = one.files.iter().any(|file| two.files.iter().any(|other| other.inode == file.inode));
                    prop_assert!(!shares, "{one:?} and {two:?}");
                }
            }
        }
    }
}
