//! Where inside files their deletions lie.
//!
//! A file says how many deletions it holds, not where. In a queue it holds the deletions of the oldest
//! keys and the entries of the newest, with nothing in between: spreading the deletions evenly over the
//! whole file puts most of them where there are none. The probes say between which keys an operation has
//! stepped over how many. So each file's deletions are spread as its entries are, and so are those of the
//! memtables, and then moved until what lies between the ends of the operations is what these have met, as
//! far as the counts of files and memtables allow. Sums over a file stay what they are.

use crate::facts::evidence::{MemtableDeletions, Observation, SeekKind, SstFile};
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use crate::lsm::ruler::{Mark, OverSpans, Ruler, running, shared_out, within};
use crate::lsm::share::Share;
use std::collections::BTreeMap;

/// Most different walks that deletions are fitted to, those that met most of them.
const WALKS_MAX: usize = 4096;

/// How often what was met is compared with what is thought to lie there.
const ROUNDS: usize = 24;

/// By no more than this factor one comparison moves anything.
const FACTOR_MAX: f64 = 8.0;

/// Thickness that is left of an interval in which nothing was met, as a share of what it was: of nothing no
/// factor makes anything again.
const THICKNESS_LEFT_MIN: f64 = 1e-9;

/// A positioning call meets its tombstones one behind the other. Among this many times as many entries as it
/// stepped over they are looked for: where entries lie is an estimate.
const ENTRIES_FACTOR: f64 = 2.0;

/// Files are spread unevenly inside a range, so an operation may have passed this many times more live
/// entries than it stepped over by RocksDB's own count.
const LIVE_ENTRIES_FACTOR: u64 = 4;
/// And this many more, for small counts.
const LIVE_ENTRIES_SLACK: u64 = 1000;

/// From where to where, on the ruler.
type Stretch = (f64, f64);

/// Where an operation, or a part of it, met its tombstones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    /// From where to where, by the grid.
    pub(crate) grid: (usize, usize),
    /// As many as files can have there.
    pub(crate) in_files: u64,
    pub(crate) in_memtables: u64,
}

/// What the files and the memtables of a column family hold between which keys.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    ruler: Ruler,
    /// Places on the ruler, in order: where files and operations begin and end.
    grid: Vec<f64>,
    /// Before each of them: bytes and entries of files, deletions in files and in memtables.
    size_bytes: Vec<f64>,
    entries: Vec<f64>,
    deletions: Vec<f64>,
    memtables: Vec<f64>,
    /// How thick the files' deletions lie in each interval, compared with the others.
    thickness: Vec<f64>,
    /// Deletions of the files that begin before each place, and of those that end there or before.
    begun: Vec<f64>,
    ended: Vec<f64>,
    memtable_deletions: u64,
}

/// A file, where it lies on the grid, and what is in it.
#[derive(Clone, Copy)]
struct Held<'f> {
    span: (usize, usize),
    file: &'f SstFile,
}

impl Held<'_> {
    fn deletions(&self) -> f64 {
        self.file.deletions as f64
    }

    /// Those of its entries that deletions are.
    fn dead_share(&self) -> f64 {
        self.file.deletions.min(self.file.entries) as f64 / self.file.entries.max(1) as f64
    }
}

/// A part of an operation.
#[derive(Clone, Copy, Debug)]
struct Leg<'k> {
    from: Mark<'k>,
    /// Where it ended, where that is known.
    to: Option<Mark<'k>>,
    is_forward: bool,
    tombstones: u64,
    /// What the positioning call at its beginning stepped over: entries, and the tombstones among them.
    sought: (u64, u64),
}

impl<'k> Leg<'k> {
    fn span(&self) -> Option<(Mark<'k>, Mark<'k>)> {
        let to = self.to?;
        let (low, high) = if self.is_forward { (self.from, to) } else { (to, self.from) };
        (low < high).then_some((low, high))
    }

    /// The whole of it on the ruler, and the part in which its positioning call met tombstones.
    fn places(&self, ruler: &Ruler) -> Option<(Stretch, Option<Stretch>)> {
        let (low, high) = self.span().map(|(low, high)| (ruler.at(low), ruler.at(high)))?;
        let (entries, tombstones) = self.sought;
        let length = entries as f64 * ENTRIES_FACTOR + 1.0;
        let near = match self.is_forward {
            true => (low, (low + length).min(high)),
            false => ((high - length).max(low), high),
        };
        Some(((low, high), (tombstones > 0).then_some(near)))
    }
}

