//! An action that runs: its job, the guards, and what stops it.

use super::action::Action;
use super::context::{Context, Next, unchanged};
use super::ending::{Changed, TARGET_GONE, complete, end_of};
use super::event::{Effect, Event, Record};
use super::identity::JobId;
use super::job::{JobEnd, JobResult, JobStatus};
use super::kind::ActionKind;
use super::moment::Moment;
use super::news::News;
use super::outcome::{End, Outcome};
use super::part::{begin, write_ahead};
use super::rejection::Rejection;
use super::retrying;
use super::setting::SettingChange;
use super::state::{ActionState, Paused, Phase, Running, Stop, StopReason};
use crate::guard::{self, Course, GuardRefusal, Readings};
use crate::plan::Rule;
use std::time::Duration;

/// How often a job that is to stop is cancelled anew: the first time the executor may have had no thread for
/// it.
pub const CANCEL_INTERVAL: Duration = Duration::from_secs(5);

/// How long a job that is to stop is waited for. RocksDB gives up a compaction within a key or so; what has
/// not ended after this waits for something that may take hours.
pub const CANCEL_TIME_MAX: Duration = Duration::from_secs(60);

/// How long the measurement of what an action has changed is waited for: some thousand files are listed in a
/// second or two, and a target that does not answer by then has its action end without.
pub const MEASURE_TIME_MAX: Duration = Duration::from_secs(30);

pub(super) fn step(action: &mut Action, running: Running, event: Event<'_>, context: &Context<'_>) -> Next {
    match running.phase {
        Phase::WritingAhead { nothing_left } => written_ahead(action, running, nothing_left, &event, context),
        Phase::Working => working(action, running, event, context),
        Phase::Measuring(_) => measuring(action, running, &event, context),
    }
}

fn written_ahead(
    action: &mut Action,
    running: Running,
    nothing_left: bool,
    event: &Event<'_>,
    context: &Context<'_>,
) -> Next {
    match event {
        Event::Written(false) if action.pauses > 0 || action.parts_done > 0 => {
            let reason = "it cannot be written down that it goes on".to_owned();
            let end = end_of(action, Outcome::Cancelled, reason, None, context.now);
            measure(action, running, end, context)
        }
        Event::Written(false) => {
            let reason = "it cannot be written down that it begins";
            let rejection = Rejection::by_rule(Rule::StateUnwritable, reason);
            (ActionState::Planned, vec![Effect::Refuse(rejection)])
        }
        Event::Written(true) if nothing_left => {
            let reason = "an earlier compaction has dropped its deletions already";
            complete(action, End::new(context.now, Outcome::Skipped, reason), Changed::NotMeasured, context)
        }
        Event::Written(true) => begin(running.part, running.left, running.time_limit, context.now),
        _ => unchanged(ActionState::Running(running)),
    }
}

fn working(action: &mut Action, mut running: Running, event: Event<'_>, context: &Context<'_>) -> Next {
    match event {
        Event::Job(JobStatus::Running { job, can_stop }) => {
            running.can_stop = can_stop;
            note_job(running, job)
        }
        Event::Job(JobStatus::Ended(end)) => job_ended(action, running, &end, context),
        Event::Job(JobStatus::Lost(reason)) => lost(action, running, reason, context),
        Event::Job(JobStatus::Unknown) => {
            lost(action, running, "its executor does not know it any more".to_owned(), context)
        }
        Event::Readings(readings) => ask_guards(action, running, readings, context),
        Event::Consent(consent) => keep_to_consent(running, consent.lost(&context.policy.guards), context),
        Event::Cancel(reason) => stop(running, StopReason::Cancel(reason.to_owned()), context.now),
        Event::TargetGone => {
            let end = end_of(action, Outcome::Failed, TARGET_GONE.to_owned(), None, context.now);
            complete(action, end, Changed::TargetGone, context)
        }
        Event::Tick => past_deadlines(action, running, context),
        _ => unchanged(ActionState::Running(running)),
    }
}

/// The number of the job is written down as soon as it is known: the next run of the agent asks after it by
/// that.
fn note_job(mut running: Running, job: Option<JobId>) -> Next {
    if job.is_none() || job == running.job {
        return unchanged(ActionState::Running(running));
    }
    running.job = job;
    (ActionState::Running(running), vec![Effect::Record(Record::default())])
}

