//! Jobs: sets of files that one compaction takes, with their price and what they relieve.
//!
//! What hurts readers are ranges of keys, and what is rewritten are files. So the keys that hurt are cut
//! behind the files of all levels, and each part is priced by what RocksDB takes with it. From the part
//! that is worth most per byte a job grows to its neighbours, as long as these are worth about as much, and
//! up to the limit: files that are rewritten anyway cost nothing more. A job's relief is that of all ranges
//! that have a part in it, so many prefixes in one file are one job.

use crate::facts::key::Key;
use crate::facts::options::CompactionStyle;
use crate::facts::primitives::Primitives;
use crate::facts::range::KeyRange;
use crate::lsm::compact_files::{Part as InFiles, Taken};
use crate::lsm::cost::{Bottommost, Levels, Prediction};
use crate::lsm::share::{Share, split};
use crate::lsm::tombstone_placement::Placement;
use crate::plan::primitive::Primitive;
use crate::plan::remedy::are_in_memtables;
use crate::rank::RangeAssessment;
use crate::rank::ranker::{COST_BYTES_MIN, worth};
use crate::rank::relief_map::Relief;
pub use crate::rank::relief_map::ReliefMap;
use std::collections::BTreeMap;

/// Most parts that jobs grow from, those that relieve most: in jobs of the default size that is 64 GiB, more
/// than any budget pays for in one plan.
pub const PARTS_MAX: usize = 1024;

/// A neighbour comes along where it is worth at least this share of the best part of the job, per byte that
/// it adds. With less, a plan would be worth less per byte than the best job in it by more than predictions
/// are off.
const NEIGHBOUR_WORTH_MIN: f64 = 0.7;

/// A job begins to grow from at most so many parts, which are looked at together.
const SEEDLING_PARTS_MAX: usize = 4;

/// Where at most this share of what a neighbour costs by itself comes on top, the rest would be paid twice if
/// it were left to a job of its own.
const ADDED_SHARE_MAX: f64 = 0.5;

/// Less of a site than this is none: what readers lose between two keys is a difference of sums.
const PART_MIN: f64 = 1e-6;

/// By this factor a job may be over the limit for the sake of such a neighbour.
const LIMIT_FACTOR_MAX: u64 = 2;

/// `CompactFiles` is taken where it is worth more than `CompactRange` by this factor: guards cannot stop it
/// once it runs, and what files hold in a part of their keys is an estimate.
const UNSTOPPABLE_WORTH_MIN: f64 = 1.1;

/// And where it relieves at least this share of what `CompactRange` does: what it leaves has to rest as well.
const FILES_RELIEF_MIN: f64 = 0.9;

/// Keys that hurt readers.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub range: &'a KeyRange,
    /// What compacting all of it relieves.
    pub relief_seconds_per_second: f64,
    /// Whether its tombstones lie in memtables: then those that nothing lies below are flushed and moved down
    /// as they are, and only forcing the bottommost level removes them.
    pub are_in_memtables: bool,
}

/// What jobs are made of: one column family.
#[derive(Clone, Copy)]
pub struct JobInput<'a> {
    /// Its files.
    pub levels: &'a Levels,
    /// What its files hold where.
    pub placement: &'a Placement,
    /// Where readers lose time to that; where nothing is known of it, pain lies where deletions do.
    pub relief: &'a ReliefMap,
    /// What hurts: in order, and disjoint.
    pub sites: &'a [Site<'a>],
    /// Keys that have to rest: no job has both these and others, so that the others need not.
    pub resting: &'a [&'a KeyRange],
    /// Most bytes that a job rewrites, but for one that no border divides.
    pub slice_bytes_max: u64,
    /// What jobs can be done by.
    pub primitives: Primitives,
    /// What a job is good for; by it per byte jobs are found.
    pub value: &'a dyn Fn(&Job) -> f64,
}

