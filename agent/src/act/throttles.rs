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
use sexton_execute::{ExecuteError, JobOutcome, SettingTask, Task, ThrottleTask};
use sexton_inspect::facts::ProcessId;
use sexton_journal::{EventKind, ThrottleChange, ThrottleKey, clock};
use sexton_tuner::controller::Situation;
use sexton_tuner::guard::Readings;
use sexton_tuner::plan::SetThrottle;
use sexton_tuner::policy::{Mode, WhenChanged};
use sexton_tuner::run::consent::Consent;
use sexton_tuner::run::{
    Action, ActionId, ActionKind, ActionState, Admission, Event, JobEnd, JobResult, JobStatus, Offer,
    SettingChange,
};
use sexton_tuner::throttle::{
    KnownThrottles, ThrottleFailure, ThrottleSetting, ThrottleStep, is_same_value, throttle_values,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// How long a session is waited for beyond the time that its command may take.
const READ_LIMIT: Duration = Duration::from_secs(120);

/// What is tried with a throttle.
enum Try {
    Read,
    /// Set it, where it still has this value: what was read a moment ago is not read once more.
    Set {
        only_from: Option<String>,
    },
}

impl Actor {
    /// Asks the controllers of throttles that follow pressure what they want now.
    pub fn ask_controllers(&mut self, observer: &Observer) {
        let policy = &observer.policy;
        let side = policy.throttle_side().0;
        let now = jiff::Timestamp::now();
        let mut controllers = std::mem::take(&mut self.throttles.controllers);
        for watched in observer.roster.watched.iter().filter(|watched| watched.mode != Mode::Observe) {
            let Some(pressure) = observer.signals.pressure_of(watched) else { continue };
            for throttle in &watched.entry.throttles {
                let Some(control) = &throttle.control else { continue };
                let name = (watched.target.name.clone(), throttle.name.clone());
                let mut controller = controllers.remove(&name).unwrap_or_default();
                let known = self.throttles.known.get(&name);
                let in_force = known.and_then(|known| known.value.as_deref());
                let ratio = throttle.ratio(side);
                controller.step(control, &Situation { pressure: &pressure, ratio, in_force, now });
                self.throttles.controllers.insert(name, controller);
            }
        }
        // One whose signals could not be read yet goes on from where it is.
        let is_watched = |name: &(String, String)| observer.roster.named(&name.0).is_some();
        controllers.retain(|name, _| is_watched(name));
        for (name, controller) in controllers {
            self.throttles.controllers.entry(name).or_insert(controller);
        }
    }

    /// Has the values in force read where that is due: the plan then knows what has to be set.
    pub fn tend_throttles(&mut self, observer: &mut Observer) {
        let known = self.known_throttles();
        for (key, setting) in self.wanted_throttles(observer, &known) {
            let name = (key.target.clone(), key.name.clone());
            let is_due = setting.is_read_due(known.get(&name), jiff::Timestamp::now());
            let is_read = self.throttles.reads.iter().any(|read| read.key == key);
            let is_tried = known.get(&name).is_some_and(|known| known.failure.is_some());
            if !is_due || is_read || is_tried || !self.accepts(observer, &key.target) {
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
    fn wanted_throttles(
        &self,
        observer: &Observer,
        known: &KnownThrottles,
    ) -> Vec<(ThrottleKey, ThrottleSetting)> {
        let policy = &observer.policy;
        let acted_on = observer.roster.watched.iter().filter(|watched| watched.mode == Mode::Act);
        let settings = acted_on.flat_map(|watched| {
            let (process, target) = (watched.target.process, watched.target.name.clone());
            let settings = throttle_values(policy, &watched.entry, &target, known).into_iter();
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
        for (name, controller) in &self.throttles.controllers {
            known.entry(name.clone()).or_default().wanted = controller.wanted().cloned();
        }
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
        let wanted = self.wanted_throttles(observer, &self.known_throttles());
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
        let known = self.known_throttles();
        let wanted = self.wanted_throttles(observer, &known).into_iter().find(|(key, setting)| {
            key.target == set.target && key.name == set.name && setting.value == set.value
        });
        let known = known.get(&(set.target.clone(), set.name.clone()));
        let is_due = wanted
            .is_some_and(|(_, setting)| setting.step(known, jiff::Timestamp::now()) == ThrottleStep::Set);
        if is_due {
            self.offer_throttle(observer, set.clone());
        }
    }

    fn offer_throttle(&mut self, observer: &mut Observer, set: SetThrottle) {
        let Some(watched) = observer.roster.named(&set.target) else { return };
        let (target, process, mode) = (watched.target.id, watched.target.process, watched.mode);
        let kind = ActionKind::ChangeSetting(SettingChange::Throttle(set));
        let admission = Admission {
            readings: &Readings::default(),
            consent: &Consent::default(),
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
        // Somebody else may have set it since it was read.
        let known = self.throttles.known.get(&name).and_then(|known| known.value.clone());
        let next = match failures {
            0 => Try::Set { only_from: known.filter(|_| set.get.is_some()) },
            _ if set.get.is_some() => Try::Read,
            _ => Try::Set { only_from: None },
        };
        self.try_throttle(observer, id, process, set, next)
    }

    fn try_throttle(
        &mut self,
        observer: &mut Observer,
        id: ActionId,
        process: ProcessId,
        set: &SetThrottle,
        next: Try,
    ) -> Option<Event<'static>> {
        let task = SettingTask::of(&SettingChange::Throttle(set.clone()), process)?;
        let is_read = matches!(next, Try::Read);
        let task = match (next, task) {
            (Try::Set { only_from }, SettingTask::Throttle(task)) => {
                Task::Set(SettingTask::Throttle(ThrottleTask { only_from, ..task }))
            }
            (Try::Set { .. }, task) => Task::Set(task),
            (Try::Read, task) => Task::Read(task),
        };
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
            (Err(error), false) => {
                self.note_failed(&key);
                return Some(ended_badly(error.to_string(), false));
            }
            // It was read and not set: in earnest, or because it was another one than expected.
            (Ok(JobOutcome { value: Some(value), command, .. }), _) if is_read || command.is_none() => {
                if !is_same_value(&value, &set.value) {
                    self.note_read(observer, &key, value.clone());
                    if self.yields(observer, &key) {
                        let end = JobResult::Cancelled(format!("somebody else has set it to {value}"));
                        return Some(Event::Job(JobStatus::Ended(JobEnd::new(end))));
                    }
                    self.intend_throttle_again(observer, id, &key);
                    return self.try_throttle(observer, id, process, set, Try::Set { only_from: None });
                }
                self.note_set(&key, value, true);
                format!("{} is in force, without another try", set.value)
            }
            (Ok(_), true) => {
                return self.try_throttle(observer, id, process, set, Try::Set { only_from: None });
            }
            (Ok(outcome), false) => {
                self.note_set(&key, set.value.clone(), set.get.is_some());
                outcome.command.map(|command| command.in_words()).unwrap_or_default()
            }
        };
        let end = JobEnd { message: Some(message), ..JobEnd::new(JobResult::Done) };
        Some(Event::Job(JobStatus::Ended(end)))
    }

    /// Whether somebody else's value is in force, and the policy leaves it.
    fn yields(&self, observer: &Observer, key: &ThrottleKey) -> bool {
        let known = self.throttles.known.get(&(key.target.clone(), key.name.clone()));
        let is_changed = known.is_some_and(|known| known.changed_elsewhere().is_some());
        is_changed && when_changed(observer, key) == WhenChanged::Yield
    }

    /// Writes down how a throttle is restored that is about to be set once more.
    fn intend_throttle_again(&mut self, observer: &mut Observer, id: ActionId, key: &ThrottleKey) {
        let known = self.throttles.known.get(&(key.target.clone(), key.name.clone()));
        let settings = self.wanted_throttles(observer, &self.known_throttles());
        let setting = settings.into_iter().find(|(wanted, _)| wanted == key);
        let restore = setting.and_then(|(_, setting)| SetThrottle::of(&key.target, setting, known).restore);
        let effect = self.ledger.intend_again(id, restore);
        self.carry_out(observer, effect.map(|effect| (id, effect)));
    }

    /// Notes which value is in force, writes it down, and tells where somebody else has set it.
    fn note_read(&mut self, observer: &Observer, key: &ThrottleKey, value: String) {
        let known = self.throttles.known.entry((key.target.clone(), key.name.clone())).or_default();
        let changed = known.take_read(value, jiff::Timestamp::now());
        self.journal.keep_throttle(key, known);
        let Some(changed) = changed else { return };
        let change =
            ThrottleChange { target: key.target.clone(), name: key.name.clone(), value: changed.read };
        let yields = when_changed(observer, key) == WhenChanged::Yield;
        self.journal.emit(EventKind::ThrottleChanged { change, set: changed.set, yields });
    }

    fn note_set(&mut self, key: &ThrottleKey, value: String, is_read: bool) {
        let name = (key.target.clone(), key.name.clone());
        let known = self.throttles.known.entry(name.clone()).or_default();
        known.take_set(value, is_read, jiff::Timestamp::now());
        self.journal.keep_throttle(key, known);
        self.throttles.set.insert(name, Instant::now());
    }

    fn note_failed(&mut self, key: &ThrottleKey) {
        if let Some(known) = self.throttles.known.get_mut(&(key.target.clone(), key.name.clone())) {
            known.take_failed();
            self.journal.keep_throttle(key, known);
        }
    }

    /// A value that no action waits for was read.
    pub fn take_throttle_read(&mut self, observer: &mut Observer, number: u64, status: ReportedStatus) {
        let ReportedStatus::Ended(result) = status else { return };
        let Some(at) = self.throttles.reads.iter().position(|read| read.job.number == number) else { return };
        let ThrottleRead { key, setting, asked, .. } = self.throttles.reads.swap_remove(at);
        let name = (key.target.clone(), key.name.clone());
        let is_open = self.open_throttles().any(|(_, set)| (&set.target, &set.name) == (&name.0, &name.1));
        // Which of the two came first cannot be told.
        if is_open || self.throttles.set.get(&name).is_some_and(|set| *set >= asked) {
            return;
        }
        match result.map(|outcome| outcome.value) {
            Ok(Some(value)) => {
                debug!(target = key.target, throttle = key.name, value, "the value in force");
                self.note_read(observer, &key, value);
            }
            Ok(None) => {}
            Err(error) => {
                self.throttles.unread.insert(name.clone(), cannot_be_read(&error));
                self.offer_throttle(observer, SetThrottle::of(&key.target, setting, None));
                self.throttles.unread.remove(&name);
            }
        }
    }
}

/// What the policy says of a throttle that somebody else has changed.
fn when_changed(observer: &Observer, key: &ThrottleKey) -> WhenChanged {
    let watched = observer.roster.named(&key.target);
    let throttles = watched.map(|watched| watched.entry.throttles.as_slice()).unwrap_or_default();
    let throttle = throttles.iter().find(|throttle| throttle.name == key.name);
    throttle.map(|throttle| throttle.when_changed).unwrap_or_default()
}

fn cannot_be_read(error: &ExecuteError) -> String {
    format!("the value in force cannot be read: {error}")
}
