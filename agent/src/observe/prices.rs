//! What hits cost here: learnt before the first window, and again now and then.
//!
//! What a machine was busy with while prices were learnt must not stay in them for the life of an agent. So
//! each learning adds to those before it, of which the least times count.

use sexton_probe::Windows;
use sexton_probe::governor::{Calibration, ProbePrices};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// Time after which prices are learnt again, before the next window: a learning takes some 50 ms of the
/// agent's time, and this makes it a hundredth of a percent.
const LEARN_INTERVAL: Duration = Duration::from_secs(600);

/// Windows before which they are learnt at first, one time each: nothing is followed meanwhile, and on a busy
/// machine three times at once would be a second.
const LEARNINGS_AT_FIRST: u32 = 3;

#[derive(Debug, Default)]
pub struct Prices {
    calibration: Calibration,
    learnt: Option<ProbePrices>,
    tried: Option<Instant>,
    tries: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Changed {
    pub former: ProbePrices,
    pub current: ProbePrices,
}

impl Prices {
    /// What was learnt; `None` where nothing could be, or no window has been opened yet.
    pub fn learnt(&self) -> Option<&ProbePrices> {
        self.learnt.as_ref()
    }

    /// What hits are priced by. Where it could not be learnt, dear prices are assumed: windows are shorter
    /// for it.
    pub fn in_force(&self) -> ProbePrices {
        self.learnt.unwrap_or_default()
    }

    /// Learns them where it is time to; gives what has changed.
    pub fn learn(&mut self, windows: &mut Windows) -> Option<Changed> {
        let was_now = self.tried.is_some_and(|tried| tried.elapsed() < LEARN_INTERVAL);
        if was_now && self.tries >= LEARNINGS_AT_FIRST {
            return None;
        }
        let is_first = self.tried.replace(Instant::now()).is_none();
        self.tries = self.tries.saturating_add(1);
        let former = self.in_force();
        match self.calibration.learn(windows) {
            Ok(prices) => {
                debug!(?prices, "probes");
                self.learnt = Some(prices);
            }
            Err(error) if is_first => {
                warn!(%error, help = error.remedy(), "the price of probes is assumed");
            }
            Err(error) => debug!(%error, "the price of probes cannot be learnt again"),
        }
        let current = self.in_force();
        (current != former).then_some(Changed { former, current })
    }
}
