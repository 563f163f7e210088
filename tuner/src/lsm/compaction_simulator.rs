//! What RocksDB's `CompactRange` does, walked through on a column family's live files (level style).
//!
//! It goes down level by level (`DBImpl::CompactRangeInternal`). At each it takes the files that overlap the
//! range, whole, in jobs of at most `max_compaction_bytes`, and merges them with every file of the next level
//! that overlaps any of them (`CompactionPicker::PickCompactionForCompactRange`). What a job has written is
//! there for the next one to read again. Files with nothing below them are moved and not rewritten. At last,
//! where that is forced, the files of the bottommost level are rewritten by themselves.
//!
//! What the files do not tell is estimated: how much is left of what a job merges, and where RocksDB cuts
//! its output into files. Both matter only for what the same compaction reads again further down. Not known
//! at all are keys that were overwritten, and whether a file whose ends enclose the range holds a key of it:
//! RocksDB looks and passes over such levels at the top, so a prediction is rather too high than too low.

use crate::facts::options::ColumnFamilyOptions;
use crate::lsm::cost::{Bottommost, Prediction};
use crate::lsm::level_view::LevelView;
use crate::lsm::placed::{File, Span, portion};

/// Most jobs of one compaction that are walked through; of RocksDB's default size they rewrite 800 GiB, more
/// than any budget pays for.
const JOBS_MAX: u32 = 512;

/// Most files that the output of one job is cut into.
const OUTPUTS_MAX: usize = 128;

/// Most files that the outputs of one compaction are cut into; what comes after is one file a job.
const ALL_OUTPUTS_MAX: usize = 1024;

/// Most parts that the keys of a job's input are divided into for cutting its output.
const PARTS_MAX: usize = 128;

/// Share of its full size from which on RocksDB ends a file where one of the level below ends, and by how
/// much that share grows with each such place that it has passed, up to the last one.
const EARLY_END_SHARE: (f64, f64, f64) = (0.5, 0.1, 0.9);

/// Where files below tell where to end one, it may become larger than its full size by this factor.
const LATE_END_FACTOR: f64 = 2.0;

/// What is known of a column family as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whole {
    /// Where L0 is compacted into.
    pub(crate) base_level: usize,
    /// The deepest level that holds a file.
    pub(crate) deepest: usize,
    /// Whether no two files of L0 overlap.
    pub(crate) is_level0_disjoint: bool,
}

/// An LSM tree while a compaction goes through it.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'l> {
    options: &'l ColumnFamilyOptions,
    /// L0 first; from L1 on by smallest key and disjoint.
    levels: Vec<LevelView<'l>>,
    base_level: usize,
    deepest: usize,
    is_level0_disjoint: bool,
    prediction: Prediction,
    jobs_left: u32,
    outputs_left: usize,
}

/// What one job takes.
struct Job {
    /// Places in the input level.
    inputs: Vec<usize>,
    /// Places in the output level; none where both are the same.
    output_inputs: Vec<usize>,
    /// Where the next job begins; `None` when the range is done.
    next: Option<f64>,
}

