//! One target being watched: what has been read of it so far.

use super::checkpoints::Checkpoints;
use super::guard_record::GuardRecord;
use super::looks::Looks;
use super::perf_level::PerfLevel;
use super::price_check::PriceCheck;
use super::sessions::Sessions;
use super::spending::Spending;
use super::wait_record::WaitRecord;
use crate::inbox::{Event, Post};
use crate::session::probes::{self, ProbeNews, Prober, SlotLease};
use crate::session::{Answer, EvidenceRead, HOOK_PROBE_LIMIT, HookState, PROBE_LIMIT, Session};
use crate::worker::Worker;
use sexton_inspect::facts::{DatabaseDirectory, Gap, Target};
use sexton_inspect::layout::check_invariants;
use sexton_journal::EventKind;
use sexton_probe::{OpenWindow, Sentinel, SentinelReading, Slot, Thresholds, TotalsBy, WindowResult};
use sexton_tuner::attention::{Parted, Seen};
use sexton_tuner::evidence::{BlockFetches, Counters, Evidence, SentinelInterval, Window};
use sexton_tuner::latency::Latencies;
use sexton_tuner::ledger::PainLedger;
use sexton_tuner::lineage::Links;
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::policy::{Mode, Policy, ProbePolicy, TargetPolicy};
use sexton_tuner::price_correction::WindowWork;
use sexton_tuner::rank::survey::SurveyCursor;
use sexton_tuner::relief::CostFit;
use sexton_tuner::run::DatabaseIdentity;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// A target, the policy's entry for it, and all that was read of it.
pub struct Watched {
    pub target: Target,
    /// The policy's entry that matched.
    pub entry: TargetPolicy,
    /// What may be done to it.
    pub mode: Mode,
    /// Its place in the kernel's tables, which nobody else has while anything is done there.
    pub lease: SlotLease,
    /// The sentinel's last reading.
    pub last: SentinelReading,
    /// What the sentinel counted between its last two readings of the loop.
    pub interval: SentinelInterval,
    /// When the last window was opened.
    pub last_window: Option<Instant>,
    /// What its window does.
    pub window: WindowStage,
    /// What probes have cost it, and may cost it still.
    pub spending: Spending,
    /// Its session's thread.
    pub worker: Worker<Session>,
    /// Puts probes in, takes them away and reads totals.
    pub prober: Worker<Prober>,
    /// What the session has said of its hook.
    pub hook: HookState,
    /// Evidence of the last window, one entry a database.
    pub evidence: Vec<Evidence>,
    /// Whether no plan has been made of it yet.
    pub is_fresh: bool,
    /// Whether its hook gave no answers when it was asked last.
    pub is_hook_silent: bool,
    /// Since when it is told to be unresponsive.
    pub told_unresponsive: Option<Instant>,
    /// Whether its totals are being read.
    pub awaits_totals: bool,
    /// Whether the session is reading what belongs to a window.
    pub awaits_evidence: bool,
    /// What the OPTIONS files say of column families, by database and name.
    pub options: BTreeMap<PathBuf, BTreeMap<String, ColumnFamilyOptions>>,
    /// Hard links of its databases' SST files, by database.
    pub links: BTreeMap<PathBuf, Links>,
    /// Which of its databases were found to be checkpoints.
    pub checkpoints: Checkpoints,
    /// What looks at its databases have told.
    pub looks: Looks,
    /// What the guards have said.
    pub guards: GuardRecord,
    /// What operations waited for in the windows so far, the last ones counting most: what a slice's
    /// latencies are compared with.
    pub latencies: Latencies,
    /// What they waited for, by column family.
    pub waits: WaitRecord,
    /// What tombstones and block reads cost its readers, as learnt so far, over all its databases: for
    /// showing.
    pub costs: CostFit,
    /// The same of each database by itself: what others lose changes nothing of what it is charged.
    pub database_costs: BTreeMap<PathBuf, CostFit>,
    /// What its windows have parted that its counters do not.
    parted: Parted,
    /// The counts of its last window.
    pub seen: Window,
    /// What its windows have seen; `None` before what an earlier run knew was asked for.
    pub(super) pain: Option<PainLedger>,
    /// When that was last written down.
    pub(super) pain_kept: Option<Instant>,
    /// Where the survey of each of its databases stands.
    pub(super) cursors: BTreeMap<DatabaseIdentity, SurveyCursor>,
    /// Why the SST files of a database could not be read.
    pub files_gap: Option<Gap>,
    /// Whether the last window that shows it had to estimate: the counters of threads stand still.
    pub(super) is_estimated: bool,
    price_check: PriceCheck,
    pub(super) perf_level: PerfLevel,
    /// What had been counted at the first reading; `None` before that.
    pub(super) baseline: Option<Counters>,
    pub(super) sums: Sums,
}

