//! The action log: every action with its newest state. What is emitted of an action and what is counted
//! follows from how its state has changed, here and nowhere else.

use super::batch::{Batch, Kind, numbered};
use super::clock;
use super::counts::{ActionCounts, Counts};
use super::error::JournalError;
use super::event::{Ended, EventKind, Started, Subject};
use super::event_log::EventLog;
use super::news::News;
use super::record::{Read, Stored};
use super::samples::Samples;
use super::settings::Settings;
use sexton_tuner::evidence::PastAction;
use sexton_tuner::guard::GuardRefusal;
use sexton_tuner::plan::{Plan, Refusal};
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::range::KeyRange;
use sexton_tuner::run::{
    ACTIONS_STORED_MAX, Action, ActionId, ActionKind, ActionState, Claim, DatabaseIdentity, End, JobId,
    KeptSetting, Moment, Outcome, Paused, Phase, Place, ProcessId, Running,
};
use sexton_tuner::verify::Seen;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Actions published: a day of one action every ten minutes.
pub const ACTIONS_PUBLISHED_MAX: usize = 144;

/// Past actions of one database that a plan takes into account: enough for any cooldown at the pace of
/// actions.
const PAST_ACTIONS_MAX: usize = 1_000;

/// An action that is about to begin.
#[derive(Clone, Debug)]
pub struct Begun {
    pub kind: ActionKind,
    /// The process it is done to.
    pub process: ProcessId,
    /// What it is done to; `None` where that is not a range of a database.
    pub place: Option<Place>,
}

/// An action of the log.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    pub action: &'a Action,
    /// Whether it has ended in an earlier run.
    pub is_earlier: bool,
}

pub(super) struct Entry {
    pub(super) action: Action,
    pub(super) is_earlier: bool,
}

/// Everything that outlives the agent.
pub struct Journal {
    pub(super) events: EventLog,
    /// Newest first.
    pub(super) actions: VecDeque<Entry>,
    pub(super) settings: Settings,
    pub(super) samples: Samples,
    pub(super) news: News,
    counts: Counts,
    last_id: u64,
    keys: KeyDisplay,
    pub(super) is_alive: fn(&ProcessId) -> bool,
    is_loaded: bool,
    /// Bytes that actions which were interrupted were expected to rewrite.
    pub(super) interrupted_bytes: u64,
    /// Where compactions were interrupted: process and database.
    pub(super) interrupted: Vec<(ProcessId, PathBuf)>,
}

impl Journal {
    /// Opens the journal in `directory`, or one that is forgotten with the agent; events are appended to
    /// `event_file`, or to a file in that directory, with keys as `keys` says. What earlier runs could not
    /// end themselves is ended now.
    ///
    /// # Errors
    /// When the state or the file cannot be used.
    pub fn open(
        directory: Option<&Path>,
        event_file: Option<&Path>,
        keys: KeyDisplay,
        is_alive: fn(&ProcessId) -> bool,
    ) -> Result<Journal, JournalError> {
        let mut journal = Journal {
            events: EventLog::open(directory, event_file)?,
            actions: VecDeque::new(),
            settings: Settings::default(),
            samples: Samples::default(),
            news: News::default(),
            counts: Counts::default(),
            last_id: 0,
            keys,
            is_alive,
            is_loaded: false,
            interrupted_bytes: 0,
            interrupted: Vec::new(),
        };
        journal.load();
        Ok(journal)
    }

    /// Takes over what earlier runs did.
    fn load(&mut self) {
        if self.is_loaded || !self.is_writable() {
            return;
        }
        self.is_loaded = true;
        self.samples = Samples::load(self.events.state());
        self.settings = Settings::load(self.events.state());
        let records: Vec<(String, Read)> = self.events.state().last(Kind::Action, ACTIONS_STORED_MAX);
        let entry = |(_, Read(action))| Entry { action, is_earlier: true };
        self.actions = records.into_iter().map(entry).collect();
        self.last_id = self.actions.front().map_or(0, |entry| entry.action.id.0);
        self.recover();
    }

    /// How keys are shown in events from here on.
    pub fn show_keys(&mut self, keys: KeyDisplay) {
        self.keys = keys;
    }

