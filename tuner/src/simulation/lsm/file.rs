//! One SST file of a tree.

use super::entry::{Entry, RangeTombstone};
use std::sync::Arc;

/// A file; what is in it never changes.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// As in `000123.sst`.
    pub(crate) number: u64,
    /// In order.
    pub(crate) entries: Arc<[Entry]>,
    pub(crate) tombstones: Arc<[RangeTombstone]>,
    pub(crate) smallest: u64,
    /// Where a range tombstone ends the file that is its end, which is not in it.
    pub(crate) largest: u64,
    /// Whether the largest key is not in it.
    pub(crate) is_open: bool,
    pub(crate) size_bytes: u64,
    /// Of them, range tombstones included.
    pub(crate) deletions: u64,
    pub(crate) largest_sequence: u64,
    /// Whether `SuggestCompactRange` has marked it.
    pub(crate) is_marked: bool,
}

impl File {
    pub(crate) fn new(
        number: u64,
        entries: Vec<Entry>,
        tombstones: Vec<RangeTombstone>,
        size_bytes: u64,
    ) -> File {
        let begins = tombstones.iter().map(|tombstone| tombstone.begin);
        let smallest = entries.first().map(|entry| entry.key).into_iter().chain(begins).min().unwrap_or(0);
        let last = entries.last().map(|entry| entry.key);
        let end = tombstones.iter().map(|tombstone| tombstone.end).max();
        let is_open = end.is_some_and(|end| last.is_none_or(|last| end > last));
        let largest = last.max(end).unwrap_or(smallest);
        let deletions = entries.iter().filter(|entry| entry.kind.is_deletion()).count() + tombstones.len();
        let sequences = || {
            let of_tombstones = tombstones.iter().map(|tombstone| tombstone.sequence);
            entries.iter().map(|entry| entry.sequence).chain(of_tombstones)
        };
        File {
            number,
            smallest,
            largest,
            is_open,
            size_bytes,
            deletions: deletions as u64,
            largest_sequence: sequences().max().unwrap_or(0),
            is_marked: false,
            entries: entries.into(),
            tombstones: tombstones.into(),
        }
    }

    /// `num_entries`: range tombstones are among them.
    pub(crate) fn entries_count(&self) -> u64 {
        (self.entries.len() + self.tombstones.len()) as u64
    }

    pub(crate) fn overlaps(&self, smallest: u64, largest: u64) -> bool {
        self.smallest <= largest && smallest <= self.largest
    }

    /// Whether it has an entry among these keys, or a range tombstone over one.
    pub(crate) fn holds(&self, smallest: u64, largest: u64) -> bool {
        let first = self.entries.partition_point(|entry| entry.key < smallest);
        let covers = |tombstone: &RangeTombstone| tombstone.begin <= largest && smallest < tombstone.end;
        self.entries.get(first).is_some_and(|entry| entry.key <= largest)
            || self.tombstones.iter().any(covers)
    }
}

/// Bytes of some files.
pub(crate) fn bytes_of(files: &[Arc<File>]) -> u64 {
    files.iter().map(|file| file.size_bytes).sum()
}

/// Least and greatest key of some files.
pub(crate) fn hull<'f>(files: impl IntoIterator<Item = &'f Arc<File>>) -> Option<(u64, u64)> {
    let spans = files.into_iter().map(|file| (file.smallest, file.largest));
    spans.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)))
}
