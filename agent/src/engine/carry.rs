//! Carrying out what the ledger decides: effects go to the journal and to the targets' sessions, and what
//! these say goes back to the ledger as events.

use super::act::task;
use super::control::POLL_INTERVAL;
use super::slice::{Part, StartedJob};
use super::{Control, Engine};
use crate::observe::Observer;
use crate::session::{
    Answer, FILES_LIMIT, JobReport, Meanwhile, Order, READINGS_LIMIT, ReportedStatus, Session,
};
use sexton_execute::{
    CompactTask, ExecuteError, FlushTask, JobEnd as Ending, JobOutcome, OptionTask, SettingTask, Task,
};
use sexton_inspect::facts::TargetId;
use sexton_inspect::process::is_alive;
use sexton_journal::clock;
use sexton_tuner::plan::SetOptions;
use sexton_tuner::policy::{ExecutorKind, KeyDisplay};
use sexton_tuner::range::KeyRange;
use sexton_tuner::run::{
    Action, ActionId, ActionKind, ActionState, Effect, Event, JobEnd, JobId, JobResult, JobStatus, KeptState,
    Measurement, Outcome, Phase, ProcessId, ReadingsKind, Record, Running, SettingChange, SettingRecord,
};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tracing::debug;

impl Engine {
    /// Tells the ledger what has happened to an action, and carries out what it makes of it.
    pub(super) fn hear(&mut self, id: ActionId, event: Event<'_>) {
        let effects = self.ledger.step(id, event, &self.observer.policy, clock::now());
        self.carry_out(effects.into_iter().map(|effect| (id, effect)));
    }

    /// Carries effects out in their order; what follows from one goes before those after it.
    pub(super) fn carry_out(&mut self, effects: impl IntoIterator<Item = (ActionId, Effect)>) {
        let mut due: VecDeque<(ActionId, Effect)> = effects.into_iter().collect();
        while let Some((id, effect)) = due.pop_front() {
            let Some(event) = self.carry_out_one(id, effect) else { continue };
            let next = self.ledger.step(id, event, &self.observer.policy, clock::now());
            next.into_iter().rev().for_each(|effect| due.push_front((id, effect)));
        }
    }

