//! What looks at one database have told so far, in a bounded form: sums over the last hour or two, and of
//! each column family what the next look is compared with.

use super::order::{Extent, FileOrder, OrderCounts, Place, of_files, place};
use crate::facts::evidence::{Counters, Evidence, Observation};
use crate::facts::key::Key;
use crate::facts::options::ColumnFamilyOptions;
use crate::facts::sighting::{SightedFile, Sighting};
use std::collections::BTreeMap;

/// Sums begin anew after so long; those before are kept for as long again. What a database did yesterday is
/// not what it does.
const GENERATION_SECONDS: f64 = 3600.0;

/// Column families of one database that are followed; the largest ones.
const FAMILIES_MAX: usize = 64;

/// WAL files whose sizes are remembered: the newest grows, a few before it may.
const WAL_FILES_MAX: usize = 16;

/// A file has a good part of deletions if one in so many entries is one.
const DELETING_ONE_IN: u64 = 10;

/// What is known of a database by looking at it again and again.
#[derive(Clone, Debug, Default)]
pub struct History {
    last: Option<Last>,
    earlier: Sums,
    current: Sums,
    pub(super) families: BTreeMap<String, Family>,
}

/// What of the last look the next one is compared with.
#[derive(Clone, Debug)]
struct Last {
    sighting_unix_s: f64,
    sequence: u64,
    file: u64,
    wal_bytes: BTreeMap<u64, u64>,
    readers: Option<Counters>,
}

/// What happened between looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub seconds: f64,
    /// Sequence numbers that came with new files.
    pub sequences: u64,
    pub wal_bytes: u64,
    /// Time in which readers were counted.
    pub read_seconds: f64,
    pub readers: Counters,
    /// Time that windows were open.
    pub window_seconds: f64,
    pub families: BTreeMap<String, FamilySums>,
}

/// The same of one column family.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FamilySums {
    /// Files of newly written entries, those of the first look included.
    pub new: NewFiles,
    /// Bytes of them that were written while it was watched.
    pub flushed_bytes: u64,
    /// Entries of those.
    pub flushed_entries: u64,
    /// Bytes of files that came of compactions.
    pub rewritten_bytes: u64,
    pub order: OrderCounts,
    /// Iterators positioned in windows, their steps and what they stepped over.
    pub operations: u64,
    pub steps: u64,
    pub tombstones: u64,
}

/// What is in newly written files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewFiles {
    pub files: u64,
    pub entries: u64,
    pub deletions: u64,
    pub merge_operands: u64,
    pub range_deletions: u64,
    /// Bytes and entries of those that tell their bytes before compression.
    pub raw_bytes: u64,
    pub raw_entries: u64,
}

/// A column family as of the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    pub options: ColumnFamilyOptions,
    pub files: Vec<FileShape>,
    /// The greatest sequence number of its files.
    sequence: u64,
    newest: Option<Extent>,
    /// The greatest key that it ever had in a file.
    highest: Option<Key>,
    /// Whether a new file ever had a key that was not behind all others.
    pub was_unordered: bool,
    /// The order of all its files.
    pub file_order: FileOrder,
    /// The smallest key at the first look, and whether that has gone since.
    front: Option<Key>,
    pub is_front_gone: bool,
    /// Entries at the first look.
    pub first_entries: Option<u64>,
    /// Whether a collector marks its files for compaction by their deletions.
    pub has_deletion_collector: bool,
}

/// A file without its keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileShape {
    pub level: u32,
    pub size_bytes: u64,
    pub entries: u64,
    pub deletions: u64,
    pub created_unix_s: u64,
}

impl History {
    /// Takes in a look. One at another database of the same name begins anew.
    pub fn take(&mut self, sighting: &Sighting) {
        let at = sighting.at.as_millisecond() as f64 / 1e3;
        let sequence = sequences(&sighting.files).max().unwrap_or_default();
        let file = sighting.files.iter().map(|file| file.file.number).max().unwrap_or_default();
        if self.last.as_ref().is_some_and(|last| sequence < last.sequence && file < last.file) {
            *self = History::default();
        }
        self.begin_generation();
        if let Some(last) = &self.last {
            let sums = &mut self.current;
            sums.seconds += (at - last.sighting_unix_s).max(0.0);
            sums.sequences +=
                sequence.saturating_sub(last.sequence.max(before_new(last.file, &sighting.files)));
            sums.wal_bytes += wal_growth(&last.wal_bytes, &sighting.wal_bytes);
            if let (Some(before), Some(now)) = (last.readers, sighting.readers) {
                sums.read_seconds += (at - last.sighting_unix_s).max(0.0);
                sums.readers = sums.readers.plus(now.minus(before));
            }
        }
        self.take_families(sighting);
        let wal_bytes = sighting.wal_bytes.iter().rev().take(WAL_FILES_MAX);
        self.last = Some(Last {
            sighting_unix_s: at,
            sequence: sequence.max(self.last.as_ref().map_or(0, |last| last.sequence)),
            file: file.max(self.last.as_ref().map_or(0, |last| last.file)),
            wal_bytes: wal_bytes.map(|(number, bytes)| (*number, *bytes)).collect(),
            readers: sighting.readers,
        });
    }