/// What one compaction takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// The keys to ask RocksDB for, from the first that hurts to the last.
    pub range: KeyRange,
    /// By which call it is done.
    pub primitive: Primitive,
    /// What `CompactRange` does with the bottommost level's files.
    pub bottommost: Bottommost,
    /// Bytes that are rewritten, over all levels.
    pub cost_bytes: u64,
    /// Bytes that the largest of RocksDB's own jobs rewrites: so much room on the disk is needed meanwhile.
    pub largest_job_bytes: u64,
    /// Bytes that stay on the disk although they are rewritten: hard links elsewhere keep them.
    pub linked_bytes: u64,
    /// What files have in the keys that hurt, estimated.
    pub share: Share,
    /// Pain that it relieves, over all sites.
    pub relief_seconds_per_second: f64,
    /// Pain that would be relieved if all the tombstones in its keys went,
    whole_relief: f64,
    /// the part of it that goes with those in memtables,
    memtable_relief: f64,
    /// and where the rest of it is; only where a job can be done by files.
    in_files: Vec<InFiles>,
    /// Which sites it has a part of, in order, and how much of each.
    pub sites: Vec<(usize, f64)>,
}

impl Job {
    /// What it takes of the disk, at least [`COST_BYTES_MIN`].
    fn price_bytes(&self) -> u64 {
        self.cost_bytes.saturating_add(self.linked_bytes).max(COST_BYTES_MIN)
    }

    /// This one, and what follows it in the order of keys; not priced yet.
    fn followed_by(&self, next: &Job) -> Job {
        let mut sites = self.sites.clone();
        for (site, share) in &next.sites {
            match sites.last_mut() {
                Some(last) if last.0 == *site => last.1 += share,
                _ => sites.push((*site, *share)),
            }
        }
        Job {
            range: KeyRange { begin: self.range.begin.clone(), end: next.range.end.clone() },
            share: self.share.plus(next.share),
            relief_seconds_per_second: self.whole_relief + next.whole_relief,
            whole_relief: self.whole_relief + next.whole_relief,
            memtable_relief: self.memtable_relief + next.memtable_relief,
            in_files: self.in_files.iter().chain(&next.in_files).copied().collect(),
            sites,
            ..Job::default()
        }
    }

    /// Whether most of what it relieves goes with tombstones in memtables.
    pub(crate) fn is_of_memtables(&self) -> bool {
        self.memtable_relief > 0.0 && self.memtable_relief * 2.0 >= self.whole_relief
    }

    /// At its price, by the call that is worth most per byte.
    fn priced(self, input: &JobInput<'_>) -> Job {
        let (bottommost, prediction) = compaction(input.levels, &self.range, self.is_of_memtables());
        let by_range = Job {
            primitive: Primitive::CompactRange,
            bottommost,
            relief_seconds_per_second: self.whole_relief,
            ..self.at(prediction)
        };
        // What is in memtables only `CompactRange` brings down.
        if !input.primitives.compact_files || by_range.is_of_memtables() {
            return by_range;
        }
        let worth_of = |job: &Job| worth((input.value)(job), job.price_bytes());
        let least = worth_of(&by_range).max(0.0) * UNSTOPPABLE_WORTH_MIN;
        let of_files = input.levels.compact_files(&by_range.range, &by_range.in_files).into_iter();
        let relief_min = by_range.relief_seconds_per_second * FILES_RELIEF_MIN;
        let of_files = of_files.filter(|taken| taken.relief > 0.0 && taken.relief >= relief_min);
        let of_files = of_files.map(|taken| by_range.by_files(taken));
        let worthy = of_files.map(|job| (worth_of(&job), job)).filter(|(worth, _)| *worth > least);
        let best = worthy.reduce(|best, next| if next.0 > best.0 { next } else { best });
        best.map_or(by_range, |(_, job)| job)
    }

    /// The same by `CompactFiles`.
    fn by_files(&self, taken: Taken) -> Job {
        Job {
            primitive: Primitive::CompactFiles { files: taken.compact, by_range_bytes: self.cost_bytes },
            relief_seconds_per_second: taken.relief,
            ..self.clone().at(taken.prediction)
        }
    }

    fn at(self, prediction: Prediction) -> Job {
        let Prediction { read_bytes, largest_job_bytes, linked_bytes, .. } = prediction;
        Job { cost_bytes: read_bytes, largest_job_bytes, linked_bytes, ..self }
    }
}

/// Jobs in the order of their keys: disjoint, and inside of what the sites span. With universal compaction
/// there is one, of all keys; with FIFO none.
pub fn jobs(input: &JobInput<'_>) -> Vec<Job> {
    match input.levels.style() {
        CompactionStyle::Level => Growth::of(input).jobs(),
        CompactionStyle::Universal => {
            let everything = Job { range: KeyRange::everything(), ..whole(input) };
            vec![everything.priced(input)]
        }
        CompactionStyle::Fifo => Vec::new(),
    }
}