    /// Carries one out; gives what is known of it at once.
    fn carry_out_one(&mut self, id: ActionId, effect: Effect) -> Option<Event<'static>> {
        match effect {
            Effect::WriteAhead { is_first, setting, forget } => {
                let action = self.ledger.action(id)?;
                let is_written = self.history.write_ahead(action, is_first, setting.as_deref(), forget);
                self.has_changed = true;
                Some(Event::Written(is_written))
            }
            Effect::Start(part) => self.start(id, &part),
            Effect::Cancel => {
                self.cancel(id);
                None
            }
            Effect::ReadFiles => self.read_files(id),
            Effect::Measure => self.measure(id),
            Effect::Record(record) => {
                self.record(id, &record);
                None
            }
            Effect::Refuse(_) => {
                self.forget(id);
                None
            }
            Effect::Objection(refusal) => {
                let target = self.ledger.action(id)?.kind.target().to_owned();
                self.note_objection(&target, &refusal);
                None
            }
            // A hook is asked once there is one; a job that runs on unseen is the ledger's to know.
            Effect::AskAfter(_) | Effect::Orphan => None,
        }
    }

    fn record(&mut self, id: ActionId, record: &Record) {
        let action = self.ledger.action(id);
        self.history.record(action, record, self.ledger.budget(), self.ledger.daily());
        self.has_changed |= !record.news.is_empty();
        if let SettingRecord::Put(kept) = &record.setting
            && kept.state == KeptState::InForce
            && let Some(watched) = self.watched_of(kept)
        {
            super::settings::note_value(watched, kept, &kept.wanted);
        }
        let Some(end) =
            self.ledger.action(id).filter(|_| self.is_under_way(id)).and_then(|it| it.state.end())
        else {
            return;
        };
        if let Outcome::Aborted(_) = end.outcome
            && let Some(action) = self.ledger.action(id)
        {
            self.left_alone.insert(action.kind.target().to_owned());
        }
        self.forget(id);
    }

    fn is_under_way(&self, id: ActionId) -> bool {
        self.acting.iter().any(|acting| acting.id == id)
    }

    /// An action has ended, or has not begun.
    fn forget(&mut self, id: ActionId) {
        self.take_part(id);
        self.acting.retain(|acting| acting.id != id);
        (self.has_changed, self.has_ended) = (true, true);
    }

    /// Begins a part of an action.
    fn start(&mut self, id: ActionId, part: &KeyRange) -> Option<Event<'static>> {
        let action = self.ledger.action(id)?;
        let (kind, failures) = (action.kind.clone(), action.failures());
        if let ActionKind::ChangeSetting(SettingChange::Throttle(set)) = &kind {
            return self.start_throttle(id, set, failures);
        }
        let target = kind.target().to_owned();
        let started = self.task_of(&kind, part).map(|(task, all_keys)| {
            self.start_job(&target, move |session: &Session| locate(session, task, all_keys))
        });
        self.take_started(id, started.unwrap_or_else(|| Err(gone(&target))), false)
    }

    /// What is known of a part here; where it lies in memory is left to the session.
    fn task_of(&self, kind: &ActionKind, part: &KeyRange) -> Option<(Unlocated, bool)> {
        let watched = self.observer.roster.named(kind.target())?;
        if let ActionKind::ChangeSetting(change) = kind
            && let Some(task) = SettingTask::of(change, watched.target.process)
        {
            return Some((Unlocated::Setting(task), false));
        }
        let place = (PathBuf::from(kind.database()?), kind.column_family()?.to_owned());
        let task = match kind {
            ActionKind::Compact(compact) => {
                Unlocated::Compact(CompactTask { range: part.clone(), ..task(watched, compact) })
            }
            ActionKind::Flush(_) => Unlocated::Flush(place),
            ActionKind::ChangeSetting(SettingChange::Option(set)) => Unlocated::Option(place, set.clone()),
            ActionKind::ChangeSetting(_) => return None,
        };
        Some((task, watched.entry.executor == ExecutorKind::Sql))
    }

    /// Notes a job that was begun, or says that it was not.
    pub(super) fn take_started(
        &mut self,
        id: ActionId,
        started: Result<StartedJob, ExecuteError>,
        is_read: bool,
    ) -> Option<Event<'static>> {
        match started {
            Ok(job) => {
                let acting = self.acting.iter_mut().find(|acting| acting.id == id)?;
                acting.part = Some(Part::new(job, is_read));
                None
            }
            Err(error) => Some(failed(&error)),
        }
    }

    /// Begins a job in the target's session.
    pub(super) fn start_job(
        &mut self,
        target: &str,
        task: impl FnOnce(&Session) -> Result<Task, ExecuteError> + Send + 'static,
    ) -> Result<StartedJob, ExecuteError> {
        self.last_number += 1;
        let number = self.last_number;
        let Observer { policy, post, roster, .. } = &mut self.observer;
        let watched = roster.named_mut(target).ok_or_else(|| gone(target))?;
        let order = Order {
            number,
            entry: watched.entry.clone(),
            policy_path: self.options.policy_path.clone(),
            shows_keys: policy.keys == KeyDisplay::Shown,
        };
        let start = move |session: &mut Session| session.start_job(order, task);
        if !watched.ask(post, "beginning a job", READINGS_LIMIT, start) {
            return Err(gone(target));
        }
        Ok(StartedJob { number, target: watched.target.id, generation: watched.worker.generation() })
    }

    /// Has the part that runs end before its time.
    fn cancel(&mut self, id: ActionId) {
        let acting = self.acting.iter().find(|acting| acting.id == id);
        let Some(job) = acting.and_then(|acting| acting.part.as_ref()).map(|part| part.job) else { return };
        if let Some(watched) = self.observer.roster.get_mut(job.target) {
            let cancel = move |session: &mut Session| session.cancel_job(job.number);
            watched.worker.ask("cancelling a job", READINGS_LIMIT, cancel);
        }
    }

    fn read_files(&mut self, id: ActionId) -> Option<Event<'static>> {
        let database = PathBuf::from(self.ledger.action(id)?.kind.database()?);
        let read = move |session: &mut Session| {
            let files = session.read_files(&database);
            Answer::Files { action: id, files }
        };
        let is_asked = self.ask_target_of(id, "reading the live files of a database", read);
        (!is_asked).then_some(Event::Files(None))
    }

    fn measure(&mut self, id: ActionId) -> Option<Event<'static>> {
        let acting = self.acting.iter().find(|acting| acting.id == id);
        let baseline = acting.map(|acting| Arc::clone(&acting.baseline));
        let is_asked = baseline.is_some_and(|baseline| {
            let measure = move |session: &mut Session| {
                let measured = session.measure(&baseline);
                Answer::Measured { action: id, measured }
            };
            self.ask_target_of(id, "measuring what an action has changed", measure)
        });
        (!is_asked).then(|| Event::Measured(Measurement::default()))
    }

    fn ask_target_of(
        &mut self,
        id: ActionId,
        what: &'static str,
        work: impl FnOnce(&mut Session) -> Answer + Send + 'static,
    ) -> bool {
        let target = self.acting.iter().find(|acting| acting.id == id).map(|acting| acting.target);
        let Observer { roster, post, .. } = &mut self.observer;
        let watched = target.and_then(|target| roster.get_mut(target));
        watched.is_some_and(|watched| watched.ask(post, what, FILES_LIMIT, work))
    }

    /// The session has begun a job.
    pub(super) fn note_begun(&mut self, number: u64) {
        let parts = self.acting.iter_mut().filter_map(|acting| acting.part.as_mut());
        parts.filter(|part| part.job.number == number).for_each(|part| part.is_begun = true);
    }

    /// Takes in how a job stands.
    pub(super) fn take_report(&mut self, report: JobReport) {
        let JobReport { number, status, bytes_written } = report;
        let runs = |part: &Part| part.job.number == number;
        let at = self.acting.iter().position(|acting| acting.part.as_ref().is_some_and(runs));
        let Some(acting) = at.and_then(|at| self.acting.get(at)) else {
            return self.take_throttle_read(number, status);
        };
        let id = acting.id;
        match status {
            ReportedStatus::Running(meanwhile) => self.take_progress(id, meanwhile),
            ReportedStatus::Ended(result) => self.take_end(id, result, bytes_written),
        }
    }

    fn take_progress(&mut self, id: ActionId, meanwhile: Meanwhile) {
        let job = meanwhile.heard.hook_job.map(JobId);
        self.hear(id, Event::Job(JobStatus::Running { job, can_stop: meanwhile.can_stop }));
        let Some(action) = self.ledger.action(id) else { return };
        let ActionKind::Compact(compact) = &action.kind else { return };
        if action.wanted(clock::now()).readings != Some(ReadingsKind::During) {
            return;
        }
        let Some(acting) = self.acting.iter().find(|acting| acting.id == id) else { return };
        let (Some(part), Some(watched)) = (&acting.part, self.observer.roster.get(acting.target)) else {
            return;
        };
        let mut latencies = part.latencies.clone();
        if let Some(open) = self.observer.latencies_now(watched) {
            latencies.merge(&open);
        }
        let readings = self.readings_meanwhile(watched, compact, meanwhile, &latencies);
        debug!(target = watched.target.name, action = id.0, "the guards are asked");
        self.hear(id, Event::Readings(&readings));
    }

    fn take_end(
        &mut self,
        id: ActionId,
        result: Result<JobOutcome, ExecuteError>,
        bytes_written: Option<u64>,
    ) {
        let Some((target, part)) = self.take_part(id) else { return };
        let Some(action) = self.ledger.action(id) else { return };
        if result.is_err() && !is_alive(&action.process) {
            return self.hear(id, Event::TargetGone);
        }
        if let ActionKind::ChangeSetting(SettingChange::Throttle(set)) = &action.kind {
            let set = set.clone();
            let event = self.throttle_event(id, &set, part.is_read, result);
            return event.into_iter().for_each(|event| self.hear(id, event));
        }
        if let Err(ExecuteError::Hook { .. }) = &result {
            self.forget_pointers(id, target);
        }
        self.hear(id, ended(result, bytes_written));
    }

    /// The part of an action that ran is over, and with it the slice's window.
    fn take_part(&mut self, id: ActionId) -> Option<(TargetId, Part)> {
        let acting = self.acting.iter_mut().find(|acting| acting.id == id)?;
        let (target, is_slice, part) = (acting.target, acting.is_slice(), acting.part.take()?);
        if is_slice {
            self.observer.close_slice_window(target);
        }
        Some((target, part))
    }

    /// A command that used pointers into a database was refused: they are not believed any more.
    fn forget_pointers(&mut self, id: ActionId, target: TargetId) {
        let action = self.ledger.action(id);
        let Some(database) = action.and_then(|action| action.kind.database()).map(PathBuf::from) else {
            return;
        };
        let forget = move |session: &mut Session| {
            if let Some(pointers) = session.identities.any_pointers(&database) {
                session.identities.forget(pointers.database);
            }
        };
        if let Some(watched) = self.observer.roster.get_mut(target) {
            watched.worker.ask("forgetting pointers", READINGS_LIMIT, forget);
        }
    }

    /// Takes what is under way a step further; where something has ended, its device is free for the next.
    pub(super) fn follow_actions(&mut self, control: &mut Control) {
        if control.take_cancelled() {
            self.cancel_all("it was asked for", |state| {
                matches!(state, ActionState::Running(_) | ActionState::Paused(_))
            });
        }
        self.notice_lost();
        self.tick();
        self.look_at_paused();
        self.follow_inquiries();
        self.keep_slice_windows();
        if std::mem::take(&mut self.has_ended) {
            self.act(control);
        }
    }

    /// Tells the ledger now and then that time has passed.
    fn tick(&mut self) {
        if self.ticked.elapsed() < POLL_INTERVAL {
            return;
        }
        self.ticked = Instant::now();
        let Observer { roster, policy, .. } = &self.observer;
        let is_there = |process: &ProcessId| roster.watched.iter().any(|it| it.target.process == *process);
        let due = self.ledger.tick(policy, clock::now(), is_there);
        self.carry_out(due);
    }

    /// Has all actions end whose state is so.
    pub(super) fn cancel_all(&mut self, why: &str, is_so: impl Fn(&ActionState) -> bool) {
        let open = self.ledger.actions().filter(|action| is_so(&action.state));
        let ids: Vec<ActionId> = open.map(|action| action.id).collect();
        ids.into_iter().for_each(|id| self.hear(id, Event::Cancel(why)));
    }

    /// Whether something is under way that has to be waited for before the agent ends.
    pub(super) fn is_acting(&self) -> bool {
        let waits =
            |action: &Action| matches!(action.state, ActionState::Running(_) | ActionState::Paused(_));
        self.ledger.actions().any(waits)
    }

    /// Whether what an action has changed is being measured.
    fn is_measured(&self, id: ActionId) -> bool {
        let state = self.ledger.action(id).map(|action| &action.state);
        matches!(state, Some(ActionState::Running(Running { phase: Phase::Measuring(_), .. })))
    }

    /// Jobs of sessions that were given up are not heard of any more.
    fn notice_lost(&mut self) {
        let mut lost = Vec::new();
        for acting in &self.acting {
            let Some(part) = &acting.part else {
                let responds =
                    self.observer.roster.get(acting.target).is_some_and(|it| it.worker.trouble().is_none());
                if !responds && self.is_measured(acting.id) {
                    lost.push((acting.id, Event::Measured(Measurement::default())));
                }
                continue;
            };
            let watched = self.observer.roster.get(part.job.target);
            let is_current = watched.is_some_and(|it| it.worker.is_current(part.job.generation));
            let trouble = watched.and_then(|watched| watched.worker.trouble());
            match trouble {
                // The session has not even come to begin it.
                Some(trouble) if is_current && !part.is_begun => {
                    lost.push((acting.id, ended_badly(trouble.reason.clone(), false)));
                }
                _ if is_current && part.is_late() => {
                    lost.push((acting.id, ended_badly("its session has not begun it".to_owned(), true)));
                }
                _ if is_current => {}
                _ if !is_alive(&part.job.target.process) => lost.push((acting.id, Event::TargetGone)),
                trouble => {
                    let reason =
                        trouble.map_or("its target is not watched any more", |it| it.reason.as_str());
                    lost.push((acting.id, Event::Job(JobStatus::Lost(reason.to_owned()))));
                }
            }
        }
        for (id, event) in lost {
            self.take_part(id);
            self.hear(id, event);
        }
    }
}

