//! From a pid, or from all processes of the node, to targets.
//!
//! Goes through the processes; which of their files hold RocksDB is the business of `search`, what follows
//! from them that of `assemble`.

use super::assemble::{Surroundings, assemble};
use super::error::InspectError;
use super::examiner::Examiner;
use super::facts::Target;
use super::maps::{self, Maps};
use super::names::Names;
use super::process;
use super::search::{Searcher, executable_identity};
use sexton_tuner::policy::Policy;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use super::process::is_alive;

/// Turns processes into targets and remembers what it learnt of their files.
#[derive(Debug, Default)]
pub struct Inspector {
    searcher: Searcher,
    names: Names,
    /// Fingerprints of the mappings of processes in which a glance found no RocksDB.
    empty: HashMap<u32, u64>,
    /// Whose conditions a process has to meet before anything of it is opened; `None`: any process.
    policy: Option<Arc<Policy>>,
    /// Whether a library that no table knows may be asked for its layout, which runs its code.
    asks_libraries: bool,
}

/// Processes whose mappings are remembered; beyond that all are forgotten. As many as are looked into at the
/// same time.
const EMPTY_MAX: usize = 4096;

impl Inspector {
    /// An inspector that knows nothing yet.
    pub fn new() -> Inspector {
        Inspector::default()
    }

    /// As [`Inspector::new`]; files are examined by processes of this program, the agent's or a stand-in for
    /// it.
    pub fn by(executable: PathBuf) -> Inspector {
        Inspector { searcher: Searcher::by(Examiner::by(executable)), ..Inspector::default() }
    }

    /// From now on looks into no process that this policy does not match.
    pub fn follow_policy(&mut self, policy: Arc<Policy>) {
        self.asks_libraries = policy.ask_libraries;
        self.policy = Some(policy);
    }

    /// From now on asks a library that no table knows for its layout: a confined process runs its code.
    pub fn ask_libraries(&mut self) {
        self.asks_libraries = true;
    }

    /// Finds out all that is needed to watch a process: its primary target.
    pub fn inspect(&mut self, pid: u32) -> Result<Target, InspectError> {
        let none = InspectError::NoRocksDb { pid, hint: None };
        self.inspect_all(pid)?.into_iter().next().ok_or(none)
    }

    /// The targets of a process, one for each copy of RocksDB in it that can be read, the primary first;
    /// never empty.
    /// Errors: [`InspectError`]: each cause has its own variant and its remedy.
    pub fn inspect_all(&mut self, pid: u32) -> Result<Vec<Target>, InspectError> {
        self.searcher.begin_round();
        self.look_into(pid)
    }

    /// As [`Inspector::inspect_all`], of a process that nobody asked for: our own executable, which has a
    /// RocksDB inside for its own use, is left out, and it costs little where there is no RocksDB, still less
    /// the next time.
    pub fn glance(&mut self, pid: u32) -> Result<Vec<Target>, InspectError> {
        let mappings = read_maps(pid)?.fingerprint();
        let nothing = InspectError::NoRocksDb { pid, hint: None };
        if self.empty.get(&pid) == Some(&mappings) {
            return Err(nothing);
        }
        self.searcher.begin_round();
        let own = executable_identity("self");
        let is_own = own.is_some() && own == executable_identity(&pid.to_string());
        let result = if is_own { Err(nothing) } else { self.look_into(pid) };
        self.empty.remove(&pid);
        if matches!(result, Err(InspectError::NoRocksDb { .. })) {
            if self.empty.len() >= EMPTY_MAX {
                self.empty.clear();
            }
            self.empty.insert(pid, mappings);
        }
        result
    }

    /// Begins to look into all processes, one after the other: what was seen of a file holds until the next
    /// time.
    pub fn begin_round(&mut self) {
        self.searcher.begin_round();
    }

    /// As [`Inspector::glance`], of one process of a round, of whose mappings nothing is remembered.
    ///
    /// # Errors
    /// As [`Inspector::inspect_all`].
    pub fn look_into_another(&mut self, pid: u32) -> Result<Vec<Target>, InspectError> {
        let own = executable_identity("self");
        if own.is_some() && own == executable_identity(&pid.to_string()) {
            return Err(InspectError::NoRocksDb { pid, hint: None });
        }
        self.look_into(pid)
    }

    /// Whatever goes wrong with a process that ended meanwhile, went wrong because it ended.
    fn look_into(&mut self, pid: u32) -> Result<Vec<Target>, InspectError> {
        let process = process::process_id(pid)?;
        let result = self.look_into_living(pid);
        if is_alive(&process) { result } else { Err(InspectError::NoSuchProcess { pid }) }
    }

    fn look_into_living(&mut self, pid: u32) -> Result<Vec<Target>, InspectError> {
        let maps = read_maps(pid)?;
        if !maps.any {
            // A kernel thread; it has no executable either.
            return Err(InspectError::NoRocksDb { pid, hint: None });
        }
        self.ask_policy(pid)?;
        let found = self.searcher.find_modules(pid, &maps)?;
        let facts = process::read(pid)?;
        let has_musl = self.searcher.has_musl(pid, &maps, &facts.executable);
        let around = Surroundings::read(facts, &maps, self.asks_libraries, has_musl);
        assemble(&around, &found, &mut self.names)
    }
}

impl Inspector {
    /// What the kernel says of a process decides; its files, which anybody can make, are not opened for it.
    fn ask_policy(&self, pid: u32) -> Result<(), InspectError> {
        let Some(policy) = self.policy.as_ref().filter(|policy| !policy.matches_everything()) else {
            return Ok(());
        };
        let facts = process::read(pid)?;
        if policy.target_for(&facts.candidate()).is_some() {
            return Ok(());
        }
        let is_cut = facts.is_command_line_cut && policy.matches_command_lines();
        Err(InspectError::NotMatched { pid, name: facts.name(), is_cut })
    }
}

fn read_maps(pid: u32) -> Result<Maps, InspectError> {
    let path = PathBuf::from(format!("/proc/{pid}/maps"));
    maps::read(pid).map_err(|error| InspectError::from_io(pid, &path, error))
}

/// All processes but our own.
pub fn pids() -> Vec<u32> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = numbers.filter(|&pid| pid != own).collect();
    pids.sort_unstable();
    pids
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
