//! The loop: sentinel, window, join, rank, plan, act, verify.
//!
//! The engine decides and keeps what is known. It runs on one thread and waits in one place; whatever may
//! wait on a target is asked of that target's session, on a thread of its own. What to do is decided by the
//! tuner; what the outside may see is published as a [`Snapshot`]; what the outside may ask comes in over one
//! channel.

mod act;
mod action_view;
mod carry;
mod control;
mod error;
mod guards;
mod inquiry;
mod policy_watch;
mod publish;
mod recovery;
mod restoring;
mod settings;
mod slice;
mod throttles;
mod verify;

pub use control::Control;
pub use error::EngineError;

use crate::commands::Commands;
use crate::inbox::{Event, Inbox};
use crate::observe::{
    self, Due, OPENING_TIME_MAX, Observer, Roster, Sessions, SliceSeen, Watched, databases, tell_lineages,
};
use crate::session::Answer;
use crate::session::probes::ProbeNews;
use crate::snapshot::Snapshot;
use crate::worker::LeftBehind;
use control::POLL_INTERVAL;
use inquiry::Inquiry;
use policy_watch::{News, PolicyWatch, Trouble};
use sexton_inspect::facts::{DatabaseDirectory, TargetId};
use sexton_inspect::process::is_alive;
use sexton_journal::{EventKind, Journal, clock};
use sexton_probe::{Loader, Mechanism};
use sexton_tuner::plan::{Budget, Plan, PlanInput, PlanTarget};
use sexton_tuner::policy::Policy;
use sexton_tuner::run::{self, ActionId, ActionKind, ActionState, Event as Happened, Ledger};
use sexton_tuner::throttle::KnownThrottles;
use slice::Acting;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use throttles::ThrottleRead;
use tracing::warn;

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

/// The loop and all that it knows.
pub struct Engine {
    options: EngineOptions,
    /// `None` where no policy was given.
    policy_watch: Option<PolicyWatch>,
    observer: Observer,
    inbox: Inbox,
    plan: Plan,
    /// All actions, and what follows from them.
    ledger: Ledger,
    history: Journal,
    /// The values of throttles, as far as they are known.
    throttles: KnownThrottles,
    throttle_reads: Vec<ThrottleRead>,
    /// Throttles that could not be read just now, and why.
    unread_throttles: BTreeMap<(String, String), String>,
    /// When the settings that are changed in targets were last looked after.
    settings_tended: Option<Instant>,
    /// Actions whose settings sessions are restoring, and since when.
    restoring: BTreeMap<ActionId, Instant>,
    /// Commands of the policy that run, and which action's throttle each restores.
    commands: Commands,
    commanded: BTreeMap<u64, ActionId>,
    /// Targets that the last plan has new evidence of.
    fresh: Vec<String>,
    /// What is wanted and has not begun.
    queue: VecDeque<ActionKind>,
    /// What is asked before actions begin or go on.
    inquiries: Vec<Inquiry>,
    /// Actions under way.
    acting: Vec<Acting>,
    /// When the ledger was last told that time has passed.
    ticked: Instant,
    /// Targets that nothing more is done to before the next plan.
    left_alone: HashSet<String>,
    /// The last number that was given to a job or an inquiry.
    last_number: u64,
    /// Whether what is shown of actions is another thing now.
    has_changed: bool,
    /// Whether an action has ended, and another one may begin.
    has_ended: bool,
    cycles: u64,
    phase: Phase,
    /// When the phase is over at the latest.
    phase_until: Instant,
    cycle_started: Instant,
    /// Whether each cycle has a window on every target.
    always_window: bool,
}

