//! `rocksdb::PerfContext`, by version.

/// `block_cache_hit_count`, `block_read_count` and `block_read_byte` have never moved, and are neighbours.
pub const BLOCK_CACHE_HIT_COUNT: u32 = 8;
/// See [`BLOCK_CACHE_HIT_COUNT`].
pub const BLOCK_READ_COUNT: u32 = 16;
/// See [`BLOCK_CACHE_HIT_COUNT`].
pub const BLOCK_READ_BYTE: u32 = 24;

/// From `internal_key_skipped_count` to `internal_delete_skipped_count`, its neighbour in all versions.
pub const DELETES_BEHIND_KEYS: u32 = 8;

/// From `internal_key_skipped_count` to `internal_merge_count`: `internal_delete_skipped_count` and
/// `internal_recent_skipped_count` stand between them in all versions.
pub const MERGES_BEHIND_KEYS: u32 = 24;

/// From `internal_key_skipped_count` to `internal_range_del_reseek_count`, which 7.7 put behind
/// `internal_merge_count`; 8.1 put `internal_merge_point_lookup_count` between the two. Before 7.7 there
/// is none.
pub fn reseeks_behind_keys(version: MajorMinor) -> Option<u32> {
    match version {
        older if older < (7, 7) => None,
        older if older < (8, 1) => Some(MERGES_BEHIND_KEYS + 8),
        _ => Some(MERGES_BEHIND_KEYS + 16),
    }
}

/// A version, major and minor.
pub type MajorMinor = (u32, u32);

/// One run of versions in which the members up to `internal_delete_skipped_count` did not move.
#[derive(Debug)]
pub struct Run {
    /// First version of the run.
    pub first: MajorMinor,
    /// Last version of the run.
    pub last: MajorMinor,
    /// Offset of `internal_key_skipped_count`.
    pub internal_key_skipped_count: u32,
    /// `sizeof(PerfContext)` in these versions: members were also added behind. 8 bytes a counter, and since
    /// 5.18 a pointer and a `bool` behind them (16 bytes).
    pub sizes_bytes: &'static [u64],
}

/// Counted in `include/rocksdb/perf_context.h` of every release. 11.12 is what crate `rust-librocksdb-sys`
/// 0.49 bundles: 120 members, of which `internal_key_skipped_count` is the 36th. Members were only ever
/// inserted, so that no two runs share a size.
pub const RUNS: &[Run] = &[
    run((5, 8), (5, 18), 80, &[528, 544, 560, 576]),
    run((6, 0), (6, 23), 120, &[624, 648, 664]),
    run((6, 24), (7, 4), 128, &[672, 680]),
    run((7, 5), (7, 6), 176, &[728]),
    run((7, 7), (8, 0), 224, &[784]),
    run((8, 1), (8, 1), 224, &[792]),
    run((8, 2), (9, 0), 232, &[824]),
    run((9, 1), (11, 0), 264, &[856, 872]),
    run((11, 1), (11, 3), 272, &[920]),
    run((11, 4), (11, 12), 280, &[928, 976]),
];

const fn run(first: MajorMinor, last: MajorMinor, offset: u32, sizes_bytes: &'static [u64]) -> Run {
    Run { first, last, internal_key_skipped_count: offset, sizes_bytes }
}