impl<'l> Walk<'l> {
    /// A walk that begins with these levels, L0 first.
    pub(crate) fn new(options: &'l ColumnFamilyOptions, levels: &'l [Vec<File>], whole: Whole) -> Walk<'l> {
        let Whole { base_level, deepest, is_level0_disjoint } = whole;
        let levels = levels.iter().map(|files| LevelView::of(files)).collect();
        let prediction = Prediction::default();
        let (jobs_left, outputs_left) = (JOBS_MAX, ALL_OUTPUTS_MAX);
        Walk { options, levels, base_level, deepest, is_level0_disjoint, prediction, jobs_left, outputs_left }
    }

    /// The whole compaction.
    pub(crate) fn compact(mut self, span: Span, bottommost: Bottommost) -> Prediction {
        let touches = |level: usize| !self.overlapping(level, &span).is_empty();
        let Some(mut level) = (0..self.levels.len()).find(|level| touches(*level)) else {
            return self.prediction;
        };
        let is_dynamic = self.options.level_compaction_dynamic_level_bytes;
        loop {
            let last = if is_dynamic { self.levels.len() - 1 } else { self.deepest };
            if level > 0 && level >= last {
                break;
            }
            let output = if level == 0 && is_dynamic { self.base_level } else { level + 1 };
            self.step(level, output, &span, Bottommost::Force);
            level = output;
        }
        match bottommost {
            // The filter has to see them all.
            Bottommost::Default if self.options.has_compaction_filter => {
                self.step(level, level, &span, Bottommost::ForceOptimized);
            }
            Bottommost::Default => {}
            forced => self.step(level, level, &span, forced),
        }
        // What the compaction has written at the bottom holds none.
        let places = self.overlapping(level, &span);
        let untouched = self.files(level, &places).filter(|file| !file.is_new);
        let deletions_left = untouched.map(|file| file.deletions).fold(0, u64::saturating_add);
        Prediction { deletions_left, ..self.prediction }
    }

    /// Places of the files of a level that overlap a span; in L0 also those that these draw in.
    fn overlapping(&self, level: usize, span: &Span) -> Vec<usize> {
        match self.levels.get(level) {
            Some(files) if level == 0 => files.drawn_in(span),
            Some(files) => files.overlapping(span).collect(),
            None => Vec::new(),
        }
    }

    fn file(&self, level: usize, place: usize) -> Option<&File> {
        self.levels.get(level)?.get(place)
    }

    fn files<'w>(&'w self, level: usize, places: &'w [usize]) -> impl Iterator<Item = &'w File> {
        places.iter().filter_map(move |place| self.file(level, *place))
    }

    fn bytes(&self, level: usize, places: &[usize]) -> u64 {
        self.files(level, places).map(|file| file.size_bytes).fold(0, u64::saturating_add)
    }

    /// `RunManualCompaction`: from one level to another, or within the bottommost one, job after job.
    fn step(&mut self, input: usize, output: usize, span: &Span, bottommost: Bottommost) {
        let mut span = *span;
        while self.jobs_left > 0 {
            self.jobs_left -= 1;
            let Some(job) = self.pick(input, output, &span, bottommost) else { return };
            let next = job.next;
            self.carry_out(input, output, job);
            match next {
                Some(begin) => span.begin = begin,
                None => return,
            }
        }
    }

    /// `PickCompactionForCompactRange`.
    fn pick(&self, input: usize, output: usize, span: &Span, bottommost: Bottommost) -> Option<Job> {
        let mut inputs = self.overlapping(input, span);
        let mut is_all = true;
        if input > 0 {
            let fitting = self.fitting(input, output, &inputs);
            is_all = fitting == inputs.len();
            inputs.truncate(fitting);
        }
        if input == output && bottommost == Bottommost::ForceOptimized {
            // The first run of files that are not new. RocksDB means to come back for further ones and does
            // not (it looks for them in the list that it has cut to the first run; 6.x to 11.x).
            let is_new = |place: &usize| self.file(input, *place).is_none_or(|file| file.is_new);
            inputs = inputs.into_iter().skip_while(is_new).take_while(|place| !is_new(place)).collect();
        }
        if inputs.is_empty() {
            return None;
        }
        let mut inputs = self.cut_cleanly(input, inputs);
        let behind = inputs.last().and_then(|last| self.file(input, last + 1));
        let next = behind.filter(|_| !is_all && input > 0).map(|file| file.begin);
        let mut output_inputs = Vec::new();
        if input != output {
            output_inputs = self.below(output, self.files(input, &inputs));
            inputs = self.widened(input, output, inputs, &output_inputs);
        }
        Some(Job { inputs, output_inputs, next })
    }

    /// How many of the inputs fit into one job: always the first.
    fn fitting(&self, input: usize, output: usize, inputs: &[usize]) -> usize {
        let Some(first) = inputs.first().and_then(|place| self.file(input, *place)) else { return 0 };
        let mut input_bytes = first.size_bytes;
        for (index, place) in inputs.iter().enumerate().skip(1) {
            let Some(file) = self.file(input, *place) else { return index };
            let span = Span { begin: first.begin, end: file.end };
            let output_bytes = self.bytes(output, &self.overlapping(output, &span));
            input_bytes = input_bytes.saturating_add(file.size_bytes);
            if input_bytes.saturating_add(output_bytes) > self.options.max_compaction_bytes {
                return index;
            }
        }
        inputs.len()
    }

    /// `ExpandInputsToCleanCut`: neighbours that share a user key at the border come along.
    fn cut_cleanly(&self, level: usize, mut places: Vec<usize>) -> Vec<usize> {
        if level == 0 {
            return places;
        }
        while let Some(hull) = Span::hull(self.files(level, &places)) {
            let wider = self.overlapping(level, &hull);
            if wider.len() <= places.len() {
                break;
            }
            places = wider;
        }
        places
    }

    /// The files of a level below some others.
    fn below<'f>(&self, level: usize, files: impl IntoIterator<Item = &'f File>) -> Vec<usize> {
        match Span::hull(files) {
            Some(hull) => self.cut_cleanly(level, self.overlapping(level, &hull)),
            None => Vec::new(),
        }
    }

    /// `SetupOtherInputs`: more of the input level comes along where that draws in no more of the output
    /// level.
    fn widened(&self, input: usize, output: usize, inputs: Vec<usize>, below: &[usize]) -> Vec<usize> {
        let Some(hull) = Span::hull(self.files(input, &inputs).chain(self.files(output, below))) else {
            return inputs;
        };
        if below.is_empty() {
            return inputs;
        }
        let limit = self.options.max_compaction_bytes.saturating_mul(2);
        let below_bytes = self.bytes(output, below);
        let is_better = |wider: &[usize]| {
            wider.len() > inputs.len() && below_bytes.saturating_add(self.bytes(input, wider)) < limit
        };
        let wider = self.cut_cleanly(input, self.overlapping(input, &hull));
        if is_better(&wider) && self.below(output, self.files(input, &wider)).len() == below.len() {
            return wider;
        }
        if input == 0 {
            return inputs;
        }
        let inside = |place: &usize| self.file(input, *place).is_some_and(|file| hull.encloses(file));
        let enclosed: Vec<usize> = self.overlapping(input, &hull).into_iter().filter(inside).collect();
        if is_better(&enclosed) { enclosed } else { inputs }
    }

    fn carry_out(&mut self, input: usize, output: usize, job: Job) {
        let is_move = self.is_trivial_move(input, output, &job);
        let mut taken = self.take(input, &job.inputs);
        if input != output {
            taken.extend(self.take(output, &job.output_inputs));
        }
        self.deepest = self.deepest.max(output);
        if !is_move {
            let read_bytes = taken.iter().map(|file| file.size_bytes).fold(0, u64::saturating_add);
            self.prediction.jobs = self.prediction.jobs.saturating_add(1);
            self.prediction.read_bytes = self.prediction.read_bytes.saturating_add(read_bytes);
            self.prediction.largest_job_bytes = self.prediction.largest_job_bytes.max(read_bytes);
            let linked_bytes = taken.iter().map(File::linked_bytes).fold(0, u64::saturating_add);
            self.prediction.linked_bytes = self.prediction.linked_bytes.saturating_add(linked_bytes);
            let ends_below = self.ends_below(output, &taken);
            let target_bytes = match self.outputs_left {
                0 => u64::MAX,
                _ => self.options.target_file_size(output, self.base_level),
            };
            taken = merged(&taken, ends_below.as_deref(), target_bytes);
            self.outputs_left = self.outputs_left.saturating_sub(taken.len());
        }
        if let Some(files) = self.levels.get_mut(output) {
            files.insert(taken);
        }
    }

    /// Where files end in the first level below that has any under these; `None` where nothing lies below.
    fn ends_below(&self, output: usize, files: &[File]) -> Option<Vec<f64>> {
        let hull = Span::hull(files)?;
        let below = (output + 1..self.levels.len()).map(|level| (level, self.overlapping(level, &hull)));
        let (level, places) = below.into_iter().find(|(_, places)| !places.is_empty())?;
        Some(self.files(level, &places).map(|file| file.end).collect())
    }

    fn take(&mut self, level: usize, places: &[usize]) -> Vec<File> {
        self.levels.get_mut(level).map(|files| files.take(places)).unwrap_or_default()
    }

    /// `Compaction::IsTrivialMove`.
    fn is_trivial_move(&self, input: usize, output: usize, job: &Job) -> bool {
        if input == output
            || !job.output_inputs.is_empty()
            || (input == 0 && !self.is_level0_disjoint)
            || self.options.has_compaction_filter
        {
            return false;
        }
        let compression = |level| self.options.compression_of(level, self.base_level, self.deepest);
        if compression(input) != compression(output) {
            return false;
        }
        // A file that is large, or lies over much of the level below, would be dear to merge later. Into the
        // last level any is moved.
        let is_last = output + 1 >= self.levels.len();
        is_last
            || self.files(input, &job.inputs).all(|file| {
                let below = self.below(output + 1, [file]);
                let bytes = self.bytes(output + 1, &below).saturating_add(file.size_bytes);
                bytes <= self.options.max_compaction_bytes
            })
    }
}

