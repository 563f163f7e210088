//! What was done and what came of it: the list the API shows, the cooldowns it gives rise to, and the checks that are
//! still owed. All of it is on disk, and outlives the agent and its targets.
//!
//! An action is on disk before it is begun. One that was under way when the agent ended is ended by the next run,
//! once: as the hook says, where that still knows of it, else as interrupted: what the target made of it is not known
//! then, so its range rests as if it had been done.
//!
//! `owed` is the measurements that are still to be made, `spent` the budget and the day's bytes, `throttles` what is known
//! of those.

mod owed;
mod spent;
mod throttles;

pub use owed::Owed;
pub use throttles::ThrottleKey;

use super::chronicle::Chronicle;
use super::options::{OptionRecord, Options};
use super::refusals::{Refused, Told};
use super::surveys::Surveys;
use super::unsettled::Unsettled;
use super::watched::Watched;
use crate::audit::{Subject, What};
use crate::snapshot::{ACTIONS_KEPT_MAX, ActionView, FAILING};
use crate::state::{Batch, Kind, StateError, numbered};
use serde::{Deserialize, Serialize};
use sexton_inspect::facts::{DatabaseDirectory, ProcessId};
use sexton_inspect::process::is_alive;
use sexton_tuner::evidence::PastAction;
use sexton_tuner::guard::GuardRefusal;
use sexton_tuner::plan::Plan;
use sexton_tuner::policy::RemedyKind;
use sexton_tuner::range::KeyRange;
use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Actions remembered, all targets together: a week, the longest back-off, at one action every two and a half
/// minutes.
const ACTIONS_STORED_MAX: usize = 4_096;

/// Past actions of one database that a plan takes into account: enough for any cooldown at the pace of actions.
const PAST_ACTIONS_MAX: usize = 1_000;

/// Kind of an action that sets an option, as the API names it.
pub const SET_OPTIONS: &str = "set_options";

/// Names a database for as long as its directory is there, whichever process has it open. The path alone would take
/// the databases of two containers for one, or a restored one for what it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DatabaseIdentity {
    /// Directory, as the target names it.
    pub path: PathBuf,
    /// The directory's inode; 0 where it could not be read. Its device is left out: numbers of devices change when a
    /// node is started again.
    pub inode: u64,
}

impl DatabaseIdentity {
    /// The identity of an open database.
    pub fn of(database: &DatabaseDirectory) -> DatabaseIdentity {
        let inode = std::fs::metadata(&database.path_from_agent).map_or(0, |metadata| metadata.ino());
        DatabaseIdentity { path: database.path.clone(), inode }
    }
}

/// An action that is about to begin.
#[derive(Clone, Debug)]
pub struct Begun {
    /// What it is, as it will be shown; id, times and state are filled in.
    pub view: ActionView,
    /// The process it is done to.
    pub process: ProcessId,
    /// What it is done to; `None` where that is not a range of a database.
    pub place: Option<Place>,
    /// The option that it sets, if it does; its number is filled in.
    pub option: Option<OptionRecord>,
}

/// Keys of a database, for cooldowns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The database.
    pub database: DatabaseIdentity,
    /// Column family.
    pub column_family: String,
    /// Keys.
    pub range: KeyRange,
}

/// An action as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ActionRecord {
    view: ActionView,
    process: ProcessId,
    place: Option<Place>,
    /// From its end on, where it counts for cooldowns.
    past: Option<PastAction>,
    /// What its verification needs, while it is owed. As JSON: what an older agent wrote may lack something, and
    /// then it is not measured.
    owed: Option<serde_json::Value>,
    /// The hook's number of the job that does all of it, once it has begun.
    #[serde(default)]
    job: Option<u64>,
}

/// Actions, newest first, what is owed, and what was told.
pub struct History {
    chronicle: Chronicle,
    actions: VecDeque<ActionRecord>,
    owed: Vec<Owed>,
    surveys: Surveys,
    options: Options,
    told: Told,
    last_id: u64,
    is_loaded: bool,
    /// Bytes that actions which were interrupted were expected to rewrite.
    interrupted_bytes: u64,
    /// Actions of an earlier run that the hook may know the end of.
    unsettled: Vec<Unsettled>,
    /// Where compactions were interrupted: process and database.
    interrupted: Vec<(ProcessId, PathBuf)>,
}

