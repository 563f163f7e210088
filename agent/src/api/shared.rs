//! What every path has at hand: the published snapshots and the way to the engine.

use super::drawings::Drawings;
use super::metrics;
use crate::snapshot::{Command, Snapshot};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

#[derive(Clone)]
pub struct Shared {
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    pub commands: mpsc::Sender<Command>,
    pub labels: Arc<std::sync::Mutex<metrics::Labels>>,
    pub drawings: Arc<Drawings>,
    /// When the first cycle has to have ended.
    pub first_cycle_due: Instant,
}

impl Shared {
    pub fn new(snapshots: watch::Receiver<Arc<Snapshot>>, commands: mpsc::Sender<Command>) -> Shared {
        let first_cycle_due = Instant::now() + FIRST_CYCLE_TIME_MAX;
        Shared { snapshots, commands, labels: Arc::default(), drawings: Arc::default(), first_cycle_due }
    }

    /// The newest snapshot. The lock of the channel is held only to copy the pointer.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshots.borrow())
    }
}

/// Longest that the first cycle may take: the files of the node's programs are read for the first time.
const FIRST_CYCLE_TIME_MAX: Duration = Duration::from_secs(180);
