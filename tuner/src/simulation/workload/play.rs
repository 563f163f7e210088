//! The loop: writes, what RocksDB does by itself, readers, and whoever decides.

use super::choice::Extent;
use super::description::{Choice, ReaderGroup, Workload, Write, Writer};
use super::operator::{COLUMN_FAMILY, Done, Operator, Strategy};
use super::recording::Recording;
use super::repeater::Repeater;
use super::report::{Report, Sample};
use super::seen::Seen;
use super::turn::{Plays, Turn, times, window_seconds};
use crate::facts::evidence::{Evidence, Observation};
use crate::lsm::cost::Bottommost;
use crate::policy::{LoopTiming, TimeSpan};
use crate::rank::AssessError;
use crate::simulation::lsm::entry::Kind;
use crate::simulation::lsm::picture::{Position, Prices, Walk};
use crate::simulation::lsm::{Tree, Work};
use crate::simulation::random::Random;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// When simulated time begins, in seconds since the Unix epoch: a Monday, at midnight.
pub(super) const BEGINNING_UNIX_S: i64 = 1_767_571_200;

/// Walks of one group of readers by which it is said what it loses.
const WALKS_FOR_TRUTH: u64 = 1_000;

/// Whole numbers that a group of readers is drawn by.
const DRAWN_FROM: u64 = 1_000_000;

/// Most walks of one group of readers in one interval: the others are taken to have met the same.
const WALKS_MAX: u64 = 10;

/// Most steps of a write or list, so that a description with absurd numbers ends.
const WRITES_PER_INTERVAL_MAX: u64 = 5_000_000;

/// Plays a workload; the same seed plays the same.
///
/// # Errors
/// What the planner cannot make sense of.
pub fn play(workload: &Workload, strategy: Strategy, seed: u64) -> Result<Report, AssessError> {
    let timing = timing_of(&strategy);
    play_at(workload, &timing, strategy, seed)
}

/// The same, where everybody looks as often as this says.
///
/// # Errors
/// What the planner cannot make sense of.
pub fn play_at(
    workload: &Workload,
    timing: &LoopTiming,
    strategy: Strategy,
    seed: u64,
) -> Result<Report, AssessError> {
    let turns = workload.duration.duration().as_secs() / interval_seconds(timing);
    run(Player::new(workload, timing, seed), (&workload.name, turns), timing, strategy)
}

/// Plays a recording; the same seed plays the same.
///
/// # Errors
/// What the planner cannot make sense of.
pub fn play_recording(recording: &Recording, strategy: Strategy, seed: u64) -> Result<Report, AssessError> {
    let timing = timing_of(&strategy);
    let turns = recording.duration().as_secs() / interval_seconds(&timing) + 1;
    run(Repeater::new(recording, &timing, seed), (&recording.name, turns), &timing, strategy)
}

fn timing_of(strategy: &Strategy) -> LoopTiming {
    match strategy {
        Strategy::Planner(policy) => policy.timing.clone(),
        _ => LoopTiming::default(),
    }
}

fn interval_seconds(timing: &LoopTiming) -> u64 {
    timing.interval.max(TimeSpan::from_seconds(1)).duration().as_secs()
}

fn run(
    mut player: impl Plays,
    (name, turns): (&str, u64),
    timing: &LoopTiming,
    strategy: Strategy,
) -> Result<Report, AssessError> {
    let mut operator = Operator::new(strategy);
    let interval_s = interval_seconds(timing);
    let mut report = Report::new(name);
    for number in 1..=turns {
        let turn = player.turn(interval_s as f64, number);
        let at_seconds = number * interval_s;
        let now = BEGINNING_UNIX_S.saturating_add(i64::try_from(at_seconds).unwrap_or(i64::MAX));
        let now = Timestamp::from_second(now).unwrap_or(Timestamp::UNIX_EPOCH);
        let done: Done = operator.act(player.tree(), turn.evidence, now)?;
        report.add(Sample {
            at_seconds,
            pain_seconds_per_second: turn.pain_seconds / interval_s as f64,
            tombstones_skipped: turn.tombstones_skipped,
            actions: done.actions,
            actions_in_vain: done.in_vain,
            written_bytes: done.work.written_bytes,
            read_bytes: done.work.read_bytes,
            written_by_rocksdb_bytes: turn.by_rocksdb.written_bytes,
            deletions: player.tree().deletions(),
            size_bytes: player.tree().size_bytes(),
        });
    }
    Ok(report)
}

pub(super) struct Player<'w> {
    pub(super) workload: &'w Workload,
    pub(super) tree: Tree,
    extent: Extent,
    seed: u64,
    prices: Prices,
    window_seconds: f64,
}

impl Plays for Player<'_> {
    fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    fn turn(&mut self, seconds: f64, turn: u64) -> Turn {
        let by_rocksdb = self.write(seconds, turn);
        let seen = self.read(seconds, turn);
        seen.turn(&self.tree, by_rocksdb, (seconds, self.window_seconds))
    }
}

