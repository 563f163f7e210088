//! From a window's operations to the tuner's evidence: names for addresses, SST files for directories.

use super::watched::Watched;
use crate::actuator::{ActuatorError, HookClient, HookOptions};
use crate::probe::{FileFetches, Operation, WindowResult};
use crate::sst;
use crate::target::facts::{DatabaseDirectory, Gap};
use sexton_tuner::evidence::{Evidence, FileReads, Observation, SstFile};
use sexton_tuner::policy::{ActuatorKind, Mode};
use sexton_tuner::relief::CostFit;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tracing::debug;

/// Replaces a target's evidence by what this window saw.
pub fn update(watched: &mut Watched, result: WindowResult, hook_library: Option<&Path>) {
    watched.identities.begin_window();
    watched.note_latencies(&result.latencies);
    let mut observations = by_database(watched, result.operations);
    learn_costs(watched, &observations);
    let mut file_reads = file_reads(watched, result.files);
    connect_hook(watched, hook_library);
    watched.files_gap = None;
    watched.evidence = watched
        .target
        .databases
        .clone()
        .into_iter()
        .map(|database| Evidence {
            target: watched.target.name.clone(),
            database: database.path.display().to_string(),
            window: result.window,
            sentinel: watched.interval,
            observations: observations.remove(&database.path).unwrap_or_default(),
            files: files(watched, &database).unwrap_or_default(),
            // The reading of the files has brought them up to date.
            column_families: watched.options.get(&database.path).cloned().unwrap_or_default(),
            file_reads: file_reads.remove(&database.path).unwrap_or_default(),
            // From the history, before each plan.
            past_actions: Vec::new(),
            costs: watched.database_costs.get(&database.path).map(CostFit::costs),
        })
        .collect();
}

/// Learns what tombstones and block reads cost. Readers of one database have a block cache, files and keys of their
/// own, so each database has its own prices.
fn learn_costs(watched: &mut Watched, observations: &BTreeMap<PathBuf, Vec<Observation>>) {
    watched.costs.learn(observations.values().flatten());
    let databases = &watched.target.databases;
    watched.database_costs.retain(|path, _| databases.iter().any(|database| database.path == *path));
    for (path, observations) in observations {
        watched.database_costs.entry(path.clone()).or_default().learn(observations);
    }
}

/// Observations by database directory. Where only one database is open, an iterator whose creation was not
/// seen can only be its.
fn by_database(watched: &mut Watched, operations: Vec<Operation>) -> BTreeMap<PathBuf, Vec<Observation>> {
    let only = match watched.target.databases.as_slice() {
        [only] => Some(only.path.clone()),
        _ => None,
    };
    let mut by_database: BTreeMap<PathBuf, Vec<Observation>> = BTreeMap::new();
    let mut homeless = 0;
    for operation in operations {
        let (directory, column_family) = watched.identities.resolve(&watched.target, &operation);
        let observation = Observation { column_family, ..operation.observation };
        match directory.or_else(|| only.clone()) {
            Some(directory) => by_database.entry(directory).or_default().push(observation),
            None => homeless += 1,
        }
    }
    if homeless > 0 {
        debug!(target = watched.target.name, homeless, "operations of an unknown database");
    }
    by_database
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
/// that is there already, preloaded or linked by the target's own people, is used in any mode. The hook serves
/// one copy of RocksDB in a process. After a failure it is left alone for a while, longer each time: a JVM that cannot
/// load the library would get a copy of it, and be asked to, after each window.
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
) -> Result<HookClient, ActuatorError> {
    let options = HookOptions { library: hook_library.map(Path::to_owned), may_attach };
    HookClient::connect(&watched.target, &options)
}

/// Live SST files, as read at one moment.
pub type SstRead = Vec<SstFile>;

/// The live SST files of the database in `directory`; `None` where they cannot be read.
pub fn read_files(watched: &mut Watched, directory: &Path) -> Option<SstRead> {
    let database = watched.target.databases.iter().find(|database| database.path == directory)?.clone();
    files(watched, &database)
}

/// The live SST files of a database: from the process itself where a hook answers, else from the directory.
/// `None` where they cannot be read, which is not the same as none.
fn files(watched: &mut Watched, database: &DatabaseDirectory) -> Option<SstRead> {
    let mut files = match files_by_hook(watched, database) {
        Some(files) => files,
        None => match sst::read_database(&database.path_from_agent) {
            Ok(read) => {
                let families = read.column_families.iter();
                let orders = families.clone().map(|family| (family.name.clone(), family.order));
                watched.orders.insert(database.path.clone(), orders.collect());
                let options = families.map(|family| (family.name.clone(), family.options.clone()));
                watched.options.insert(database.path.clone(), options.collect());
                read.files
            }
            Err(error) => {
                watched.files_gap = Some(Gap {
                    what: format!("the SST files of {} cannot be read", database.path.display()),
                    reason: error.to_string(),
                    remedy: "ranges are ranked by what the probes see alone until they can".into(),
                });
                return None;
            }
        },
    };
    let cache = watched.properties.entry(database.path.clone()).or_default();
    let completion = sst::complete(&mut files, &database.path_from_agent, cache);
    debug!(target = watched.target.name, files = files.len(), ?completion, "SST files");
    Some(files)
}

fn files_by_hook(watched: &mut Watched, database: &DatabaseDirectory) -> Option<SstRead> {
    // The hook does not say how keys are ordered: that is read from the directory, once.
    watched.orders.get(&database.path)?;
    let pointers = watched.identities.any_pointers(&database.path)?;
    let files = watched.hook.as_ref()?.try_borrow_mut().ok()?.sst_files(&pointers);
    match files {
        Ok(files) => Some(files),
        Err(error) => {
            debug!(target = watched.target.name, %error, "the hook gave no SST files");
            None
        }
    }
}
