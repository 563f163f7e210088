//! What windows have seen of a target is remembered from one plan to the next, and from one run to the next.

use super::roster::Roster;
use super::watched::{Watched, databases};
use jiff::Timestamp;
use sexton_journal::Journal;
use sexton_tuner::evidence::{Evidence, SentinelInterval};
use sexton_tuner::ledger::{PainLedger, Touched};
use sexton_tuner::range::KeyRange;
use sexton_tuner::run::{Action, ActionKind, Ledger, Moment};
use std::time::{Duration, Instant};

/// How often what is remembered of a target is written: what a killed agent loses of it has half faded in
/// twice that time.
const KEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Adds what the last windows have seen to what was seen before: plans are made of both. Where something was
/// done only what was seen since counts.
pub fn remember(roster: &mut Roster, journal: &mut Journal, ledger: &Ledger, now: Moment) {
    for watched in roster.watched.iter_mut().filter(|watched| watched.is_fresh) {
        if watched.pain.is_none() {
            watched.pain = Some(journal.pain_of(&databases(watched)).unwrap_or_default());
        }
        let last_taken = watched.pain.as_ref().and_then(PainLedger::last_taken);
        let of_target = ledger.actions().filter(|action| action.kind.target() == watched.target.name);
        let is_new = |action: &&Action| action.state.end().is_some_and(|end| last_taken <= Some(end.at.at));
        let done = of_target.filter(is_new).filter_map(|action| touched(action, &watched.evidence));
        watched.remember(done.collect(), now.at);
        keep(watched, journal);
    }
}

fn keep(watched: &mut Watched, journal: &mut Journal) {
    let is_due = watched.pain_kept.is_none_or(|kept| kept.elapsed() >= KEEP_INTERVAL);
    if let Some(pain) = watched.pain.as_ref().filter(|_| is_due) {
        journal.keep_pain(&databases(watched), &pain.to_store());
        watched.pain_kept = Some(Instant::now());
    }
}

/// Where an action has changed what readers meet; `None` for throttles, which are set in no place.
fn touched(action: &Action, evidence: &[Evidence]) -> Option<Touched> {
    let (place, database) = (action.place.as_ref()?, action.kind.database()?);
    let column_family = &place.column_family;
    if let ActionKind::Compact(compact) = &action.kind {
        let files = evidence.iter().filter(|it| it.database == database).flat_map(|it| &it.files);
        return Some(Touched::rewritten(database, column_family, &compact.range, files));
    }
    let (database, column_family) = (database.to_owned(), column_family.clone());
    Some(Touched { database, column_family, range: KeyRange::everything() })
}

impl Watched {
    /// Takes the last window into the ledger, and makes evidence of all that is in it. `done`: where actions
    /// have ended since the window before.
    fn remember(&mut self, done: Vec<Touched>, now: Timestamp) {
        let Some(pain) = &mut self.pain else { return };
        done.into_iter().for_each(|touched| pain.forget(touched));
        let seen = self.evidence.iter().map(|it| (it.database.as_str(), it.observations.as_slice()));
        pain.take(&self.seen, seen, now);
        let window = pain.window();
        if self.is_estimated {
            // No counter tells how much it is now, and a single window can be shorter than an operation.
            self.interval = SentinelInterval { duration_ns: window.duration_ns, counters: window.total };
        }
        for evidence in &mut self.evidence {
            evidence.window = window;
            evidence.sentinel = self.interval;
            evidence.observations = pain.observations(&evidence.database);
        }
    }
}
