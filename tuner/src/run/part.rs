//! A part of an action: the keys that one job takes.

use super::context::Next;
use super::event::Effect;
use super::moment::Moment;
use super::state::{ActionState, Phase, Running};
use crate::range::KeyRange;
use std::collections::VecDeque;
use std::time::Duration;

/// Begins with a part; `left` come after it.
pub(super) fn begin(part: KeyRange, left: VecDeque<KeyRange>, time_limit: Duration, now: Moment) -> Next {
    let start = Effect::Start(part.clone());
    (ActionState::Running(running(part, left, Phase::Working, time_limit, now)), vec![start])
}

/// Has it written down that a part after the first one begins.
pub(super) fn write_ahead(
    part: KeyRange,
    left: VecDeque<KeyRange>,
    time_limit: Duration,
    now: Moment,
) -> Next {
    let phase = Phase::WritingAhead { nothing_left: false };
    let write_ahead = Effect::WriteAhead { is_first: false, setting: None, forget: None };
    (ActionState::Running(running(part, left, phase, time_limit, now)), vec![write_ahead])
}

fn running(
    part: KeyRange,
    left: VecDeque<KeyRange>,
    phase: Phase,
    time_limit: Duration,
    now: Moment,
) -> Running {
    Running { part, left, phase, since: now, job: None, can_stop: false, time_limit, stop: None }
}
