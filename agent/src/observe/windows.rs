//! The totals of every target, and the windows that they give rise to.
//!
//! What may block on the target is done on a thread of its own: probes are put in, taken away and totals are
//! read there. What comes of it is taken in here.

use super::Observer;
use super::prices::Changed;
use super::spending::Spending;
use super::watched::{Purpose, Watched, WindowStage, databases};
use crate::session::probes::{self, InPlace, ProbeNews, Probed, SlotLease};
use crate::session::{Access, Answer, EVIDENCE_LIMIT, EvidenceRead, FamilyName, SeenByWindow, Session};
use sexton_inspect::facts::{ProcessId, TargetId};
use sexton_journal::Journal;
use sexton_probe::governor::ProbePrices;
use sexton_probe::{Closed, OpenWindow, ProbeError, SentinelReading, WindowResult, Windows};
use sexton_tuner::attention::wants_window;
use sexton_tuner::governor::Allowance;
use sexton_tuner::latency::Latencies;
use sexton_tuner::ledger::PainLedger;
use sexton_tuner::waits::Times;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// How often records are taken out of the ring buffer and hits are counted while a window is open: what a
/// window can cost beyond its budget is what comes in that time. Counting takes some microseconds.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Longest that a cycle waits for probes to be put into a target: tens of milliseconds on an idle processor.
/// What takes longer has no window in this cycle.
pub const OPENING_TIME_MAX: Duration = Duration::from_secs(1);

/// How often a window is asked for again where the probe budget had none to give.
const WINDOW_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Targets on which a window is due, whatever they have counted.
pub enum Due {
    All,
    /// Those whose actions it is to measure.
    Only(BTreeSet<String>),
}

impl Due {
    fn includes(&self, target: &str) -> bool {
        match self {
            Due::All => true,
            Due::Only(targets) => targets.contains(target),
        }
    }
}

/// What operations of a target waited for in a window of a slice.
pub struct SliceSeen {
    pub target: TargetId,
    pub latencies: Latencies,
}

impl Observer {
    /// The sentinel's turn: what did every target count since the last cycle? A slice reads those of its
    /// target itself, around its windows.
    pub fn ask_totals(&mut self, acted_on: &[TargetId]) {
        let Observer { roster, sentinel, post, .. } = self;
        let of_cycle = roster.watched.iter_mut().filter(|it| !acted_on.contains(&it.target.id));
        for watched in of_cycle.filter(|watched| matches!(watched.window, WindowStage::None)) {
            watched.ask_totals(sentinel, post);
        }
    }

    /// Whether totals are awaited that may still come in time.
    pub fn awaits_totals(&self) -> bool {
        let mut watched = self.roster.watched.iter();
        watched.any(|watched| watched.awaits_totals && watched.worker.trouble().is_none())
    }

    /// Whether what the sessions read of windows may still come in time.
    pub fn awaits_evidence(&self) -> bool {
        self.roster.watched.iter().any(|watched| watched.awaits_evidence)
    }

    pub fn has_open_windows(&self) -> bool {
        self.roster.watched.iter().any(|watched| matches!(watched.window, WindowStage::Open(_)))
    }

    /// Whether the cycle waits for a window: one that is open, or opens in time.
    pub fn has_windows_of_cycle(&self, acted_on: &[TargetId]) -> bool {
        let waits = |watched: &Watched| match &watched.window {
            WindowStage::Open(_) => !acted_on.contains(&watched.target.id),
            WindowStage::Opening { since, purpose, .. } => {
                *purpose == Purpose::Evidence && since.elapsed() < OPENING_TIME_MAX
            }
            WindowStage::None | WindowStage::Closing { .. } => false,
        };
        self.roster.watched.iter().any(waits)
    }

