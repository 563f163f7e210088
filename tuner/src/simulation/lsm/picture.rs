//! The tree as the agent would see it: files, memtables and painful operations, in the tuner's own terms.

use super::file::File;
use super::names::Names;
use super::reader::{Counts, Reader};
use super::settings::Settings;
use super::table::Table;
use super::tree::Tree;
use crate::facts::evidence::{
    Counters, Evidence, MemtableDeletions, Observation, SeekKind, SentinelInterval, SstFile,
};
use crate::facts::key::Key;
use crate::facts::oldest_snapshot::{OldestSnapshot, Sequences};
use crate::rank::index_blocks::worth_reading;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How a reader is positioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Position {
    Seek(u64),
    SeekForPrev(u64),
    SeekToFirst,
    SeekToLast,
}

/// A positioning call and the calls that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    pub position: Position,
    /// `Next` or `Prev` at most so often.
    pub steps: u64,
    pub is_forward: bool,
}

/// What a walk met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walked {
    pub seek: Counts,
    pub scan: Counts,
    /// The last key that was looked at.
    pub end: Option<u64>,
    /// Calls of `Next` or `Prev`.
    pub steps: u64,
}

impl Walk {
    pub fn on(&self, reader: &mut Reader<'_>) -> Walked {
        let before = reader.counts();
        match self.position {
            Position::Seek(key) => reader.seek(key),
            Position::SeekForPrev(key) => reader.seek_for_prev(key),
            Position::SeekToFirst => reader.seek_to_first(),
            Position::SeekToLast => reader.seek_to_last(),
        }
        let sought = reader.counts();
        let mut steps = 0;
        while steps < self.steps && reader.key().is_some() {
            steps += 1;
            if self.is_forward { reader.next() } else { reader.prev() }
        }
        let (seek, scan) = (sought.minus(before), reader.counts().minus(sought));
        Walked { seek, scan, end: reader.last_key(), steps }
    }
}

/// What events take a reader, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    pub seek_ns: u64,
    pub tombstone_ns: u64,
    /// Each other entry that is stepped over.
    pub entry_ns: u64,
}

impl Default for Prices {
    fn default() -> Prices {
        Prices { seek_ns: 5_000, tombstone_ns: 200, entry_ns: 100 }
    }
}

impl Prices {
    /// Time that a walk takes.
    pub fn walk_ns(&self, walked: &Walked) -> u64 {
        self.seek_ns + self.part_ns(&walked.seek) + self.part_ns(&walked.scan)
    }

    /// The part of it that goes into tombstones.
    pub fn pain_ns(&self, walked: &Walked) -> u64 {
        (walked.seek.deletes_skipped + walked.scan.deletes_skipped) * self.tombstone_ns
    }

    fn part_ns(&self, counts: &Counts) -> u64 {
        (counts.deletes_skipped + counts.range_del_reseeks) * self.tombstone_ns
            + (counts.keys_skipped + counts.merges) * self.entry_ns
    }
}

fn counters(counts: &Counts) -> Counters {
    Counters {
        tombstones_skipped: counts.deletes_skipped,
        keys_skipped: counts.keys_skipped,
        merge_operands: counts.merges,
        range_deletion_reseeks: counts.range_del_reseeks,
        ..Counters::default()
    }
}

impl Tree {
    /// The live files.
    pub fn files(&self, column_family: &str) -> Vec<SstFile> {
        let names = &self.settings.names;
        let levels = (0..).zip(&self.levels);
        let file = |level: u32, file: &File| SstFile {
            number: file.number,
            column_family: column_family.to_owned(),
            level,
            size_bytes: file.size_bytes,
            entries: file.entries_count(),
            deletions: file.deletions,
            smallest: names.key(file.smallest),
            largest: names.key(file.largest),
        };
        levels.flat_map(|(level, files)| files.iter().map(move |one| file(level, one))).collect()
    }

    /// Adds what the index blocks tell of those files that a database's operations make worth reading.
    pub fn add_index_marks(&self, evidence: &mut Evidence) {
        let Settings { names, block_size, .. } = &self.settings;
        let worth: BTreeSet<u64> = worth_reading(evidence).into_iter().collect();
        let files = self.levels.iter().flatten().filter(|file| worth.contains(&file.number));
        let marks = |file: &Arc<File>| (file.number, Table::index_marks(names, *block_size, &file.entries));
        evidence.index_marks.extend(files.map(marks));
    }

