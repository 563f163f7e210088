//! From a window's operations to the tuner's evidence: names for addresses, SST files for directories.

use super::options::place_of;
use super::{Access, HookState, Session};
use sexton_execute::{HookClient, Properties};
use sexton_inspect::facts::{DatabaseDirectory, Gap};
use sexton_inspect::links;
use sexton_probe::{FamilyWaits, FileFetches, Operation};
use sexton_sst::{Reader, SstError};
use sexton_tuner::evidence::{Evidence, FileReads, Observation, SstFile, Window};
use sexton_tuner::index_blocks::worth_reading;
use sexton_tuner::index_marks::IndexMarks;
use sexton_tuner::lineage::Links;
use sexton_tuner::oldest_snapshot::{OldestSnapshot, Sequences};
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::waits::Waits;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::debug;

/// Longest that the files and names of a window may take: a JVM that a hook is brought into needs up to 30 s
/// for that alone, and 100 databases some seconds.
pub const EVIDENCE_LIMIT: Duration = Duration::from_secs(60);

/// Longest that the live files of one database may take to be listed; 100,000 of them take a second.
pub const FILES_LIMIT: Duration = Duration::from_secs(20);

/// Longest that index blocks may take to be read: without them files are placed by their ends.
const INDEXES_LIMIT: Duration = Duration::from_secs(5);

/// Databases of one target that no open file shows and that are told apart by name; the rest is one.
const UNSEEN_DATABASES_MAX: usize = 64;

/// Column families of one database that RocksDB is asked about, those whose readers skip most tombstones:
/// each takes a dozen questions of some microseconds.
const FAMILIES_ASKED_MAX: usize = 64;

/// What a database is called that no probe has seen the name of.
const UNKNOWN_DATABASE: &str = "unknown";

/// Why the files of such a database cannot be seen.
const UNKNOWN_REASON: &str = "no probe has seen which database its iterators belong to";

/// Why the files of a database cannot be seen that no open file of its process shows.
const UNSEEN_REASON: &str = "no open file of the process lies in such a directory: it was deleted, or the database has \
                             an Env of its own";

/// Live SST files, as read at one moment.
pub type SstRead = Vec<SstFile>;

/// What a window saw and names are wanted for.
#[derive(Clone, Debug)]
pub struct SeenByWindow {
    /// Its sums.
    pub window: Window,
    /// Painful operations.
    pub operations: Vec<Operation>,
    /// Files that blocks were read from.
    pub files: Vec<FileFetches>,
    /// What operations waited for, by column family.
    pub families: Vec<FamilyWaits>,
    /// The beginning of a `BlockFetcher`, where it is not known yet at which byte of it the file stands.
    pub unknown_fetcher: Option<Vec<u64>>,
    /// Databases in which earlier windows have seen something that still counts.
    pub remembered: BTreeSet<String>,
}

/// What became of it.
#[derive(Debug)]
pub struct EvidenceRead {
    /// One entry a database; without prices, which are learnt of it, and without the interval before it.
    pub evidence: Vec<Evidence>,
    /// Hard links of its databases' SST files, by database.
    pub links: BTreeMap<PathBuf, Links>,
    /// What the OPTIONS files say of the column families of the databases that were read.
    pub options: BTreeMap<PathBuf, BTreeMap<String, ColumnFamilyOptions>>,
    /// What operations waited for, by column family; one that is not known is `None`.
    pub waits: BTreeMap<FamilyName, Waits>,
    /// Why the SST files of a database could not be read.
    pub files_gap: Option<Gap>,
    /// At which byte of a `BlockFetcher` the file stands, if that was found just now.
    pub fetcher_offset: Option<u32>,
    /// What there is to say of the hook.
    pub hook: HookState,
}

/// A database and a column family in it, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FamilyName {
    pub database: Option<PathBuf>,
    pub column_family: Option<String>,
}

impl Session {
    /// Names what a window saw, and reads the files of the databases in which it saw something.
    pub fn read_evidence(&mut self, seen: SeenByWindow, access: Access) -> EvidenceRead {
        let SeenByWindow { window, operations, files, families, unknown_fetcher, remembered } = seen;
        self.identities.begin_window();
        let fetcher = unknown_fetcher.as_deref();
        let fetcher_offset = fetcher.and_then(|words| self.identities.find_file(&self.target, words));
        let mut observations = self.by_database(operations);
        let mut file_reads = self.file_reads(files);
        let waits = self.waits(families);
        self.connect_hook(access);
        let mut read = EvidenceRead {
            evidence: Vec::new(),
            links: BTreeMap::new(),
            options: BTreeMap::new(),
            waits,
            files_gap: None,
            fetcher_offset,
            hook: self.hook_state(),
        };
        for database in self.target.databases.clone() {
            let observations = observations.remove(&database.path).unwrap_or_default();
            let file_reads = file_reads.remove(&database.path).unwrap_or_default();
            let is_remembered = remembered.contains(&database.path.display().to_string());
            let seen = (observations, file_reads, is_remembered);
            read.evidence.push(self.evidence_of(&database, &window, seen));
        }
        for (name, observations) in observations {
            let reason = if name == Path::new(UNKNOWN_DATABASE) { UNKNOWN_REASON } else { UNSEEN_REASON };
            let files_unseen = Some(reason.to_owned());
            read.evidence.push(Evidence {
                observations,
                files_unseen,
                ..of_database(&self.target.name, &name, &window)
            });
        }
        self.add_directories(&mut read);
        read
    }

