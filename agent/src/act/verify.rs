//! Whether actions helped: windows are brought to the ledger, and back-offs end where the snapshot that kept
//! the tombstones was released.

use super::Actor;
use crate::observe::{Observer, Watched};
use crate::session::{Answer, READINGS_LIMIT};
use sexton_execute::Properties;
use sexton_inspect::facts::TargetId;
use sexton_journal::clock;
use sexton_tuner::plan::Plan;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::run::{Action, ActionId, Event, Place, WindowSeen};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tracing::info;

impl Actor {
    /// Targets on which a window could show what an action came to.
    pub fn targets_to_verify(&self) -> BTreeSet<String> {
        let now = clock::now();
        let due = self.ledger.actions().filter(|action| action.wants_window(now));
        due.map(|action| action.kind.target().to_owned()).collect()
    }

    /// Measures the actions whose targets have had a window since.
    pub fn verify(&mut self, observer: &mut Observer, plan: &Plan, fresh: &[String]) {
        for target in fresh {
            let due = self.due_for_verification(observer, target);
            if due.is_empty() {
                continue;
            }
            let ranges = plan.assessments.iter().filter(|range| range.target == *target);
            let after: Vec<RangeAssessment> = ranges.cloned().collect();
            let Some(watched) = observer.roster.named(target) else { continue };
            let window = watched.seen;
            for id in due {
                let seen = WindowSeen {
                    seconds: window.duration_ns as f64 / 1e9,
                    has_operations: window.operations > 0,
                    after: &after,
                    failures_before: self.ledger.failures_before(id),
                };
                self.hear(observer, id, Event::Window(seen));
            }
        }
    }

    /// Actions that had ended before the last window on their target was opened.
    fn due_for_verification(&self, observer: &Observer, target: &str) -> Vec<ActionId> {
        let now = clock::now();
        let Some(watched) = observer.roster.named(target) else { return Vec::new() };
        let opened = watched.last_window.map(|opened| opened.elapsed());
        let was_before = |action: &Action| {
            let ended = action.state.end().map(|end| now.since(&end.at));
            ended.zip(opened).is_none_or(|(ended, opened)| ended >= opened)
        };
        let of_target = self.ledger.actions().filter(|action| action.kind.target() == target);
        of_target.filter(|it| it.wants_window(now) && was_before(it)).map(|action| action.id).collect()
    }

    /// Asks whether the snapshots are still held that kept tombstones.
    pub fn ask_after_pins(&mut self, observer: &mut Observer) {
        for watched in observer.roster.watched.iter_mut().filter(|watched| watched.hook.is_connected) {
            let pinned = self.ledger.pinned().filter_map(|action| place_in(watched, action));
            let places: BTreeSet<(PathBuf, String)> =
                pinned.map(|place| (place.database.path.clone(), place.column_family.clone())).collect();
            if !places.is_empty() {
                watched.ask(&observer.post, "the oldest snapshots", READINGS_LIMIT, |session| {
                    Answer::Pinned(session.properties_of(places.into_iter().collect()))
                });
            }
        }
    }

    /// Ends the back-off of ranges whose tombstones a snapshot kept that is held no more: from here on only
    /// the cooldown counts.
    pub fn lift_pins(
        &mut self,
        observer: &mut Observer,
        target: TargetId,
        read: &[(PathBuf, String, Properties)],
    ) {
        let Some(watched) = observer.roster.get(target) else { return };
        let released = self.ledger.pinned().filter_map(|action| {
            let place = place_in(watched, action)?;
            let sequence = action.state.end()?.oldest_snapshot_sequence?;
            let of_place = |(database, column_family, _): &&(PathBuf, String, Properties)| {
                *database == place.database.path && *column_family == place.column_family
            };
            let (_, _, properties) = read.iter().find(of_place)?;
            let is_held = properties.snapshots != Some(0)
                && properties.oldest_snapshot_sequence.is_none_or(|oldest| oldest <= sequence);
            (!is_held).then(|| place.clone())
        });
        let (released, target): (Vec<Place>, String) = (released.collect(), watched.target.name.clone());
        for place in released {
            info!(
                target,
                database = %place.database.path.display(),
                column_family = place.column_family,
                "the snapshot that kept a range's tombstones has been released"
            );
            let effects = self.ledger.forgive(&place);
            self.carry_out(observer, effects);
        }
    }
}

/// Where an action was done, if that is a database that this target has open.
fn place_in<'a>(watched: &Watched, action: &'a Action) -> Option<&'a Place> {
    let place = action.place.as_ref()?;
    let mut databases = watched.target.databases.iter();
    databases.any(|database| database.identity() == place.database).then_some(place)
}