/// The one job of whoever compacts the whole column family, whatever hurts, and forces its bottommost level:
/// all keys, at what all files cost.
pub fn column_family(input: &JobInput<'_>) -> Job {
    let prediction = input.levels.predict(&KeyRange::everything(), Bottommost::Force);
    Job {
        range: KeyRange::everything(),
        bottommost: Bottommost::Force,
        cost_bytes: prediction.read_bytes.max(input.levels.size_bytes()),
        largest_job_bytes: prediction.largest_job_bytes,
        linked_bytes: prediction.linked_bytes,
        ..whole(input)
    }
}

/// All sites together.
fn whole(input: &JobInput<'_>) -> Job {
    cells(input, &[]).into_iter().reduce(|job, next| job.followed_by(&next)).unwrap_or_default()
}

/// What compacting a job takes with these files, and in which way it is done. `of` is what hurt there.
pub(crate) fn prediction_of(
    levels: &Levels,
    range: &KeyRange,
    of: &RangeAssessment,
) -> (Bottommost, Prediction) {
    compaction(levels, range, are_in_memtables(of))
}

fn compaction(levels: &Levels, range: &KeyRange, are_in_memtables: bool) -> (Bottommost, Prediction) {
    if are_in_memtables { levels.compaction_of_memtables(range) } else { levels.compaction(range) }
}

/// The sites, cut at the borders: the smallest jobs there are, in the order of their keys, not priced.
fn cells(input: &JobInput<'_>, borders: &[Key]) -> Vec<Job> {
    let mut cells: Vec<(usize, Job)> = Vec::new();
    for (range, share, piece) in pieces(input, borders) {
        let cell = borders.partition_point(|border| *border <= range.begin);
        let relief = (piece.whole_relief - piece.memtable_relief).max(0.0);
        let in_files = match input.primitives.compact_files {
            true => vec![InFiles { span: input.levels.span(&range), relief }],
            false => Vec::new(),
        };
        let piece = Job { range, share, in_files, ..piece };
        match cells.last_mut() {
            Some((last, job)) if *last == cell => *job = job.followed_by(&piece),
            _ => cells.push((cell, piece)),
        }
    }
    cells.into_iter().map(|(_, job)| job).collect()
}

/// Each site, cut at the borders: keys, what files have there, and what of the site it is.
fn pieces(input: &JobInput<'_>, borders: &[Key]) -> Vec<(KeyRange, Share, Job)> {
    let mut cut: Vec<KeyRange> = Vec::new();
    let mut counts = Vec::with_capacity(input.sites.len());
    for site in input.sites {
        let first = borders.partition_point(|border| *border <= site.range.begin);
        let behind = site.range.end.as_ref();
        let behind = behind.map_or(borders.len(), |end| borders.partition_point(|border| border < end));
        let before = cut.len();
        cut.extend(split(site.range, borders.get(first..behind.max(first)).unwrap_or(&[])));
        counts.push(cut.len() - before);
    }
    let cut = cut
        .into_iter()
        .map(|range| (input.placement.share(&range), input.relief.of_range(input.placement, &range), range));
    let mut cut = cut.map(|(share, relief, range)| Cut { range, share, relief });
    let mut pieces = Vec::new();
    for (number, (site, count)) in input.sites.iter().zip(counts).enumerate() {
        for (range, share, Part { part, in_memtables }) in
            weighed(cut.by_ref().take(count).collect(), site.are_in_memtables)
        {
            let relief = site.relief_seconds_per_second * part;
            let piece = Job {
                relief_seconds_per_second: relief,
                whole_relief: relief,
                memtable_relief: site.relief_seconds_per_second * in_memtables,
                sites: vec![(number, part)],
                ..Job::default()
            };
            pieces.push((range, share, piece));
        }
    }
    pieces
}

/// A piece of a site.
struct Cut {
    range: KeyRange,
    share: Share,
    relief: Relief,
}

/// How much of a site's relief a piece has, and how much of that goes with tombstones in memtables.
struct Part {
    part: f64,
    in_memtables: f64,
}

