//! Compactions that are asked for: `CompactRange`, `CompactFiles` and `SuggestCompactRange`.

use super::file::{File, bytes_of, hull};
use super::tree::{Job, Tree, Work};
use crate::facts::options::CompactionStyle;
use crate::lsm::cost::Bottommost;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most jobs of one `CompactRange` from one level to the next.
const JOBS_MAX: usize = 100_000;

/// A level's files that go into a job, and where the next job goes on.
struct Picked {
    files: Vec<Arc<File>>,
    next: Option<u64>,
}

impl Tree {
    /// `CompactRange` from `begin` to `end`, both inclusive; `None` is open.
    pub fn compact_range(&mut self, begin: Option<u64>, end: Option<u64>, bottommost: Bottommost) -> Work {
        let mut work = Work::default();
        let span = (begin.unwrap_or(0), end.unwrap_or(u64::MAX));
        if begin.is_none() || end.is_none() || self.memtable_holds(span.0, span.1) {
            work = work.plus(self.flush());
        }
        match self.settings.options.compaction_style {
            CompactionStyle::Level => work.plus(self.compact_levels(begin.zip(end), span, bottommost)),
            CompactionStyle::Universal => work.plus(self.compact_everything()),
            CompactionStyle::Fifo => work,
        }
    }

    /// `CompactRangeInternal`, level by level.
    fn compact_levels(
        &mut self,
        closed: Option<(u64, u64)>,
        span: (u64, u64),
        bottommost: Bottommost,
    ) -> Work {
        let holds = |file: &Arc<File>| match closed {
            Some((smallest, largest)) => file.holds(smallest, largest),
            None => file.overlaps(span.0, span.1),
        };
        let Some(first) = self.levels.iter().position(|files| files.iter().any(holds)) else {
            return Work::default();
        };
        let first_new = self.next_file_number;
        let mut work = Work::default();
        let mut level = first;
        loop {
            let is_last = match self.settings.options.level_compaction_dynamic_level_bytes {
                true => level + 1 >= self.levels.len(),
                false => level + 1 > self.deepest().unwrap_or(0),
            };
            if level > 0 && is_last {
                break;
            }
            let output = if level == 0 { self.base_level() } else { level + 1 };
            work = work.plus(self.compact_step(level, output, span, None));
            level = output;
        }
        match bottommost {
            Bottommost::Default => work,
            Bottommost::ForceOptimized => work.plus(self.compact_step(level, level, span, Some(first_new))),
            Bottommost::Force => work.plus(self.compact_step(level, level, span, None)),
        }
    }

    /// `RunManualCompaction`.
    fn compact_step(
        &mut self,
        input: usize,
        output: usize,
        span: (u64, u64),
        first_new: Option<u64>,
    ) -> Work {
        let mut work = Work::default();
        let mut begin = span.0;
        for _ in 0..JOBS_MAX {
            let Some(Picked { files, next }) = self.pick(input, output, (begin, span.1), first_new) else {
                break;
            };
            let job = self.job(input, files, output, true);
            work = work.plus(self.run(&job));
            match next {
                Some(next) => begin = next,
                None => break,
            }
        }
        work
    }

    /// `PickCompactionForCompactRange`.
    fn pick(&self, input: usize, output: usize, span: (u64, u64), first_new: Option<u64>) -> Option<Picked> {
        let mut files = self.overlapping(input, span.0, span.1);
        let mut is_all = true;
        if input > 0 {
            let fitting = self.fitting(output, &files);
            is_all = fitting == files.len();
            files.truncate(fitting);
        }
        if let Some(first_new) = first_new {
            // The first run of files that are not new; RocksDB does not come back for further ones.
            let is_new = |file: &Arc<File>| file.number >= first_new;
            files = files.into_iter().skip_while(is_new).take_while(|file| !is_new(file)).collect();
        }
        let files = self.cut_cleanly(input, files);
        let last = files.last()?.number;
        let behind = self.levels.get(input)?.iter().skip_while(|file| file.number != last).nth(1);
        let next = behind.filter(|_| !is_all && input > 0).map(|file| file.smallest);
        Some(Picked { files, next })
    }

