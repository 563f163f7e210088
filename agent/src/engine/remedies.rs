//! Remedies other than compaction: flushing a column family, setting one of its options. Both need the hook.

use super::tend::{note_value, value_in_force};
use super::{Control, Engine};
use crate::session::Session;
use sexton_execute::{ExecuteError, FlushTask, OptionTask, SettingTask, Task};
use sexton_journal::{Begun, clock};
use sexton_tuner::evidence::MemtableDeletions;
use sexton_tuner::plan::{Flush, SetOptions};
use sexton_tuner::range::KeyRange;
use sexton_tuner::run::{
    ActionId, ActionKind, End, KeptSetting, Outcome, Place, SettingChange, SettingEvent, is_same_value,
};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tracing::{debug, info, warn};

struct Subject<'a> {
    kind: ActionKind,
    target: &'a str,
    database: &'a str,
    column_family: &'a str,
}

impl Engine {
    pub(super) fn flush(&mut self, flush: &Flush, control: &mut Control) {
        let subject = Subject {
            kind: ActionKind::Flush(flush.clone()),
            target: &flush.target,
            database: &flush.database,
            column_family: &flush.column_family,
        };
        let memtable_deletions = self.memtable_deletions(&subject);
        if self.bears_flush(flush).is_err() {
            return;
        }
        let Some(id) = self.begin_remedy(&subject) else { return };
        control.begin_action();
        control.publish(self.snapshot());
        let started = Instant::now();
        let place = (PathBuf::from(&flush.database), flush.column_family.clone());
        let task = move |session: &Session| {
            let column_family = session.pointers_of(&place.0, &place.1)?;
            Ok(Task::Flush(FlushTask { process: session.process(), column_family }))
        };
        let result = self.carry_out(&flush.target, task, control);
        if result.is_ok() {
            self.charge(flush.cost_bytes);
        }
        let outcome = result.map(|_| "flushed".to_owned());
        self.end_remedy(id, &subject, started, outcome, memtable_deletions);
        control.publish(self.snapshot());
    }

    /// Sets an option of a column family. The value that was in force stands in the history, and is put back
    /// when the option is not wanted any more.
    pub(super) fn set_options(&mut self, set: &SetOptions, control: &mut Control) {
        let subject = Subject {
            kind: ActionKind::ChangeSetting(SettingChange::Option(set.clone())),
            target: &set.target,
            database: &set.database,
            column_family: &set.column_family,
        };
        let memtable_deletions = self.memtable_deletions(&subject);
        let Some(kept) = self.to_be_kept(&subject) else { return };
        if self.bears_option(set).is_err() {
            return;
        }
        let Some(id) = self.begin_remedy(&subject) else { return };
        control.begin_action();
        let started = Instant::now();
        let wanted = set.clone();
        let task = move |session: &Session| {
            let SetOptions { database, column_family, name, value, restore, .. } = wanted;
            let column_family = session.pointers_of(Path::new(&database), &column_family)?;
            let (process, restore) = (session.process(), Some(restore));
            Ok(Task::Set(SettingTask::Option(OptionTask { process, column_family, name, value, restore })))
        };
        let result = self.carry_out(&set.target, task, control);
        let event = match &result {
            Ok(_) => {
                if let Some(watched) = self.watched_mut(&set.target) {
                    note_value(watched, &kept, &set.value);
                }
                SettingEvent::Changed
            }
            Err(ExecuteError::Connection { .. }) => SettingEvent::Unwanted("whether it was set is not known"),
            Err(_) => SettingEvent::NotChanged,
        };
        self.history.step_settings(&event, |kept| kept.action == id);
        let outcome = result.map(|_| format!("{} was {} before", set.name, set.restore));
        self.end_remedy(id, &subject, started, outcome, memtable_deletions);
        control.publish(self.snapshot());
    }

    /// What is to be remembered of an option. `None` where it is changed already, or its value is not the one
    /// any more that the plan knows of: then the next plan knows.
    fn to_be_kept(&mut self, subject: &Subject<'_>) -> Option<KeptSetting> {
        let place = self.place_of(subject)?;
        let watched = self.watched_mut(subject.target)?;
        let process = watched.target.process;
        let kept = KeptSetting::of(ActionId::default(), &subject.kind, process, Some(&place))?;
        let (target, option) = (subject.target, &kept.setting.name);
        match value_in_force(watched, &kept) {
            Ok(Some(value)) if kept.restore.as_ref().is_some_and(|known| is_same_value(&value, known)) => {}
            Ok(value) => {
                debug!(target, option, ?value, "it is another value by now");
                note_value(watched, &kept, value.as_deref().unwrap_or(&kept.wanted));
                return None;
            }
            Err(reason) => {
                debug!(target, option, reason, "its value cannot be read");
                return None;
            }
        }
        (!self.history.is_changed(&kept)).then_some(kept)
    }

    /// Deletions in the column family's memtables, by RocksDB's own count.
    fn memtable_deletions(&mut self, subject: &Subject<'_>) -> Option<u64> {
        let watched = self.watched_mut(subject.target)?;
        let read = watched.properties(Path::new(subject.database), subject.column_family)?;
        read.memtable_deletions().map(MemtableDeletions::total)
    }

    /// Writes down that an action begins; `None`: its target has gone, or it cannot be written down.
    fn begin_remedy(&mut self, subject: &Subject<'_>) -> Option<ActionId> {
        let place = self.place_of(subject)?;
        let process = self.watched_mut(subject.target)?.target.process;
        self.history.begin(Begun { kind: subject.kind.clone(), process, place: Some(place) }).ok()
    }

    fn place_of(&mut self, subject: &Subject<'_>) -> Option<Place> {
        Some(Place {
            database: self.watched_mut(subject.target)?.identity_of(Path::new(subject.database))?,
            column_family: subject.column_family.to_owned(),
            range: KeyRange::everything(),
        })
    }

    /// Writes down what came of it.
    fn end_remedy(
        &mut self,
        id: ActionId,
        subject: &Subject<'_>,
        started: Instant,
        result: Result<String, ExecuteError>,
        memtable_deletions_before: Option<u64>,
    ) {
        if let Some(watched) = self.watched_mut(subject.target) {
            watched.note_action(result.is_ok());
        }
        if let Err(ExecuteError::Hook { .. }) = &result {
            self.forget_pointers(subject.target, subject.database);
        }
        let (outcome, message) = match &result {
            Ok(outcome) => {
                let Subject { target, database, kind, .. } = subject;
                info!(target, database, action = kind.name(), "done");
                (Outcome::Done, outcome.clone())
            }
            Err(error) => {
                let help = error.remedy();
                let Subject { target, database, kind, .. } = subject;
                warn!(target, database, action = kind.name(), %error, help, "not done");
                (Outcome::Failed, format!("{error}; {help}"))
            }
        };
        let end = End {
            duration_seconds: started.elapsed().as_secs_f64(),
            memtable_deletions_before,
            memtable_deletions_after: self.memtable_deletions(subject),
            rests: result.is_ok(),
            ..End::new(clock::now(), outcome, message)
        };
        self.history.end(id, end);
    }
}
