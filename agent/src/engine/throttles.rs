//! Throttles: reading what is in force, setting what is wanted, and trying again what has failed.
//!
//! What is to be done about one is decided in [`sexton_tuner::throttle`]. A throttle that fails is one action
//! for as long as it does: its first try begins it, and what ends it is that the value is in force, or not
//! wanted any more.

use super::{Control, Engine};
use crate::session::Session;
use sexton_execute::{ExecuteError, SettingTask, Task, ThrottleTask};
use sexton_journal::{Begun, ThrottleKey};
use sexton_tuner::plan::SetThrottle;
use sexton_tuner::policy::Mode;
use sexton_tuner::run::{ActionId, ActionKind, Outcome, SettingChange};
use sexton_tuner::throttle::{ThrottleSetting, ThrottleState, ThrottleStep, throttle_values};
use std::collections::BTreeSet;
use std::time::Instant;
use tracing::debug;

impl Engine {
    /// Reads the values in force where that is due, and ends failures that nobody minds any more: before each
    /// plan, which then knows what has to be set.
    pub(super) fn tend_throttles(&mut self, control: &mut Control) {
        if !self.history.is_writable() {
            return;
        }
        let mut minded = BTreeSet::new();
        for (key, setting) in self.wanted_throttles() {
            let name = (key.target.clone(), key.name.clone());
            let failure = self.known_throttle(&key).failure;
            if failure.is_none_or(|failure| failure.is_of(&setting)) {
                minded.insert(name.clone());
            }
            let step = setting.step(self.throttles.get(&name), jiff::Timestamp::now());
            if step == ThrottleStep::Read && self.may_act(&key.target) {
                self.read_throttle(&key, &setting, control);
            }
        }
        self.give_up_all_but(&minded);
    }

    /// The settings of all targets that may be acted on.
    fn wanted_throttles(&self) -> Vec<(ThrottleKey, ThrottleSetting)> {
        let now = jiff::Timestamp::now();
        let policy = &self.options.policy;
        let acted_on = self.roster.watched.iter().filter(|watched| watched.mode == Mode::Act);
        let settings = acted_on.flat_map(|watched| {
            let (process, target) = (watched.target.process, watched.target.name.clone());
            let settings = throttle_values(policy, &watched.entry, now).into_iter();
            settings.map(move |setting| {
                let name = setting.name.clone();
                (ThrottleKey { process, target: target.clone(), name }, setting)
            })
        });
        settings.collect()
    }

    fn known_throttle(&self, key: &ThrottleKey) -> ThrottleState {
        self.throttles.get(&(key.target.clone(), key.name.clone())).cloned().unwrap_or_default()
    }

    fn note_throttle(&mut self, key: &ThrottleKey, known: ThrottleState) {
        self.throttles.insert((key.target.clone(), key.name.clone()), known);
    }

    /// Asks what is in force. Where that is what is wanted, nothing is left to do.
    fn read_throttle(&mut self, key: &ThrottleKey, setting: &ThrottleSetting, control: &mut Control) {
        let started = Instant::now();
        let result = self.carry_out(&key.target, reading(task(key, setting)), control);
        match result.map(|outcome| outcome.value) {
            Ok(Some(value)) => {
                debug!(target = key.target, throttle = key.name, value, "the value in force");
                let is_wanted = value == setting.value;
                let mut known = self.known_throttle(key);
                known.take_read(value, jiff::Timestamp::now());
                if is_wanted && let Some(failure) = known.failure.take() {
                    let words = format!("{} is in force, without another try", setting.value);
                    let seconds = started.elapsed().as_secs_f64();
                    let id = ActionId(failure.action_id);
                    self.history.end_throttle(key, &known, id, (Outcome::Done, words), seconds);
                } else {
                    self.history.keep_throttle(key, &known);
                }
                self.note_throttle(key, known);
            }
            Ok(None) => {}
            Err(error) => {
                let reason = format!("the value in force cannot be read: {error}");
                if let Some(id) = self.action_of(key, setting) {
                    self.note_throttle_failure(key, setting, id, reason);
                }
            }
        }
    }

