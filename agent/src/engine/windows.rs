//! The totals of every target, and the windows that they give rise to.

use super::prices::Changed;
use super::spending::Spending;
use super::watched::Watched;
use super::{Engine, databases};
use crate::session::{Access, Answer, EVIDENCE_LIMIT, SeenByWindow};
use sexton_inspect::facts::{ProcessId, TargetId};
use sexton_journal::Journal;
use sexton_probe::governor::ProbePrices;
use sexton_probe::{OpenWindow, ProbeError, Sentinel, WindowResult, Windows};
use sexton_tuner::attention::wants_window;
use sexton_tuner::governor::Allowance;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// How often records are taken out of the ring buffer and hits are counted while a window is open: what a
/// window can cost beyond its budget is what comes in that time. Counting takes some microseconds.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Engine {
    /// The sentinel's turn: what did every target count since the last cycle?
    pub(super) fn read_totals(&mut self) {
        let acted_on = self.acted_on();
        let sentinel = &mut self.sentinel;
        // A slice reads those of its target itself, around its windows.
        let of_cycle = self.roster.watched.iter().filter(|it| !acted_on.contains(&it.target.id));
        let readings: Vec<_> =
            of_cycle.map(|watched| (watched.target.id, sentinel.read(watched.slot))).collect();
        // What was read of a process that is another program by now was not its counters.
        self.let_go();
        for (id, reading) in readings {
            match (self.roster.get_mut(id), reading) {
                (Some(watched), Ok(reading)) => watched.take_reading(reading),
                (Some(watched), Err(error)) => {
                    warn!(target = watched.target.name, %error, "cannot read totals");
                }
                (None, _) => {}
            }
        }
    }

    pub(super) fn has_open_windows(&self) -> bool {
        self.roster.watched.iter().any(|watched| watched.window.is_some())
    }

    /// Whether a window is open that a slice does not keep for itself.
    pub(super) fn has_windows_of_cycle(&self) -> bool {
        let mut watched = self.roster.watched.iter();
        watched.any(|watched| watched.window.is_some() && !self.is_acted_on(watched.target.id))
    }

    /// Windows on the targets that deserve one, all at the same time, each until its own end.
    pub(super) fn open_windows(&mut self) {
        let acted_on = self.acted_on();
        let window_due = self.targets_to_verify();
        let policy = &self.options.policy;
        let mut wanted = Vec::new();
        for watched in &mut self.roster.watched {
            if !watched.is_fresh {
                // A plan is made of what windows have seen since the last one, never of what it was made of.
                watched.forget_observations();
            }
            let due = self.always_window
                || window_due.contains(&watched.target.name)
                || wants_window(&watched.interval, since_window_ns(&self.history, watched), policy);
            let is_acted_on = acted_on.contains(&watched.target.id);
            let is_free = watched.worker.trouble().is_none() && !watched.awaits_evidence && !is_acted_on;
            if !due || !is_free || watched.is_blind() {
                continue;
            }
            if let Allowance::Window { length_ns, credit_ns } =
                watched.spending.allowance(policy.timing.window)
            {
                wanted.push((watched.target.id, length_ns, credit_ns));
            }
        }
        if wanted.is_empty() {
            return;
        }
        self.learn_prices();
        for (id, length_ns, credit_ns) in wanted {
            self.open_window(id, length_ns, credit_ns);
        }
    }

    fn open_window(&mut self, id: TargetId, length_ns: u64, credit_ns: u64) {
        let policy = &self.options.policy;
        let shares_process = self.roster.shares_process(id);
        let Some(watched) = self.roster.get_mut(id) else { return };
        if shares_process {
            // The same threads may run into the probes of both.
            watched.forget_price_check();
        }
        let prices = self.prices.in_force().corrected(watched.spending.correction_ratio());
        let credit = prices.credit(credit_ns, &watched.target.module.sites);
        let thresholds = watched.thresholds(policy);
        watched.last_window = Some(Instant::now());
        debug!(target = watched.target.name, length_ns, credit_ns, "a window opens");
        match self.windows.open(&watched.target, watched.slot, thresholds, &credit, &watched.last) {
            Ok(window) => {
                watched.spending.begin_window(length_ns);
                watched.window = Some(window);
            }
            Err(error) => warn!(target = watched.target.name, %error, "cannot open a window"),
        }
    }

    /// Learns what hits cost here where it is time to. What was found out by the former prices holds by the
    /// new ones.
    fn learn_prices(&mut self) {
        let Some(Changed { former, current }) = self.prices.learn(&mut self.windows) else { return };
        for watched in &mut self.roster.watched {
            watched
                .spending
                .learnt_prices_changed(|hits| current.cost_ns(hits) as f64 / former.cost_ns(hits) as f64);
        }
    }

    /// Counts what the open windows have cost so far and closes those that are over, or all; what they saw is
    /// the evidence of this cycle.
    pub(super) fn follow_windows(&mut self, all: bool) {
        if let Err(error) = self.windows.poll() {
            warn!(%error, "while a window is open");
        }
        let prices = self.prices.in_force();
        let acted_on = self.acted_on();
        let of_cycle = |watched: &&mut Watched| !acted_on.contains(&watched.target.id);
        for watched in self.roster.watched.iter_mut().filter(of_cycle) {
            let Some(mut window) = watched.window.take() else { continue };
            let counted = account(&mut self.windows, &mut window, &prices, &mut watched.spending);
            if let Err(error) = &counted {
                warn!(target = watched.target.name, %error, "what a window costs cannot be counted: it closes");
            }
            if counted.is_ok() && !watched.spending.is_over() && !all {
                watched.window = Some(window);
                continue;
            }
            match settle(&mut self.sentinel, &mut self.windows, watched, window, &prices) {
                Ok((result, fetcher)) => {
                    watched.note_latencies(&result.latencies);
                    let seen = SeenByWindow {
                        window: result.window,
                        operations: result.operations,
                        files: result.files,
                        unknown_fetcher: fetcher,
                    };
                    let access = Access::of(&watched.entry, watched.mode);
                    watched.awaits_evidence = watched.ask(
                        &self.post,
                        "reading the files of what a window saw",
                        EVIDENCE_LIMIT,
                        move |session| Answer::Evidence(Box::new(session.read_evidence(seen, access))),
                    );
                }
                Err(error) => warn!(target = watched.target.name, %error, "the window is lost"),
            }
        }
    }

    /// Closes the window of a process that has ended: what is known of it counts, and there is nothing left
    /// to plan for.
    pub(super) fn end_window(&mut self, process: &ProcessId) {
        for watched in self.roster.watched.iter_mut().filter(|watched| watched.target.process == *process) {
            let Some(window) = watched.window.take() else { continue };
            let prices = self.prices.in_force();
            if let Err(error) = settle(&mut self.sentinel, &mut self.windows, watched, window, &prices) {
                warn!(target = watched.target.name, %error, "the window is lost");
            }
        }
    }
}

