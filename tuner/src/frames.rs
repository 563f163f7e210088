//! The join: shares of observations and shares of SST files, as Polars frames, one row per range.

use crate::share::Share;
use polars::prelude::*;

/// What one operation lost in one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservationShare {
    /// Number of the range.
    pub range: u32,
    /// Tombstones skipped there.
    pub tombstones: u64,
    /// Those of them that are in no SST file: in a memtable.
    pub memtable_tombstones: u64,
    /// Those of them that are neither in an SST file nor, as far as is known, in a memtable.
    pub unexplained_tombstones: u64,
    /// 1 where the tombstones are an estimate.
    pub estimated: u64,
    /// Block-cache misses there.
    pub block_reads: u64,
    /// Blocks found in the cache there.
    pub block_cache_hits: u64,
    /// Time lost there.
    pub lost_ns: u64,
    /// The part of it that goes with tombstones whose place is known: what compaction would relieve.
    pub relief_ns: u64,
    /// The part that goes with the unexplained ones.
    pub unexplained_ns: u64,
    /// The block misses' part of it.
    pub block_read_ns: u64,
}

/// What one SST file has in one range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileShare {
    /// Number of the range.
    pub range: u32,
    /// The file's part.
    pub share: Share,
}

/// One range with everything that fell into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeRow {
    /// Number of the range.
    pub range: u32,
    /// Operations that lost time there.
    pub operations: u64,
    /// Sum over the operations.
    pub tombstones: u64,
    /// Sum over the operations.
    pub memtable_tombstones: u64,
    /// Sum over the operations.
    pub unexplained_tombstones: u64,
    /// Operations whose tombstones are an estimate.
    pub estimated: u64,
    /// Sum over the operations.
    pub block_reads: u64,
    /// Sum over the operations.
    pub block_cache_hits: u64,
    /// Sum over the operations.
    pub lost_ns: u64,
    /// Sum over the operations.
    pub relief_ns: u64,
    /// Sum over the operations.
    pub unexplained_ns: u64,
    /// Sum over the operations.
    pub block_read_ns: u64,
    /// Sum over the files.
    pub share: Share,
}

/// Most of one file in one range that is believed: larger than any SST file, and sums over a million
/// files stay within 64 bits.
const FILE_SHARE_MAX: u64 = 1 << 44;

const RANGE: &str = "range";
const OPERATION_COLUMNS: [&str; 11] = [
    "operations",
    "tombstones",
    "memtable_tombstones",
    "unexplained_tombstones",
    "estimated",
    "block_reads",
    "block_cache_hits",
    "lost_ns",
    "relief_ns",
    "unexplained_ns",
    "block_read_ns",
];
const FILE_COLUMNS: [&str; 3] = ["size_bytes", "entries", "deletions"];

/// Joins both sides into one row per range that an operation lost time in, in the order of the
/// ranges' numbers. All columns are `UInt64` but `range`, which is `UInt32`.
pub fn join(observations: &[ObservationShare], files: &[FileShare]) -> PolarsResult<Vec<RangeRow>> {
    if observations.is_empty() {
        return Ok(Vec::new());
    }
    let operations = summed(&observation_frame(observations)?, &OPERATION_COLUMNS)?;
    let files = summed(&file_frame(files)?, &FILE_COLUMNS)?;
    let joined =
        operations.left_join(&files, [RANGE], [RANGE])?.sort([RANGE], SortMultipleOptions::default())?;
    rows(&joined)
}

fn observation_frame(shares: &[ObservationShare]) -> PolarsResult<DataFrame> {
    let column = |name: &str, value: fn(&ObservationShare) -> u64| {
        Column::new(name.into(), shares.iter().map(value).collect::<Vec<u64>>())
    };
    let columns = vec![
        Column::new(RANGE.into(), shares.iter().map(|share| share.range).collect::<Vec<u32>>()),
        column("operations", |_| 1),
        column("tombstones", |share| share.tombstones),
        column("memtable_tombstones", |share| share.memtable_tombstones),
        column("unexplained_tombstones", |share| share.unexplained_tombstones),
        column("estimated", |share| share.estimated),
        column("block_reads", |share| share.block_reads),
        column("block_cache_hits", |share| share.block_cache_hits),
        column("lost_ns", |share| share.lost_ns),
        column("relief_ns", |share| share.relief_ns),
        column("unexplained_ns", |share| share.unexplained_ns),
        column("block_read_ns", |share| share.block_read_ns),
    ];
    DataFrame::new(shares.len(), columns)
}

fn file_frame(shares: &[FileShare]) -> PolarsResult<DataFrame> {
    let column = |name: &str, value: fn(&Share) -> u64| {
        Column::new(
            name.into(),
            shares.iter().map(|part| value(&part.share).min(FILE_SHARE_MAX)).collect::<Vec<u64>>(),
        )
    };
    let columns = vec![
        Column::new(RANGE.into(), shares.iter().map(|part| part.range).collect::<Vec<u32>>()),
        column("size_bytes", |share| share.size_bytes),
        column("entries", |share| share.entries),
        column("deletions", |share| share.deletions),
    ];
    DataFrame::new(shares.len(), columns)
}

