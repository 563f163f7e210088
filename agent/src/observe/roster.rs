//! Which targets are watched: processes that come, that stay, and that have gone.

use super::places::{Claim, gives_way};
use super::refusals::{Refusals, Told};
use super::sessions::Sessions;
use super::watched::{Watched, WindowStage};
use crate::discovery::Looked;
use crate::session::probes::SlotLease;
use sexton_inspect::error::InspectError;
use sexton_inspect::facts::{ProcessId, Target, TargetId};
use sexton_inspect::inspect::Inspector;
use sexton_inspect::process::is_alive;
use sexton_probe::{ProbeError, Sentinel, TARGETS_MAX};
use sexton_tuner::policy::{Mode, Policy, TargetPolicy};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// How often the node is searched for targets that were not there before.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How long a target that has gone stays visible: alerts need to see it missing.
const LOST_KEPT: Duration = Duration::from_secs(15 * 60);

/// Targets that have gone and are still shown.
const LOST_MAX: usize = 32;

/// A sweep is followed by a pause this many times as long, so that on a node with very many processes it
/// takes one part in two hundred of a core at most.
const PAUSE_FOR_SWEEP: u32 = 200;

/// What a look into one process gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Found {
        /// Whether it was not watched before.
        is_new: bool,
        /// Whether it has a database open.
        has_databases: bool,
    },
    /// No target, or not yet.
    Nothing,
    /// The process has ended, or will never be a target.
    Gone,
}

/// What became of a target that was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Admitted,
    Known,
    /// The policy does not match it, or it was refused before.
    Unwanted,
}

/// A target that cannot be watched.
struct Refusal {
    name: String,
    id: TargetId,
    error: ProbeError,
}

/// What is left of a target that has gone.
pub struct Gone {
    pub name: String,
    pub process: ProcessId,
    /// What its window did.
    pub window: WindowStage,
    /// Its place in the kernel's tables.
    pub lease: SlotLease,
}

/// A target that has gone, as it is still shown.
#[derive(Debug)]
pub struct Lost {
    /// The last thing known of it.
    pub view: crate::snapshot::TargetView,
    since: Instant,
}

/// The targets of one agent.
pub struct Roster {
    sessions: Sessions,
    /// Processes asked for by pid; empty: the policy's match decides.
    pids: Vec<u32>,
    pub watched: Vec<Watched>,
    /// The kernel's places, by their numbers: those that nobody holds are free.
    leases: Vec<Weak<sexton_probe::Slot>>,
    pub lost: Vec<Lost>,
    gone: Vec<Gone>,
    /// Targets that cannot be watched now.
    refusals: Refusals,
    /// Troubles that were told of.
    told: Told,
    is_denial_told: bool,
    next_sweep: Option<Instant>,
}

impl Roster {
    /// A roster for these processes, or for all that the policy matches.
    pub fn new(pids: Vec<u32>, sessions: Sessions) -> Roster {
        Roster {
            sessions,
            pids,
            watched: Vec::new(),
            leases: std::iter::repeat_with(Weak::new).take(TARGETS_MAX).collect(),
            lost: Vec::new(),
            gone: Vec::new(),
            refusals: Refusals::default(),
            told: Told::default(),
            is_denial_told: false,
            next_sweep: None,
        }
    }

    /// Inspects every process that was asked for by its pid, so that a mistake is told at the start.
    ///
    /// # Errors
    /// The first process that cannot be a target.
    pub fn check(&self) -> Result<(), InspectError> {
        let mut inspector = Inspector::new();
        self.pids.iter().try_for_each(|pid| inspector.inspect(*pid).map(drop))
    }

    /// The processes that were asked for by pid; empty: all that the policy matches.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Threads of workers that were left behind.
    pub fn left_behind(&self) -> usize {
        self.sessions.left_behind.count()
    }

    /// A target that is watched.
    pub fn get(&self, id: TargetId) -> Option<&Watched> {
        self.watched.iter().find(|watched| watched.target.id == id)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: TargetId) -> Option<&mut Watched> {
        self.watched.iter_mut().find(|watched| watched.target.id == id)
    }

    /// The target that a plan calls so.
    pub fn named(&self, name: &str) -> Option<&Watched> {
        self.watched.iter().find(|watched| watched.target.name == name)
    }

    /// The same, to be changed.
    pub fn named_mut(&mut self, name: &str) -> Option<&mut Watched> {
        self.watched.iter_mut().find(|watched| watched.target.name == name)
    }

    /// Whether a process could be a target at all.
    pub fn wants(&self, pid: u32) -> bool {
        self.pids.is_empty() || self.pids.contains(&pid)
    }

    /// Whether the target's process is another target, too: it has two copies of RocksDB.
    pub fn shares_process(&self, id: TargetId) -> bool {
        self.watched.iter().filter(|watched| watched.target.process == id.process).count() > 1
    }

    /// Processes of targets that have ended, whether or not the kernel has told.
    pub fn ended(&self) -> Vec<ProcessId> {
        let ended = self.watched.iter().map(|watched| watched.target.process);
        ended.filter(|process| !is_alive(process)).collect()
    }

