//! Compactions that RocksDB begins by itself: what is most out of shape first.

use super::file::{File, bytes_of, hull};
use super::tree::{Job, Tree, Work};
use crate::facts::options::CompactionStyle;
use std::sync::Arc;

/// Most files of L1 and below that are moved together.
const FILES_MOVED_MAX: usize = 4;

/// Universal compaction's defaults: `max_size_amplification_percent`, `size_ratio` and `min_merge_width`.
const SIZE_AMPLIFICATION_PERCENT_MAX: u64 = 200;
const SIZE_RATIO_PERCENT: u64 = 1;
const MERGE_WIDTH_MIN: usize = 2;

/// What a score above 1 is multiplied by with dynamic level sizes.
const SCORE_SCALE: f64 = 10.0;

/// Sizes that levels may have.
struct Targets {
    base_level: usize,
    /// By level; those that nothing is compacted from may have any size.
    bytes: Vec<u64>,
    /// Up to here levels are more than the data needs, and are emptied.
    lowest_unnecessary: usize,
}

impl Tree {
    /// Flushes and compacts as RocksDB would, until nothing is left to do or so many bytes were read.
    pub fn settle(&mut self, read_bytes_max: u64) -> Work {
        let mut work = if self.is_memtable_full() { self.flush() } else { Work::default() };
        if self.settings.options.disable_auto_compactions {
            return work;
        }
        while let Some(job) = self.next_job().filter(|_| work.read_bytes < read_bytes_max) {
            work = work.plus(self.run(&job));
        }
        if self.settings.options.compaction_style == CompactionStyle::Fifo {
            self.drop_oldest();
        }
        work
    }

    fn next_job(&self) -> Option<Job> {
        match self.settings.options.compaction_style {
            CompactionStyle::Level => self.next_level_job(),
            CompactionStyle::Universal => self.next_universal_job(),
            CompactionStyle::Fifo => None,
        }
    }

    /// Where L0 is compacted into.
    pub(crate) fn base_level(&self) -> usize {
        self.targets().base_level
    }

    /// `CalculateBaseBytes`.
    fn targets(&self) -> Targets {
        let options = &self.settings.options;
        let (count, multiplier) = (self.levels.len(), options.max_bytes_for_level_multiplier.max(1));
        let base_bytes = options.max_bytes_for_level_base;
        if !options.level_compaction_dynamic_level_bytes {
            let bytes = (0..count).map(|level| {
                let steps = u32::try_from(level.saturating_sub(1)).unwrap_or(u32::MAX);
                base_bytes.saturating_mul(multiplier.saturating_pow(steps))
            });
            return Targets { base_level: 1, bytes: bytes.collect(), lowest_unnecessary: 0 };
        }
        let nothing = Targets { base_level: count - 1, bytes: vec![u64::MAX; count], lowest_unnecessary: 0 };
        let Some(first) = (1..count).find(|level| self.level_bytes(*level) > 0) else { return nothing };
        let mut level_bytes = (1..count).map(|level| self.level_bytes(level)).max().unwrap_or(0);
        let least_bytes = base_bytes / multiplier;
        let mut lowest_unnecessary = 0;
        for level in (first..count - 1).rev() {
            level_bytes /= multiplier;
            if lowest_unnecessary == 0 && level_bytes <= least_bytes {
                lowest_unnecessary = level;
            }
        }
        let mut base_level = first;
        if level_bytes <= least_bytes {
            level_bytes = least_bytes + 1;
        } else {
            while base_level > 1 && level_bytes > base_bytes {
                base_level -= 1;
                level_bytes /= multiplier;
            }
            level_bytes = level_bytes.clamp(1, base_bytes);
        }
        let mut bytes = vec![u64::MAX; count];
        for place in bytes.iter_mut().skip(base_level) {
            *place = level_bytes.max(base_bytes);
            level_bytes = level_bytes.saturating_mul(multiplier);
        }
        Targets { base_level, bytes, lowest_unnecessary }
    }

    /// Size of a file with what its tombstones will free. `ComputeCompensatedSizes`.
    fn compensated_bytes(&self, file: &File, value_bytes: u64) -> u64 {
        let points = file.deletions - file.tombstones.len() as u64;
        let more = (points * 2).saturating_sub(file.entries_count());
        file.size_bytes + more * value_bytes * 2
    }

    fn average_value_bytes(&self) -> u64 {
        let files = || self.levels.iter().flatten();
        let live: u64 = files().map(|file| file.entries_count() - file.deletions).sum();
        bytes_of_all(files()) / live.max(1)
    }