/// The operation's legs: one, or two where its scan turned back over the key that it was positioned at;
/// `last` is behind all keys.
fn legs<'k>(operation: &'k Observation, first: Mark<'k>, last: Mark<'k>) -> Vec<Leg<'k>> {
    let tombstones = operation.total().tombstones_skipped;
    let seeks_forward = operation.kind.is_forward();
    let scans_forward = match (&operation.end_key, operation.kind) {
        (None, _) | (_, SeekKind::SeekToFirst | SeekKind::SeekToLast) => seeks_forward,
        (Some(end), SeekKind::Seek) => *end >= operation.key,
        (Some(end), SeekKind::SeekForPrev) => *end > operation.key,
    };
    // The key itself is the positioning call's.
    let from = match operation.kind {
        SeekKind::SeekToFirst => first,
        SeekKind::SeekToLast => last,
        SeekKind::Seek => Mark::before(&operation.key),
        SeekKind::SeekForPrev => Mark::behind(&operation.key),
    };
    let to = operation.end_key.as_ref();
    let to = to.map(|end| if scans_forward { Mark::behind(end) } else { Mark::before(end) });
    let by_call = operation.seek.tombstones_skipped.min(tombstones);
    let sought = (by_call.saturating_add(operation.seek.keys_skipped), by_call);
    if scans_forward == seeks_forward {
        return vec![Leg { from, to, is_forward: seeks_forward, tombstones, sought }];
    }
    let scanned = operation.scan.tombstones_skipped.min(tombstones);
    vec![
        Leg { from, to: None, is_forward: seeks_forward, tombstones: tombstones - scanned, sought },
        Leg { from, to, is_forward: scans_forward, tombstones: scanned, sought: (0, 0) },
    ]
}

