//! Remedies other than compaction: flushing a column family, setting one of its options. Both need the hook.

use super::control::POLL_INTERVAL;
use super::history::{Begun, Place};
use super::{Control, Engine};
use crate::actuator::{ActuatorError, HandlePointers, HookClient};
use crate::snapshot::ActionView;
use sexton_hook_protocol::{ColumnFamilyPointers, CompactionState, OptionsScope};
use sexton_tuner::plan::{Flush, SetOptions};
use sexton_tuner::range::KeyRange;
use sexton_tuner::rank::RangeAssessment;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long a flush is waited for: a memtable is written in a second or two, and nothing can stop it.
const FLUSH_TIME_LIMIT: Duration = Duration::from_secs(60);

/// What is acted on.
struct Subject<'a> {
    /// Kind of action, as the API names it.
    action: &'static str,
    target: &'a str,
    database: &'a str,
    column_family: &'a str,
    /// What is set, `name=value`; empty for a flush.
    setting: String,
    cost_bytes: u64,
    reason: &'a str,
}

impl Engine {
    /// Flushes a column family.
    pub(super) fn flush(&mut self, flush: &Flush, control: &mut Control) {
        let subject = Subject {
            action: "flush",
            target: &flush.target,
            database: &flush.database,
            column_family: &flush.column_family,
            setting: String::new(),
            cost_bytes: flush.cost_bytes,
            reason: &flush.reason,
        };
        let Some(before) = self.worst(&subject, &flush.ranges) else { return };
        let Some(id) = self.begin_remedy(&subject, &before) else { return };
        control.begin_action();
        control.publish(self.snapshot());
        let started = Instant::now();
        let result = self.run_flush(&subject, control);
        if result.is_ok() {
            self.bucket.spend(flush.cost_bytes);
            self.history.keep_budget(&self.bucket);
        }
        let outcome = result.map(|()| "flushed".to_owned());
        self.end_remedy(id, &subject, started, outcome, before, flush.relief_seconds_per_second);
        control.publish(self.snapshot());
    }

    /// Sets an option of a column family. The value that was in force stands in the history.
    pub(super) fn set_options(&mut self, set: &SetOptions, control: &mut Control) {
        let subject = Subject {
            action: "set_options",
            target: &set.target,
            database: &set.database,
            column_family: &set.column_family,
            setting: format!("{}={}", set.name, set.value),
            cost_bytes: 0,
            reason: &set.reason,
        };
        let Some(before) = self.worst(&subject, &set.ranges) else { return };
        let Some(id) = self.begin_remedy(&subject, &before) else { return };
        control.begin_action();
        let started = Instant::now();
        let result = self.connection(&subject).and_then(|(hook, pointers)| {
            let options = [(set.name.clone(), set.value.clone())];
            borrowed(&hook)?.set_options(&pointers, OptionsScope::ColumnFamily, &options)
        });
        if result.is_ok() {
            self.note_option(set);
        }
        let outcome = result.map(|()| format!("{} was {} before", set.name, set.restore));
        self.end_remedy(id, &subject, started, outcome, before, set.relief_seconds_per_second);
        control.publish(self.snapshot());
    }

    /// The option's new value, as the next OPTIONS file will have it.
    fn note_option(&mut self, set: &SetOptions) {
        let watched = self.roster.watched.iter_mut().find(|watched| watched.target.name == set.target);
        let families = watched.and_then(|watched| watched.options.get_mut(Path::new(&set.database)));
        if let Some(options) = families.and_then(|families| families.get_mut(&set.column_family)) {
            options.run_time_options.insert(set.name.clone(), set.value.clone());
        }
    }

    fn run_flush(&mut self, subject: &Subject<'_>, control: &mut Control) -> Result<(), ActuatorError> {
        let (hook, pointers) = self.connection(subject)?;
        let mut hook = borrowed(&hook)?;
        let id = hook.flush(&pointers)?;
        let deadline = Instant::now() + FLUSH_TIME_LIMIT;
        loop {
            match hook.compaction_status(id)? {
                CompactionState::Finished(finished) if finished.ok => return Ok(()),
                CompactionState::Finished(finished) => {
                    let reason = finished.error.unwrap_or_else(|| "the flush failed".to_owned());
                    return Err(ActuatorError::Request { reason });
                }
                CompactionState::Running { .. } if Instant::now() >= deadline => {
                    let reason = format!("the flush takes longer than {FLUSH_TIME_LIMIT:?} and goes on");
                    return Err(ActuatorError::Request { reason });
                }
                CompactionState::Running { .. } => {}
            }
            control.take_commands();
            self.follower.wait(POLL_INTERVAL);
            self.follow(control);
        }
    }

