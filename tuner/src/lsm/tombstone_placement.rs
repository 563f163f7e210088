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
use crate::lsm::contents::Contents;
use crate::lsm::fitting::{Fitting, Held, OnGrid, lengths};
use crate::lsm::layout::{IndexMarksByFile, Layout, Part};
use crate::lsm::ruler::{Mark, Ruler, running, shared_out, within};
use crate::lsm::share::Share;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most different walks that deletions are fitted to, those that met most of them.
const WALKS_MAX: usize = 4096;

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
    ruler: Arc<Ruler>,
    /// Places on the ruler, in order: where files and operations begin and end.
    grid: Vec<f64>,
    /// Before each of them: bytes and entries of files, deletions in files and in memtables.
    size_bytes: Vec<f64>,
    entries: Vec<f64>,
    deletions: Vec<f64>,
    memtables: Vec<f64>,
    /// How thick the files' deletions lie in each interval, compared with the others.
    thickness: Vec<f64>,
    /// Of files in parts, by their number: where each lies, and what share of the file's deletions and of its
    /// other entries it has.
    parts: BTreeMap<u64, Vec<(OnGrid, f64, f64)>>,
    /// Deletions of the files that begin before each place, and of those that end there or before.
    begun: Vec<f64>,
    ended: Vec<f64>,
    memtable_deletions: u64,
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

/// What operations did, leg by leg, and how many operations each stands for.
pub(crate) struct Legs<'k>(Vec<(Leg<'k>, u64)>);

impl<'k> Legs<'k> {
    /// Of operations among these files.
    pub(crate) fn of(files: &[&'k SstFile], observations: &[&'k Observation]) -> Legs<'k> {
        let spans = files.iter().map(|file| Mark::around(file));
        let ends = (spans.clone().map(|span| span.0).min(), spans.map(|span| span.1).max());
        let (first, last) = (ends.0.unwrap_or(Mark::FIRST), ends.1.unwrap_or(Mark::FIRST));
        let all = observations.iter().flat_map(|observation| {
            let legs = legs(observation, first, last);
            legs.into_iter().map(|leg| (leg, observation.weight))
        });
        Legs(all.collect())
    }

    /// Between which keys they lie.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (Mark<'k>, Mark<'k>)> {
        self.0.iter().map(|(leg, _)| leg.span().unwrap_or((leg.from, leg.from)))
    }
}

impl Placement {
    /// Of one column family's files, the operations in it, and what RocksDB says of its memtables.
    pub fn of(
        files: &[&SstFile],
        observations: &[&Observation],
        memtables: Option<MemtableDeletions>,
    ) -> Placement {
        let legs = Legs::of(files, observations);
        let layout = Layout::of(files, &IndexMarksByFile::new(), legs.spans());
        Placement::on(&layout, files, &legs, memtables)
    }

    /// The same of files and operations that are laid out already.
    pub(crate) fn on(
        layout: &Layout,
        files: &[&SstFile],
        Legs(legs): &Legs<'_>,
        memtables: Option<MemtableDeletions>,
    ) -> Placement {
        let Layout { ruler, places, parts } = layout;
        let walks = walks(legs, ruler);
        let grid = grid(places, parts, &walks, legs, ruler);
        let number = |place: f64| grid.partition_point(|other| *other < place);
        let on_grid = |(low, high): Stretch| (number(low), number(high));
        let parts = parts.iter().map(|(place, parts)| {
            (*place, parts.iter().map(|part| (on_grid(part.place), part.contents)).collect())
        });
        let parts: BTreeMap<usize, Vec<(OnGrid, Contents)>> = parts.collect();
        let held = files.iter().zip(places).enumerate().map(|(place, (file, span))| Held {
            span: on_grid(*span),
            file,
            parts: parts.get(&place).map_or(&[], Vec::as_slice),
        });
        let held: Vec<Held<'_>> = held.collect();
        let met = walks.iter().map(|(stretch, met)| (on_grid(*stretch), *met)).collect();
        let ends = legs.iter().map(|(leg, _)| match leg.to {
            Some(to) => interval(&grid, ruler.at(to), leg.is_forward),
            None => interval(&grid, ruler.at(leg.from), !leg.is_forward),
        });
        let memtable_deletions = memtables.map_or(0, MemtableDeletions::total);
        let fitting = Fitting::of(&grid, held, met, (ends.collect(), memtable_deletions));
        let [begun, ended] = fitting.begun_and_ended();
        Placement {
            size_bytes: running(fitting.size_bytes()),
            entries: running(fitting.entries()),
            deletions: running(fitting.deletions()),
            memtables: running(fitting.memtables.iter().copied()),
            parts: fitting.shares().collect(),
            thickness: fitting.thickness,
            begun,
            ended,
            ruler: Arc::clone(ruler),
            grid,
            memtable_deletions,
        }
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
        let parts = amounts.flat_map(|(file, amount)| self.in_parts(file, amount, |part| part.1));
        running(shared_out(&self.thickness, parts))
    }