/// The pieces of a site with their parts of it, which are those of what readers lose there; the others are
/// left out. Where that is not known it is shared out by deletions. Where none are known, all of its keys are
/// shared out by what files have there: what lies between files goes with the piece before it.
fn weighed(pieces: Vec<Cut>, are_in_memtables: bool) -> Vec<(KeyRange, Share, Part)> {
    let relief: f64 = pieces.iter().map(|piece| piece.relief.total()).sum();
    if relief > 0.0 {
        let part =
            |known: &Relief| Part { part: known.total() / relief, in_memtables: known.in_memtables / relief };
        let pieces = pieces.into_iter().filter(|piece| piece.relief.total() > relief * PART_MIN);
        return pieces.map(|piece| (piece.range, piece.share, part(&piece.relief))).collect();
    }
    let of = |part: f64| Part { part, in_memtables: if are_in_memtables { part } else { 0.0 } };
    let sum =
        |of: fn(&Share) -> u64| pieces.iter().map(|piece| of(&piece.share)).fold(0, u64::saturating_add);
    let (deletions, bytes) = (sum(|share| share.deletions), sum(|share| share.size_bytes));
    if deletions > 0 {
        let part = |share: &Share| of(share.deletions as f64 / deletions as f64);
        let pieces = pieces.into_iter().filter(|piece| piece.share.deletions > 0);
        return pieces.map(|piece| (piece.range, piece.share, part(&piece.share))).collect();
    }
    let mut filled: Vec<(KeyRange, Share)> = Vec::new();
    for Cut { range, share, .. } in pieces {
        match filled.last_mut() {
            Some((last, sum)) if share.size_bytes == 0 || sum.size_bytes == 0 => {
                last.end = range.end;
                *sum = sum.plus(share);
            }
            _ => filled.push((range, share)),
        }
    }
    let count = filled.len().max(1) as f64;
    let part = |share: &Share| match bytes {
        0 => 1.0 / count,
        bytes => share.size_bytes as f64 / bytes as f64,
    };
    filled.into_iter().map(|(range, share)| (range, share, of(part(&share)))).collect()
}

/// Parts that become jobs.
struct Growth<'a> {
    input: &'a JobInput<'a>,
    /// In the order of their keys.
    cells: Vec<Job>,
    is_taken: Vec<bool>,
    /// Jobs of some parts, by the first and the last: neighbours ask for the same ones.
    known: BTreeMap<(usize, usize), Job>,
}