/// What a job writes of what it has read. A deletion takes one older entry with it, and goes itself where
/// nothing lies below.
fn merged(inputs: &[File], ends_below: Option<&[f64]>, target_bytes: u64) -> Vec<File> {
    let sum = |of: fn(&File) -> u64| inputs.iter().map(of).fold(0, u64::saturating_add);
    let (size_bytes, entries) = (sum(|file| file.size_bytes), sum(|file| file.entries));
    let deletions = sum(|file| file.deletions.min(file.entries)).min(entries);
    let deletions_bytes =
        inputs.iter().map(File::deletions_bytes).fold(0, u64::saturating_add).min(size_bytes);
    let live = entries - deletions;
    let hidden = deletions.min(live);
    // Where nothing lives the deletions were all that there was.
    let live_bytes = if live == 0 { 0 } else { portion(size_bytes - deletions_bytes, live - hidden, live) };
    let left = match ends_below {
        // Files that do not say how many entries they have are kept whole.
        _ if entries == 0 => (size_bytes, 0, 0),
        None => (live_bytes, live - hidden, 0),
        // Tombstones that something lies below are all still there.
        Some(_) if live == 0 => (size_bytes, entries, deletions),
        Some(_) => (live_bytes.saturating_add(deletions_bytes), entries - hidden, deletions),
    };
    if left.0 == 0 {
        return Vec::new();
    }
    let full_share = target_bytes as f64 / left.0 as f64;
    let key_bytes = inputs.iter().map(|file| file.key_bytes).max().unwrap_or(0);
    let file = |piece: Piece| File {
        number: 0,
        size_bytes: (left.0 as f64 * piece.share) as u64,
        entries: (left.1 as f64 * piece.share) as u64,
        deletions: (left.2 as f64 * piece.share) as u64,
        begin: piece.begin,
        end: piece.end,
        key_bytes,
        is_new: true,
        is_linked: false,
    };
    cuts(inputs, ends_below.unwrap_or(&[]), full_share).into_iter().map(file).collect()
}

