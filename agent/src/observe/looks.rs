//! What looks at the databases of one target have told.

use crate::session::{SIGHTING_LIMIT, Sighted};
use sexton_tuner::advice::{Advice, History, advise};
use sexton_tuner::evidence::{Counters, Evidence};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Databases of one target that are followed. Each takes some kilobytes, and a look some tens of milliseconds
/// of a processor; what embeds more of them uses them alike.
const DATABASES_MAX: usize = 64;

/// What the looks at the databases of one target have told.
#[derive(Default)]
pub struct Looks {
    databases: BTreeMap<PathBuf, Looked>,
    /// Since when one is under way.
    pub under_way: Option<Instant>,
}

#[derive(Default)]
struct Looked {
    asked: Option<Instant>,
    history: History,
    advice: Vec<Advice>,
}

impl Looks {
    /// The database whose look is due, that was not looked at for longest.
    pub fn due(&mut self, open: &[PathBuf], interval: Duration, now: Instant) -> Option<PathBuf> {
        self.databases.retain(|path, _| open.contains(path));
        if self.under_way.is_some_and(|since| now < since + SIGHTING_LIMIT * 2) {
            return None;
        }
        for path in open {
            if self.databases.len() < DATABASES_MAX && !self.databases.contains_key(path) {
                self.databases.insert(path.clone(), Looked::default());
            }
        }
        let is_due = |looked: &Looked| looked.asked.is_none_or(|asked| now >= asked + interval);
        let due = self.databases.iter_mut().filter(|(_, looked)| is_due(looked));
        let (path, looked) = due.min_by_key(|(_, looked)| looked.asked)?;
        looked.asked = Some(now);
        self.under_way = Some(now);
        Some(path.clone())
    }

    /// Takes in a look at a database of `target`, and what its readers have counted until then.
    pub fn take(&mut self, target: &str, sighted: Option<Sighted>, readers: Option<Counters>) {
        self.under_way = None;
        let Some(Sighted { database, mut sighting, .. }) = sighted else { return };
        let Some(looked) = self.databases.get_mut(&database) else { return };
        sighting.readers = readers;
        looked.history.take(&sighting);
        looked.advice = advise(target, &database.display().to_string(), &looked.history);
    }

    /// Takes in what a window has seen of a database.
    pub fn take_window(&mut self, evidence: &Evidence) {
        if let Some(looked) = self.databases.get_mut(Path::new(&evidence.database)) {
            looked.history.take_window(evidence);
        }
    }

    /// What there is to say now.
    pub fn advice(&self) -> impl Iterator<Item = &Advice> {
        self.databases.values().flat_map(|looked| &looked.advice)
    }
}
