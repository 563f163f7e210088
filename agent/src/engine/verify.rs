//! Whether actions helped: what was promised beside what the next window shows, and back-offs that a released
//! snapshot ends.

use super::Engine;
use super::watched::{Pin, Watched};
use sexton_journal::Pending;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::run::{ActionKind, Place, SettingChange, Verification};
use sexton_tuner::verify::{Aftermath, Cause, Claim, verdict};
use std::path::Path;
use tracing::info;

impl Engine {
    /// Measures the actions whose targets have had a window since.
    pub(super) fn verify(&mut self) {
        let fresh: Vec<String> = self.fresh.drain(..).collect();
        for target in fresh {
            let pending: Vec<Pending> = self.history.pending(&target).collect();
            if pending.is_empty() {
                continue;
            }
            let ranges = self.plan.assessments.iter().filter(|range| range.target == target);
            let after: Vec<RangeAssessment> = ranges.cloned().collect();
            for pending in pending {
                self.verify_one(pending, &after);
            }
        }
    }

    /// `after` are all ranges of its target in the new window.
    fn verify_one(&mut self, mut pending: Pending, after: &[RangeAssessment]) {
        let before = pending.claim.before.clone();
        let Some(watched) =
            self.roster.watched.iter_mut().find(|watched| watched.target.name == before.target)
        else {
            return;
        };
        let seen = &mut pending.claim.seen;
        if let Some(window) = watched.evidence.first().map(|evidence| evidence.window)
            && window.operations > 0
        {
            seen.add(window.duration_ns as f64 / 1e9, &before, after);
        }
        let seen = *seen;
        let action = self.history.action(pending.id);
        // An option drops nothing by itself.
        let action = action
            .filter(|action| !matches!(action.kind, ActionKind::ChangeSetting(SettingChange::Option(_))));
        let aftermath = action.and_then(|action| action.state.end()).map(|end| end.aftermath());
        let is_pinned = aftermath.as_ref().is_some_and(Aftermath::is_pinned);
        let (id, promised) = (pending.id, pending.claim.promised_seconds_per_second);
        if !is_pinned && !seen.is_conclusive(&before) && self.history.postpone(pending) {
            return;
        }
        let claim = Claim {
            before: &before,
            promised_seconds_per_second: promised,
            share_min: self.options.policy.relief_share,
            aftermath: aftermath.as_ref(),
            seen,
        };
        let verdict = verdict(&claim, after);
        if verdict.cause == Some(Cause::PinnedBySnapshot) {
            pin(watched, &before);
        }
        self.history.verify(id, Verification::of(verdict, 0));
    }

    /// Ends the back-off of ranges whose tombstones a snapshot kept that is held no more: from here on only
    /// the cooldown counts.
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

/// Remembers which snapshot keeps a range's tombstones.
fn pin(watched: &mut Watched, range: &RangeAssessment) {
    let Some(column_family) = range.column_family.clone() else { return };
    let database = Path::new(&range.database);
    let read = watched.properties(database, &column_family);
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
fn is_held(watched: &mut Watched, pin: &Pin) -> bool {
    watched.properties(&pin.database, &pin.column_family).is_none_or(|properties| {
        properties.snapshots != Some(0)
            && properties.oldest_snapshot_sequence.is_none_or(|oldest| oldest <= pin.sequence)
    })
}