    /// The evidence of one database: its window is the whole target's.
    fn evidence_of(
        &mut self,
        database: &DatabaseDirectory,
        window: &Window,
        (observations, file_reads, is_remembered): (Vec<Observation>, Vec<FileReads>, bool),
    ) -> Evidence {
        // Before the files: what is flushed in between is then in both and not in neither.
        let properties = self.properties_of_readers(&database.path, &observations);
        // Files of a database in which nothing was seen would explain nothing; there can be thousands of
        // such.
        let is_wanted = is_remembered || !observations.is_empty() || !file_reads.is_empty();
        let (files, files_unseen) = match is_wanted.then(|| self.files(database)) {
            None => (Vec::new(), None),
            Some(Ok(files)) => (files, None),
            Some(Err(reason)) => (Vec::new(), Some(reason)),
        };
        let memtables =
            properties.iter().filter_map(|(name, read)| Some((name.clone(), read.memtable_deletions()?)));
        let held = properties.iter().find_map(|(_, read)| read.oldest_snapshot_sequence);
        let oldest_snapshot = held
            .filter(|_| !files.is_empty())
            .map(|sequence| OldestSnapshot { sequence, files: self.sequences_of(database, &files) });
        let mut evidence = Evidence {
            is_read_only: database.is_read_only,
            memtables: memtables.collect(),
            oldest_snapshot,
            // The reading of the files has brought them up to date.
            column_families: self.options.get(&database.path).cloned().unwrap_or_default(),
            file_reads,
            observations,
            files,
            files_unseen,
            primitives: self.primitives(&database.path),
            ..of_database(&self.target.name, &database.path, window)
        };
        evidence.index_marks = self.index_marks(database, &evidence);
        evidence
    }

    /// What the index blocks tell of files that operations have crossed, in this window or an earlier one: a
    /// file's never changes. A file whose index cannot be read is missing, and is placed by its ends.
    fn index_marks(
        &mut self,
        database: &DatabaseDirectory,
        evidence: &Evidence,
    ) -> BTreeMap<u64, IndexMarks> {
        let wanted = worth_reading(evidence);
        let cache = self.indexes.entry(database.path.clone()).or_default();
        let reader = Reader { time_limit: INDEXES_LIMIT, ..Reader::default() };
        let done = cache.complete(&reader, &evidence.files, &wanted, place_of(database));
        debug!(target = self.target.name, wanted = wanted.len(), ?done, "index blocks");
        cache.marks()
    }

    /// What is known of each directory beside its live files.
    fn add_directories(&self, read: &mut EvidenceRead) {
        for (evidence, database) in read.evidence.iter_mut().zip(&self.target.databases) {
            match links::read(database) {
                Ok(links) => {
                    evidence.linked_files = links.files.iter().map(|file| file.number).collect();
                    read.links.insert(database.path.clone(), links);
                }
                Err(error) => {
                    let target = &self.target.name;
                    debug!(target, %error, "the hard links of a database cannot be read");
                }
            }
            let options = self.options.get(&database.path);
            read.options.extend(options.map(|options| (database.path.clone(), options.clone())));
        }
        let unseen = read
            .evidence
            .iter()
            .rev()
            .find_map(|evidence| Some(files_gap(&evidence.database, evidence.files_unseen.as_deref()?)));
        read.files_gap = unseen;
    }

    /// Observations by database directory.
    fn by_database(&mut self, operations: Vec<Operation>) -> BTreeMap<PathBuf, Vec<Observation>> {
        let Session { target, identities, .. } = self;
        let resolved = operations.into_iter().map(|operation| {
            let (directory, column_family) = identities.resolve(target, operation.addresses);
            let home = match directory {
                Some(directory) => Home::Open(directory),
                None => identities.unseen(target, operation.addresses).map_or(Home::Unknown, Home::Unseen),
            };
            (home, Observation { column_family, ..operation.observation })
        });
        let open: Vec<&Path> = target.databases.iter().map(|database| database.path.as_path()).collect();
        by_home(&open, resolved)
    }