/// One file of a job's output.
struct Piece {
    begin: f64,
    end: f64,
    /// Its share of the output, 0 to 1.
    share: f64,
}

/// Cuts what the inputs hold into files of a full size (a share of all), as RocksDB does it: where files
/// below end, as soon as a file is large enough for that.
fn cuts(inputs: &[File], ends_below: &[f64], full_share: f64) -> Vec<Piece> {
    let Some(hull) = Span::hull(inputs) else { return Vec::new() };
    let scale = Scale::of(inputs);
    let full = full_share.max(1.0 / OUTPUTS_MAX as f64);
    let longest = if ends_below.is_empty() { full } else { full * LATE_END_FACTOR };
    let ends: Vec<(f64, f64)> = ends_below.iter().map(|end| (scale.share_before(*end), *end)).collect();
    let mut pieces = Vec::new();
    let (mut begin, mut done) = (hull.begin, 0.0);
    while pieces.len() < OUTPUTS_MAX {
        let (least, more, most) = EARLY_END_SHARE;
        let ahead =
            ends.iter().filter(|(share, _)| *share > done && *share <= done + longest && *share < 1.0);
        let early = (1..).zip(ahead).find(|(passed, (share, _))| {
            let large_enough = (least + more * f64::from(*passed)).min(most);
            share - done >= full * large_enough
        });
        let (share, cut) = match early {
            Some((_, (share, end))) => (*share, *end),
            None if done + longest < 1.0 => (done + longest, scale.place_at(done + longest)),
            None => break,
        };
        if cut <= begin || cut >= hull.end {
            break;
        }
        pieces.push(Piece { begin: std::mem::replace(&mut begin, cut), end: cut, share: share - done });
        done = share;
    }
    pieces.push(Piece { begin, end: hull.end, share: (1.0 - done).max(0.0) });
    pieces
}

