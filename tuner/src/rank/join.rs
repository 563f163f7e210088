//! The join: what operations lost and what SST files hold, as Polars frames, one row per range.

use crate::lsm::share::Share;
use polars::prelude::*;

/// What fell into one range: of one operation, of one file, or of all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeRow {
    /// Number of the range.
    pub range: u32,
    /// Operations that lost time there.
    pub operations: u64,
    /// Tombstones skipped there.
    pub tombstones: u64,
    /// Those of them that are in no SST file: in a memtable.
    pub memtable_tombstones: u64,
    /// Those of them that are neither in an SST file nor, as far as is known, in a memtable.
    pub unexplained_tombstones: u64,
    /// Older versions of keys stepped over there.
    pub old_versions: u64,
    /// Merge operands.
    pub merge_operands: u64,
    /// Seeks behind range tombstones.
    pub reseeks: u64,
    /// Calls of `Next` and `Prev` there.
    pub steps: u64,
    /// Operations whose tombstones are an estimate.
    pub estimated: u64,
    /// Block-cache misses there.
    pub block_reads: u64,
    /// Blocks found in the cache there.
    pub block_cache_hits: u64,
    /// Time lost there.
    pub lost_ns: u64,
    /// The part of it that goes with what is dead and in a place that is known: what compaction would
    /// relieve.
    pub relief_ns: u64,
    /// The part that goes with what is unexplained.
    pub unexplained_ns: u64,
    /// The block misses' part of it.
    pub block_read_ns: u64,
    /// What the files have there.
    pub share: Share,
}

impl RangeRow {
    /// What so many operations come to that are all like this one; files are the same ones.
    pub fn times(mut self, weight: u64) -> RangeRow {
        for (_, field) in OPERATION_FIELDS {
            let value = field(&mut self);
            *value = value.saturating_mul(weight);
        }
        self
    }
}

/// Most of one value that is believed: larger than any SST file and than anything of one operation, and sums
/// over a million of them stay within 64 bits.
const VALUE_MAX: u64 = 1 << 44;

const RANGE: &str = "range";

/// A column of `UInt64`, and its place in a row.
type Field = (&'static str, fn(&mut RangeRow) -> &mut u64);

const OPERATION_FIELDS: [Field; 15] = [
    ("operations", |row| &mut row.operations),
    ("tombstones", |row| &mut row.tombstones),
    ("memtable_tombstones", |row| &mut row.memtable_tombstones),
    ("unexplained_tombstones", |row| &mut row.unexplained_tombstones),
    ("old_versions", |row| &mut row.old_versions),
    ("merge_operands", |row| &mut row.merge_operands),
    ("reseeks", |row| &mut row.reseeks),
    ("steps", |row| &mut row.steps),
    ("estimated", |row| &mut row.estimated),
    ("block_reads", |row| &mut row.block_reads),
    ("block_cache_hits", |row| &mut row.block_cache_hits),
    ("lost_ns", |row| &mut row.lost_ns),
    ("relief_ns", |row| &mut row.relief_ns),
    ("unexplained_ns", |row| &mut row.unexplained_ns),
    ("block_read_ns", |row| &mut row.block_read_ns),
];
const FILE_FIELDS: [Field; 3] = [
    ("size_bytes", |row| &mut row.share.size_bytes),
    ("entries", |row| &mut row.share.entries),
    ("deletions", |row| &mut row.share.deletions),
];

/// Joins operations and files into one row per range that an operation lost time in, in the order of the
/// ranges' numbers.
pub fn join(operations: &[RangeRow], files: &[RangeRow]) -> PolarsResult<Vec<RangeRow>> {
    if operations.is_empty() {
        return Ok(Vec::new());
    }
    let operations = summed(operations, &OPERATION_FIELDS)?;
    let files = summed(files, &FILE_FIELDS)?;
    let joined =
        operations.left_join(&files, [RANGE], [RANGE])?.sort([RANGE], SortMultipleOptions::default())?;
    let ranges = joined.column(RANGE)?.u32()?;
    let row = |range: Option<u32>| RangeRow { range: range.unwrap_or(0), ..RangeRow::default() };
    let mut rows: Vec<RangeRow> = ranges.iter().map(row).collect();
    for (name, field) in OPERATION_FIELDS.iter().chain(&FILE_FIELDS) {
        // A range without files has no row on the right side of the join: its columns are null.
        for (row, sum) in rows.iter_mut().zip(joined.column(name)?.u64()?.iter()) {
            *field(row) = sum.unwrap_or(0);
        }
    }
    Ok(rows)
}

/// Sums of the fields by range, under the fields' names.
fn summed(rows: &[RangeRow], fields: &[Field]) -> PolarsResult<DataFrame> {
    let ranges = Column::new(RANGE.into(), rows.iter().map(|row| row.range).collect::<Vec<u32>>());
    let column = |(name, field): &Field| {
        let values = rows.iter().map(|row| (*field(&mut row.clone())).min(VALUE_MAX));
        Column::new((*name).into(), values.collect::<Vec<u64>>())
    };
    let columns = std::iter::once(ranges).chain(fields.iter().map(column)).collect();
    #[allow(
        deprecated,
        reason = "the replacement, lazy frames, would build the whole query engine for one sum"
    )]
    let mut sums = DataFrame::new(rows.len(), columns)?
        .group_by_stable([RANGE])?
        .select(fields.iter().map(|(name, _)| *name))
        .sum()?;
    for (name, _) in fields {
        sums.rename(&format!("{name}_sum"), (*name).into())?;
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn operation() -> impl Strategy<Value = RangeRow> {
        (0u32..8, 0u64..1 << 32, 0u64..1 << 32, 0u64..1 << 32).prop_map(
            |(range, tombstones, block_reads, lost_ns)| RangeRow {
                range,
                operations: 1,
                tombstones,
                memtable_tombstones: tombstones / 2,
                unexplained_tombstones: tombstones / 3,
                old_versions: tombstones * 3,
                merge_operands: tombstones / 5,
                reseeks: tombstones / 7,
                steps: tombstones / 11,
                estimated: tombstones % 2,
                block_reads,
                block_cache_hits: block_reads * 9,
                lost_ns,
                relief_ns: lost_ns / 3,
                unexplained_ns: lost_ns / 5,
                block_read_ns: lost_ns / 2,
                share: Share::default(),
            },
        )
    }

    fn file() -> impl Strategy<Value = RangeRow> {
        (0u32..8, 0u64..1 << 32, 0u64..1 << 32).prop_map(|(range, size_bytes, entries)| RangeRow {
            range,
            share: Share { size_bytes, entries, deletions: entries / 2 },
            ..RangeRow::default()
        })
    }

    proptest! {
        #[test]
        fn the_join_equals_plain_sums(
            observations in proptest::collection::vec(operation(), 0..40),
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
                row.old_versions += share.old_versions;
                row.merge_operands += share.merge_operands;
                row.reseeks += share.reseeks;
                row.steps += share.steps;
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
