//! Throttles: reading what is in force, setting what is wanted, and trying again what has failed.
//!
//! What is to be done about one is decided in [`sexton_tuner::throttle`]. A throttle that fails is one action
//! for as long as it does: its first try begins it, and what ends it is that the value is in force, or not
//! wanted any more. When to try again is the ledger's to say.

use super::Actor;
use super::acting::Acting;
use super::job_end::ended_badly;
use super::throttle_values::ThrottleRead;
use crate::observe::Observer;
use crate::session::{Baseline, ReportedStatus};
use sexton_execute::{ExecuteError, JobOutcome, SettingTask, Task};
use sexton_inspect::facts::ProcessId;
use sexton_journal::{ThrottleKey, clock};
use sexton_tuner::guard::Readings;
use sexton_tuner::plan::SetThrottle;
use sexton_tuner::policy::Mode;
use sexton_tuner::run::{
    Action, ActionId, ActionKind, ActionState, Admission, Event, JobEnd, JobResult, JobStatus, Offer,
    SettingChange,
};
use sexton_tuner::throttle::{
    KnownThrottles, ThrottleFailure, ThrottleSetting, ThrottleState, ThrottleStep, throttle_values,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// How long a session is waited for beyond the time that its command may take.
const READ_LIMIT: Duration = Duration::from_secs(120);

impl Actor {
    /// Has the values in force read where that is due: the plan then knows what has to be set.
    pub fn tend_throttles(&mut self, observer: &mut Observer) {
        let known = self.known_throttles();
        for (key, setting) in self.wanted_throttles(observer) {
            let name = (key.target.clone(), key.name.clone());
            let step = setting.step(known.get(&name), jiff::Timestamp::now());
            let is_read = self.throttles.reads.iter().any(|read| read.key == key);
            let is_tried = known.get(&name).is_some_and(|known| known.failure.is_some());
            if step != ThrottleStep::Read || is_read || is_tried || !self.accepts(observer, &key.target) {
                continue;
            }
            let set = SettingChange::Throttle(SetThrottle::of(&key.target, setting.clone(), None));
            let Some(read) = SettingTask::of(&set, key.process).map(Task::Read) else { continue };
            if let Ok(job) = self.start_job(observer, &key.target, move |_| Ok(read)) {
                self.throttles.reads.push(ThrottleRead { job, asked: Instant::now(), key, setting });
            }
        }
    }

    /// Whether values are being read that the next plan should know of.
    pub fn awaits_throttles(&mut self, observer: &Observer) -> bool {
        let roster = &observer.roster;
        self.throttles.reads.retain(|read| {
            let watched = roster.get(read.job.target);
            let limit = READ_LIMIT + read.setting.timeout.duration();
            read.asked.elapsed() < limit && watched.is_some_and(|watched| read.job.is_heard_of(watched))
        });
        !self.throttles.reads.is_empty()
    }

    /// The settings of all targets that may be acted on.
    fn wanted_throttles(&self, observer: &Observer) -> Vec<(ThrottleKey, ThrottleSetting)> {
        let policy = &observer.policy;
        let acted_on = observer.roster.watched.iter().filter(|watched| watched.mode == Mode::Act);
        let settings = acted_on.flat_map(|watched| {
            let (process, target) = (watched.target.process, watched.target.name.clone());
            let settings = throttle_values(policy, &watched.entry).into_iter();
            settings.map(move |setting| {
                let name = setting.name.clone();
                (ThrottleKey { process, target: target.clone(), name }, setting)
            })
        });
        settings.collect()
    }

    /// What the plan is to know of throttles: the values in force, and which of them fail.
    pub fn known_throttles(&self) -> KnownThrottles {
        let mut known = self.throttles.known.clone();
        for (action, set) in self.open_throttles() {
            let (retry, reason) = action
                .failure
                .as_ref()
                .map(|failure| (failure.retry, failure.reason.clone()))
                .unwrap_or_default();
            let SetThrottle { target, name, value, command, get, .. } = set.clone();
            let failure = ThrottleFailure { action_id: action.id.0, value, command, get, reason, retry };
            known.entry((target, name)).or_default().failure = Some(failure);
        }
        known
    }

    /// Throttles that are being set, or could not be.
    fn open_throttles(&self) -> impl Iterator<Item = (&Action, &SetThrottle)> {
        let open = self.ledger.actions().filter(|action| action.state.is_open());
        open.filter_map(|action| match &action.kind {
            ActionKind::ChangeSetting(SettingChange::Throttle(set)) => Some((action, set)),
            _ => None,
        })
    }

    /// Ends the failures of throttles that nobody minds any more: the policy wants something else now.
    pub fn end_unwanted_throttles(&mut self, observer: &mut Observer) {
        let wanted = self.wanted_throttles(observer);
        let is_wanted = |action: &Action, set: &SetThrottle| {
            let is_it = |setting: &ThrottleSetting| {
                let ThrottleSetting { name, value, command, get, .. } = setting;
                (name, value, command, get) == (&set.name, &set.value, &set.command, &set.get)
            };
            wanted.iter().any(|(key, setting)| key.process == action.process && is_it(setting))
        };
        let failing = self.open_throttles().filter(|(action, set)| {
            matches!(action.state, ActionState::Retrying(_)) && !is_wanted(action, set)
        });
        let outdated: Vec<ActionId> = failing.map(|(action, _)| action.id).collect();
        outdated.into_iter().for_each(|id| self.hear(observer, id, Event::Unwanted));
    }

    /// Begins to set a throttle, where what is in force is known and is another value.
    pub fn begin_throttle(&mut self, observer: &mut Observer, change: &SettingChange) {
        let SettingChange::Throttle(set) = change else { return };
        let name = (set.target.clone(), set.name.clone());
        let known = self.throttles.known.get(&name);
        // A value that can be read is read before it is set.
        let value = known.and_then(|known| known.value.as_ref());
        let is_due = value.map_or(set.get.is_none(), |value| *value != set.value);
        if is_due && !known.is_some_and(|known| known.is_being_restored) {
            self.offer_throttle(observer, set.clone());
        }
    }

    fn offer_throttle(&mut self, observer: &mut Observer, set: SetThrottle) {
        let Some(watched) = observer.roster.named(&set.target) else { return };
        let (target, process, mode) = (watched.target.id, watched.target.process, watched.mode);
        let kind = ActionKind::ChangeSetting(SettingChange::Throttle(set));
        let admission = Admission {
            readings: &Readings::default(),
            planned_cost_bytes: 0,
            part: None,
            nothing_left: false,
            time_limit: self.time_limit(observer, &kind),
        };
        let offer = Offer { kind: kind.clone(), process, mode, place: None, device: None, claim: None };
        match self.ledger.offer(offer, admission, &observer.policy, clock::now()) {
            Ok((id, effects)) => {
                let baseline = Baseline { kind, files: None, memtable_deletions: None };
                self.acting.push(Acting::new(target, id, Arc::new(baseline)));
                self.carry_out(observer, effects.into_iter().map(|effect| (id, effect)));
            }
            Err(rejection) => debug!(reason = rejection.reason, "a throttle is not set now"),
        }
    }

    /// Begins a try to set a throttle. A value that can be read is read first where an earlier try has
    /// failed: somebody else may have set it meanwhile.
    pub fn start_throttle(
        &mut self,
        observer: &mut Observer,
        id: ActionId,
        set: &SetThrottle,
        failures: u32,
    ) -> Option<Event<'static>> {
        let name = (set.target.clone(), set.name.clone());
        if let Some(reason) = self.throttles.unread.remove(&name) {
            return Some(ended_badly(reason, false));
        }
        let process = self.ledger.action(id)?.process;
        if !self.acting.iter().any(|acting| acting.id == id) {
            let target = observer.roster.named(&set.target).map(|watched| watched.target.id);
            let Some(target) = target else {
                return Some(ended_badly(format!("{} has gone", set.target), false));
            };
            let kind = ActionKind::ChangeSetting(SettingChange::Throttle(set.clone()));
            let baseline = Baseline { kind, files: None, memtable_deletions: None };
            self.acting.push(Acting::new(target, id, Arc::new(baseline)));
        }
        let is_read = failures > 0 && set.get.is_some();
        self.try_throttle(observer, id, process, set, is_read)
    }

    fn try_throttle(
        &mut self,
        observer: &mut Observer,
        id: ActionId,
        process: ProcessId,
        set: &SetThrottle,
        is_read: bool,
    ) -> Option<Event<'static>> {
        let task = SettingTask::of(&SettingChange::Throttle(set.clone()), process)?;
        let task = if is_read { Task::Read(task) } else { Task::Set(task) };
        let started = self.start_job(observer, &set.target, move |_| Ok(task));
        match started {
            Ok(job) => self.take_started(id, Ok(job), is_read),
            Err(error) => Some(ended_badly(error.to_string(), false)),
        }
    }

    /// What a job of a throttle's action came to; `None` where another one has begun.
    pub fn throttle_event(
        &mut self,
        observer: &mut Observer,
        id: ActionId,
        set: &SetThrottle,
        is_read: bool,
        result: Result<JobOutcome, ExecuteError>,
    ) -> Option<Event<'static>> {
        let process = self.ledger.action(id)?.process;
        let key = ThrottleKey { process, target: set.target.clone(), name: set.name.clone() };
        let message = match (result, is_read) {
            (Err(error), true) => return Some(ended_badly(cannot_be_read(&error), false)),
            (Err(error), false) => return Some(ended_badly(error.to_string(), false)),
            (Ok(JobOutcome { value: Some(value), .. }), true) => {
                let is_wanted = value == set.value;
                self.note_throttle(&key, value, true);
                if !is_wanted {
                    self.intend_throttle_again(observer, id, &key);
                    return self.try_throttle(observer, id, process, set, false);
                }
                format!("{} is in force, without another try", set.value)
            }
            (Ok(_), true) => return self.try_throttle(observer, id, process, set, false),
            (Ok(outcome), false) => {
                self.note_throttle(&key, set.value.clone(), set.get.is_some());
                outcome.command.map(|command| command.in_words()).unwrap_or_default()
            }
        };
        let end = JobEnd { message: Some(message), ..JobEnd::new(JobResult::Done) };
        Some(Event::Job(JobStatus::Ended(end)))
    }

    /// Writes down how a throttle is restored that is about to be set once more.
    fn intend_throttle_again(&mut self, observer: &mut Observer, id: ActionId, key: &ThrottleKey) {
        let known = self.throttles.known.get(&(key.target.clone(), key.name.clone()));
        let setting = self.wanted_throttles(observer).into_iter().find(|(wanted, _)| wanted == key);
        let restore = setting.and_then(|(_, setting)| SetThrottle::of(&key.target, setting, known).restore);
        let effect = self.ledger.intend_again(id, restore);
        self.carry_out(observer, effect.map(|effect| (id, effect)));
    }

    /// Notes which value is in force, and writes it down.
    pub fn note_throttle(&mut self, key: &ThrottleKey, value: String, is_read: bool) {
        let mut known = ThrottleState { value: Some(value.clone()), ..ThrottleState::default() };
        if is_read {
            known.take_read(value, jiff::Timestamp::now());
        }
        self.journal.keep_throttle(key, &known);
        self.throttles.known.insert((key.target.clone(), key.name.clone()), known);
    }

    /// A value that no action waits for was read.
    pub fn take_throttle_read(&mut self, observer: &mut Observer, number: u64, status: ReportedStatus) {
        let ReportedStatus::Ended(result) = status else { return };
        let Some(at) = self.throttles.reads.iter().position(|read| read.job.number == number) else { return };
        let ThrottleRead { key, setting, .. } = self.throttles.reads.swap_remove(at);
        match result.map(|outcome| outcome.value) {
            Ok(Some(value)) => {
                debug!(target = key.target, throttle = key.name, value, "the value in force");
                self.note_throttle(&key, value, true);
            }
            Ok(None) => {}
            Err(error) => {
                let name = (key.target.clone(), key.name.clone());
                self.throttles.unread.insert(name.clone(), cannot_be_read(&error));
                self.offer_throttle(observer, SetThrottle::of(&key.target, setting, None));
                self.throttles.unread.remove(&name);
            }
        }
    }
}

fn cannot_be_read(error: &ExecuteError) -> String {
    format!("the value in force cannot be read: {error}")
}
