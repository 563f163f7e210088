//! The loop: sentinel, window, join, rank, plan, act, verify.
//!
//! The engine owns everything that touches a target and runs on one thread. What to do is decided by the
//! tuner; what the outside may see is published as a [`Snapshot`]; what the outside may ask comes in over
//! one channel. Nobody else holds a reference into it.

mod act;
mod action_view;
mod control;
mod effect;
mod error;
mod evidence;
mod follow;
mod guards;
mod lineage;
mod looks;
mod perf_level;
mod policy_watch;
mod price_check;
mod prices;
mod publish;
mod recovery;
mod remedies;
mod roster;
mod slice;
mod spending;
mod tend;
mod throttles;
mod verify;
mod watched;

pub use control::Control;
pub use error::EngineError;

use crate::snapshot::Snapshot;
use follow::Follower;
use policy_watch::{News, PolicyWatch, Trouble};
use prices::{Changed, Prices};
use roster::{Look, Roster};
use sexton_inspect::facts::{DatabaseDirectory, ProcessId};
use sexton_inspect::process::is_alive;
use sexton_journal::{EventKind, Journal, OrphanedCompactions};
use sexton_probe::governor::ProbePrices;
use sexton_probe::{
    KernelFeatures, Loader, Mechanism, OpenWindow, ProbeError, Sentinel, Slot, WindowResult, Windows,
};
use sexton_tuner::attention::wants_window;
use sexton_tuner::daily::DailyBytes;
use sexton_tuner::governor::Allowance;
use sexton_tuner::plan::{Budget, Plan, PlanInput, PlanTarget};
use sexton_tuner::policy::Policy;
use sexton_tuner::run::DatabaseIdentity;
use sexton_tuner::schedule::{BudgetBucket, io_budget_at};
use sexton_tuner::throttle::KnownThrottles;
use spending::Spending;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};
use watched::Watched;

/// How often records are taken out of the ring buffer and hits are counted while a window is open: what a
/// window can cost beyond its budget is what comes in that time. Counting takes some microseconds.
const WINDOW_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Processes looked into before windows and commands have their turn again.
const LOOKS_AT_ONCE: usize = 16;

/// What an engine is to do.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub policy: Policy,
    /// Where it came from, for showing.
    pub policy_path: Option<PathBuf>,
    /// Only these processes; empty: all that the policy matches.
    pub pids: Vec<u32>,
    /// The hook's library, where it was named.
    pub hook_library: Option<PathBuf>,
    /// How probes are armed; `None`: the best way that the kernel has.
    pub mechanism: Option<Mechanism>,
    /// Who brings the programs into the kernel.
    pub loader: Loader,
    /// Where the state is kept; `None`: it is forgotten with the engine.
    pub state_directory: Option<PathBuf>,
    /// The file that events are appended to; `None`: one in the state directory.
    pub audit_log: Option<PathBuf>,
}

/// The loop and all that it knows.
pub struct Engine {
    options: EngineOptions,
    /// `None` where no policy was given.
    policy_watch: Option<PolicyWatch>,
    sentinel: Sentinel,
    windows: Windows,
    /// What hits cost here; learnt before the first window.
    prices: Prices,
    follower: Follower,
    roster: Roster,
    plan: Plan,
    bucket: BudgetBucket,
    /// Bytes that actions have rewritten in the last day.
    daily: DailyBytes,
    /// What is known of throttles.
    throttles: KnownThrottles,
    history: Journal,
    /// When the options that are set in targets were last looked after.
    options_tended: Option<Instant>,
    orphans: OrphanedCompactions,
    /// Targets that have had a window since the last verification.
    fresh: Vec<String>,
    cycles: u64,
}

