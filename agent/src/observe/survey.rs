//! Which of its files a target's next plan looks at, where the ranker goes by files alone.

use super::roster::Roster;
use jiff::Timestamp;
use sexton_inspect::facts::DatabaseDirectory;
use sexton_journal::Journal;
use sexton_tuner::policy::Policy;
use std::path::Path;

/// Lets the survey of each target with new evidence go on, and writes down where it stands.
pub fn survey(roster: &mut Roster, journal: &mut Journal, policy: &Policy, now: Timestamp) {
    let is_surveyed = !policy.ranker.needs_readers();
    let interval = policy.timing.survey.duration();
    for watched in roster.watched.iter_mut().filter(|watched| watched.is_fresh) {
        for evidence in &mut watched.evidence {
            evidence.surveyed = None;
            let path = Path::new(&evidence.database);
            let database = watched.target.databases.iter().find(|database| database.path == path);
            let Some(database) = database.filter(|_| is_surveyed).map(DatabaseDirectory::identity) else {
                continue;
            };
            let stored = || journal.cursor_of(&database).unwrap_or_default();
            let cursor = watched.cursors.entry(database.clone()).or_insert_with(stored);
            evidence.surveyed = Some(cursor.advance(&evidence.files, interval, now));
            journal.keep_cursor(&database, cursor);
        }
        let open: Vec<_> = watched.target.databases.iter().map(DatabaseDirectory::identity).collect();
        watched.cursors.retain(|database, _| open.contains(database));
    }
}
