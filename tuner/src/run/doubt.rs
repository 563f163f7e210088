//! Actions that were under way when an earlier run of the agent ended. The hook works on without an agent and
//! keeps what came of its last jobs, so it is asked; where nobody knows, the action's keys rest as if it had
//! been done.

use super::action::Action;
use super::context::{Context, Next, unchanged};
use super::ending::{all_of, ended};
use super::event::{Effect, Event};
use super::identity::JobId;
use super::job::{JobEnd, JobResult, JobStatus};
use super::kind::ActionKind;
use super::moment::Moment;
use super::news::News;
use super::outcome::{End, Outcome};
use super::setting::SettingChange;
use super::state::{ActionState, InDoubt, Phase};
use std::time::Duration;

/// How long an answer is waited for: a first window brings the hook in, and a busy node opens that late.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);

/// What becomes of a stored action in the next run of the agent.
pub(super) fn recover(
    action: &mut Action,
    state: ActionState,
    is_alive: bool,
    context: &Context<'_>,
) -> Next {
    // An option of an earlier run is restored: there is nothing to measure.
    let is_option = matches!(action.kind, ActionKind::ChangeSetting(SettingChange::Option(_)));
    match state {
        state if !state.is_open() => {
            action.claim = action.claim.take().filter(|_| is_alive && !is_option);
            unchanged(state)
        }
        ActionState::Retrying(retrying) if is_alive => unchanged(ActionState::Retrying(retrying)),
        state => match job_of(&state).filter(|_| is_alive) {
            Some(job) => {
                let doubt = InDoubt { job, since: context.now };
                (ActionState::InDoubt(doubt), vec![Effect::AskAfter(job)])
            }
            None => interrupt(action, is_alive, context),
        },
    }
}

/// The job that does all that is left of an action.
fn job_of(state: &ActionState) -> Option<JobId> {
    match state {
        ActionState::Running(running) if running.left.is_empty() && running.phase == Phase::Working => {
            running.job
        }
        ActionState::InDoubt(doubt) => Some(doubt.job),
        _ => None,
    }
}

pub(super) fn step(action: &mut Action, mut doubt: InDoubt, event: Event<'_>, context: &Context<'_>) -> Next {
    match event {
        Event::Job(JobStatus::Running { .. }) => {
            doubt.since = context.now;
            unchanged(ActionState::InDoubt(doubt))
        }
        Event::Job(JobStatus::Ended(end)) => settle(action, doubt.job, &end, context),
        Event::Job(JobStatus::Unknown) | Event::Cancel(_) => interrupt(action, true, context),
        Event::TargetGone => interrupt(action, false, context),
        Event::Tick if context.now.since(&doubt.since) >= ANSWER_TIME_MAX => interrupt(action, true, context),
        _ => unchanged(ActionState::InDoubt(doubt)),
    }
}

/// The hook's word. What the job changed nobody has measured.
fn settle(action: &mut Action, job: JobId, end: &JobEnd, context: &Context<'_>) -> Next {
    let (outcome, how, why) = match &end.result {
        JobResult::Done => (Outcome::Done, "was done", ""),
        JobResult::Cancelled(reason) => (Outcome::Cancelled, "was cancelled", reason.as_str()),
        JobResult::Failed { reason, .. } => (Outcome::Failed, "failed", reason.as_str()),
    };
    let seconds = end.duration.as_secs_f64();
    let separator = if why.is_empty() { "" } else { ": " };
    let message = format!(
        "the agent ended while it was under way; the hook says that its job {} {how} after {seconds:.1} s{separator}{why}",
        job.0
    );
    let may_run_on = matches!(end.result, JobResult::Failed { may_run_on: true, .. });
    let end = End {
        duration_seconds: seconds,
        // Parts of it that were done before are done, whatever became of the last one.
        rests: outcome == Outcome::Done || may_run_on || action.parts_done > 0,
        may_run_on,
        ..End::new(context.now, outcome, message)
    };
    action.claim = None;
    ended(action, end, vec![News::Ended], all_of(action))
}

fn interrupt(action: &mut Action, is_alive: bool, context: &Context<'_>) -> Next {
    let target = if is_alive { "its target lives" } else { "its target has ended too" };
    let message = format!(
        "the agent ended while it was under way, and what came of it is not known; {target}, and the range rests \
         as if it had been done"
    );
    let writes = action.kind.cost_bytes() > 0;
    let end = End {
        rests: true,
        may_run_on: is_alive && writes,
        ..End::new(context.now, Outcome::Interrupted, message)
    };
    action.claim = None;
    ended(action, end, vec![News::Interrupted], all_of(action))
}

/// When an action in doubt has to hear that time has passed.
pub(super) fn wake(doubt: &InDoubt) -> Moment {
    doubt.since.plus(ANSWER_TIME_MAX)
}
