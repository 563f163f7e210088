//! What a running agent takes from the load now and then: the throughput while it is at work, compared with
//! that of the time just before and just after it.
//!
//! An agent is at rest most of the time, and nothing of it stands in the load then. So its own run has
//! stretches with and without it in turn, as close to each other as the machine's noise demands.

use super::statistics::Median;
use anyhow::{Result, ensure};
use jiff::Timestamp;
use sexton_tests::steady_seeks::{Progress, SteadySeeks};
use std::time::{Duration, Instant};

/// Time around a span that is counted as its own: what the agent's clock and db_bench's lines are apart at
/// most.
pub const MARGIN_SECONDS: f64 = 0.025;
/// Least time before and after a span that it is compared with, each.
pub const REFERENCE_SECONDS_MIN: f64 = 0.05;
/// Between two looks at what has come together.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What db_bench said, and when.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub at: f64,
    /// Its count and its clock.
    pub progress: Progress,
}

impl Moment {
    /// This line came just now.
    pub fn now(progress: Progress) -> Moment {
        Moment { at: unix_seconds(Timestamp::now()), progress }
    }
}

/// Time in which the agent was at work, Unix time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub open: f64,
    pub close: f64,
}

pub fn unix_seconds(time: Timestamp) -> f64 {
    time.as_nanosecond() as f64 / 1e9
}

/// Hands on each of the load's lines until it is time to look at what has come together.
pub fn follow(load: &mut SteadySeeks, mut line: impl FnMut(Moment) -> Result<()>) -> Result<()> {
    let look_at = Instant::now() + LOOK_INTERVAL;
    while Instant::now() < look_at {
        line(Moment::now(load.progress()?))?;
    }
    Ok(())
}

/// The median of at least so many ratios, once it is known as well as is wanted, or the time is up; fails
/// where that leaves too few.
pub fn settled(ratios: &[f64], least: usize, half_width: f64, until: Instant) -> Result<Option<Median>> {
    let median = Median::of(ratios).filter(|_| ratios.len() >= least);
    let is_over = Instant::now() >= until;
    ensure!(!is_over || median.is_some(), "only {} stretches could be compared", ratios.len());
    Ok(median.filter(|median| is_over || median.half_width() <= half_width))
}

/// Time that the load has lost in a span between two others: what is missing of the throughput, as seconds
/// without any. `None` where there is not enough time beside it to compare it with.
pub fn lost_seconds(moments: &[Moment], before: &Span, span: &Span, after: &Span) -> Option<f64> {
    let (open, close) = (span.open - MARGIN_SECONDS, span.close + MARGIN_SECONDS);
    let reference = ((close - open) / 2.0).max(REFERENCE_SECONDS_MIN);
    let earliest = (open - reference).max(before.close + MARGIN_SECONDS);
    let latest = (close + reference).min(after.open - MARGIN_SECONDS);
    let [earliest, open, close, latest] =
        [earliest, open, close, latest].map(|at| moment_at(moments, at).map(|moment| moment.progress));
    let (earliest, open, close, latest) = (earliest?, open?, close?, latest?);
    let inside = Stretch::between(open, close);
    let outside = Stretch::between(earliest, open).and(Stretch::between(close, latest));
    Some(inside.seconds * (1.0 - inside.rate()? / outside.rate()?))
}

/// The first moment at or after a time.
fn moment_at(moments: &[Moment], at: f64) -> Option<&Moment> {
    moments.get(moments.partition_point(|moment| moment.at < at))
}

/// Seeks made in some time.
#[derive(Clone, Copy)]
struct Stretch {
    seeks: u64,
    seconds: f64,
}

impl Stretch {
    fn between(from: Progress, to: Progress) -> Stretch {
        Stretch { seeks: to.seeks.saturating_sub(from.seeks), seconds: to.seconds - from.seconds }
    }

    fn and(self, other: Stretch) -> Stretch {
        Stretch { seeks: self.seeks + other.seeks, seconds: self.seconds + other.seconds }
    }

    fn rate(self) -> Option<f64> {
        (self.seconds > 0.0 && self.seeks > 0).then(|| self.seeks as f64 / self.seconds)
    }
}