    /// What RocksDB says of the column families that readers lose time in; those are missing where no hook
    /// answers, or no probe has seen a handle of theirs.
    fn properties_of_readers(
        &self,
        directory: &Path,
        observations: &[Observation],
    ) -> Vec<(String, Properties)> {
        let names = with_most_tombstones(observations, FAMILIES_ASKED_MAX).into_iter();
        names.filter_map(|name| self.properties(directory, &name).map(|read| (name, read))).collect()
    }

    /// Sequence numbers of a database's files: by its own word, and by its directory where its RocksDB does
    /// not tell them. A file's never change.
    fn sequences_of(&mut self, database: &DatabaseDirectory, files: &[SstFile]) -> BTreeMap<u64, Sequences> {
        let pointers = self.identities.any_pointers(&database.path);
        let told = pointers
            .and_then(|pointers| self.ask("sequence numbers", |hook| hook.sequences(&pointers)))
            .unwrap_or_default();
        if !told.is_empty() {
            return told;
        }
        let known = self.sequences.entry(database.path.clone()).or_default();
        if files.iter().any(|file| !known.contains_key(&file.number)) {
            match sexton_sst::read_database(place_of(database)) {
                Ok(read) => *known = read.sequences,
                Err(error) => {
                    debug!(target = self.target.name, %error, "sequence numbers cannot be read");
                }
            }
        }
        known.clone()
    }

    /// What was read from each file, by database directory. Files whose names cannot be read are left out.
    fn file_reads(&self, files: Vec<FileFetches>) -> BTreeMap<PathBuf, Vec<FileReads>> {
        let mut by_database: BTreeMap<PathBuf, Vec<FileReads>> = BTreeMap::new();
        for read in files {
            if let Some(file) = self.identities.file(&self.target, read.file) {
                by_database.entry(file.database).or_default().push(FileReads {
                    number: file.number,
                    fetches: read.fetches,
                    latency_histogram: read.latency_histogram,
                });
            }
        }
        by_database
    }

    /// What operations waited for, with names for addresses.
    fn waits(&mut self, families: Vec<FamilyWaits>) -> BTreeMap<FamilyName, Waits> {
        let Session { target, identities, .. } = self;
        let mut named: BTreeMap<FamilyName, Waits> = BTreeMap::new();
        for FamilyWaits { addresses, waits } in families {
            let (database, column_family) = identities.resolve(target, addresses);
            let database = database.or_else(|| identities.unseen(target, addresses));
            named.entry(FamilyName { database, column_family }).or_default().merge(&waits);
        }
        named
    }

    /// The live SST files of the database in `directory`; `None` where they cannot be read.
    pub fn read_files(&mut self, directory: &Path) -> Option<SstRead> {
        let database = self.database(directory)?.clone();
        self.files(&database).ok()
    }

    /// The live SST files of a database: from the process itself where a hook answers, else from the
    /// directory. An error says why they cannot be read, which is not the same as none.
    fn files(&mut self, database: &DatabaseDirectory) -> Result<SstRead, String> {
        let mut files = match self.files_by_hook(database) {
            Some(files) => files,
            None => match sexton_sst::read_database(place_of(database)) {
                Ok(read) => {
                    let families = read.column_families.iter();
                    let orders = families.clone().map(|family| (family.name.clone(), family.order));
                    self.orders.insert(database.path.clone(), orders.collect());
                    let options = families.map(|family| (family.name.clone(), family.options.clone()));
                    self.options.insert(database.path.clone(), options.collect());
                    read.files
                }
                Err(error) => {
                    self.note_comparator(&database.path, &error);
                    return Err(error.to_string());
                }
            },
        };
        let cache = self.properties.entry(database.path.clone()).or_default();
        let completion = sexton_sst::complete(&Reader::default(), &mut files, place_of(database), cache);
        debug!(target = self.target.name, files = files.len(), ?completion, "SST files");
        Ok(files)
    }

    /// The comparator because of which nothing of a database can be read is known all the same.
    fn note_comparator(&mut self, directory: &Path, error: &SstError) {
        if let SstError::UnknownComparator { column_family, comparator, .. } = error {
            let families = self.options.entry(directory.to_owned()).or_default();
            families.entry(column_family.clone()).or_default().comparator.clone_from(comparator);
        }
    }

    fn files_by_hook(&self, database: &DatabaseDirectory) -> Option<SstRead> {
        // The hook does not say how keys are ordered: that is read from the directory, once.
        self.orders.get(&database.path)?;
        let pointers = self.identities.any_pointers(&database.path)?;
        self.ask("SST files", |hook: &mut HookClient| hook.sst_files(&pointers))
    }
}

fn of_database(target: &str, database: &Path, window: &Window) -> Evidence {
    Evidence {
        target: target.to_owned(),
        database: database.display().to_string(),
        window: *window,
        ..Evidence::default()
    }
}