    /// Whether it is time to search the node.
    pub fn is_sweep_due(&mut self, at_once: bool) -> bool {
        self.lost.retain(|lost| lost.since.elapsed() < LOST_KEPT);
        at_once || self.next_sweep.is_none_or(|at| Instant::now() >= at)
    }

    /// The node has been searched.
    pub fn note_swept(&mut self, took: Duration) {
        self.is_denial_told = false;
        self.refusals.keep(is_alive);
        self.next_sweep =
            Some(Instant::now() + SWEEP_INTERVAL.saturating_sub(took).max(took * PAUSE_FOR_SWEEP));
    }

    /// Takes in what was found in one process. What goes wrong with one that was looked at by itself is not
    /// told: the process may just be starting, and the sweep comes back to it.
    pub fn take_looked(&mut self, looked: Looked, policy: &Policy, sentinel: &mut Sentinel) -> Look {
        let Looked { pid, found, gone, is_sweep, .. } = looked;
        let is_gone = |watched: &mut Watched, _: &mut Sentinel| gone.contains(&watched.target.id);
        let mut is_new = self.let_go(sentinel, is_gone);
        let targets = match found {
            Ok(targets) => targets,
            Err(InspectError::NotMatched { name, is_cut, .. }) => {
                if is_cut {
                    self.say_cut(&name);
                }
                // It may change its user yet.
                return Look::Nothing;
            }
            Err(InspectError::NoSuchProcess { .. }) if self.pids.is_empty() || !is_sweep => {
                return Look::Gone;
            }
            Err(error) => {
                self.note_not_read(pid, &error, is_sweep);
                return Look::Nothing;
            }
        };
        let has_databases = targets.iter().all(|target| !target.databases.is_empty());
        let mut is_wanted = false;
        for target in targets {
            match self.take(target, policy, sentinel) {
                Ok(taken) => {
                    is_new |= taken == Taken::Admitted;
                    is_wanted |= taken != Taken::Unwanted;
                }
                Err(refusal) if is_sweep => self.refuse(refusal),
                Err(refusal) => {
                    debug!(pid, error = %refusal.error, "cannot be watched yet");
                    return Look::Nothing;
                }
            }
        }
        if is_wanted { Look::Found { is_new, has_databases } } else { Look::Gone }
    }

    /// Of those that may not be looked into only the first of a search is told.
    fn note_not_read(&mut self, pid: u32, error: &InspectError, is_sweep: bool) {
        let is_denied = matches!(error, InspectError::PermissionDenied { .. });
        let is_usual = matches!(error, InspectError::NoRocksDb { .. }) && self.pids.is_empty();
        if !is_sweep || is_usual || is_denied && self.is_denial_told {
            return debug!(pid, %error, "nothing to watch yet");
        }
        self.is_denial_told |= is_denied;
        self.say_once(error);
    }

    /// Lets go of the targets of a process that has ended, with what they counted last. Gives whether there
    /// were any.
    pub fn end(&mut self, process: &ProcessId, sentinel: &mut Sentinel) -> bool {
        self.let_go(sentinel, |watched, sentinel| {
            let ended = watched.target.process == *process;
            if ended && let Ok(reading) = sentinel.read(watched.slot()) {
                watched.take_reading(reading);
            }
            ended
        })
    }

    /// Lets go of the targets of a process that is another program now. Its memory is another one, too:
    /// nothing can be read any more. Gives whether there were any.
    pub fn replace(&mut self, process: &ProcessId, sentinel: &mut Sentinel) -> bool {
        self.refusals.keep(|other| other != process);
        self.let_go(sentinel, |watched, _| watched.target.process == *process)
    }

    /// Another policy is in force: targets that it does not match are let go, the others follow it from now
    /// on.
    pub fn take_policy(&mut self, policy: &Policy, sentinel: &mut Sentinel) {
        self.let_go(sentinel, |watched, _| {
            let target = &watched.target;
            match policy.target_for(&target.candidate()).cloned() {
                Some(entry) => watched.take_policy(entry, policy),
                None => return true,
            }
            false
        });
    }

