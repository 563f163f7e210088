//! What is known of the targets: who they are, what they have counted, what windows have seen.
//!
//! The observer owns the targets and the probes. It decides nothing about what is done to a target: whoever
//! acts asks it for the target's session, and has it keep windows open meanwhile.

mod advice;
mod arrivals;
mod checkpoints;
mod deadlines;
mod guard_record;
mod lineage;
mod looks;
mod memory;
mod perf_level;
mod places;
mod price_check;
mod prices;
mod refusals;
mod roster;
mod sessions;
mod spending;
mod survey;
mod target_view;
mod wait_record;
mod watched;
mod windows;

pub use lineage::tell_lineages;
pub use memory::remember;
pub use roster::Roster;
pub use sessions::Sessions;
pub use survey::survey;
pub use watched::{Watched, databases};
pub use windows::{Due, OPENING_TIME_MAX, POLL_INTERVAL, SliceSeen};

use crate::discovery::{Follower, Scout};
use crate::inbox::Post;
use crate::signals::Signals;
use crate::worker::LeftBehind;
use prices::Prices;
use sexton_probe::governor::ProbePrices;
use sexton_probe::{KernelFeatures, Loader, Mechanism, ProbeError, Sentinel, Windows};
use sexton_tuner::policy::Policy;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use tracing::{info, warn};

/// The targets, and what they are observed with.
pub struct Observer {
    /// The policy in force.
    pub policy: Policy,
    pub roster: Roster,
    /// Where sessions send their answers.
    pub post: Post,
    /// What the targets are under pressure by.
    pub signals: Signals,
    sentinel: Sentinel,
    windows: Windows,
    /// What hits cost here; learnt before the first window.
    prices: Prices,
    follower: Follower,
    scout: Scout,
}

impl Observer {
    /// Loads the BPF programs.
    ///
    /// # Errors
    /// When the kernel refuses them.
    pub fn new(
        policy: Policy,
        roster: Roster,
        post: Post,
        left_behind: LeftBehind,
        (loader, mechanism): (Loader, Option<Mechanism>),
    ) -> Result<Observer, ProbeError> {
        let features = KernelFeatures::probe();
        let mechanism = loader.mechanism(mechanism, &features)?;
        let sentinel = Sentinel::load_with(loader, &features)?;
        if let Some(reason) = sentinel.absence() {
            warn!(reason, "this kernel has no sentinel: totals are those of the windows");
        }
        let by = loader.name();
        info!(kernel = features.release, loader = by, mechanism = mechanism.describe(), "probes");
        let scout = Scout::new(&policy, post.clone(), left_behind);
        Ok(Observer {
            policy,
            roster,
            sentinel,
            windows: Windows::load_with(loader, mechanism)?,
            prices: Prices::default(),
            follower: Follower::new(),
            scout,
            signals: Signals::default(),
            post,
        })
    }

    /// What hits cost here; `None` where that was not learnt.
    pub fn learnt_prices(&self) -> Option<&ProbePrices> {
        self.prices.learnt()
    }

    /// Another policy is in force.
    pub fn take_policy(&mut self, policy: Policy) {
        self.scout.follow_policy(&policy);
        self.policy = policy;
        self.roster.take_policy(&self.policy, &mut self.sentinel);
    }

    /// Waits until a process has come or gone, a look is due or `other` can be read, at most for `limit`.
    pub fn wait_beside(&mut self, other: BorrowedFd<'_>, limit: Duration) {
        self.follower.wait_beside(other, limit);
    }
}