impl Engine {
    /// Loads the BPF programs and checks that the processes asked for can be targets.
    ///
    /// # Errors
    /// A process that is no target, a state that cannot be used, or a kernel that refuses the programs.
    pub fn new(options: EngineOptions) -> Result<Engine, EngineError> {
        let (inbox, post) = Inbox::new().map_err(EngineError::Descriptors)?;
        let left_behind = LeftBehind::default();
        let sessions = Sessions {
            hook_library: options.hook_library.clone(),
            post: post.clone(),
            left_behind: left_behind.clone(),
        };
        let roster = Roster::new(options.pids.clone(), sessions);
        roster.check()?;
        let (directory, event_file) = (options.state_directory.as_deref(), options.audit_log.as_deref());
        let history = Journal::open(directory, event_file, options.policy.keys)?;
        let observer = Observer::new(
            options.policy.clone(),
            roster,
            post.clone(),
            left_behind,
            (options.loader, options.mechanism),
        )?;
        let now = clock::now();
        let (ledger, _) = Ledger::load(run::Stored::default(), &options.policy, now, is_alive);
        let started = Instant::now();
        let mut engine = Engine {
            observer,
            inbox,
            plan: empty_plan(now.at),
            ledger,
            history,
            throttles: KnownThrottles::new(),
            throttle_reads: Vec::new(),
            unread_throttles: BTreeMap::new(),
            settings_tended: None,
            restoring: BTreeMap::new(),
            commands: Commands::new(post),
            commanded: BTreeMap::new(),
            fresh: Vec::new(),
            queue: VecDeque::new(),
            inquiries: Vec::new(),
            acting: Vec::new(),
            ticked: started,
            left_alone: HashSet::new(),
            last_number: 0,
            has_changed: false,
            has_ended: false,
            cycles: 0,
            phase: Phase::Resting,
            phase_until: started,
            cycle_started: started,
            always_window: false,
            policy_watch: options.policy_path.as_deref().map(PolicyWatch::new),
            options,
        };
        engine.load();
        Ok(engine)
    }

    /// Takes over what earlier runs have left, as soon as it can be read.
    fn load(&mut self) {
        if let Some(stored) = self.history.load() {
            self.take_stored(stored);
        }
    }

    /// Cycles until told to stop.
    pub fn run(&mut self, control: &mut Control) {
        while !control.stopped() {
            self.advance(control);
            self.turn(control, POLL_INTERVAL);
        }
        // What is in doubt still this run will not hear of.
        self.cancel_all("the agent ends", |state| !matches!(state, ActionState::Retrying(_)));
        while self.is_acting() {
            self.turn(control, POLL_INTERVAL);
        }
        self.restore_all(control);
    }

    /// One cycle with a window on every target, for `sexton plan`.
    pub fn cycle_once(&mut self) -> Snapshot {
        let mut control = Control::detached();
        self.always_window = true;
        while self.cycles == 0 {
            self.advance(&mut control);
            self.turn(&mut control, POLL_INTERVAL);
        }
        self.snapshot()
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
                self.observer.ask_totals(&self.acted_on());
                self.enter(Phase::Reading, TOTALS_WAIT);
            }
            Phase::Reading if is_late || !self.observer.awaits_totals() => self.sample(),
            Phase::Sampling => {
                let acted_on = self.acted_on();
                self.observer.follow_windows(is_late, &acted_on);
                if !self.observer.has_windows_of_cycle(&acted_on) {
                    self.enter(Phase::Joining, self.join_wait());
                }
            }
            Phase::Joining => {
                let awaits_throttles = self.awaits_throttles();
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
        let is_first = self.cycles == 0;
        let is_policy_new = self.follow_policy(control.take_reload());
        let at_once = self.observer.begin_cycle(is_policy_new);
        self.forget_gone();
        self.history.retry();
        self.load();
        self.ask_after_jobs();
        self.ask_after_orphans();
        self.ask_after_pins();
        // What is found later is looked at in the next cycle.
        let is_waited_for = at_once || is_first;
        self.enter(Phase::Searching, if is_waited_for { SEARCH_WAIT_MAX } else { Duration::ZERO });
    }

