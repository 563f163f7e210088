//! May this be done now, and if not why and until when: one question, one answer.

use super::consent;
use super::cooldown::has_rested;
use super::identity::{DeviceId, ProcessId};
use super::ledger::{BACK_OFF, Ledger};
use super::moment::Moment;
use super::offer::Subject;
use super::rejection::{RejectedBy, Rejection};
use super::state::ActionState;
use crate::evidence::PastAction;
use crate::guard::{Guard, GuardRefusal};
use crate::plan::Rule;
use crate::policy::{Mode, Policy};
use crate::words;
use std::time::Duration;

impl Ledger {
    /// Whether something may be done now.
    ///
    /// # Errors
    /// Why not, and until when where that is known.
    pub fn may_act(&self, subject: &Subject<'_>, policy: &Policy, now: Moment) -> Result<(), Rejection> {
        let rule = |rule, reason: &str| Err(Rejection::by_rule(rule, reason));
        match subject.mode {
            Mode::Observe => return rule(Rule::ModeObserve, "the policy's mode for this target is observe"),
            Mode::Advise => return rule(Rule::ModeAdvise, "the policy's mode for this target is advise"),
            Mode::Act => {}
        }
        if !self.is_writable {
            return rule(Rule::StateUnwritable, "what cannot be written down is not done");
        }
        if subject.place.is_none() {
            return Ok(());
        }
        self.is_settled(subject, now)?;
        self.may_ask_again(subject.process, policy, now)?;
        self.is_device_free(subject)?;
        self.has_rested(subject, policy, now)
    }

    /// Whether the process is not being acted on, and neither in doubt nor left alone after failures.
    fn is_settled(&self, subject: &Subject<'_>, now: Moment) -> Result<(), Rejection> {
        let on_it = self.actions.iter().filter(|action| action.process == subject.process);
        for action in on_it.filter(|action| action.place.is_some()) {
            let id = action.id;
            match &action.state {
                ActionState::InDoubt(_) => {
                    let reason = format!(
                        "what came of action {id}, which an earlier run of the agent has begun, is not known yet"
                    );
                    return Err(Rejection::by_rule(Rule::InDoubt, reason));
                }
                state if state.is_open() => {
                    return Err(Rejection::by_rule(Rule::TargetBusy, format!("action {id} runs in it")));
                }
                _ => {}
            }
        }
        let left =
            self.failures.get(&subject.process).map_or(0, |retry| retry.seconds_left(BACK_OFF, now.at));
        if left > 0 {
            let reason =
                format!("the last action on it has failed, tried again in {}", words::span(left.into()));
            let until = now.plus(Duration::from_secs(left.into()));
            return Err(Rejection::by_rule(Rule::AfterFailure, reason).until(until));
        }
        Ok(())
    }

    /// Whether the commands of the guards, which have said no, may be asked once more.
    fn may_ask_again(&self, process: ProcessId, policy: &Policy, now: Moment) -> Result<(), Rejection> {
        let is_asked = policy.guards.hold.is_some() || policy.guards.command.is_some();
        let Some((retry, refusal)) = self.refused.get(&process).filter(|_| is_asked) else {
            return Ok(());
        };
        let left = retry.seconds_left(consent::BACK_OFF, now.at);
        if left > 0 {
            let reason = format!("{}; asked again in {}", refusal.reason, words::span(left.into()));
            let until = now.plus(Duration::from_secs(left.into()));
            return Err(Rejection::from(GuardRefusal { reason, ..refusal.clone() }).until(until));
        }
        Ok(())
    }

    /// Whether nothing is done on the block device, and nothing may be done there unseen.
    fn is_device_free(&self, subject: &Subject<'_>) -> Result<(), Rejection> {
        let taken = |device: Option<DeviceId>, process: ProcessId| match (device, subject.device) {
            (Some(one), Some(two)) => one == two,
            // Which device it is is not known: it could be the same.
            _ => device.is_none() && subject.device.is_none() || process == subject.process,
        };
        let busy = |reason| Rejection { by: RejectedBy::Guard(Guard::DeviceBusy), reason, until: None };
        let mut open = self.actions.iter().filter(|action| action.state.is_open() && action.place.is_some());
        if let Some(action) = open.find(|action| taken(action.device, action.process)) {
            return Err(busy(format!("action {} runs on its block device", action.id)));
        }
        match self.orphans.iter().find(|orphan| taken(orphan.device, orphan.process)) {
            Some(orphan) => {
                let reason = format!(
                    "the job of action {}, whose end nobody has seen, may run on its block device",
                    orphan.action
                );
                Err(Rejection {
                    until: Some(orphan.since.plus(super::ledger::ORPHAN_TIME_MAX)),
                    ..busy(reason)
                })
            }
            None => Ok(()),
        }
    }

    /// Whether the keys have rested since they were last acted on in this way.
    fn has_rested(&self, subject: &Subject<'_>, policy: &Policy, now: Moment) -> Result<(), Rejection> {
        let (Some(place), Some(remedy)) = (subject.place, subject.remedy) else { return Ok(()) };
        let past = self.past_on(&place.database, now);
        let past = past.filter(|(other, past)| past.remedy == remedy && other.overlaps(place));
        let past: Vec<PastAction> = past.map(|(_, past)| past).collect();
        has_rested(past.iter(), policy.cooldown, now.at.as_second()).map_err(|resting| {
            let left = Duration::from_secs(u64::try_from(resting.left_seconds).unwrap_or(0));
            Rejection::by_rule(resting.rule, resting.reason).until(now.plus(left))
        })
    }
}
