//! The event log: what is emitted goes to the state, the log, the event file and the API. All that is written
//! to the state goes through here, so that a record and its event are on disk together or not at all.

use super::batch::{Batch, Kind, numbered};
use super::error::JournalError;
use super::event::{Event, EventKind};
use super::event_file::EventFile;
use super::state::State;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use tracing::{info, warn};

/// Events published: who asks every few seconds misses none, and a page of them is not long.
pub const EVENTS_PUBLISHED_MAX: usize = 256;

/// Events kept in the state: some days of a busy agent. The audit file keeps them longer.
const EVENTS_STORED_MAX: u64 = 10_000;

/// The state, and the events in it.
pub struct EventLog {
    state: State,
    file: Option<EventFile>,
    /// The newest, last.
    events: VecDeque<Event>,
    /// How often each was emitted since the start.
    counts: BTreeMap<&'static str, u64>,
    last_id: u64,
    /// Whether the events of earlier runs were taken over; not so where the state could not be opened yet.
    is_loaded: bool,
    is_trouble_emitted: bool,
}

impl EventLog {
    /// Opens the state in `directory`; events go to `audit_log`, or to a file in that directory.
    ///
    /// # Errors
    /// When the state or the file cannot be used.
    pub fn open(directory: Option<&Path>, audit_log: Option<&Path>) -> Result<EventLog, JournalError> {
        let (state, opened) = match directory {
            Some(directory) => State::open(directory)?,
            None => (State::nowhere(), Default::default()),
        };
        let in_directory = directory.map(|directory| directory.join("audit.jsonl"));
        let path = audit_log.map(Path::to_owned).or(in_directory);
        let file = path
            .map(|path| EventFile::open(&path).map_err(|source| JournalError::EventFile { path, source }));
        let file = file.transpose()?;
        let mut log = EventLog {
            last_id: file.as_ref().map_or(0, EventFile::last_id),
            state,
            file,
            events: VecDeque::new(),
            counts: BTreeMap::new(),
            is_loaded: false,
            is_trouble_emitted: false,
        };
        log.load();
        if let Some((path, reason)) = opened.set_aside {
            log.emit(EventKind::StateSetAside { path: path.display().to_string(), reason });
        }
        log.notice_trouble();
        Ok(log)
    }

    /// Takes over the events of earlier runs. What an agent that was killed had no time to write to the file
    /// is written now.
    fn load(&mut self) {
        if self.is_loaded || self.state.trouble().is_some() {
            return;
        }
        self.is_loaded = true;
        let events: Vec<(String, Event)> = self.state.last(Kind::Event, EVENTS_STORED_MAX as usize);
        let events: Vec<Event> = events.into_iter().rev().map(|(_, event)| event).collect();
        if let Some(file) = &mut self.file {
            let last_id = file.last_id();
            events.iter().filter(|event| event.id > last_id).for_each(|event| file.append(event));
        }
        let last_id = events.last().map_or(0, |event| event.id);
        self.last_id = self.last_id.max(last_id);
        let emitted_already = std::mem::take(&mut self.events);
        let excess = events.len().saturating_sub(EVENTS_PUBLISHED_MAX);
        self.events = events.into_iter().skip(excess).chain(emitted_already).collect();
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The newest events, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.events.iter().cloned().collect()
    }