    fn sample(&mut self) {
        self.tend_throttles();
        let due = if self.always_window { Due::All } else { Due::Only(self.targets_to_verify()) };
        self.observer.open_windows(&self.history, &due, &self.acted_on());
        self.enter(Phase::Sampling, self.observer.policy.timing.window.duration() + OPENING_TIME_MAX);
    }

    /// What is known now is planned with, and the plan is carried out.
    fn decide(&mut self, control: &mut Control) {
        self.end_unwanted_throttles();
        self.make_plan();
        self.emit_plan();
        self.take_plan();
        self.verify();
        self.cycles += 1;
        self.left_alone.clear();
        self.act(control);
        self.follow_inquiries();
        control.publish(self.snapshot());
        let interval = self.observer.policy.timing.interval.duration();
        (self.phase, self.phase_until) = (Phase::Resting, self.cycle_started + interval);
    }

    /// Waits until something has happened, at most for `limit`, and takes it in. What changed is published at
    /// once.
    fn turn(&mut self, control: &mut Control, limit: Duration) {
        let patience = self.patience(limit);
        self.observer.wait_beside(self.inbox.descriptor(), patience);
        control.take_commands();
        let mut changed = self.observer.let_go();
        self.forget_gone();
        while let Some(event) = self.inbox.take() {
            changed |= self.handle(event);
        }
        self.observer.look_into_new();
        for news in self.observer.give_up_late() {
            self.history.emit(news);
            changed = true;
        }
        self.give_up_late_commands();
        self.forget_gone();
        self.follow_actions(control);
        self.tend_settings();
        changed |= std::mem::take(&mut self.has_changed);
        if changed {
            control.publish(self.snapshot());
        }
    }

    /// Until something is due.
    fn patience(&self, limit: Duration) -> Duration {
        let phase = Some(self.phase_until).filter(|_| self.phase != Phase::Sampling);
        let due = self.observer.deadline().into_iter().chain(self.commands.deadline()).chain(phase).min();
        let limit = if self.observer.has_open_windows() { limit.min(observe::POLL_INTERVAL) } else { limit };
        due.map_or(limit, |due| limit.min(due.saturating_duration_since(Instant::now())))
    }

    /// Takes in what another thread has done; gives whether it changes what is shown.
    fn handle(&mut self, event: Event) -> bool {
        match event {
            Event::Looked(looked) => self.observer.take_looked(looked),
            Event::Swept(took) => {
                self.observer.note_swept(took);
                false
            }
            Event::Commanded { number, result } => {
                self.take_commanded(number, result);
                true
            }
            Event::Probed(probed) => {
                let opens = matches!(probed.what, ProbeNews::Attached(_));
                let is_sampling = self.phase == Phase::Sampling;
                let seen = self.observer.take_probed(probed, is_sampling, &self.acted_on());
                if let Some(SliceSeen { target, latencies }) = seen {
                    let acting = self.acting.iter_mut().find(|acting| acting.target == target);
                    acting.into_iter().for_each(|acting| acting.note_latencies(&latencies));
                }
                opens
            }
            Event::Answered { target, generation, answer } => {
                let watched = self.observer.roster.get_mut(target);
                if watched.is_some_and(|watched| watched.worker.is_current(generation)) {
                    self.take_answer(target, answer);
                }
                false
            }
        }
    }

