//! One target as its worker has it: everything that may wait on the target, and nothing of what is decided
//! about it.
//!
//! A session reads the target's memory and files and talks to its hook. It lives on the thread of its
//! [`Worker`], is asked by closures and answers by [`Answer`]s. Nobody else touches the target; the engine
//! knows what it was answered.

mod around;
mod connection;
mod evidence;
mod jobs;
mod options;
pub mod probes;
mod readings;
mod sighted_files;
mod sighting;

pub use around::{Baseline, Before, RunningCompactions, Wanted, is_inside};
pub use evidence::{EVIDENCE_LIMIT, EvidenceRead, FILES_LIMIT, FamilyName, SeenByWindow, SstRead};
pub use jobs::{JobReport, Meanwhile, Order, ReportedStatus};
pub use options::{OPTION_LIMIT, ValueInForce, note};
pub use probes::Probed;
pub use readings::{PlaceReadings, READINGS_LIMIT};
pub use sighting::{SIGHTING_LIMIT, Sighted};

use crate::worker::Resident;
use jobs::{Reporter, RunningJob};
use sexton_execute::{Properties, SharedHook, held};
use sexton_inspect::facts::{DatabaseDirectory, Gap, ProcessId, Target};
use sexton_inspect::identity::Identities;
use sexton_sst::{IndexCache, PropertiesCache};
use sexton_tuner::back_off::Retry;
use sexton_tuner::oldest_snapshot::Sequences;
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::policy::{ExecutorKind, Mode, TargetPolicy};
use sexton_tuner::run::{ActionId, JobStatus, KeptSetting, Measurement};
use sighted_files::SightedFiles;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest that a target may take to show that it is there: some files in `/proc` and a look at each
/// directory.
pub const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// The same where its hook is asked, which has ten seconds for an answer.
pub const HOOK_PROBE_LIMIT: Duration = Duration::from_secs(15);

/// What is known of one target by whoever may wait for it.
pub struct Session {
    target: Target,
    /// The hook's library, where it was named.
    hook_library: Option<PathBuf>,
    /// Names for the addresses that probes saw.
    pub identities: Identities,
    /// Numbers of entries and deletions of SST files that were read from the files themselves.
    properties: HashMap<PathBuf, PropertiesCache>,
    /// What index blocks of SST files tell, of those that operations have crossed.
    indexes: HashMap<PathBuf, IndexCache>,
    /// What looks at databases remember of their files.
    sighted: HashMap<PathBuf, SightedFiles>,
    /// Sequence numbers of SST files, as they were read from the directory.
    sequences: HashMap<PathBuf, BTreeMap<u64, Sequences>>,
    /// How column families order their keys, by database and name; `None`: not known to us.
    pub orders: HashMap<PathBuf, HashMap<String, Option<sexton_sst::Order>>>,
    /// What the OPTIONS files say of column families, by database and name.
    options: HashMap<PathBuf, BTreeMap<String, ColumnFamilyOptions>>,
    /// The connection to the hook inside, once there is one.
    pub hook: Option<SharedHook>,
    /// Why there is no hook, where one is wanted.
    hook_gap: Option<Gap>,
    connects: Retry,
    /// Why the hook is not asked any more.
    silence: RefCell<Option<String>>,
    /// Databases in which compacting files has failed: with several paths, RocksDB refuses it. Their ranges
    /// are compacted instead.
    refusing_files: RefCell<BTreeSet<PathBuf>>,
    jobs: Vec<RunningJob>,
    reporter: Reporter,
}

/// What the policy says about reaching the target, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Who acts on it.
    pub executor: ExecutorKind,
    /// Whether it may be changed: only then a hook is brought in.
    pub may_act: bool,
}

impl Access {
    /// By the policy's entry.
    pub fn of(entry: &TargetPolicy, mode: Mode) -> Access {
        Access { executor: entry.executor, may_act: mode == Mode::Act }
    }
}

/// What a session shows of its hook.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookState {
    /// Whether one answers.
    pub is_connected: bool,
    /// Why none does, where one is wanted.
    pub gap: Option<Gap>,
}

