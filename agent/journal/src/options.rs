//! Options that are set in targets: what they are now, what they were before, and whether they are still
//! wanted.
//!
//! A record is on disk before its option is set, and goes when the option is what it was before. So what an
//! agent that was killed has left is put back by the next one, where the hook has not done it already.

use super::action_log::Journal;
use super::batch::{Batch, Kind};
use super::event::{EventKind, OptionChange};
use super::state::State;
use serde::{Deserialize, Serialize};
use sexton_tuner::run::{ActionId, DatabaseIdentity, ProcessId};
use std::time::{Duration, Instant};

/// Options remembered: a few in each of some dozen column families of some dozen databases. Beyond that the
/// oldest goes whose database is not open in any process that is watched.
const OPTIONS_STORED_MAX: usize = 1_000;

/// Why an option of an earlier run is put back.
const LEFT_BEHIND: &str = "the agent that had set it has ended";

/// What is to become of an option that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It stays while the agent lives.
    Keep,
    /// It is put back as soon as it can be, for this reason.
    PutBack(&'static str),
}

impl Default for Wish {
    /// What was read from the disk is an earlier run's.
    fn default() -> Wish {
        Wish::PutBack(LEFT_BEHIND)
    }
}

/// An option that is set in a column family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionRecord {
    /// The action that set it.
    pub action_id: ActionId,
    pub target: String,
    /// Process that had the database open then.
    pub process: ProcessId,
    pub database: DatabaseIdentity,
    pub column_family: String,
    /// RocksDB's name of the option.
    pub name: String,
    pub value: String,
    pub restore: String,
    /// What is to become of it.
    #[serde(skip)]
    pub wish: Wish,
    /// When it was last tried to put it back.
    #[serde(skip)]
    pub tried: Option<Instant>,
}

impl OptionRecord {
    fn key(&self) -> String {
        let DatabaseIdentity { path, inode } = &self.database;
        format!("{inode}:{}:{}:{}", path.display(), self.column_family, self.name)
    }

    fn change_to(&self, value: &str) -> OptionChange {
        OptionChange {
            target: self.target.clone(),
            database: self.database.path.display().to_string(),
            column_family: self.column_family.clone(),
            name: self.name.clone(),
            value: value.to_owned(),
        }
    }

    /// Whether it was tried to put it back less than so long ago.
    pub fn rests(&self, interval: Duration) -> bool {
        self.tried.is_some_and(|tried| tried.elapsed() < interval)
    }

    /// Whether two records are of the same option of the same column family.
    fn is_same(&self, other: &OptionRecord) -> bool {
        self.database == other.database
            && self.column_family == other.column_family
            && self.name == other.name
    }
}

/// All options that are set.
#[derive(Debug, Default)]
pub struct Options {
    /// Oldest first.
    records: Vec<OptionRecord>,
}

impl Options {
    /// What an earlier run has left.
    pub fn load(state: &State) -> Options {
        let records: Vec<(String, OptionRecord)> = state.last(Kind::Option, OPTIONS_STORED_MAX);
        let mut records: Vec<OptionRecord> = records.into_iter().map(|(_, record)| record).collect();
        records.sort_by_key(|record| record.action_id);
        Options { records }
    }

    /// All of them, oldest first.
    pub fn records(&self) -> &[OptionRecord] {
        &self.records
    }

    /// Whether an option is set already: it is put back before it is set anew.
    pub fn has(&self, record: &OptionRecord) -> bool {
        self.records.iter().any(|known| known.is_same(record))
    }

    /// An option is about to be set that is not set yet. Gives what to write.
    pub fn add(&mut self, record: OptionRecord) -> Batch {
        let mut batch = Batch::default();
        batch.put(Kind::Option, &record.key(), &record);
        self.records.push(record);
        while self.records.len() > OPTIONS_STORED_MAX {
            let unwanted = self.records.iter().position(|record| record.wish != Wish::Keep);
            let oldest = self.records.remove(unwanted.unwrap_or(0));
            batch.delete(Kind::Option, &oldest.key());
        }
        batch
    }

    /// An option is what it was. Gives what to write.
    pub fn remove(&mut self, record: &OptionRecord) -> Batch {
        let mut batch = Batch::default();
        self.records.retain(|known| !known.is_same(record));
        batch.delete(Kind::Option, &record.key());
        batch
    }

    /// It was tried to put an option back, in vain.
    pub fn note_tried(&mut self, record: &OptionRecord) {
        let same = self.records.iter_mut().filter(|known| known.is_same(record));
        same.for_each(|record| record.tried = Some(Instant::now()));
    }

