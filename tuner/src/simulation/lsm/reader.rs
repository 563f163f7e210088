//! Readers that walk over a tree and count as RocksDB's `DBIter` and `MergingIterator` do.

use super::entry::{Entry, Kind, Place, RangeTombstone, SEQUENCE_MAX};
use super::tombstones::Fragments;
use super::tree::Tree;
use std::cmp::Reverse;
use std::sync::Arc;

/// `max_sequential_skip_in_iterations`: after so many versions of one key an iterator seeks to the next.
const SEQUENTIAL_SKIPS_MAX: u64 = 8;

/// What a reader met, under the names of RocksDB's `PerfContext`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `internal_delete_skipped_count`.
    pub deletes_skipped: u64,
    /// `internal_key_skipped_count`.
    pub keys_skipped: u64,
    /// `internal_recent_skipped_count`.
    pub recent_skipped: u64,
    /// `internal_merge_count`.
    pub merges: u64,
    /// `internal_range_del_reseek_count`, but that a range tombstone counts once, whatever levels it covers.
    pub range_del_reseeks: u64,
}

impl Counts {
    pub fn minus(self, other: Counts) -> Counts {
        Counts {
            deletes_skipped: self.deletes_skipped - other.deletes_skipped,
            keys_skipped: self.keys_skipped - other.keys_skipped,
            recent_skipped: self.recent_skipped - other.recent_skipped,
            merges: self.merges - other.merges,
            range_del_reseeks: self.range_del_reseeks - other.range_del_reseeks,
        }
    }
}

/// A tree as it was at one moment.
#[derive(Clone, Debug)]
pub struct View {
    /// Sorted runs: the memtable, each file of L0, each level.
    runs: Vec<Vec<Arc<[Entry]>>>,
    tombstones: Vec<RangeTombstone>,
    sequence: u64,
}

impl Tree {
    /// What readers that begin now see.
    pub fn view(&self) -> View {
        let mut runs = vec![vec![Arc::from(self.memtable_entries())]];
        let mut tombstones = self.memtable_tombstones().to_vec();
        for (level, files) in self.levels.iter().enumerate() {
            tombstones.extend(files.iter().flat_map(|file| file.tombstones.iter().copied()));
            let entries = files.iter().map(|file| file.entries.clone());
            if level == 0 {
                runs.extend(entries.map(|entries| vec![entries]))
            } else {
                runs.push(entries.collect())
            }
        }
        for run in &mut runs {
            run.retain(|part| !part.is_empty());
        }
        runs.retain(|run| !run.is_empty());
        View { runs, tombstones, sequence: self.sequence() }
    }
}

impl View {
    pub fn reader(&self) -> Reader<'_> {
        self.reader_at(self.sequence)
    }

    /// A reader that sees what was written up to a snapshot.
    pub fn reader_at(&self, snapshot: u64) -> Reader<'_> {
        let cursors = self.runs.iter().map(|run| Cursor { run, part: 0, place: 0, entry: None }).collect();
        Reader {
            cursors,
            fragments: Fragments::of(self.tombstones.iter()),
            snapshot,
            lower: 0,
            upper: None,
            is_forward: true,
            internal: None,
            last_fragment: None,
            is_merged: false,
            was_zeroed: false,
            key: None,
            last_key: None,
            counts: Counts::default(),
        }
    }
}

/// Behind all versions of a key.
fn behind(key: u64) -> Place {
    (key.saturating_add(1), Reverse(SEQUENCE_MAX))
}

/// A place in one sorted run.
#[derive(Clone, Debug)]
struct Cursor<'v> {
    run: &'v [Arc<[Entry]>],
    part: usize,
    place: usize,
    entry: Option<Entry>,
}

impl Cursor<'_> {
    /// The first entry at a place or behind it.
    fn seek(&mut self, place: Place) {
        self.part = self.run.partition_point(|part| part.last().is_some_and(|last| last.place() < place));
        self.place =
            self.run.get(self.part).map_or(0, |part| part.partition_point(|entry| entry.place() < place));
        self.load();
    }

    fn load(&mut self) {
        self.entry = self.run.get(self.part).and_then(|part| part.get(self.place)).copied();
    }

    fn next(&mut self) {
        self.place += 1;
        if self.run.get(self.part).is_some_and(|part| self.place >= part.len()) {
            (self.part, self.place) = (self.part + 1, 0);
        }
        self.load();
    }

    /// Before the first entry there is none.
    fn previous(&mut self) {
        if self.place > 0 {
            self.place -= 1;
        } else if self.part > 0 {
            self.part -= 1;
            self.place = self.run.get(self.part).map_or(0, |part| part.len().saturating_sub(1));
        } else {
            self.entry = None;
            return;
        }
        self.load();
    }
}

