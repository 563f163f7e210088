//! Actions as the API shows them, derived from their values.

use crate::snapshot::{ActionView, PlanStepView};
use sexton_journal::{Listed, Subject};
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::run::{Action, ActionId, ActionKind, ActionState, Outcome, SettingChange};

/// An action, its keys shown as the policy allows.
pub fn action_view(listed: Listed<'_>, keys: KeyDisplay) -> ActionView {
    let Listed { action, is_earlier } = listed;
    let Subject { target, database, subject, begin, end: range_end, .. } =
        Subject::of(action.id, &action.kind, keys);
    let end = action.state.end();
    let prediction = action.kind.prediction();
    let verification = action.state.verification();
    let view = ActionView {
        id: action.id.0,
        is_earlier,
        started_at: action.started.at.to_string(),
        action: action.kind.name().to_owned(),
        target,
        database,
        subject,
        begin,
        end: range_end,
        cost_bytes: action.kind.cost_bytes(),
        linked_bytes: action.kind.linked_bytes(),
        state: action.state.name().to_owned(),
        failures: action.failures(),
        reason: action.kind.reason().to_owned(),
        outcome: outcome_in_words(action),
        pain_before: prediction.as_ref().map_or(0.0, |it| it.pain_seconds_per_second),
        pain_after: verification.map(|it| it.pain_after_seconds_per_second),
        relief_promised: prediction.map_or(0.0, |it| it.relief_seconds_per_second),
        relief_delivered: verification.map(|it| it.delivered_seconds_per_second),
        cause: cause(&action.state),
        pauses: action.pauses,
        ..ActionView::default()
    };
    let Some(end) = end else { return view };
    ActionView {
        ended_at: Some(end.at.at.to_string()),
        bytes_rewritten: end.bytes_rewritten,
        bytes_transient: end.bytes_transient,
        duration_seconds: end.duration_seconds,
        deletions_before: end.deletions_before,
        deletions_after: end.deletions_after,
        memtable_deletions_before: end.memtable_deletions_before,
        memtable_deletions_after: end.memtable_deletions_after,
        snapshots: end.snapshots,
        oldest_snapshot_age_seconds: end.oldest_snapshot_age_seconds,
        ..view
    }
}

/// A step of a plan; what an operator would run is filled in by whoever knows.
pub fn step_view(kind: &ActionKind, keys: KeyDisplay) -> PlanStepView {
    let Subject { target, database, subject, begin, end, .. } = Subject::of(ActionId::default(), kind, keys);
    PlanStepView {
        action: kind.name().to_owned(),
        target,
        database,
        subject,
        begin,
        end,
        cost_bytes: kind.cost_bytes(),
        linked_bytes: kind.linked_bytes(),
        relief_seconds_per_second: match kind {
            ActionKind::Compact(compact) => compact.relief_seconds_per_second,
            ActionKind::Flush(flush) => flush.relief_seconds_per_second,
            ActionKind::ChangeSetting(SettingChange::Option(set)) => set.relief_seconds_per_second,
            ActionKind::ChangeSetting(_) => 0.0,
        },
        reason: kind.reason().to_owned(),
        commands: match kind {
            ActionKind::ChangeSetting(SettingChange::Throttle(set)) => vec![set.command.join(" ")],
            _ => Vec::new(),
        },
    }
}

fn outcome_in_words(action: &Action) -> String {
    match &action.state {
        ActionState::Planned | ActionState::Running(_) | ActionState::InDoubt(_) => String::new(),
        ActionState::Paused(paused) => format!("paused: {}", paused.objection.reason),
        ActionState::Retrying(_) => {
            let reason = action.failure.as_ref().map_or("", |failure| failure.reason.as_str());
            format!("{reason}; failed {} times, tried again later", action.failures())
        }
        ActionState::Done(end) => end.message.clone(),
        ActionState::Verified { end, verification } if verification.reason.is_empty() => end.message.clone(),
        ActionState::Verified { end, verification } => format!("{}; {}", end.message, verification.reason),
    }
}

/// The guard that it was given up for, or why it did not help.
fn cause(state: &ActionState) -> Option<String> {
    let guard = match state.outcome() {
        Some(Outcome::Aborted(guard)) => Some(guard.name()),
        _ => None,
    };
    let verification = state.verification().and_then(|verification| verification.cause);
    verification.map(|cause| cause.name()).or(guard).map(str::to_owned)
}