    /// Levels with their scores, greatest first. `ComputeCompactionScore`.
    fn scores(&self, targets: &Targets) -> Vec<(f64, usize)> {
        let options = &self.settings.options;
        let is_dynamic = options.level_compaction_dynamic_level_bytes;
        let value_bytes = self.average_value_bytes();
        let compensated = |level: usize| -> u64 {
            let files = self.levels.get(level).map_or(&[][..], Vec::as_slice);
            files.iter().map(|file| self.compensated_bytes(file, value_bytes)).sum()
        };
        let target = |level: usize| targets.bytes.get(level).copied().unwrap_or(u64::MAX);
        let ratio = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
        let level0 = self.levels.first().map_or(0, Vec::len);
        let mut score = level0 as f64 / self.settings.level0_file_num_compaction_trigger.max(1) as f64;
        let level0_bytes = compensated(0);
        if is_dynamic {
            if level0_bytes >= options.max_bytes_for_level_base {
                score = score.max(1.01);
            }
            if level0_bytes > target(targets.base_level) {
                let base_bytes = compensated(targets.base_level).max(target(targets.base_level));
                score = score.max(ratio(level0_bytes, base_bytes));
            }
            if score > 1.0 {
                score *= SCORE_SCALE;
            }
        } else {
            score = score.max(ratio(level0_bytes, options.max_bytes_for_level_base));
        }
        let mut scores = vec![(score, 0)];
        let mut incoming = self.level_bytes(0);
        for level in 1..self.levels.len() - 1 {
            let (bytes, all_bytes) = (compensated(level), self.level_bytes(level));
            let mut score = ratio(bytes, target(level));
            if is_dynamic && score >= 1.0 {
                score = ratio(bytes, target(level).saturating_add(incoming)) * SCORE_SCALE;
            }
            if bytes > 0 && level <= targets.lowest_unnecessary {
                score =
                    score.max(SCORE_SCALE * (1.001 + 0.001 * (targets.lowest_unnecessary - level) as f64));
                incoming += all_bytes;
            } else {
                incoming += all_bytes.saturating_sub(target(level));
            }
            scores.push((score, level));
        }
        scores.sort_by(|one, two| two.0.total_cmp(&one.0));
        scores
    }

    /// `LevelCompactionPicker::PickCompaction`.
    fn next_level_job(&self) -> Option<Job> {
        let targets = self.targets();
        for (score, level) in self.scores(&targets) {
            if score < 1.0 {
                break;
            }
            let job = if level == 0 { self.level0_job(targets.base_level) } else { self.file_job(level) };
            if job.is_some() {
                return job;
            }
        }
        self.marked_job(targets.base_level).or_else(|| self.bottommost_job())
    }

    fn level0_job(&self, base_level: usize) -> Option<Job> {
        let files = self.levels.first()?;
        let mut moved: Vec<Arc<File>> = Vec::new();
        for file in files.iter().rev().filter(|_| self.has_level(base_level)) {
            let (smallest, largest) = hull(moved.iter().chain([file]))?;
            let is_apart = moved.iter().all(|other| !other.overlaps(file.smallest, file.largest));
            if !is_apart || !self.overlapping(base_level, smallest, largest).is_empty() {
                break;
            }
            moved.push(file.clone());
        }
        if !moved.is_empty() {
            return Some(Job {
                inputs: vec![(0, moved)],
                output_level: base_level,
                target_bytes: u64::MAX,
                may_move: true,
                is_apart: true,
                looks_at_grandparents: true,
            });
        }
        let oldest = files.last()?;
        let taken = self.overlapping(0, oldest.smallest, oldest.largest);
        Some(self.job(0, taken, base_level, true))
    }

    /// The file with the least to merge with below for its size, `kMinOverlappingRatio`.
    fn file_job(&self, level: usize) -> Option<Job> {
        let files = self.levels.get(level)?;
        let value_bytes = self.average_value_bytes();
        let under = |file: &Arc<File>| bytes_of(&self.overlapping(level + 1, file.smallest, file.largest));
        let order = |file: &Arc<File>| {
            let ratio = under(file) * 1024 / self.compensated_bytes(file, value_bytes).max(1);
            (!file.is_marked, ratio, file.smallest)
        };
        let (place, file) = files.iter().enumerate().min_by_key(|(_, file)| order(file))?;
        let mut taken = self.cut_cleanly(level, vec![file.clone()]);
        if taken.len() == 1 && under(file) == 0 {
            taken = self.moved_along(level, place);
        }
        Some(self.job(level, taken, level + 1, true))
    }

    /// A file with nothing to merge with, and neighbours that can be moved along with it.
    /// `TryExtendNonL0TrivialMove`.
    fn moved_along(&self, level: usize, place: usize) -> Vec<Arc<File>> {
        let files = self.levels.get(level).map_or(&[][..], Vec::as_slice);
        let Some(file) = files.get(place) else { return Vec::new() };
        let (mut taken, mut bytes) = (vec![file.clone()], file.size_bytes);
        let is_free = |smallest, largest| self.overlapping(level + 1, smallest, largest).is_empty();
        for (at, next) in files.iter().enumerate().skip(place + 1) {
            // Versions of one key stay together.
            let is_cut = files.get(at + 1).is_none_or(|behind| behind.smallest != next.largest);
            bytes += next.size_bytes;
            let fits = bytes <= self.settings.options.max_compaction_bytes;
            if taken.len() == FILES_MOVED_MAX || !is_free(file.smallest, next.largest) || !is_cut || !fits {
                break;
            }
            taken.push(next.clone());
        }
        for (at, next) in files.iter().enumerate().take(place).rev() {
            let before = at.checked_sub(1).and_then(|before| files.get(before));
            let is_cut = before.is_none_or(|before| before.largest != next.smallest);
            bytes += next.size_bytes;
            let fits = bytes <= self.settings.options.max_compaction_bytes;
            if taken.len() == FILES_MOVED_MAX || !is_free(next.smallest, file.largest) || !is_cut || !fits {
                break;
            }
            taken.insert(0, next.clone());
        }
        taken
    }