    fn take_answer(&mut self, id: TargetId, answer: Answer) {
        let Some(watched) = self.observer.roster.get_mut(id) else { return };
        match answer {
            Answer::StandsStill(why) => watched.worker.suspend(why),
            Answer::HookSilent(why) => {
                watched.worker.suspend(&why);
                watched.is_hook_silent = true;
            }
            Answer::Present { is_hook_asked } => watched.note_present(is_hook_asked),
            Answer::Nothing => {}
            Answer::JobBegun(number) => self.note_begun(number),
            Answer::Job(report) => self.take_report(*report),
            Answer::Before { inquiry, before } => self.take_before(inquiry, *before),
            Answer::Running { inquiry, running } => self.take_running(inquiry, id, running),
            Answer::Orphans(running) => self.take_orphans(id, &running),
            Answer::Files { action, files } => self.hear(action, Happened::Files(files.as_deref())),
            Answer::Measured { action, measured } => self.hear(action, Happened::Measured(measured)),
            Answer::Recalled { action, status } => self.take_recalled(action, status),
            Answer::Pinned(read) => self.lift_pins(id, &read),
            Answer::LostSettings(lost) => self.take_lost(lost),
            Answer::Restored { kept, value } => self.take_restored(&kept, &value),
            Answer::Evidence(read) => self.observer.take_evidence(id, *read),
        }
    }

    /// Looks at the policy's file; gives whether another one is in force now.
    fn follow_policy(&mut self, at_once: bool) -> bool {
        let Some(watch) = &mut self.policy_watch else { return false };
        let Some(news) = watch.look(&self.observer.policy, at_once) else { return false };
        let path = watch.path().display().to_string();
        match news {
            News::Loaded(policy) => {
                self.restore_for(&policy);
                self.observer.take_policy(*policy);
                self.history.show_keys(self.observer.policy.keys);
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

    /// What is kept outside of the roster of targets that have gone.
    fn forget_gone(&mut self) {
        for gone in self.observer.take_gone() {
            self.history.forget_target(&gone.name);
            if !is_alive(&gone.process) {
                let now = clock::now();
                let effects = self.ledger.target_gone(&gone.process, &self.observer.policy, now);
                self.carry_out(effects);
            }
        }
    }

    fn make_plan(&mut self) {
        let now = clock::now();
        let policy = &self.observer.policy;
        let throttles = self.known_throttles();
        for watched in &mut self.observer.roster.watched {
            let Watched { target, evidence, .. } = watched;
            for evidence in evidence {
                let path = Path::new(&evidence.database);
                let database = target.databases.iter().find(|database| database.path == path);
                let identity = database.map(DatabaseDirectory::identity);
                evidence.past_actions =
                    identity.map(|identity| self.ledger.past_actions(&identity, now)).unwrap_or_default();
            }
        }
        tell_lineages(&mut self.observer.roster);
        let available_bytes = self.ledger.available_bytes(policy, now);
        let watched = self.observer.roster.watched.iter();
        let targets: Vec<PlanTarget<'_>> = watched
            .map(|watched| PlanTarget {
                name: &watched.target.name,
                policy: &watched.entry,
                evidence: &watched.evidence,
            })
            .collect();
        let plan = sexton_tuner::plan(&PlanInput {
            policy,
            targets: &targets,
            budget: Budget { available_bytes },
            throttles: &throttles,
            now: now.at,
            previous: Some(&self.plan),
        });
        match plan {
            Ok(plan) => self.plan = plan,
            Err(error) => {
                warn!(%error, "no plan");
                self.plan = empty_plan(now.at);
            }
        }
    }

    /// Emits what is new in the plan. Only a window brings refusals: those of a target that had none now are
    /// still in force.
    fn emit_plan(&mut self) {
        let take = |watched: &mut Watched| std::mem::take(&mut watched.is_fresh);
        let fresh =
            self.observer.roster.watched.iter_mut().filter_map(|it| take(it).then(|| it.target.name.clone()));
        self.fresh = fresh.collect();
        for target in &self.fresh {
            let refusals = self.plan.refusals.iter().filter(|refusal| refusal.target == *target);
            self.history.emit_refusals(target, &refusals.collect::<Vec<_>>());
            for watched in
                self.observer.roster.watched.iter().filter(|watched| watched.target.name == *target)
            {
                self.history.keep_sample(target, &databases(watched), &self.plan);
            }
        }
        self.history.emit_plan(&self.plan);
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
