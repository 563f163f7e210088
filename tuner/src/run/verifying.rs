//! Whether an action helped: what it promised beside what the windows after it show.

use super::action::Action;
use super::context::{Context, Next, unchanged};
use super::event::{Effect, Event, Record, WindowSeen};
use super::kind::ActionKind;
use super::moment::Moment;
use super::news::News;
use super::outcome::{End, Verification};
use super::setting::SettingChange;
use super::state::ActionState;
use crate::verify::{Aftermath, Claim, verdict};
use std::time::Duration;

/// Windows that an action is waited for to be verified: without readers there is nothing to measure, and
/// where the probe budget cuts windows short it takes several to see enough.
pub const VERIFY_WINDOWS_MAX: u32 = 24;

/// How long an option is given to show what it is good for: it works by flushes, compactions and reads that
/// come after it.
pub const OPTION_SETTLES_FOR: Duration = Duration::from_secs(10);

pub(super) fn step(action: &mut Action, end: End, event: &Event<'_>, context: &Context<'_>) -> Next {
    match event {
        Event::Window(window) if is_due(action, &end, context.now) => verify(action, end, window, context),
        Event::TargetGone => {
            action.claim = None;
            unchanged(ActionState::Done(end))
        }
        _ => unchanged(ActionState::Done(end)),
    }
}

/// Whether a window could show by now what the action came to.
pub(super) fn is_due(action: &Action, end: &End, now: Moment) -> bool {
    let is_option = is_option(&action.kind);
    action.claim.is_some() && (!is_option || now.since(&end.at) >= OPTION_SETTLES_FOR)
}

fn verify(action: &mut Action, end: End, window: &WindowSeen<'_>, context: &Context<'_>) -> Next {
    let Some(mut claim) = action.claim.take() else { return unchanged(ActionState::Done(end)) };
    if window.has_operations {
        claim.seen.add(window.seconds, &claim.before, window.after);
    }
    // An option drops nothing by itself.
    let aftermath = (!is_option(&action.kind)).then(|| end.aftermath());
    let is_pinned = aftermath.as_ref().is_some_and(Aftermath::is_pinned);
    let is_decided = is_pinned || claim.seen.is_conclusive(&claim.before);
    if !is_decided && claim.windows_waited < VERIFY_WINDOWS_MAX {
        claim.windows_waited += 1;
        action.claim = Some(claim);
        return unchanged(ActionState::Done(end));
    }
    let claimed = Claim {
        before: &claim.before,
        promised_seconds_per_second: claim.promised_seconds_per_second,
        share_min: context.policy.relief_ratio_min,
        aftermath: aftermath.as_ref(),
        seen: claim.seen,
    };
    let verdict = verdict(&claimed, window.after);
    let failures_in_a_row = if verdict.helped { 0 } else { window.failures_before.saturating_add(1) };
    let verification = Verification::of(verdict, failures_in_a_row);
    let news = if verification.helped { vec![News::Verified] } else { vec![News::Verified, News::BackedOff] };
    // What was measured stays for whoever asks what it was like before.
    action.claim = Some(claim);
    let effects = vec![Effect::Record(Record { news, ..Record::default() })];
    (ActionState::Verified { end, verification }, effects)
}

fn is_option(kind: &ActionKind) -> bool {
    matches!(kind, ActionKind::ChangeSetting(SettingChange::Option(_)))
}
