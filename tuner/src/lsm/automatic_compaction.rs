//! What RocksDB's own compaction takes next (`LevelCompactionPicker`), as far as the live files tell.
//!
//! Each level that has grown out of its size has a next compaction: L0 by the number and the size of its
//! files, the others by size. Not told by the files are compactions by age (`ttl`,
//! `periodic_compaction_seconds`), files that were marked, and a `compaction_pri` other than the default.

use crate::facts::options::CompactionStyle;
use crate::lsm::cost::{Levels, base_level};
use crate::lsm::placed::File;

/// From this score on a level is compacted.
const SCORE_MIN: f64 = 1.0;

/// What a score above 1 is multiplied by with dynamic level sizes.
const SCORE_SCALE: f64 = 10.0;

/// Score of a level 0 that is larger than `max_bytes_for_level_base`.
const SCORE_OF_LARGE_LEVEL0: f64 = 1.01;

/// Of files alike, the ratio of what lies below is compared in parts of this.
const RATIO_PARTS: u64 = 1024;

/// A compaction that RocksDB has to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NextCompaction {
    pub(crate) level: usize,
    pub(crate) output_level: usize,
    pub(crate) score: f64,
    /// Numbers of the files that it takes, those of the output level included.
    pub(crate) files: Vec<u64>,
    /// Whether it drops the tombstones that it meets: nothing lies below its output, and it does not only
    /// move files.
    pub(crate) drops: bool,
}

impl Levels {
    /// One for each level that has outgrown its size, greatest score first; none where RocksDB compacts
    /// nothing by itself, or in another style.
    pub(crate) fn next_compactions(&self) -> Vec<NextCompaction> {
        let options = self.options();
        if options.disable_auto_compactions || self.style() != CompactionStyle::Level || !self.is_sound() {
            return Vec::new();
        }
        let base = base_level(self.levels(), options);
        let mut due: Vec<(f64, usize)> =
            self.scores(base).into_iter().filter(|(score, _)| *score >= SCORE_MIN).collect();
        due.sort_by(|one, two| two.0.total_cmp(&one.0).then(one.1.cmp(&two.1)));
        due.into_iter().filter_map(|(score, level)| self.next_of(score, level, base)).collect()
    }

    fn level(&self, level: usize) -> &[File] {
        self.levels().get(level).map_or(&[], Vec::as_slice)
    }

    /// Sizes that levels may have. `CalculateBaseBytes`.
    fn targets(&self, base: usize) -> Vec<u64> {
        let (options, count) = (self.options(), self.levels().len());
        let multiplier = options.max_bytes_for_level_multiplier.max(1);
        let grown = |steps: usize| multiplier.saturating_pow(u32::try_from(steps).unwrap_or(u32::MAX));
        let base_bytes = options.max_bytes_for_level_base;
        if !options.level_compaction_dynamic_level_bytes {
            return (0..count)
                .map(|level| base_bytes.saturating_mul(grown(level.saturating_sub(1))))
                .collect();
        }
        let largest = (1..count).map(|level| bytes(self.level(level))).max().unwrap_or(0);
        let of_base = (largest / grown(count - 1 - base)).clamp(base_bytes / multiplier + 1, base_bytes);
        let target = |level: usize| match level.checked_sub(base) {
            Some(steps) => of_base.max(base_bytes).saturating_mul(grown(steps)),
            None => u64::MAX,
        };
        (0..count).map(target).collect()
    }

