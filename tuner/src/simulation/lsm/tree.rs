//! The tree itself: writes, flushes, and jobs that take files and leave others.

use super::compaction::{Surroundings, surviving};
use super::entry::{Entry, Kind, Place, RangeTombstone};
use super::file::{File, bytes_of, hull};
use super::output::{Cutting, files};
use super::settings::Settings;
use super::tombstones::Fragments;
use crate::facts::options::CompactionStyle;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an entry takes in a memtable beside its key and value.
const MEMTABLE_ENTRY_BYTES: u64 = 24;

/// What was done: sums over jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Jobs that wrote.
    pub jobs: u64,
    /// Files that were moved to another level as they are.
    pub files_moved: u64,
    /// Bytes of the files that the jobs read.
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Work {
    pub fn plus(self, other: Work) -> Work {
        Work {
            jobs: self.jobs + other.jobs,
            files_moved: self.files_moved + other.files_moved,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

/// Files to merge, and where to.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// By level, upper ones first.
    pub(crate) inputs: Vec<(usize, Vec<Arc<File>>)>,
    pub(crate) output_level: usize,
    pub(crate) target_bytes: u64,
    pub(crate) may_move: bool,
    /// Whether files of L0 among its inputs are known not to overlap.
    pub(crate) is_apart: bool,
    /// Whether its output is cut where files further down end.
    pub(crate) looks_at_grandparents: bool,
}

/// One column family.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) settings: Settings,
    memtable: BTreeMap<Place, (Kind, u32)>,
    memtable_tombstones: Vec<RangeTombstone>,
    memtable_bytes: u64,
    /// L0 newest first; from L1 on by smallest key.
    pub(crate) levels: Vec<Vec<Arc<File>>>,
    snapshots: Vec<u64>,
    pub(crate) sequence: u64,
    pub(crate) next_file_number: u64,
}

impl Tree {
    pub fn new(settings: Settings) -> Tree {
        let levels = usize::try_from(settings.options.num_levels).unwrap_or(7).max(2);
        Tree {
            settings,
            memtable: BTreeMap::new(),
            memtable_tombstones: Vec::new(),
            memtable_bytes: 0,
            levels: vec![Vec::new(); levels],
            snapshots: Vec::new(),
            sequence: 0,
            next_file_number: 1,
        }
    }

    /// Writes one version of a key.
    pub fn write(&mut self, key: u64, kind: Kind, value_bytes: u32) {
        self.sequence += 1;
        let value_bytes = if kind.is_deletion() { 0 } else { value_bytes };
        let entry = Entry { key, sequence: self.sequence, kind, value_bytes };
        self.memtable.insert(entry.place(), (kind, value_bytes));
        let key_bytes = self.settings.names.name(key).as_bytes().len() as u64;
        self.memtable_bytes += key_bytes + u64::from(value_bytes) + MEMTABLE_ENTRY_BYTES;
    }

    /// `DeleteRange`: the keys from `begin` up to, and without, `end`.
    pub fn delete_range(&mut self, begin: u64, end: u64) {
        if begin >= end {
            return;
        }
        self.sequence += 1;
        self.memtable_tombstones.push(RangeTombstone { begin, end, sequence: self.sequence });
        self.memtable_bytes += MEMTABLE_ENTRY_BYTES;
    }

    /// Holds a snapshot of the present; gives its sequence number.
    pub fn take_snapshot(&mut self) -> u64 {
        self.snapshots.push(self.sequence);
        self.sequence
    }

    /// Lets go of one snapshot with this sequence number.
    pub fn release_snapshot(&mut self, sequence: u64) {
        if let Some(place) = self.snapshots.iter().position(|held| *held == sequence) {
            self.snapshots.remove(place);
        }
    }

    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn snapshots(&self) -> &[u64] {
        &self.snapshots
    }

    pub(crate) fn memtable_entries(&self) -> Vec<Entry> {
        let entry = |((key, sequence), (kind, value_bytes)): (&Place, &(Kind, u32))| Entry {
            key: *key,
            sequence: sequence.0,
            kind: *kind,
            value_bytes: *value_bytes,
        };
        self.memtable.iter().map(entry).collect()
    }

    pub(crate) fn memtable_tombstones(&self) -> &[RangeTombstone] {
        &self.memtable_tombstones
    }

    /// Whether the memtable is as large as it may be.
    pub fn is_memtable_full(&self) -> bool {
        self.memtable_bytes >= self.settings.options.write_buffer_size
    }

    /// Whether the memtable has anything among these keys.
    pub(crate) fn memtable_holds(&self, smallest: u64, largest: u64) -> bool {
        let from = (smallest, std::cmp::Reverse(u64::MAX));
        self.memtable.range(from..).next().is_some_and(|((key, _), _)| *key <= largest)
            || self.memtable_tombstones.iter().any(|one| one.begin <= largest && smallest < one.end)
    }

    /// Writes the memtable into a file of L0.
    pub fn flush(&mut self) -> Work {
        let entries = self.memtable_entries();
        let fragments = Fragments::of(self.memtable_tombstones.iter());
        let surroundings = Surroundings {
            snapshots: &self.snapshots,
            fragments: &fragments,
            is_bottommost: false,
            may_exist_below: &|_| true,
        };
        let entries = surviving(&entries, &surroundings);
        let cutting =
            Cutting { settings: &self.settings, output_level: 0, target_bytes: u64::MAX, grandparents: &[] };
        let written = files(&cutting, entries, &fragments.newest(&self.snapshots), self.next_file_number);
        self.memtable.clear();
        self.memtable_tombstones.clear();
        self.memtable_bytes = 0;
        self.next_file_number += written.len() as u64;
        let written_bytes = written.iter().map(|file| file.size_bytes).sum();
        if let Some(level) = self.levels.first_mut() {
            level.splice(0..0, written.into_iter().map(Arc::new));
        }
        Work { written_bytes, ..Work::default() }
    }

    /// Files of a level that share keys with a span. Those of L0 bring along those that they overlap.
    pub(crate) fn overlapping(&self, level: usize, smallest: u64, largest: u64) -> Vec<Arc<File>> {
        let Some(files) = self.levels.get(level) else { return Vec::new() };
        let (mut smallest, mut largest) = (smallest, largest);
        loop {
            let inside = files.iter().filter(|file| file.overlaps(smallest, largest));
            let taken: Vec<Arc<File>> = inside.cloned().collect();
            let Some((least, greatest)) = hull(&taken) else { return taken };
            if level > 0 || (least >= smallest && greatest <= largest) {
                return taken;
            }
            (smallest, largest) = (least.min(smallest), greatest.max(largest));
        }
    }

    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.levels.get(level).map_or(0, |files| bytes_of(files))
    }

    pub(crate) fn has_level(&self, level: usize) -> bool {
        self.levels.get(level).is_some_and(|files| !files.is_empty())
    }

    /// Full size of the files that a compaction writes into a level.
    pub(crate) fn target_bytes(&self, level: usize) -> u64 {
        let options = &self.settings.options;
        match options.compaction_style {
            CompactionStyle::Level => options.target_file_size(level, self.base_level()),
            _ if level == 0 => u64::MAX,
            _ => options.target_file_size(level, usize::MAX),
        }
    }

    /// The deepest level that has a file.
    pub(crate) fn deepest(&self) -> Option<usize> {
        self.levels.iter().rposition(|files| !files.is_empty())
    }

    /// Carries a job out.
    pub(crate) fn run(&mut self, job: &Job) -> Work {
        let taken: Vec<Arc<File>> = job.inputs.iter().flat_map(|(_, files)| files).cloned().collect();
        let read_bytes = bytes_of(&taken);
        if job.may_move && self.is_trivial_move(job) {
            self.replace(&taken, job.output_level, taken.clone());
            return Work { files_moved: taken.len() as u64, ..Work::default() };
        }
        let written = self.merged(job, &taken);
        let written_bytes = bytes_of(&written);
        self.next_file_number += written.len() as u64;
        self.replace(&taken, job.output_level, written);
        Work { jobs: 1, files_moved: 0, read_bytes, written_bytes }
    }

    fn merged(&self, job: &Job, taken: &[Arc<File>]) -> Vec<Arc<File>> {
        let Some((smallest, largest)) = hull(taken) else { return Vec::new() };
        let mut entries: Vec<Entry> = taken.iter().flat_map(|file| file.entries.iter().copied()).collect();
        entries.sort_by_key(Entry::place);
        let fragments = Fragments::of(taken.iter().flat_map(|file| file.tombstones.iter()));
        let is_bottommost = self.is_bottommost(job, taken, (smallest, largest));
        let looks_below =
            job.output_level > 0 && self.settings.options.compaction_style == CompactionStyle::Level;
        let below = self.levels.get(job.output_level + 1..).unwrap_or(&[]);
        let may_exist = |smallest: u64, largest: u64| {
            !looks_below
                || below.iter().any(|files| {
                    let place = files.partition_point(|file| file.largest < smallest);
                    files.get(place).is_some_and(|file| file.smallest <= largest)
                })
        };
        let surroundings = Surroundings {
            snapshots: &self.snapshots,
            fragments: &fragments,
            is_bottommost,
            may_exist_below: &|key| may_exist(key, key),
        };
        let entries = surviving(&entries, &surroundings);
        let earliest = self.snapshots.first().copied().unwrap_or(u64::MAX);
        let is_kept = |tombstone: &RangeTombstone| {
            let is_seen_by_all = tombstone.sequence <= earliest;
            !(is_seen_by_all && (is_bottommost || !may_exist(tombstone.begin, tombstone.end)))
        };
        let tombstones: Vec<RangeTombstone> =
            fragments.newest(&self.snapshots).into_iter().filter(is_kept).collect();
        let under =
            (job.output_level + 1..self.levels.len()).map(|level| self.overlapping(level, smallest, largest));
        let mut under = under.filter(|_| job.looks_at_grandparents);
        let grandparents = under.find(|files| !files.is_empty()).unwrap_or_default();
        let cutting = Cutting {
            settings: &self.settings,
            output_level: job.output_level,
            target_bytes: job.target_bytes,
            grandparents: &grandparents,
        };
        files(&cutting, entries, &tombstones, self.next_file_number).into_iter().map(Arc::new).collect()
    }

    /// `Compaction::IsBottommostLevel`.
    fn is_bottommost(&self, job: &Job, taken: &[Arc<File>], (smallest, largest): (u64, u64)) -> bool {
        if job.output_level == 0 {
            let oldest = self.levels.first().and_then(|files| files.last()).map(|file| file.number);
            let has_oldest = taken.iter().any(|file| Some(file.number) == oldest);
            return has_oldest && self.levels.iter().skip(1).all(Vec::is_empty);
        }
        let below = job.output_level + 1..self.levels.len();
        below.into_iter().all(|level| self.overlapping(level, smallest, largest).is_empty())
    }

    /// `Compaction::IsTrivialMove`.
    fn is_trivial_move(&self, job: &Job) -> bool {
        let [(level, files)] = job.inputs.as_slice() else { return false };
        let is_apart = |files: &[Arc<File>]| {
            let mut spans: Vec<(u64, u64)> = files.iter().map(|file| (file.smallest, file.largest)).collect();
            spans.sort_unstable();
            spans.iter().zip(spans.iter().skip(1)).all(|(one, two)| one.1 < two.0)
        };
        let options = &self.settings.options;
        let (base, deepest) = (self.base_level(), self.deepest().unwrap_or(0).max(job.output_level));
        let compression = |level| options.compression_of(level, base, deepest);
        if *level == job.output_level
            || (*level == 0 && !job.is_apart && !self.levels.first().is_none_or(|files| is_apart(files)))
            || compression(*level) != compression(job.output_level)
            || options.compaction_style == CompactionStyle::Universal
        {
            return false;
        }
        let is_last = job.output_level + 1 >= self.levels.len();
        files.iter().all(|file| {
            let under = bytes_of(&self.overlapping(job.output_level + 1, file.smallest, file.largest));
            is_last || file.size_bytes + under <= options.max_compaction_bytes
        })
    }

    /// Takes files out, and puts others into a level.
    fn replace(&mut self, taken: &[Arc<File>], level: usize, files: Vec<Arc<File>>) {
        let is_taken = |file: &Arc<File>| taken.iter().any(|taken| taken.number == file.number);
        let mut place_in_level0 = None;
        if let Some(level0) = self.levels.first() {
            place_in_level0 = level0.iter().position(is_taken);
        }
        self.levels.iter_mut().for_each(|files| files.retain(|file| !is_taken(file)));
        let Some(kept) = self.levels.get_mut(level) else { return };
        if level == 0 {
            let place = place_in_level0.unwrap_or(kept.len()).min(kept.len());
            kept.splice(place..place, files);
        } else {
            kept.extend(files);
            kept.sort_by_key(|file| (file.smallest, file.largest));
        }
    }
}