impl History {
    /// A history that goes on from what `chronicle` has kept.
    pub fn new(chronicle: Chronicle) -> History {
        let mut history = History {
            chronicle,
            actions: VecDeque::new(),
            owed: Vec::new(),
            surveys: Surveys::default(),
            options: Options::default(),
            told: Told::default(),
            last_id: 0,
            is_loaded: false,
            interrupted_bytes: 0,
            unsettled: Vec::new(),
            interrupted: Vec::new(),
        };
        history.load();
        history
    }

    /// Takes over what earlier runs did, and ends what they could not end themselves.
    fn load(&mut self) {
        if self.is_loaded || self.chronicle.state().trouble().is_some() {
            return;
        }
        self.is_loaded = true;
        self.surveys = Surveys::load(self.chronicle.state());
        self.options = Options::load(self.chronicle.state());
        let records: Vec<(String, ActionRecord)> =
            self.chronicle.state().last(Kind::Action, ACTIONS_STORED_MAX);
        self.actions = records.into_iter().map(|(_, record)| record).collect();
        self.last_id = self.actions.front().map_or(0, |record| record.view.id);
        for record in &mut self.actions {
            record.view.is_earlier = true;
            // An option of an earlier run is put back: there is nothing to measure.
            let can_show = record.owed.is_some() && record.view.action != SET_OPTIONS;
            let alive = can_show && is_alive(&record.process);
            let before =
                record.owed.take_if(|_| alive).and_then(|before| serde_json::from_value(before).ok());
            if let Some(before) = before {
                self.owed.push(Owed::new(record.view.id, before, Duration::ZERO));
            }
        }
        // A throttle that was failing is tried again by this run, as the same action.
        let goes_on = |record: &&ActionRecord| record.view.state == FAILING && is_alive(&record.process);
        let open = self.actions.iter().rev().filter(|record| record.view.ended_at.is_none());
        let open = open.filter(|record| !goes_on(record));
        let open: Vec<u64> = open.map(|record| record.view.id).collect();
        for id in open {
            match self.unsettled_one(id) {
                Some(unsettled) => self.unsettled.push(unsettled),
                None => self.interrupt(id),
            }
        }
    }

    /// An action without an end, where its hook may know of it.
    fn unsettled_one(&self, id: u64) -> Option<Unsettled> {
        let record = self.actions.iter().find(|record| record.view.id == id)?;
        let (process, job) = (record.process, record.job?);
        is_alive(&process).then(|| Unsettled { id, process, job, since: Instant::now() })
    }

    /// Actions of an earlier run that have no end yet.
    pub fn unsettled(&self) -> &[Unsettled] {
        &self.unsettled
    }

    /// Whether an earlier run may still be acting on this process: then nothing else is begun there.
    pub fn is_unsettled(&self, process: &ProcessId) -> bool {
        self.unsettled.iter().any(|unsettled| unsettled.process == *process)
    }

    /// Ends what is unsettled still: this run will not hear of it.
    pub fn interrupt_unsettled(&mut self) {
        self.unsettled.clone().iter().for_each(|unsettled| self.interrupt(unsettled.id));
    }

    /// Writes down how an action of an earlier run ended, as `change` says.
    pub fn end_earlier(&mut self, id: u64, rests: bool, change: impl FnOnce(&mut ActionView)) {
        self.unsettled.retain(|unsettled| unsettled.id != id);
        let Some(record) = self.record_mut(id) else { return };
        record.view.is_earlier = false;
        let cost_bytes = record.view.cost_bytes;
        self.interrupted_bytes = self.interrupted_bytes.saturating_add(cost_bytes);
        self.end(id, rests, change);
    }

    /// Writes down which of the hook's jobs does all of the action that has begun last; `None`: none does, it is being
    /// done in parts.
    pub fn note_job(&mut self, job: Option<u64>) {
        let Some(record) = self.actions.front_mut().filter(|record| record.view.ended_at.is_none()) else {
            return;
        };
        if record.job != job {
            record.job = job;
            let batch = batch_of(record);
            self.chronicle.record(batch);
        }
    }