/// What a target's window does.
#[derive(Default)]
pub enum WindowStage {
    /// There is none.
    #[default]
    None,
    /// Its probes are being put in.
    Opening {
        /// Since when.
        since: Instant,
        /// How long it is to be open, nanoseconds.
        length_ns: u64,
        /// What it is for.
        purpose: Purpose,
    },
    /// It is open.
    Open(OpenWindow),
    /// Its probes are being taken away.
    Closing {
        /// With what it saw.
        window: OpenWindow,
        /// The beginning of a block fetcher, where it is not known yet what stands in one.
        fetcher: Option<Vec<u64>>,
        /// What it was for.
        purpose: Purpose,
    },
}

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The next plan.
    Evidence,
    /// What readers wait for while a slice runs.
    Slice,
}

impl WindowStage {
    /// The window, open or about to close.
    pub fn window(&self) -> Option<&OpenWindow> {
        match self {
            WindowStage::Open(window) | WindowStage::Closing { window, .. } => Some(window),
            WindowStage::None | WindowStage::Opening { .. } => None,
        }
    }

    /// The window, to be let go.
    pub fn take(&mut self) -> Option<OpenWindow> {
        match std::mem::take(self) {
            WindowStage::Open(window) | WindowStage::Closing { window, .. } => Some(window),
            WindowStage::None | WindowStage::Opening { .. } => None,
        }
    }
}

#[derive(Default)]
pub(super) struct Sums {
    pub attributed: Counters,
    pub totals: Counters,
    pub operations: u64,
    pub operations_recorded: u64,
    pub window_ns: u64,
    pub windows: u64,
    pub operations_estimated: u64,
    pub old_versions: u64,
    pub records_lost: u64,
    pub fetches: BlockFetches,
}

impl Watched {
    /// A target that nothing was read of yet.
    pub fn new(
        target: Target,
        entry: TargetPolicy,
        mode: Mode,
        probes: ProbePolicy,
        lease: SlotLease,
        sessions: &Sessions,
    ) -> Watched {
        Watched {
            worker: sessions.worker(&target),
            prober: sessions.prober(&target),
            perf_level: PerfLevel::new(entry.raise_perf_level),
            target,
            entry,
            mode,
            lease,
            baseline: None,
            last: SentinelReading::of_threads([]),
            interval: SentinelInterval::default(),
            last_window: None,
            window: WindowStage::None,
            spending: Spending::new(probes.budget),
            hook: HookState::default(),
            evidence: Vec::new(),
            is_fresh: false,
            awaits_totals: false,
            awaits_evidence: false,
            is_hook_silent: false,
            told_unresponsive: None,
            options: BTreeMap::new(),
            links: BTreeMap::new(),
            checkpoints: Checkpoints::default(),
            looks: Looks::default(),
            guards: GuardRecord::default(),
            latencies: Latencies::default(),
            waits: WaitRecord::default(),
            costs: CostFit::default(),
            database_costs: BTreeMap::new(),
            parted: Parted::default(),
            seen: Window::default(),
            pain: None,
            pain_kept: None,
            cursors: BTreeMap::new(),
            files_gap: None,
            is_estimated: false,
            price_check: PriceCheck::default(),
            sums: Sums::default(),
        }
    }