/// Guards are not asked of a job that cannot be stopped: what is begun once more would be done twice.
fn ask_guards(action: &Action, running: Running, readings: &Readings, context: &Context<'_>) -> Next {
    let is_guarded = matches!(action.kind, ActionKind::Compact(_)) && running.can_stop;
    if !is_guarded || is_stopped_for_good(&running) {
        return unchanged(ActionState::Running(running));
    }
    let course = guard::during(&context.policy.guards, readings, action.pauses);
    let (reason, refusal) = match course {
        Course::Go => return unchanged(ActionState::Running(running)),
        Course::Pause(refusal) => (StopReason::Pause(refusal.clone()), refusal),
        Course::Halve(refusal) => (StopReason::Halve(refusal.clone()), refusal),
        Course::Stop(refusal) => (StopReason::Abort(refusal.clone()), refusal),
    };
    // It is being stopped already; only a graver reason changes what comes after.
    if running.stop.is_some() && !matches!(reason, StopReason::Abort(_)) {
        return unchanged(ActionState::Running(running));
    }
    let (state, mut effects) = stop(running, reason, context.now);
    effects.insert(0, Effect::Objection(refusal));
    (state, effects)
}

/// An action whose lock is lost is stopped for good: another node may act by now. What cannot be stopped is
/// told to all the same.
fn keep_to_consent(running: Running, lost: Option<GuardRefusal>, context: &Context<'_>) -> Next {
    let (Some(refusal), false) = (lost, is_stopped_for_good(&running)) else {
        return unchanged(ActionState::Running(running));
    };
    let (state, mut effects) = stop(running, StopReason::Abort(refusal.clone()), context.now);
    effects.insert(0, Effect::Objection(refusal));
    (state, effects)
}

fn is_stopped_for_good(running: &Running) -> bool {
    let stop = running.stop.as_ref();
    stop.is_some_and(|stop| matches!(stop.reason, StopReason::Abort(_) | StopReason::Cancel(_)))
}

fn stop(mut running: Running, reason: StopReason, now: Moment) -> Next {
    let since = running.stop.as_ref().map_or(now, |stop| stop.since);
    running.stop = Some(Stop { reason, since, told: now });
    (ActionState::Running(running), vec![Effect::Cancel])
}

fn past_deadlines(action: &mut Action, mut running: Running, context: &Context<'_>) -> Next {
    let now = context.now;
    let limit = running.time_limit;
    match &mut running.stop {
        Some(stop) if now.since(&stop.since) >= CANCEL_TIME_MAX => {
            let reason = format!(
                "{} was to stop because {}, and has not ended within {} s",
                action.kind.name(),
                in_words(&stop.reason),
                CANCEL_TIME_MAX.as_secs()
            );
            lost(action, running, reason, context)
        }
        Some(stop) if now.since(&stop.told) >= CANCEL_INTERVAL => {
            stop.told = now;
            (ActionState::Running(running), vec![Effect::Cancel])
        }
        None if now.since(&running.since) >= limit => {
            let reason = format!("its time limit of {} s was over", limit.as_secs());
            stop(running, StopReason::Cancel(reason), now)
        }
        _ => unchanged(ActionState::Running(running)),
    }
}

/// Its job may run on where nobody sees it.
fn lost(action: &mut Action, running: Running, reason: String, context: &Context<'_>) -> Next {
    let result = JobResult::Failed { reason, may_run_on: true };
    job_ended(action, running, &JobEnd::new(result), context)
}

fn job_ended(action: &mut Action, running: Running, end: &JobEnd, context: &Context<'_>) -> Next {
    let transient = match action.kind {
        // What a flush has written is in a file.
        ActionKind::Flush(_) if end.result == JobResult::Done => 0,
        ActionKind::Compact(_) | ActionKind::Flush(_) => end.bytes_transient(action.kind.cost_bytes()),
        ActionKind::ChangeSetting(_) => 0,
    };
    action.bytes_transient = action.bytes_transient.saturating_add(transient);
    action.bytes_replaced = action.bytes_replaced.saturating_add(end.bytes_replaced);
    match &end.result {
        JobResult::Done => part_done(action, running, end, context),
        JobResult::Cancelled(reason) => part_stopped(action, running, end, reason, context),
        JobResult::Failed { reason, may_run_on } => {
            // An option is planned anew, with what is known of its database then.
            let is_option = |change: &SettingChange| matches!(change, SettingChange::Option(_));
            let retries = matches!(&action.kind, ActionKind::ChangeSetting(change) if !is_option(change));
            if retries {
                return retrying::failed(action, reason.clone(), running.time_limit, context);
            }
            let failed = end_of(action, Outcome::Failed, reason.clone(), Some(end), context.now);
            measure(action, running, End { may_run_on: *may_run_on, ..failed }, context)
        }
    }
}

