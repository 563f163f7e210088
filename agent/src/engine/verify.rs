//! Whether actions helped: what was promised beside what the next window shows, and back-offs that a released snapshot
//! ends.

use super::Engine;
use super::guards::properties;
use super::history::{Owed, Place, SET_OPTIONS};
use super::watched::{Pin, Watched};
use crate::snapshot::ActionView;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::verify::{Aftermath, Cause, Claim, Verdict, verdict};
use std::path::Path;
use tracing::info;

impl Engine {
    /// Measures the actions whose targets have had a window since.
    pub(super) fn verify(&mut self) {
        let fresh: Vec<String> = self.fresh.drain(..).collect();
        for target in fresh {
            let due = self.history.due(&target);
            if due.is_empty() {
                continue;
            }
            let ranges = self.plan.assessments.iter().filter(|range| range.target == target);
            let after: Vec<RangeAssessment> = ranges.cloned().collect();
            for owed in due {
                self.verify_one(owed, &after);
            }
        }
    }

    /// `after` are all ranges of its target in the new window.
    fn verify_one(&mut self, mut owed: Owed, after: &[RangeAssessment]) {
        let before = &owed.before;
        let Some(watched) =
            self.roster.watched.iter_mut().find(|watched| watched.target.name == before.target)
        else {
            return;
        };
        if let Some(window) = watched.evidence.first().map(|evidence| evidence.window)
            && window.operations > 0
        {
            owed.seen.add(window.duration_ns as f64 / 1e9, before, after);
        }
        let aftermath = self.history.find(owed.id).and_then(aftermath);
        let is_pinned = aftermath.as_ref().is_some_and(Aftermath::is_pinned);
        if !is_pinned && !owed.seen.is_conclusive(before) && self.history.postpone(owed.clone()) {
            return;
        }
        let claim = Claim {
            before,
            promised_seconds_per_second: before.relief_seconds_per_second,
            share_min: self.options.policy.relief_share,
            aftermath: aftermath.as_ref(),
            seen: owed.seen,
        };
        let verdict = verdict(&claim, after);
        if verdict.cause == Some(Cause::PinnedBySnapshot) {
            pin(watched, before);
        }
        self.settle(&owed, &verdict);
    }

    fn settle(&mut self, owed: &Owed, verdict: &Verdict) {
        self.history.settle(owed, verdict.helped, &verdict.reason, |action| {
            action.pain_after = Some(verdict.pain_after_seconds_per_second);
            action.relief_delivered = Some(verdict.delivered_seconds_per_second);
            action.cause = verdict.cause.map(|cause| cause.name().to_owned());
            action.state = if verdict.helped { "helped" } else { "did_not_help" }.into();
            action.outcome = format!("{}; {}", action.outcome, verdict.reason);
        });
    }

    /// Ends the back-off of ranges whose tombstones a snapshot kept that is held no more: from here on only the
    /// cooldown counts.
    pub(super) fn lift_pins(&mut self) {
        for watched in &mut self.roster.watched {
            let pins = std::mem::take(&mut watched.pins);
            let (kept, released): (Vec<Pin>, Vec<Pin>) =
                pins.into_iter().partition(|pin| is_held(watched, pin));
            watched.pins = kept;
            for pin in released {
                info!(
                    target = watched.target.name,
                    database = %pin.database.display(),
                    column_family = pin.column_family,
                    "the snapshot that kept a range's tombstones has been released"
                );
                if let Some(database) = watched.identity_of(&pin.database) {
                    let Pin { column_family, range, .. } = pin;
                    self.history.forgive(&Place { database, column_family, range });
                }
            }
        }
    }
}

/// What an action left behind, from its record; `None` for an option, which drops nothing by itself.
fn aftermath(action: &ActionView) -> Option<Aftermath> {
    (action.action != SET_OPTIONS).then_some(Aftermath {
        deletions_before: action.deletions_before,
        deletions_after: action.deletions_after,
        memtable_deletions_before: action.memtable_deletions_before,
        bytes_rewritten: action.bytes_rewritten.saturating_sub(action.bytes_transient),
        snapshots: action.snapshots,
        oldest_snapshot_age_seconds: action.oldest_snapshot_age_seconds,
    })
}

/// Remembers which snapshot keeps a range's tombstones.
fn pin(watched: &mut Watched, range: &RangeAssessment) {
    let Some(column_family) = range.column_family.clone() else { return };
    let database = Path::new(&range.database);
    let read = properties(watched, database, &column_family);
    if let Some(sequence) = read.and_then(|properties| properties.oldest_snapshot_sequence) {
        watched.remember_pin(Pin {
            database: database.to_owned(),
            column_family,
            range: range.range.clone(),
            sequence,
        });
    }
}

/// Whether the oldest snapshot is still the one that it was, as far as can be told.
fn is_held(watched: &Watched, pin: &Pin) -> bool {
    properties(watched, &pin.database, &pin.column_family).is_none_or(|properties| {
        properties.snapshots != Some(0)
            && properties.oldest_snapshot_sequence.is_none_or(|oldest| oldest <= pin.sequence)
    })
}