fn files_gap(database: &str, reason: &str) -> Gap {
    Gap {
        what: format!("the SST files of {database} cannot be seen"),
        reason: reason.to_owned(),
        remedy: "what its readers lose is shown by prefix, and nothing is done about it until they can be"
            .into(),
    }
}

/// Where an operation was.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Home {
    /// In the database of this directory, which shows in the process' open files.
    Open(PathBuf),
    /// In a database of this name, which does not.
    Unseen(PathBuf),
    /// The creation of its iterator was not seen.
    Unknown,
}

/// Observations by directory or name. Where only one database is open, an iterator whose creation was not
/// seen can only be its. Nothing is left out: readers who wait in a database that is not known wait all the
/// same.
fn by_home(
    open: &[&Path],
    observations: impl Iterator<Item = (Home, Observation)>,
) -> BTreeMap<PathBuf, Vec<Observation>> {
    let mut by_database: BTreeMap<PathBuf, Vec<Observation>> = BTreeMap::new();
    let mut unseen = BTreeSet::new();
    for (home, observation) in observations {
        let path = match (home, open) {
            (Home::Open(directory), _) => directory,
            (Home::Unseen(name), _) if unseen.contains(&name) || unseen.len() < UNSEEN_DATABASES_MAX => {
                unseen.insert(name.clone());
                name
            }
            (Home::Unknown, [only]) => only.to_path_buf(),
            (Home::Unseen(_) | Home::Unknown, _) => PathBuf::from(UNKNOWN_DATABASE),
        };
        by_database.entry(path).or_default().push(observation);
    }
    by_database
}

/// The column families in which most tombstones were skipped, at most so many.
fn with_most_tombstones(observations: &[Observation], most: usize) -> Vec<String> {
    let mut tombstones: BTreeMap<&str, u64> = BTreeMap::new();
    for observation in observations {
        let Some(name) = &observation.column_family else { continue };
        let sum = tombstones.entry(name).or_default();
        *sum = sum.saturating_add(observation.weighted().tombstones_skipped);
    }
    let mut names: Vec<(&str, u64)> = tombstones.into_iter().collect();
    names.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    names.into_iter().take(most).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sexton_tuner::evidence::{Counters, SeekKind};
    use sexton_tuner::key::Key;

    fn observation(column_family: &str, tombstones_skipped: u64) -> Observation {
        Observation {
            column_family: Some(column_family.to_owned()),
            seek: Counters { tombstones_skipped, ..Counters::default() },
            seek_latency_ns: 1,
            ..Observation::at(SeekKind::Seek, Key::new("a"))
        }
    }

    fn operations_of(homes: &[Home], open: &[&Path]) -> Vec<(String, usize)> {
        let operations = homes.iter().map(|home| (home.clone(), observation("default", 1)));
        let by_home = by_home(open, operations);
        by_home.into_iter().map(|(path, all)| (path.display().to_string(), all.len())).collect()
    }

    /// Of several databases one cannot be guessed, and what readers lose in it is not left out for that.
    #[test]
    fn operations_of_unknown_databases_are_kept_and_charged_to_no_other() {
        let (one, two) = (Path::new("/one"), Path::new("/two"));
        let homes = [Home::Open("/one".into()), Home::Unknown, Home::Unknown];
        assert_eq!(operations_of(&homes, &[one]), [("/one".to_owned(), 3)]);
        let expected = [("/one".to_owned(), 1), ("unknown".to_owned(), 2)];
        assert_eq!(operations_of(&homes, &[one, two]), expected);
        assert_eq!(operations_of(&[Home::Unknown], &[]), [("unknown".to_owned(), 1)]);
    }

    /// A database whose directory was deleted, or with an Env of its own, beside one that is open.
    #[test]
    fn a_database_that_no_open_file_shows_is_not_the_one_that_is_open() {
        let homes = [Home::Unseen("/gone".into()), Home::Unseen("/gone".into()), Home::Open("/one".into())];
        let expected = [("/gone".to_owned(), 2), ("/one".to_owned(), 1)];
        assert_eq!(operations_of(&homes, &[Path::new("/one")]), expected);
        let many: Vec<Home> =
            (0..UNSEEN_DATABASES_MAX + 3).map(|number| Home::Unseen(format!("/{number}").into())).collect();
        let shown = operations_of(&many, &[]);
        assert_eq!(shown.len(), UNSEEN_DATABASES_MAX + 1);
        assert_eq!(shown.last(), Some(&("unknown".to_owned(), 3)));
    }

    #[test]
    fn rocksdb_is_asked_about_families_where_most_tombstones_are_skipped() {
        let observations =
            [observation("a", 10), observation("b", 30), observation("c", 20), observation("a", 15)];
        assert_eq!(with_most_tombstones(&observations, 2), ["b", "a"]);
        assert!(with_most_tombstones(&[], 2).is_empty());
    }
}
