//! Size of an SST file: the block-based format, uncompressed, without a filter.
//!
//! Data blocks are exact, because where they end decides where a compaction cuts its output. The rest of the
//! file is an estimate.

use super::entry::{Entry, RangeTombstone};
use super::names::{Name, Names};
use crate::facts::index_marks::{IndexMarks, Thinning};

/// `block_restart_interval`.
const RESTART_INTERVAL: u32 = 16;

/// What follows each block: the compression's type and a checksum.
const BLOCK_TRAILER_BYTES: u64 = 5;

/// A block that holds nothing: one restart point, and their number.
const EMPTY_BLOCK_BYTES: u64 = 8;

/// A block is ended before an entry that it is too small for, once it is fuller than so many percent.
const FULL_PERCENT: u64 = 90;

/// Sequence number and type behind a user key.
const FOOTER_BYTES: usize = 8;

/// Properties, meta index and footer of a file.
const FILE_OVERHEAD_BYTES: u64 = 1_290;

/// One file's size, while entries are added.
pub(crate) struct Table<'n> {
    names: &'n Names,
    block_size: u64,
    /// Bytes of the blocks that are ended: RocksDB's `EstimatedFileSize`.
    ended_bytes: u64,
    block_bytes: u64,
    /// Entries of the block, and those since its last restart point.
    block_entries: u64,
    since_restart: u32,
    last: Option<(Name<'n>, [u8; FOOTER_BYTES])>,
    index_bytes: u64,
    blocks: u64,
    /// Whether versions of one key lie in two blocks: then the index has whole internal keys.
    divides_versions: bool,
}