    /// Those that are kept and for which `is_it` holds are wanted no more, for this reason.
    pub fn unwant(&mut self, reason: &'static str, is_it: impl Fn(&OptionRecord) -> bool) {
        let kept = self.records.iter_mut().filter(|record| record.wish == Wish::Keep);
        kept.filter(|record| is_it(record)).for_each(|record| record.wish = Wish::PutBack(reason));
    }
}

impl Journal {
    /// Options that are set in targets, oldest first.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Emits that an option is set. That it would be is on disk since [`Journal::begin`].
    pub fn emit_option_set(&mut self, id: ActionId) {
        let mut records = self.options.records().iter();
        if let Some(record) = records.find(|record| record.action_id == id) {
            let change = record.change_to(&record.value);
            self.events.emit(EventKind::OptionsSet { change, restore: record.restore.clone() });
        }
    }

    /// Writes that an option is not set any more, and what it is now.
    pub fn end_option(&mut self, record: &OptionRecord, value: &str, reason: &str) {
        // It cannot be measured any more.
        self.give_up_pending(|action| action.id == record.action_id);
        let batch = self.options.remove(record);
        let (change, reason) = (record.change_to(value), reason.to_owned());
        self.events.emit_with(batch, EventKind::OptionsRestored { change, reason });
    }

    /// Writes that RocksDB did not take an option.
    pub fn forget_option(&mut self, id: ActionId) {
        let record = self.options.records().iter().find(|record| record.action_id == id);
        if let Some(record) = record.cloned() {
            let batch = self.options.remove(&record);
            self.events.append(batch);
        }
    }

    /// It was tried to put an option back, in vain.
    pub fn note_option_tried(&mut self, record: &OptionRecord) {
        self.options.note_tried(record);
    }

    /// Options for which `is_it` holds are not wanted any more.
    pub fn unwant_options(&mut self, reason: &'static str, is_it: impl Fn(&OptionRecord) -> bool) {
        self.options.unwant(reason, is_it);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    fn record(action_id: u64, name: &str, value: &str, restore: &str) -> OptionRecord {
        OptionRecord {
            action_id: ActionId(action_id),
            target: "java-1".into(),
            process: ProcessId { pid: 1, start_time_ticks: 1 },
            database: DatabaseIdentity { path: "/db".into(), inode: 7 },
            column_family: "keyTable".into(),
            name: name.into(),
            value: value.into(),
            restore: restore.into(),
            wish: Wish::Keep,
            tried: None,
        }
    }

    #[test]
    fn what_a_run_leaves_is_put_back_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let (mut state, _) = State::open(folder.path()).unwrap();
        let mut options = Options::default();
        state.append(options.add(record(1, "trigger", "1000", "0")));
        state.append(options.add(record(2, "other", "8", "0")));
        assert!(
            options.has(&record(3, "trigger", "2000", "1000")) && !options.has(&record(3, "third", "1", "0"))
        );
        state.append(options.remove(&record(4, "other", "8", "0")));

        let loaded = Options::load(&state);
        let [left] = loaded.records() else { panic!("{:?}", loaded.records()) };
        assert_eq!((left.value.as_str(), left.restore.as_str()), ("1000", "0"));
        assert_eq!(left.wish, Wish::PutBack(LEFT_BEHIND));
        assert_eq!(options.records().first().unwrap().wish, Wish::Keep);
    }

    #[test]
    fn the_first_reason_not_to_want_an_option_stays() {
        let mut options = Options::default();
        options.add(record(1, "trigger", "1000", "0"));
        options.add(record(2, "other", "8", "0"));
        options.unwant("it did not help", |record| record.action_id == ActionId(2));
        options.unwant("the agent ends", |_| true);
        let wishes: Vec<Wish> = options.records().iter().map(|record| record.wish).collect();
        assert_eq!(wishes, [Wish::PutBack("the agent ends"), Wish::PutBack("it did not help")]);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_wanted_ones_stay() {
        let mut options = Options::default();
        options.add(record(0, "wanted", "1", "0"));
        for number in 1..OPTIONS_STORED_MAX as u64 + 10 {
            let mut left = record(number, &format!("option{number}"), "1", "0");
            left.wish = Wish::default();
            options.add(left);
        }
        assert_eq!(options.records().len(), OPTIONS_STORED_MAX);
        assert_eq!(options.records().first().unwrap().name, "wanted");
    }
}