    /// `ComputeCompactionScore`.
    fn scores(&self, base: usize) -> Vec<(f64, usize)> {
        let (options, targets) = (self.options(), self.targets(base));
        let is_dynamic = options.level_compaction_dynamic_level_bytes;
        let target = |level: usize| targets.get(level).copied().unwrap_or(u64::MAX);
        let ratio = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
        let value_bytes = self.average_entry_bytes();
        let compensated = |level: usize| -> u64 {
            self.level(level).iter().map(|file| compensated_bytes(file, value_bytes)).sum()
        };
        let level0_bytes = compensated(0);
        let trigger = options.level0_file_num_compaction_trigger.max(1);
        let mut score = self.level(0).len() as f64 / trigger as f64;
        if is_dynamic {
            if level0_bytes >= options.max_bytes_for_level_base {
                score = score.max(SCORE_OF_LARGE_LEVEL0);
            }
            if level0_bytes > target(base) {
                score = score.max(ratio(level0_bytes, compensated(base).max(target(base))));
            }
            if score > 1.0 {
                score *= SCORE_SCALE;
            }
        } else {
            score = score.max(ratio(level0_bytes, options.max_bytes_for_level_base));
        }
        let mut scores = vec![(score, 0)];
        let mut incoming = bytes(self.level(0));
        for level in 1..self.levels().len().saturating_sub(1) {
            let of_level = compensated(level);
            let mut score = ratio(of_level, target(level));
            if is_dynamic && score >= SCORE_MIN {
                score = ratio(of_level, target(level).saturating_add(incoming)) * SCORE_SCALE;
            }
            incoming = incoming.saturating_add(bytes(self.level(level)).saturating_sub(target(level)));
            scores.push((score, level));
        }
        scores
    }

    fn average_entry_bytes(&self) -> u64 {
        let files = || self.levels().iter().flatten();
        let live: u64 = files().map(|file| file.entries.saturating_sub(file.deletions)).sum();
        files().map(File::size_bytes).fold(0, u64::saturating_add) / live.max(1)
    }

    /// What is taken of a level that is due.
    fn next_of(&self, score: f64, level: usize, base: usize) -> Option<NextCompaction> {
        let (mut taken, output_level) = match level {
            0 => (self.of_level0()?, base),
            _ => (self.of_level(level)?, level + 1),
        };
        let span = |files: &[&File]| {
            let ends = files.iter().map(|file| (file.begin, file.end));
            ends.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)))
        };
        let (begin, end) = span(&taken)?;
        taken.extend(overlapping(self.level(output_level), begin, end));
        let (begin, end) = span(&taken)?;
        let below = self.levels().get(output_level + 1..).unwrap_or(&[]);
        let is_bottommost = below.iter().all(|files| overlapping(files, begin, end).next().is_none());
        let drops = is_bottommost && taken.len() > 1;
        let files = taken.iter().map(|file| file.number).collect();
        Some(NextCompaction { level, output_level, score, files, drops })
    }

    /// The oldest file of L0, and those that overlap it, and these.
    fn of_level0(&self) -> Option<Vec<&File>> {
        let files = self.level(0);
        let oldest = files.iter().min_by_key(|file| file.number)?;
        let (mut begin, mut end) = (oldest.begin, oldest.end);
        loop {
            let taken: Vec<&File> = overlapping(files, begin, end).collect();
            let low = taken.iter().map(|file| file.begin).fold(begin, f64::min);
            let high = taken.iter().map(|file| file.end).fold(end, f64::max);
            if (low, high) == (begin, end) {
                return Some(taken);
            }
            (begin, end) = (low, high);
        }
    }

    /// The file with the least to merge with below for its size, `kMinOverlappingRatio`.
    fn of_level(&self, level: usize) -> Option<Vec<&File>> {
        let value_bytes = self.average_entry_bytes();
        let ratio = |file: &File| {
            let under = overlapping(self.level(level + 1), file.begin, file.end).map(File::size_bytes);
            let under = under.fold(0, u64::saturating_add);
            under.saturating_mul(RATIO_PARTS) / compensated_bytes(file, value_bytes).max(1)
        };
        Some(vec![self.level(level).iter().min_by_key(|file| ratio(file))?])
    }
}

/// Files that hold keys between two places.
fn overlapping(files: &[File], begin: f64, end: f64) -> impl Iterator<Item = &File> {
    files.iter().filter(move |file| file.begin < end && begin < file.end)
}

fn bytes(files: &[File]) -> u64 {
    files.iter().map(File::size_bytes).fold(0, u64::saturating_add)
}

/// Size of a file with what its tombstones will free. `ComputeCompensatedSizes`.
fn compensated_bytes(file: &File, value_bytes: u64) -> u64 {
    let more = file.deletions.saturating_mul(2).saturating_sub(file.entries);
    file.size_bytes.saturating_add(more.saturating_mul(value_bytes).saturating_mul(2))
}