    /// Ends an action of an earlier run that has no end.
    pub fn interrupt(&mut self, id: u64) {
        self.unsettled.retain(|unsettled| unsettled.id != id);
        let Some(record) = self.actions.iter_mut().find(|record| record.view.id == id) else { return };
        let target = if is_alive(&record.process) { "its target lives" } else { "its target has ended too" };
        let reason = format!(
            "the agent ended while it was under way, and what came of it is not known; {target}, and the range rests \
             as if it had been done"
        );
        let now = jiff::Timestamp::now();
        record.view.is_earlier = false;
        record.view.state = "interrupted".into();
        record.view.ended_at = Some(now.to_string());
        record.view.outcome.clone_from(&reason);
        record.past = record.place.as_ref().map(|place| past_action(place, &record.view.action, now));
        self.interrupted_bytes = self.interrupted_bytes.saturating_add(record.view.cost_bytes);
        let place = record.place.as_ref().filter(|_| record.view.action == "compact_range");
        self.interrupted.extend(place.map(|place| (record.process, place.database.path.clone())));
        let what = What::Interrupted { subject: subject(&record.view), reason };
        let batch = batch_of(record);
        self.chronicle.tell_with(batch, what);
    }

    /// Bytes that interrupted actions may have rewritten: they are taken from the budget once.
    pub fn take_interrupted_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.interrupted_bytes)
    }

    /// Compactions that were interrupted and may still run: process and database, once.
    pub fn take_interrupted(&mut self) -> Vec<(ProcessId, PathBuf)> {
        std::mem::take(&mut self.interrupted)
    }

    /// Whether an action may begin: not where it could not be written down.
    pub fn may_act(&self) -> bool {
        self.chronicle.state().trouble().is_none()
    }

    /// Tries again where the state could not be written.
    pub fn retry(&mut self) {
        if self.chronicle.retry() {
            self.load();
        }
    }

    /// Writes down that an action begins. Gives the id it got.
    ///
    /// # Errors
    /// When it cannot be written: then it must not be done. What is wrong has been told.
    pub fn begin(&mut self, begun: Begun) -> Result<u64, StateError> {
        let id = self.last_id + 1;
        let Begun { view, process, place, option } = begun;
        let started_at = jiff::Timestamp::now().to_string();
        let view = ActionView { id, started_at, ended_at: None, state: "running".into(), ..view };
        let what = What::SliceStarted {
            subject: subject(&view),
            cost_bytes: view.cost_bytes,
            reason: view.reason.clone(),
        };
        let record = ActionRecord { view, process, place, past: None, owed: None, job: None };
        let mut batch = batch_of(&record);
        if let Some(oldest) = id.checked_sub(ACTIONS_STORED_MAX as u64) {
            batch.remove(Kind::Action, &numbered(oldest));
        }
        if let Some(option) = &option {
            batch.append(self.options.add(OptionRecord { action_id: id, ..option.clone() }));
        }
        self.chronicle.intend(batch, what).inspect_err(|_| {
            if let Some(option) = &option {
                self.options.remove(option);
            }
        })?;
        if let Some(place) = &record.place {
            let batch = self.surveys.begin(place);
            self.chronicle.record(batch);
        }
        self.told.begin();
        self.last_id = id;
        self.actions.push_front(record);
        self.actions.truncate(ACTIONS_STORED_MAX);
        Ok(id)
    }

    /// Options that are set in targets, oldest first.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Tells that an option is set; that it would be is on disk since [`History::begin`].
    pub fn tell_option_set(&mut self, action_id: u64) {
        let record = self.options.records().iter().find(|record| record.action_id == action_id);
        let Some(record) = record.cloned() else { return };
        self.chronicle.tell(What::OptionsSet {
            target: record.target,
            database: record.database.path.display().to_string(),
            column_family: record.column_family,
            name: record.name,
            value: record.value,
            restore: record.restore,
        });
    }

    /// Writes down that an option is not set any more, and what it is now.
    pub fn end_option(&mut self, record: &OptionRecord, value: &str, reason: &str) {
        // It cannot be measured any more.
        self.owed.retain(|owed| owed.id != record.action_id);
        let batch = self.options.remove(record);
        let what = What::OptionsRestored {
            target: record.target.clone(),
            database: record.database.path.display().to_string(),
            column_family: record.column_family.clone(),
            name: record.name.clone(),
            value: value.to_owned(),
            reason: reason.to_owned(),
        };
        self.chronicle.tell_with(batch, what);
    }

    /// Writes down that RocksDB did not take an option.
    pub fn forget_option(&mut self, action_id: u64) {
        let record = self.options.records().iter().find(|record| record.action_id == action_id);
        if let Some(record) = record.cloned() {
            let batch = self.options.remove(&record);
            self.chronicle.record(batch);
        }
    }

    /// It was tried to put an option back, in vain.
    pub fn note_option_tried(&mut self, record: &OptionRecord) {
        self.options.note_tried(record);
    }

    /// Options for which `is_it` holds are not wanted any more.
    pub fn unwant_options(&mut self, reason: &'static str, is_it: impl Fn(&OptionRecord) -> bool) {
        self.options.unwant(reason, is_it);
    }

    /// Writes down that a guard has paused an action, for the how manieth time.
    pub fn pause(&mut self, id: u64, pauses: u32, refusal: &GuardRefusal) {
        let Some(record) = self.record_mut(id) else { return };
        record.view.pauses = pauses;
        record.view.outcome = format!("paused: {}", refusal.reason);
        let what = What::SlicePaused {
            subject: subject(&record.view),
            guard: refusal.guard.name().to_owned(),
            reason: refusal.reason.clone(),
        };
        let batch = batch_of(record);
        self.chronicle.tell_with(batch, what);
    }

    /// Writes down how an action ended, as `change` says. `rests`: its range has to rest for the cooldown.
    pub fn end(&mut self, id: u64, rests: bool, change: impl FnOnce(&mut ActionView)) {
        self.end_with(Batch::default(), id, rests, change);
    }

    /// The same, with something else that is to be written down whole with it.
    fn end_with(&mut self, also: Batch, id: u64, rests: bool, change: impl FnOnce(&mut ActionView)) {
        let Some(record) = self.record_mut(id) else { return self.chronicle.record(also) };
        let now = jiff::Timestamp::now();
        record.view.ended_at = Some(now.to_string());
        change(&mut record.view);
        if rests {
            record.past = record.place.as_ref().map(|place| past_action(place, &record.view.action, now));
        }
        let what = What::SliceDone {
            subject: subject(&record.view),
            state: record.view.state.clone(),
            bytes_rewritten: record.view.bytes_rewritten,
            duration_seconds: record.view.duration_seconds,
            outcome: record.view.outcome.clone(),
        };
        let mut batch = batch_of(record);
        batch.append(also);
        self.chronicle.tell_with(batch, what);
    }

    /// An action that is still remembered.
    pub fn find(&self, id: u64) -> Option<&ActionView> {
        self.actions.iter().map(|record| &record.view).find(|view| view.id == id)
    }

    /// The process that an action is done to, if it is still remembered.
    pub fn process_of(&self, id: u64) -> Option<ProcessId> {
        self.actions.iter().find(|record| record.view.id == id).map(|record| record.process)
    }

    /// Forgets how often acting on these keys has not helped: what stood in the way has gone.
    pub fn forgive(&mut self, place: &Place) {
        let same =
            |record: &&mut ActionRecord| record.place.as_ref().is_some_and(|other| shares_keys(place, other));
        let mut batches = Vec::new();
        for record in self.actions.iter_mut().filter(same) {
            if let Some(past) = record.past.as_mut().filter(|past| past.failures_in_a_row > 0) {
                past.failures_in_a_row = 0;
                batches.push(batch_of(record));
            }
        }
        batches.into_iter().for_each(|batch| self.chronicle.record(batch));
    }

    /// Earlier actions on a database, newest last.
    pub fn past_actions(&self, database: &DatabaseIdentity) -> Vec<PastAction> {
        let here =
            |record: &&ActionRecord| record.place.as_ref().is_some_and(|place| place.database == *database);
        let past = self.actions.iter().filter(here).filter_map(|record| {
            let awaits_verdict = self.owed.iter().any(|owed| owed.id == record.view.id);
            record.past.clone().map(|past| PastAction { awaits_verdict, ..past })
        });
        let mut past: Vec<PastAction> = past.take(PAST_ACTIONS_MAX).collect();
        past.reverse();
        past
    }

    /// Time since a window was last open on a target, nanoseconds; one of an earlier run counts as well, unless
    /// something was still wanted then. `None`: look at once.
    pub fn since_window_ns(&self, watched: &Watched) -> Option<u64> {
        let earlier = || {
            let databases: Vec<_> = watched.target.databases.iter().map(DatabaseIdentity::of).collect();
            self.surveys.since_window_ns(&databases, jiff::Timestamp::now())
        };
        watched.since_window_ns().or_else(earlier)
    }

    /// Writes down that a target has had a window, and what the plan made of it wants.
    pub fn keep_survey(&mut self, watched: &Watched, plan: &Plan) {
        let databases: Vec<_> = watched.target.databases.iter().map(DatabaseIdentity::of).collect();
        let batch = self.surveys.note(&watched.target.name, &databases, plan, jiff::Timestamp::now());
        self.chronicle.record(batch);
    }

    /// Forgets what is owed for a target that has gone.
    pub fn forget(&mut self, target: &str) {
        self.owed.retain(|owed| owed.before.target != target);
        self.told.forget(target);
    }

    /// The newest actions, newest first, and of older ones those that are failing still.
    pub fn actions(&self) -> Vec<ActionView> {
        let views = self.actions.iter().map(|record| &record.view).enumerate();
        let shown = views.filter(|(age, view)| *age < ACTIONS_KEPT_MAX || view.state == FAILING);
        shown.map(|(_, view)| view.clone()).collect()
    }

    /// Tells of something that is no action.
    pub fn tell(&mut self, what: What) {
        self.chronicle.tell(what);
    }

    /// Tells that the target of an action ended while it was under way.
    pub fn tell_target_gone(&mut self, id: u64) {
        let mut records = self.actions.iter().filter(|record| record.view.id == id);
        if let Some(record) = records.next() {
            let what = What::TargetGone { subject: subject(&record.view), pid: record.process.pid };
            self.chronicle.tell(what);
        }
    }

    /// Tells which refusals of a target are new; these are all that are in force now.
    pub fn tell_refusals(&mut self, target: &str, refusals: &[Refused]) {
        for what in self.told.refusals(target, refusals) {
            self.chronicle.tell(what);
        }
    }

    /// Tells of a plan, if it is news; `steps` are in words.
    pub fn tell_plan(&mut self, plan: &Plan, steps: Vec<String>) {
        if let Some(what) = self.told.plan(plan, steps) {
            self.chronicle.tell(what);
        }
    }

    /// What was told, and the state it is kept in.
    pub fn chronicle(&self) -> &Chronicle {
        &self.chronicle
    }

    fn record_mut(&mut self, id: u64) -> Option<&mut ActionRecord> {
        self.actions.iter_mut().find(|record| record.view.id == id)
    }
}

/// Whether two places share keys.
fn shares_keys(one: &Place, two: &Place) -> bool {
    one.database == two.database && one.column_family == two.column_family && one.range.overlaps(&two.range)
}

/// `action` is its kind, as the API names it.
fn past_action(place: &Place, action: &str, now: jiff::Timestamp) -> PastAction {
    PastAction {
        column_family: place.column_family.clone(),
        range: place.range.clone(),
        ended_unix_s: now.as_second(),
        helped: None,
        awaits_verdict: false,
        failures_in_a_row: 0,
        remedy: match action {
            "flush" => RemedyKind::Flush,
            SET_OPTIONS => RemedyKind::Options,
            _ => RemedyKind::Compact,
        },
    }
}

fn batch_of(record: &ActionRecord) -> Batch {
    let mut batch = Batch::default();
    batch.put(Kind::Action, &numbered(record.view.id), record);
    batch
}

fn subject(view: &ActionView) -> Subject {
    Subject {
        action_id: view.id,
        action: view.action.clone(),
        target: view.target.clone(),
        database: view.database.clone(),
        subject: view.subject.clone(),
        begin: view.begin.clone(),
        end: view.end.clone(),
    }
}

#[cfg(test)]
mod tests;
