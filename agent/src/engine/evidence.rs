//! From a window's operations to the tuner's evidence: names for addresses, SST files for directories.

use super::guards::properties;
use super::lineage::read_links;
use super::watched::Watched;
use sexton_execute::{ExecuteError, HookClient, HookOptions};
use sexton_inspect::facts::{DatabaseDirectory, Gap};
use sexton_probe::{FileFetches, Operation, WindowResult};
use sexton_sst::SstError;
use sexton_tuner::evidence::{Evidence, FileReads, MemtableDeletions, Observation, SstFile, Window};
use sexton_tuner::policy::{ActuatorKind, Mode};
use sexton_tuner::relief::CostFit;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tracing::debug;

/// Databases of one target that no open file shows and that are told apart by name; the rest is one.
const UNSEEN_DATABASES_MAX: usize = 64;

/// Column families of one database whose memtables are asked about, those whose readers skip most tombstones:
/// each takes a dozen questions of some microseconds.
const MEMTABLES_READ_MAX: usize = 64;

/// What a database is called that no probe has seen the name of.
const UNKNOWN_DATABASE: &str = "unknown";

/// Why the files of such a database cannot be seen.
const UNKNOWN_REASON: &str = "no probe has seen which database its iterators belong to";

/// Why the files of a database cannot be seen that no open file of its process shows.
const UNSEEN_REASON: &str = "no open file of the process lies in such a directory: it was deleted, or the database has \
                             an Env of its own";

/// Replaces a target's evidence by what this window saw.
pub fn update(watched: &mut Watched, result: WindowResult, hook_library: Option<&Path>) {
    watched.identities.begin_window();
    watched.note_latencies(&result.latencies);
    let mut observations = by_database(watched, result.operations);
    learn_costs(watched, &observations);
    let mut file_reads = file_reads(watched, result.files);
    connect_hook(watched, hook_library);
    watched.files_gap = None;
    watched.links.clear();
    let mut evidence = Vec::new();
    for database in watched.target.databases.clone() {
        let observations = observations.remove(&database.path).unwrap_or_default();
        // Before the files: what is flushed in between is then in both and not in neither.
        let memtables = memtables(watched, &database.path, &observations);
        let read = files(watched, &database);
        let file_reads = file_reads.remove(&database.path).unwrap_or_default();
        let linked_files = read_links(watched, &database).into_iter().collect();
        evidence.push(Evidence {
            is_read_only: database.is_read_only,
            linked_files,
            memtables,
            // The reading of the files has brought them up to date.
            column_families: watched.options.get(&database.path).cloned().unwrap_or_default(),
            file_reads,
            ..of_database(watched, &result.window, &database.path, observations, read)
        });
    }
    for (name, observations) in observations {
        let reason = if name == Path::new(UNKNOWN_DATABASE) { UNKNOWN_REASON } else { UNSEEN_REASON };
        watched.files_gap = Some(files_gap(&name, reason));
        evidence.push(of_database(watched, &result.window, &name, observations, Err(reason.to_owned())));
    }
    watched.evidence = evidence;
}