    /// The connection to the hook, and where the column family is.
    fn connection(
        &self,
        subject: &Subject<'_>,
    ) -> Result<(Rc<RefCell<HookClient>>, ColumnFamilyPointers), ActuatorError> {
        let watched = self.roster.watched.iter().find(|watched| watched.target.name == subject.target);
        let watched = watched
            .ok_or_else(|| ActuatorError::Request { reason: format!("{} has gone", subject.target) })?;
        let pid = watched.target.process.pid;
        let hook = watched.hook.clone().ok_or(ActuatorError::NoHook { pid })?;
        let handles = watched.identities.handles(Path::new(subject.database), subject.column_family);
        let handles = handles.ok_or_else(|| ActuatorError::Request {
            reason: format!("no probe has seen the column family {} being opened yet", subject.column_family),
        })?;
        let HandlePointers { database, column_family_handle, column_family_id } = handles;
        let name = subject.column_family.to_owned();
        Ok((
            hook,
            ColumnFamilyPointers { database, handle: column_family_handle, name, id: column_family_id },
        ))
    }

    /// The assessment of the worst of the ranges that the action is for.
    fn worst(&self, subject: &Subject<'_>, ranges: &[KeyRange]) -> Option<RangeAssessment> {
        let worst = ranges.first()?;
        let found = self.plan.assessments.iter().find(|assessed| {
            assessed.target == subject.target
                && assessed.database == subject.database
                && assessed.column_family.as_deref() == Some(subject.column_family)
                && assessed.range == *worst
        });
        found.cloned()
    }

    /// Writes down that an action begins; `None`: its target has gone, or it cannot be written down.
    fn begin_remedy(&mut self, subject: &Subject<'_>, before: &RangeAssessment) -> Option<u64> {
        let watched = self.roster.watched.iter_mut().find(|watched| watched.target.name == subject.target)?;
        let place = Place {
            database: watched.identity_of(Path::new(subject.database))?,
            column_family: subject.column_family.to_owned(),
            range: KeyRange::everything(),
        };
        let process = watched.target.process;
        let view = ActionView {
            action: subject.action.into(),
            target: subject.target.to_owned(),
            database: subject.database.to_owned(),
            subject: subject.column_family.to_owned(),
            begin: subject.setting.clone(),
            cost_bytes: subject.cost_bytes,
            reason: subject.reason.to_owned(),
            pain_before: before.pain_seconds_per_second,
            ..ActionView::default()
        };
        self.history.begin(Begun { view, process, place: Some(place) }).ok()
    }

    /// Writes down what came of it; what helped is measured in the worst range.
    fn end_remedy(
        &mut self,
        id: u64,
        subject: &Subject<'_>,
        started: Instant,
        result: Result<String, ActuatorError>,
        before: RangeAssessment,
        relief: f64,
    ) {
        let watched = self.roster.watched.iter_mut().find(|watched| watched.target.name == subject.target);
        if let Some(watched) = watched {
            watched.note_action(result.is_ok());
        }
        let (state, outcome) = match &result {
            Ok(outcome) => {
                info!(target = subject.target, action = subject.action, "done");
                ("done", outcome.clone())
            }
            Err(error) => {
                let help = error.remedy();
                warn!(target = subject.target, action = subject.action, %error, help, "not done");
                ("failed", format!("{error}; {help}"))
            }
        };
        self.history.end(id, result.is_ok(), |action| {
            action.duration_seconds = started.elapsed().as_secs_f64();
            (action.state, action.outcome) = (state.into(), outcome);
        });
        if result.is_ok() {
            let promised = relief.min(before.relief_seconds_per_second);
            self.history.owe(id, RangeAssessment { relief_seconds_per_second: promised, ..before });
        }
    }
}

fn borrowed(hook: &Rc<RefCell<HookClient>>) -> Result<std::cell::RefMut<'_, HookClient>, ActuatorError> {
    let busy = |_| ActuatorError::Request { reason: "the hook is busy with another action".to_owned() };
    hook.try_borrow_mut().map_err(busy)
}
