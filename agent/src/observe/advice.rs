//! Has the databases of the targets looked at, one at a time.

use super::Observer;
use crate::session::{Answer, SIGHTING_LIMIT, Session, Sighted};
use sexton_inspect::facts::TargetId;
use sexton_probe::{SentinelReading, TotalsBy};
use sexton_tuner::evidence::Counters;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

/// A database is looked at again after so many cycles: a minute, where nobody says otherwise. In that time a
/// busy database flushes a few files.
const CYCLES_BETWEEN: u32 = 12;

impl Observer {
    /// Has the databases looked at whose turn it is. A session that acts, or reads what a window saw, is left
    /// alone.
    pub fn ask_sightings(&mut self, acted_on: &[TargetId]) {
        let interval = self.policy.timing.interval.duration() * CYCLES_BETWEEN;
        let now = Instant::now();
        for watched in &mut self.roster.watched {
            let is_busy = watched.awaits_evidence || acted_on.contains(&watched.target.id);
            if is_busy || watched.worker.trouble().is_some() {
                continue;
            }
            let written = watched.target.databases.iter().filter(|database| !database.is_read_only);
            let open: Vec<PathBuf> = written.map(|database| database.path.clone()).collect();
            let Some(path) = watched.looks.due(&open, interval, now) else { continue };
            let sight = move |session: &mut Session| Answer::Sighted(session.sight(&path).map(Box::new));
            if !watched.ask(&self.post, "looking at a database", SIGHTING_LIMIT, sight) {
                watched.looks.under_way = None;
            }
        }
    }

    /// Takes in a look at a database.
    pub fn take_sighted(&mut self, id: TargetId, sighted: Option<Box<Sighted>>) {
        let Some(watched) = self.roster.get_mut(id) else { return };
        let readers = sighted.as_ref().and_then(|it| readers(&watched.last, &it.background_threads));
        watched.looks.take(&watched.target.name, sighted.map(|sighted| *sighted), readers);
    }
}

/// What readers have counted so far; `None` where the counters of no thread move.
fn readers(reading: &SentinelReading, background: &HashSet<u32>) -> Option<Counters> {
    let counts = reading.totals_by == TotalsBy::Sentinel && reading.perf_level.is_none_or(|level| level > 1);
    counts.then(|| reading.total_without(background))
}