    /// Whether the state can be written. While it cannot, no action may begin: it would be forgotten, and
    /// done again.
    pub fn is_writable(&self) -> bool {
        self.events.state().trouble().is_none()
    }

    /// Tries again where the state could not be written.
    pub fn retry(&mut self) {
        if self.events.retry() {
            self.load();
        }
    }

    /// The events, and the state they are kept in.
    pub fn events(&self) -> &EventLog {
        &self.events
    }

    /// Emits an event that is about no action.
    pub fn emit(&mut self, kind: EventKind) {
        self.events.emit(kind);
    }

    /// Counts of actions since the start, and of those that are open now, by target.
    pub fn counts(&self) -> BTreeMap<String, ActionCounts> {
        let mut counts = self.counts.by_target().clone();
        let open = self.actions.iter().map(|entry| &entry.action).filter(|it| it.state.is_open());
        for action in open {
            let counts = counts.entry(action.kind.target().to_owned()).or_default();
            match action.state {
                ActionState::Retrying(_) => counts.failing += 1,
                _ => counts.running += 1,
            }
        }
        counts
    }

    /// The number of the next action.
    pub fn next_id(&self) -> ActionId {
        ActionId(self.last_id + 1)
    }

    /// Writes ahead that an action begins. Gives its number.
    ///
    /// # Errors
    /// When it cannot be written: then it must not be done.
    pub fn begin(&mut self, begun: Begun) -> Result<ActionId, JournalError> {
        let id = self.next_id();
        let Begun { kind, process, place } = begun;
        let started = clock::now();
        let part = place.as_ref().map_or_else(KeyRange::everything, |place| place.range.clone());
        let running = running(part, VecDeque::new(), started);
        let claim = claim(&kind);
        let state = ActionState::Running(running);
        let action = Action { place, claim, state, ..Action::planned(id, kind, process, started) };
        let kept = KeptSetting::of(id, &action.kind, process, action.place.as_ref());
        self.write_ahead(action, kept.filter(|kept| kept.restore.is_some()))?;
        Ok(id)
    }

    /// Writes ahead that an action begins, with the setting that it changes and that has to be restored, if there is one.
    ///
    /// # Errors
    /// When it cannot be written: then it must not be done.
    pub fn write_ahead(&mut self, action: Action, setting: Option<KeptSetting>) -> Result<(), JournalError> {
        let id = action.id;
        let mut batch = batch_of(&action);
        if let Some(oldest) = id.0.checked_sub(ACTIONS_STORED_MAX as u64) {
            batch.delete(Kind::Action, &numbered(oldest));
        }
        if let Some(setting) = setting {
            batch.append(self.settings.add(setting));
        }
        let started = Started {
            subject: self.subject(&action),
            cost_bytes: action.kind.cost_bytes(),
            reason: action.kind.reason().to_owned(),
        };
        let event = EventKind::started(&action.kind, started);
        self.events.write_ahead(batch, event).inspect_err(|_| self.settings.remove(id))?;
        if let Some(place) = &action.place {
            let batch = self.samples.begin(place);
            self.events.append(batch);
        }
        self.news.begin();
        self.last_id = id.0;
        self.actions.push_front(Entry { action, is_earlier: false });
        self.actions.truncate(ACTIONS_STORED_MAX);
        Ok(())
    }

    /// Writes that an action has changed, and emits and counts what follows from that.
    pub fn change(&mut self, id: ActionId, change: impl FnOnce(&mut Action)) {
        self.change_with(Batch::default(), id, change);
    }

    /// The same, with something else that is to be written whole with it.
    pub(super) fn change_with(&mut self, also: Batch, id: ActionId, change: impl FnOnce(&mut Action)) {
        let Some(entry) = self.actions.iter_mut().find(|entry| entry.action.id == id) else {
            return self.events.append(also);
        };
        let before = entry.action.state.clone();
        change(&mut entry.action);
        let action = entry.action.clone();
        let mut batch = batch_of(&action);
        batch.append(also);
        let mut events = self.events_of(&before, &action).into_iter();
        match events.next() {
            Some(event) => {
                self.counts.count(&action);
                self.events.emit_with(batch, event);
            }
            None => self.events.append(batch),
        }
        events.for_each(|event| self.events.emit(event));
    }

