//! Whether an action may begin: at its price of now, within the budget, with no guard objecting.

use super::action::Action;
use super::context::{Context, Next};
use super::event::{Admission, Effect};
use super::kind::ActionKind;
use super::rejection::Rejection;
use super::setting::SettingChange;
use super::state::{ActionState, Phase, Running};
use crate::guard;
use crate::plan::Rule;
use crate::reprice::still_worth_it;
use crate::words;
use std::collections::VecDeque;

pub(super) fn step(action: &mut Action, admission: &Admission<'_>, context: &Context<'_>) -> Next {
    if let Err(rejection) = may_begin(&action.kind, admission, context) {
        return (ActionState::Planned, vec![Effect::Refuse(rejection)]);
    }
    action.started = context.now;
    let running = Running {
        part: admission.part.cloned().unwrap_or_else(|| action.kind.range()),
        left: VecDeque::new(),
        phase: Phase::WritingAhead { nothing_left: admission.nothing_left },
        since: context.now,
        job: None,
        can_stop: false,
        time_limit: admission.time_limit,
        stop: None,
    };
    (ActionState::Running(running), vec![Effect::WriteAhead { is_first: true, setting: None, forget: None }])
}

fn may_begin(kind: &ActionKind, admission: &Admission<'_>, context: &Context<'_>) -> Result<(), Rejection> {
    let by_rule = |(rule, reason): (Rule, String)| Rejection::by_rule(rule, reason);
    let guards = &context.policy.guards;
    let readings = admission.readings;
    // A throttle follows the schedule, on each node by itself.
    if !matches!(kind, ActionKind::ChangeSetting(SettingChange::Throttle(_))) {
        admission.consent.to_begin(guards, context.now)?;
    }
    match kind {
        ActionKind::Compact(compact) => {
            still_worth_it(admission.planned_cost_bytes, compact.cost_bytes, context.available_bytes)
                .map_err(by_rule)?;
            Ok(guard::before(guards, readings, compact.disk_price())?)
        }
        ActionKind::Flush(flush) => {
            if flush.cost_bytes > context.available_bytes {
                let (cost, left) = (words::bytes(flush.cost_bytes), words::bytes(context.available_bytes));
                let reason = format!("flushing writes up to {cost}, and {left} are left of the budget");
                return Err(Rejection::by_rule(Rule::OverBudget, reason));
            }
            Ok(guard::before_flush(guards, readings, flush.cost_bytes)?)
        }
        ActionKind::ChangeSetting(SettingChange::Option(_)) => Ok(guard::before_option(guards, readings)?),
        // The others write nothing, and slow background work down as often as not.
        ActionKind::ChangeSetting(_) => Ok(()),
    }
}