impl Engine {
    /// Loads the BPF programs and checks that the processes asked for can be targets.
    ///
    /// # Errors
    /// A process that is no target, a state that cannot be used, or a kernel that refuses the programs.
    pub fn new(options: EngineOptions) -> Result<Engine, EngineError> {
        let mut roster = Roster::new(options.pids.clone());
        roster.check()?;
        let (directory, event_file) = (options.state_directory.as_deref(), options.audit_log.as_deref());
        let mut history = Journal::open(directory, event_file, options.policy.keys, is_alive)?;
        let features = KernelFeatures::probe();
        let mechanism = options.loader.mechanism(options.mechanism, &features)?;
        let sentinel = Sentinel::load_with(options.loader, &features)?;
        if let Some(reason) = sentinel.absence() {
            warn!(reason, "this kernel has no sentinel: totals are those of the windows");
        }
        let loader = options.loader.name();
        info!(kernel = features.release, loader, mechanism = mechanism.describe(), "probes");
        let now = jiff::Timestamp::now();
        let budget = io_budget_at(&options.policy, now);
        let mut bucket = history.budget().unwrap_or_else(|| BudgetBucket::full(budget, now));
        // A debt that no agent could pay off is none from here on.
        bucket.refill(budget, now);
        bucket.spend(history.take_interrupted_bytes());
        Ok(Engine {
            sentinel,
            windows: Windows::load_with(options.loader, mechanism)?,
            prices: Prices::default(),
            follower: Follower::new(),
            roster,
            plan: empty_plan(now),
            bucket,
            daily: history.daily(),
            throttles: history.throttles(),
            history,
            options_tended: None,
            orphans: OrphanedCompactions::default(),
            fresh: Vec::new(),
            cycles: 0,
            policy_watch: options.policy_path.as_deref().map(PolicyWatch::new),
            options,
        })
    }

    /// Cycles until told to stop.
    pub fn run(&mut self, control: &mut Control) {
        while !control.stopped() {
            let started = Instant::now();
            self.cycle(control, false);
            let interval = self.options.policy.timing.interval.duration();
            while control.waits_until(started + interval) {
                self.follower.wait(control.patience(started + interval));
                self.follow(control);
            }
        }
        self.put_back_all();
        self.history.interrupt_in_doubt();
    }

    /// One cycle with a window on every target, for `sexton plan`.
    pub fn cycle_once(&mut self) -> Snapshot {
        self.cycle(&mut Control::detached(), true);
        self.snapshot()
    }

    fn cycle(&mut self, control: &mut Control, always_window: bool) {
        self.follow(control);
        let at_once = self.follow_policy(control.take_reload()) | self.follower.take_incomplete();
        self.roster.sweep(at_once, &self.options.policy, &mut self.sentinel);
        self.history.retry();
        self.bucket.spend(self.history.take_interrupted_bytes());
        self.read_totals();
        self.observe(control, always_window);
        self.end_in_doubt();
        self.bucket.spend(self.history.take_interrupted_bytes());
        self.lift_pins();
        self.tend_throttles(control);
        self.make_plan();
        self.emit_plan();
        self.verify();
        self.cycles += 1;
        control.publish(self.snapshot());
        self.follow_orphans();
        self.act(control);
        control.publish(self.snapshot());
    }

    /// Looks at the policy's file; gives whether another one is in force now.
    fn follow_policy(&mut self, at_once: bool) -> bool {
        let Some(watch) = &mut self.policy_watch else { return false };
        let Some(news) = watch.look(&self.options.policy, at_once) else { return false };
        let path = watch.path().display().to_string();
        match news {
            News::Loaded(policy) => {
                self.put_back_for(&policy);
                self.options.policy = *policy;
                self.history.show_keys(self.options.policy.keys);
                self.roster.take_policy(&self.options.policy, &mut self.sentinel);
                self.forget_gone();
                self.history.emit(EventKind::PolicyLoaded { path });
                true
            }
            News::Trouble(Trouble::Gone(reason)) => {
                self.history.emit(EventKind::PolicyGone { path, reason });
                false
            }
            News::Trouble(Trouble::Broken(reason)) => {
                self.history.emit(EventKind::PolicyBroken { path, reason });
                false
            }
        }
    }

    /// Lets go of targets that have ended or changed since the last time, and looks into new processes.
    /// What changed is published at once. Options that are set in targets are looked after.
    fn follow(&mut self, control: &Control) {
        let mut changed = self.let_go();
        for _ in 0..LOOKS_AT_ONCE {
            let Some(pid) = self.follower.due() else { break };
            let began = Instant::now();
            match self.roster.look(pid, &self.options.policy, &mut self.sentinel) {
                Look::Nothing => self.follower.found_nothing(began),
                Look::Gone => self.follower.settled(pid),
                Look::Found { is_new, has_databases } => {
                    changed |= is_new;
                    if has_databases {
                        self.follower.settled(pid);
                    }
                }
            }
        }
        self.forget_gone();
        self.tend_options();
        if changed {
            control.publish(self.snapshot());
        }
    }

