//! The journal: what becomes of actions is written, emitted and counted here, as the ledger's effects say.

use super::batch::{Batch, Kind, numbered};
use super::counts::{ActionCounts, Counts};
use super::error::JournalError;
use super::event::{Ended, EventKind, Started, Subject};
use super::event_log::EventLog;
use super::news::Announced;
use super::record::{Read, Stored};
use super::samples::Samples;
use super::{cursors, pain, settings, throttles};
use sexton_tuner::daily::DailyBytes;
use sexton_tuner::ledger::PainLedger;
use sexton_tuner::plan::{Plan, Refusal};
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::rank::survey::SurveyCursor;
use sexton_tuner::run::{
    self, ACTIONS_STORED_MAX, Action, ActionId, ActionState, Budget, DatabaseIdentity, KeptSetting, Ledger,
    News, Record, SettingRecord,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Actions published: a day of one action every ten minutes.
pub const ACTIONS_PUBLISHED_MAX: usize = 144;

/// Name of the record with the I/O budget.
const BUDGET: &str = "io_budget";

/// Name of the record with the bytes of the last day.
const DAILY: &str = "daily_bytes";

/// An action of the log.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    pub action: &'a Action,
    /// Whether it has begun in an earlier run and not ended in this one.
    pub is_earlier: bool,
}

/// Everything that outlives the agent.
pub struct Journal {
    pub(super) events: EventLog,
    pub(super) samples: Samples,
    announced: Announced,
    counts: Counts,
    keys: KeyDisplay,
    is_loaded: bool,
    /// The newest action of the runs before.
    last_earlier: ActionId,
    /// Those of them that have ended in this one.
    ended_now: BTreeSet<ActionId>,
}

impl Journal {
    /// Opens the journal in `directory`, or one that is forgotten with the agent; events are appended to
    /// `event_file`, or to a file in that directory, with keys as `keys` says.
    ///
    /// # Errors
    /// When the state or the file cannot be used.
    pub fn open(
        directory: Option<&Path>,
        event_file: Option<&Path>,
        keys: KeyDisplay,
    ) -> Result<Journal, JournalError> {
        Ok(Journal {
            events: EventLog::open(directory, event_file)?,
            samples: Samples::default(),
            announced: Announced::default(),
            counts: Counts::default(),
            keys,
            is_loaded: false,
            last_earlier: ActionId::default(),
            ended_now: BTreeSet::new(),
        })
    }

