//! The figures that an advice rests on, made of what looks at a column family have told.

use super::history::{Family, FamilySums, History, Sums};
use super::order::{FileOrder, OrderCounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a record in a WAL takes beside key and value: the batch's header, the record's, lengths and type,
/// less the 8 bytes by which a file's raw keys are longer.
const WAL_RECORD_BYTES: f64 = 14.0;

/// Shortest time of which rates are made.
const RATE_SECONDS_MIN: f64 = 0.5;

/// What is known of a column family; what cannot be told is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Figures {
    /// Time over which rates are taken, an hour or two at most.
    pub watched_seconds: f64,
    /// Entries written a second, deletions among them.
    pub writes_per_second: Option<f64>,
    /// Bytes flushed a second.
    pub flushed_bytes_per_second: Option<f64>,
    /// Blocks that readers asked for a second, in the cache or not, of the whole process.
    pub block_lookups_per_second: Option<f64>,
    /// Iterators positioned a second, while windows were open.
    pub seeks_per_second: Option<f64>,
    /// Calls of `Next` and `Prev` a positioned iterator.
    pub steps_per_seek: f64,
    /// Tombstones that one of them stepped over.
    pub tombstones_per_seek: f64,
    /// Files of newly written entries that were seen.
    pub new_files: u64,
    /// Deletions in an entry of those.
    pub deletion_ratio: f64,
    /// Merge operands in an entry of those.
    pub merge_ratio: f64,
    /// Range deletions in those.
    pub range_deletions: u64,
    /// Where their keys lie among those that were there.
    pub order: OrderCounts,
    /// Whether any new file had keys that were not behind all others.
    pub is_unordered: bool,
    /// Whether its files are in the order of their age.
    pub file_order: FileOrder,
    /// Whether its smallest keys have gone while it was watched, though none was deleted by itself.
    pub is_front_gone: bool,
    /// The share of what was ever written that was written again or merged away since, beside what
    /// deletions account for.
    pub overwritten_ratio: Option<f64>,
    pub sst_files: u64,
    pub sst_bytes: u64,
    pub entries: u64,
    pub deletions: u64,
    /// Levels that hold files, L0 first.
    pub levels: Vec<LevelFigures>,
    /// Sorted runs that a point read may have to look into: files in L0, and the levels below.
    pub read_amplification: u64,
    /// Bytes written to files by one that was flushed; at least so many: files that came and went between two
    /// looks are missing.
    pub write_amplification: Option<f64>,
    /// Bytes of all files by those of the largest sorted run.
    pub space_amplification: Option<f64>,
    /// The share of entries that are in no large sorted run yet, where what is written twice is there twice.
    pub unmerged_ratio: f64,
}

/// One level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LevelFigures {
    pub level: u32,
    pub files: u64,
    pub bytes: u64,
    pub entries: u64,
    pub deletions: u64,
}

impl Figures {
    /// Those of one column family.
    pub(super) fn of(history: &History, sums: &Sums, name: &str, family: &Family) -> Figures {
        let of_family = sums.families.get(name).copied().unwrap_or_default();
        let FamilySums { new, flushed_bytes, rewritten_bytes, operations, .. } = of_family;
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let rate = |count: f64, seconds: f64| (seconds >= RATE_SECONDS_MIN).then(|| count / seconds);
        let levels = levels(family);
        let (entries, deletions) =
            (sum(&levels, |level| level.entries), sum(&levels, |level| level.deletions));
        let (sst_files, sst_bytes) = (sum(&levels, |level| level.files), sum(&levels, |level| level.bytes));
        let runs = runs(family);
        let largest = |of: fn(&Run) -> u64| runs.iter().map(of).max().unwrap_or_default();
        let (largest_bytes, largest_entries) = (largest(|run| run.bytes), largest(|run| run.entries));
        Figures {
            watched_seconds: sums.seconds,
            writes_per_second: rate(writes(sums, name, &of_family), sums.seconds),
            flushed_bytes_per_second: rate(flushed_bytes as f64, sums.seconds),
            block_lookups_per_second: rate(
                sums.readers.block_cache_hits.saturating_add(sums.readers.block_reads) as f64,
                sums.read_seconds,
            ),
            seeks_per_second: (sums.window_seconds > 0.0).then(|| operations as f64 / sums.window_seconds),
            steps_per_seek: ratio(of_family.steps, operations),
            tombstones_per_seek: ratio(of_family.tombstones, operations),
            new_files: new.files,
            deletion_ratio: ratio(new.deletions, new.entries).min(1.0),
            merge_ratio: ratio(new.merge_operands, new.entries).min(1.0),
            range_deletions: new.range_deletions,
            order: of_family.order,
            is_unordered: family.was_unordered,
            file_order: family.file_order,
            is_front_gone: family.is_front_gone && new.deletions == 0,
            overwritten_ratio: overwritten(history, family, &of_family, entries),
            sst_files,
            sst_bytes,
            entries,
            deletions,
            read_amplification: runs.len() as u64,
            write_amplification: (flushed_bytes > 0)
                .then(|| flushed_bytes.saturating_add(rewritten_bytes) as f64 / flushed_bytes as f64),
            space_amplification: (largest_bytes > 0).then(|| sst_bytes as f64 / largest_bytes as f64),
            unmerged_ratio: 1.0 - ratio(largest_entries, entries),
            levels,
        }
    }