impl<'n> Table<'n> {
    pub(crate) fn new(names: &'n Names, block_size: u64) -> Table<'n> {
        Table {
            names,
            block_size,
            ended_bytes: 0,
            block_bytes: EMPTY_BLOCK_BYTES,
            block_entries: 0,
            since_restart: 0,
            last: None,
            index_bytes: EMPTY_BLOCK_BYTES + BLOCK_TRAILER_BYTES,
            blocks: 0,
            divides_versions: false,
        }
    }

    pub(crate) fn ended_bytes(&self) -> u64 {
        self.ended_bytes
    }

    pub(crate) fn add(&mut self, entry: &Entry) {
        let name = self.names.name(entry.key);
        let footer = (entry.sequence << 8 | entry.kind.number()).to_le_bytes();
        let key_bytes = (name.as_bytes().len() + FOOTER_BYTES) as u64;
        let value_bytes = u64::from(entry.value_bytes);
        if self.is_full(key_bytes, value_bytes) {
            self.end_block(Some(name.as_bytes()));
        }
        let mut shared = 0;
        if self.since_restart >= RESTART_INTERVAL {
            self.block_bytes += 4;
            self.since_restart = 0;
        } else if self.block_entries > 0 {
            shared = self.last.as_ref().map_or(0, |last| shared_bytes(last, &(name, footer)));
        }
        let own = key_bytes - shared;
        self.block_bytes += varint_bytes(shared) + varint_bytes(own) + varint_bytes(value_bytes);
        self.block_bytes += own + value_bytes;
        self.block_entries += 1;
        self.since_restart += 1;
        self.last = Some((name, footer));
    }

    /// `FlushBlockBySizePolicy`.
    fn is_full(&self, key_bytes: u64, value_bytes: u64) -> bool {
        if self.block_entries == 0 {
            return false;
        }
        let restart = if self.since_restart >= RESTART_INTERVAL { 4 } else { 0 };
        let more =
            key_bytes + value_bytes + restart + 4 + varint_bytes(key_bytes) + varint_bytes(value_bytes);
        self.block_bytes >= self.block_size
            || (self.block_bytes + more > self.block_size
                && self.block_bytes > (self.block_size * FULL_PERCENT).div_ceil(100))
    }

    /// Ends the block before a key; the last one before none.
    fn end_block(&mut self, next: Option<&[u8]>) {
        let last = self.last.as_ref().map_or(&[][..], |(name, _)| name.as_bytes());
        let separator = next.map_or(last.len(), |next| separator_bytes(last, next));
        self.divides_versions |= next == Some(last);
        // Lengths, the shortest key between the two blocks, the block's place, and a restart point.
        let place = varint_bytes(self.ended_bytes) + varint_bytes(self.block_bytes);
        self.index_bytes += 2 + separator as u64 + place + 4;
        self.blocks += 1;
        self.ended_bytes += self.block_bytes + BLOCK_TRAILER_BYTES;
        (self.block_bytes, self.block_entries, self.since_restart) = (EMPTY_BLOCK_BYTES, 0, 0);
    }

    /// What the index block of a file with these entries tells: a key between each two neighbouring data
    /// blocks, and the bytes before it.
    pub(crate) fn index_marks(names: &Names, block_size: u64, entries: &[Entry]) -> IndexMarks {
        let mut table = Table::new(names, block_size);
        let mut marks = Thinning::default();
        let mut last = names.name(0);
        for entry in entries {
            let before = table.ended_bytes();
            table.add(entry);
            let next = names.name(entry.key);
            if table.ended_bytes() > before {
                marks.push(&separator(last.as_bytes(), next.as_bytes()), table.ended_bytes());
            }
            last = next;
        }
        marks.marks()
    }

    /// Bytes of the whole file.
    pub(crate) fn finish(mut self, tombstones: &[RangeTombstone]) -> u64 {
        if self.block_entries > 0 {
            self.end_block(None);
        }
        let bytes = |tombstone: &RangeTombstone| {
            let length = |key| self.names.name(key).as_bytes().len() as u64;
            length(tombstone.begin) + length(tombstone.end) + FOOTER_BYTES as u64 + 7
        };
        let ranges: u64 = tombstones.iter().map(bytes).sum();
        let versions = if self.divides_versions { self.blocks * FOOTER_BYTES as u64 } else { 0 };
        self.ended_bytes + self.index_bytes + versions + ranges + FILE_OVERHEAD_BYTES
    }
}

/// The shortest key from `last` up to, and without, `next`.
fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let length = separator_bytes(last, next);
    let mut bytes = last.get(..length).unwrap_or(last).to_vec();
    // Shortened it is greater for its last byte.
    if let Some(byte) = bytes.last_mut().filter(|_| length < last.len()) {
        *byte = byte.saturating_add(1);
    }
    bytes
}

/// Length of the shortest key from `last` up to, and without, `next`: `FindShortestSeparator`.
fn separator_bytes(last: &[u8], next: &[u8]) -> usize {
    let common = common_bytes(last, next);
    let (Some(own), Some(others)) = (last.get(common), next.get(common)) else { return last.len() };
    if own >= others {
        return last.len();
    }
    if common + 1 < next.len() || own + 1 < *others {
        return common + 1;
    }
    let behind = last.iter().skip(common + 1).position(|byte| *byte < 0xff);
    behind.map_or(last.len(), |place| common + 1 + place + 1)
}

fn common_bytes(one: &[u8], two: &[u8]) -> usize {
    one.iter().zip(two).take_while(|(one, two)| one == two).count()
}

/// Of two internal keys.
fn shared_bytes(one: &(Name<'_>, [u8; FOOTER_BYTES]), two: &(Name<'_>, [u8; FOOTER_BYTES])) -> u64 {
    let (first, second) = (one.0.as_bytes(), two.0.as_bytes());
    let common = common_bytes(first, second);
    let is_same = common == first.len() && common == second.len();
    (common + if is_same { common_bytes(&one.1, &two.1) } else { 0 }) as u64
}

fn varint_bytes(value: u64) -> u64 {
    u64::from((64 - (value | 1).leading_zeros()).div_ceil(7))
}