impl Placement {
    /// Of one column family's files, the operations in it, and what RocksDB says of its memtables.
    pub fn of(
        files: &[&SstFile],
        observations: &[&Observation],
        memtables: Option<MemtableDeletions>,
    ) -> Placement {
        let spans: Vec<_> = files.iter().map(|file| Mark::around(file)).collect();
        let ends = (spans.iter().map(|span| span.0).min(), spans.iter().map(|span| span.1).max());
        let (first, last) = (ends.0.unwrap_or(Mark::FIRST), ends.1.unwrap_or(Mark::FIRST));
        let all = observations.iter().flat_map(|observation| {
            let legs = legs(observation, first, last);
            legs.into_iter().map(|leg| (leg, observation.weight))
        });
        let all: Vec<(Leg<'_>, u64)> = all.collect();
        let of_legs = all.iter().map(|(leg, _)| leg.span().unwrap_or((leg.from, leg.from)));
        let spans: Vec<_> = spans.into_iter().chain(of_legs).collect();
        let entries: Vec<u64> = files.iter().map(|file| file.entries).collect();
        let (ruler, places) = Ruler::of(&spans, &entries);
        let walks = walks(&all, &ruler);
        let mut grid: Vec<f64> =
            places.into_iter().take(files.len()).flat_map(|place| [place.0, place.1]).collect();
        let ends = grid.clone();
        grid.extend(walks.iter().flat_map(|(walk, _)| [walk.0, walk.1]));
        // What is in memtables can lie outside of all files.
        grid.extend(all.iter().filter(|(leg, _)| leg.to.is_none()).map(|(leg, _)| ruler.at(leg.from)));
        let outermost =
            grid.iter().copied().min_by(f64::total_cmp).zip(grid.iter().copied().max_by(f64::total_cmp));
        grid.extend(outermost.iter().flat_map(|(low, high)| [low - 1.0, high + 1.0]));
        grid.sort_by(f64::total_cmp);
        grid.dedup();
        let number = |place: f64| grid.partition_point(|other| *other < place);
        let held = ends.chunks_exact(2).zip(files).filter_map(|(ends, file)| match ends {
            [low, high] => Some(Held { span: (number(*low), number(*high)), file }),
            _ => None,
        });
        let held: Vec<Held<'_>> = held.collect();
        let met = walks.iter().map(|((low, high), met)| ((number(*low), number(*high)), *met));
        let met: Vec<((usize, usize), f64)> = met.collect();
        let ends = all.iter().map(|(leg, _)| match leg.to {
            Some(to) => interval(&grid, ruler.at(to), leg.is_forward),
            None => interval(&grid, ruler.at(leg.from), !leg.is_forward),
        });
        let memtable_deletions = memtables.map_or(0, MemtableDeletions::total);
        let fitting = Fitting::of(&grid, held, met, (ends.collect(), memtable_deletions));
        fitting.placed(ruler, grid, memtable_deletions)
    }

    /// What files have in a range.
    pub fn share(&self, range: &KeyRange) -> Share {
        let (low, high) = self.ends(range);
        // Differences of whole running sums: the parts add up exactly.
        let between =
            |sums: &[f64]| (high.of(sums).round() as u64).saturating_sub(low.of(sums).round() as u64);
        Share {
            size_bytes: between(&self.size_bytes),
            entries: between(&self.entries),
            deletions: between(&self.deletions),
        }
    }

    /// What belongs to the keys of a range of things that are known by the grid.
    pub(crate) fn sums_within<const N: usize>(&self, all: [&[f64]; N], range: &KeyRange) -> [f64; N] {
        let (low, high) = self.ends(range);
        all.map(|sums| (high.of(sums) - low.of(sums)).max(0.0))
    }

    /// How many intervals the grid has.
    pub(crate) fn intervals(&self) -> usize {
        self.grid.len()
    }

    /// Entries between each place of the grid and the next one, as far as the keys' order tells.
    pub(crate) fn lengths(&self) -> Vec<f64> {
        lengths(&self.grid)
    }

    /// How much of something comes before a key, by its running sums.
    pub(crate) fn before(&self, sums: &[f64], key: &Key) -> f64 {
        self.on_grid(key).of(sums)
    }

    /// From where to where on the grid an operation went. Where its end is not known, it went as far as it
    /// takes to step over as many entries as it did.
    pub(crate) fn walked(&self, operation: &Observation) -> Option<(usize, usize)> {
        let last = self.grid.len().checked_sub(1)?;
        let legs = legs(operation, self.ruler.first()?, self.ruler.last()?);
        if let Some((low, high)) = legs.iter().find_map(Leg::span) {
            let first = self.grid.partition_point(|other| *other <= self.ruler.at(low)).saturating_sub(1);
            let behind = self.grid.partition_point(|other| *other < self.ruler.at(high)).min(last);
            return (first < behind).then_some((first, behind));
        }
        let leg = legs.first()?;
        let stepped_over = operation.total().keys_skipped as f64;
        let from = self.ruler.at(leg.from);
        let grid = match leg.is_forward {
            true => {
                let first = self.grid.partition_point(|other| *other <= from).saturating_sub(1);
                (first, first_where(first, last, |to| within(&self.entries, (first, to)) >= stepped_over))
            }
            false => {
                let behind = self.grid.partition_point(|other| *other < from).min(last);
                let is_enough = |back: usize| within(&self.entries, (behind - back, behind)) >= stepped_over;
                (behind - first_where(0, behind, is_enough), behind)
            }
        };
        (grid.0 < grid.1).then_some(grid)
    }

    /// Where a file lies on the grid.
    pub(crate) fn span_of(&self, file: &SstFile) -> (usize, usize) {
        let (low, high) = Mark::around(file);
        let number = |mark| {
            let place = self.ruler.at(mark);
            self.grid.partition_point(|other| *other < place)
        };
        (number(low), number(high))
    }

    /// Something that files have, shared out as their deletions are: sums by the grid.
    pub(crate) fn like_deletions<'f>(&self, amounts: impl Iterator<Item = (&'f SstFile, f64)>) -> Vec<f64> {
        running(shared_out(&self.thickness, amounts.map(|(file, amount)| (self.span_of(file), amount))))
    }

    /// Something that files have, shared out as their entries are: sums by the grid.
    pub(crate) fn like_entries<'f>(&self, amounts: impl Iterator<Item = (&'f SstFile, f64)>) -> Vec<f64> {
        let lengths = lengths(&self.grid);
        running(shared_out(&lengths, amounts.map(|(file, amount)| (self.span_of(file), amount))))
    }

    fn ends(&self, range: &KeyRange) -> (OnGrid, OnGrid) {
        let behind_all = OnGrid { behind: self.grid.len(), part: 1.0 };
        (self.on_grid(&range.begin), range.end.as_ref().map_or(behind_all, |end| self.on_grid(end)))
    }

    fn on_grid(&self, key: &Key) -> OnGrid {
        if key.is_empty() {
            return OnGrid { behind: 0, part: 0.0 };
        }
        let place = self.ruler.at(Mark::before(key));
        let behind = self.grid.partition_point(|other| *other < place);
        let at = |number: usize| self.grid.get(number).or(self.grid.last()).copied().unwrap_or(0.0);
        let (low, high) = (at(behind.saturating_sub(1)), at(behind));
        let part = if high > low { ((place - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 };
        OnGrid { behind, part }
    }

    /// Deletions of files between two places of the grid.
    pub(crate) fn deletions_between(&self, grid: (usize, usize)) -> f64 {
        within(&self.deletions, grid)
    }

    /// Deletions before a key: in files and in memtables.
    pub(crate) fn deletions_before(&self, key: &Key) -> (f64, f64) {
        let place = self.on_grid(key);
        (place.of(&self.deletions), place.of(&self.memtables))
    }

    /// Deletions in each interval of the grid: in files, and in memtables.
    pub(crate) fn deletions_by_interval(&self) -> [Vec<f64>; 2] {
        let apart = |sums: &Vec<f64>| {
            let next = sums.iter().skip(1).chain(sums.last());
            sums.iter().zip(next).map(|(sum, next)| next - sum).collect()
        };
        [apart(&self.deletions), apart(&self.memtables)]
    }

    /// Deletions before a place of the grid: in files and in memtables.
    pub(crate) fn deletions_at(&self, number: usize) -> (f64, f64) {
        let at = |sums: &[f64]| sums.get(number).copied().unwrap_or(0.0);
        (at(&self.deletions), at(&self.memtables))
    }

    /// Whether a key divides what lies between two places of the grid.
    pub(crate) fn is_within(&self, key: &Key, (first, last): (usize, usize)) -> bool {
        let place = self.ruler.at(Mark::before(key));
        let at = |number: usize| self.grid.get(number).copied().unwrap_or(0.0);
        place > at(first) && place < at(last)
    }

    /// Where an operation met its tombstones, and how many are left over that neither files nor memtables can
    /// have had. What is not on one side of the key is looked for on the other one as well.
    pub(crate) fn met(&self, operation: &Observation, tombstones: u64) -> (Vec<Met>, u64) {
        let mut parts = Vec::new();
        let (mut left_over, mut given) = (0_u64, 0_u64);
        let (Some(first), Some(last)) = (self.ruler.first(), self.ruler.last()) else {
            return (parts, tombstones);
        };
        let mut left = Left {
            in_files: self.begun.last().map_or(0, |all| all.round() as u64),
            in_memtables: self.memtable_deletions,
        };
        for leg in legs(operation, first, last) {
            // Sums over a window are limited, and a broken record cannot tell of more.
            let own = leg.tombstones.min(tombstones - given);
            given += own;
            let mut wanted = own + left_over;
            let Some((whole, near)) = leg.places(&self.ruler) else {
                let met = self.met_towards(&leg, operation.total().keys_skipped, wanted, &left);
                left_over = left.take(wanted, met);
                parts.push(met);
                continue;
            };
            let mut by_call = 0;
            if let Some(near) = near {
                let met = self.met_between(near, leg.sought.1.min(own), &left, 0);
                wanted = left.take(wanted, met);
                by_call = met.in_files;
                parts.push(met);
            }
            let met = self.met_between(whole, wanted, &left, by_call);
            left_over = left.take(wanted, met);
            parts.push(met);
        }
        (parts, left_over + (tombstones - given))
    }

    /// Tombstones that were met between two places, where `taken` are those that files there have been
    /// charged with.
    fn met_between(&self, (low, high): (f64, f64), tombstones: u64, left: &Left, taken: u64) -> Met {
        let last = self.grid.len().saturating_sub(1);
        let behind = self.grid.partition_point(|other| *other < high).min(last);
        let first = self.grid.partition_point(|other| *other <= low).saturating_sub(1);
        self.shared_out((first, behind), tombstones, left, taken)
    }

    /// As files and memtables are thought to have them there, and no more than files that reach there and all
    /// memtables can have.
    fn shared_out(&self, grid: (usize, usize), tombstones: u64, left: &Left, taken: u64) -> Met {
        let at = |sums: &[f64], place: usize| sums.get(place).copied().unwrap_or(0.0);
        let reaching = (at(&self.begun, grid.1) - at(&self.ended, grid.0)).max(0.0).round() as u64;
        let (files, memtables) = (within(&self.deletions, grid), within(&self.memtables, grid));
        let reaching = if files > 0.0 { reaching.saturating_sub(taken).min(left.in_files) } else { 0 };
        let known = if memtables > 0.0 { left.in_memtables } else { 0 };
        let share = memtables / (files + memtables).max(f64::MIN_POSITIVE);
        let in_memtables = ((tombstones as f64 * share).round() as u64).min(known).min(tombstones);
        let in_files = (tombstones - in_memtables).min(reaching);
        let in_memtables = in_memtables.max((tombstones - in_files).min(known));
        Met { grid, in_files, in_memtables }
    }

    /// The same where it is not known where a leg ended: as near to its beginning as there are enough, and
    /// not behind more live entries than it can have stepped over.
    fn met_towards(&self, leg: &Leg<'_>, keys_skipped: u64, tombstones: u64, left: &Left) -> Met {
        let Some(last) = self.grid.len().checked_sub(1) else { return Met::default() };
        let live_most = keys_skipped.saturating_mul(LIVE_ENTRIES_FACTOR).saturating_add(LIVE_ENTRIES_SLACK);
        let is_enough = |grid: (usize, usize)| {
            let deletions = within(&self.deletions, grid) + within(&self.memtables, grid);
            let live = within(&self.entries, grid) - 2.0 * within(&self.deletions, grid);
            deletions >= tombstones as f64 || live > live_most as f64
        };
        let from = self.ruler.at(leg.from);
        let grid = match leg.is_forward {
            true => {
                let first = self.grid.partition_point(|other| *other <= from).saturating_sub(1);
                (first, first_where(first, last, |to| is_enough((first, to))))
            }
            false => {
                let behind = self.grid.partition_point(|other| *other < from).min(last);
                (behind - first_where(0, behind, |back| is_enough((behind - back, behind))), behind)
            }
        };
        let there = within(&self.deletions, grid).round() as u64;
        let in_files = tombstones.min(there).min(left.in_files);
        let known = if within(&self.memtables, grid) > 0.0 { left.in_memtables } else { 0 };
        Met { grid, in_files, in_memtables: (tombstones - in_files).min(known) }
    }
}

/// Where a key lies between two places of the grid.
#[derive(Clone, Copy)]
struct OnGrid {
    /// The first place that does not lie before it.
    behind: usize,
    /// How much of the interval up to there does.
    part: f64,
}

impl OnGrid {
    /// How much of something comes before it, by running sums.
    fn of(self, sums: &[f64]) -> f64 {
        let at = |number: usize| sums.get(number).or(sums.last()).copied().unwrap_or(0.0);
        let before = at(self.behind.saturating_sub(1));
        before + (at(self.behind) - before) * self.part
    }
}

/// Tombstones that files and memtables can have beside those that the rest of an operation has met there.
struct Left {
    in_files: u64,
    in_memtables: u64,
}

impl Left {
    /// What is left of those that were wanted.
    fn take(&mut self, wanted: u64, met: Met) -> u64 {
        self.in_files -= met.in_files.min(self.in_files);
        self.in_memtables -= met.in_memtables.min(self.in_memtables);
        wanted - met.in_files - met.in_memtables
    }
}

/// The first number for which something is so that stays so from there on; the last one otherwise.
fn first_where(first: usize, last: usize, is_so: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (first, last);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_so(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The interval of the grid before a place, or behind it.
fn interval(grid: &[f64], place: f64, is_before: bool) -> usize {
    match is_before {
        true => grid.partition_point(|other| *other < place).saturating_sub(1),
        false => grid.partition_point(|other| *other <= place).saturating_sub(1),
    }
}

/// What operations met on one stretch. Whole numbers: one that stands for many is as many operations.
struct MetOn {
    stretch: Stretch,
    tombstones: u128,
    operations: u128,
}

/// Walks on the ruler, and how many tombstones one operation met on each.
fn walks(legs: &[(Leg<'_>, u64)], ruler: &Ruler) -> Vec<(Stretch, f64)> {
    let mut sums: BTreeMap<(u64, u64), MetOn> = BTreeMap::new();
    for (leg, weight) in legs {
        let Some((whole, near)) = leg.places(ruler) else { continue };
        let near = near.map(|near| (near, leg.sought.1));
        for (stretch, met) in [(whole, leg.tombstones)].into_iter().chain(near) {
            let place = (stretch.0.to_bits(), stretch.1.to_bits());
            let sum = sums.entry(place).or_insert(MetOn { stretch, tombstones: 0, operations: 0 });
            sum.tombstones = sum.tombstones.saturating_add(u128::from(met) * u128::from(*weight));
            sum.operations = sum.operations.saturating_add(u128::from(*weight));
        }
    }
    let mut walks: Vec<MetOn> = sums.into_values().collect();
    if walks.len() > WALKS_MAX {
        // Stable: the order stays where the sums are equal.
        walks.sort_by_key(|walk| std::cmp::Reverse(walk.tombstones));
        walks.truncate(WALKS_MAX);
    }
    let mean = |walk: &MetOn| walk.tombstones as f64 / walk.operations.max(1) as f64;
    walks.iter().map(|walk| (walk.stretch, mean(walk))).collect()
}

/// What is known of deletions, and where they are thought to lie.
struct Fitting<'f> {
    held: Vec<Held<'f>>,
    /// Walks over the grid, and what was met on each.
    met: Vec<((usize, usize), f64)>,
    /// Entries in each interval of the grid.
    lengths: Vec<f64>,
    /// How thick the files' deletions lie in each compared with the others.
    thickness: Vec<f64>,
    /// Deletions in memtables in each.
    memtables: Vec<f64>,
    memtable_deletions: f64,
}

impl<'f> Fitting<'f> {
    /// What is in memtables was written last: half of it lies at the edge of what is deleted, where
    /// operations came to their `ends`, as long as nothing else is known.
    fn of(
        grid: &[f64],
        held: Vec<Held<'f>>,
        met: Vec<((usize, usize), f64)>,
        (ends, memtable_deletions): (Vec<usize>, u64),
    ) -> Fitting<'f> {
        let lengths = lengths(grid);
        let mut is_end = vec![false; grid.len()];
        ends.into_iter().for_each(|end| is_end.get_mut(end).into_iter().for_each(|is_end| *is_end = true));
        let all: f64 = lengths.iter().sum();
        let at_ends = lengths.iter().zip(&is_end).filter(|(_, is_end)| **is_end);
        let at_ends: f64 = at_ends.map(|(length, _)| length).sum();
        let thicker = if at_ends > 0.0 { (all / at_ends).max(1.0) } else { 1.0 };
        let parts = lengths.iter().zip(&is_end);
        let parts: Vec<f64> =
            parts.map(|(length, is_end)| if *is_end { length * thicker } else { *length }).collect();
        let memtable_deletions = memtable_deletions as f64;
        let memtables = in_sum(parts, memtable_deletions);
        let thickness = lengths.clone();
        let mut fitting = Fitting { held, met, lengths, thickness, memtables, memtable_deletions };
        if !fitting.met.is_empty() {
            fitting.compare_all(&is_end);
        }
        fitting
    }

    /// Compares as often as it takes. Of a million files operations have met a few, and an interval that no
    /// walk divides stays as thick as its neighbours: these few are looked at, in as few intervals as tell
    /// them apart.
    fn compare_all(&mut self, is_end: &[bool]) {
        let mut walks = OverSpans::new(self.lengths.len());
        self.met.iter().for_each(|(span, _)| walks.add(*span, 1.0));
        let walked = running(walks.amounts().map(|walks| if walks > 0.5 { 1.0 } else { 0.0 }));
        let reached = self.held.iter().filter(|file| within(&walked, file.span) > 0.5);
        let reached: Vec<Held<'f>> = reached.copied().collect();
        let spans = self.met.iter().map(|(span, _)| *span).chain(reached.iter().map(|file| file.span));
        let ends = (0..).zip(is_end).filter(|(_, is_end)| **is_end).flat_map(|(place, _)| [place, place + 1]);
        let mut kept: Vec<usize> = spans.flat_map(|(first, last)| [first, last]).chain(ends).collect();
        kept.push(0);
        kept.sort_unstable();
        kept.dedup();
        let number = |place: usize| kept.partition_point(|other| *other < place);
        let coarse = |(first, last): (usize, usize)| (number(first), number(last));
        let sums = |amounts: &[f64]| -> Vec<f64> {
            let behind = kept.iter().skip(1).copied().chain([amounts.len()]);
            let parts = kept.iter().zip(behind).map(|(first, last)| amounts.get(*first..last).unwrap_or(&[]));
            parts.map(|parts| parts.iter().sum()).collect()
        };
        let mut few = Fitting {
            held: reached.iter().map(|file| Held { span: coarse(file.span), file: file.file }).collect(),
            met: self.met.iter().map(|(span, met)| (coarse(*span), *met)).collect(),
            lengths: sums(&self.lengths),
            thickness: sums(&self.thickness),
            memtables: sums(&self.memtables),
            memtable_deletions: self.memtable_deletions,
        };
        let before = (few.thickness.clone(), few.memtables.clone());
        (0..ROUNDS).for_each(|_| few.compare());
        let changed =
            [(&mut self.thickness, before.0, few.thickness), (&mut self.memtables, before.1, few.memtables)];
        for (all, before, after) in changed {
            let behind = kept.iter().skip(1).copied().chain([all.len()]);
            for (((first, last), before), after) in kept.iter().zip(behind).zip(before).zip(after) {
                let factor = if before > 0.0 { after / before } else { 1.0 };
                let parts = all.get_mut(*first..last).into_iter().flatten();
                parts.for_each(|part| *part *= factor);
            }
        }
    }

    /// Makes intervals thicker where more was met than is thought to lie there, and thinner where less was.
    /// All that files hold is somewhere among their keys; of what memtables hold nobody may have met
    /// anything, so they have what files leave over.
    fn compare(&mut self) {
        let files = running(spread(&self.thickness, &self.held, Held::deletions));
        let memtables = running(self.memtables.iter().copied());
        let intervals = self.lengths.len();
        let (mut of_files, mut of_memtables) = (OverSpans::new(intervals), OverSpans::new(intervals));
        let mut walks = OverSpans::new(intervals);
        for (span, met) in &self.met {
            let (in_files, in_memtables) = (within(&files, *span), within(&memtables, *span));
            let factor = |met: f64, there: f64| match there > 0.0 {
                true => (met / there).clamp(1.0 / FACTOR_MAX, FACTOR_MAX),
                false => 1.0,
            };
            of_files.add(*span, factor(*met, in_files + in_memtables));
            of_memtables.add(*span, factor((met - in_files).max(0.0), in_memtables));
            walks.add(*span, 1.0);
        }
        let walks: Vec<f64> = walks.amounts().collect();
        for (parts, factors) in [(&mut self.thickness, of_files), (&mut self.memtables, of_memtables)] {
            for (((part, length), factor), walks) in
                parts.iter_mut().zip(&self.lengths).zip(factors.amounts()).zip(&walks)
            {
                if *walks > 0.5 {
                    *part = (*part * factor / walks).max(length * THICKNESS_LEFT_MIN);
                }
            }
        }
        let sum: f64 = self.memtables.iter().sum();
        if sum > self.memtable_deletions {
            self.memtables = in_sum(std::mem::take(&mut self.memtables), self.memtable_deletions);
        }
    }

    fn placed(&self, ruler: Ruler, grid: Vec<f64>, memtable_deletions: u64) -> Placement {
        let (lengths, thickness, held) = (&self.lengths, &self.thickness, &self.held);
        let live = |of: fn(&Held<'_>) -> f64| {
            spread(lengths, held, move |file| of(file) * (1.0 - file.dead_share()))
        };
        let dead =
            |of: fn(&Held<'_>) -> f64| spread(thickness, held, move |file| of(file) * file.dead_share());
        let both = |of: fn(&Held<'_>) -> f64| {
            running(live(of).into_iter().zip(dead(of)).map(|(one, two)| one + two))
        };
        let mut begun = vec![0.0; grid.len()];
        let mut ended = vec![0.0; grid.len()];
        for file in held {
            // A file that begins at a place has begun before the next one.
            for (sums, place) in [(&mut begun, file.span.0 + 1), (&mut ended, file.span.1)] {
                sums.get_mut(place).into_iter().for_each(|sum| *sum += file.deletions());
            }
        }
        Placement {
            size_bytes: both(|file| file.file.size_bytes as f64),
            entries: both(|file| file.file.entries as f64),
            deletions: running(spread(thickness, held, Held::deletions)),
            memtables: running(self.memtables.iter().copied()),
            thickness: thickness.clone(),
            begun: up_to(begun),
            ended: up_to(ended),
            ruler,
            grid,
            memtable_deletions,
        }
    }
}

/// Entries in each interval of a grid.
fn lengths(grid: &[f64]) -> Vec<f64> {
    let behind = grid.iter().skip(1).chain(grid.last());
    grid.iter().zip(behind).map(|(low, high)| high - low).collect()
}

/// The same parts of another sum.
fn in_sum(mut parts: Vec<f64>, sum: f64) -> Vec<f64> {
    let all: f64 = parts.iter().sum();
    parts.iter_mut().for_each(|part| *part *= sum / all.max(f64::MIN_POSITIVE));
    parts
}

fn up_to(mut amounts: Vec<f64>) -> Vec<f64> {
    let mut sum = 0.0;
    for amount in &mut amounts {
        sum += *amount;
        *amount = sum;
    }
    amounts
}

/// Something that files have, shared out to their intervals by how thick these are: the sums over all files.
fn spread<'f>(thickness: &[f64], held: &[Held<'f>], amount: impl Fn(&Held<'f>) -> f64) -> Vec<f64> {
    shared_out(thickness, held.iter().map(|file| (file.span, amount(file))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::Counters;
    use crate::lsm::share::split;
    use proptest::prelude::*;

    /// So many tombstones on the way from one key to another.
    fn walk(key: &str, end_key: &str, tombstones_skipped: u64) -> Observation {
        Observation {
            end_key: Some(Key::new(end_key)),
            scan: Counters { tombstones_skipped, ..Counters::default() },
            ..Observation::at(SeekKind::Seek, Key::new(key))
        }
    }

    fn sst(level: u32, smallest: &str, largest: &str, entries: u64, deletions: u64) -> SstFile {
        SstFile {
            number: 1,
            column_family: "default".to_owned(),
            level,
            size_bytes: entries * 10,
            entries,
            deletions,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    /// Deletions up to a key, and behind it.
    fn parted(files: &[SstFile], walks: &[Observation], memtables: u64, at: &str) -> (u64, u64) {
        let (files, walks): (Vec<_>, Vec<_>) = (files.iter().collect(), walks.iter().collect());
        let memtables = MemtableDeletions { active: memtables, immutable: 0 };
        let placement = Placement::of(&files, &walks, Some(memtables));
        let cut = Key::new(at);
        let (low, high) = (Key::default(), None);
        let low = KeyRange { begin: low, end: Some(cut.clone()) };
        let high = KeyRange { begin: cut, end: high };
        (placement.share(&low).deletions, placement.share(&high).deletions)
    }

    #[test]
    fn a_queues_file_has_its_deletions_where_readers_walk() {
        // Oldest keys deleted, newest ones created: k3 to k8, readers walk from the start to k32.
        let files = [sst(0, "k30", "k80", 100, 27)];
        let (near, far) = parted(&files, &[walk("k", "k32", 27)], 0, "k33");
        assert!(near >= 26 && near + far == 27, "{near} {far}");
        assert_eq!(parted(&files, &[walk("k", "k32", 9)], 0, "k32\0"), (9, 18));
    }

    /// A walk of which no end is known, or beside the file, says nothing; half of it lies on either side of a
    /// key of which nothing is known.
    #[test]
    fn without_a_walk_deletions_lie_as_entries_do() {
        let files =
            [sst(6, "k10", "k19", 900, 0), sst(6, "k20", "k29", 100, 0), sst(0, "k10", "k29", 100, 100)];
        let (low, high) = parted(&files, &[walk("a", "b", 5)], 0, "k20");
        assert!(low > 80 && low + high == 100, "{low} {high}");
        assert_eq!(parted(&[sst(6, "k10", "k19", 900, 10)], &[], 0, "k15"), (5, 5));
    }

    #[test]
    fn walks_in_both_directions_tell_the_same() {
        let files = [sst(0, "k10", "k90", 200, 100)];
        let back = Observation { kind: SeekKind::SeekForPrev, ..walk("k80", "k70", 100) };
        for walk in [walk("k70", "k80", 100), back] {
            let (before, inside) = parted(&files, &[walk], 0, "k70");
            assert!(inside >= 97 && before + inside == 100, "{before} {inside}");
        }
    }

    /// The call itself has met its tombstones one behind the other.
    #[test]
    fn what_a_positioning_call_met_lies_beside_its_key() {
        let files =
            [sst(6, "k10", "k19", 1000, 0), sst(6, "k20", "k90", 1000, 0), sst(0, "k10", "k90", 100, 100)];
        let mut seek = walk("k10", "k90", 0);
        seek.seek = Counters { tombstones_skipped: 100, keys_skipped: 100, ..Counters::default() };
        let (near, far) = parted(&files, &[seek], 0, "k20");
        assert!(near >= 90 && near + far == 100, "{near} {far}");
    }

    /// What files have is theirs, and what is left over is met in memtables where there are any.
    #[test]
    fn memtables_have_what_files_leave_over() {
        let files = [sst(6, "k10", "k50", 1000, 40)];
        let files: Vec<&SstFile> = files.iter().collect();
        let met = |active: u64, tombstones: u64| {
            let walk = walk("k10", "k50", tombstones);
            let memtables = MemtableDeletions { active, immutable: 0 };
            let placement = Placement::of(&files, &[&walk], Some(memtables));
            let (met, unexplained) = placement.met(&walk, tombstones);
            let sum = |of: fn(&Met) -> u64| met.iter().map(of).sum::<u64>();
            (sum(|met| met.in_files), sum(|met| met.in_memtables), unexplained)
        };
        assert_eq!(met(100, 40), (40, 0, 0));
        assert_eq!(met(100, 60), (40, 20, 0));
        assert_eq!(met(10, 60), (40, 10, 10));
        assert_eq!(met(0, 60), (40, 0, 20));
    }

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(prop_oneof![Just(0), b'a'..=b'c'], 0..4).prop_map(Key::new)
    }

    prop_compose! {
        fn file()(
            keys in (key(), key()),
            counts in (0u64..1 << 40, 0u64..1 << 30, 0u64..1 << 30),
            level in 0u32..7,
        ) -> SstFile {
            let (size_bytes, entries, deletions) = counts;
            SstFile {
                number: 1,
                column_family: "default".to_owned(),
                level,
                size_bytes,
                entries,
                deletions,
                smallest: keys.0,
                largest: keys.1,
            }
        }
    }

    fn operation() -> impl Strategy<Value = Observation> {
        let kind = prop_oneof![
            Just(SeekKind::Seek),
            Just(SeekKind::SeekForPrev),
            Just(SeekKind::SeekToFirst),
            Just(SeekKind::SeekToLast)
        ];
        let count = || prop_oneof![0u64..1 << 20, any::<u64>()];
        (kind, key(), proptest::option::of(key()), count(), count(), count(), count()).prop_map(
            |(kind, key, end_key, sought, scanned, keys_skipped, weight)| {
                let counters =
                    |tombstones_skipped| Counters { tombstones_skipped, keys_skipped, ..Counters::default() };
                let (seek, scan) = (counters(sought), counters(scanned));
                Observation { end_key, seek, scan, weight, ..Observation::at(kind, key) }
            },
        )
    }

    proptest! {
        /// Whatever was met where, the parts are the whole, and no more is met than there is.
        #[test]
        fn the_parts_are_the_files(
            files in proptest::collection::vec(file(), 0..8),
            operations in proptest::collection::vec(operation(), 0..8),
            memtables in proptest::option::of(0u64..1 << 30),
            cuts in proptest::collection::vec(key(), 0..8),
        ) {
            let (files, seen): (Vec<_>, Vec<_>) = (files.iter().collect(), operations.iter().collect());
            let memtables = memtables.map(|active| MemtableDeletions { active, immutable: 0 });
            let placement = Placement::of(&files, &seen, memtables);
            let parts = split(&KeyRange::everything(), &cuts);
            let sum = parts.iter().map(|part| placement.share(part)).fold(Share::default(), Share::plus);
            prop_assert_eq!(sum, placement.share(&KeyRange::everything()));
            let whole: u64 = files.iter().map(|file| file.deletions).sum();
            prop_assert!(sum.deletions.abs_diff(whole) <= 1 + whole / 1_000_000, "{} {whole}", sum.deletions);
            let bytes: u64 = files.iter().map(|file| file.size_bytes).sum();
            prop_assert!(sum.size_bytes.abs_diff(bytes) <= 1 + bytes / 1_000_000, "{} {bytes}", sum.size_bytes);
            for operation in &operations {
                let tombstones = operation.total().tombstones_skipped;
                let (met, unexplained) = placement.met(operation, tombstones);
                let of = |of: fn(&Met) -> u64| met.iter().map(of).map(u128::from).sum::<u128>();
                let (in_files, in_memtables) = (of(|met| met.in_files), of(|met| met.in_memtables));
                prop_assert_eq!(in_files + in_memtables + u128::from(unexplained), u128::from(tombstones));
                prop_assert!(in_memtables <= u128::from(memtables.map_or(0, MemtableDeletions::total)));
                prop_assert!(in_files <= u128::from(whole) + 1);
            }
        }
    }
}
