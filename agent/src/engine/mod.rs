//! The loop: sentinel, window, join, rank, plan, act, verify.
//!
//! The engine owns everything that touches a target and runs on one thread. What to do is decided by the
//! tuner; what the outside may see is published as a [`Snapshot`]; what the outside may ask comes in over
//! one channel. Nobody else holds a reference into it.

mod act;
mod control;
mod evidence;
mod history;
pub(crate) mod identity;
mod publish;
mod roster;
mod watched;

pub use control::Control;

use crate::failure::Failure;
use crate::probe::{Credit, KernelFeatures, Loader, Mechanism, OpenWindow, Sentinel, Windows};
use crate::snapshot::Snapshot;
use history::History;
use roster::Roster;
use sexton_tuner::attention::wants_window;
use sexton_tuner::plan::{Budget, Plan, PlanInput, PlanTarget, ThrottlesInForce};
use sexton_tuner::policy::Policy;
use sexton_tuner::schedule::{BudgetBucket, io_budget_at};
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Instant;
use tracing::{debug, info, warn};

/// What an engine is to do.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The policy.
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
}

/// The loop and all that it knows.
pub struct Engine {
    options: EngineOptions,
    sentinel: Sentinel,
    windows: Windows,
    roster: Roster,
    plan: Plan,
    bucket: BudgetBucket,
    /// Throttle values in force, by target and name: what was set last.
    throttles: ThrottlesInForce,
    history: History,
    /// Targets that have had a window since the last verification.
    fresh: Vec<String>,
    cycles: u64,
}

impl Engine {
    /// Loads the BPF programs and checks that the processes asked for can be targets.
    ///
    /// # Errors
    /// A process that is no target, or a kernel that refuses the programs.
    pub fn new(options: EngineOptions) -> Result<Engine, Failure> {
        let mut roster = Roster::new(options.pids.clone());
        roster.check()?;
        let features = KernelFeatures::probe();
        let mechanism = options.loader.mechanism(options.mechanism, &features)?;
        let sentinel = Sentinel::load_with(options.loader, &features)?;
        if let Some(reason) = sentinel.absence() {
            warn!(reason, "this kernel has no sentinel: totals are those of the windows");
        }
        let loader = options.loader.name();
        info!(kernel = features.release, loader, mechanism = mechanism.describe(), "probes");
        let now = jiff::Timestamp::now();
        Ok(Engine {
            sentinel,
            windows: Windows::load_with(options.loader, mechanism)?,
            roster,
            plan: empty_plan(now),
            bucket: BudgetBucket::full(io_budget_at(&options.policy, now), now),
            throttles: ThrottlesInForce::new(),
            history: History::default(),
            fresh: Vec::new(),
            cycles: 0,
            options,
        })
    }

    /// Cycles until told to stop.
    pub fn run(&mut self, control: &mut Control) {
        while !control.stopped() {
            let started = Instant::now();
            self.cycle(control, false);
            let interval = self.options.policy.timing.interval.duration();
            control.wait_until(started + interval, || Ok::<(), Infallible>(()));
        }
    }

    /// One cycle with a window on every target, for `sexton plan`.
    pub fn cycle_once(&mut self) -> Snapshot {
        self.cycle(&mut Control::detached(), true);
        self.snapshot()
    }

    fn cycle(&mut self, control: &mut Control, always_window: bool) {
        self.roster.sweep(&self.options.policy, &mut self.sentinel);
        for lost in &self.roster.lost {
            self.history.forget(&lost.view.name);
        }
        self.read_totals();
        self.observe(control, always_window);
        self.make_plan();
        self.verify();
        self.cycles += 1;
        control.publish(self.snapshot());
        self.act(control);
        control.publish(self.snapshot());
    }

    /// The sentinel's turn: what did every target count since the last cycle?
    fn read_totals(&mut self) {
        for watched in &mut self.roster.watched {
            match self.sentinel.read(watched.slot) {
                Ok(reading) => watched.take_reading(reading),
                Err(error) => warn!(target = watched.target.name, %error, "cannot read totals"),
            }
        }
    }

    /// Windows on the targets that deserve one, all at the same time.
    fn observe(&mut self, control: &mut Control, always: bool) {
        let open = self.open_windows(always);
        if open.is_empty() {
            return;
        }
        control.publish(self.snapshot_armed(&open));
        let until = Instant::now() + self.options.policy.timing.window.duration();
        let windows = &mut self.windows;
        control.wait_until(until, || windows.poll());
        for window in open {
            self.close_window(window);
        }
    }

    fn open_windows(&mut self, always: bool) -> Vec<OpenWindow> {
        let policy = &self.options.policy;
        let mut open = Vec::new();
        for watched in &mut self.roster.watched {
            // A plan is made of what this cycle's window sees, never of an earlier one's.
            watched.forget_observations();
            let due = always
                || self.history.owes(&watched.target.name)
                || wants_window(&watched.interval, watched.since_window_ns(), policy);
            if !due || watched.is_blind() {
                continue;
            }
            let thresholds = watched.thresholds(policy);
            watched.last_window = Some(Instant::now());
            match self.windows.open(
                &watched.target,
                watched.slot,
                thresholds,
                &Credit::unlimited(),
                &watched.last,
            ) {
                Ok(window) => open.push(window),
                Err(error) => warn!(target = watched.target.name, %error, "cannot open a window"),
            }
        }
        open
    }

    fn close_window(&mut self, mut window: OpenWindow) {
        let slot = window.slot();
        let Some(watched) = self.roster.watched.iter_mut().find(|watched| watched.slot == slot) else {
            return;
        };
        let result = self.sentinel.read(slot).and_then(|settling| {
            window.disarm();
            let closing = self.sentinel.read(slot)?;
            Ok((self.windows.collect(window, &settling, &closing)?, closing))
        });
        match result {
            Ok((result, closing)) => {
                debug!(
                    target = watched.target.name,
                    operations = result.window.operations,
                    painful = result.window.operations_painful,
                    hits = result.probe_cost.total(),
                    "window"
                );
                watched.take_window(&result, closing);
                self.fresh.push(watched.target.name.clone());
                evidence::update(watched, result, self.options.hook_library.as_deref());
            }
            Err(error) => warn!(target = watched.target.name, %error, "the window is lost"),
        }
    }

    fn make_plan(&mut self) {
        let now = jiff::Timestamp::now();
        let policy = &self.options.policy;
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
            throttles_in_force: &self.throttles,
            now,
        });
        match plan {
            Ok(plan) => self.plan = plan,
            Err(error) => {
                warn!(%error, "no plan");
                self.plan = empty_plan(now);
            }
        }
    }
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