impl<'w> Player<'w> {
    pub(super) fn new(workload: &'w Workload, timing: &LoopTiming, seed: u64) -> Player<'w> {
        let mut tree = Tree::new(workload.settings());
        for key in 0..workload.load {
            tree.write(key, Kind::Put, workload.value_bytes);
            if tree.is_memtable_full() {
                tree.settle(u64::MAX);
            }
        }
        tree.compact_range(None, None, Bottommost::Default);
        let window_seconds = window_seconds(timing);
        let extent = Extent { oldest: 0, end: workload.load };
        Player { workload, tree, extent, seed, prices: Prices::default(), window_seconds }
    }

    /// An interval's writes, and what RocksDB makes of them.
    pub(super) fn write(&mut self, seconds: f64, turn: u64) -> Work {
        let mut random = Random::of(self.seed, turn * 2);
        let mut work = Work::default();
        let mut left: Vec<(Writer, u64)> = (self.workload.writers.iter())
            .map(|writer| (*writer, times(writer.per_second * seconds, &mut random)))
            .collect();
        let mut written: u64 = 0;
        // Taken in turns, as they are mixed in time.
        while left.iter().any(|(_, times)| *times > 0) && written < WRITES_PER_INTERVAL_MAX {
            for (writer, times) in left.iter_mut().filter(|(_, times)| *times > 0) {
                *times -= 1;
                written += writer.run;
                self.write_run(writer, &mut random);
                if self.tree.is_memtable_full() {
                    work = work.plus(self.tree.settle(u64::MAX));
                }
            }
        }
        work
    }

    fn write_run(&mut self, writer: &Writer, random: &mut Random) {
        let Some(first) = self.extent.choose(writer.at, writer.run, random) else { return };
        match writer.operation {
            Write::DeleteRange => self.tree.delete_range(first, first.saturating_add(writer.run)),
            operation => {
                for key in first..first.saturating_add(writer.run) {
                    self.tree.write(key, operation.kind(), self.workload.value_bytes);
                }
            }
        }
    }

    /// What the agent sees of an interval's readers, with the interval's own counters.
    pub(super) fn read_as_evidence(&mut self, seconds: f64, turn: u64) -> Evidence {
        let seen = self.read(seconds, turn);
        seen.evidence(&self.tree, (seconds, self.window_seconds))
    }

    /// An interval's readers.
    fn read(&mut self, seconds: f64, turn: u64) -> Seen {
        let mut random = Random::of(self.seed, turn * 2 + 1);
        let mut seen = Seen::default();
        let view = self.tree.view();
        for group in &self.workload.readers {
            let operations = group.per_second * seconds;
            let distinct = match group.at {
                Choice::First | Choice::Oldest { .. } | Choice::Within { count: 1, .. } => 1,
                _ => WALKS_MAX,
            };
            let walks = (operations.ceil() as u64).min(distinct);
            for _ in 0..walks {
                let Some(walk) = walk_of(group, &mut self.extent, &mut random) else { continue };
                let walked = walk.on(&mut view.reader());
                let each = operations / walks as f64;
                let observation = self.tree.observation(COLUMN_FAMILY, &walk, &walked, &self.prices);
                let weight = times(each * self.window_seconds / seconds, &mut random);
                seen.take(observation, self.prices.pain_ns(&walked), each, weight);
            }
        }
        seen
    }

    /// So many operations of the readers, each of a group by how often the groups read. Those that begin
    /// at the same key meet the same.
    pub(super) fn operations(&mut self, count: u64, random: &mut Random) -> Vec<Observation> {
        let groups = &self.workload.readers;
        let view = self.tree.view();
        let per_second = |groups: &[ReaderGroup]| groups.iter().map(|group| group.per_second).sum::<f64>();
        let until: Vec<u64> = (1..=groups.len())
            .map(|end| {
                (per_second(groups.get(..end).unwrap_or_default()) / per_second(groups) * DRAWN_FROM as f64)
                    as u64
            })
            .collect();
        let mut walked = BTreeMap::new();
        let mut operations = Vec::new();
        for _ in 0..count {
            let drawn = random.between(0, DRAWN_FROM);
            let index = until.partition_point(|until| *until <= drawn).min(groups.len().saturating_sub(1));
            let Some(group) = groups.get(index) else { break };
            let Some(walk) = walk_of(group, &mut self.extent, random) else { continue };
            let seen = walked.entry((index, walk.position)).or_insert_with(|| {
                let walked = walk.on(&mut view.reader());
                self.tree.observation(COLUMN_FAMILY, &walk, &walked, &self.prices)
            });
            operations.push(seen.clone());
        }
        operations
    }

    /// Seconds a second that the readers would lose with another tree, by many walks of each group of them.
    pub(super) fn pain_of(&self, tree: &Tree) -> f64 {
        let view = tree.view();
        let of_group = |group: &ReaderGroup| {
            let (mut random, mut extent) = (Random::of(self.seed, 0), self.extent);
            let walks = (0..WALKS_FOR_TRUTH).filter_map(|_| walk_of(group, &mut extent, &mut random));
            let pain_ns: u64 = walks.map(|walk| self.prices.pain_ns(&walk.on(&mut view.reader()))).sum();
            pain_ns as f64 / WALKS_FOR_TRUTH as f64 * group.per_second / 1e9
        };
        self.workload.readers.iter().map(of_group).sum()
    }
}

fn walk_of(group: &ReaderGroup, extent: &mut Extent, random: &mut Random) -> Option<Walk> {
    let key = extent.choose(group.at, 1, random)?;
    let position = match (group.at, group.backwards) {
        (Choice::First, false) => Position::SeekToFirst,
        (Choice::First, true) => Position::SeekToLast,
        (_, false) => Position::Seek(key),
        (_, true) => Position::SeekForPrev(key),
    };
    Some(Walk { position, steps: group.list, is_forward: !group.backwards })
}
