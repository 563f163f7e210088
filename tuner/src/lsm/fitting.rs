//! Moves deletions until what lies between the ends of operations is what these have met.
//!
//! All that a file holds is somewhere among its keys: what is moved away from some of them comes to others.
//! Where its index block was read, that is from one part of it to another as well.

use crate::facts::evidence::SstFile;
use crate::lsm::contents::Contents;
use crate::lsm::ruler::{OverSpans, running, shared_out, within};

/// How often what was met is compared with what is thought to lie there.
const ROUNDS: usize = 24;

/// By no more than this factor one comparison moves anything.
const FACTOR_MAX: f64 = 8.0;

/// Thickness that is left of an interval in which nothing was met, as a share of what it was: of nothing no
/// factor makes anything again.
const THICKNESS_LEFT_MIN: f64 = 1e-9;

/// From where to where, by numbers of places.
pub(super) type OnGrid = (usize, usize);

/// A file, where it lies on the grid, and what is in it.
#[derive(Clone, Copy)]
pub(super) struct Held<'f> {
    pub(super) span: OnGrid,
    pub(super) file: &'f SstFile,
    /// What is in its parts; none where its index block is not known.
    pub(super) parts: &'f [(OnGrid, Contents)],
}

impl<'f> Held<'f> {
    fn deletions(&self) -> f64 {
        self.file.deletions as f64
    }

    /// Those of its entries that deletions are.
    fn dead_share(&self) -> f64 {
        self.file.deletions.min(self.file.entries) as f64 / self.file.entries.max(1) as f64
    }

    /// Something of which the file has so much, in its parts by the share that each has of it.
    fn by_parts(
        &self,
        amount: f64,
        share: impl Fn(&(OnGrid, Contents)) -> f64,
    ) -> impl Iterator<Item = (OnGrid, f64)> {
        let all: f64 = self.parts.iter().map(&share).sum();
        let even = 1.0 / self.parts.len().max(1) as f64;
        let of_part = move |part: &'f (OnGrid, Contents)| {
            (part.0, amount * if all > 0.0 { share(part) / all } else { even })
        };
        let whole = self.parts.is_empty().then_some((self.span, amount));
        whole.into_iter().chain(self.parts.iter().map(of_part))
    }
}

/// How much thicker deletions lie in parts of files than entries do.
struct Thicker {
    thickness: Vec<f64>,
    lengths: Vec<f64>,
}

impl Thicker {
    fn of(thickness: &[f64], lengths: &[f64]) -> Thicker {
        Thicker { thickness: running(thickness.iter().copied()), lengths: running(lengths.iter().copied()) }
    }

    /// Deletions of a part, compared with the others of its file.
    fn deletions(&self, (span, contents): &(OnGrid, Contents)) -> f64 {
        let length = within(&self.lengths, *span);
        let thicker = if length > 0.0 { within(&self.thickness, *span) / length } else { 1.0 };
        contents.deletions * thicker
    }
}

/// What is known of deletions, and where they are thought to lie.
pub(super) struct Fitting<'f> {
    held: Vec<Held<'f>>,
    /// Walks over the grid, and what was met on each.
    met: Vec<(OnGrid, f64)>,
    /// Entries in each interval of the grid.
    lengths: Vec<f64>,
    /// How thick the files' deletions lie in each compared with the others.
    pub(super) thickness: Vec<f64>,
    /// Deletions in memtables in each.
    pub(super) memtables: Vec<f64>,
    memtable_deletions: f64,
}