    /// Reads a second: blocks that were asked for, or iterators that were positioned. `None`: nobody counts.
    pub fn reads_per_second(&self) -> Option<f64> {
        match (self.block_lookups_per_second, self.seeks_per_second) {
            (Some(lookups), seeks) => Some(lookups.max(seeks.unwrap_or_default())),
            (None, seeks) => seeks.filter(|seeks| *seeks > 0.0),
        }
    }

    /// Deletions in an entry of all files.
    pub fn density(&self) -> f64 {
        self.deletions as f64 / self.entries.max(1) as f64
    }

    /// Files in a level.
    pub(super) fn files_in(&self, wanted: u32) -> u64 {
        self.levels.iter().find(|level| level.level == wanted).map_or(0, |level| level.files)
    }
}

/// Entries that were written while it was watched: by what came into files, or by what came into the WAL.
/// Several column families share these by what was flushed of each.
fn writes(sums: &Sums, name: &str, of_family: &FamilySums) -> f64 {
    let flushed: u64 = sums.families.values().map(|family| family.flushed_entries).sum();
    let share = match (flushed, sums.families.len()) {
        (0, 1) => 1.0,
        (0, others) => 1.0 / others.max(1) as f64,
        _ => of_family.flushed_entries as f64 / flushed as f64,
    };
    let new = sums.families.get(name).map(|family| family.new).unwrap_or_default();
    let in_wal = match new.raw_entries {
        0 => 0.0,
        entries => sums.wal_bytes as f64 / (new.raw_bytes as f64 / entries as f64 + WAL_RECORD_BYTES),
    };
    (sums.sequences as f64).max(in_wal) * share
}

/// What of all that was ever written is not there any more, beside what deletions account for; `None` where
/// it goes in other ways as well. Sequence
/// numbers count what was written to all column families, so that with several of them only what was
/// flushed while they were watched can be held against what they have grown by.
fn overwritten(history: &History, family: &Family, of_family: &FamilySums, entries: u64) -> Option<f64> {
    let is_alone = history.families.len() == 1;
    let (written, grown) = match is_alone {
        true => (history.sequence(), entries),
        false => {
            (of_family.flushed_entries, entries.saturating_sub(family.first_entries.unwrap_or_default()))
        }
    };
    let deletion_ratio = of_family.new.deletions as f64 / of_family.new.entries.max(1) as f64;
    // A deletion goes with what it deletes.
    let kept = written as f64 * (1.0 - 2.0 * deletion_ratio).max(0.0);
    let goes_otherwise = of_family.new.range_deletions > 0
        || family.is_front_gone && of_family.new.deletions == 0
        || family.options.has_compaction_filter;
    (written > 0 && !goes_otherwise)
        .then(|| if kept <= 0.0 { 0.0 } else { (1.0 - grown as f64 / kept).clamp(0.0, 1.0) })
}

struct Run {
    bytes: u64,
    entries: u64,
}

/// Sorted runs: each file in L0, each level below.
fn runs(family: &Family) -> Vec<Run> {
    let of_l0 = family.files.iter().filter(|file| file.level == 0);
    let of_l0 = of_l0.map(|file| Run { bytes: file.size_bytes, entries: file.entries });
    let below = levels(family).into_iter().filter(|level| level.level > 0);
    of_l0.chain(below.map(|level| Run { bytes: level.bytes, entries: level.entries })).collect()
}

fn levels(family: &Family) -> Vec<LevelFigures> {
    let mut levels: Vec<LevelFigures> = Vec::new();
    for file in &family.files {
        let place = match levels.binary_search_by_key(&file.level, |level| level.level) {
            Ok(place) => place,
            Err(place) => {
                levels.insert(place, LevelFigures { level: file.level, ..LevelFigures::default() });
                place
            }
        };
        if let Some(level) = levels.get_mut(place) {
            level.files = level.files.saturating_add(1);
            level.bytes = level.bytes.saturating_add(file.size_bytes);
            level.entries = level.entries.saturating_add(file.entries);
            level.deletions = level.deletions.saturating_add(file.deletions);
        }
    }
    levels
}

fn sum(levels: &[LevelFigures], of: fn(&LevelFigures) -> u64) -> u64 {
    levels.iter().map(of).fold(0, u64::saturating_add)
}
