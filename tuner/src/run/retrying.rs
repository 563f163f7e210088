//! A setting that could not be changed: all tries are one action, which ends when the value is in force or
//! not wanted any more.

use super::action::Action;
use super::context::{Context, Next, unchanged};
use super::ending::{Changed, TARGET_GONE, complete, end_of};
use super::event::{Effect, Event, Record};
use super::kind::ActionKind;
use super::moment::Moment;
use super::news::News;
use super::outcome::Outcome;
use super::part::begin;
use super::state::{ActionState, Retrying, SettingFailure};
use crate::range::KeyRange;
use crate::throttle::BACK_OFF;
use std::collections::VecDeque;
use std::time::Duration;

pub(super) fn step(
    action: &mut Action,
    retrying: Retrying,
    event: &Event<'_>,
    context: &Context<'_>,
) -> Next {
    let reason = action.failure.as_ref().map(|failure| failure.reason.clone()).unwrap_or_default();
    let (outcome, message) = match event {
        Event::Tick if may_try(action, context.now) => {
            return begin(KeyRange::everything(), VecDeque::new(), retrying.time_limit, context.now);
        }
        Event::Unwanted => (Outcome::Failed, format!("{reason}; not wanted any more")),
        Event::InForce => {
            let value = match &action.kind {
                ActionKind::ChangeSetting(change) => change.value(),
                ActionKind::Compact(_) | ActionKind::Flush(_) => String::new(),
            };
            (Outcome::Done, format!("{value} is in force, without another try"))
        }
        Event::TargetGone => (Outcome::Failed, format!("{reason}; {TARGET_GONE}")),
        _ => return unchanged(ActionState::Retrying(retrying)),
    };
    let end = end_of(action, outcome, message, None, context.now);
    complete(action, end, Changed::NotMeasured, context)
}

/// A try has failed. It is told where that is news: the first time, and where the reason is another one.
pub(super) fn failed(
    action: &mut Action,
    reason: String,
    time_limit: Duration,
    context: &Context<'_>,
) -> Next {
    let earlier = action.failure.take();
    let is_news = earlier.as_ref().is_none_or(|earlier| !is_same_reason(&earlier.reason, &reason));
    let mut retry = earlier.map(|earlier| earlier.retry).unwrap_or_default();
    retry.fail(BACK_OFF, context.now.at);
    action.failure = Some(SettingFailure { retry, reason });
    let news = if is_news { vec![News::SettingFailed] } else { Vec::new() };
    let effects = vec![Effect::Record(Record { news, ..Record::default() })];
    (ActionState::Retrying(Retrying { time_limit }), effects)
}

fn may_try(action: &Action, now: Moment) -> bool {
    action.failure.as_ref().is_none_or(|failure| failure.retry.may_try(BACK_OFF, now.at))
}

/// Whether two reasons say the same, up to numbers: times, process ids and addresses are others each time.
fn is_same_reason(one: &str, two: &str) -> bool {
    let words = |text: &str| text.chars().filter(|character| !character.is_ascii_digit()).collect::<String>();
    words(one) == words(two)
}

/// When it is tried again.
pub(super) fn wake(action: &Action, now: Moment) -> Moment {
    let left = action.failure.as_ref().map_or(0, |failure| failure.retry.seconds_left(BACK_OFF, now.at));
    now.plus(Duration::from_secs(u64::from(left)))
}