/// A part has run through, if with somebody's wish to stop it on its heels.
fn part_done(action: &mut Action, mut running: Running, end: &JobEnd, context: &Context<'_>) -> Next {
    action.parts_done += 1;
    let Some(next) = running.left.pop_front() else {
        let message = end.message.clone().unwrap_or_default();
        let done = end_of(action, Outcome::Done, message, Some(end), context.now);
        return measure(action, running, done, context);
    };
    let stopped = running.stop.take().map(|stop| stop.reason);
    let running = Running { part: next, ..running };
    match stopped {
        None => write_ahead(running.part, running.left, running.time_limit, context.now),
        Some(reason) => stopped_by(action, running, end, reason, context),
    }
}

fn part_stopped(
    action: &mut Action,
    mut running: Running,
    end: &JobEnd,
    reason: &str,
    context: &Context<'_>,
) -> Next {
    let stopped = running.stop.take().map(|stop| stop.reason);
    stopped_by(
        action,
        running,
        end,
        stopped.unwrap_or_else(|| StopReason::Cancel(reason.to_owned())),
        context,
    )
}

/// What comes after a part that somebody has stopped.
fn stopped_by(
    action: &mut Action,
    running: Running,
    end: &JobEnd,
    reason: StopReason,
    context: &Context<'_>,
) -> Next {
    match reason {
        StopReason::Pause(objection) => paused(action, running, objection, false, context.now),
        StopReason::Halve(objection) => paused(action, running, objection, true, context.now),
        StopReason::Abort(objection) => {
            let outcome = Outcome::Aborted(objection.guard);
            let message = format!("{}: {}", objection.guard.name(), objection.reason);
            let aborted = end_of(action, outcome, message, Some(end), context.now);
            measure(action, running, aborted, context)
        }
        StopReason::Cancel(reason) => {
            let cancelled = end_of(action, Outcome::Cancelled, reason, Some(end), context.now);
            measure(action, running, cancelled, context)
        }
    }
}

fn paused(
    action: &mut Action,
    running: Running,
    objection: GuardRefusal,
    in_halves: bool,
    now: Moment,
) -> Next {
    action.pauses += 1;
    let news = vec![News::Paused(objection.clone())];
    let Running { part, left, time_limit, .. } = running;
    let paused = Paused { part, left, in_halves, objection, since: now, is_reading_files: false, time_limit };
    (ActionState::Paused(paused), vec![Effect::Record(Record { news, ..Record::default() })])
}

/// Has what has changed measured, where that is in a database.
fn measure(action: &mut Action, running: Running, end: End, context: &Context<'_>) -> Next {
    if action.place.is_none() {
        return complete(action, end, Changed::NotMeasured, context);
    }
    let phase = Phase::Measuring(Box::new(end));
    let running = Running { phase, since: context.now, job: None, stop: None, ..running };
    (ActionState::Running(running), vec![Effect::Measure])
}

fn measuring(action: &mut Action, running: Running, event: &Event<'_>, context: &Context<'_>) -> Next {
    let measured = match event {
        Event::Measured(measured) => Changed::Measured(*measured),
        Event::TargetGone => Changed::NotMeasured,
        Event::Tick if context.now.since(&running.since) >= MEASURE_TIME_MAX => Changed::NotMeasured,
        _ => return unchanged(ActionState::Running(running)),
    };
    match running.phase {
        Phase::Measuring(end) => complete(action, *end, measured, context),
        _ => unchanged(ActionState::Running(running)),
    }
}

/// When an action that runs has to hear that time has passed.
pub(super) fn wake(running: &Running) -> Moment {
    match (&running.phase, &running.stop) {
        (Phase::Working, Some(stop)) => {
            let (again, end) = (stop.told.plus(CANCEL_INTERVAL), stop.since.plus(CANCEL_TIME_MAX));
            if again.until(&end).is_zero() { end } else { again }
        }
        (Phase::Working, None) => running.since.plus(running.time_limit),
        _ => running.since.plus(MEASURE_TIME_MAX),
    }
}

fn in_words(reason: &StopReason) -> &str {
    match reason {
        StopReason::Pause(refusal) | StopReason::Halve(refusal) | StopReason::Abort(refusal) => {
            &refusal.reason
        }
        StopReason::Cancel(reason) => reason,
    }
}
