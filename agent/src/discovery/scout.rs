//! Looking into processes, on a thread of its own: a process can keep whoever looks into it waiting for as
//! long as it likes, with a program on a file system that does not answer.
//!
//! Looks are asked for and answered one process at a time. A look that takes too long is given up with its
//! thread, the process is left alone for a while, and another thread goes on with the others.

use crate::inbox::{Event, Post};
use crate::worker::{LeftBehind, Resident, Worker};
use jiff::Timestamp;
use sexton_inspect::error::InspectError;
use sexton_inspect::facts::{Target, TargetId};
use sexton_inspect::inspect::{Inspector, pids};
use sexton_tuner::back_off::{BackOff, Retry};
use sexton_tuner::policy::Policy;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// Longest look into one process. The first sight of the largest files takes a second of an idle processor,
/// and up to four of a busy one.
const LOOK_LIMIT: Duration = Duration::from_secs(8);

/// Longest search of the whole node; each of its looks has a limit of its own, so that this is never reached
/// before those.
const SWEEP_LIMIT: Duration = Duration::from_secs(3600);

/// Threads of looks that do not come back. Each stands for a process that hangs, and there is seldom more
/// than one file system that does.
const LEFT_BEHIND_MAX: usize = 8;

/// How long a process is left alone that could not be looked into in time. One that has recovered is to be
/// watched within 30 seconds.
const LEAVE_ALONE: BackOff = BackOff { first_seconds: 1, longest_seconds: 15 };

/// What a look into one process gave.
#[derive(Debug)]
pub struct Looked {
    /// The process.
    pub pid: u32,
    /// Its targets, or why there are none.
    pub found: Result<Vec<Target>, InspectError>,
    /// Targets of it that are watched and are no more, although it lives.
    pub gone: Vec<TargetId>,
    /// Whether the whole node is being searched; else the process was looked at by itself.
    pub is_sweep: bool,
    /// What it took.
    pub took: Duration,
}

/// Looks into processes.
pub struct Scout {
    worker: Worker<Searching>,
    post: Post,
    /// What the thread looks into now.
    current: Current,
    /// Processes that could not be looked into in time.
    hanging: HashMap<u32, Retry>,
    is_sweeping: bool,
    /// The policy in force: of a process that it does not match nothing is opened.
    policy: Arc<Policy>,
}

#[derive(Clone, Debug, Default)]
struct Current(Arc<Mutex<Option<(u32, Instant)>>>);

