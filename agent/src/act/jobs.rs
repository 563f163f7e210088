//! Jobs of actions: begun in the targets' sessions, followed, and noticed when nothing is heard of them any
//! more.

use super::Actor;
use super::acting::{Part, StartedJob};
use super::job_end::{ended, ended_badly, failed, gone};
use super::tasks::{Unlocated, locate, task};
use crate::observe::Observer;
use crate::session::{JobReport, Meanwhile, Order, READINGS_LIMIT, ReportedStatus, Session};
use sexton_execute::{CompactTask, ExecuteError, JobOutcome, SettingTask, Task};
use sexton_inspect::facts::TargetId;
use sexton_inspect::process::is_alive;
use sexton_journal::clock;
use sexton_tuner::policy::{ExecutorKind, KeyDisplay};
use sexton_tuner::range::KeyRange;
use sexton_tuner::run::{
    ActionId, ActionKind, ActionState, Event, JobId, JobStatus, Measurement, Phase, ReadingsKind, Running,
    SettingChange,
};
use std::path::PathBuf;
use tracing::debug;

impl Actor {
    /// Begins a part of an action.
    pub fn start(
        &mut self,
        observer: &mut Observer,
        id: ActionId,
        part: &KeyRange,
    ) -> Option<Event<'static>> {
        let action = self.ledger.action(id)?;
        let (kind, failures) = (action.kind.clone(), action.failures());
        if let ActionKind::ChangeSetting(SettingChange::Throttle(set)) = &kind {
            return self.start_throttle(observer, id, set, failures);
        }
        let target = kind.target().to_owned();
        let started = self.task_of(observer, &kind, part).map(|(task, all_keys)| {
            self.start_job(observer, &target, move |session: &Session| locate(session, task, all_keys))
        });
        self.take_started(id, started.unwrap_or_else(|| Err(gone(&target))), false)
    }

    /// What is known of a part here; where it lies in memory is left to the session.
    fn task_of(&self, observer: &Observer, kind: &ActionKind, part: &KeyRange) -> Option<(Unlocated, bool)> {
        let watched = observer.roster.named(kind.target())?;
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
    pub fn take_started(
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
    pub fn start_job(
        &mut self,
        observer: &mut Observer,
        target: &str,
        task: impl FnOnce(&Session) -> Result<Task, ExecuteError> + Send + 'static,
    ) -> Result<StartedJob, ExecuteError> {
        self.last_number += 1;
        let number = self.last_number;
        let Observer { policy, post, roster, .. } = observer;
        let watched = roster.named_mut(target).ok_or_else(|| gone(target))?;
        let order = Order {
            number,
            entry: watched.entry.clone(),
            policy_path: self.policy_path.clone(),
            shows_keys: policy.keys == KeyDisplay::Shown,
        };
        let start = move |session: &mut Session| session.start_job(order, task);
        if !watched.ask(post, "beginning a job", READINGS_LIMIT, start) {
            return Err(gone(target));
        }
        Ok(StartedJob { number, target: watched.target.id, generation: watched.worker.generation() })
    }

    /// Has the part that runs end before its time.
    pub fn cancel(&mut self, observer: &mut Observer, id: ActionId) {
        let acting = self.acting.iter().find(|acting| acting.id == id);
        let Some(job) = acting.and_then(|acting| acting.part.as_ref()).map(|part| part.job) else { return };
        if let Some(watched) = observer.roster.get_mut(job.target) {
            let cancel = move |session: &mut Session| session.cancel_job(job.number);
            watched.worker.ask("cancelling a job", READINGS_LIMIT, cancel);
        }
    }

    /// The session has begun a job.
    pub fn note_begun(&mut self, number: u64) {
        let parts = self.acting.iter_mut().filter_map(|acting| acting.part.as_mut());
        parts.filter(|part| part.job.number == number).for_each(|part| part.is_begun = true);
    }

    /// Takes in how a job stands.
    pub fn take_report(&mut self, observer: &mut Observer, report: JobReport) {
        let JobReport { number, status, bytes_written } = report;
        let runs = |part: &Part| part.job.number == number;
        let at = self.acting.iter().position(|acting| acting.part.as_ref().is_some_and(runs));
        let Some(acting) = at.and_then(|at| self.acting.get(at)) else {
            return self.take_throttle_read(observer, number, status);
        };
        let id = acting.id;
        match status {
            ReportedStatus::Running(meanwhile) => self.take_progress(observer, id, meanwhile),
            ReportedStatus::Ended(result) => self.take_end(observer, id, result, bytes_written),
        }
    }

    fn take_progress(&mut self, observer: &mut Observer, id: ActionId, meanwhile: Meanwhile) {
        let job = meanwhile.heard.hook_job.map(JobId);
        self.hear(observer, id, Event::Job(JobStatus::Running { job, can_stop: meanwhile.can_stop }));
        let Some(action) = self.ledger.action(id) else { return };
        let ActionKind::Compact(compact) = &action.kind else { return };
        if action.wanted(clock::now()).readings != Some(ReadingsKind::During) {
            return;
        }
        let Some(acting) = self.acting.iter().find(|acting| acting.id == id) else { return };
        let (Some(part), Some(watched)) = (&acting.part, observer.roster.get(acting.target)) else {
            return;
        };
        let mut latencies = part.latencies.clone();
        if let Some(open) = observer.latencies_now(watched) {
            latencies.merge(&open);
        }
        let readings = self.readings_meanwhile(watched, compact, meanwhile, &latencies);
        debug!(target = watched.target.name, action = id.0, "the guards are asked");
        self.hear(observer, id, Event::Readings(&readings));
    }

    fn take_end(
        &mut self,
        observer: &mut Observer,
        id: ActionId,
        result: Result<JobOutcome, ExecuteError>,
        bytes_written: Option<u64>,
    ) {
        let Some((target, part)) = self.take_part(observer, id) else { return };
        let Some(action) = self.ledger.action(id) else { return };
        if result.is_err() && !is_alive(&action.process) {
            return self.hear(observer, id, Event::TargetGone);
        }
        if let ActionKind::ChangeSetting(SettingChange::Throttle(set)) = &action.kind {
            let set = set.clone();
            let event = self.throttle_event(observer, id, &set, part.is_read, result);
            return event.into_iter().for_each(|event| self.hear(observer, id, event));
        }
        if let Err(ExecuteError::Hook { .. }) = &result {
            self.forget_pointers(observer, id, target);
        }
        self.hear(observer, id, ended(result, bytes_written));
    }

    /// The part of an action that ran is over, and with it the slice's window.
    pub fn take_part(&mut self, observer: &mut Observer, id: ActionId) -> Option<(TargetId, Part)> {
        let acting = self.acting.iter_mut().find(|acting| acting.id == id)?;
        let (target, is_slice, part) = (acting.target, acting.is_slice(), acting.part.take()?);
        if is_slice {
            observer.close_slice_window(target);
        }
        Some((target, part))
    }

    /// A command that used pointers into a database was refused: they are not believed any more.
    fn forget_pointers(&mut self, observer: &mut Observer, id: ActionId, target: TargetId) {
        let action = self.ledger.action(id);
        let Some(database) = action.and_then(|action| action.kind.database()).map(PathBuf::from) else {
            return;
        };
        let forget = move |session: &mut Session| {
            if let Some(pointers) = session.identities.any_pointers(&database) {
                session.identities.forget(pointers.database);
            }
        };
        if let Some(watched) = observer.roster.get_mut(target) {
            watched.worker.ask("forgetting pointers", READINGS_LIMIT, forget);
        }
    }

    /// Whether what an action has changed is being measured.
    fn is_measured(&self, id: ActionId) -> bool {
        let state = self.ledger.action(id).map(|action| &action.state);
        matches!(state, Some(ActionState::Running(Running { phase: Phase::Measuring(_), .. })))
    }

    /// Jobs of sessions that were given up are not heard of any more.
    pub fn notice_lost(&mut self, observer: &mut Observer) {
        let mut lost = Vec::new();
        for acting in &self.acting {
            let Some(part) = &acting.part else {
                let responds =
                    observer.roster.get(acting.target).is_some_and(|it| it.worker.trouble().is_none());
                if !responds && self.is_measured(acting.id) {
                    lost.push((acting.id, Event::Measured(Measurement::default())));
                }
                continue;
            };
            let watched = observer.roster.get(part.job.target);
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
            self.take_part(observer, id);
            self.hear(observer, id, event);
        }
    }
}