/// Sums of the named columns by range, under the same names.
fn summed(frame: &DataFrame, columns: &[&str]) -> PolarsResult<DataFrame> {
    #[allow(
        deprecated,
        reason = "the replacement, lazy frames, would build the whole query engine for one sum"
    )]
    let mut sums = frame.group_by_stable([RANGE])?.select(columns.iter().copied()).sum()?;
    for name in columns {
        sums.rename(&format!("{name}_sum"), (*name).into())?;
    }
    Ok(sums)
}

fn rows(frame: &DataFrame) -> PolarsResult<Vec<RangeRow>> {
    let ranges = frame.column(RANGE)?.u32()?;
    let sums = |name: &str| frame.column(name)?.u64();
    let (operations, tombstones) = (sums("operations")?, sums("tombstones")?);
    let (memtable, block_reads) = (sums("memtable_tombstones")?, sums("block_reads")?);
    let (unexplained, unexplained_ns) = (sums("unexplained_tombstones")?, sums("unexplained_ns")?);
    let (estimated, block_cache_hits) = (sums("estimated")?, sums("block_cache_hits")?);
    let (lost_ns, relief_ns, block_read_ns) = (sums("lost_ns")?, sums("relief_ns")?, sums("block_read_ns")?);
    let (size_bytes, entries, deletions) = (sums("size_bytes")?, sums("entries")?, sums("deletions")?);
    // A range without files has no row on the right side of the join: its columns are null.
    let at = |column: &UInt64Chunked, row: usize| column.get(row).unwrap_or(0);
    let row = |index: usize| RangeRow {
        range: ranges.get(index).unwrap_or(0),
        operations: at(operations, index),
        tombstones: at(tombstones, index),
        memtable_tombstones: at(memtable, index),
        unexplained_tombstones: at(unexplained, index),
        estimated: at(estimated, index),
        block_reads: at(block_reads, index),
        block_cache_hits: at(block_cache_hits, index),
        lost_ns: at(lost_ns, index),
        relief_ns: at(relief_ns, index),
        unexplained_ns: at(unexplained_ns, index),
        block_read_ns: at(block_read_ns, index),
        share: Share {
            size_bytes: at(size_bytes, index),
            entries: at(entries, index),
            deletions: at(deletions, index),
        },
    };
    Ok((0..frame.height()).map(row).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn observation() -> impl Strategy<Value = ObservationShare> {
        (0u32..8, 0u64..1 << 32, 0u64..1 << 32, 0u64..1 << 32).prop_map(
            |(range, tombstones, block_reads, lost_ns)| ObservationShare {
                range,
                tombstones,
                memtable_tombstones: tombstones / 2,
                unexplained_tombstones: tombstones / 3,
                estimated: tombstones % 2,
                block_reads,
                block_cache_hits: block_reads * 9,
                lost_ns,
                relief_ns: lost_ns / 3,
                unexplained_ns: lost_ns / 5,
                block_read_ns: lost_ns / 2,
            },
        )
    }

    fn file() -> impl Strategy<Value = FileShare> {
        (0u32..8, 0u64..1 << 32, 0u64..1 << 32).prop_map(|(range, size_bytes, entries)| FileShare {
            range,
            share: Share { size_bytes, entries, deletions: entries / 2 },
        })
    }

    proptest! {
        #[test]
        fn the_join_equals_plain_sums(
            observations in proptest::collection::vec(observation(), 0..40),
            files in proptest::collection::vec(file(), 0..40),
        ) {
            let mut expected: BTreeMap<u32, RangeRow> = BTreeMap::new();
            for share in &observations {
                let new = RangeRow { range: share.range, ..RangeRow::default() };
                let row = expected.entry(share.range).or_insert(new);
                row.operations += 1;
                row.tombstones += share.tombstones;
                row.memtable_tombstones += share.memtable_tombstones;
                row.unexplained_tombstones += share.unexplained_tombstones;
                row.estimated += share.estimated;
                row.block_reads += share.block_reads;
                row.block_cache_hits += share.block_cache_hits;
                row.lost_ns += share.lost_ns;
                row.relief_ns += share.relief_ns;
                row.unexplained_ns += share.unexplained_ns;
                row.block_read_ns += share.block_read_ns;
            }
            for part in &files {
                if let Some(row) = expected.get_mut(&part.range) {
                    row.share = row.share.plus(part.share);
                }
            }
            let rows = join(&observations, &files).unwrap();
            prop_assert_eq!(rows, expected.into_values().collect::<Vec<_>>());
        }
    }
}
