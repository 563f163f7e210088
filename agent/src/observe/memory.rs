//! What windows have seen of a target is remembered from one plan to the next, and from one run to the next.

use super::roster::Roster;
use super::watched::{Watched, databases};
use jiff::Timestamp;
use sexton_journal::Journal;
use sexton_tuner::run::{Ledger, Moment};
use std::time::{Duration, Instant};

/// How often what is remembered of a target is written: what a killed agent loses of it has half faded in
/// twice that time.
const KEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Adds what the last windows have seen to what was seen before: plans are made of both. After an action on a
/// target only what was seen since counts.
pub fn remember(roster: &mut Roster, journal: &mut Journal, ledger: &Ledger, now: Moment) {
    for watched in roster.watched.iter_mut().filter(|watched| watched.is_fresh) {
        let name = &watched.target.name;
        // Throttles are set in no place, and change no tombstone.
        let of_target = ledger.actions().filter(|it| it.kind.target() == name && it.place.is_some());
        let done = of_target.filter_map(|action| Some(action.state.end()?.at.at)).max();
        if watched.pain.is_none() {
            watched.pain = Some(journal.pain_of(&databases(watched)).unwrap_or_default());
        }
        watched.remember(done, now.at);
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

impl Watched {
    /// Takes the last window into the ledger, and makes evidence of all that is in it. `done`: when the last
    /// action on the target ended.
    fn remember(&mut self, done: Option<Timestamp>, now: Timestamp) {
        let Some(pain) = &mut self.pain else { return };
        let is_over = |taken: Timestamp| done.is_some_and(|done| taken <= done);
        if pain.last_taken().is_some_and(is_over) {
            pain.begin_anew();
        }
        let seen = self.evidence.iter().map(|it| (it.database.as_str(), it.observations.as_slice()));
        pain.take(&self.seen, seen, now);
        for evidence in &mut self.evidence {
            evidence.window = pain.window();
            evidence.observations = pain.observations(&evidence.database);
        }
    }
}