    /// Lets go of targets that have ended or changed since the last time; gives whether there were any.
    fn let_go(&mut self) -> bool {
        let news = self.follower.take(|pid| self.roster.wants(pid));
        let mut any = false;
        for process in &news.ended {
            self.end_window(process);
            any |= self.roster.end(process, &mut self.sentinel);
        }
        for process in &news.replaced {
            any |= self.roster.replace(process, &mut self.sentinel);
        }
        self.forget_gone();
        any
    }

    /// What is kept outside of the roster of targets that have gone.
    fn forget_gone(&mut self) {
        for gone in self.roster.take_gone() {
            self.history.forget_target(&gone.name);
            if let Some(window) = gone.window
                && let Err(error) = self.windows.abandon(window)
            {
                warn!(target = gone.name, %error, "its accounts stay in the kernel for now");
            }
        }
    }

    /// The sentinel's turn: what did every target count since the last cycle?
    fn read_totals(&mut self) {
        let sentinel = &mut self.sentinel;
        let readings: Vec<_> =
            self.roster.watched.iter().map(|watched| (watched.slot, sentinel.read(watched.slot))).collect();
        // What was read of a process that is another program by now was not its counters.
        self.let_go();
        for (slot, reading) in readings {
            let watched = self.roster.watched.iter_mut().find(|watched| watched.slot == slot);
            match (watched, reading) {
                (Some(watched), Ok(reading)) => watched.take_reading(reading),
                (Some(watched), Err(error)) => {
                    warn!(target = watched.target.name, %error, "cannot read totals");
                }
                (None, _) => {}
            }
        }
    }

    /// Windows on the targets that deserve one, all at the same time, each until its own end.
    fn observe(&mut self, control: &mut Control, always: bool) {
        self.open_windows(always);
        if !self.has_open_windows() {
            return;
        }
        control.publish(self.snapshot());
        let until = Instant::now() + self.options.policy.timing.window.duration();
        while control.waits_until(until) && self.has_open_windows() {
            self.follower.wait(control.patience(until).min(WINDOW_POLL_INTERVAL));
            if let Err(error) = self.windows.poll() {
                warn!(%error, "while a window is open");
            }
            self.follow(control);
            self.close_windows(control, Spending::is_over);
        }
        self.close_windows(control, |_| true);
    }

    fn has_open_windows(&self) -> bool {
        self.roster.watched.iter().any(|watched| watched.window.is_some())
    }

    fn open_windows(&mut self, always: bool) {
        let policy = &self.options.policy;
        let mut wanted = Vec::new();
        for watched in &mut self.roster.watched {
            // A plan is made of what this cycle's window sees, never of an earlier one's.
            watched.forget_observations();
            let due = always
                || self.history.pending(&watched.target.name).next().is_some()
                || wants_window(&watched.interval, since_window_ns(&self.history, watched), policy);
            if !due || watched.is_blind() {
                continue;
            }
            if let Allowance::Window { length_ns, credit_ns } =
                watched.spending.allowance(policy.timing.window)
            {
                wanted.push((watched.slot, length_ns, credit_ns));
            }
        }
        if wanted.is_empty() {
            return;
        }
        self.learn_prices();
        for (slot, length_ns, credit_ns) in wanted {
            self.open_window(slot, length_ns, credit_ns);
        }
    }

