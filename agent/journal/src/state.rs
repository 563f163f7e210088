//! What is on disk, and what happens when it cannot be written.
//!
//! There are two ways to write. [`State::write_ahead`] is for what must be on disk before it is done: it is
//! synced, and when it fails nothing of it stays and nothing may be done. [`State::append`] is for what has
//! happened already: when it cannot be written it waits in memory until it can.

use super::batch::{Batch, Kind};
use super::directory::StateDirectory;
use super::error::JournalError;
use super::store::{Store, StoreError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Batches that wait in memory for a disk that cannot be written. No action begins meanwhile, so that they
/// are the ends of those that ran and what was said: hours of it. Beyond that the newest are not kept.
const WAITING_MAX: usize = 10_000;

/// Pause between two tries to open a store that could not be written: opening it anew writes some files.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The state, on disk where there is a place for it.
pub struct State {
    directory: Option<StateDirectory>,
    store: Option<Store>,
    trouble: Option<Trouble>,
    waiting: VecDeque<Batch>,
    /// Batches that there was no room for in memory either.
    lost: u64,
}

/// Why nothing can be written now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: String,
    /// Whether it is want of room.
    pub is_full: bool,
    /// When it was last tried.
    tried: Instant,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// A corrupt store that was moved here, and what was wrong with it.
    pub set_aside: Option<(PathBuf, String)>,
}

/// What came of writing again after trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Batches that had waited and are written now.
    pub written: usize,
    /// Batches that could not be kept in memory.
    pub lost: u64,
}

impl State {
    /// No state: everything is forgotten with the agent.
    pub fn nowhere() -> State {
        State { directory: None, store: None, trouble: None, waiting: VecDeque::new(), lost: 0 }
    }

    /// Takes the directory and opens the store in it. A corrupt store is set aside; on a full disk the state
    /// opens in trouble, and is tried again.
    ///
    /// # Errors
    /// [`JournalError`]: the directory cannot be had, a newer agent wrote it, or it cannot be opened.
    pub fn open(path: &Path) -> Result<(State, Opened), JournalError> {
        let directory = StateDirectory::take(path)?;
        let mut opened = Opened::default();
        let mut result = open_and_read(&directory);
        if let Err(StoreError::Corrupt(reason)) = &result {
            let aside = directory.set_aside(reason, jiff::Timestamp::now().as_second())?;
            opened.set_aside = Some((aside, reason.clone()));
            result = open_and_read(&directory);
        }
        let mut state = State { directory: Some(directory), ..State::nowhere() };
        let path = path.to_owned();
        match result {
            Ok(store) => state.store = Some(store),
            Err(StoreError::Full(reason)) => state.get_into_trouble(reason, true),
            Err(StoreError::Newer(found)) => return Err(JournalError::Newer { path, found }),
            Err(StoreError::Corrupt(reason) | StoreError::Other(reason)) => {
                return Err(JournalError::Open { path, reason });
            }
        }
        Ok((state, opened))
    }

    /// The directory, where there is one.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(StateDirectory::path)
    }

    /// Why nothing can be written now; `None` also where there is nothing to write to.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Batches that wait for a disk that can be written.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The last `count_max` records of a kind, last first, with their names; none where nothing can be read.
    /// One that is none of its kind any more is left out.
    pub fn last<T: DeserializeOwned>(&self, kind: Kind, count_max: usize) -> Vec<(String, T)> {
        let records: Vec<(String, Value)> =
            self.read(|store| store.last(kind, count_max)).unwrap_or_default();
        let parsed = records.into_iter().filter_map(|(name, value)| {
            let read = serde_json::from_value(value);
            let read = read.inspect_err(|error| tracing::error!(?kind, name, %error, "a record is left out"));
            Some((name, read.ok()?))
        });
        parsed.collect()
    }

    pub fn get<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Option<T> {
        self.read(|store| store.get(kind, name)).flatten()
    }

    fn read<T>(&self, read: impl FnOnce(&Store) -> Result<T, StoreError>) -> Option<T> {
        let result = read(self.store.as_ref()?);
        if let Err(error) = &result {
            tracing::error!(?error, "the state cannot be read: what is in it is not known to this agent");
        }
        result.ok()
    }

    /// Writes what must be on disk before it is done.
    ///
    /// # Errors
    /// [`JournalError::Write`]: nothing may be done, and nothing of the batch will ever show.
    pub fn write_ahead(&mut self, batch: &Batch) -> Result<(), JournalError> {
        if self.directory.is_none() {
            return Ok(());
        }
        if let Some(trouble) = &self.trouble {
            return Err(JournalError::Write { reason: trouble.reason.clone() });
        }
        let Err(reason) = self.write(batch, true) else { return Ok(()) };
        // It may have reached the log all the same, and must not be read back from there.
        self.wait(batch.undone());
        Err(JournalError::Write { reason })
    }

    /// Writes what has happened. Where that is not possible now it is written when it is.
    pub fn append(&mut self, batch: Batch) {
        if self.directory.is_none() || batch.writes.is_empty() {
            return;
        }
        if self.trouble.is_some() || self.write(&batch, false).is_err() {
            self.wait(batch);
        }
    }

    /// After trouble: tries again, in due time; gives what came of it once the store can be written.
    pub fn retry(&mut self) -> Option<Recovered> {
        let is_due = self.trouble.as_ref().is_some_and(|trouble| trouble.tried.elapsed() >= RETRY_INTERVAL);
        let directory = self.directory.as_ref().filter(|_| is_due)?;
        // An error in the background stays with a RocksDB until it is opened anew.
        self.store = None;
        match Store::open(&directory.store()) {
            Ok(store) => self.store = Some(store),
            Err(StoreError::Full(reason)) => return self.stay_in_trouble(reason, true),
            Err(StoreError::Newer(found)) => {
                return self.stay_in_trouble(format!("it has schema version {found} now"), false);
            }
            Err(StoreError::Corrupt(reason) | StoreError::Other(reason)) => {
                return self.stay_in_trouble(reason, false);
            }
        }
        self.trouble = None;
        let mut written = 0;
        while let Some(batch) = self.waiting.front().cloned() {
            // The last one is synced, and with it all before it.
            let is_last = self.waiting.len() == 1;
            self.write(&batch, is_last).ok()?;
            self.waiting.pop_front();
            written += 1;
        }
        Some(Recovered { written, lost: std::mem::take(&mut self.lost) })
    }

    fn stay_in_trouble(&mut self, reason: String, is_full: bool) -> Option<Recovered> {
        self.get_into_trouble(reason, is_full);
        None
    }

    fn get_into_trouble(&mut self, reason: String, is_full: bool) {
        self.trouble = Some(Trouble { reason, is_full, tried: Instant::now() });
    }

    /// The error is why not; the state is in trouble from then on.
    fn write(&mut self, batch: &Batch, durable: bool) -> Result<(), String> {
        let store = self.store.as_ref().ok_or_else(|| "it is not open".to_owned())?;
        store.write(batch, durable).map_err(|error| {
            let (reason, is_full) = match error {
                StoreError::Full(reason) => (reason, true),
                StoreError::Corrupt(reason) | StoreError::Other(reason) => (reason, false),
                StoreError::Newer(found) => (format!("it has schema version {found} now"), false),
            };
            self.get_into_trouble(reason.clone(), is_full);
            reason
        })
    }

    fn wait(&mut self, batch: Batch) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(batch);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }
}