    /// How many of the files fit into one job: always the first.
    fn fitting(&self, output: usize, files: &[Arc<File>]) -> usize {
        let Some(first) = files.first() else { return 0 };
        let mut input_bytes = first.size_bytes;
        for (place, file) in files.iter().enumerate().skip(1) {
            input_bytes += file.size_bytes;
            let output_bytes = bytes_of(&self.overlapping(output, first.smallest, file.largest));
            if input_bytes + output_bytes > self.settings.options.max_compaction_bytes {
                return place;
            }
        }
        files.len()
    }

    /// `ExpandInputsToCleanCut`: neighbours that share a user key at the border come along.
    pub(crate) fn cut_cleanly(&self, level: usize, mut files: Vec<Arc<File>>) -> Vec<Arc<File>> {
        while let Some((smallest, largest)) = hull(&files).filter(|_| level > 0) {
            let is_open = files.iter().any(|file| file.largest == largest && file.is_open);
            let all = self.levels.get(level).map_or(&[][..], Vec::as_slice).iter();
            let shares = |file: &&Arc<File>| {
                let behind = file.smallest < largest || (file.smallest == largest && !is_open);
                let before = file.largest > smallest || (file.largest == smallest && !file.is_open);
                behind && before
            };
            let wider: Vec<Arc<File>> = all.filter(shares).cloned().collect();
            if wider.len() <= files.len() {
                break;
            }
            files = wider;
        }
        files
    }

    /// A job of some files of a level, with what lies below them and what of their own level can come along.
    /// `SetupOtherInputs`.
    pub(crate) fn job(&self, input: usize, files: Vec<Arc<File>>, output: usize, may_move: bool) -> Job {
        let target_bytes = self.target_bytes(output);
        let with = |inputs| Job {
            inputs,
            output_level: output,
            target_bytes,
            may_move,
            is_apart: false,
            looks_at_grandparents: true,
        };
        let Some((smallest, largest)) = hull(&files).filter(|_| input != output) else {
            return with(vec![(input, files)]);
        };
        let below = self.cut_cleanly(output, self.overlapping(output, smallest, largest));
        if below.is_empty() {
            return with(vec![(input, files)]);
        }
        let Some((smallest, largest)) = hull(files.iter().chain(&below)) else { return with(Vec::new()) };
        let limit = self.settings.options.max_compaction_bytes.saturating_mul(2);
        let is_better =
            |wider: &[Arc<File>]| wider.len() > files.len() && bytes_of(&below) + bytes_of(wider) < limit;
        let wider = self.cut_cleanly(input, self.overlapping(input, smallest, largest));
        let below_of = |files: &[Arc<File>]| match hull(files) {
            Some((smallest, largest)) => {
                self.cut_cleanly(output, self.overlapping(output, smallest, largest)).len()
            }
            None => 0,
        };
        if is_better(&wider) && below_of(&wider) == below.len() {
            return with(vec![(input, wider), (output, below)]);
        }
        let is_open = files.iter().chain(&below).all(|file| file.largest < largest || file.is_open);
        let inside = self.within(input, (smallest, largest), is_open);
        let files = if input > 0 && is_better(&inside) { inside } else { files };
        with(vec![(input, files), (output, below)])
    }

    /// The files of a level that begin and end between two keys, without those at its ends that share a key
    /// with the file beside them. `is_open`: the greater of the two keys does not count.
    /// `GetCleanInputsWithinInterval`.
    fn within(&self, level: usize, (smallest, largest): (u64, u64), is_open: bool) -> Vec<Arc<File>> {
        let files = self.levels.get(level).map_or(&[][..], Vec::as_slice);
        let ends_behind = |file: &Arc<File>| {
            file.largest > largest || (file.largest == largest && is_open && !file.is_open)
        };
        let touches = |place: usize| match (files.get(place), files.get(place + 1)) {
            (Some(one), Some(next)) => one.largest == next.smallest && !one.is_open,
            _ => false,
        };
        let mut begin = files.partition_point(|file| file.smallest < smallest);
        while begin > 0 && touches(begin - 1) {
            begin += 1;
        }
        let mut end = files.partition_point(|file| !ends_behind(file));
        while end > begin && touches(end - 1) {
            end -= 1;
        }
        files.get(begin..end).unwrap_or(&[]).to_vec()
    }

