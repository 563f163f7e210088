//! What the windows of a running agent cost: each one's time compared with the time just before and just
//! after it.
//!
//! Between two windows nothing stands in the target, so an agent's own run has blocks with and without probes
//! in turn; when they were, its log says. What a window costs is the throughput that is missing while it is
//! open, arming and taking away included, and is spread over all the time since the window before it.

use super::beside::{AgentsWord, word_of};
use super::moments::{Moment, Span, follow, lost_seconds, settled, unix_seconds};
use super::statistics::Median;
use super::{Arguments, beside};
use anyhow::{Context, Result};
use jiff::Timestamp;
use sexton_tests::steady_seeks::SteadySeeks;
use std::path::Path;
use std::time::{Duration, Instant};

/// Windows that open sooner after the agent's start are left out: it has saved up budget, and spends it.
const WARM_UP: Duration = Duration::from_secs(12);
/// Windows before an interval is looked at.
const WINDOWS_MIN: usize = 12;

/// Lets the agent run until the interval is narrow enough, or for as long as is allowed. Gives the
/// throughput, and what the agent says of its prices at the end.
pub fn compare(
    load: &mut SteadySeeks,
    directory: &Path,
    arguments: &Arguments,
) -> Result<(Median, AgentsWord)> {
    let agent = beside::with_windows(directory, load.pid())?;
    let until = Instant::now() + Duration::from_secs(arguments.seconds_max);
    let begin = unix_seconds(Timestamp::now()) + WARM_UP.as_secs_f64();
    let mut moments = Vec::new();
    load.catch_up()?;
    let median = loop {
        follow(load, |moment| {
            moments.push(moment);
            Ok(())
        })?;
        let ratios = ratios(&moments, &windows(&agent.log(), begin)?);
        if let Some(median) = settled(&ratios, WINDOWS_MIN, arguments.half_width_agent, until)? {
            break median;
        }
    };
    let open: f64 = windows(&agent.log(), begin)?.iter().map(|window| window.close - window.open).sum();
    let watched = moments.last().map_or(0.0, |last| last.at - begin);
    println!(
        "windows, default budget: throughput {median} windows; one is open {:.1} % of the time",
        open / watched * 100.0
    );
    let word = word_of(&agent)?;
    println!(
        "the agent multiplies its learnt prices by {:.2}, told by {} windows",
        word.correction_ratio, word.correction_windows
    );
    agent.stop()?;
    Ok((median, word))
}

/// The windows in the agent's log that opened after `begin`.
fn windows(log: &str, begin: f64) -> Result<Vec<Span>> {
    let mut windows = Vec::new();
    let mut open = None;
    for line in log.lines() {
        let is_open = line.contains("a window opens");
        if !is_open && !line.contains("a window has closed") {
            continue;
        }
        let time = line.split_whitespace().next().unwrap_or_default();
        let time: Timestamp =
            time.parse().with_context(|| format!("no time in the agent's line {line:?}"))?;
        let at = unix_seconds(time);
        if is_open {
            open = Some(at);
        } else if let Some(open) = open.take().filter(|open| *open >= begin) {
            windows.push(Span { open, close: at });
        }
    }
    Ok(windows)
}

/// For each window but the first and the last: the throughput since the window before it, by what it would
/// have been without.
fn ratios(moments: &[Moment], windows: &[Span]) -> Vec<f64> {
    let ratio = |three: &[Span]| {
        let [before, window, after] = three else { return None };
        let lost = lost_seconds(moments, before, window, after)?;
        Some(1.0 - lost / (window.close - before.close))
    };
    windows.windows(3).filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tests::steady_seeks::Progress;

    #[test]
    fn windows_are_read_from_the_log() {
        let log = "2026-11-21T11:00:00.000000Z DEBUG a window opens target=\"x\"\n\
                   2026-11-21T11:00:01.000000Z DEBUG a window has closed target=\"x\"\n\
                   2026-11-21T11:00:02.000000Z  INFO watching\n\
                   2026-11-21T11:00:03.000000Z DEBUG a window opens target=\"x\"\n\
                   2026-11-21T11:00:03.500000Z DEBUG a window has closed target=\"x\"\n\
                   2026-11-21T11:00:04.500000Z DEBUG a window opens target=\"x\"";
        let begin = unix_seconds("2026-11-21T11:00:00.5Z".parse().unwrap());
        let found = windows(log, begin).unwrap();
        let [window] = found.as_slice() else { unreachable!("{found:?}") };
        assert!((window.close - window.open - 0.5).abs() < 1e-3 && (window.open - begin - 2.5).abs() < 1e-3);
        assert!(windows("yesterday a window opens", 0.0).is_err());
    }

    /// 1,000 seeks a second, half of that while a window is open: a tenth of each cycle.
    #[test]
    fn half_the_throughput_for_a_tenth_of_the_time_is_a_twentieth_less() {
        let windows: Vec<Span> = (1..9)
            .map(|second| f64::from(second) * 10.0)
            .map(|open| Span { open, close: open + 1.0 })
            .collect();
        let is_slow = |at: f64| windows.iter().any(|window| (window.open..window.close).contains(&at));
        let mut seeks = 0;
        let moments: Vec<Moment> = (0..10_000)
            .map(|hundredth| {
                let at = f64::from(hundredth) / 100.0;
                seeks += if is_slow(at) { 5 } else { 10 };
                Moment { at, progress: Progress { seeks, seconds: at } }
            })
            .collect();
        let ratios = ratios(&moments, &windows);
        assert_eq!(ratios.len(), 6);
        assert!(ratios.iter().all(|ratio| (ratio - 0.95).abs() < 0.005), "{ratios:?}");
    }
}