    /// What earlier runs have left, once, as soon as it can be read.
    pub fn load(&mut self) -> Option<run::Stored> {
        if self.is_loaded || !self.is_writable() {
            return None;
        }
        self.is_loaded = true;
        let state = self.events.state();
        self.samples = Samples::load(state);
        let records: Vec<(String, Read)> = state.last(Kind::Action, ACTIONS_STORED_MAX);
        let mut actions: Vec<Action> = records.into_iter().map(|(_, Read(action))| action).collect();
        throttles::fill_in_failures(state, &mut actions);
        self.last_earlier = actions.first().map_or(ActionId::default(), |action| action.id);
        Some(run::Stored {
            actions,
            settings: settings::load(state),
            budget: state.get(Kind::Agent, BUDGET),
            daily: state.get(Kind::Agent, DAILY),
        })
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
        self.events.retry();
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
    pub fn counts(&self, ledger: &Ledger) -> BTreeMap<String, ActionCounts> {
        let mut counts = self.counts.by_target().clone();
        for action in ledger.actions().filter(|action| action.state.is_open()) {
            let counts = counts.entry(action.kind.target().to_owned()).or_default();
            match action.state {
                ActionState::Retrying(_) => counts.failing += 1,
                _ => counts.running += 1,
            }
        }
        counts
    }

    /// The newest actions, newest first, and of older ones those that have no end yet.
    pub fn listed<'a>(&'a self, ledger: &'a Ledger) -> impl Iterator<Item = Listed<'a>> {
        let actions = ledger.actions().enumerate();
        let shown = actions.filter(|(age, action)| *age < ACTIONS_PUBLISHED_MAX || action.state.is_open());
        shown.map(|(_, action)| Listed {
            action,
            is_earlier: action.id <= self.last_earlier && !self.ended_now.contains(&action.id),
        })
    }

    /// Has on disk, before it is done, that an action begins, or goes on with another part; with it the
    /// setting that it changes. An old action may be forgotten to make room. `false`: it cannot be written,
    /// and must not be done.
    pub fn write_ahead(
        &mut self,
        action: &Action,
        is_first: bool,
        setting: Option<&KeptSetting>,
        forget: Option<ActionId>,
    ) -> bool {
        let mut batch = batch_of(action);
        if let Some(oldest) = forget {
            batch.delete(Kind::Action, &numbered(oldest.0));
        }
        if let Some(setting) = setting {
            batch.append(settings::put(setting));
        }
        if !is_first {
            return self.events.write_ahead(batch, None).is_ok();
        }
        let started = Started {
            subject: self.subject(action),
            cost_bytes: action.kind.cost_bytes(),
            reason: action.kind.reason().to_owned(),
        };
        let event = EventKind::started(&action.kind, started);
        if self.events.write_ahead(batch, Some(event)).is_err() {
            return false;
        }
        if let Some(place) = &action.place {
            let batch = self.samples.begin(place);
            self.events.append(batch);
        }
        self.announced.begin();
        true
    }

    /// Writes, emits and counts what has become of an action, `None` where it is not remembered any more, and
    /// of its setting; where it has spent bytes, the budgets as they are now.
    pub fn record(&mut self, action: Option<&Action>, record: &Record, budget: &Budget, daily: &DailyBytes) {
        let mut batch = action.map(batch_of).unwrap_or_default();
        batch.append(settings::batch_of(&record.setting));
        if record.spent_bytes > 0 {
            batch.put(Kind::Agent, BUDGET, budget);
            batch.put(Kind::Agent, DAILY, daily);
        }
        if let Some(action) = action {
            if record.news.iter().any(is_of_state) {
                self.counts.count(action);
            }
            let has_ended = record.news.iter().any(|news| matches!(news, News::Ended | News::Interrupted));
            if has_ended && action.id <= self.last_earlier {
                self.ended_now.insert(action.id);
            }
        }
        let events = record.news.iter().filter_map(|news| self.event_of(news, action, &record.setting));
        let mut events = events.collect::<Vec<_>>().into_iter();
        match events.next() {
            Some(event) => self.events.emit_with(batch, event),
            None => self.events.append(batch),
        }
        events.for_each(|event| self.events.emit(event));
    }

    /// The event of a piece of news.
    fn event_of(&self, news: &News, action: Option<&Action>, setting: &SettingRecord) -> Option<EventKind> {
        if let News::SettingChanged | News::SettingRestored { .. } = news {
            return settings::event_of(news, setting);
        }
        let action = action?;
        let subject = self.subject(action);
        let verification = action.state.verification();
        Some(match news {
            News::Paused(refusal) => EventKind::SlicePaused {
                subject,
                guard: refusal.guard.name().to_owned(),
                reason: refusal.reason.clone(),
            },
            News::Ended => {
                let end = action.state.end()?;
                let ended = Ended {
                    subject,
                    state: end.outcome.into(),
                    bytes_rewritten: end.bytes_rewritten,
                    duration_seconds: end.duration_seconds,
                    outcome: end.message.clone(),
                };
                EventKind::ended(&action.kind, ended)
            }
            News::Interrupted => {
                EventKind::Interrupted { subject, reason: action.state.end()?.message.clone() }
            }
            News::TargetGone => EventKind::TargetGone { subject, pid: action.process.pid },
            News::Verified => {
                let verification = verification?;
                let pain_before = action.claim.as_ref().map(|claim| claim.before.pain_seconds_per_second);
                EventKind::Verified {
                    subject,
                    helped: verification.helped,
                    pain_before: pain_before.unwrap_or_default(),
                    pain_after: verification.pain_after_seconds_per_second,
                    reason: verification.reason.clone(),
                }
            }
            News::BackedOff => {
                let verification = verification?;
                let (failures_in_a_row, reason) =
                    (verification.failures_in_a_row, verification.reason.clone());
                EventKind::BackedOff { subject, failures_in_a_row, reason }
            }
            News::SettingFailed => {
                let reason = action.failure.as_ref()?.reason.clone();
                EventKind::ThrottleFailed { subject, failures_in_a_row: action.failures(), reason }
            }
            News::SettingChanged | News::SettingRestored { .. } => return None,
        })
    }

    /// Forgets what was announced of a target that has gone.
    pub fn forget_target(&mut self, target: &str) {
        self.announced.forget(target);
    }

    /// Emits which rejections of a target are new; these are all that are in force now.
    pub fn emit_refusals(&mut self, target: &str, refusals: &[&Refusal]) {
        for event in self.announced.refusals(target, refusals) {
            self.events.emit(event);
        }
    }

    /// Emits a plan, if it is news.
    pub fn emit_plan(&mut self, plan: &Plan) {
        if let Some(event) = self.announced.plan(plan, self.keys) {
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

    /// What windows of earlier runs have seen of these databases; `None` where nothing is known.
    pub fn pain_of(&self, databases: &[DatabaseIdentity]) -> Option<PainLedger> {
        pain::load(self.events.state(), databases)
    }

    /// Writes what windows have seen of these databases. While nothing can be written it is left out: there
    /// is more to come.
    pub fn keep_pain(&mut self, databases: &[DatabaseIdentity], ledger: &PainLedger) {
        if self.is_writable() {
            self.events.append(pain::put(databases, ledger));
        }
    }

    /// Where an earlier run's survey of a database stood; `None` where nothing is known.
    pub fn cursor_of(&self, database: &DatabaseIdentity) -> Option<SurveyCursor> {
        cursors::load(self.events.state(), database)
    }

    /// Writes where the survey of a database stands. While nothing can be written it is left out: there is
    /// more to come.
    pub fn keep_cursor(&mut self, database: &DatabaseIdentity, cursor: &SurveyCursor) {
        if self.is_writable() {
            self.events.append(cursors::put(database, cursor));
        }
    }

    fn subject(&self, action: &Action) -> Subject {
        Subject::of(action.id, &action.kind, self.keys)
    }
}

/// Whether news say that an action is in another state, which counts.
fn is_of_state(news: &News) -> bool {
    matches!(news, News::Paused(_) | News::Ended | News::Interrupted | News::Verified)
}

fn batch_of(action: &Action) -> Batch {
    let mut batch = Batch::default();
    batch.put(Kind::Action, &numbered(action.id.0), &Stored::of(action));
    batch
}