    /// A job that merges whatever it is given.
    pub(crate) fn plain_job(
        &self,
        inputs: Vec<(usize, Vec<Arc<File>>)>,
        output_level: usize,
        target_bytes: u64,
    ) -> Job {
        Job {
            inputs,
            output_level,
            target_bytes,
            may_move: false,
            is_apart: false,
            looks_at_grandparents: false,
        }
    }

    /// All files of all levels, as `CompactRange` takes them with universal compaction.
    fn compact_everything(&mut self) -> Work {
        let inputs: Vec<(usize, Vec<Arc<File>>)> = self.levels.iter().cloned().enumerate().collect();
        let inputs: Vec<_> = inputs.into_iter().filter(|(_, files)| !files.is_empty()).collect();
        if inputs.is_empty() {
            return Work::default();
        }
        let output_level = self.levels.len() - 1;
        self.run(&self.plain_job(inputs, output_level, self.target_bytes(output_level)))
    }

    /// `CompactFiles`: the files of these numbers, with all that overlaps them down to the output level, into
    /// files of at most so many bytes. `None` where none of them is there.
    pub fn compact_files(
        &mut self,
        numbers: &BTreeSet<u64>,
        output_level: usize,
        output_file_size_limit: u64,
    ) -> Option<Work> {
        let job = self.files_job(numbers, output_level, output_file_size_limit)?;
        Some(self.run(&job))
    }

    /// `SanitizeCompactionInputFiles`.
    fn files_job(&self, numbers: &BTreeSet<u64>, output_level: usize, target_bytes: u64) -> Option<Job> {
        let output_level = output_level.min(self.levels.len() - 1);
        let mut taken = numbers.clone();
        let mut span: Option<(u64, u64)> = None;
        for level in 0..=output_level {
            let files = self.levels.get(level)?;
            let is_taken = |file: &Arc<File>| taken.contains(&file.number);
            let (Some(first), Some(mut last)) =
                (files.iter().position(is_taken), files.iter().rposition(is_taken))
            else {
                continue;
            };
            if level == 0 && output_level > 0 {
                last = files.len() - 1;
            }
            let own = match level {
                0 => files.get(first..=last)?,
                _ => touching(files, first, last),
            };
            let (smallest, largest) = hull(own)?;
            let (smallest, largest) =
                span.map_or((smallest, largest), |span| (span.0.min(smallest), span.1.max(largest)));
            span = Some((smallest, largest));
            taken.extend(own.iter().map(|file| file.number));
            for below in level.max(1)..=output_level {
                taken.extend(self.overlapping(below, smallest, largest).iter().map(|file| file.number));
            }
        }
        let inputs = self.levels.iter().enumerate().take(output_level + 1).map(|(level, files)| {
            (level, files.iter().filter(|file| taken.contains(&file.number)).cloned().collect::<Vec<_>>())
        });
        let inputs: Vec<_> = inputs.filter(|(_, files)| !files.is_empty()).collect();
        span?;
        Some(self.plain_job(inputs, output_level, target_bytes))
    }

    /// `SuggestCompactRange`: marks files that overlap the range, both ends inclusive, but for those of the
    /// last level that has any; RocksDB's own compactions take them when they have nothing better to do.
    pub fn suggest_compact_range(&mut self, begin: Option<u64>, end: Option<u64>) {
        let (smallest, largest) = (begin.unwrap_or(0), end.unwrap_or(u64::MAX));
        let last = self.deepest().unwrap_or(0);
        for files in self.levels.iter_mut().take(last) {
            for file in files.iter_mut().filter(|file| file.overlaps(smallest, largest)) {
                Arc::make_mut(file).is_marked = true;
            }
        }
    }
}

/// The files of a level from `first` to `last`, with neighbours that begin or end at the same key. Other than
/// `ExpandInputsToCleanCut` this also takes one that begins where a range tombstone ends the one before.
fn touching(files: &[Arc<File>], first: usize, last: usize) -> &[Arc<File>] {
    let touches = |pair: &[Arc<File>]| matches!(pair, [one, two] if one.largest >= two.smallest);
    let before = files.get(..=first).unwrap_or(&[]).windows(2).rev().take_while(|pair| touches(pair)).count();
    let behind = files.get(last..).unwrap_or(&[]).windows(2).take_while(|pair| touches(pair)).count();
    files.get(first - before..=last + behind).unwrap_or(&[])
}