    /// What is emitted of an action that was in another state before.
    fn events_of(&self, before: &ActionState, action: &Action) -> Vec<EventKind> {
        let subject = || self.subject(action);
        match (before, &action.state) {
            (ActionState::Paused(_), ActionState::Paused(_)) => Vec::new(),
            (_, ActionState::Paused(paused)) => vec![EventKind::SlicePaused {
                subject: subject(),
                guard: paused.objection.guard.name().to_owned(),
                reason: paused.objection.reason.clone(),
            }],
            (before, ActionState::Done(end)) if before.end().is_none() => match end.outcome {
                Outcome::Interrupted => {
                    vec![EventKind::Interrupted { subject: subject(), reason: end.message.clone() }]
                }
                outcome => {
                    let ended = Ended {
                        subject: subject(),
                        state: outcome.into(),
                        bytes_rewritten: end.bytes_rewritten,
                        duration_seconds: end.duration_seconds,
                        outcome: end.message.clone(),
                    };
                    vec![EventKind::ended(&action.kind, ended)]
                }
            },
            (ActionState::Done(_), ActionState::Verified { verification, .. }) => {
                let (helped, reason) = (verification.helped, verification.reason.clone());
                let pain_after = verification.pain_after_seconds_per_second;
                let failures_in_a_row = verification.failures_in_a_row;
                let backed_off =
                    EventKind::BackedOff { subject: subject(), failures_in_a_row, reason: reason.clone() };
                let pain_before = action.claim.as_ref().map(|claim| claim.before.pain_seconds_per_second);
                let pain_before = pain_before.unwrap_or_default();
                let verified =
                    EventKind::Verified { subject: subject(), helped, pain_before, pain_after, reason };
                if helped { vec![verified] } else { vec![verified, backed_off] }
            }
            _ => Vec::new(),
        }
    }

    /// Writes which of the hook's jobs does all of an action; `None`: none does, it is being done in parts.
    pub fn note_job(&mut self, id: ActionId, job: Option<JobId>) {
        let is_news =
            |state: &ActionState| matches!(state, ActionState::Running(running) if running.job != job);
        if self.action(id).is_some_and(|action| is_news(&action.state)) {
            self.change(id, |action| {
                if let ActionState::Running(running) = &mut action.state {
                    running.job = job;
                }
            });
        }
    }

    /// Writes that a guard has paused an action.
    pub fn pause(&mut self, id: ActionId, objection: &GuardRefusal) {
        self.change(id, |action| {
            let ActionState::Running(running) = &action.state else { return };
            action.pauses += 1;
            action.state = ActionState::Paused(Paused {
                part: running.part.clone(),
                left: running.left.clone(),
                in_halves: false,
                objection: objection.clone(),
                since: clock::now(),
                is_reading_files: false,
                time_limit: running.time_limit,
            });
        });
    }

    /// Writes that an action which was paused goes on.
    pub fn resume(&mut self, id: ActionId) {
        self.change(id, |action| {
            let ActionState::Paused(paused) = &action.state else { return };
            let (part, left) = (paused.part.clone(), paused.left.clone());
            action.state = ActionState::Running(running(part, left, clock::now()));
        });
    }

    /// Writes how an action has ended.
    pub fn end(&mut self, id: ActionId, end: End) {
        self.change(id, |action| action.state = ActionState::Done(end));
    }

    /// An action that is still remembered.
    pub fn action(&self, id: ActionId) -> Option<&Action> {
        self.actions.iter().map(|entry| &entry.action).find(|action| action.id == id)
    }

    /// Whether an action has no end yet.
    pub fn is_open(&self, id: ActionId) -> bool {
        self.action(id).is_some_and(|action| action.state.is_open())
    }

