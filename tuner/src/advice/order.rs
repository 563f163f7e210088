//! In which order keys are written: where the keys of a newly written file lie among those of the one
//! written before it.

use crate::facts::key::Key;
use crate::facts::sighting::SightedFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Fewest different times at which files were written that tell their order: what one compaction has written
/// is in the order of keys, whatever it was made of.
const TIMES_MIN: usize = 3;

/// Fewest sampled keys of each of two files that tell how they are mixed.
const SAMPLE_MIN: usize = 6;

/// Keys of two files, put in order, change from one file to the other as often as random keys do, or less
/// often. So many standard deviations below what is expected of random ones they are not mixed: by chance
/// that is one file in 30,000.
const APART_DEVIATIONS: f64 = 4.0;
/// From so many on it is not said that they are.
const DOUBTED_DEVIATIONS: f64 = 2.0;

/// The share of a new file's keys that lie behind the file before, where keys grow as one. A file with
/// deletions has these at the front, and of its entries some more than at the end, if they are taken fast.
const BEHIND_SHARE_MIN: f64 = 0.9;
const BEHIND_SHARE_MIN_WITH_DELETIONS: f64 = 0.2;

/// Where a new file's keys lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind all keys that there were.
    Behind,
    /// At both ends ahead of the file before: entries come at the end and go at the front.
    Ahead,
    /// In stretches of their own between those of the file before, as where each of many series grows at its
    /// end.
    ByPrefix,
    /// Among the keys of the file before.
    Mixed,
    /// They overlap, and nothing is known of what lies inside of them.
    Unknown,
}

/// How many new files have lain where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderCounts {
    /// Behind all keys that there were.
    pub behind: u64,
    /// Ahead of the file before at both ends.
    pub ahead: u64,
    /// In stretches between those of the file before.
    pub by_prefix: u64,
    /// Among the keys of the file before.
    pub mixed: u64,
    /// Overlapping it, with nothing known of what lies inside.
    pub unknown: u64,
}

impl OrderCounts {
    pub(super) fn count(&mut self, place: Place) {
        let count = match place {
            Place::Behind => &mut self.behind,
            Place::Ahead => &mut self.ahead,
            Place::ByPrefix => &mut self.by_prefix,
            Place::Mixed => &mut self.mixed,
            Place::Unknown => &mut self.unknown,
        };
        *count = count.saturating_add(1);
    }