    /// Something that files have, shared out as their entries are: sums by the grid.
    pub(crate) fn like_entries<'f>(&self, amounts: impl Iterator<Item = (&'f SstFile, f64)>) -> Vec<f64> {
        let parts = amounts.flat_map(|(file, amount)| self.in_parts(file, amount, |part| part.2));
        running(shared_out(&lengths(&self.grid), parts))
    }

    /// Something that a file has, by the shares of its parts.
    fn in_parts(
        &self,
        file: &SstFile,
        amount: f64,
        share: fn(&(OnGrid, f64, f64)) -> f64,
    ) -> impl Iterator<Item = (OnGrid, f64)> {
        let parts = self.parts.get(&file.number).map_or(&[][..], Vec::as_slice);
        let whole = parts.is_empty().then(|| (self.span_of(file), amount));
        whole.into_iter().chain(parts.iter().map(move |part| (part.0, amount * share(part))))
    }

    fn ends(&self, range: &KeyRange) -> (Between, Between) {
        let behind_all = Between { behind: self.grid.len(), part: 1.0 };
        (self.on_grid(&range.begin), range.end.as_ref().map_or(behind_all, |end| self.on_grid(end)))
    }

    fn on_grid(&self, key: &Key) -> Between {
        if key.is_empty() {
            return Between { behind: 0, part: 0.0 };
        }
        let place = self.ruler.at(Mark::before(key));
        let behind = self.grid.partition_point(|other| *other < place);
        let at = |number: usize| self.grid.get(number).or(self.grid.last()).copied().unwrap_or(0.0);
        let (low, high) = (at(behind.saturating_sub(1)), at(behind));
        let part = if high > low { ((place - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 };
        Between { behind, part }
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
struct Between {
    /// The first place that does not lie before it.
    behind: usize,
    /// How much of the interval up to there does.
    part: f64,
}

impl Between {
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

/// Places where files, their parts and operations begin and end, in order.
fn grid(
    places: &[Stretch],
    parts: &BTreeMap<usize, Vec<Part>>,
    walks: &[(Stretch, f64)],
    legs: &[(Leg<'_>, u64)],
    ruler: &Ruler,
) -> Vec<f64> {
    let parts = parts.values().flatten().map(|part| part.place);
    let stretches = places.iter().copied().chain(parts).chain(walks.iter().map(|(walk, _)| *walk));
    let mut grid: Vec<f64> = stretches.flat_map(|(low, high)| [low, high]).collect();
    // What is in memtables can lie outside of all files.
    grid.extend(legs.iter().filter(|(leg, _)| leg.to.is_none()).map(|(leg, _)| ruler.at(leg.from)));
    let outermost =
        grid.iter().copied().min_by(f64::total_cmp).zip(grid.iter().copied().max_by(f64::total_cmp));
    grid.extend(outermost.iter().flat_map(|(low, high)| [low - 1.0, high + 1.0]));
    grid.sort_by(f64::total_cmp);
    grid.dedup();
    grid
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::Counters;
    use crate::facts::index_marks::Thinning;
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

    fn marked(
        files: &[&SstFile],
        marks: &IndexMarksByFile,
        observations: &[&Observation],
        memtables: Option<MemtableDeletions>,
    ) -> Placement {
        let legs = Legs::of(files, observations);
        Placement::on(&Layout::of(files, marks, legs.spans()), files, &legs, memtables)
    }

    /// A file's rows are where its index block has their bytes, and its deletions where it has none.
    #[test]
    fn what_is_where_in_a_file_is_told_by_its_index_block() {
        let rows = SstFile { number: 7, ..sst(6, "k10", "k99", 300, 0) };
        let mixed = SstFile { size_bytes: 100_000, ..sst(0, "k10", "k99", 200, 100) };
        let files = [&rows, &mixed];
        let mut thinning = Thinning::default();
        [("k20", 1_200), ("k60", 50_000)]
            .into_iter()
            .for_each(|(key, bytes)| thinning.push(key.as_bytes(), bytes));
        let mut of_rows = Thinning::default();
        [("k20", 2_000), ("k60", 2_500)]
            .into_iter()
            .for_each(|(key, bytes)| of_rows.push(key.as_bytes(), bytes));
        let marks = IndexMarksByFile::from([(1, thinning.marks()), (7, of_rows.marks())]);
        let up_to = |placement: &Placement, end: &str| {
            placement.share(&KeyRange { begin: Key::default(), end: Some(Key::new(end)) })
        };
        let placement = marked(&files, &marks, &[], None);
        let (first, most) = (up_to(&placement, "k20\0"), up_to(&placement, "k60\0"));
        assert!(first.deletions > 90, "{first:?}");
        assert_eq!((first.size_bytes, most.size_bytes), (3_200, 52_500));
        let unknown = up_to(&marked(&files, &IndexMarksByFile::new(), &[], None), "k20\0");
        assert!(unknown.size_bytes > 30_000, "{unknown:?}");
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
            marks in proptest::collection::vec((key(), any::<u64>()), 0..8),
        ) {
            // Any two marks may be out of order, outside of the file, or behind its end.
            let mut thinning = Thinning::default();
            let size_bytes = files.first().map_or(1, |file| file.size_bytes.max(1));
            marks.iter().for_each(|(key, bytes)| thinning.push(key.as_bytes(), bytes % size_bytes));
            let marks = IndexMarksByFile::from([(1, thinning.marks())]);
            let (files, seen): (Vec<_>, Vec<_>) = (files.iter().collect(), operations.iter().collect());
            let memtables = memtables.map(|active| MemtableDeletions { active, immutable: 0 });
            let placement = marked(&files, &marks, &seen, memtables);
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