    /// The newest actions, newest first, and of older ones those that have no end yet.
    pub fn actions(&self) -> impl Iterator<Item = Listed<'_>> {
        let entries = self.actions.iter().enumerate();
        let shown =
            entries.filter(|(age, entry)| *age < ACTIONS_PUBLISHED_MAX || entry.action.state.is_open());
        shown.map(|(_, entry)| Listed { action: &entry.action, is_earlier: entry.is_earlier })
    }

    /// Earlier actions on a database, newest last.
    pub fn past_actions(&self, database: &DatabaseIdentity) -> Vec<PastAction> {
        let past = self.actions.iter().filter_map(|entry| past_action(&entry.action, database));
        let mut past: Vec<PastAction> = past.take(PAST_ACTIONS_MAX).collect();
        past.reverse();
        past
    }

    /// Forgets how often acting on these keys has not helped: what stood in the way has gone.
    pub fn forgive(&mut self, place: &Place) {
        let has_failed = |action: &Action| {
            let verification = action.state.verification();
            verification.is_some_and(|verification| verification.failures_in_a_row > 0)
                && action.place.as_ref().is_some_and(|other| other.overlaps(place))
        };
        let actions = self.actions.iter().map(|entry| &entry.action);
        let failed: Vec<ActionId> = actions.filter(|it| has_failed(it)).map(|it| it.id).collect();
        for id in failed {
            self.change(id, |action| {
                if let ActionState::Verified { verification, .. } = &mut action.state {
                    verification.failures_in_a_row = 0;
                }
            });
        }
    }

    /// Forgets what is pending for a target that has gone.
    pub fn forget_target(&mut self, target: &str) {
        self.give_up_pending(|action| action.kind.target() == target);
        self.news.forget(target);
    }

    /// Emits that the target of an action ended while it was under way.
    pub fn emit_target_gone(&mut self, id: ActionId) {
        if let Some(action) = self.action(id) {
            let event = EventKind::TargetGone { subject: self.subject(action), pid: action.process.pid };
            self.events.emit(event);
        }
    }

    /// Emits which rejections of a target are new; these are all that are in force now.
    pub fn emit_refusals(&mut self, target: &str, refusals: &[&Refusal]) {
        for event in self.news.refusals(target, refusals) {
            self.events.emit(event);
        }
    }

    /// Emits a plan, if it is news.
    pub fn emit_plan(&mut self, plan: &Plan) {
        if let Some(event) = self.news.plan(plan, self.keys) {
            self.events.emit(event);
        }
    }

    /// Time since a database of these was last sampled, nanoseconds, by earlier runs too; `None`: sample at
    /// once.
    pub fn since_window_ns(&self, databases: &[DatabaseIdentity]) -> Option<u64> {
        self.samples.since_window_ns(databases, jiff::Timestamp::now())
    }

    /// Writes that the databases of a target were sampled, and what the plan made of it wants.
    pub fn keep_sample(&mut self, target: &str, databases: &[DatabaseIdentity], plan: &Plan) {
        let batch = self.samples.note(target, databases, plan, jiff::Timestamp::now());
        self.events.append(batch);
    }

    pub(super) fn subject(&self, action: &Action) -> Subject {
        Subject::of(action.id, &action.kind, self.keys)
    }
}

/// The state of an action that runs. How long a part may take is not kept here.
fn running(part: KeyRange, left: VecDeque<KeyRange>, since: Moment) -> Running {
    let (phase, time_limit) = (Phase::Working, Duration::ZERO);
    Running { part, left, phase, since, job: None, can_stop: false, time_limit, stop: None }
}

fn claim(kind: &ActionKind) -> Option<Claim> {
    let before = kind.prediction()?;
    let promised_seconds_per_second = before.relief_seconds_per_second;
    Some(Claim { before, promised_seconds_per_second, windows_waited: 0, seen: Seen::default() })
}

/// An action as the planner needs it; `None` where it was not done to this database, or its range need not
/// rest.
fn past_action(action: &Action, database: &DatabaseIdentity) -> Option<PastAction> {
    let end = action.state.end().filter(|end| end.rests)?;
    let place = action.place.as_ref().filter(|place| place.database == *database)?;
    let verification = action.state.verification();
    Some(PastAction {
        column_family: place.column_family.clone(),
        range: place.range.clone(),
        ended_unix_s: end.at.at.as_second(),
        helped: verification.map(|verification| verification.helped),
        awaits_verdict: action.awaits_verification(),
        failures_in_a_row: verification.map_or(0, |verification| verification.failures_in_a_row),
        remedy: action.kind.remedy()?,
    })
}

pub(super) fn batch_of(action: &Action) -> Batch {
    let mut batch = Batch::default();
    batch.put(Kind::Action, &numbered(action.id.0), &Stored::of(action));
    batch
}
