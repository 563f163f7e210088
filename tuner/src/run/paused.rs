//! An action that a guard has stopped for now: it goes on when nobody objects any more, or not at all.

use super::action::Action;
use super::context::{Context, Next, unchanged};
use super::ending::{Changed, TARGET_GONE, complete, end_of};
use super::event::{Effect, Event};
use super::kind::ActionKind;
use super::moment::Moment;
use super::outcome::Outcome;
use super::part::write_ahead;
use super::state::{ActionState, Paused, Phase, Running};
use crate::evidence::SstFile;
use crate::guard::{self, GuardRefusal, Readings};
use crate::range::KeyRange;
use crate::rest::{halves, rest};
use std::collections::VecDeque;
use std::time::Duration;

/// Shortest pause: readers that have waited catch up, and what was cancelled is over.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest pause: by then the action's evidence is old, and the next plan knows better.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);

pub(super) fn step(action: &mut Action, mut paused: Paused, event: Event<'_>, context: &Context<'_>) -> Next {
    match event {
        Event::Readings(readings) if may_go_on(action, &paused, readings, context) => {
            paused.is_reading_files = true;
            (ActionState::Paused(paused), vec![Effect::ReadFiles])
        }
        Event::Files(files) if paused.is_reading_files => go_on(action, paused, files, context),
        Event::Consent(consent) => match consent.lost(&context.policy.guards) {
            Some(lost) => abort(action, paused, &lost, context),
            None => unchanged(ActionState::Paused(paused)),
        },
        Event::Cancel(reason) => give_up(action, paused, Outcome::Cancelled, reason.to_owned(), context),
        Event::TargetGone => {
            let end = end_of(action, Outcome::Failed, TARGET_GONE.to_owned(), None, context.now);
            complete(action, end, Changed::TargetGone, context)
        }
        Event::Tick if context.now.since(&paused.since) >= PAUSE_MAX => {
            let objection = paused.objection.clone();
            abort(action, paused, &objection, context)
        }
        _ => unchanged(ActionState::Paused(paused)),
    }
}

fn abort(action: &mut Action, paused: Paused, objection: &GuardRefusal, context: &Context<'_>) -> Next {
    let message = format!("{}: {}", objection.guard.name(), objection.reason);
    give_up(action, paused, Outcome::Aborted(objection.guard), message, context)
}

/// What was thrown away has to be written once more, so the budget is asked for both.
fn may_go_on(action: &Action, paused: &Paused, readings: &Readings, context: &Context<'_>) -> bool {
    let price = action.kind.disk_price();
    let wanted_bytes = price.written_bytes.saturating_add(action.bytes_transient);
    !paused.is_reading_files
        && context.now.since(&paused.since) >= PAUSE_MIN
        && wanted_bytes <= context.available_bytes
        && guard::before(&context.policy.guards, readings, price).is_ok()
}

fn go_on(action: &mut Action, paused: Paused, files: Option<&[SstFile]>, context: &Context<'_>) -> Next {
    let mut parts: VecDeque<KeyRange> = left_of(&action.kind, &paused, files).into();
    parts.extend(paused.left.iter().cloned());
    match parts.pop_front() {
        Some(part) => write_ahead(part, parts, paused.time_limit, context.now),
        None => give_up(action, paused, Outcome::Done, String::new(), context),
    }
}

/// What is still to be done of the part that was stopped.
fn left_of(kind: &ActionKind, paused: &Paused, files: Option<&[SstFile]>) -> Vec<KeyRange> {
    let Some(files) = files else { return vec![paused.part.clone()] };
    let own = files.iter().filter(|file| Some(file.column_family.as_str()) == kind.column_family());
    let own: Vec<SstFile> = own.cloned().collect();
    match rest(&paused.part, &own) {
        Some(left) if paused.in_halves => halves(left, &own),
        Some(left) => vec![left],
        None => Vec::new(),
    }
}

/// Nothing of it runs; what it has changed so far is measured.
fn give_up(
    action: &mut Action,
    paused: Paused,
    outcome: Outcome,
    message: String,
    context: &Context<'_>,
) -> Next {
    let end = end_of(action, outcome, message, None, context.now);
    let running = Running {
        part: paused.part,
        left: VecDeque::new(),
        phase: Phase::Measuring(Box::new(end)),
        since: context.now,
        job: None,
        can_stop: false,
        time_limit: paused.time_limit,
        stop: None,
    };
    (ActionState::Running(running), vec![Effect::Measure])
}

/// When a paused action has to hear that time has passed.
pub(super) fn wake(paused: &Paused) -> Moment {
    paused.since.plus(PAUSE_MAX)
}