    /// Bytes of the live files.
    pub fn size_bytes(&self) -> u64 {
        (0..self.levels.len()).map(|level| self.level_bytes(level)).sum()
    }

    /// Deletions in files and in the memtable.
    pub fn deletions(&self) -> u64 {
        let in_files: u64 = self.levels.iter().flatten().map(|file| file.deletions).sum();
        in_files + self.memtable_deletions().total()
    }

    pub fn names(&self) -> &Names {
        &self.settings.names
    }

    /// Deletions in the memtable.
    pub fn memtable_deletions(&self) -> MemtableDeletions {
        let entries = self.memtable_entries();
        let points = entries.iter().filter(|entry| entry.kind.is_deletion()).count();
        MemtableDeletions { active: points as u64, immutable: 0 }
    }

    /// The record that the probes would make of a walk.
    pub fn observation(
        &self,
        column_family: &str,
        walk: &Walk,
        walked: &Walked,
        prices: &Prices,
    ) -> Observation {
        let names = &self.settings.names;
        let (kind, key) = match walk.position {
            Position::Seek(key) => (SeekKind::Seek, names.key(key)),
            Position::SeekForPrev(key) => (SeekKind::SeekForPrev, names.key(key)),
            Position::SeekToFirst => (SeekKind::SeekToFirst, Key::default()),
            Position::SeekToLast => (SeekKind::SeekToLast, Key::default()),
        };
        let scan_ns = prices.part_ns(&walked.scan);
        Observation {
            column_family: Some(column_family.to_owned()),
            end_key: walked.end.map(|end| names.key(end)),
            seek: counters(&walked.seek),
            scan: counters(&walked.scan),
            seek_latency_ns: prices.walk_ns(walked) - scan_ns,
            scan_elapsed_ns: scan_ns,
            ..Observation::at(kind, key)
        }
    }

    /// Adds the tree to a database's evidence, under the name of its column family.
    pub fn add_to(&self, evidence: &mut Evidence, column_family: &str) {
        evidence.files.extend(self.files(column_family));
        evidence.memtables.insert(column_family.to_owned(), self.memtable_deletions());
        let mut options = self.settings.options.clone();
        options.level0_file_num_compaction_trigger = self.settings.level0_file_num_compaction_trigger as u64;
        evidence.column_families.insert(column_family.to_owned(), options);
        evidence.oldest_snapshot = self.snapshots().first().map(|sequence| self.oldest_snapshot(*sequence));
    }

    fn oldest_snapshot(&self, sequence: u64) -> OldestSnapshot {
        let sequences = |file: &Arc<File>| {
            let of_tombstones = file.tombstones.iter().map(|tombstone| tombstone.sequence);
            let smallest = file.entries.iter().map(|entry| entry.sequence).chain(of_tombstones).min();
            let smallest = smallest.unwrap_or(file.largest_sequence);
            (file.number, Sequences { smallest, largest: file.largest_sequence })
        };
        OldestSnapshot { sequence, files: self.levels.iter().flatten().map(sequences).collect() }
    }
}

/// Puts a window's operations into a database's evidence. Those that stepped over anything dead are recorded.
pub fn observe(evidence: &mut Evidence, operations: &[Observation], duration_ns: u64) {
    let is_painful = |one: &&Observation| {
        let Counters { tombstones_skipped, merge_operands, range_deletion_reseeks, .. } = one.total();
        tombstones_skipped + merge_operands + range_deletion_reseeks + one.old_versions() > 0
    };
    let total = operations.iter().map(Observation::weighted).fold(Counters::default(), Counters::plus);
    evidence.observations.extend(operations.iter().filter(is_painful).cloned());
    let window = &mut evidence.window;
    window.duration_ns = duration_ns;
    window.operations += operations.iter().map(|operation| operation.weight).sum::<u64>();
    window.operations_recorded += operations.iter().filter(is_painful).count() as u64;
    window.attributed = window.attributed.plus(total);
    window.recorded = window.recorded.plus(total);
    window.total = window.total.plus(total);
    evidence.sentinel = SentinelInterval { duration_ns, counters: evidence.window.total };
}