/// A task without its place in the target's memory.
enum Unlocated {
    /// It has none.
    Setting(SettingTask),
    Compact(CompactTask),
    Flush((PathBuf, String)),
    Option((PathBuf, String), SetOptions),
}

fn locate(session: &Session, task: Unlocated, all_keys: bool) -> Result<Task, ExecuteError> {
    let process = session.process();
    let pointers = |(database, column_family): &(PathBuf, String)| {
        session.pointers_of(Path::new(database), column_family)
    };
    match task {
        Unlocated::Setting(task) => Ok(Task::Set(task)),
        Unlocated::Compact(task) => session.located(task, all_keys),
        Unlocated::Flush(place) => Ok(Task::Flush(FlushTask { process, column_family: pointers(&place)? })),
        Unlocated::Option(place, SetOptions { name, value, restore, .. }) => {
            let (column_family, restore) = (pointers(&place)?, Some(restore));
            Ok(Task::Set(SettingTask::Option(OptionTask { process, column_family, name, value, restore })))
        }
    }
}

fn gone(target: &str) -> ExecuteError {
    ExecuteError::Request { reason: format!("{target} has gone, or does not respond") }
}

/// That a job has not even begun.
fn failed(error: &ExecuteError) -> Event<'static> {
    ended_badly(format!("{error}; {}", error.remedy()), false)
}

