//! What was asked before an action begins or goes on, and what has come.

use crate::session::{Before, RunningCompactions};
use sexton_inspect::facts::TargetId;
use sexton_tuner::run::{ActionId, ActionKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the target of an inquiry is waited for: what it was asked stands behind other requests, and one
/// that stood still meanwhile was not asked at all.
pub const INQUIRY_LIMIT: Duration = Duration::from_secs(120);

/// What an inquiry is for.
pub enum Purpose {
    /// An action that is wanted.
    Begin(Box<ActionKind>),
    /// One that is paused.
    GoOn(ActionId),
}

/// What was asked, and what has come.
pub struct Inquiry {
    pub number: u64,
    pub purpose: Purpose,
    pub target: TargetId,
    /// Of the target's worker.
    pub generation: u64,
    pub asked: Instant,
    pub place: (PathBuf, String),
    pub before: Option<Before>,
    /// Others that have not told how many compactions they run.
    pub awaited: BTreeSet<TargetId>,
    pub counted: BTreeMap<(TargetId, PathBuf), u64>,
    /// When the others are no longer waited for.
    pub until: Instant,
}

impl Inquiry {
    pub fn take_running(&mut self, target: TargetId, running: RunningCompactions) {
        let known = running.into_iter().filter_map(|(path, count)| Some(((target, path), count?)));
        self.counted.extend(known);
    }

    pub fn is_complete(&self) -> bool {
        self.before.is_some() && (self.awaited.is_empty() || Instant::now() >= self.until)
    }
}
