//! Actions under way, as the loop has them: what the ledger does not know of them.

use crate::observe::Watched;
use crate::session::Baseline;
use sexton_inspect::facts::TargetId;
use sexton_tuner::latency::Latencies;
use sexton_tuner::run::ActionId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A job of a session.
#[derive(Clone, Copy, Debug)]
pub struct StartedJob {
    pub number: u64,
    pub target: TargetId,
    /// Of the target's worker.
    pub generation: u64,
}

impl StartedJob {
    /// Whether anything can still be heard of it.
    pub fn is_heard_of(&self, watched: &Watched) -> bool {
        watched.worker.is_current(self.generation) && watched.worker.trouble().is_none()
    }
}

/// An action that has begun and has not ended.
pub struct Acting {
    pub target: TargetId,
    pub id: ActionId,
    /// What it is measured against.
    pub baseline: Arc<Baseline>,
    /// The part that runs.
    pub part: Option<Part>,
    /// When guards were last asked whether it may go on.
    pub looked: Instant,
}

/// How long a session is waited for that is to begin a job: the request stands behind others, and where the
/// target stood still meanwhile it was dropped.
const BEGIN_LIMIT: Duration = Duration::from_secs(120);

/// A part that runs.
pub struct Part {
    pub job: StartedJob,
    /// When the session was asked.
    asked: Instant,
    /// Whether the session has begun it.
    pub is_begun: bool,
    /// Whether it reads the value of a setting, which is set after that.
    pub is_read: bool,
    /// What operations waited for since the part began, of windows that have closed.
    pub latencies: Latencies,
    pub window_wanted: Instant,
}

impl Acting {
    /// An action that is about to begin.
    pub fn new(target: TargetId, id: ActionId, baseline: Arc<Baseline>) -> Acting {
        Acting { target, id, baseline, part: None, looked: Instant::now() }
    }

    /// Takes in what operations have waited for in a window while a part runs.
    pub fn note_latencies(&mut self, latencies: &Latencies) {
        if let Some(part) = &mut self.part {
            part.latencies.merge(latencies);
        }
    }

    /// Whether it has windows of its own.
    pub fn is_slice(&self) -> bool {
        self.baseline.is_compaction()
    }
}

impl Part {
    /// One that was just asked for.
    pub fn new(job: StartedJob, is_read: bool) -> Part {
        let (latencies, asked) = (Latencies::default(), Instant::now());
        Part { job, asked, is_begun: false, is_read, latencies, window_wanted: asked }
    }

    /// Whether it will not be begun any more.
    pub fn is_late(&self) -> bool {
        !self.is_begun && self.asked.elapsed() >= BEGIN_LIMIT
    }
}