    /// What is left of targets that have gone since the last time.
    pub fn take_gone(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.gone)
    }

    /// A process that cannot be read is tried at every sweep and told of once.
    fn say_once(&mut self, error: &InspectError) {
        if self.told.is_new(error.to_string()) {
            warn!(%error, help = error.remedy(), "cannot look into a process");
        }
    }

    /// What the policy looks for may stand where the command line was not read any more.
    fn say_cut(&mut self, name: &str) {
        if self.told.is_new(format!("the command line of {name}")) {
            let help = "match it by its executable or its pid";
            warn!(target = name, help, "not watched: no entry matches the first MiB of its command line");
        }
    }

    /// Takes in what was found in a process: news of a target that is watched, or a new one.
    fn take(&mut self, target: Target, policy: &Policy, sentinel: &mut Sentinel) -> Result<Taken, Refusal> {
        let same = self.watched.iter_mut().find(|watched| is_read_alike(&watched.target, &target));
        if let Some(watched) = same {
            // Databases are opened and closed while a process lives.
            watched.take_target(target, &self.sessions);
            return Ok(Taken::Known);
        }
        // The library was loaded anew, or more is known of it now.
        self.let_go(sentinel, |watched, _| watched.target.id == target.id);
        if self.refusals.holds(target.id, jiff::Timestamp::now()) {
            return Ok(Taken::Unwanted);
        }
        let Some(entry) = policy.target_for(&target.candidate()) else {
            if target.is_command_line_cut && policy.matches_command_lines() {
                self.say_cut(&target.name);
            }
            return Ok(Taken::Unwanted);
        };
        let (name, id) = (target.name.clone(), target.id);
        match self.begin(target, entry.clone(), policy, sentinel) {
            Ok(()) => {
                info!(target = name, "watching");
                self.refusals.lift(id);
                // A program that was started again in its process has the same name.
                self.lost.retain(|lost| lost.view.name != name);
                Ok(Taken::Admitted)
            }
            Err(error) => Err(Refusal { name, id, error }),
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        let Refusal { name, id, error } = refusal;
        if self.told.is_new(format!("{name}: {error}")) {
            warn!(target = name, %error, help = error.remedy(), "cannot watch");
        }
        // A place is free as soon as another target has gone, or has given way.
        if !matches!(error, ProbeError::TooManyTargets { .. }) {
            self.refusals.add(id, jiff::Timestamp::now());
        }
    }

    fn begin(
        &mut self,
        target: Target,
        entry: TargetPolicy,
        policy: &Policy,
        sentinel: &mut Sentinel,
    ) -> Result<(), ProbeError> {
        let pid = target.process.pid;
        let Some(lease) = self.free_slot() else {
            self.make_room(&target, &entry, policy, sentinel);
            return Err(ProbeError::TooManyTargets { pid, max: TARGETS_MAX });
        };
        sentinel.watch(&target, *lease)?;
        let mode = policy.mode_of(&entry);
        let probes = policy.probes_of(&entry);
        let mut watched = Watched::new(target, entry, mode, probes, lease, &self.sessions);
        watched.ask_totals(sentinel, &self.sessions.post);
        self.watched.push(watched);
        Ok(())
    }

    /// Has another target give way, if one has to: its place is free at the next sweep, when its probes are
    /// gone.
    fn make_room(&mut self, target: &Target, entry: &TargetPolicy, policy: &Policy, sentinel: &mut Sentinel) {
        let claim = |target: &Target, entry: &TargetPolicy, mode: Mode| Claim {
            rank: policy.targets.iter().position(|other| other.name == entry.name).unwrap_or(usize::MAX),
            user_id: target.user_id,
            start_time_ticks: target.process.start_time_ticks,
            may_be_acted_on: mode == Mode::Act,
        };
        let holders: Vec<Claim> = self
            .watched
            .iter()
            .map(|watched| claim(&watched.target, &watched.entry, policy.mode_of(&watched.entry)))
            .collect();
        let place = gives_way(&holders, &claim(target, entry, policy.mode_of(entry)));
        let Some(loser) = place.and_then(|place| self.watched.get(place)) else { return };
        let (id, name) = (loser.target.id, loser.target.name.clone());
        info!(target = name, to = target.name, "gives its place to another target");
        self.refusals.put_off(id, jiff::Timestamp::now());
        self.let_go(sentinel, |watched, _| watched.target.id == id);
    }

    fn free_slot(&mut self) -> Option<SlotLease> {
        let slot = self.leases.iter().position(|lease| lease.strong_count() == 0)?;
        let lease = Arc::new(u32::try_from(slot).ok()?);
        *self.leases.get_mut(slot)? = Arc::downgrade(&lease);
        Some(lease)
    }

    /// Takes the targets for which `is_gone` from the watched to the lost; gives whether there were any.
    fn let_go(
        &mut self,
        sentinel: &mut Sentinel,
        mut is_gone: impl FnMut(&mut Watched, &mut Sentinel) -> bool,
    ) -> bool {
        let gone: Vec<Watched> = self.watched.extract_if(.., |watched| is_gone(watched, sentinel)).collect();
        let any = !gone.is_empty();
        for mut watched in gone {
            info!(target = watched.target.name, "gone");
            sentinel.forget(watched.slot());
            let (name, process) = (watched.target.name.clone(), watched.target.process);
            let (window, lease) = (std::mem::take(&mut watched.window), Arc::clone(&watched.lease));
            self.gone.push(Gone { name, process, window, lease });
            self.lost.push(Lost { view: watched.view_when_lost(), since: Instant::now() });
        }
        let excess = self.lost.len().saturating_sub(LOST_MAX);
        self.lost.drain(..excess);
        any
    }
}

/// Whether what was found is the target that is watched, and is read in the same way. A program that was
/// started again in its process lies at other addresses.
fn is_read_alike(watched: &Target, found: &Target) -> bool {
    let (one, two) = (&watched.module, &found.module);
    watched.id == found.id
        && one.load_bias == two.load_bias
        && one.tls == two.tls
        && one.perf_context_offset == two.perf_context_offset
        && one.layout == two.layout
}
