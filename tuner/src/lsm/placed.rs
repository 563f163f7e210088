//! Files and intervals of keys, placed by the column family's ruler: numbers instead of keys.

use crate::facts::evidence::SstFile;
use crate::facts::range::KeyRange;
use crate::lsm::ruler::{Mark, Ruler};

/// What an entry takes besides its key and value: sequence number, type and lengths.
const ENTRY_OVERHEAD_BYTES: u64 = 11;

/// A file, live or written by the walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    /// Its number; 0 where the walk has written it.
    pub(super) number: u64,
    /// Where its keys begin and where they end, by the column family's ruler.
    pub(crate) begin: f64,
    pub(crate) end: f64,
    /// Bytes of a key.
    pub(super) key_bytes: u64,
    pub(super) size_bytes: u64,
    pub(super) entries: u64,
    pub(super) deletions: u64,
    /// Whether this compaction has written it.
    pub(super) is_new: bool,
    /// Whether a hard link elsewhere keeps it on the disk.
    pub(super) is_linked: bool,
}

impl File {
    pub(crate) fn of(file: &SstFile, (begin, end): (f64, f64)) -> File {
        File {
            number: file.number,
            begin,
            end,
            key_bytes: file.smallest.as_bytes().len().max(file.largest.as_bytes().len()) as u64,
            size_bytes: file.size_bytes,
            entries: file.entries,
            deletions: file.deletions,
            is_new: false,
            is_linked: false,
        }
    }

    /// The same file, kept on the disk by a hard link elsewhere or not.
    pub(crate) fn linked(self, is_linked: bool) -> File {
        File { is_linked, ..self }
    }

    /// Bytes that stay on the disk when it is replaced.
    pub(crate) fn linked_bytes(&self) -> u64 {
        if self.is_linked { self.size_bytes } else { 0 }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes of its deletions: a key and some more each, but no more than of any entry on average.
    pub(super) fn deletions_bytes(&self) -> u64 {
        let deletions = self.deletions.min(self.entries);
        let of_keys = deletions.saturating_mul(self.key_bytes.saturating_add(ENTRY_OVERHEAD_BYTES));
        portion(self.size_bytes, deletions, self.entries.max(1)).min(of_keys)
    }
}

/// An interval of keys, by the column family's ruler; the end is not part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) begin: f64,
    pub(crate) end: f64,
}

impl Span {
    /// The range's, whose end RocksDB takes as inclusive.
    pub(crate) fn of_range(range: &KeyRange, ruler: &Ruler) -> Span {
        let end = range.end.as_ref();
        Span {
            begin: if range.begin.is_empty() {
                f64::NEG_INFINITY
            } else {
                ruler.at(Mark::before(&range.begin))
            },
            end: end.map_or(f64::INFINITY, |end| ruler.at(Mark::before(end)).next_up()),
        }
    }

    pub(crate) fn overlaps(&self, file: &File) -> bool {
        file.end > self.begin && file.begin < self.end
    }

    pub(super) fn encloses(&self, file: &File) -> bool {
        file.begin >= self.begin && file.end <= self.end
    }

    /// Grows to hold the file.
    pub(crate) fn extend(&mut self, file: &File) {
        self.begin = self.begin.min(file.begin);
        self.end = self.end.max(file.end);
    }

    /// The least that holds all the files; `None` without any.
    pub(super) fn hull<'f>(files: impl IntoIterator<Item = &'f File>) -> Option<Span> {
        let mut files = files.into_iter();
        let first = files.next()?;
        let mut span = Span { begin: first.begin, end: first.end };
        files.for_each(|file| span.extend(file));
        Some(span)
    }
}

/// `total * part / whole`, all of it where there is no whole.
pub(super) fn portion(total: u64, part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return total;
    }
    let portion = u128::from(total) * u128::from(part.min(whole)) / u128::from(whole);
    u64::try_from(portion).unwrap_or(total)
}