impl<'f> Fitting<'f> {
    /// What is in memtables was written last: half of it lies at the edge of what is deleted, where
    /// operations came to their `ends`, as long as nothing else is known.
    pub(super) fn of(
        grid: &[f64],
        held: Vec<Held<'f>>,
        met: Vec<(OnGrid, f64)>,
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
        let parts = reached.iter().flat_map(|file| file.parts).map(|part| part.0);
        let spans = self.met.iter().map(|(span, _)| *span).chain(reached.iter().map(|file| file.span));
        let spans = spans.chain(parts);
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
        let part = |(span, contents): &(OnGrid, Contents)| (coarse(*span), *contents);
        let parts: Vec<Vec<_>> = reached.iter().map(|file| file.parts.iter().map(part).collect()).collect();
        let held = reached.iter().zip(&parts);
        let mut few = Fitting {
            held: held
                .map(|(held, parts)| Held { span: coarse(held.span), file: held.file, parts })
                .collect(),
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
        let files = running(self.deletions());
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

    /// Deletions of files in each interval.
    pub(super) fn deletions(&self) -> Vec<f64> {
        self.spread_as_deletions(Held::deletions)
    }

    /// Entries of files.
    pub(super) fn entries(&self) -> Vec<f64> {
        let entries = |held: &Held<'f>| held.file.entries as f64;
        self.both(entries, Held::dead_share, |contents| contents.live)
    }

    /// Bytes of files. Where the index block is known it tells them all.
    pub(super) fn size_bytes(&self) -> Vec<f64> {
        let dead_share = |held: &Held<'f>| if held.parts.is_empty() { held.dead_share() } else { 0.0 };
        self.both(|held| held.file.size_bytes as f64, dead_share, |contents| contents.size_bytes)
    }

    /// Something that files have: a share of it where their deletions are, the rest where entries are, or as
    /// the parts of a file have it.
    fn both(
        &self,
        amount: impl Fn(&Held<'f>) -> f64,
        dead_share: impl Fn(&Held<'f>) -> f64,
        of_part: fn(&Contents) -> f64,
    ) -> Vec<f64> {
        let live = self.held.iter().flat_map(|held| {
            held.by_parts(amount(held) * (1.0 - dead_share(held)), move |(_, part)| of_part(part))
        });
        let live = shared_out(&self.lengths, live);
        let dead = self.spread_as_deletions(|held| amount(held) * dead_share(held));
        live.into_iter().zip(dead).map(|(live, dead)| live + dead).collect()
    }

    /// Something that files have, where their deletions are.
    fn spread_as_deletions(&self, amount: impl Fn(&Held<'f>) -> f64) -> Vec<f64> {
        let thicker = Thicker::of(&self.thickness, &self.lengths);
        let parts =
            self.held.iter().flat_map(|held| held.by_parts(amount(held), |part| thicker.deletions(part)));
        shared_out(&self.thickness, parts)
    }

    /// What shares of its deletions and of its other entries the parts of a file have.
    pub(super) fn shares(&self) -> impl Iterator<Item = (u64, Vec<(OnGrid, f64, f64)>)> {
        let thicker = Thicker::of(&self.thickness, &self.lengths);
        let parted = self.held.iter().filter(|held| !held.parts.is_empty());
        parted.map(move |held| {
            let dead = held.by_parts(1.0, |part| thicker.deletions(part));
            let live = held.by_parts(1.0, |(_, part)| part.live);
            (held.file.number, dead.zip(live).map(|((span, dead), (_, live))| (span, dead, live)).collect())
        })
    }

    /// Deletions of the files that begin before each place of the grid, and of those that end there or
    /// before.
    pub(super) fn begun_and_ended(&self) -> [Vec<f64>; 2] {
        let mut begun = vec![0.0; self.lengths.len()];
        let mut ended = begun.clone();
        for held in &self.held {
            // A file that begins at a place has begun before the next one.
            for (sums, place) in [(&mut begun, held.span.0 + 1), (&mut ended, held.span.1)] {
                sums.get_mut(place).into_iter().for_each(|sum| *sum += held.deletions());
            }
        }
        [up_to(begun), up_to(ended)]
    }
}

/// Entries in each interval of a grid.
pub(super) fn lengths(grid: &[f64]) -> Vec<f64> {
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