    /// Takes in what a window has seen of the database.
    pub fn take_window(&mut self, evidence: &Evidence) {
        self.current.window_seconds += evidence.window.duration_ns as f64 / 1e9;
        for observation in &evidence.observations {
            let Some(name) = &observation.column_family else { continue };
            if self.families.contains_key(name) {
                self.current.families.entry(name.clone()).or_default().take_operation(observation);
            }
        }
    }

    /// What happened in this generation and the one before.
    pub(super) fn sums(&self) -> Sums {
        let Sums { families, .. } = &self.current;
        let mut sums = self.earlier.clone();
        sums.seconds += self.current.seconds;
        sums.sequences += self.current.sequences;
        sums.wal_bytes += self.current.wal_bytes;
        sums.read_seconds += self.current.read_seconds;
        sums.readers = sums.readers.plus(self.current.readers);
        sums.window_seconds += self.current.window_seconds;
        for (name, family) in families {
            let sum = sums.families.entry(name.clone()).or_default();
            *sum = sum.plus(family);
        }
        sums
    }

    /// The greatest sequence number of all files: entries that were ever written and flushed.
    pub(super) fn sequence(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.sequence)
    }

    /// When the last look was.
    pub(super) fn at_unix_s(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.sighting_unix_s as u64)
    }

    fn begin_generation(&mut self) {
        if self.current.seconds > GENERATION_SECONDS {
            self.earlier = std::mem::take(&mut self.current);
        }
    }

    fn take_families(&mut self, sighting: &Sighting) {
        let mut by_family: BTreeMap<&str, Vec<&SightedFile>> = BTreeMap::new();
        for file in &sighting.files {
            by_family.entry(&file.file.column_family).or_default().push(file);
        }
        let bytes = |files: &[&SightedFile]| files.iter().map(|file| file.file.size_bytes).sum::<u64>();
        let mut largest: Vec<(&str, Vec<&SightedFile>)> = by_family.into_iter().collect();
        largest.sort_by_key(|(_, files)| std::cmp::Reverse(bytes(files)));
        largest.truncate(FAMILIES_MAX);
        self.families.retain(|name, _| largest.iter().any(|(known, _)| known == name));
        let last_file = self.last.as_ref().map(|last| last.file);
        for (name, files) in largest {
            let family = self.families.entry(name.to_owned()).or_default();
            let sums = self.current.families.entry(name.to_owned()).or_default();
            family.take(sums, files, last_file);
            family.options = sighting.options.get(name).cloned().unwrap_or_default();
        }
    }
}

impl Family {
    /// Takes in its files; `last_file` is the newest of the last look, if there was one.
    fn take(&mut self, sums: &mut FamilySums, mut files: Vec<&SightedFile>, last_file: Option<u64>) {
        let smallest = |file: &SightedFile| file.sequences.map_or(0, |numbers| numbers.smallest);
        files.sort_by_key(|file| (smallest(file), file.file.number));
        let is_first = last_file.is_none();
        // What lies below L0 at the first look has been written at some time.
        let is_new = |file: &SightedFile| match last_file {
            Some(last) => file.file.number > last,
            None => file.file.level == 0,
        };
        let (new, old): (Vec<&SightedFile>, Vec<&SightedFile>) = files.iter().partition(|file| is_new(file));
        if self.newest.is_none() {
            self.note_highest(&old);
        }
        for file in new {
            if smallest(file) > self.sequence {
                self.take_new(sums, file, is_first);
            } else if !is_first {
                sums.rewritten_bytes += file.file.size_bytes;
            }
        }
        self.note_highest(&files);
        self.file_order = of_files(&files);
        let front = files.iter().map(|file| &file.file.smallest).min();
        self.is_front_gone |=
            front.is_some_and(|front| self.front.as_ref().is_some_and(|first| front > first));
        self.front = self.front.take().or_else(|| front.cloned());
        self.has_deletion_collector = files.iter().any(|file| {
            file.details.as_ref().is_some_and(|details| details.collectors.contains("CompactOnDeletion"))
        });
        self.files = files.iter().map(|file| FileShape::of(file)).collect();
        self.first_entries.get_or_insert_with(|| files.iter().map(|file| file.file.entries).sum());
        self.sequence = self.sequence.max(sequences(files.iter().copied()).max().unwrap_or_default());
    }

