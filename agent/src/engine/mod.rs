//! The loop: sentinel, window, join, rank, plan, act, verify.
//!
//! The engine runs on one thread and waits in one place. What is known of the targets is the observer's, what
//! is done to them the actor's; the engine takes events to them, makes plans of what is known, and has what
//! the outside may see published as a [`Snapshot`]. What the outside may ask comes in over one channel.

mod control;
mod error;
mod events;
mod planning;
mod policy_watch;

pub use control::Control;
pub use error::EngineError;

use crate::act::Actor;
use crate::history::Recorder;
use crate::inbox::{Inbox, Post};
use crate::observe::{self, Due, OPENING_TIME_MAX, Observer, Roster, Sessions};
use crate::publish::{Known, policy_view};
use crate::service::ServiceManager;
use crate::snapshot::Snapshot;
use crate::worker::LeftBehind;
use planning::Planned;
use policy_watch::{News, PolicyWatch, Trouble};
use sexton_journal::{EventKind, Journal, clock};
use sexton_probe::{Loader, Mechanism};
use sexton_tuner::policy::Policy;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest that the first cycle waits for the node to be searched, and one that was asked for: the files of
/// some dozen programs are read for the first time.
const SEARCH_WAIT_MAX: Duration = Duration::from_secs(20);

/// Shortest time that a plan waits for the files of its windows, however often there are cycles: they are
/// read in some tens of milliseconds. What comes later belongs to the next plan.
const JOIN_WAIT_MIN: Duration = Duration::from_millis(500);

/// Longest that a cycle waits for totals: some milliseconds on an idle processor. What takes longer is of the
/// next cycle.
const TOTALS_WAIT: Duration = Duration::from_millis(500);

/// Longest that `sexton plan` waits for them: as long as a session may take.
const JOIN_WAIT_ONCE: Duration = Duration::from_secs(60);

/// How often what is under way is looked after: nobody minds a quarter of a second. An idle agent wakes when
/// something is due, or happens.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// A cycle that has not ended after so many intervals, and some time for what it waits for, is late.
const LATE_INTERVALS: u32 = 3;
const LATE_SLACK: Duration = Duration::from_secs(60);

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
    /// The library that loads the BPF programs.
    pub loader: Loader,
    /// Where the state is kept; `None`: it is forgotten with the engine.
    pub state_directory: Option<PathBuf>,
    /// The file that events are appended to; `None`: one in the state directory.
    pub audit_log: Option<PathBuf>,
}

/// Where a cycle stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The last one is over.
    Resting,
    /// The node is searched for targets.
    Searching,
    /// Totals are read.
    Reading,
    /// Windows are open.
    Sampling,
    /// Sessions read the files of what the windows saw.
    Joining,
}

/// The loop and what it goes between.
pub struct Engine {
    policy_path: Option<PathBuf>,
    /// The policy as it was written; what of it holds now is the observer's.
    policy: Policy,
    /// The same, as it is shown.
    policy_content: Arc<serde_json::Value>,
    /// What tells this node from others.
    node: u64,
    /// `None` where no policy was given.
    policy_watch: Option<PolicyWatch>,
    inbox: Inbox,
    observer: Observer,
    actor: Actor,
    planned: Planned,
    history: Recorder,
    cycles: u64,
    phase: Phase,
    /// When the phase is over at the latest.
    phase_until: Instant,
    cycle_started: Instant,
    /// When the next cycle has to have ended; `None` before the first one has.
    next_end: Option<Instant>,
    service: ServiceManager,
    /// Whether each cycle has a window on every target.
    always_window: bool,
}

impl Engine {
    /// Loads the BPF programs and checks that the processes asked for can be targets.
    ///
    /// # Errors
    /// A process that is no target, a state that cannot be used, or a kernel that refuses the programs.
    pub fn new(options: EngineOptions) -> Result<Engine, EngineError> {
        let EngineOptions { policy, policy_path, pids, hook_library, mechanism, loader, .. } = options;
        let (inbox, post) = Inbox::new().map_err(EngineError::Descriptors)?;
        let left_behind = LeftBehind::default();
        let sessions = Sessions { hook_library, post: post.clone(), left_behind: left_behind.clone() };
        let roster = Roster::new(pids, sessions);
        roster.check()?;
        let (directory, event_file) = (options.state_directory.as_deref(), options.audit_log.as_deref());
        let journal = Journal::open(directory, event_file, policy.keys)?;
        let node = crate::node::number();
        let in_force = policy.at(clock::now().at, node);
        let actor = Actor::new(journal, &in_force, policy_path.clone(), post.clone());
        let observer = Observer::new(in_force, roster, post, left_behind, (loader, mechanism))?;
        let started = Instant::now();
        let mut engine = Engine {
            policy_content: Arc::new(policy_view(&policy)),
            policy,
            node,
            policy_watch: policy_path.as_deref().map(PolicyWatch::new),
            policy_path,
            inbox,
            observer,
            actor,
            planned: Planned::nothing(jiff::Timestamp::now()),
            history: Recorder::open(directory),
            cycles: 0,
            phase: Phase::Resting,
            phase_until: started,
            cycle_started: started,
            next_end: None,
            service: ServiceManager::default(),
            always_window: false,
        };
        engine.actor.load(&mut engine.observer);
        Ok(engine)
    }

