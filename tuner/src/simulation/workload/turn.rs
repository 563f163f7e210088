//! One interval of simulated time: what is written and read in it.

use crate::facts::evidence::Evidence;
use crate::policy::LoopTiming;
use crate::simulation::lsm::{Tree, Work};
use crate::simulation::random::Random;

/// The one database.
pub(super) const DATABASE: &str = "/simulated";

/// Somebody who writes and reads.
pub(super) trait Plays {
    fn tree(&mut self) -> &mut Tree;

    /// An interval's writes, what RocksDB makes of them, and its readers.
    fn turn(&mut self, seconds: f64, turn: u64) -> Turn;
}

/// What an interval came to.
pub(super) struct Turn {
    pub(super) by_rocksdb: Work,
    /// What the agent sees.
    pub(super) evidence: Evidence,
    /// What readers lose in truth.
    pub(super) pain_seconds: f64,
    pub(super) tombstones_skipped: u64,
}

/// How long a window is open in each interval.
pub(super) fn window_seconds(timing: &LoopTiming) -> f64 {
    let interval = timing.interval.duration().as_secs_f64();
    timing.window.duration().as_secs_f64().clamp(0.001, interval.max(0.001))
}

/// A whole number that is so much on average.
pub(super) fn times(mean: f64, random: &mut Random) -> u64 {
    let whole = mean.max(0.0).floor();
    whole as u64 + u64::from(random.per_mille(((mean - whole) * 1_000.0) as u64))
}
