//! What is told, to whom: the state, the log, the audit file, the API. All that is written to the state goes through
//! here, so that a record and the event that tells of it are on disk together or not at all.

use crate::audit::{AuditLog, Event, What};
use crate::failure::Failure;
use crate::snapshot::EVENTS_PUBLISHED_MAX;
use crate::state::{Batch, Kind, State, StateError, numbered};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use tracing::{info, warn};

/// Events kept in the state: some days of a busy agent. The audit file keeps them longer.
const EVENTS_STORED_MAX: u64 = 10_000;

/// The state and everything that was told.
pub struct Chronicle {
    state: State,
    audit: Option<AuditLog>,
    /// The newest, last.
    events: VecDeque<Event>,
    /// How often each was told since the start.
    counts: BTreeMap<&'static str, u64>,
    last_event_id: u64,
    /// Whether what earlier runs told was taken over; not so where the state could not be opened yet.
    is_loaded: bool,
    /// Whether it was told that the state cannot be written.
    is_trouble_told: bool,
}

impl Chronicle {
    /// Opens the state in `directory`; events go to `audit_log`, or to a file in that directory.
    ///
    /// # Errors
    /// When the state or the file cannot be used.
    pub fn open(directory: Option<&Path>, audit_log: Option<&Path>) -> Result<Chronicle, Failure> {
        let (state, opened) = match directory {
            Some(directory) => State::open(directory)?,
            None => (State::nowhere(), Default::default()),
        };
        let in_directory = directory.map(|directory| directory.join("audit.jsonl"));
        let path = audit_log.map(Path::to_owned).or(in_directory);
        let audit = path.map(|path| {
            AuditLog::open(&path).map_err(|error| {
                let cause = format!("cannot write the audit log {}: {error}", path.display());
                Failure::new(cause, "name another file with --audit-log")
            })
        });
        let mut chronicle = Chronicle::of(state, audit.transpose()?);
        chronicle.load();
        if let Some((path, reason)) = opened.set_aside {
            chronicle.tell(What::StateSetAside { path: path.display().to_string(), reason });
        }
        chronicle.notice_trouble();
        Ok(chronicle)
    }

    fn of(state: State, audit: Option<AuditLog>) -> Chronicle {
        Chronicle {
            state,
            last_event_id: audit.as_ref().map_or(0, AuditLog::last_id),
            audit,
            events: VecDeque::new(),
            counts: BTreeMap::new(),
            is_loaded: false,
            is_trouble_told: false,
        }
    }

    /// Takes over what earlier runs told. What an agent that was killed had no time to write to the file is
    /// written now.
    fn load(&mut self) {
        if self.is_loaded || self.state.trouble().is_some() {
            return;
        }
        self.is_loaded = true;
        let events: Vec<(String, Event)> = self.state.last(Kind::Event, EVENTS_STORED_MAX as usize);
        let events: Vec<Event> = events.into_iter().rev().map(|(_, event)| event).collect();
        if let Some(audit) = &mut self.audit {
            let last_id = audit.last_id();
            events.iter().filter(|event| event.id > last_id).for_each(|event| audit.append(event));
        }
        let last_id = events.last().map_or(0, |event| event.id);
        self.last_event_id = self.last_event_id.max(last_id);
        let told_already = std::mem::take(&mut self.events);
        let excess = events.len().saturating_sub(EVENTS_PUBLISHED_MAX);
        self.events = events.into_iter().skip(excess).chain(told_already).collect();
    }