    pub(super) fn plus(self, other: OrderCounts) -> OrderCounts {
        OrderCounts {
            behind: self.behind.saturating_add(other.behind),
            ahead: self.ahead.saturating_add(other.ahead),
            by_prefix: self.by_prefix.saturating_add(other.by_prefix),
            mixed: self.mixed.saturating_add(other.mixed),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    /// Files whose place is known.
    pub fn known(&self) -> u64 {
        self.behind + self.ahead + self.by_prefix + self.mixed
    }

    /// The share of those that lie behind or ahead: keys grow with time.
    pub fn growing_share(&self) -> f64 {
        share(self.behind + self.ahead, self.known())
    }

    /// The share of those that do, each key within its prefix.
    pub fn by_prefix_share(&self) -> f64 {
        share(self.behind + self.ahead + self.by_prefix, self.known())
    }
}

/// Whether the files of a column family, put in the order of their keys, are in the order of their age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileOrder {
    /// They are, and none overlaps another.
    ByTime,
    /// They are not.
    Other,
    /// Too many have been rewritten to tell.
    #[default]
    Unknown,
}

/// The order of all live files: by sequence numbers, and where compaction has taken these away, by the times
/// at which the files were written.
pub(super) fn of_files(files: &[&SightedFile]) -> FileOrder {
    let mut files = files.to_vec();
    files.sort_by(|one, other| one.file.smallest.cmp(&other.file.smallest));
    if !files.iter().zip(files.iter().skip(1)).all(|(one, other)| is_older(one, other)) {
        return FileOrder::Other;
    }
    let is_rewritten = |file: &&&SightedFile| file.sequences.is_none_or(|numbers| numbers.smallest == 0);
    let entries = |files: &mut dyn Iterator<Item = &&SightedFile>| {
        files.fold(0_u64, |sum, file| sum.saturating_add(file.file.entries))
    };
    let rewritten = entries(&mut files.iter().filter(is_rewritten));
    let times: BTreeSet<u64> = files.iter().filter(is_rewritten).map(|file| created(file)).collect();
    let is_known = rewritten <= entries(&mut files.iter()) / 2 || times.len() >= TIMES_MIN;
    if is_known { FileOrder::ByTime } else { FileOrder::Unknown }
}

/// Whether a file with smaller keys has nothing that is younger.
fn is_older(one: &SightedFile, other: &SightedFile) -> bool {
    let by_sequence = match (one.sequences, other.sequences) {
        (Some(one), Some(other)) if one.smallest > 0 && other.smallest > 0 => one.largest < other.smallest,
        _ => created(one) <= created(other),
    };
    one.file.largest < other.file.smallest && by_sequence
}

fn created(file: &SightedFile) -> u64 {
    file.details.as_ref().map_or(0, |details| details.created_unix_s)
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// What is kept of a newly written file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Extent {
    pub smallest: Key,
    pub largest: Key,
    /// Whether a good part of its entries are deletions.
    pub deletes: bool,
    pub marks: Vec<Key>,
}

/// Where the keys of `newer` lie; `highest` is the greatest key that there was before.
pub(super) fn place(highest: Option<&Key>, older: &Extent, newer: &Extent) -> Place {
    if highest.is_none_or(|highest| newer.smallest > *highest) {
        return Place::Behind;
    }
    let Some(apart) = deviations(older, newer) else { return Place::Unknown };
    let behind = newer.marks.iter().filter(|key| **key > older.largest).count();
    let behind = behind as f64 / newer.marks.len().max(1) as f64;
    let wanted = if newer.deletes { BEHIND_SHARE_MIN_WITH_DELETIONS } else { BEHIND_SHARE_MIN };
    match apart {
        _ if behind >= wanted && highest.is_none_or(|highest| newer.largest > *highest) => Place::Ahead,
        apart if apart >= APART_DEVIATIONS => Place::ByPrefix,
        apart if apart >= DOUBTED_DEVIATIONS => Place::Unknown,
        _ => Place::Mixed,
    }
}

/// How much less often the keys of both, put in order, come from another file than the one before than random
/// keys would, in standard deviations (Wald and Wolfowitz). `None` where too few are known.
fn deviations(older: &Extent, newer: &Extent) -> Option<f64> {
    if older.marks.len().min(newer.marks.len()) < SAMPLE_MIN {
        return None;
    }
    let tagged = |extent: &Extent, is_newer| {
        extent.marks.iter().map(|key| (key.clone(), is_newer)).collect::<Vec<(Key, bool)>>()
    };
    let mut keys = tagged(older, false);
    keys.extend(tagged(newer, true));
    keys.sort();
    let changes = keys.iter().zip(keys.iter().skip(1)).filter(|((_, one), (_, other))| one != other);
    let runs = changes.count() as f64 + 1.0;
    let (one, other) = (older.marks.len() as f64, newer.marks.len() as f64);
    let (all, pairs) = (one + other, 2.0 * one * other);
    let (expected, variance) = (pairs / all + 1.0, pairs * (pairs - all) / (all * all * (all - 1.0)));
    Some((expected - runs) / variance.max(f64::EPSILON).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(keys: impl IntoIterator<Item = u64>) -> Extent {
        let marks: Vec<Key> = keys.into_iter().map(|key| Key::new(key.to_be_bytes())).collect();
        let end = |key: Option<&Key>| key.cloned().unwrap_or_default();
        Extent { smallest: end(marks.iter().min()), largest: end(marks.iter().max()), deletes: false, marks }
    }

    fn placed(older: impl IntoIterator<Item = u64>, newer: impl IntoIterator<Item = u64>) -> Place {
        let older = extent(older);
        place(Some(&older.largest.clone()), &older, &extent(newer))
    }

    #[test]
    fn what_is_appended_lies_behind() {
        assert_eq!(placed(0..64, 64..128), Place::Behind);
        assert_eq!(place(None, &Extent::default(), &extent(5..6)), Place::Behind);
        // Behind the file before, and not behind everything.
        let (older, newer) = (extent(0..64), extent(64..128));
        assert_eq!(place(Some(&Key::new([0xff])), &older, &newer), Place::ByPrefix);
    }

    #[test]
    fn a_queue_moves_on_at_its_end() {
        let queue = |front: u64, end: u64| Extent {
            deletes: true,
            ..extent((front..front + 32).chain(end..end + 32))
        };
        let placed = |older: &Extent, newer: &Extent| place(Some(&older.largest), older, newer);
        assert_eq!(placed(&queue(0, 1000), &queue(32, 1032)), Place::Ahead);
        // What is taken at once: the tombstones of one file lie where the entries of the one before do.
        assert_eq!(placed(&queue(0, 32), &queue(32, 64)), Place::Ahead);
        // Not the end of all keys: each of two tables is a queue.
        assert_eq!(place(Some(&Key::new([0xff])), &queue(0, 1000), &queue(32, 1032)), Place::ByPrefix);
    }

    #[test]
    fn series_grow_each_at_its_end() {
        let series =
            |at: u64| (0..8).flat_map(move |series| (at..at + 8).map(move |time| series * 1000 + time));
        assert_eq!(placed(series(0), series(8)), Place::ByPrefix);
    }

    #[test]
    fn keys_in_no_order_are_mixed() {
        let scattered =
            |seed: u64| (0..64).map(move |at: u64| (at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert_eq!(placed(scattered(1), scattered(1000)), Place::Mixed);
        assert_eq!(placed(0..64, 0..64), Place::Mixed);
        assert_eq!(placed(0..3, 1..4), Place::Unknown);
    }
}
