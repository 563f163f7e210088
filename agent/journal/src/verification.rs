//! Pending verifications: actions whose effect is still to be measured, in the windows after them.

use super::action_log::Journal;
use super::clock;
use sexton_tuner::run::{
    Action, ActionId, ActionState, Claim, SettingEvent, VERIFY_WINDOWS_MAX, Verification,
};

/// An action that is to be verified.
#[derive(Clone, Debug)]
pub struct Pending {
    pub id: ActionId,
    /// What it promised, and what windows have shown so far.
    pub claim: Claim,
}

impl Journal {
    /// Actions on a target that can be verified now.
    pub fn pending<'a>(&'a self, target: &'a str) -> impl Iterator<Item = Pending> + 'a {
        let now = clock::now();
        let actions = self.actions.iter().rev().map(|entry| &entry.action);
        let due = actions
            .filter(move |it| it.kind.target() == target && it.awaits_verification() && it.wants_window(now));
        due.filter_map(|action| Some(Pending { id: action.id, claim: action.claim.clone()? }))
    }

    /// Keeps a verification for a later window; `false` when it has waited long enough.
    pub fn postpone(&mut self, pending: Pending) -> bool {
        let Pending { id, mut claim } = pending;
        let again = claim.windows_waited < VERIFY_WINDOWS_MAX;
        claim.windows_waited += 1;
        self.change(id, |action| action.claim = again.then_some(claim));
        again
    }

    /// Writes what the windows after an action say of it. How often in a row it has not helped is counted
    /// here.
    pub fn verify(&mut self, id: ActionId, verification: Verification) {
        let earlier_failures = self.failures_before(id);
        let failures_in_a_row = if verification.helped { 0 } else { earlier_failures.saturating_add(1) };
        if !verification.helped {
            self.step_settings(&SettingEvent::Unwanted("it did not help"), |kept| kept.action == id);
        }
        self.change(id, |action| {
            let ActionState::Done(end) = &action.state else { return };
            let verification = Verification { failures_in_a_row, ..verification };
            action.state = ActionState::Verified { end: end.clone(), verification };
        });
    }

    /// How often in a row acting in the same way where this action did had not helped before it.
    fn failures_before(&self, id: ActionId) -> u32 {
        let Some(this) = self.action(id) else { return 0 };
        let Some(place) = &this.place else { return 0 };
        let same = self.actions.iter().map(|entry| &entry.action).filter(|action| {
            action.id < id
                && action.kind.remedy() == this.kind.remedy()
                && action.place.as_ref().is_some_and(|other| other.overlaps(place))
        });
        let verification = same.filter_map(|action| action.state.verification()).next();
        verification.map_or(0, |verification| verification.failures_in_a_row)
    }

    /// Those for which `is_it` holds will not be measured any more.
    pub(super) fn give_up_pending(&mut self, is_it: impl Fn(&Action) -> bool) {
        let pending =
            self.actions.iter_mut().map(|entry| &mut entry.action).filter(|it| it.awaits_verification());
        pending.filter(|action| is_it(action)).for_each(|action| action.claim = None);
    }
}