/// Time since a window was last open on a target, nanoseconds; one of an earlier run counts as well, unless
/// something was still wanted then. `None`: look at once.
fn since_window_ns(history: &Journal, watched: &Watched) -> Option<u64> {
    watched.since_window_ns().or_else(|| history.since_window_ns(&databases(watched)))
}

/// Takes the probes of a target away and adds what they saw to its sums; gives also the beginning of a block
/// fetcher, where it is not known yet what stands in one.
pub fn settle(
    sentinel: &mut Sentinel,
    windows: &mut Windows,
    watched: &mut Watched,
    mut window: OpenWindow,
    prices: &ProbePrices,
) -> Result<(WindowResult, Option<Vec<u64>>), ProbeError> {
    let fetcher = windows.unknown_fetcher(&window);
    let collected = fetcher.and_then(|fetcher| {
        let settling = sentinel.read(watched.slot)?;
        window.disarm();
        let closing = sentinel.read(watched.slot)?;
        Ok((windows.collect(window, &settling, &closing)?, closing, fetcher))
    });
    let (result, closing, fetcher) = match collected {
        Ok(collected) => collected,
        Err(error) => {
            watched.spending.end_window(None);
            watched.forget_price_check();
            return Err(error);
        }
    };
    let learnt_cost_ns = prices.cost_ns(&result.probe_cost);
    watched.spending.end_window(Some((&result.probe_cost, learnt_cost_ns)));
    debug!(
        target = watched.target.name,
        operations = result.window.operations,
        painful = result.window.operations_painful,
        hits = result.probe_cost.total(),
        learnt_cost_ns,
        "a window has closed"
    );
    watched.take_window(&result, closing, learnt_cost_ns);
    Ok((result, fetcher))
}

/// Charges a window's hits to its target's account, and lets the programs spend what has come in since.
pub fn account(
    windows: &mut Windows,
    window: &mut OpenWindow,
    prices: &ProbePrices,
    spending: &mut Spending,
) -> Result<(), ProbeError> {
    spending.take_cost(prices.cost_ns(&windows.hits(window)?));
    let more_ns = spending.available_ns().saturating_sub(windows.credit_ns(window)?);
    if more_ns > 0 {
        windows.grant(window, more_ns)?;
    }
    Ok(())
}