    /// How often each event was emitted since the start, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let count = |name: &&'static str| self.counts.get(*name).copied().unwrap_or(0);
        EventKind::NAMES.iter().map(|name| ((*name).to_owned(), count(name))).collect()
    }

    pub fn emit(&mut self, kind: EventKind) {
        self.emit_with(Batch::default(), kind);
    }

    /// Writes what has happened, and emits an event of it.
    pub fn emit_with(&mut self, mut batch: Batch, kind: EventKind) {
        let event = self.stamp(kind, &mut batch);
        self.state.append(batch);
        self.publish(event);
        self.notice_trouble();
    }

    pub fn append(&mut self, batch: Batch) {
        self.state.append(batch);
        self.notice_trouble();
    }

    /// Writes what must be on disk before it is done, and emits an event of it, where there is one.
    pub fn write_ahead(&mut self, mut batch: Batch, kind: Option<EventKind>) -> Result<(), JournalError> {
        let last_id = self.last_id;
        let event = kind.map(|kind| self.stamp(kind, &mut batch));
        if let Err(error) = self.state.write_ahead(&batch) {
            // Its number was never seen.
            self.last_id = last_id;
            self.notice_trouble();
            return Err(error);
        }
        if let Some(event) = event {
            self.publish(event);
        }
        Ok(())
    }

    /// Tries again where the state could not be written; gives whether it can be from now on.
    pub fn retry(&mut self) -> bool {
        if let Some(file) = &mut self.file {
            file.flush();
        }
        let Some(recovered) = self.state.retry() else {
            self.notice_trouble();
            return false;
        };
        self.is_trouble_emitted = false;
        self.load();
        self.emit(EventKind::StateRecovered { written: recovered.written, lost: recovered.lost });
        true
    }

    fn stamp(&mut self, kind: EventKind, batch: &mut Batch) -> Event {
        self.last_id += 1;
        let event = Event { id: self.last_id, at: jiff::Timestamp::now().to_string(), kind };
        batch.put(Kind::Event, &numbered(event.id), &event);
        if let Some(oldest) = event.id.checked_sub(EVENTS_STORED_MAX) {
            batch.delete(Kind::Event, &numbered(oldest));
        }
        event
    }

    fn publish(&mut self, event: Event) {
        let name = event.kind.name();
        if event.kind.is_trouble() {
            warn!(event = name, id = event.id, "{}", event.kind);
        } else {
            info!(event = name, id = event.id, "{}", event.kind);
        }
        *self.counts.entry(name).or_default() += 1;
        if let Some(file) = &mut self.file {
            file.append(&event);
        }
        if self.events.len() >= EVENTS_PUBLISHED_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn notice_trouble(&mut self) {
        let Some(trouble) = self.state.trouble() else { return };
        if std::mem::replace(&mut self.is_trouble_emitted, true) {
            return;
        }
        let reason = trouble.reason.clone();
        let is_full = trouble.is_full;
        self.emit(match is_full {
            true => EventKind::StateFull { reason },
            false => EventKind::StateUnwritable { reason },
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn event(number: usize) -> EventKind {
        EventKind::StateRecovered { written: number, lost: 0 }
    }

    fn ids(path: &Path) -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str::<Event>(line).unwrap().id).collect()
    }

    #[test]
    fn counting_goes_on_and_events_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = EventLog::open(Some(folder.path()), None).unwrap();
        (1..=3).for_each(|number| first.emit(event(number)));
        drop(first);
        let mut second = EventLog::open(Some(folder.path()), None).unwrap();
        second.emit(event(4));
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
        let mut first = EventLog::open(Some(folder.path()), None).unwrap();
        first.emit(event(1));
        first.file = None;
        (2..=3).for_each(|number| first.emit(event(number)));
        drop(first);
        assert_eq!(ids(&path), [1]);
        drop(EventLog::open(Some(folder.path()), None).unwrap());
        assert_eq!(ids(&path), [1, 2, 3]);
    }

    #[test]
    fn events_in_memory_and_in_the_state_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = EventLog::open(Some(folder.path()), None).unwrap();
        let count = EVENTS_STORED_MAX as usize + 50;
        (0..count).for_each(|number| log.emit(event(number)));
        assert_eq!(log.events().len(), EVENTS_PUBLISHED_MAX);
        let stored: Vec<(String, Event)> = log.state().last(Kind::Event, usize::MAX);
        assert_eq!(stored.len() as u64, EVENTS_STORED_MAX);
    }

    #[test]
    fn without_a_directory_there_can_still_be_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let mut log = EventLog::open(None, Some(&path)).unwrap();
        log.write_ahead(Batch::default(), Some(event(1))).unwrap();
        assert_eq!(ids(&path), [1]);
    }
}