/// What a worker answers.
#[derive(Debug)]
pub enum Answer {
    /// Its hook is there and gives no answers.
    HookSilent(String),
    /// Nothing can be asked of the target: a signal, a debugger or a control group holds it.
    StandsStill(&'static str),
    /// It is there, and so are its files.
    Present {
        /// And its hook, where it has one.
        is_hook_asked: bool,
    },
    /// What a window saw, with names, and the files it belongs to.
    Evidence(Box<EvidenceRead>),
    /// A look at a database; `None` where it has gone, or cannot be read.
    Sighted(Option<Box<Sighted>>),
    /// There is nothing to tell.
    Nothing,
    /// The job of that number has begun.
    JobBegun(u64),
    /// How a job stands.
    Job(Box<JobReport>),
    /// What an inquiry before an action wanted to know.
    Before {
        /// Its number.
        inquiry: u64,
        before: Box<Before>,
    },
    /// Compactions that databases on the inquiry's device run.
    Running { inquiry: u64, running: RunningCompactions },
    /// Compactions that databases run in which somebody's may run unseen.
    Orphans(RunningCompactions),
    /// What lies in a database while an action is paused.
    Files { action: ActionId, files: Option<SstRead> },
    /// What an action has changed.
    Measured { action: ActionId, measured: Measurement },
    /// What the hook says of a job of an earlier run.
    Recalled { action: ActionId, status: JobStatus },
    /// What RocksDB says where snapshots keep tombstones.
    Pinned(Vec<(PathBuf, String, Properties)>),
    /// Settings that the hook does not know of any more, with the values in force.
    LostSettings(Vec<(KeptSetting, ValueInForce)>),
    /// It was tried to restore a setting.
    Restored {
        kept: Box<KeptSetting>,
        /// The value in force from now on.
        value: ValueInForce,
    },
}

impl Session {
    /// A session that knows nothing of its target's memory yet.
    pub fn new(target: Target, hook_library: Option<PathBuf>, reporter: Reporter) -> Session {
        Session {
            target,
            hook_library,
            identities: Identities::default(),
            properties: HashMap::new(),
            indexes: HashMap::new(),
            sighted: HashMap::new(),
            sequences: HashMap::new(),
            orders: HashMap::new(),
            options: HashMap::new(),
            hook: None,
            hook_gap: None,
            connects: Retry::default(),
            silence: RefCell::default(),
            refusing_files: RefCell::default(),
            jobs: Vec::new(),
            reporter,
        }
    }

    /// The target's process.
    pub fn process(&self) -> ProcessId {
        self.target.process
    }

    /// More is known of the target. What is known of a database goes with it.
    pub fn take_target(&mut self, target: Target) {
        let is_open = |path: &Path| target.databases.iter().any(|database| database.path == path);
        self.identities.keep(is_open);
        self.properties.retain(|path, _| is_open(path));
        self.indexes.retain(|path, _| is_open(path));
        self.sighted.retain(|path, _| is_open(path));
        self.sequences.retain(|path, _| is_open(path));
        self.orders.retain(|path, _| is_open(path));
        self.options.retain(|path, _| is_open(path));
        self.refusing_files.get_mut().retain(|path| is_open(path));
        self.target = target;
    }

    /// Why nothing in the target runs; `None`: it does.
    pub fn stands_still(&self) -> Option<&'static str> {
        held(self.target.process.pid)
    }

    /// Looks whether the target's files can be reached, and its hook, where that was silent.
    pub fn probe(&mut self, was_silent: bool) -> Answer {
        // Whether these can be had is not asked; that an answer comes is.
        let _ = std::fs::File::open(&self.target.module.path_from_agent);
        for database in &self.target.databases {
            let _ = std::fs::metadata(&database.path_from_agent);
        }
        if was_silent {
            self.try_hook();
        }
        Answer::Present { is_hook_asked: was_silent }
    }

    /// Why the hook gives no answers, once; then there is no connection any more.
    pub fn take_silence(&mut self) -> Option<String> {
        let reason = self.silence.take()?;
        self.hook = None;
        Some(reason)
    }

    /// What there is to say of the hook.
    pub fn hook_state(&self) -> HookState {
        HookState { is_connected: self.hook.is_some(), gap: self.hook_gap.clone() }
    }

    /// What the OPTIONS file of a database says, as it was last read.
    pub fn options_of(&self, directory: &Path) -> Option<BTreeMap<String, ColumnFamilyOptions>> {
        self.options.get(directory).cloned()
    }

    /// An open database by its directory.
    pub fn database(&self, directory: &Path) -> Option<&DatabaseDirectory> {
        self.target.databases.iter().find(|database| database.path == directory)
    }
}

impl Resident for Session {
    const WAKE_LIMIT: Duration = jobs::POLL_LIMIT;

    fn wake_in(&self) -> Option<Duration> {
        self.next_poll_in()
    }

    fn wake(&mut self) {
        self.poll_jobs();
    }
}