    /// Sets a throttle, and makes sure that it is in force.
    pub(super) fn set_throttle(&mut self, throttle: &SetThrottle, control: &mut Control) {
        let Some(watched) = self.watched_mut(&throttle.target) else { return };
        let process = watched.target.process;
        let key = ThrottleKey { process, target: throttle.target.clone(), name: throttle.name.clone() };
        let setting = throttle.setting();
        let Some(id) = self.action_of(&key, &setting) else { return };
        let started = Instant::now();
        match self.carry_out(&key.target, setting_of(task(&key, &setting)), control) {
            Ok(outcome) => {
                let words = outcome.command.map(|command| command.in_words()).unwrap_or_default();
                let mut known =
                    ThrottleState { value: Some(setting.value.clone()), ..ThrottleState::default() };
                if setting.get.is_some() {
                    known.take_read(setting.value, jiff::Timestamp::now());
                }
                let seconds = started.elapsed().as_secs_f64();
                self.history.end_throttle(&key, &known, id, (Outcome::Done, words), seconds);
                self.note_throttle(&key, known);
            }
            Err(error) => self.note_throttle_failure(&key, &setting, id, error.to_string()),
        }
    }

    /// The action that a try belongs to: the one that is failing, or a new one. `None`: it cannot be written
    /// down.
    fn action_of(&mut self, key: &ThrottleKey, setting: &ThrottleSetting) -> Option<ActionId> {
        let failing = self.known_throttle(key).failure.filter(|failure| failure.is_of(setting));
        let failing =
            failing.map(|failure| ActionId(failure.action_id)).filter(|id| self.history.is_open(*id));
        failing.or_else(|| {
            let ThrottleSetting { name, value, command, get, timeout, reason } = setting.clone();
            let target = key.target.clone();
            let set = SetThrottle { target, name, value, command, get, timeout, reason };
            let kind = ActionKind::ChangeSetting(SettingChange::Throttle(set));
            self.history.begin(Begun { kind, process: key.process, place: None }).ok()
        })
    }

    fn note_throttle_failure(
        &mut self,
        key: &ThrottleKey,
        setting: &ThrottleSetting,
        id: ActionId,
        reason: String,
    ) {
        let mut known = self.known_throttle(key);
        let is_news = known.fail(id.0, setting, reason, jiff::Timestamp::now());
        self.history.fail_throttle(key, &known, is_news);
        self.note_throttle(key, known);
    }

    /// Ends the failures of all throttles but these: their target has gone, or the policy wants something
    /// else now.
    fn give_up_all_but(&mut self, minded: &BTreeSet<(String, String)>) {
        let failing =
            self.throttles.iter().filter(|(name, known)| known.failure.is_some() && !minded.contains(*name));
        let outdated: Vec<_> = failing.map(|(name, known)| (name.clone(), known.clone())).collect();
        for ((target, name), mut known) in outdated {
            let Some(failure) = known.failure.take() else { continue };
            let id = ActionId(failure.action_id);
            let action = self.history.action(id).filter(|action| action.state.is_open());
            if let Some(process) = action.map(|action| action.process) {
                let key = ThrottleKey { process, target: target.clone(), name: name.clone() };
                let words = format!("{}; not wanted any more", failure.reason);
                self.history.end_throttle(&key, &known, id, (Outcome::Failed, words), 0.0);
            }
            self.throttles.insert((target, name), known);
        }
    }
}

fn reading(task: SettingTask) -> impl FnOnce(&Session) -> Result<Task, ExecuteError> {
    move |_| Ok(Task::Read(task))
}

fn setting_of(task: SettingTask) -> impl FnOnce(&Session) -> Result<Task, ExecuteError> {
    move |_| Ok(Task::Set(task))
}

fn task(key: &ThrottleKey, setting: &ThrottleSetting) -> SettingTask {
    SettingTask::Throttle(ThrottleTask {
        process: key.process,
        value: setting.value.clone(),
        command: setting.command.clone(),
        get: setting.get.clone(),
        time_limit: setting.timeout.duration(),
    })
}
