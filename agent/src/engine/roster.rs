//! Which targets are watched: processes that come, that stay, and that have gone.

use super::watched::Watched;
use crate::probe::{ProbeError, Sentinel, Slot, TARGETS_MAX};
use crate::target::error::InspectError;
use crate::target::facts::{Target, TargetId};
use crate::target::inspect::Inspector;
use crate::target::process::is_alive;
use sexton_tuner::policy::Policy;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often the node is searched for targets that were not there before.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How long a target that has gone stays visible: alerts need to see it missing.
const LOST_KEPT: Duration = Duration::from_secs(15 * 60);

/// Targets that have gone and are still shown.
const LOST_MAX: usize = 32;

/// Errors remembered so that they are told of once; beyond that none is told.
const TOLD_MAX: usize = 256;

/// A target that has gone.
#[derive(Debug)]
pub struct Lost {
    /// The last thing known of it.
    pub view: crate::snapshot::TargetView,
    since: Instant,
}

/// The targets of one agent.
pub struct Roster {
    inspector: Inspector,
    /// Processes asked for by pid; empty: the policy's match decides.
    pids: Vec<u32>,
    /// Targets being watched.
    pub watched: Vec<Watched>,
    /// Targets that have gone.
    pub lost: Vec<Lost>,
    /// Targets that cannot be watched: not tried again, said once.
    refused: HashSet<TargetId>,
    /// Errors that were told of.
    told: HashSet<String>,
    swept: Option<Instant>,
}

impl Roster {
    /// A roster for these processes, or for all that the policy matches.
    pub fn new(pids: Vec<u32>) -> Roster {
        Roster {
            inspector: Inspector::new(),
            pids,
            watched: Vec::new(),
            lost: Vec::new(),
            refused: HashSet::new(),
            told: HashSet::new(),
            swept: None,
        }
    }

    /// Inspects every process that was asked for by its pid, so that a mistake is told at the start.
    ///
    /// # Errors
    /// The first process that cannot be a target.
    pub fn check(&mut self) -> Result<(), InspectError> {
        for pid in self.pids.clone() {
            self.inspector.inspect(pid)?;
        }
        Ok(())
    }

    /// Lets go of what has ended, and looks for new targets when it is time.
    pub fn sweep(&mut self, policy: &Policy, sentinel: &mut Sentinel) {
        self.drop_ended(sentinel);
        if self.swept.is_some_and(|swept| swept.elapsed() < SWEEP_INTERVAL) {
            return;
        }
        self.swept = Some(Instant::now());
        self.refused.retain(|id| is_alive(&id.process));
        for target in self.find() {
            let known = self.watched.iter_mut().find(|watched| watched.target.id == target.id);
            if let Some(watched) = known {
                // Databases are opened and closed while a process lives.
                watched.target = target;
            } else if !self.refused.contains(&target.id) {
                self.admit(target, policy, sentinel);
            }
        }
    }

    fn find(&mut self) -> Vec<Target> {
        let results = if self.pids.is_empty() {
            self.inspector.discover()
        } else {
            let of_pid = |pid: &u32| match self.inspector.inspect_all(*pid) {
                Ok(targets) => targets.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            self.pids.iter().flat_map(of_pid).collect()
        };
        let mut found = Vec::new();
        for result in results {
            match result {
                Ok(target) => found.push(target),
                Err(error) => self.say_once(&error),
            }
        }
        found
    }

    /// A process that cannot be read is tried at every sweep and told of once.
    fn say_once(&mut self, error: &InspectError) {
        if self.told.len() < TOLD_MAX && self.told.insert(error.to_string()) {
            warn!(%error, help = error.remedy(), "cannot look into a process");
        }
    }

    fn admit(&mut self, target: Target, policy: &Policy, sentinel: &mut Sentinel) {
        let executable = target.executable.to_string_lossy();
        let Some(entry) = policy.target_for(target.process.pid, &executable, &target.command_line) else {
            return;
        };
        let entry = entry.clone();
        let name = target.name.clone();
        let id = target.id;
        match self.begin(target, entry, policy, sentinel) {
            Ok(()) => info!(target = name, "watching"),
            Err(error) => {
                warn!(target = name, %error, help = error.remedy(), "cannot watch");
                self.refused.insert(id);
            }
        }
    }

    fn begin(
        &mut self,
        target: Target,
        entry: sexton_tuner::policy::TargetPolicy,
        policy: &Policy,
        sentinel: &mut Sentinel,
    ) -> Result<(), ProbeError> {
        let pid = target.process.pid;
        let slot = self.free_slot().ok_or(ProbeError::TooManyTargets { pid, max: TARGETS_MAX })?;
        sentinel.watch(&target, slot)?;
        let reading = sentinel.read(slot).inspect_err(|_| sentinel.forget(slot))?;
        let mode = policy.mode_of(&entry);
        self.watched.push(Watched::new(target, entry, mode, slot, reading));
        Ok(())
    }

    fn free_slot(&self) -> Option<Slot> {
        let taken: HashSet<Slot> = self.watched.iter().map(|watched| watched.slot).collect();
        (0..TARGETS_MAX as Slot).find(|slot| !taken.contains(slot))
    }

    fn drop_ended(&mut self, sentinel: &mut Sentinel) {
        self.lost.retain(|lost| lost.since.elapsed() < LOST_KEPT);
        let (alive, ended) = std::mem::take(&mut self.watched)
            .into_iter()
            .partition(|watched| is_alive(&watched.target.process));
        self.watched = alive;
        let ended: Vec<Watched> = ended;
        for watched in ended {
            info!(target = watched.target.name, "gone");
            sentinel.forget(watched.slot);
            let since = Instant::now();
            self.lost.push(Lost { view: watched.view_when_lost(), since });
        }
        let excess = self.lost.len().saturating_sub(LOST_MAX);
        self.lost.drain(..excess);
    }
}