    fn open_window(&mut self, slot: Slot, length_ns: u64, credit_ns: u64) {
        let policy = &self.options.policy;
        let shares_process = self.roster.shares_process(slot);
        let Some(watched) = self.roster.watched.iter_mut().find(|watched| watched.slot == slot) else {
            return;
        };
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

    /// Counts what the open windows have cost so far and closes those that are over; what they saw is the
    /// evidence of this cycle.
    fn close_windows(&mut self, control: &Control, is_over: impl Fn(&Spending) -> bool) {
        let prices = self.prices.in_force();
        let mut results = Vec::new();
        for watched in &mut self.roster.watched {
            let Some(mut window) = watched.window.take() else { continue };
            let counted = account(&mut self.windows, &mut window, &prices, &mut watched.spending);
            if let Err(error) = &counted {
                warn!(target = watched.target.name, %error, "what a window costs cannot be counted: it closes");
            }
            if counted.is_ok() && !is_over(&watched.spending) {
                watched.window = Some(window);
                continue;
            }
            match settle(&mut self.sentinel, &mut self.windows, watched, window, &prices) {
                Ok(result) => results.push((watched.target.id, result)),
                Err(error) => warn!(target = watched.target.name, %error, "the window is lost"),
            }
        }
        for (id, result) in results {
            let known = self.roster.watched.iter_mut().find(|watched| watched.target.id == id);
            if let Some(watched) = known {
                self.fresh.push(watched.target.name.clone());
                evidence::update(watched, result, self.options.hook_library.as_deref());
            }
            // Reading SST files takes its time: nobody who starts meanwhile waits for all of them.
            self.follow(control);
        }
    }

    /// Closes the window of a process that has ended: what is known of it counts, and there is nothing left
    /// to plan for.
    fn end_window(&mut self, process: &ProcessId) {
        for watched in self.roster.watched.iter_mut().filter(|watched| watched.target.process == *process) {
            let Some(window) = watched.window.take() else { continue };
            let prices = self.prices.in_force();
            if let Err(error) = settle(&mut self.sentinel, &mut self.windows, watched, window, &prices) {
                warn!(target = watched.target.name, %error, "the window is lost");
            }
        }
    }

    fn make_plan(&mut self) {
        let now = jiff::Timestamp::now();
        let policy = &self.options.policy;
        for watched in &mut self.roster.watched {
            let Watched { target, evidence, .. } = watched;
            for evidence in evidence {
                let path = Path::new(&evidence.database);
                let database = target.databases.iter().find(|database| database.path == path);
                let identity = database.map(DatabaseDirectory::identity);
                evidence.past_actions =
                    identity.map(|identity| self.history.past_actions(&identity)).unwrap_or_default();
            }
        }
        lineage::tell_lineages(&mut self.roster);
        self.bucket.refill(io_budget_at(policy, now), now);
        let targets: Vec<PlanTarget<'_>> = self
            .roster
            .watched
            .iter()
            .map(|watched| PlanTarget {
                name: &watched.target.name,
                policy: &watched.entry,
                evidence: &watched.evidence,
            })
            .collect();
        let plan = sexton_tuner::plan(&PlanInput {
            policy,
            targets: &targets,
            budget: Budget { available_bytes: self.bucket.available_bytes() },
            throttles: &self.throttles,
            now,
            previous: Some(&self.plan),
        });
        match plan {
            Ok(plan) => self.plan = plan,
            Err(error) => {
                warn!(%error, "no plan");
                self.plan = empty_plan(now);
            }
        }
    }

    /// Emits what is new in the plan. Only a window brings refusals: those of a target that had none now are
    /// still in force.
    fn emit_plan(&mut self) {
        for target in &self.fresh {
            let refusals = self.plan.refusals.iter().filter(|refusal| refusal.target == *target);
            self.history.emit_refusals(target, &refusals.collect::<Vec<_>>());
            for watched in self.roster.watched.iter().filter(|watched| watched.target.name == *target) {
                self.history.keep_sample(target, &databases(watched), &self.plan);
            }
        }
        self.history.emit_plan(&self.plan);
    }
}

/// The databases that a target has open.
fn databases(watched: &Watched) -> Vec<DatabaseIdentity> {
    watched.target.databases.iter().map(DatabaseDirectory::identity).collect()
}

/// Time since a window was last open on a target, nanoseconds; one of an earlier run counts as well, unless
/// something was still wanted then. `None`: look at once.
fn since_window_ns(history: &Journal, watched: &Watched) -> Option<u64> {
    watched.since_window_ns().or_else(|| history.since_window_ns(&databases(watched)))
}

/// Takes the probes of a target away and adds what they saw to its sums.
fn settle(
    sentinel: &mut Sentinel,
    windows: &mut Windows,
    watched: &mut Watched,
    mut window: OpenWindow,
    prices: &ProbePrices,
) -> Result<WindowResult, ProbeError> {
    let Watched { target, identities, .. } = &mut *watched;
    let learnt = windows.learn_file_offset(&mut window, |fetcher| identities.find_file(target, fetcher));
    let collected = learnt.and_then(|()| sentinel.read(watched.slot)).and_then(|settling| {
        window.disarm();
        let closing = sentinel.read(watched.slot)?;
        Ok((windows.collect(window, &settling, &closing)?, closing))
    });
    let (result, closing) = match collected {
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
    Ok(result)
}

/// Charges a window's hits to its target's account, and lets the programs spend what has come in since.
fn account(
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

/// Nothing to do, nothing known.
fn empty_plan(at: jiff::Timestamp) -> Plan {
    Plan {
        at,
        budget_bytes: 0,
        cost_bytes: 0,
        actions: Vec::new(),
        refusals: Vec::new(),
        assessments: Vec::new(),
    }
}