impl<'a> Growth<'a> {
    fn of(input: &'a JobInput<'a>) -> Growth<'a> {
        let mut borders = input.levels.borders();
        borders.retain(|border| !input.relief.divides_memtables(input.placement, border));
        let ends = input.resting.iter().flat_map(|range| [Some(&range.begin), range.end.as_ref()]);
        borders.extend(ends.flatten().cloned());
        borders.sort();
        borders.dedup();
        let mut cells = cells(input, &borders);
        if cells.len() > PARTS_MAX {
            let mut order: Vec<usize> = (0..cells.len()).collect();
            let measure = |at: &usize| {
                let cell = cells.get(*at);
                cell.map_or((0.0, 0), |cell| (cell.relief_seconds_per_second, cell.share.deletions))
            };
            order.sort_by(|one, two| {
                let (one, two) = (measure(one), measure(two));
                two.0.total_cmp(&one.0).then(two.1.cmp(&one.1))
            });
            order.truncate(PARTS_MAX);
            order.sort_unstable();
            cells = order.into_iter().filter_map(|at| cells.get(at).cloned()).collect();
        }
        let cells: Vec<Job> = cells.into_iter().map(|cell| cell.priced(input)).collect();
        Growth { input, is_taken: vec![false; cells.len()], cells, known: BTreeMap::new() }
    }

    fn value(&self, job: &Job) -> f64 {
        (self.input.value)(job)
    }

    fn worth(&self, job: &Job) -> f64 {
        worth(self.value(job), job.price_bytes())
    }

    /// From the best part on each grows into a job, unless one has taken it before.
    fn jobs(mut self) -> Vec<Job> {
        let mut order: Vec<(f64, usize)> =
            self.cells.iter().enumerate().map(|(at, cell)| (self.worth(cell), at)).collect();
        order.sort_by(|one, two| two.0.total_cmp(&one.0).then(one.1.cmp(&two.1)));
        let mut jobs: Vec<(usize, Job)> = Vec::new();
        for (_, seed) in order {
            if self.is_taken.get(seed) == Some(&false) {
                jobs.extend(self.grow(seed));
            }
        }
        jobs.sort_by_key(|(first, _)| *first);
        jobs.into_iter().map(|(_, job)| job).collect()
    }

    /// The best job of a few parts around this one, and the places of its first and of its last part: two
    /// that share what they rewrite may each be worth little by themselves.
    fn seedling(&mut self, seed: usize) -> Option<(usize, usize, Job)> {
        let mut best = (seed, seed, self.cells.get(seed)?.clone());
        for first in seed.saturating_sub(SEEDLING_PARTS_MAX - 1)..=seed {
            let mut job: Option<Job> = None;
            for last in first..first + SEEDLING_PARTS_MAX {
                let Some(cell) = self.cells.get(last).filter(|_| self.is_taken.get(last) == Some(&false))
                else {
                    break;
                };
                if job.as_ref().is_some_and(|job| job.range.end.as_ref() != Some(&cell.range.begin)) {
                    break;
                }
                let both = job.map_or_else(|| cell.clone(), |job| job.followed_by(cell));
                if self.input.resting.iter().any(|range| range.overlaps(&both.range)) {
                    break;
                }
                if last >= seed && last > first {
                    let input = self.input;
                    let known = self.known.entry((first, last));
                    let priced = known.or_insert_with(|| both.clone().priced(input)).clone();
                    if priced.cost_bytes > self.input.slice_bytes_max {
                        break;
                    }
                    if self.worth(&priced) > self.worth(&best.2) {
                        best = (first, last, priced);
                    }
                }
                job = Some(both);
            }
        }
        Some(best)
    }

    /// The job around a part, and the place of its first one.
    fn grow(&mut self, seed: usize) -> Option<(usize, Job)> {
        let (mut first, mut last, mut job) = self.seedling(seed)?;
        let mut best = self.worth(&job);
        loop {
            let before = first.checked_sub(1);
            let down = before.and_then(|at| self.joined(&job, at, best, |job, cell| cell.followed_by(job)));
            let up = self.joined(&job, last + 1, best, |job, cell| job.followed_by(cell));
            let is_down = match (&down, &up) {
                (Some(down), Some(up)) => self.worth(down) > self.worth(up),
                (down, _) => down.is_some(),
            };
            let Some(both) = (if is_down { down } else { up }) else { break };
            if is_down {
                first -= 1
            } else {
                last += 1
            }
            best = best.max(self.worth(&both));
            job = both;
        }
        self.is_taken.get_mut(first..=last)?.fill(true);
        Some((first, job))
    }

    /// The job with one more part, where that is good for it.
    fn joined(&self, job: &Job, at: usize, best: f64, with: fn(&Job, &Job) -> Job) -> Option<Job> {
        let cell = self.cells.get(at).filter(|_| self.is_taken.get(at) == Some(&false))?;
        let both = with(job, cell);
        if self.input.resting.iter().any(|range| range.overlaps(&both.range)) {
            return None;
        }
        let both = both.priced(self.input);
        let added_bytes = both.price_bytes().saturating_sub(job.price_bytes());
        let limit = self.input.slice_bytes_max.max(job.cost_bytes).max(cell.cost_bytes);
        let is_shared = added_bytes as f64 <= cell.price_bytes() as f64 * ADDED_SHARE_MAX;
        let limit = if is_shared {
            limit.max(self.input.slice_bytes_max.saturating_mul(LIMIT_FACTOR_MAX))
        } else {
            limit
        };
        // Keys between two jobs that nobody hurts in are left alone, unless that is dearer.
        let is_next = if both.range.begin == job.range.begin {
            job.range.end.as_ref() == Some(&cell.range.begin)
        } else {
            cell.range.end.as_ref() == Some(&job.range.begin)
        };
        if !is_next && added_bytes >= cell.price_bytes() {
            return None;
        }
        let added = self.value(&both) - self.value(job);
        let is_worth_it = added >= NEIGHBOUR_WORTH_MIN * best.max(0.0) * added_bytes as f64;
        (both.cost_bytes <= limit && added >= 0.0 && is_worth_it).then_some(both)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::evidence::{Counters, Observation, SeekKind, SstFile};
    use crate::facts::options::ColumnFamilyOptions;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn file(level: u32, smallest: u8, largest: u8, size_bytes: u64, deletions: u64) -> SstFile {
        SstFile {
            number: 1,
            column_family: "default".to_owned(),
            level,
            size_bytes,
            entries: 100,
            deletions,
            smallest: Key::new([smallest]),
            largest: Key::new([largest]),
        }
    }

    fn range(begin: u8, end: u8) -> KeyRange {
        KeyRange::new(Key::new([begin]), Some(Key::new([end]))).unwrap()
    }

    fn relief(job: &Job) -> f64 {
        job.relief_seconds_per_second
    }

    /// Sites are ranges and what they relieve.
    fn found(files: &[SstFile], sites: &[(KeyRange, f64)], slice_bytes_max: u64) -> Vec<Job> {
        found_beside(files, sites, &[], slice_bytes_max)
    }

    fn found_beside(
        files: &[SstFile],
        sites: &[(KeyRange, f64)],
        resting: &[KeyRange],
        slice_bytes_max: u64,
    ) -> Vec<Job> {
        // Between two known keys nobody knows what lies where.
        let ends = sites.iter().map(|(range, _)| range).chain(resting);
        let walk = |range: &KeyRange| Observation {
            end_key: range.end.clone(),
            scan: Counters { tombstones_skipped: 10, ..Counters::default() },
            ..Observation::at(SeekKind::Seek, range.begin.clone())
        };
        let walks: Vec<Observation> = ends.map(walk).collect();
        let walks: Vec<&Observation> = walks.iter().filter(|_| !resting.is_empty()).collect();
        let files: Vec<&SstFile> = files.iter().collect();
        let levels = Levels::of(&files, &ColumnFamilyOptions::default());
        let site = |(range, relief): &'_ (KeyRange, f64)| (range.clone(), *relief);
        let sites: Vec<(KeyRange, f64)> = sites.iter().map(site).collect();
        let sites: Vec<Site<'_>> = sites
            .iter()
            .map(|(range, relief)| Site {
                range,
                relief_seconds_per_second: *relief,
                are_in_memtables: false,
            })
            .collect();
        let resting: Vec<&KeyRange> = resting.iter().collect();
        jobs(&JobInput {
            levels: &levels,
            placement: &Placement::of(&files, &walks, None),
            relief: &ReliefMap::default(),
            sites: &sites,
            resting: &resting,
            slice_bytes_max,
            primitives: Primitives::default(),
            value: &relief,
        })
    }

    fn cut(files: &[SstFile], begin: u8, end: u8, slice_bytes_max: u64) -> Vec<Job> {
        found(files, &[(range(begin, end), 1.0)], slice_bytes_max)
    }

    /// Ten files of 64 MiB in the bottommost level.
    fn bottom() -> Vec<SstFile> {
        (0..10).map(|at| file(6, at * 10, at * 10 + 9, 64 * MIB, 50)).collect()
    }

    #[test]
    fn neighbours_go_together_up_to_the_limit() {
        let jobs = cut(&bottom(), 0, 100, 192 * MIB);
        let costs: Vec<u64> = jobs.iter().map(|job| job.cost_bytes / MIB).collect();
        assert_eq!(costs, [192, 192, 192, 64]);
        assert!(
            jobs.iter().all(|job| job.bottommost == Bottommost::ForceOptimized && job.share.deletions > 0)
        );
    }

    #[test]
    fn a_file_larger_than_the_limit_is_a_job_by_itself() {
        let jobs = cut(&bottom(), 0, 100, KIB);
        assert_eq!(jobs.len(), 10);
        assert!(jobs.iter().all(|job| job.cost_bytes == 64 * MIB));
    }

    /// A thousand prefixes with little pain each are one job at the price of their file.
    #[test]
    fn prefixes_in_one_file_are_one_job() {
        let files = [file(6, 0, 240, 64 * MIB, 100)];
        let sites: Vec<(KeyRange, f64)> = (0..200).map(|at| (range(at, at + 1), 0.004)).collect();
        let jobs = found(&files, &sites, 64 * MIB);
        assert_eq!(jobs.len(), 1);
        assert_eq!((jobs[0].cost_bytes, jobs[0].sites.len()), (64 * MIB, 200));
        assert!(
            (jobs[0].relief_seconds_per_second - 0.8).abs() < 1e-9,
            "{}",
            jobs[0].relief_seconds_per_second
        );
    }

    /// What was compacted lately rests, and what hurts beside it in the same file does not have to.
    #[test]
    fn what_rests_keeps_no_others_from_being_compacted() {
        let files = [file(6, 0, 240, 64 * MIB, 200)];
        let sites = [(range(0, 20), 0.1), (range(40, 60), 0.1), (range(80, 100), 0.1)];
        assert_eq!(found(&files, &sites, 64 * MIB).len(), 1);
        let jobs = found_beside(&files, &sites, &[range(50, 70)], 64 * MIB);
        let ranges: Vec<KeyRange> = jobs.iter().map(|job| job.range.clone()).collect();
        assert_eq!(ranges, [range(0, 50), range(50, 60), range(80, 100)]);
    }

    #[test]
    fn neighbours_below_one_large_file_go_together_although_that_is_over_the_limit() {
        let mut files: Vec<SstFile> = (0..10).map(|at| file(6, at * 10, at * 10 + 9, KIB, 0)).collect();
        files.push(file(5, 0, 99, 512 * KIB, 50));
        assert_eq!(cut(&files, 0, 100, KIB).len(), 1);
    }

    /// Small files of an upper level over one large one, which each of them would have rewritten.
    #[test]
    fn what_is_rewritten_anyway_is_not_left_to_a_job_of_its_own() {
        let mut files: Vec<SstFile> = (0..8).map(|at| file(5, at * 10, at * 10 + 9, 4 * MIB, 50)).collect();
        files.push(file(6, 0, 99, 64 * MIB, 0));
        let jobs = cut(&files, 0, 100, 64 * MIB);
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        assert_eq!(jobs[0].cost_bytes, 96 * MIB);
    }

    /// One of them holds nearly all: what would only be brought along is left.
    #[test]
    fn a_job_does_not_grow_to_what_is_worth_far_less() {
        let mut files = bottom();
        files.iter_mut().skip(1).for_each(|file| file.deletions = 1);
        let jobs = cut(&files, 0, 100, 1024 * MIB);
        let first: Vec<(u64, u64)> =
            jobs.iter().map(|job| (job.cost_bytes / MIB, job.share.deletions)).collect();
        assert_eq!(first, [(64, 50), (576, 9)]);
    }

    #[test]
    fn parts_without_tombstones_are_left_out() {
        let mut files = bottom();
        files.iter_mut().filter(|file| file.smallest >= Key::new([30])).for_each(|file| file.deletions = 0);
        let jobs = cut(&files, 0, 100, 1024 * MIB);
        assert_eq!(jobs.len(), 1);
        assert_eq!(jobs[0].range.end, Some(Key::new([29]).successor()));
        assert_eq!(jobs[0].cost_bytes, 192 * MIB);
    }

    /// A part of the tombstones lies in one file of ten: all of them are paid for.
    #[test]
    fn a_column_family_costs_all_of_its_files() {
        let files = bottom();
        let files: Vec<&SstFile> = files.iter().collect();
        let levels = Levels::of(&files, &ColumnFamilyOptions::default());
        let range = range(0, 10);
        let site = Site { range: &range, relief_seconds_per_second: 1.0, are_in_memtables: false };
        let (sites, value) = ([site], &relief);
        let input = JobInput {
            levels: &levels,
            placement: &Placement::of(&files, &[], None),
            relief: &ReliefMap::default(),
            sites: &sites,
            resting: &[],
            slice_bytes_max: KIB,
            primitives: Primitives::default(),
            value,
        };
        let whole = column_family(&input);
        assert_eq!((whole.range, whole.bottommost), (KeyRange::everything(), Bottommost::Force));
        assert_eq!((whole.cost_bytes, whole.share.deletions), (640 * MIB, 50));
    }

    prop_compose! {
        fn files()(
            rows in proptest::collection::vec((0u8..8, 1u8..12, 1u64..1 << 24, 0u64..100, 1u32..7), 0..40),
        ) -> Vec<SstFile> {
            let mut ends = [0u8; 7];
            let mut files = Vec::new();
            for (gap, length, size_bytes, deletions, level) in rows {
                let end = &mut ends[usize::try_from(level).unwrap()];
                if let Some(next) = end.checked_add(gap + length + 1) {
                    let number = files.len() as u64 + 1;
                    let of_level = file(level, *end + gap, *end + gap + length, size_bytes, deletions);
                    files.push(SstFile { number, ..of_level });
                    *end = next;
                }
            }
            files
        }
    }

    prop_compose! {
        /// Ranges that hurt, in order and apart, with what compacting them relieves.
        fn sites()(
            rows in proptest::collection::vec((0u8..20, 1u8..20, 0.001..1.0), 1..8),
        ) -> Vec<(KeyRange, f64)> {
            let mut end = 0_u8;
            let mut sites = Vec::new();
            for (gap, length, relief) in rows {
                if let Some(next) = end.checked_add(gap + length) {
                    sites.push((range(end + gap, next), relief));
                    end = next;
                }
            }
            sites
        }
    }

    fn worth_of(job: &Job) -> f64 {
        worth(relief(job), job.price_bytes())
    }

    proptest! {
        #[test]
        fn jobs_are_apart_and_relieve_all_that_hurts(
            files in files(),
            sites in sites(),
            slice_bytes_max in 1u64..1 << 26,
        ) {
            let jobs = found(&files, &sites, slice_bytes_max);
            prop_assert_eq!(&jobs, &found(&files, &sites, slice_bytes_max));
            for pair in jobs.windows(2) {
                prop_assert!(pair[0].range.end.as_ref().is_some_and(|end| *end <= pair[1].range.begin));
            }
            for job in &jobs {
                prop_assert!(job.largest_job_bytes <= job.cost_bytes);
                prop_assert!(job.sites.iter().all(|(site, _)| sites[*site].0.overlaps(&job.range)));
            }
            // Each range's relief is shared out, and so are its deletions.
            for (number, (range, _)) in sites.iter().enumerate() {
                let of_it = jobs.iter().flat_map(|job| &job.sites).filter(|(site, _)| *site == number);
                let sum: f64 = of_it.map(|(_, share)| share).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9, "{range:?}: {sum}");
            }
            let all: Vec<&SstFile> = files.iter().collect();
            let ranges: Vec<KeyRange> = sites.iter().map(|(range, _)| range.clone()).collect();
            let placement = Placement::of(&all, &[], None);
            let inside: u64 = ranges.iter().map(|range| placement.share(range).deletions).sum();
            prop_assert_eq!(jobs.iter().map(|job| job.share.deletions).sum::<u64>(), inside);
        }

        /// The best job that any run of neighbouring files could be is found but for a small part of its
        /// worth.
        #[test]
        fn the_best_job_is_worth_about_as_much_as_any_other(
            files in files(),
            sites in sites(),
            compact_files: bool,
        ) {
            let limit = 16 * MIB;
            let all: Vec<&SstFile> = files.iter().collect();
            let levels = Levels::of(&all, &ColumnFamilyOptions::default());
            let hurting: Vec<Site<'_>> = sites
                .iter()
                .map(|(range, relief)| {
                    Site { range, relief_seconds_per_second: *relief, are_in_memtables: false }
                })
                .collect();
            let input = JobInput {
                levels: &levels,
                placement: &Placement::of(&all, &[], None),
                relief: &ReliefMap::default(),
                sites: &hurting,
                resting: &[],
                slice_bytes_max: limit,
                primitives: Primitives { compact_files },
                value: &relief,
            };
            let cells = cells(&input, &levels.borders());
            let mut best = 0.0_f64;
            for (first, cell) in cells.iter().enumerate() {
                let mut job = cell.clone();
                // By files a run may cost less than a part of it: held against each cell alone.
                let others = cells.iter().skip(first + 1).filter(|_| !compact_files);
                for next in others.map(Some).chain([None]) {
                    let priced = job.clone().priced(&input);
                    if priced.cost_bytes <= limit || priced.range == cell.range {
                        best = best.max(worth_of(&priced));
                    }
                    let Some(next) = next else { break };
                    job = job.followed_by(next);
                }
            }
            let found = jobs(&input).iter().map(worth_of).fold(0.0, f64::max);
            prop_assert!(found >= best * NEIGHBOUR_WORTH_MIN, "{found} and not {best}");
        }
    }
}
