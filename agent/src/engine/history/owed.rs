//! Measurements that are owed: what actions came to, seen in the windows after them.

use super::{History, SET_OPTIONS, batch_of, shares_keys, subject};
use crate::audit::What;
use crate::snapshot::ActionView;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::verify::Seen;
use std::time::{Duration, Instant};

/// Windows that an action is waited for to be verified: without readers there is nothing to measure, and where the
/// probe budget cuts windows short it takes several to see enough.
pub(super) const VERIFY_WINDOWS_MAX: u32 = 24;

/// How long an option is given to show what it is good for: it works by flushes, compactions and reads that come after it.
const OPTION_SETTLES_FOR: Duration = Duration::from_secs(10);

/// An action whose effect is still to be measured.
#[derive(Clone, Debug)]
pub struct Owed {
    /// The action.
    pub id: u64,
    /// Which range it was, what it was like before, and the relief that was promised.
    pub before: RangeAssessment,
    /// Windows that have passed without enough to judge by.
    pub windows_waited: u32,
    /// What they showed.
    pub seen: Seen,
    /// Not to be measured before.
    due: Instant,
}

impl Owed {
    pub(super) fn new(id: u64, before: RangeAssessment, settles_for: Duration) -> Owed {
        Owed { id, before, windows_waited: 0, seen: Seen::default(), due: Instant::now() + settles_for }
    }

    fn is_due(&self, target: &str) -> bool {
        self.before.target == target && self.due <= Instant::now()
    }
}

impl History {
    /// Promises a measurement of what an action came to.
    pub fn owe(&mut self, id: u64, before: RangeAssessment) {
        let Some(record) = self.record_mut(id) else { return };
        record.owed = serde_json::to_value(&before).ok();
        let settles_for = if record.view.action == SET_OPTIONS { OPTION_SETTLES_FOR } else { Duration::ZERO };
        let batch = batch_of(record);
        self.chronicle.record(batch);
        self.owed.push(Owed::new(id, before, settles_for));
    }

    /// Whether a measurement is owed for a target and due: reason enough for a window.
    pub fn owes(&self, target: &str) -> bool {
        self.owed.iter().any(|owed| owed.is_due(target))
    }

    /// Hands out the measurements owed for a target that has just had a window. Those that cannot be made
    /// yet come back through [`History::postpone`].
    pub fn due(&mut self, target: &str) -> Vec<Owed> {
        let (due, rest) = std::mem::take(&mut self.owed).into_iter().partition(|owed| owed.is_due(target));
        self.owed = rest;
        due
    }

    /// Keeps a measurement for a later window; `false` when it has waited long enough.
    pub fn postpone(&mut self, owed: Owed) -> bool {
        let again = owed.windows_waited < VERIFY_WINDOWS_MAX;
        if again {
            self.owed.push(Owed { windows_waited: owed.windows_waited + 1, ..owed });
        }
        again
    }

    /// Writes down the verdict on an action, as `change` says; `reason` is why, in words.
    pub fn settle(&mut self, owed: &Owed, helped: bool, reason: &str, change: impl FnOnce(&mut ActionView)) {
        let earlier_failures = self.failures_before(owed.id);
        let failures_in_a_row = if helped { 0 } else { earlier_failures.saturating_add(1) };
        if !helped {
            self.options.unwant("it did not help", |record| record.action_id == owed.id);
        }
        let Some(record) = self.record_mut(owed.id) else { return };
        change(&mut record.view);
        record.owed = None;
        if let Some(past) = &mut record.past {
            (past.helped, past.failures_in_a_row) = (Some(helped), failures_in_a_row);
        }
        let subject = subject(&record.view);
        let (pain_before, pain_after) = (record.view.pain_before, record.view.pain_after.unwrap_or(0.0));
        let batch = batch_of(record);
        let reason = reason.to_owned();
        let backed_off =
            What::BackedOff { subject: subject.clone(), failures_in_a_row, reason: reason.clone() };
        self.chronicle.tell_with(batch, What::Verified { subject, helped, pain_before, pain_after, reason });
        if !helped {
            self.chronicle.tell(backed_off);
        }
    }

    /// How often in a row acting in the same way where this action did had not helped before it.
    fn failures_before(&self, id: u64) -> u32 {
        let Some(this) = self.actions.iter().find(|record| record.view.id == id) else { return 0 };
        let Some(place) = &this.place else { return 0 };
        let earlier = self.actions.iter().filter(|record| record.view.id < id);
        let same = earlier.filter(|record| {
            record.view.action == this.view.action
                && record.place.as_ref().is_some_and(|other| shares_keys(place, other))
        });
        let judged = same.filter_map(|record| record.past.as_ref()).find(|past| past.helped.is_some());
        judged.map_or(0, |past| past.failures_in_a_row)
    }
}
