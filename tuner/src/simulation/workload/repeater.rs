//! Who makes the calls of a recording again, on a tree.

use super::operator::COLUMN_FAMILY;
use super::recording::{Operation, Recording, What};
use super::seen::Seen;
use super::turn::{Plays, Turn, times, window_seconds};
use crate::lsm::cost::Bottommost;
use crate::policy::LoopTiming;
use crate::simulation::lsm::entry::Kind;
use crate::simulation::lsm::picture::{Position, Prices, Walk};
use crate::simulation::lsm::reader::View;
use crate::simulation::lsm::{Tree, Work};
use crate::simulation::random::Random;

/// Most views of the tree in one interval, each of which copies the memtable: where there are more writes
/// than that between reads, some reads see the tree a little earlier than they did.
const VIEWS_MAX: usize = 100;

/// Most seeks of an interval that are made: each stands for some where there are more.
const WALKS_MAX: usize = 20_000;

pub(super) struct Repeater<'r> {
    recording: &'r Recording,
    tree: Tree,
    /// The first call that was not made yet.
    next: usize,
    seed: u64,
    prices: Prices,
    window_seconds: f64,
}

impl<'r> Repeater<'r> {
    pub(super) fn new(recording: &'r Recording, timing: &LoopTiming, seed: u64) -> Repeater<'r> {
        let mut tree = Tree::new(recording.settings());
        for key in &recording.loaded {
            tree.write(*key, Kind::Put, recording.value_bytes);
            if tree.is_memtable_full() {
                tree.settle(u64::MAX);
            }
        }
        if !recording.loaded.is_empty() {
            tree.compact_range(None, None, Bottommost::Default);
        }
        let window_seconds = window_seconds(timing);
        Repeater { recording, tree, next: 0, seed, prices: Prices::default(), window_seconds }
    }

    /// The calls up to a time since the beginning.
    fn until(&mut self, end_us: u64) -> &'r [Operation] {
        let left = self.recording.operations.get(self.next..).unwrap_or_default();
        let due = left.get(..left.partition_point(|one| one.at_us < end_us)).unwrap_or_default();
        self.next += due.len();
        due
    }

    fn write(&mut self, what: What) -> Option<Work> {
        match what {
            What::Write { key, kind, value_bytes } => self.tree.write(u64::from(key), kind, value_bytes),
            What::DeleteRange { begin, end } => self.tree.delete_range(u64::from(begin), u64::from(end)),
            What::Seek { .. } | What::Get { .. } => return None,
        }
        Some(if self.tree.is_memtable_full() { self.tree.settle(u64::MAX) } else { Work::default() })
    }
}

impl Plays for Repeater<'_> {
    fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    fn turn(&mut self, seconds: f64, turn: u64) -> Turn {
        let due = self.until((seconds * 1e6) as u64 * turn);
        let seeks = due.iter().filter(|one| matches!(one.what, What::Seek { .. })).count();
        let each = seeks.div_ceil(WALKS_MAX).max(1);
        let writes_per_view = (due.len() - seeks) / VIEWS_MAX;
        let mut random = Random::of(self.seed, turn);
        let (mut seen, mut by_rocksdb) = (Seen::default(), Work::default());
        let (mut view, mut writes, mut sought): (Option<View>, usize, usize) = (None, 0, 0);
        for operation in due {
            if let Some(work) = self.write(operation.what) {
                (by_rocksdb, writes) = (by_rocksdb.plus(work), writes + 1);
            }
            let What::Seek { key, lower, upper, is_forward } = operation.what else { continue };
            sought += 1;
            if !(sought - 1).is_multiple_of(each) {
                continue;
            }
            if view.is_none() || writes > writes_per_view {
                (view, writes) = (Some(self.tree.view()), 0);
            }
            let Some(view) = view.as_ref() else { continue };
            let reader = view.reader().within(lower.map_or(0, u64::from), upper.map(u64::from));
            let key = u64::from(key);
            let position = if is_forward { Position::Seek(key) } else { Position::SeekForPrev(key) };
            let walk = Walk { position, steps: self.recording.list, is_forward };
            let walked = walk.on(&mut { reader });
            let observation = self.tree.observation(COLUMN_FAMILY, &walk, &walked, &self.prices);
            let stands_for = each.min(seeks + 1 - sought) as f64;
            let weight = times(stands_for * self.window_seconds / seconds, &mut random);
            seen.take(observation, self.prices.pain_ns(&walked), stands_for, weight);
        }
        seen.turn(&self.tree, by_rocksdb, (seconds, self.window_seconds))
    }
}