/// How the bytes of some files are spread over their keys: evenly in each.
struct Scale {
    /// Where a part begins and ends, the share of the bytes before it, and its own.
    parts: Vec<(f64, f64, f64, f64)>,
}

impl Scale {
    fn of(files: &[File]) -> Scale {
        let mut borders: Vec<f64> = files.iter().flat_map(|file| [file.begin, file.end]).collect();
        borders.sort_by(f64::total_cmp);
        borders.dedup();
        let last = borders.last().copied();
        let step = borders.len().div_ceil(PARTS_MAX).max(1);
        let mut borders: Vec<f64> = borders.into_iter().step_by(step).collect();
        borders.extend(last.filter(|last| borders.last() != Some(last)));
        let bytes = |begin: f64, end: f64| -> f64 {
            let part = |file: &File| {
                let length = (file.end - file.begin).max(f64::MIN_POSITIVE);
                (end.min(file.end) - begin.max(file.begin)).max(0.0) / length * file.size_bytes as f64
            };
            files.iter().map(part).sum()
        };
        let parts: Vec<(f64, f64, f64)> = borders
            .windows(2)
            .filter_map(|pair| match pair {
                [begin, end] => Some((*begin, *end, bytes(*begin, *end))),
                _ => None,
            })
            .collect();
        let total = parts.iter().map(|part| part.2).sum::<f64>().max(1.0);
        let mut before = 0.0;
        let part = |(begin, end, bytes)| {
            let part = (begin, end, before, bytes / total);
            before += part.3;
            part
        };
        Scale { parts: parts.into_iter().map(part).collect() }
    }

    fn share_before(&self, place: f64) -> f64 {
        let number = self.parts.partition_point(|(_, end, ..)| *end <= place);
        self.parts.get(number).map_or(1.0, |(begin, end, before, share)| {
            before + share * ((place - begin) / (end - begin)).clamp(0.0, 1.0)
        })
    }

    fn place_at(&self, share: f64) -> f64 {
        let number = self.parts.partition_point(|(.., before, own)| before + own < share);
        let part = self.parts.get(number).or(self.parts.last());
        part.map_or(0.0, |(begin, end, before, own)| {
            begin + (end - begin) * ((share - before) / own.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
        })
    }
}
