//! How a job's output is cut into files: RocksDB's `CompactionOutputs`.

use super::entry::{Entry, RangeTombstone};
use super::file::File;
use super::settings::Settings;
use super::table::Table;
use crate::facts::options::CompactionStyle;
use std::sync::Arc;

/// A file may end early where a file further down ends: from this share of its full size on, in percent, and
/// from so much more with each that it has passed.
const EARLY_END_PERCENT: u64 = 50;
const EARLY_END_PERCENT_MORE: u64 = 5;
const EARLY_END_PERCENT_MOST: u64 = 90;

/// What an output is cut by.
pub(crate) struct Cutting<'j> {
    pub(crate) settings: &'j Settings,
    pub(crate) output_level: usize,
    /// Full size of a file.
    pub(crate) target_bytes: u64,
    /// Files of the first level below that has any under the job.
    pub(crate) grandparents: &'j [Arc<File>],
}

/// Entries in order, and the range tombstones to go with them, as files; `number` is the first one's.
pub(crate) fn files(
    cutting: &Cutting<'_>,
    entries: Vec<Entry>,
    tombstones: &[RangeTombstone],
    number: u64,
) -> Vec<File> {
    let pieces = pieces(cutting, entries);
    let first_keys: Vec<u64> = pieces.iter().filter_map(|piece| Some(piece.first()?.key)).collect();
    let count = pieces.len().max(usize::from(!tombstones.is_empty()));
    let mut pieces = pieces.into_iter();
    let file = |place: usize| {
        let entries = pieces.next().unwrap_or_default();
        let begin = if place == 0 { 0 } else { first_keys.get(place).copied().unwrap_or(0) };
        let end = first_keys.get(place + 1).copied().unwrap_or(u64::MAX);
        let inside = tombstones.iter().filter_map(|tombstone| clipped(tombstone, begin, end));
        let tombstones: Vec<RangeTombstone> = inside.collect();
        let mut table = Table::new(&cutting.settings.names, cutting.settings.block_size);
        entries.iter().for_each(|entry| table.add(entry));
        let size_bytes = table.finish(&tombstones);
        File::new(number + place as u64, entries, tombstones, size_bytes)
    };
    (0..count).map(file).collect()
}

fn clipped(tombstone: &RangeTombstone, begin: u64, end: u64) -> Option<RangeTombstone> {
    let (begin, end) = (tombstone.begin.max(begin), tombstone.end.min(end));
    (begin < end).then_some(RangeTombstone { begin, end, ..*tombstone })
}

fn pieces(cutting: &Cutting<'_>, entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut pieces: Vec<Vec<Entry>> = Vec::new();
    let mut passed = Passed { grandparents: cutting.grandparents, ..Passed::default() };
    let new_table = || Table::new(&cutting.settings.names, cutting.settings.block_size);
    let mut table = new_table();
    let mut piece: Vec<Entry> = Vec::new();
    for entry in entries {
        let overlapped_before = passed.overlapped_bytes;
        let crossed = if cutting.output_level == 0 { 0 } else { passed.up_to(entry.key) };
        let ended_bytes = table.ended_bytes();
        if !piece.is_empty() && ends(cutting, &passed, crossed, overlapped_before, ended_bytes) {
            pieces.push(std::mem::take(&mut piece));
            table = new_table();
            passed.switched = 0;
            passed.overlapped_bytes = passed.overlapped_now(entry.key);
        }
        table.add(&entry);
        piece.push(entry);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// `ShouldStopBefore`.
fn ends(
    cutting: &Cutting<'_>,
    passed: &Passed<'_>,
    crossed: u64,
    overlapped_before: u64,
    ended_bytes: u64,
) -> bool {
    if cutting.output_level == 0 {
        return false;
    }
    // Where files below tell where to end one, it may become twice as large.
    let factor = if cutting.grandparents.is_empty() { 1 } else { 2 };
    if ended_bytes >= cutting.target_bytes.saturating_mul(factor) {
        return true;
    }
    let options = &cutting.settings.options;
    if crossed == 0 {
        return false;
    }
    if passed.overlapped_bytes + ended_bytes > options.max_compaction_bytes {
        return true;
    }
    if options.compaction_style != CompactionStyle::Level {
        return false;
    }
    let skippable = if passed.is_between { 2 } else { 3 };
    if crossed >= skippable && passed.overlapped_bytes - overlapped_before > cutting.target_bytes / 8 {
        return true;
    }
    let more = EARLY_END_PERCENT + EARLY_END_PERCENT_MORE * passed.switched;
    ended_bytes >= cutting.target_bytes.div_ceil(100) * more.min(EARLY_END_PERCENT_MOST)
}

/// What of the files below an output has come past.
#[derive(Default)]
struct Passed<'j> {
    grandparents: &'j [Arc<File>],
    /// The file that the last key lies in, or the next one where it lies between two.
    place: usize,
    is_between: bool,
    has_begun: bool,
    /// Borders since the output file began.
    switched: u64,
    /// Bytes of files under it.
    overlapped_bytes: u64,
}

impl Passed<'_> {
    /// Goes on to a key; how many borders it came past. `UpdateGrandparentBoundaryInfo`.
    fn up_to(&mut self, key: u64) -> u64 {
        if !self.has_begun {
            self.is_between = true;
        }
        if self.grandparents.is_empty() {
            return 0;
        }
        let mut crossed = 0;
        while let Some(file) = self.grandparents.get(self.place) {
            if self.is_between {
                if key < file.smallest {
                    break;
                }
                if self.has_begun {
                    crossed += 1;
                    self.overlapped_bytes += file.size_bytes;
                    self.switched += 1;
                }
                self.is_between = false;
            } else {
                let next_begins = self.grandparents.get(self.place + 1).map(|next| next.smallest);
                let is_inside = key < file.largest
                    || (key == file.largest && !file.is_open && next_begins.is_none_or(|begin| key < begin));
                if is_inside {
                    break;
                }
                if self.has_begun {
                    crossed += 1;
                    self.switched += 1;
                }
                self.is_between = true;
                self.place += 1;
            }
        }
        if !self.has_begun && !self.is_between {
            self.overlapped_bytes = self.overlapped_now(key);
        }
        self.has_begun = true;
        crossed
    }

    /// Bytes of the files that a key lies in.
    fn overlapped_now(&self, key: u64) -> u64 {
        if self.is_between {
            return 0;
        }
        let before = self.grandparents.get(..self.place).unwrap_or(&[]).iter().rev();
        let same: u64 = before.take_while(|file| file.largest == key).map(|file| file.size_bytes).sum();
        same + self.grandparents.get(self.place).map_or(0, |file| file.size_bytes)
    }
}