    /// Takes in a file of newly written entries.
    fn take_new(&mut self, sums: &mut FamilySums, file: &SightedFile, is_first: bool) {
        let extent = Extent {
            smallest: file.file.smallest.clone(),
            largest: file.file.largest.clone(),
            deletes: file.file.deletions.saturating_mul(DELETING_ONE_IN) >= file.file.entries.max(1),
            marks: file.marks.clone(),
        };
        let place = place(self.highest.as_ref(), self.newest.as_ref().unwrap_or(&Extent::default()), &extent);
        // The first one has none to be compared with, but for the greatest key of all.
        if self.newest.is_some() || self.highest.is_some() && place == Place::Behind {
            sums.order.count(place);
        }
        self.was_unordered |= place != Place::Behind;
        sums.new.take(file);
        if !is_first {
            sums.flushed_bytes += file.file.size_bytes;
            sums.flushed_entries += file.file.entries;
        }
        self.note_highest(&[file]);
        self.sequence = self.sequence.max(sequences([file]).max().unwrap_or_default());
        self.newest = Some(extent);
    }

    fn note_highest(&mut self, files: &[&SightedFile]) {
        let highest = files.iter().map(|file| &file.file.largest).max();
        if let Some(highest) = highest.filter(|key| self.highest.as_ref().is_none_or(|known| known < key)) {
            self.highest = Some(highest.clone());
        }
    }
}

impl FileShape {
    fn of(file: &SightedFile) -> FileShape {
        FileShape {
            level: file.file.level,
            size_bytes: file.file.size_bytes,
            entries: file.file.entries,
            deletions: file.file.deletions,
            created_unix_s: file.details.as_ref().map_or(0, |details| details.created_unix_s),
        }
    }
}

impl FamilySums {
    fn take_operation(&mut self, observation: &Observation) {
        self.operations = self.operations.saturating_add(observation.weight);
        let steps = observation.steps.unwrap_or_default().saturating_mul(observation.weight);
        self.steps = self.steps.saturating_add(steps);
        self.tombstones = self.tombstones.saturating_add(observation.weighted().tombstones_skipped);
    }

    fn plus(&self, other: &FamilySums) -> FamilySums {
        FamilySums {
            new: self.new.plus(&other.new),
            flushed_bytes: self.flushed_bytes.saturating_add(other.flushed_bytes),
            flushed_entries: self.flushed_entries.saturating_add(other.flushed_entries),
            rewritten_bytes: self.rewritten_bytes.saturating_add(other.rewritten_bytes),
            order: self.order.plus(other.order),
            operations: self.operations.saturating_add(other.operations),
            steps: self.steps.saturating_add(other.steps),
            tombstones: self.tombstones.saturating_add(other.tombstones),
        }
    }
}

impl NewFiles {
    fn take(&mut self, file: &SightedFile) {
        self.files += 1;
        self.entries = self.entries.saturating_add(file.file.entries);
        self.deletions = self.deletions.saturating_add(file.file.deletions);
        if let Some(details) = &file.details {
            self.merge_operands = self.merge_operands.saturating_add(details.merge_operands);
            self.range_deletions = self.range_deletions.saturating_add(details.range_deletions);
            self.raw_bytes = self.raw_bytes.saturating_add(details.raw_bytes);
            self.raw_entries = self.raw_entries.saturating_add(file.file.entries);
        }
    }

    fn plus(&self, other: &NewFiles) -> NewFiles {
        NewFiles {
            files: self.files.saturating_add(other.files),
            entries: self.entries.saturating_add(other.entries),
            deletions: self.deletions.saturating_add(other.deletions),
            merge_operands: self.merge_operands.saturating_add(other.merge_operands),
            range_deletions: self.range_deletions.saturating_add(other.range_deletions),
            raw_bytes: self.raw_bytes.saturating_add(other.raw_bytes),
            raw_entries: self.raw_entries.saturating_add(other.raw_entries),
        }
    }
}

/// The greatest sequence numbers of files, as far as they are known.
fn sequences<'f>(files: impl IntoIterator<Item = &'f SightedFile>) -> impl Iterator<Item = u64> {
    files.into_iter().filter_map(|file| Some(file.sequences?.largest))
}

/// The sequence number before the first one of new files; 0 where there are none. After a compaction of
/// everything no file tells the numbers that were given before it.
fn before_new(last_file: u64, files: &[SightedFile]) -> u64 {
    let new = files.iter().filter(|file| file.file.number > last_file);
    let smallest =
        new.filter_map(|file| Some(file.sequences?.smallest).filter(|smallest| *smallest > 0)).min();
    smallest.map_or(0, |smallest| smallest - 1)
}

/// Bytes that were written into WAL files since they were this long. What was written to a file after the
/// last look and deleted with it before this one is missing.
fn wal_growth(before: &BTreeMap<u64, u64>, now: &BTreeMap<u64, u64>) -> u64 {
    let newest = before.keys().next_back().copied().unwrap_or_default();
    let grown = now.iter().map(|(number, bytes)| match before.get(number) {
        Some(earlier) => bytes.saturating_sub(*earlier),
        None if *number > newest => *bytes,
        None => 0,
    });
    grown.sum()
}