/// Opens the store and reads all of it once: damage shows now, while beginning anew is still possible.
fn open_and_read(directory: &StateDirectory) -> Result<Store, StoreError> {
    let store = Store::open(&directory.store())?;
    for kind in [Kind::Action, Kind::Event, Kind::Throttle, Kind::Sample, Kind::Setting] {
        store.last::<serde::de::IgnoredAny>(kind, usize::MAX)?;
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::super::batch::numbered;
    use super::super::store::SCHEMA_VERSION;
    use super::*;

    fn batch(number: u64) -> Batch {
        let mut batch = Batch::default();
        batch.put(Kind::Action, &numbered(number), &number);
        batch
    }

    fn numbers(state: &State) -> Vec<u64> {
        state.last(Kind::Action, 100).into_iter().map(|(_, number)| number).collect()
    }

    /// A state that finds its disk full from now on.
    fn in_trouble(state: &mut State) {
        let tried = Instant::now().checked_sub(RETRY_INTERVAL).unwrap();
        state.trouble = Some(Trouble { reason: "No space left on device".into(), is_full: true, tried });
    }

    #[test]
    fn nowhere_takes_everything_and_keeps_nothing() {
        let mut state = State::nowhere();
        state.write_ahead(&batch(1)).unwrap();
        state.append(batch(2));
        assert!(numbers(&state).is_empty() && state.waiting() == 0 && state.retry().is_none());
    }

    #[test]
    fn in_trouble_write_ahead_fails_and_appended_batches_wait() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, opened) = State::open(folder.path()).unwrap();
        assert_eq!(opened, Opened::default());
        state.write_ahead(&batch(1)).unwrap();
        in_trouble(&mut state);
        assert!(matches!(state.write_ahead(&batch(2)), Err(JournalError::Write { .. })));
        state.append(batch(3));
        assert_eq!((numbers(&state), state.waiting()), (vec![1], 1));
        assert_eq!(state.retry(), Some(Recovered { written: 1, lost: 0 }));
        assert_eq!(numbers(&state), [3, 1]);
        assert!(state.trouble().is_none() && state.retry().is_none());
        drop(state);
        assert_eq!(numbers(&State::open(folder.path()).unwrap().0), [3, 1]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = State::open(folder.path()).unwrap();
        in_trouble(&mut state);
        for number in 0..WAITING_MAX as u64 + 5 {
            state.append(batch(number));
        }
        assert_eq!(state.waiting(), WAITING_MAX);
        assert_eq!(state.retry(), Some(Recovered { written: WAITING_MAX, lost: 5 }));
    }

    #[test]
    fn a_corrupt_store_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = State::open(folder.path()).unwrap();
        state.write_ahead(&batch(1)).unwrap();
        drop(state);
        std::fs::write(folder.path().join("store/CURRENT"), "MANIFEST-none\n").unwrap();
        let (state, opened) = State::open(folder.path()).unwrap();
        assert!(numbers(&state).is_empty());
        let (aside, reason) = opened.set_aside.unwrap();
        assert!(aside.join("CURRENT").is_file() && !reason.is_empty());
    }

    #[test]
    fn a_newer_store_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = State::open(folder.path()).unwrap();
        let mut newer = Batch::default();
        newer.put(Kind::Agent, "schema", &(SCHEMA_VERSION + 1));
        state.write_ahead(&newer).unwrap();
        drop(state);
        let error = State::open(folder.path()).err().unwrap();
        assert!(matches!(error, JournalError::Newer { found, .. } if found == SCHEMA_VERSION + 1), "{error}");
    }
}