    /// Windows on the targets that deserve one or are `due`, all at the same time, each until its own end;
    /// none on those that are acted on, whose windows are the slices'.
    pub fn open_windows(&mut self, journal: &Journal, due: &Due, acted_on: &[TargetId]) {
        let policy = &self.policy;
        let mut wanted = Vec::new();
        for watched in &mut self.roster.watched {
            if !watched.is_fresh {
                // A plan is made of what windows have seen since the last one, never of what it was made of.
                watched.forget_observations();
            }
            let is_due = due.includes(&watched.target.name)
                || wants_window(watched.what_was_seen(since_window_ns(journal, watched)), policy);
            let is_acted_on = acted_on.contains(&watched.target.id);
            let is_free = watched.worker.trouble().is_none() && !watched.awaits_evidence && !is_acted_on;
            if !is_due || !is_free || !watched.may_have_window() {
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
            if let Some(watched) = self.roster.get_mut(id) {
                watched.last_window = Some(Instant::now());
            }
            self.open_window(id, (length_ns, credit_ns), Purpose::Evidence);
        }
    }

    /// Has the probes of a window put into a target; it opens once they are in their places.
    fn open_window(&mut self, id: TargetId, (length_ns, credit_ns): (u64, u64), purpose: Purpose) {
        let shares_process = self.roster.shares_process(id);
        let Observer { roster, windows, sentinel, prices, post, policy, .. } = self;
        let Some(watched) = roster.get_mut(id) else { return };
        if shares_process {
            // The same threads may run into the probes of both.
            watched.forget_price_check();
        }
        let prices = prices.in_force().corrected(watched.spending.correction_ratio());
        let credit = prices.credit(credit_ns, &watched.target.module.sites);
        let thresholds = watched.thresholds(policy);
        debug!(target = watched.target.name, length_ns, credit_ns, "a window opens");
        let reader = sentinel.reader(watched.slot());
        let prepared = reader.and_then(|reader| {
            Ok((reader, windows.prepare(&watched.target, watched.slot(), thresholds, &credit)?))
        });
        let (reader, unattached) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return warn!(target = watched.target.name, %error, "cannot open a window"),
        };
        let attach = move || {
            // Those of a cycle have just been read.
            let before = if purpose == Purpose::Slice { reader.read().map(Some) } else { Ok(None) };
            let attached = before.and_then(|before| {
                let attached = unattached.attach()?;
                Ok(InPlace { before, attached, opening: reader.read()? })
            });
            ProbeNews::Attached(Box::new(attached))
        };
        if watched.ask_prober(post, "putting probes into its module's file", attach) {
            watched.window = WindowStage::Opening { since: Instant::now(), length_ns, purpose };
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

    /// Takes in what was done to a target's probes. Windows for the next plan open while it is being sampled
    /// for. Gives what was seen while a slice runs.
    pub fn take_probed(
        &mut self,
        probed: Probed,
        is_sampling: bool,
        acted_on: &[TargetId],
    ) -> Option<SliceSeen> {
        // What was read of a process that is another program by now was not its counters.
        self.let_go();
        let Probed { target, generation, what, lease } = probed;
        let watched = self.roster.get_mut(target);
        let Some(watched) = watched.filter(|watched| watched.prober.is_current(generation)) else {
            probes::let_go((what, lease));
            return None;
        };
        let slot = watched.slot();
        match what {
            ProbeNews::Totals(totals) => {
                watched.awaits_totals = false;
                match totals.and_then(|totals| self.sentinel.take(slot, totals)) {
                    Ok(reading) => watched.take_reading(reading),
                    Err(error) => warn!(target = watched.target.name, %error, "cannot read totals"),
                }
                None
            }
            ProbeNews::Attached(attached) => {
                drop(lease);
                self.begin_window(target, *attached, is_sampling, acted_on.contains(&target));
                None
            }
            ProbeNews::Closed(closed) => {
                drop(lease);
                let latencies = self.end_window(target, closed)?;
                Some(SliceSeen { target, latencies })
            }
        }
    }

    /// All probes are in their places: the window opens, unless whoever wanted it has gone on without.
    fn begin_window(
        &mut self,
        id: TargetId,
        in_place: Result<InPlace, ProbeError>,
        is_sampling: bool,
        is_acted_on: bool,
    ) {
        let Some(watched) = self.roster.get_mut(id) else { return };
        let WindowStage::Opening { length_ns, purpose, .. } = std::mem::take(&mut watched.window) else {
            return;
        };
        let slot = watched.slot();
        let opened = in_place.and_then(|InPlace { before, opening, attached }| {
            if let Some(before) = before {
                watched.take_reading(self.sentinel.take(slot, before)?);
            }
            let opening = self.sentinel.take(slot, opening)?;
            self.windows.arm(attached, &opening)
        });
        match opened {
            Ok(window) => {
                watched.spending.begin_window(length_ns);
                watched.window = WindowStage::Open(window);
            }
            Err(error) => return warn!(target = watched.target.name, %error, "cannot open a window"),
        }
        let is_wanted = match purpose {
            Purpose::Evidence => is_sampling || is_acted_on,
            Purpose::Slice => is_acted_on,
        };
        if !is_wanted {
            self.close_window(id, Purpose::Slice);
        }
    }

    /// A slice in a target is over, and with it the window that it had.
    pub fn close_slice_window(&mut self, id: TargetId) {
        self.close_window(id, Purpose::Slice);
    }

    /// Has the probes of an open window taken away; [`Observer::end_window`] goes on.
    fn close_window(&mut self, id: TargetId, purpose: Purpose) {
        let Observer { roster, windows, sentinel, post, .. } = self;
        let Some(watched) = roster.get_mut(id) else { return };
        let WindowStage::Open(mut window) = std::mem::take(&mut watched.window) else { return };
        let prepared = windows
            .unknown_fetcher(&window)
            .and_then(|fetcher| Ok((fetcher, sentinel.reader(watched.slot())?)));
        match prepared {
            Ok((fetcher, reader)) => {
                let closing = window.hand_over();
                let close = move || ProbeNews::Closed(closing.close(&reader));
                if watched.ask_prober(post, "taking probes away", close) {
                    watched.awaits_evidence = purpose == Purpose::Evidence;
                    watched.window = WindowStage::Closing { window, fetcher, purpose };
                } else {
                    // They went with the request.
                    watched.spending.end_window(None);
                    watched.forget_price_check();
                }
            }
            Err(error) => {
                lose_window(watched, &error);
                abandon(windows, window, &watched.lease);
            }
        }
    }

    /// All probes of a window have been taken away: what it saw is evidence of this cycle, or is given: it is
    /// held against what readers waited for before a slice.
    fn end_window(&mut self, id: TargetId, closed: Result<Closed, ProbeError>) -> Option<Latencies> {
        let prices = self.prices.in_force();
        let watched = self.roster.get_mut(id)?;
        let WindowStage::Closing { mut window, fetcher, purpose } = std::mem::take(&mut watched.window)
        else {
            return None;
        };
        let slot = watched.slot();
        let collected = closed.and_then(|closed| {
            window.note_closed(&closed);
            let settling = self.sentinel.take(slot, closed.settling)?;
            let closing = self.sentinel.take(slot, closed.closing)?;
            Ok((self.windows.collect(window, &settling, &closing)?, closing))
        });
        let result = match collected {
            Ok((result, closing)) => take_result(watched, result, closing, &prices),
            Err(error) => {
                watched.awaits_evidence = false;
                lose_window(watched, &error);
                return None;
            }
        };
        match purpose {
            Purpose::Evidence => {
                watched.note_latencies(&result.latencies);
                let seen = SeenByWindow {
                    window: result.window,
                    operations: result.operations,
                    files: result.files,
                    families: result.families,
                    unknown_fetcher: fetcher,
                    remembered: watched.pain.as_ref().map(PainLedger::databases).unwrap_or_default(),
                };
                let access = Access::of(&watched.entry, watched.mode);
                let what = "reading the files of what a window saw";
                let read = move |session: &mut Session| {
                    Answer::Evidence(Box::new(session.read_evidence(seen, access)))
                };
                watched.awaits_evidence = watched.ask(&self.post, what, EVIDENCE_LIMIT, read);
                None
            }
            Purpose::Slice => Some(result.latencies),
        }
    }

    /// Takes in what a session has made of a window.
    pub fn take_evidence(&mut self, id: TargetId, read: EvidenceRead) {
        let Some(watched) = self.roster.get_mut(id) else { return };
        if let Some(offset) = read.fetcher_offset {
            self.windows.note_file_offset(watched.slot(), offset);
        }
        watched.take_evidence(read);
    }

    /// How long operations took that windows have seen since this was asked last, by target and column
    /// family.
    pub fn take_times(&mut self) -> Vec<(String, FamilyName, Times)> {
        let watched = self.roster.watched.iter_mut();
        let news = watched.map(|watched| (watched.target.name.clone(), watched.waits.take_news()));
        let named = news.flat_map(|(target, news)| {
            news.into_iter().map(move |(name, times)| (target.clone(), name, times))
        });
        named.collect()
    }

    /// What operations have waited for so far in a target's open window.
    pub fn latencies_now(&self, watched: &Watched) -> Option<Latencies> {
        self.windows.latencies(watched.window.window()?).ok()
    }

    /// Counts what the open windows of the cycle have cost so far and closes those that are over, or all.
    pub fn follow_windows(&mut self, all: bool, acted_on: &[TargetId]) {
        let ids: Vec<TargetId> = self.roster.watched.iter().map(|watched| watched.target.id).collect();
        for id in ids.into_iter().filter(|id| !acted_on.contains(id)) {
            if self.is_window_over(id) == Some(true) || all {
                self.close_window(id, Purpose::Evidence);
            }
        }
    }

    /// Keeps a window open on the target of a slice as far as its probe budget goes.
    pub fn keep_slice_window(&mut self, id: TargetId, wanted: &mut Instant) {
        if let Some(is_over) = self.is_window_over(id) {
            if is_over {
                self.close_window(id, Purpose::Slice);
            }
            return;
        }
        let length = self.policy.timing.window;
        let Some(watched) = self.roster.get_mut(id) else { return };
        if !watched.may_have_window() || *wanted > Instant::now() {
            return;
        }
        *wanted = Instant::now() + WINDOW_RETRY_INTERVAL;
        if let Allowance::Window { length_ns, credit_ns } = watched.spending.allowance(length) {
            self.open_window(id, (length_ns, credit_ns), Purpose::Slice);
        }
    }

    /// Charges an open window for its hits; gives whether it has to close. `None`: none is open.
    fn is_window_over(&mut self, id: TargetId) -> Option<bool> {
        let prices = self.prices.in_force();
        let Observer { roster, windows, .. } = self;
        let watched = roster.get_mut(id)?;
        let WindowStage::Open(window) = &mut watched.window else { return None };
        if let Err(error) = windows.poll() {
            warn!(%error, "while a window is open");
        }
        let counted = account(windows, window, &prices, &mut watched.spending);
        if let Err(error) = &counted {
            warn!(target = watched.target.name, %error, "what a window costs cannot be counted: it closes");
        }
        Some(counted.is_err() || watched.spending.is_over())
    }

    /// Closes the window of a process that has ended, or goes on where that was begun: what is known of it
    /// counts, and there is nothing left to plan for, nor to wait for.
    pub(super) fn end_windows_of(&mut self, process: &ProcessId) {
        let prices = self.prices.in_force();
        let Observer { roster, windows, sentinel, .. } = self;
        for watched in roster.watched.iter_mut().filter(|watched| watched.target.process == *process) {
            let Some(mut window) = watched.window.take() else { continue };
            let slot = watched.slot();
            let collected = sentinel.read(slot).and_then(|settling| {
                window.disarm();
                let closing = sentinel.read(slot)?;
                Ok((windows.collect(window, &settling, &closing)?, closing))
            });
            match collected {
                Ok((result, closing)) => drop(take_result(watched, result, closing, &prices)),
                Err(error) => lose_window(watched, &error),
            }
        }
    }
}

/// Nothing is heard of a target's probes: its window is lost, and its programs stop now. What hangs is let go
/// when it comes back.
pub fn give_up_probes(windows: &mut Windows, watched: &mut Watched) {
    watched.awaits_totals = false;
    if let Some(window) = watched.window.take() {
        watched.spending.end_window(None);
        watched.forget_price_check();
        abandon(windows, window, &watched.lease);
    }
}

/// Takes a window's accounts away, and its probes elsewhere.
pub fn abandon(windows: &mut Windows, mut window: OpenWindow, lease: &SlotLease) {
    let stopped = window.stop();
    probes::let_go((stopped, Arc::clone(lease)));
    if let Err(error) = windows.abandon(window) {
        warn!(%error, "the accounts of a window stay in the kernel for now");
    }
}

/// What a window saw is not known.
fn lose_window(watched: &mut Watched, error: &ProbeError) {
    warn!(target = watched.target.name, %error, "the window is lost");
    watched.spending.end_window(None);
    watched.forget_price_check();
}

/// Adds what a window saw to its target's sums.
fn take_result(
    watched: &mut Watched,
    result: WindowResult,
    closing: SentinelReading,
    prices: &ProbePrices,
) -> WindowResult {
    let learnt_cost_ns = prices.cost_ns(&result.probe_cost);
    watched.spending.end_window(Some((&result.probe_cost, learnt_cost_ns)));
    debug!(
        target = watched.target.name,
        operations = result.window.operations,
        recorded = result.window.operations_recorded,
        hits = result.probe_cost.total(),
        learnt_cost_ns,
        "a window has closed"
    );
    watched.take_window(&result, closing, learnt_cost_ns);
    result
}

/// Time since a window was last open on a target, nanoseconds; one of an earlier run counts as well, unless
/// something was still wanted then. `None`: look at once.
fn since_window_ns(journal: &Journal, watched: &Watched) -> Option<u64> {
    watched.since_window_ns().or_else(|| journal.since_window_ns(&databases(watched)))
}

/// Charges a window's hits to its target's account, and lets the programs spend what has come in since.
fn account(
    windows: &mut Windows,
    window: &mut OpenWindow,
    prices: &ProbePrices,
    spending: &mut Spending,
) -> Result<(), ProbeError> {
    spending.take_cost(prices.cost_ns(&windows.count(window)?));
    let more_ns = spending.available_ns().saturating_sub(windows.credit_ns(window)?);
    if more_ns > 0 {
        windows.grant(window, more_ns)?;
    }
    Ok(())
}