    /// Files that were marked by `SuggestCompactRange`.
    fn marked_job(&self, base_level: usize) -> Option<Job> {
        let last = self.deepest()?;
        let levels = self.levels.iter().enumerate().take(last);
        let (level, file) = levels
            .filter_map(|(level, files)| Some((level, files.iter().find(|file| file.is_marked)?)))
            .next()?;
        let taken = match level {
            0 => self.overlapping(0, file.smallest, file.largest),
            _ => self.cut_cleanly(level, vec![file.clone()]),
        };
        let output = if level == 0 { base_level } else { level + 1 };
        Some(self.job(level, taken, output, true))
    }

    /// A file with nothing below it whose versions no snapshot tells apart any more.
    fn bottommost_job(&self) -> Option<Job> {
        let earliest = self.snapshots().first().copied().unwrap_or(u64::MAX);
        let is_due = |level: usize, file: &&Arc<File>| {
            let is_bottommost = (level + 1..self.levels.len())
                .all(|below| self.overlapping(below, file.smallest, file.largest).is_empty());
            file.largest_sequence != 0 && file.largest_sequence < earliest && is_bottommost
        };
        let mut levels = self.levels.iter().enumerate().skip(1);
        let (level, file) = levels
            .find_map(|(level, files)| Some((level, files.iter().find(|file| is_due(level, file))?)))?;
        Some(self.job(level, self.cut_cleanly(level, vec![file.clone()]), level, false))
    }

    /// Sorted runs, newest first: a file of L0 or a level each.
    fn runs(&self) -> Vec<(usize, Vec<Arc<File>>)> {
        let level0 = self.levels.first().into_iter().flatten().map(|file| (0, vec![file.clone()]));
        let others = self.levels.iter().cloned().enumerate().skip(1).filter(|(_, files)| !files.is_empty());
        level0.chain(others).collect()
    }

    /// `UniversalCompactionPicker`: against wasted space first, then runs of like sizes, then their number.
    fn next_universal_job(&self) -> Option<Job> {
        let runs = self.runs();
        let trigger = self.settings.level0_file_num_compaction_trigger;
        if runs.len() < trigger.max(MERGE_WIDTH_MIN) {
            return None;
        }
        let sizes: Vec<u64> = runs.iter().map(|(_, files)| bytes_of(files)).collect();
        let (oldest, newer) = sizes.split_last()?;
        if newer.iter().sum::<u64>() * 100 >= oldest * SIZE_AMPLIFICATION_PERCENT_MAX {
            return Some(self.universal_job(&runs, 0, runs.len()));
        }
        for first in 0..sizes.len() {
            let mut sum = *sizes.get(first)?;
            let mut end = first + 1;
            while let Some(size) =
                sizes.get(end).filter(|size| **size <= sum * (100 + SIZE_RATIO_PERCENT) / 100)
            {
                sum += size;
                end += 1;
            }
            if end - first >= MERGE_WIDTH_MIN {
                return Some(self.universal_job(&runs, first, end));
            }
        }
        let surplus = runs.len() + 1 - trigger;
        (surplus >= MERGE_WIDTH_MIN).then(|| self.universal_job(&runs, 0, surplus))
    }

    fn universal_job(&self, runs: &[(usize, Vec<Arc<File>>)], first: usize, end: usize) -> Job {
        let output_level = match runs.get(end) {
            Some((level, _)) => level.saturating_sub(1),
            None => self.levels.len() - 1,
        };
        let mut inputs: Vec<(usize, Vec<Arc<File>>)> = Vec::new();
        for (level, files) in runs.get(first..end).unwrap_or(&[]) {
            match inputs.last_mut().filter(|(known, _)| known == level) {
                Some((_, known)) => known.extend(files.iter().cloned()),
                None => inputs.push((*level, files.clone())),
            }
        }
        self.plain_job(inputs, output_level, self.target_bytes(output_level))
    }

    /// FIFO: whole files go, oldest first, until the rest is as small as it is to be.
    fn drop_oldest(&mut self) {
        let limit = self.settings.max_table_files_size;
        while self.level_bytes(0) > limit {
            match self.levels.first_mut() {
                Some(files) if !files.is_empty() => files.pop(),
                _ => return,
            };
        }
    }
}

fn bytes_of_all<'f>(files: impl Iterator<Item = &'f Arc<File>>) -> u64 {
    files.map(|file| file.size_bytes).sum()
}