    /// What wakes the loop: whoever asks something of it rings.
    pub(crate) fn post(&self) -> Post {
        self.observer.post.clone()
    }

    /// Cycles until told to stop.
    pub fn run(&mut self, control: &mut Control) {
        self.service = ServiceManager::of_environment();
        self.service.ready();
        while !control.stopped() {
            self.advance(control);
            self.turn(control, self.cycle_due());
        }
        self.service.stopping();
        self.actor.end(&mut self.observer);
        while self.actor.is_acting() {
            self.turn(control, None);
        }
        self.actor.release_all();
        self.actor.restore_all(&mut self.observer);
        let began = Instant::now();
        while self.actor.awaits_restored(began.elapsed()) || self.actor.awaits_released(began.elapsed()) {
            self.turn(control, None);
        }
        self.actor.tell_unrestored();
    }

    /// One cycle with a window on every target, for `sexton plan`.
    pub fn cycle_once(&mut self) -> Snapshot {
        let mut control = Control::detached();
        self.always_window = true;
        while self.cycles == 0 {
            self.advance(&mut control);
            self.turn(&mut control, self.cycle_due());
        }
        self.snapshot()
    }

    /// Everything the outside may know now.
    fn snapshot(&self) -> Snapshot {
        let trouble = self.policy_watch.as_ref().and_then(PolicyWatch::trouble);
        let known = Known {
            observer: &self.observer,
            actor: &self.actor,
            plan: &self.planned.plan,
            ranges: &self.planned.shown,
            history: &self.history,
            cycles: self.cycles,
            cycle_due: self.next_end,
            policy_path: self.policy_path.as_deref(),
            policy_content: &self.policy_content,
            policy_trouble: trouble.map(Trouble::reason),
        };
        known.snapshot()
    }

    /// Takes the cycle on as far as it can go without waiting, at most to its end.
    fn advance(&mut self, control: &mut Control) {
        loop {
            let before = self.phase;
            self.step_on(control);
            if self.phase == before || self.phase == Phase::Resting {
                return;
            }
        }
    }

    fn step_on(&mut self, control: &mut Control) {
        let is_late = Instant::now() >= self.phase_until;
        match self.phase {
            Phase::Resting if is_late || control.take_cycle_now() => self.begin_cycle(control),
            Phase::Searching if is_late || !self.observer.is_sweeping() => {
                self.observer.ask_totals(&self.actor.acted_on());
                self.enter(Phase::Reading, TOTALS_WAIT);
            }
            Phase::Reading if is_late || !self.observer.awaits_totals() => self.sample(),
            Phase::Sampling => {
                let acted_on = self.actor.acted_on();
                self.observer.follow_windows(is_late, &acted_on);
                if !self.observer.has_windows_of_cycle(&acted_on) {
                    self.enter(Phase::Joining, self.join_wait());
                }
            }
            Phase::Joining => {
                let awaits_throttles = self.actor.awaits_throttles(&self.observer);
                if is_late || !self.observer.awaits_evidence() && !awaits_throttles {
                    self.decide(control);
                }
            }
            Phase::Resting | Phase::Searching | Phase::Reading => {}
        }
    }

    fn enter(&mut self, phase: Phase, limit: Duration) {
        (self.phase, self.phase_until) = (phase, Instant::now() + limit);
    }

    fn join_wait(&self) -> Duration {
        let half_interval = self.observer.policy.timing.interval.duration() / 2;
        if self.always_window { JOIN_WAIT_ONCE } else { half_interval.max(JOIN_WAIT_MIN) }
    }

    fn begin_cycle(&mut self, control: &mut Control) {
        self.cycle_started = Instant::now();
        let is_policy_new = self.follow_policy(control.take_reload());
        self.follow_schedule();
        let at_once = self.observer.begin_cycle(is_policy_new);
        self.forget_gone();
        self.actor.begin_cycle(&mut self.observer);
        // What is found later is looked at in the next cycle.
        let is_waited_for = at_once || self.cycles == 0;
        self.enter(Phase::Searching, if is_waited_for { SEARCH_WAIT_MAX } else { Duration::ZERO });
    }

    fn sample(&mut self) {
        let Engine { observer, actor, .. } = self;
        actor.ask_controllers(observer);
        actor.tend_throttles(observer);
        let due = if self.always_window { Due::All } else { Due::Only(actor.targets_to_verify()) };
        observer.open_windows(&actor.journal, &due, &actor.acted_on());
        self.enter(Phase::Sampling, self.observer.policy.timing.window.duration() + OPENING_TIME_MAX);
    }