impl Current {
    fn set(&self, pid: Option<u32>) {
        let now = pid.map(|pid| (pid, Instant::now()));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn get(&self) -> Option<(u32, Instant)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the scout's thread owns.
struct Searching {
    inspector: Inspector,
    current: Current,
}

impl Resident for Searching {
    const WAKE_LIMIT: Duration = LOOK_LIMIT;

    fn wake_in(&self) -> Option<Duration> {
        None
    }

    fn wake(&mut self) {}
}

impl Scout {
    /// A scout that tells what it has found by `post`.
    pub fn new(policy: &Policy, post: Post, left_behind: LeftBehind) -> Scout {
        let current = Current::default();
        Scout {
            worker: Worker::new("sexton-scout".to_owned(), left_behind, searching(&current))
                .leaving_behind_at_most(LEFT_BEHIND_MAX),
            post,
            current,
            hanging: HashMap::new(),
            is_sweeping: false,
            policy: Arc::new(policy.clone()),
        }
    }

    /// Another policy is in force.
    pub fn follow_policy(&mut self, policy: &Policy) {
        self.policy = Arc::new(policy.clone());
    }

    /// Whether the whole node is being searched.
    pub fn is_sweeping(&self) -> bool {
        self.is_sweeping
    }

    /// Looks into one process that is new, or that may have loaded RocksDB or opened a database since.
    /// `false`: not now.
    pub fn look(&mut self, pid: u32) -> bool {
        if self.is_left_alone(pid) {
            return false;
        }
        let (post, policy) = (self.post.clone(), Arc::clone(&self.policy));
        self.worker.ask("looking into a process", SWEEP_LIMIT, move |searching| {
            let began = Instant::now();
            searching.inspector.follow_policy(policy);
            let found = searching.looking(pid, |inspector| inspector.glance(pid));
            let (took, gone) = (began.elapsed(), Vec::new());
            post.send(Event::Looked(Looked { pid, found, gone, is_sweep: false, took }));
        })
    }

    /// Searches the whole node, or only these processes. `watched` are the targets that are watched: those
    /// that live and have no RocksDB any more are among what is told.
    pub fn sweep(&mut self, only: &[u32], watched: Vec<TargetId>) {
        if self.is_sweeping {
            return;
        }
        let named = !only.is_empty();
        let mut pids = if named { only.to_vec() } else { pids() };
        self.hanging.retain(|pid, _| pids.contains(pid));
        pids.retain(|pid| !self.is_left_alone(*pid));
        let (post, policy) = (self.post.clone(), Arc::clone(&self.policy));
        self.is_sweeping = self.worker.ask("searching the node", SWEEP_LIMIT, move |searching| {
            let began = Instant::now();
            searching.inspector.follow_policy(policy);
            searching.inspector.begin_round();
            for pid in pids {
                post.send(Event::Looked(searching.look_in_sweep(pid, named, &watched)));
            }
            post.send(Event::Swept(began.elapsed()));
        });
    }

    /// The node has been searched.
    pub fn note_swept(&mut self) {
        self.is_sweeping = false;
    }

    /// A process was looked into: it does not hang.
    pub fn note_looked(&mut self, pid: u32) {
        self.hanging.remove(&pid);
    }

    /// When a look has to be over.
    pub fn deadline(&self) -> Option<Instant> {
        self.current.get().map(|(_, since)| since + LOOK_LIMIT)
    }

    /// Gives up a look that takes too long; gives the process. Whatever else was asked for is forgotten with
    /// it: new processes are found by the next sweep.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        let late = self.current.get().filter(|(_, since)| now >= *since + LOOK_LIMIT);
        let is_lost = self.worker.expire(now);
        if late.is_none() && !is_lost {
            self.revive();
            return None;
        }
        let pid = late.map(|(pid, _)| pid);
        if let Some(pid) = pid {
            warn!(
                pid,
                "looking into a process takes longer than {LOOK_LIMIT:?}; it is left alone for a while"
            );
            self.hanging.entry(pid).or_default().fail(LEAVE_ALONE, Timestamp::now());
        }
        self.worker.abandon("looking into a process takes too long");
        self.current = Current::default();
        self.worker.make_with(searching(&self.current));
        self.is_sweeping = false;
        self.revive();
        pid
    }

    /// The other processes are looked into all the same.
    fn revive(&mut self) {
        if self.worker.trouble().is_some() && self.worker.may_start() {
            self.worker.recovered();
        }
    }

    fn is_left_alone(&self, pid: u32) -> bool {
        self.hanging.get(&pid).is_some_and(|retry| !retry.may_try(LEAVE_ALONE, Timestamp::now()))
    }
}

fn searching(current: &Current) -> impl Fn(u64) -> Searching + Send + Sync + 'static {
    let current = current.clone();
    move |_| Searching { inspector: Inspector::new(), current: current.clone() }
}

impl Searching {
    fn looking<T>(&mut self, pid: u32, look: impl FnOnce(&mut Inspector) -> T) -> T {
        self.current.set(Some(pid));
        let result = look(&mut self.inspector);
        self.current.set(None);
        result
    }

    fn look_in_sweep(&mut self, pid: u32, named: bool, watched: &[TargetId]) -> Looked {
        let began = Instant::now();
        let found = self.looking(pid, |inspector| {
            if named { inspector.inspect_all(pid) } else { inspector.look_into_another(pid) }
        });
        let is_missing = |id: &&TargetId| {
            id.process.pid == pid
                && !found.as_ref().is_ok_and(|found| found.iter().any(|target| target.id == **id))
        };
        let mut gone: Vec<TargetId> = watched.iter().filter(is_missing).copied().collect();
        if !gone.is_empty() {
            // It may have changed just now, or could not be looked into this time: then it stays.
            match self.looking(pid, |inspector| inspector.glance(pid)) {
                Ok(targets) => gone.retain(|id| targets.iter().all(|target| target.id != *id)),
                Err(InspectError::NoRocksDb { .. } | InspectError::NotMatched { .. }) => {}
                Err(_) => gone.clear(),
            }
        }
        Looked { pid, found, gone, is_sweep: true, took: began.elapsed() }
    }
}