/// An iterator.
#[derive(Clone, Debug)]
pub struct Reader<'v> {
    cursors: Vec<Cursor<'v>>,
    fragments: Fragments,
    snapshot: u64,
    lower: u64,
    /// Not inclusive.
    upper: Option<u64>,
    is_forward: bool,
    /// Where the merging iterator stands: which cursor, and its entry.
    internal: Option<(usize, Entry)>,
    last_fragment: Option<usize>,
    /// Whether the value was merged: then the merging iterator stands behind it already.
    is_merged: bool,
    was_zeroed: bool,
    key: Option<u64>,
    /// The last key that it has looked at.
    last_key: Option<u64>,
    counts: Counts,
}

impl Reader<'_> {
    /// The same with `iterate_lower_bound` and `iterate_upper_bound`.
    pub fn within(self, lower: u64, upper: Option<u64>) -> Self {
        Reader { lower, upper, ..self }
    }

    /// Where it stands; `None` where it is not valid.
    pub fn key(&self) -> Option<u64> {
        self.key
    }

    /// The last key that it has looked at, `DBIter`'s `saved_key_`: a tombstone's, at the end.
    pub fn last_key(&self) -> Option<u64> {
        self.last_key
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn seek(&mut self, key: u64) {
        self.is_forward = true;
        self.was_zeroed = false;
        self.seek_internal((key.max(self.lower), Reverse(self.snapshot)));
        self.find_next(None);
    }

    pub fn seek_to_first(&mut self) {
        self.seek(self.lower);
    }

    pub fn seek_for_prev(&mut self, key: u64) {
        let key =
            self.upper.map_or(Some(key), |upper| if key >= upper { upper.checked_sub(1) } else { Some(key) });
        let Some(key) = key else {
            self.key = None;
            return;
        };
        self.seek_internal_before(behind(key));
        self.find_previous();
    }

    pub fn seek_to_last(&mut self) {
        self.seek_for_prev(u64::MAX - 1);
    }

    pub fn next(&mut self) {
        let Some(key) = self.key else { return };
        if !self.is_forward {
            self.is_forward = true;
            self.was_zeroed = false;
            self.seek_internal((key, Reverse(SEQUENCE_MAX)));
        } else if !self.is_merged {
            self.step();
            self.counts.keys_skipped += 1;
        }
        self.find_next(Some(key));
    }

    pub fn prev(&mut self) {
        let Some(key) = self.key else { return };
        if self.is_forward {
            if self.internal.is_none() {
                self.seek_internal((key, Reverse(SEQUENCE_MAX)));
            }
            match self.internal {
                Some((_, entry)) => self.turn_back_at(&entry),
                None => self.seek_internal_before((key, Reverse(SEQUENCE_MAX))),
            }
            self.before_key(key);
        }
        self.find_previous();
    }

    fn seek_internal(&mut self, place: Place) {
        self.cursors.iter_mut().for_each(|cursor| cursor.seek(place));
        self.last_fragment = None;
        self.settle();
    }

    /// The last entry before a place.
    fn seek_internal_before(&mut self, place: Place) {
        self.is_forward = false;
        for cursor in &mut self.cursors {
            cursor.seek(place);
            cursor.previous();
        }
        self.last_fragment = None;
        self.settle();
    }

    /// Goes on backwards from an entry, which it stands at.
    fn turn_back_at(&mut self, entry: &Entry) {
        self.seek_internal_before(match entry.sequence.checked_sub(1) {
            Some(older) => (entry.key, Reverse(older)),
            None => behind(entry.key),
        });
    }

    fn step(&mut self) {
        let Some((cursor, _)) = self.internal else { return };
        if let Some(cursor) = self.cursors.get_mut(cursor) {
            if self.is_forward { cursor.next() } else { cursor.previous() }
        }
        self.settle();
    }

    /// Finds the next entry that no range tombstone covers.
    fn settle(&mut self) {
        loop {
            let entries =
                self.cursors.iter().enumerate().filter_map(|(number, cursor)| Some((number, cursor.entry?)));
            self.internal = match self.is_forward {
                true => entries.min_by_key(|(_, entry)| entry.place()),
                false => entries.max_by_key(|(_, entry)| entry.place()),
            };
            let Some((cursor, entry)) = self.internal else { return };
            if self.fragments.is_empty() {
                return;
            }
            let Some(fragment) = self.fragments.cover(&entry, self.snapshot) else { return };
            if self.last_fragment != Some(fragment) {
                self.counts.range_del_reseeks += 1;
                self.last_fragment = Some(fragment);
            }
            if let Some(cursor) = self.cursors.get_mut(cursor) {
                if self.is_forward { cursor.next() } else { cursor.previous() }
            }
        }
    }

    /// `FindNextUserEntry`: with `skipping`, versions of keys up to this one are hidden.
    fn find_next(&mut self, skipping: Option<u64>) {
        let mut skipping = skipping;
        // Key of entries that the reader does not see, where they are passed over as well.
        let mut saved = skipping;
        let mut skipped = 0;
        self.is_merged = false;
        self.key = None;
        while let Some((_, entry)) = self.internal {
            let was_zeroed = std::mem::replace(&mut self.was_zeroed, entry.sequence == 0);
            if self.upper.is_some_and(|upper| entry.key >= upper) {
                return;
            }
            self.last_key = Some(entry.key);
            if entry.sequence <= self.snapshot {
                if !was_zeroed && skipping.is_some_and(|key| entry.key <= key) {
                    skipped += 1;
                    self.counts.keys_skipped += 1;
                } else {
                    skipped = 0;
                    saved = Some(entry.key);
                    match entry.kind {
                        Kind::Delete | Kind::SingleDelete => {
                            skipping = Some(entry.key);
                            self.counts.deletes_skipped += 1;
                        }
                        Kind::Put => {
                            self.key = Some(entry.key);
                            return;
                        }
                        Kind::Merge => return self.merge(entry.key),
                    }
                }
            } else {
                self.counts.recent_skipped += 1;
                if saved.is_some_and(|key| entry.key == key || (skipping.is_some() && entry.key < key)) {
                    skipped += 1;
                } else {
                    (saved, skipping, skipped) = (Some(entry.key), None, 0);
                }
            }
            if skipped > SEQUENTIAL_SKIPS_MAX {
                skipped = 0;
                self.was_zeroed = false;
                let place = match skipping {
                    Some(key) => behind(key),
                    None => (saved.unwrap_or(entry.key), Reverse(self.snapshot)),
                };
                self.seek_internal(place);
            } else {
                self.step();
            }
        }
    }

    /// `MergeValuesNewToOld`.
    fn merge(&mut self, key: u64) {
        self.is_merged = true;
        self.key = Some(key);
        self.counts.merges += 1;
        self.step();
        while let Some((_, entry)) = self.internal.filter(|(_, entry)| entry.key == key) {
            self.step();
            match entry.kind {
                Kind::Merge => self.counts.merges += 1,
                Kind::Put | Kind::Delete | Kind::SingleDelete => return,
            }
        }
    }

    /// `PrevInternal`.
    fn find_previous(&mut self) {
        self.key = None;
        self.is_merged = false;
        while let Some((_, entry)) = self.internal {
            let key = entry.key;
            if key < self.lower {
                return;
            }
            self.last_key = Some(key);
            let is_there = self.value_backwards(key);
            self.before_key(key);
            if is_there {
                self.key = Some(key);
                return;
            }
        }
    }

    /// `FindValueForCurrentKey`: from the oldest version to the newest that is seen.
    fn value_backwards(&mut self, key: u64) -> bool {
        let mut last = Kind::Delete;
        let mut steps = 0;
        while let Some((_, entry)) = self.internal.filter(|(_, entry)| entry.key == key) {
            if entry.sequence > self.snapshot {
                break;
            }
            if steps >= SEQUENTIAL_SKIPS_MAX {
                return self.value_by_seek(key);
            }
            last = entry.kind;
            match entry.kind {
                Kind::Delete | Kind::SingleDelete => self.counts.deletes_skipped += 1,
                Kind::Merge => self.counts.merges += 1,
                Kind::Put => {}
            }
            self.counts.keys_skipped += 1;
            self.step();
            steps += 1;
        }
        !last.is_deletion()
    }

    /// `FindValueForCurrentKeyUsingSeek`: from the newest version that is seen.
    fn value_by_seek(&mut self, key: u64) -> bool {
        self.is_forward = true;
        self.seek_internal((key, Reverse(self.snapshot)));
        let Some((_, newest)) = self.internal.filter(|(_, entry)| entry.key == key) else { return false };
        while self.internal.is_some_and(|(_, entry)| entry.key == key && entry.kind == Kind::Merge) {
            self.counts.merges += 1;
            self.step();
        }
        self.turn_back_at(&newest);
        !newest.kind.is_deletion()
    }

    /// `FindUserKeyBeforeSavedKey`.
    fn before_key(&mut self, key: u64) {
        let mut steps = 0;
        while let Some((_, entry)) = self.internal.filter(|(_, entry)| entry.key >= key) {
            if entry.sequence <= self.snapshot {
                self.counts.keys_skipped += 1;
            } else {
                self.counts.recent_skipped += 1;
            }
            if steps >= SEQUENTIAL_SKIPS_MAX {
                self.seek_internal_before((key, Reverse(SEQUENCE_MAX)));
                return;
            }
            steps += 1;
            self.step();
        }
    }
}