    /// What is known now is planned with, and the plan is carried out.
    fn decide(&mut self, control: &mut Control) {
        let Engine { observer, actor, planned, .. } = self;
        actor.ask_controllers(observer);
        actor.end_unwanted_throttles(observer);
        planned.renew(observer, actor);
        planned.emit(observer, actor);
        actor.take_plan(&planned.plan, &planned.fresh);
        actor.verify(observer, &planned.plan, &planned.fresh);
        self.cycles += 1;
        let interval = observer.policy.timing.interval.duration();
        let late_after = interval * LATE_INTERVALS + LATE_SLACK;
        self.next_end = Some(Instant::now() + late_after);
        let listed = actor.journal.listed(&actor.ledger);
        let times = observer.take_times();
        self.history.record(clock::now().at, late_after, &planned.shown, times, listed);
        actor.act(observer, !control.stopped());
        actor.follow_inquiries(observer);
        if !self.always_window {
            observer.ask_sightings(&actor.acted_on());
        }
        control.publish(self.snapshot());
        (self.phase, self.phase_until) = (Phase::Resting, self.cycle_started + interval);
    }

    /// Waits until something has happened or is due, at the latest the cycle, and takes it in. What changed
    /// is published at once.
    fn turn(&mut self, control: &mut Control, cycle_due: Option<Instant>) {
        self.service.turn();
        let patience = self.patience(cycle_due).min(self.service.patience());
        self.observer.wait_beside(self.inbox.descriptor(), patience);
        control.take_commands();
        let mut changed = self.observer.let_go();
        self.forget_gone();
        while let Some(event) = self.inbox.take() {
            changed |= self.handle(event);
        }
        self.observer.look_into_new();
        for news in self.observer.give_up_late() {
            self.actor.journal.emit(news);
            changed = true;
        }
        self.actor.give_up_late_commands(&mut self.observer);
        self.forget_gone();
        self.actor.follow(&mut self.observer, &control.take_cancelled(), !control.stopped());
        changed |= self.actor.take_changed();
        if changed {
            control.publish(self.snapshot());
        }
    }

    /// When the cycle goes on, whatever happens; `None`: it is followed.
    fn cycle_due(&self) -> Option<Instant> {
        Some(self.phase_until).filter(|_| self.phase != Phase::Sampling)
    }

    /// Until something is due.
    fn patience(&self, cycle_due: Option<Instant>) -> Duration {
        let is_followed = cycle_due.is_none() || self.actor.is_busy() || self.observer.has_trouble();
        let now = Instant::now();
        let followed = match self.observer.has_open_windows() {
            true => Some(now + observe::POLL_INTERVAL),
            false => is_followed.then_some(now + FOLLOW_INTERVAL),
        };
        let due = [self.observer.deadline(), self.actor.deadline(), cycle_due, followed];
        let next = due.into_iter().flatten().min();
        next.map_or(FOLLOW_INTERVAL, |next| next.saturating_duration_since(now))
    }

    /// Looks at the policy's file; gives whether another one is in force now.
    fn follow_policy(&mut self, at_once: bool) -> bool {
        let Some(watch) = &mut self.policy_watch else { return false };
        let Some(news) = watch.look(&self.policy, at_once) else { return false };
        let path = watch.path().display().to_string();
        let (event, is_loaded) = match news {
            News::Loaded(policy) => {
                self.actor.journal.show_keys(policy.keys);
                self.policy = *policy;
                self.policy_content = Arc::new(policy_view(&self.policy));
                self.put_in_force(self.policy.at(clock::now().at, self.node));
                (EventKind::PolicyLoaded { path }, true)
            }
            News::Trouble(Trouble::Gone(reason)) => (EventKind::PolicyGone { path, reason }, false),
            News::Trouble(Trouble::Broken(reason)) => (EventKind::PolicyBroken { path, reason }, false),
        };
        self.actor.journal.emit(event);
        is_loaded
    }

    /// Puts the values in force that hold now by the schedule.
    fn follow_schedule(&mut self) {
        let values = self.policy.at(clock::now().at, self.node);
        if values == self.observer.policy {
            return;
        }
        let open = values.open_periods.clone();
        self.put_in_force(values);
        self.actor.journal.emit(EventKind::ScheduleChanged { open });
    }

    fn put_in_force(&mut self, values: Policy) {
        self.actor.restore_for(&mut self.observer, &values);
        self.observer.take_policy(values);
        self.forget_gone();
        self.actor.cancel_forbidden(&mut self.observer);
    }

    /// What is kept outside of the roster of targets that have gone.
    fn forget_gone(&mut self) {
        for gone in self.observer.take_gone() {
            self.actor.forget_target(&mut self.observer, &gone.name, &gone.process);
        }
    }
}