/// The evidence of one database: its window is the whole target's.
fn of_database(
    watched: &Watched,
    window: &Window,
    database: &Path,
    observations: Vec<Observation>,
    files: Result<SstRead, String>,
) -> Evidence {
    let (files, files_unseen) = match files {
        Ok(files) => (files, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    Evidence {
        target: watched.target.name.clone(),
        database: database.display().to_string(),
        window: *window,
        sentinel: watched.interval,
        observations,
        files,
        files_unseen,
        costs: watched.database_costs.get(database).map(CostFit::costs),
        // Past actions are taken from the history, before each plan.
        ..Evidence::default()
    }
}

/// Learns what tombstones and block reads cost. Readers of one database have a block cache, files and keys of
/// their own, so each database has its own prices.
fn learn_costs(watched: &mut Watched, observations: &BTreeMap<PathBuf, Vec<Observation>>) {
    watched.costs.learn(observations.values().flatten());
    let databases = &watched.target.databases;
    let is_known = |path: &PathBuf| databases.iter().any(|database| database.path == *path);
    watched.database_costs.retain(|path, _| observations.contains_key(path) || is_known(path));
    for (path, observations) in observations {
        watched.database_costs.entry(path.clone()).or_default().learn(observations);
    }
}

fn by_database(watched: &mut Watched, operations: Vec<Operation>) -> BTreeMap<PathBuf, Vec<Observation>> {
    let Watched { target, identities, .. } = watched;
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

/// What RocksDB says of the memtables of the column families that readers lose time in; those are missing
/// where no hook answers, or no probe has seen a handle of theirs.
fn memtables(
    watched: &Watched,
    directory: &Path,
    observations: &[Observation],
) -> BTreeMap<String, MemtableDeletions> {
    let read = |name: &String| properties(watched, directory, name)?.memtable_deletions();
    let names = with_most_tombstones(observations, MEMTABLES_READ_MAX).into_iter();
    names.filter_map(|name| read(&name).map(|deletions| (name, deletions))).collect()
}

/// The column families in which most tombstones were skipped, at most so many.
fn with_most_tombstones(observations: &[Observation], most: usize) -> Vec<String> {
    let mut tombstones: BTreeMap<&str, u64> = BTreeMap::new();
    for observation in observations {
        let Some(name) = &observation.column_family else { continue };
        let sum = tombstones.entry(name).or_default();
        *sum = sum.saturating_add(observation.total().tombstones_skipped);
    }
    let mut names: Vec<(&str, u64)> = tombstones.into_iter().collect();
    names.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    names.into_iter().take(most).map(|(name, _)| name.to_owned()).collect()
}

/// What was read from each file, by database directory. Files whose names cannot be read are left out.
fn file_reads(watched: &Watched, files: Vec<FileFetches>) -> BTreeMap<PathBuf, Vec<FileReads>> {
    let mut by_database: BTreeMap<PathBuf, Vec<FileReads>> = BTreeMap::new();
    for read in files {
        if let Some(file) = watched.identities.file(&watched.target, read.file) {
            by_database.entry(file.database).or_default().push(FileReads {
                number: file.number,
                fetches: read.fetches,
                latency_histogram: read.latency_histogram,
            });
        }
    }
    by_database
}

/// A hook changes the target, if only by its thread: it is called in only where the policy says act. One
/// that is there already, preloaded or linked by the target's own people, is used in any mode. The hook
/// serves one copy of RocksDB in a process. After a failure it is left alone for a while, longer each time: a
/// JVM that cannot load the library would get a copy of it, and be asked to, after each window.
pub fn connect_hook(watched: &mut Watched, hook_library: Option<&Path>) {
    let is_served = watched.entry.actuator == ActuatorKind::Hook && watched.target.is_primary;
    if watched.hook.is_some() || !is_served || !watched.may_connect() {
        return;
    }
    let may_attach = watched.mode == Mode::Act;
    match connect(watched, may_attach, hook_library) {
        Ok(hook) => watched.note_connected(hook),
        Err(error) => watched.note_not_connected(&error, may_attach),
    }
}

fn connect(
    watched: &Watched,
    may_attach: bool,
    hook_library: Option<&Path>,
) -> Result<HookClient, ExecuteError> {
    let options = HookOptions { library: hook_library.map(Path::to_owned), may_attach };
    HookClient::connect(&watched.target, &options)
}

/// Live SST files, as read at one moment.
pub type SstRead = Vec<SstFile>;

/// The live SST files of the database in `directory`; `None` where they cannot be read.
pub fn read_files(watched: &mut Watched, directory: &Path) -> Option<SstRead> {
    let database = watched.target.databases.iter().find(|database| database.path == directory)?.clone();
    files(watched, &database).ok()
}

/// The live SST files of a database: from the process itself where a hook answers, else from the directory.
/// An error says why they cannot be read, which is not the same as none.
fn files(watched: &mut Watched, database: &DatabaseDirectory) -> Result<SstRead, String> {
    let mut files = match files_by_hook(watched, database) {
        Some(files) => files,
        None => match sexton_sst::read_database(&database.path_from_agent) {
            Ok(read) => {
                let families = read.column_families.iter();
                let orders = families.clone().map(|family| (family.name.clone(), family.order));
                watched.orders.insert(database.path.clone(), orders.collect());
                let options = families.map(|family| (family.name.clone(), family.options.clone()));
                watched.options.insert(database.path.clone(), options.collect());
                read.files
            }
            Err(error) => {
                note_comparator(watched, &database.path, &error);
                let reason = error.to_string();
                watched.files_gap = Some(files_gap(&database.path, &reason));
                return Err(reason);
            }
        },
    };
    let cache = watched.properties.entry(database.path.clone()).or_default();
    let completion = sexton_sst::complete(&mut files, &database.path_from_agent, cache);
    debug!(target = watched.target.name, files = files.len(), ?completion, "SST files");
    Ok(files)
}

fn files_gap(database: &Path, reason: &str) -> Gap {
    Gap {
        what: format!("the SST files of {} cannot be seen", database.display()),
        reason: reason.to_owned(),
        remedy: "what its readers lose is shown by prefix, and nothing is done about it until they can be"
            .into(),
    }
}

/// The comparator because of which nothing of a database can be read is known all the same.
fn note_comparator(watched: &mut Watched, directory: &Path, error: &SstError) {
    if let SstError::UnknownComparator { column_family, comparator, .. } = error {
        let families = watched.options.entry(directory.to_owned()).or_default();
        families.entry(column_family.clone()).or_default().comparator.clone_from(comparator);
    }
}

fn files_by_hook(watched: &mut Watched, database: &DatabaseDirectory) -> Option<SstRead> {
    // The hook does not say how keys are ordered: that is read from the directory, once.
    watched.orders.get(&database.path)?;
    let pointers = watched.identities.any_pointers(&database.path)?;
    let files = watched.hook.as_ref()?.try_lock().ok()?.sst_files(&pointers);
    match files {
        Ok(files) => Some(files),
        Err(error) => {
            debug!(target = watched.target.name, %error, "the hook gave no SST files");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sexton_tuner::evidence::{BlockFetches, Counters, SeekKind};
    use sexton_tuner::key::Key;

    fn observation(column_family: &str, tombstones_skipped: u64) -> Observation {
        Observation {
            column_family: Some(column_family.to_owned()),
            kind: SeekKind::Seek,
            key: Key::new("a"),
            end_key: None,
            seek: Counters { tombstones_skipped, ..Counters::default() },
            scan: Counters::default(),
            seek_latency_ns: 1,
            scan_elapsed_ns: 0,
            block_fetches: BlockFetches::default(),
            estimated: false,
            ambiguous: false,
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
    fn memtables_are_asked_about_where_most_tombstones_are_skipped() {
        let observations =
            [observation("a", 10), observation("b", 30), observation("c", 20), observation("a", 15)];
        assert_eq!(with_most_tombstones(&observations, 2), ["b", "a"]);
        assert!(with_most_tombstones(&[], 2).is_empty());
    }
}