    /// Another policy is in force, with this entry for the target.
    pub fn take_policy(&mut self, entry: TargetPolicy, policy: &Policy) {
        self.mode = policy.mode_of(&entry);
        self.spending.take_budget(policy.probes_of(&entry).budget);
        if entry.raise_perf_level != self.entry.raise_perf_level {
            // What was raised is put back when its keeper goes.
            self.perf_level = PerfLevel::new(entry.raise_perf_level);
        }
        self.entry = entry;
    }

    /// Asks the session, which has so long from when its turn comes; its answer is sent to `post`. `false`:
    /// not now.
    pub fn ask(
        &mut self,
        post: &Post,
        what: &'static str,
        limit: Duration,
        work: impl FnOnce(&mut Session) -> Answer + Send + 'static,
    ) -> bool {
        let work = self.answering(post, work);
        self.worker.ask(what, limit, work)
    }

    /// Asks one that gives no answers whether it does again, where it is time to.
    pub fn probe(&mut self, post: &Post) {
        if self.worker.is_probe_due() {
            let was_silent = self.is_hook_silent;
            let work = self.answering(post, move |session| session.probe(was_silent));
            let limit = if was_silent { HOOK_PROBE_LIMIT } else { PROBE_LIMIT };
            self.worker.probe("looking at its files", limit, work);
        }
    }