pub fn ended_badly(reason: String, may_run_on: bool) -> Event<'static> {
    Event::Job(JobStatus::Ended(JobEnd {
        bytes_written: Some(0),
        ..JobEnd::new(JobResult::Failed { reason, may_run_on })
    }))
}

/// How a job ended, for the ledger.
fn ended(result: Result<JobOutcome, ExecuteError>, bytes_written: Option<u64>) -> Event<'static> {
    let end = match result {
        Err(error) => JobEnd {
            bytes_written,
            ..JobEnd::new(JobResult::Failed {
                reason: format!("{error}; {}", error.remedy()),
                may_run_on: may_run_on(&error),
            })
        },
        Ok(outcome) => JobEnd {
            duration: outcome.duration,
            bytes_replaced: outcome.bytes_replaced,
            bytes_flushed: outcome.bytes_flushed,
            bytes_written,
            deletions_before: outcome.deletions_before,
            deletions_after: outcome.deletions_after,
            message: outcome.command.map(|command| command.in_words()),
            ..JobEnd::new(match outcome.end {
                Ending::Done => JobResult::Done,
                Ending::Cancelled { reason } => JobResult::Cancelled(reason),
            })
        },
    };
    Event::Job(JobStatus::Ended(end))
}

/// Whether what failed so may run on: the hook could not be heard any more, or it would not be stopped.
fn may_run_on(error: &ExecuteError) -> bool {
    matches!(
        error,
        ExecuteError::Connection { .. }
            | ExecuteError::UnexpectedAnswer { .. }
            | ExecuteError::StillRunning { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_compaction_that_would_not_be_stopped_counts_as_one_that_may_run_on() {
        let error = ExecuteError::StillRunning {
            pid: 1,
            job: 7,
            reason: "it was asked for".into(),
            waited: Duration::from_secs(60),
        };
        assert!(may_run_on(&error));
        assert!(error.to_string().contains("was to stop because it was asked for"), "{error}");
        assert!(!may_run_on(&ExecuteError::ProcessGone { pid: 1 }));
    }
}