    /// The state, for reading.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The newest events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.events.iter().cloned().collect()
    }

    /// How often each event was told since the start, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let count = |name: &&'static str| self.counts.get(*name).copied().unwrap_or(0);
        What::NAMES.iter().map(|name| ((*name).to_owned(), count(name))).collect()
    }

    /// Tells of something.
    pub fn tell(&mut self, what: What) {
        self.tell_with(Batch::default(), what);
    }

    /// Writes what has happened, and tells of it.
    pub fn tell_with(&mut self, mut batch: Batch, what: What) {
        let event = self.stamp(what, &mut batch);
        self.state.record(batch);
        self.publish(event);
        self.notice_trouble();
    }

    /// Writes what has happened; nobody has to be told.
    pub fn record(&mut self, batch: Batch) {
        self.state.record(batch);
        self.notice_trouble();
    }

    /// Writes what must be on disk before a deed, and tells of it.
    ///
    /// # Errors
    /// As [`State::intend`].
    pub fn intend(&mut self, mut batch: Batch, what: What) -> Result<(), StateError> {
        let event = self.stamp(what, &mut batch);
        if let Err(error) = self.state.intend(&batch) {
            // Its number was never seen.
            self.last_event_id = event.id - 1;
            self.notice_trouble();
            return Err(error);
        }
        self.publish(event);
        Ok(())
    }

    /// Tries again where the state could not be written; gives whether it can be from now on.
    pub fn retry(&mut self) -> bool {
        if let Some(audit) = &mut self.audit {
            audit.flush();
        }
        let Some(recovered) = self.state.retry() else {
            self.notice_trouble();
            return false;
        };
        self.is_trouble_told = false;
        self.load();
        self.tell(What::StateRecovered { written: recovered.written, lost: recovered.lost });
        true
    }

    fn stamp(&mut self, what: What, batch: &mut Batch) -> Event {
        self.last_event_id += 1;
        let event = Event { id: self.last_event_id, at: jiff::Timestamp::now().to_string(), what };
        batch.put(Kind::Event, &numbered(event.id), &event);
        if let Some(oldest) = event.id.checked_sub(EVENTS_STORED_MAX) {
            batch.remove(Kind::Event, &numbered(oldest));
        }
        event
    }

    fn publish(&mut self, event: Event) {
        let name = event.what.name();
        if event.what.is_trouble() {
            warn!(event = name, id = event.id, "{}", event.what);
        } else {
            info!(event = name, id = event.id, "{}", event.what);
        }
        *self.counts.entry(name).or_default() += 1;
        if let Some(audit) = &mut self.audit {
            audit.append(&event);
        }
        if self.events.len() >= EVENTS_PUBLISHED_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn notice_trouble(&mut self) {
        let Some(trouble) = self.state.trouble() else { return };
        if std::mem::replace(&mut self.is_trouble_told, true) {
            return;
        }
        let reason = trouble.reason.clone();
        let what =
            if trouble.is_full { What::StateFull { reason } } else { What::StateUnwritable { reason } };
        self.tell(what);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn told(number: usize) -> What {
        What::StateRecovered { written: number, lost: 0 }
    }

    fn ids(path: &Path) -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str::<Event>(line).unwrap().id).collect()
    }

    #[test]
    fn counting_goes_on_and_events_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Chronicle::open(Some(folder.path()), None).unwrap();
        (1..=3).for_each(|number| first.tell(told(number)));
        drop(first);
        let mut second = Chronicle::open(Some(folder.path()), None).unwrap();
        second.tell(told(4));
        let events: Vec<u64> = second.events().iter().map(|event| event.id).collect();
        assert_eq!(events, [1, 2, 3, 4]);
        assert_eq!(ids(&folder.path().join("audit.jsonl")), [1, 2, 3, 4]);
        assert_eq!(second.counts().get("state_recovered"), Some(&1), "counts are of this run");
    }

    /// An agent that is killed between the state and the file: the next one writes what the file lacks.
    #[test]
    fn the_file_gets_what_only_the_state_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut first = Chronicle::open(Some(folder.path()), None).unwrap();
        first.tell(told(1));
        first.audit = None;
        (2..=3).for_each(|number| first.tell(told(number)));
        drop(first);
        assert_eq!(ids(&path), [1]);
        drop(Chronicle::open(Some(folder.path()), None).unwrap());
        assert_eq!(ids(&path), [1, 2, 3]);
    }

    #[test]
    fn events_in_memory_and_in_the_state_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut chronicle = Chronicle::open(Some(folder.path()), None).unwrap();
        let count = EVENTS_STORED_MAX as usize + 50;
        (0..count).for_each(|number| chronicle.tell(told(number)));
        assert_eq!(chronicle.events().len(), EVENTS_PUBLISHED_MAX);
        let stored: Vec<(String, Event)> = chronicle.state().last(Kind::Event, usize::MAX);
        assert_eq!(stored.len() as u64, EVENTS_STORED_MAX);
    }

    #[test]
    fn without_a_directory_there_can_still_be_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let mut chronicle = Chronicle::open(None, Some(&path)).unwrap();
        chronicle.intend(Batch::default(), told(1)).unwrap();
        assert_eq!(ids(&path), [1]);
    }
}