    fn answering(
        &mut self,
        post: &Post,
        work: impl FnOnce(&mut Session) -> Answer + Send + 'static,
    ) -> impl FnOnce(&mut Session) + Send + 'static {
        let (post, target) = (post.clone(), self.target.id);
        let generation = self.worker.next_generation();
        move |session| {
            let answer = session.stands_still().map_or_else(|| work(session), Answer::StandsStill);
            let silence = session.take_silence().map(Answer::HookSilent);
            // Who is silent is not present.
            let answer = Some(answer).filter(|it| silence.is_none() || !matches!(it, Answer::Present { .. }));
            for answer in answer.into_iter().chain(silence) {
                post.send(Event::Answered { target, generation, answer });
            }
        }
    }

    /// It answers. What was found in the process while it did not was not told to the session.
    pub fn note_present(&mut self, is_hook_asked: bool) {
        let is_held = self.prober.trouble().is_some() && !self.is_prober_free();
        if self.worker.trouble().is_none() || is_held || self.is_hook_silent && !is_hook_asked {
            return;
        }
        self.worker.recovered();
        self.prober.recovered();
        self.is_hook_silent = false;
        let known = self.target.clone();
        self.worker.ask("taking in what was found", PROBE_LIMIT, move |session| session.take_target(known));
    }

    /// Its place in the kernel's tables.
    pub fn slot(&self) -> Slot {
        *self.lease
    }

    /// Has something done to its probes, or its totals read; what comes of it is sent to `post`. `false`: not
    /// now.
    pub fn ask_prober(
        &mut self,
        post: &Post,
        what: &'static str,
        work: impl FnOnce() -> ProbeNews + Send + 'static,
    ) -> bool {
        probes::ask(&mut self.prober, (post, self.target.id, &self.lease), what, work)
    }

    /// Has its totals read, where they are not being read already: who is answered once takes the probes for
    /// free.
    pub fn ask_totals(&mut self, sentinel: &Sentinel, post: &Post) {
        if self.awaits_totals {
            return;
        }
        match sentinel.reader(self.slot()) {
            Ok(reader) => {
                let read = move || ProbeNews::Totals(reader.read());
                self.awaits_totals = self.ask_prober(post, "reading its totals", read);
            }
            Err(error) => warn!(target = self.target.name, %error, "cannot read totals"),
        }
    }

    /// Whether nothing is being done to its probes.
    pub fn is_prober_free(&self) -> bool {
        Arc::strong_count(&self.lease) == 1
    }

    /// Takes in what was found in the process anew.
    pub fn take_target(&mut self, target: Target, sessions: &Sessions) {
        self.worker.make_with(sessions.making(&target));
        let known = target.clone();
        self.worker.ask("taking in what was found", PROBE_LIMIT, move |session| session.take_target(known));
        self.target = target;
    }

    /// Takes in what the session has made of a window.
    pub fn take_evidence(&mut self, read: EvidenceRead) {
        let EvidenceRead { mut evidence, links, options, waits, files_gap, fetcher_offset: _, hook } = read;
        self.waits.take(waits);
        self.learn_costs(&evidence);
        for evidence in &mut evidence {
            evidence.sentinel = self.interval;
            let costs = self.database_costs.get(Path::new(&evidence.database));
            evidence.costs = costs.map(CostFit::costs);
        }
        evidence.iter().for_each(|evidence| self.looks.take_window(evidence));
        (self.evidence, self.links, self.options) = (evidence, links, options);
        (self.files_gap, self.hook) = (files_gap, hook);
        (self.is_fresh, self.awaits_evidence) = (true, false);
    }

    /// Learns what tombstones and block reads cost. Readers of one database have a block cache, files and
    /// keys of their own, so each database has its own prices.
    fn learn_costs(&mut self, evidence: &[Evidence]) {
        self.costs.learn(evidence.iter().flat_map(|evidence| &evidence.observations));
        let is_known = |path: &PathBuf| evidence.iter().any(|evidence| Path::new(&evidence.database) == path);
        self.database_costs.retain(|path, _| is_known(path));
        for evidence in evidence {
            let costs = self.database_costs.entry(PathBuf::from(&evidence.database)).or_default();
            costs.learn(&evidence.observations);
        }
    }

    /// Takes a reading of the sentinel as the end of an interval. Where there is no sentinel, or the counters
    /// that it reads stand still, the interval is that of the last window.
    pub fn take_reading(&mut self, reading: SentinelReading) {
        self.perf_level.take(&self.target, &reading);
        if self.baseline.is_none() {
            (self.baseline, self.last) = (Some(reading.total), reading);
            return;
        }
        if self.perf_level.raised_threads() > 0 {
            // The counters move now, whatever the last window had to do without.
            self.is_estimated = false;
        }
        if reading.totals_by == TotalsBy::Windows || self.is_estimated {
            self.price_check.lose();
            self.last = reading;
            return;
        }
        if let Some(work) = self.price_check.take_interval(&self.last, &reading) {
            self.check_prices(&work);
        }
        let elapsed = reading.at.saturating_duration_since(self.last.at);
        self.interval = SentinelInterval {
            duration_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            counters: reading.total.minus(self.last.total),
        };
        self.last = reading;
    }

    /// Moves the end of the interval to a later reading: the window lies in it as well.
    fn extend_interval(&mut self, reading: SentinelReading) {
        let elapsed = reading.at.saturating_duration_since(self.last.at);
        let more = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.interval.duration_ns = self.interval.duration_ns.saturating_add(more);
        self.interval.counters = self.interval.counters.plus(reading.total.minus(self.last.total));
        self.last = reading;
    }

    /// Holds what a window cost against what its hits cost by the learnt prices.
    fn check_prices(&mut self, work: &WindowWork) {
        let target = &self.target.name;
        match self.spending.take_window_work(work) {
            Ok(()) => {
                debug!(target, correction_ratio = self.spending.correction_ratio(), ?work, "prices of probes")
            }
            Err(reason) => debug!(target, reason = reason.in_words(), "a window says nothing about prices"),
        }
    }

    /// What the target's threads do around this window tells nothing about prices.
    pub fn forget_price_check(&mut self) {
        self.price_check.lose();
    }

    /// Adds a window to the target's sums; `closing` is the sentinel's reading at its end, and
    /// `learnt_cost_ns` what its hits cost by the learnt prices.
    pub fn take_window(&mut self, result: &WindowResult, closing: SentinelReading, learnt_cost_ns: u64) {
        self.price_check.take_window(&self.last, &closing, &result.threads, learnt_cost_ns);
        let window = &result.window;
        self.is_estimated = window.operations_estimated > 0 || self.is_estimated && !window.has_counted();
        match closing.totals_by {
            TotalsBy::Sentinel if !self.is_estimated => self.extend_interval(closing),
            by => {
                // There is nothing that counts, or it stands still: what the probes saw is all that is known.
                self.interval = SentinelInterval { duration_ns: window.duration_ns, counters: window.total };
                if by == TotalsBy::Sentinel {
                    self.last = closing;
                }
            }
        }
        let seen = result.operations.iter().map(|operation| &operation.observation);
        let old_versions = seen.map(|it| it.old_versions().saturating_mul(it.weight)).sum();
        self.parted.take(window, old_versions);
        self.sums.old_versions = self.sums.old_versions.saturating_add(old_versions);
        self.seen = *window;
        self.sums.totals = self.sums.totals.plus(window.total);
        self.sums.attributed = self.sums.attributed.plus(window.attributed);
        self.sums.operations += window.operations;
        self.sums.operations_recorded += window.operations_recorded;
        self.sums.window_ns += window.duration_ns;
        self.sums.windows += 1;
        self.sums.operations_estimated += window.operations_estimated;
        self.sums.records_lost += window.records_lost;
        let files = result.files.iter().map(|file| file.fetches);
        self.sums.fetches = files.fold(self.sums.fetches, BlockFetches::plus);
    }

    /// Forgets the pain that the last window saw; what is known of the files stays.
    pub fn forget_observations(&mut self) {
        for evidence in &mut self.evidence {
            evidence.observations.clear();
            evidence.file_reads.clear();
        }
    }

    /// Time since the last window, `None` if there was none.
    pub fn since_window_ns(&self) -> Option<u64> {
        self.last_window.map(|opened| u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What is known of it when it is decided whether to look at it.
    pub fn what_was_seen(&self, since_window_ns: Option<u64>) -> Seen<'_> {
        let (costs, parted) = (self.costs.costs(), self.parted);
        Seen { interval: &self.interval, costs, parted, since_window_ns }
    }

    /// What the kernel is to record of this target at first.
    pub fn thresholds(&self, policy: &Policy) -> Thresholds {
        Thresholds {
            tombstones_per_operation: policy.thresholds.tombstones_per_operation,
            block_reads_per_operation: policy.thresholds.block_reads_per_operation,
        }
    }

    /// What a database of this target is called in the history.
    pub fn identity_of(&self, directory: &Path) -> Option<DatabaseIdentity> {
        self.target
            .databases
            .iter()
            .find(|database| database.path == directory)
            .map(DatabaseDirectory::identity)
    }

    /// Takes in what operations waited for in a window in which nothing was done to the target.
    pub fn note_latencies(&mut self, latencies: &Latencies) {
        self.latencies.fade();
        self.latencies.merge(latencies);
    }

    /// Whether a window may open now: nothing is done to its probes, and what was read of it makes sense.
    pub fn may_have_window(&self) -> bool {
        let is_free = matches!(self.window, WindowStage::None) && self.is_prober_free();
        is_free && self.baseline.is_some() && !self.is_blind()
    }

    /// Whether the counters cannot be believed at all.
    pub fn is_blind(&self) -> bool {
        !self.target.module.sites.has_a_seek() || check_invariants(&self.last.thread_counters()).is_err()
    }

    /// It has become unresponsive, or answers again, since the last time: what there is to tell of it.
    pub fn tell_unresponsive(&mut self) -> Option<EventKind> {
        let (target, pid) = (self.target.name.clone(), self.target.process.pid);
        match (self.worker.trouble(), self.told_unresponsive) {
            (Some(trouble), None) => {
                self.told_unresponsive = Some(trouble.since);
                Some(EventKind::TargetUnresponsive { target, pid, reason: trouble.reason.clone() })
            }
            (None, Some(since)) => {
                self.told_unresponsive = None;
                let after_seconds = since.elapsed().as_secs_f64();
                Some(EventKind::TargetResponsive { target, pid, after_seconds })
            }
            _ => None,
        }
    }
}

/// The databases that a target has open.
pub fn databases(watched: &Watched) -> Vec<DatabaseIdentity> {
    watched.target.databases.iter().map(DatabaseDirectory::identity).collect()
}
