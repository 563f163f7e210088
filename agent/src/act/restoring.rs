//! Restoring throttles: by the policy's commands as they were when the value was changed, whatever has become
//! of the policy, the target and the agent since.

use super::Actor;
use crate::observe::Observer;
use sexton_execute::{ExecuteError, JobOutcome, ThrottleTask};
use sexton_inspect::facts::ProcessId;
use sexton_inspect::process::is_alive;
use sexton_journal::{ThrottleKey, clock};
use sexton_tuner::run::{KeptSetting, SettingEvent, SettingKind};
use std::time::Instant;
use tracing::warn;

impl Actor {
    /// Has the throttles restored that are not wanted any more, and forgets those whose process has ended.
    pub fn restore_throttles(&mut self, observer: &mut Observer) {
        self.step_settings(observer, &SettingEvent::Gone, |kept| {
            is_throttle(kept) && !is_alive(&kept.process)
        });
        let processes: Vec<ProcessId> = observer.roster.watched.iter().map(|it| it.target.process).collect();
        let unwatched = SettingEvent::Unwanted("its target is not watched any more");
        self.step_settings(observer, &unwatched, |kept| {
            is_throttle(kept) && kept.is_restorable() && !processes.contains(&kept.process)
        });
        let now = clock::now();
        let due =
            self.ledger.settings().iter().filter(|kept| is_throttle(kept) && kept.is_to_be_restored(now));
        for kept in due.cloned().collect::<Vec<_>>() {
            self.restore_throttle(observer, &kept);
        }
    }

    fn restore_throttle(&mut self, observer: &mut Observer, kept: &KeptSetting) {
        let (Some(value), Some(commands)) = (kept.restore.clone(), kept.commands.clone()) else { return };
        if self.restorations.throttles.values().any(|action| *action == kept.action) {
            return;
        }
        if value == kept.wanted {
            let restored = SettingEvent::Restored(Some(&value));
            return self.step_settings(observer, &restored, |other| other.action == kept.action);
        }
        let task = ThrottleTask {
            process: kept.process,
            value,
            command: commands.command,
            get: Some(commands.get),
            only_from: Some(kept.wanted.clone()),
            user: commands.user,
            time_limit: commands.timeout.duration(),
        };
        if let Some(number) = self.restorations.commands.start(task) {
            self.restorations.throttles.insert(number, kept.action);
            self.throttles.known.entry(name_of(kept)).or_default().is_being_restored = true;
        }
    }

    /// A command has ended.
    pub fn take_commanded(
        &mut self,
        observer: &mut Observer,
        number: u64,
        result: Result<JobOutcome, ExecuteError>,
    ) {
        if self.restorations.commands.end(number) {
            let value = result.map(|outcome| outcome.value).map_err(|error| error.to_string());
            self.end_restoring(observer, number, value);
        }
    }

    /// Gives up the commands that have missed their deadline.
    pub fn give_up_late_commands(&mut self, observer: &mut Observer) {
        for number in self.restorations.commands.expire(Instant::now()) {
            self.end_restoring(
                observer,
                number,
                Err("its command cannot be started, or cannot be stopped".to_owned()),
            );
        }
    }

    fn end_restoring(&mut self, observer: &mut Observer, number: u64, value: Result<Option<String>, String>) {
        let Some(action) = self.restorations.throttles.remove(&number) else { return };
        let kept = self.ledger.settings().iter().find(|kept| kept.action == action).cloned();
        let Some(kept) = kept else { return };
        let name = name_of(&kept);
        let mut known = self.throttles.known.remove(&name).unwrap_or_default();
        known.is_being_restored = false;
        let event = match &value {
            Ok(value) => {
                // What somebody else has set is still somebody else's.
                if value.is_none() || *value == kept.restore {
                    known.set = None;
                }
                // Its number goes on from what is in force now.
                self.throttles.controllers.remove(&name);
                if let Some(value) = value.clone() {
                    known.take_read(value, jiff::Timestamp::now());
                }
                let key = ThrottleKey { process: kept.process, target: name.0.clone(), name: name.1.clone() };
                self.journal.keep_throttle(&key, &known);
                SettingEvent::Restored(value.as_deref())
            }
            Err(reason) => {
                let (target, throttle) = &name;
                warn!(target, throttle, reason, "cannot be restored yet");
                SettingEvent::NotRestored
            }
        };
        self.step_settings(observer, &event, |other| other.action == action);
        self.throttles.known.insert(name, known);
    }
}

fn is_throttle(kept: &KeptSetting) -> bool {
    kept.setting.kind == SettingKind::Throttle
}

fn name_of(kept: &KeptSetting) -> (String, String) {
    (kept.target.clone(), kept.setting.name.clone())
}
