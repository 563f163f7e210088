//! What an agent costs that only reads the sentinel: the time in which its threads run, compared with the
//! time around it.
//!
//! It arms no probe, so that nothing of it is beside the load while it sleeps. When it works, its processor
//! time says, which is read with each line of db_bench's progress. What the load loses meanwhile is summed up
//! over cycles in which everything that such an agent does comes round, and is spread over all of their time.
//!
//! A line that took long is more likely to have met the agent at work, whatever made it long: this counts
//! against the agent.

use super::moments::{MARGIN_SECONDS, Moment, REFERENCE_SECONDS_MIN, Span, follow, lost_seconds, settled};
use super::statistics::Median;
use super::{Arguments, beside};
use anyhow::{Context, Result};
use sexton_tests::process::processor_time_ns;
use sexton_tests::steady_seeks::SteadySeeks;
use std::path::Path;
use std::time::{Duration, Instant};

/// The agent's start is not measured: it looks into every process of the machine once.
const WARM_UP: Duration = Duration::from_secs(12);
/// The sentinel is read and the policy looked at every five seconds, all processes swept every ten at most.
const CYCLE_SECONDS: f64 = 10.0;
/// Cycles before an interval is looked at.
const CYCLES_MIN: usize = 20;
/// Spans that are closer together than this are one: there is nothing between them to compare with.
const GAP_SECONDS_MIN: f64 = 2.0 * MARGIN_SECONDS + REFERENCE_SECONDS_MIN;

/// Lets the agent run until the interval is narrow enough, or for as long as is allowed.
pub fn compare(load: &mut SteadySeeks, directory: &Path, arguments: &Arguments) -> Result<Median> {
    let agent = beside::with_sentinel_only(directory, load.pid())?;
    let until = Instant::now() + WARM_UP + Duration::from_secs(arguments.seconds_max);
    std::thread::sleep(WARM_UP);
    load.catch_up()?;
    let mut seen = Seen::default();
    let median = loop {
        follow(load, |moment| {
            seen.add(moment, processor_time_ns(agent.process.pid())?);
            Ok(())
        })?;
        let ratios = seen.ratios();
        if let Some(median) = settled(&ratios, CYCLES_MIN, arguments.half_width_agent, until)? {
            break median;
        }
    };
    println!(
        "the sentinel only: throughput {median} cycles of {CYCLE_SECONDS:.0} s; it works in {:.1} % of the time, and \
         takes {:.2} % of the other processor",
        seen.share_at_work().context("nothing was seen")? * 100.0,
        seen.processor_share().context("nothing was seen")? * 100.0
    );
    agent.stop()?;
    Ok(median)
}

/// Lines of progress, and when the agent was at work meanwhile.
#[derive(Default)]
struct Seen {
    moments: Vec<Moment>,
    first_ns: u64,
    last_ns: u64,
    spans: Vec<Span>,
}

impl Seen {
    /// Adds a line, and the processor time that the agent has had until then.
    fn add(&mut self, moment: Moment, agent_ns: u64) {
        match self.moments.last() {
            None => self.first_ns = agent_ns,
            Some(before) if agent_ns > self.last_ns => self.work(Span { open: before.at, close: moment.at }),
            Some(_) => {}
        }
        self.last_ns = agent_ns;
        self.moments.push(moment);
    }

    fn work(&mut self, span: Span) {
        match self.spans.last_mut() {
            Some(last) if span.open - last.close < GAP_SECONDS_MIN => last.close = span.close,
            _ => self.spans.push(span),
        }
    }

    /// For each cycle the throughput by what it would have been without; those are left out of which a span
    /// cannot be compared.
    fn ratios(&self) -> Vec<f64> {
        let Some(begin) = self.spans.first().map(|first| first.close) else { return Vec::new() };
        let mut cycles: Vec<Option<f64>> = Vec::new();
        for three in self.spans.windows(3) {
            let [before, span, after] = three else { continue };
            let cycle = ((span.open - begin) / CYCLE_SECONDS) as usize;
            cycles.resize(cycles.len().max(cycle + 1), Some(0.0));
            let lost = lost_seconds(&self.moments, before, span, after);
            if let Some(sum) = cycles.get_mut(cycle) {
                *sum = sum.zip(lost).map(|(sum, lost)| sum + lost);
            }
        }
        // The last one is not over.
        cycles.pop();
        cycles.into_iter().flatten().map(|lost| 1.0 - lost / CYCLE_SECONDS).collect()
    }

    fn seconds(&self) -> Option<f64> {
        let (first, last) = self.moments.first().zip(self.moments.last())?;
        (last.at > first.at).then_some(last.at - first.at)
    }

    fn share_at_work(&self) -> Option<f64> {
        let at_work: f64 = self.spans.iter().map(|span| span.close - span.open).sum();
        Some(at_work / self.seconds()?)
    }

    fn processor_share(&self) -> Option<f64> {
        Some(self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9 / self.seconds()?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tests::steady_seeks::Progress;

    /// 100 seconds; the agent works for a tenth of a second in each, and `slow` says what share of the seeks
    /// are made meanwhile.
    fn seen(slow: f64) -> Seen {
        let mut seen = Seen::default();
        let (mut seeks, mut agent_ns) = (0.0, 0);
        for hundredth in 0..10_000 {
            let works = hundredth % 100 >= 90;
            seeks += if works { 10.0 * slow } else { 10.0 };
            agent_ns += if works { 10_000_000 } else { 0 };
            let at = f64::from(hundredth) / 100.0;
            seen.add(Moment { at, progress: Progress { seeks: seeks as u64, seconds: at } }, agent_ns);
        }
        seen
    }

    #[test]
    fn half_the_throughput_for_a_tenth_of_the_time_is_a_twentieth_less() {
        let seen = seen(0.5);
        let ratios = seen.ratios();
        assert_eq!(ratios.len(), 9);
        assert!(ratios.iter().all(|ratio| (ratio - 0.95).abs() < 0.005), "{ratios:?}");
        assert!((seen.share_at_work().unwrap() - 0.1).abs() < 0.002);
        assert!((seen.processor_share().unwrap() - 0.1).abs() < 0.002);
    }

    #[test]
    fn work_that_slows_nothing_down_costs_nothing() {
        assert!(seen(1.0).ratios().iter().all(|ratio| (ratio - 1.0).abs() < 1e-6));
        assert!(Seen::default().ratios().is_empty());
    }

    #[test]
    fn spans_with_nothing_between_them_are_one() {
        let mut seen = Seen::default();
        for (at, agent_ns) in [(0.0, 0), (0.01, 5), (0.02, 5), (0.03, 9), (1.0, 9), (1.01, 10)] {
            seen.add(Moment { at, progress: Progress { seeks: 1, seconds: at } }, agent_ns);
        }
        assert_eq!(seen.spans, [Span { open: 0.0, close: 0.03 }, Span { open: 1.0, close: 1.01 }]);
    }
}
