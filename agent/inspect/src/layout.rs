//! Which of the known layouts of `rocksdb::PerfContext` a target has, and whether a reading can be one.
//!
//! Reading them is the business of `probe`; what they mean that of `sexton-tuner`.

use super::facts::{PerfContextLayout, Version};
use sexton_rocksdb_layout::perf_context::{
    BLOCK_CACHE_HIT_COUNT, BLOCK_READ_BYTE, BLOCK_READ_COUNT, DELETES_BEHIND_KEYS, RUNS, Run,
    reseeks_behind_keys,
};
use sexton_tuner::evidence::Counters;

fn name(run: &Run) -> String {
    span(run, run)
}

/// The versions from one run to another.
fn span(oldest: &Run, newest: &Run) -> String {
    let ((a, b), (c, d)) = (oldest.first, newest.last);
    if oldest.first == newest.last { format!("{a}.{b}") } else { format!("{a}.{b}-{c}.{d}") }
}

fn layout(run: &Run, size_bytes: Option<u64>) -> PerfContextLayout {
    PerfContextLayout {
        versions: name(run),
        internal_range_del_reseek_count: reseek_offset(run),
        ..of_skip_offset(run.internal_key_skipped_count, size_bytes)
    }
}

/// The same in all versions of a run.
fn reseek_offset(run: &Run) -> Option<u32> {
    Some(run.internal_key_skipped_count + reseeks_behind_keys(run.first)?)
}

/// Why no layout could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    #[error("neither RocksDB's version nor the size of `perf_context` could be read")]
    NothingKnown,
    #[error("RocksDB {major}.{minor} ({source_of_version}) is not among the known versions {known}")]
    UnknownVersion { major: u32, minor: u32, source_of_version: String, known: String },
    #[error("`perf_context` has {size_bytes} bytes, which no released RocksDB from {known} has")]
    UnknownSize { size_bytes: u64, known: String },
    #[error(
        "the version is {major}.{minor} ({source_of_version}), but `perf_context` has {size_bytes} bytes as in \
         {versions_of_size}"
    )]
    Contradiction {
        major: u32,
        minor: u32,
        source_of_version: String,
        size_bytes: u64,
        versions_of_size: String,
    },
}

/// Chooses the layout. The version names a row and the struct's size has to agree with it; without a
/// version (or with one newer than the table) the size alone names the row, since no two share one.
/// Errors: a [`LayoutError`] whenever the two contradict or neither is known: a wrong offset would give
/// plausible nonsense.
pub fn choose(version: Option<&Version>, size_bytes: Option<u64>) -> Result<PerfContextLayout, LayoutError> {
    let by_version = version.and_then(|version| {
        let wanted = (version.major, version.minor);
        RUNS.iter().find(|row| row.first <= wanted && wanted <= row.last)
    });
    let by_size = size_bytes.and_then(|size| RUNS.iter().find(|row| row.sizes_bytes.contains(&size)));
    match (version, by_version, size_bytes, by_size) {
        (_, Some(row), None, _) => Ok(layout(row, None)),
        (Some(version), Some(row), Some(size), Some(other)) => {
            if row.internal_key_skipped_count == other.internal_key_skipped_count {
                return Ok(layout(other, size_bytes));
            }
            Err(LayoutError::Contradiction {
                major: version.major,
                minor: version.minor,
                source_of_version: version.source.clone(),
                size_bytes: size,
                versions_of_size: name(other),
            })
        }
        (Some(version), None, _, Some(row)) => {
            // An older version cannot have a newer one's size; a newer one may have kept it.
            if (version.major, version.minor) > row.last && is_newest(row) {
                return Ok(layout(row, size_bytes));
            }
            Err(unknown_version(version))
        }
        (None, _, Some(_), Some(row)) => Ok(layout(row, size_bytes)),
        (_, _, Some(size), None) => {
            Err(LayoutError::UnknownSize { size_bytes: size, known: known_versions() })
        }
        (Some(version), None, None, _) => Err(unknown_version(version)),
        (None, _, _, _) => Err(LayoutError::NothingKnown),
    }
}

fn is_newest(row: &Run) -> bool {
    RUNS.last().is_some_and(|newest| newest.last == row.last)
}

fn unknown_version(version: &Version) -> LayoutError {
    LayoutError::UnknownVersion {
        major: version.major,
        minor: version.minor,
        source_of_version: version.source.clone(),
        known: known_versions(),
    }
}

fn known_versions() -> String {
    match (RUNS.first(), RUNS.last()) {
        (Some(oldest), Some(newest)) => {
            format!("{}.{}-{}.{}", oldest.first.0, oldest.first.1, newest.last.0, newest.last.1)
        }
        _ => String::new(),
    }
}

/// The offsets that `internal_key_skipped_count` has had.
pub fn known_skip_offsets() -> Vec<u32> {
    let mut offsets: Vec<u32> = RUNS.iter().map(|row| row.internal_key_skipped_count).collect();
    offsets.dedup();
    offsets
}

/// Chooses the layout by the offset of `internal_key_skipped_count`, which was read in the code, or told by
/// the library itself.
pub fn of_skip_offset(internal_key_skipped_count: u32, size_bytes: Option<u64>) -> PerfContextLayout {
    let mut rows = RUNS.iter().filter(|row| row.internal_key_skipped_count == internal_key_skipped_count);
    let versions = match (rows.next(), rows.next_back()) {
        (Some(first), last) => span(first, last.unwrap_or(first)),
        (None, _) => "no released version".to_owned(),
    };
    PerfContextLayout {
        block_cache_hit_count: BLOCK_CACHE_HIT_COUNT,
        block_read_count: BLOCK_READ_COUNT,
        block_read_byte: BLOCK_READ_BYTE,
        internal_key_skipped_count,
        internal_delete_skipped_count: internal_key_skipped_count + DELETES_BEHIND_KEYS,
        internal_range_del_reseek_count: reseek_offset_of(internal_key_skipped_count),
        size_bytes,
        versions,
    }
}

/// Where the runs with this offset of `internal_key_skipped_count` have the count of reseeks; `None`
/// where they have none, or differ.
fn reseek_offset_of(internal_key_skipped_count: u32) -> Option<u32> {
    let runs = RUNS.iter().filter(|run| run.internal_key_skipped_count == internal_key_skipped_count);
    let mut offsets: Vec<Option<u32>> = runs.map(reseek_offset).collect();
    offsets.dedup();
    if let [offset] = offsets.as_slice() { *offset } else { None }
}

/// The lowest version a row stands for, for a target of which only the struct's size is known.
pub fn oldest_version_of(layout: &PerfContextLayout) -> Option<(u32, u32)> {
    let offset = layout.internal_key_skipped_count;
    let row = RUNS.iter().find(|row| name(row) == layout.versions);
    row.or_else(|| RUNS.iter().find(|row| row.internal_key_skipped_count == offset)).map(|row| row.first)
}

/// Counts of one thread stay below this: a thread that does nothing but skip keys reaches 2^46 after
/// forty days, while every heap, stack and library pointer of a process lies above.
pub const COUNT_MAX: u64 = 1 << 46;

/// Bytes read by one thread stay below this: 281 TB.
pub const BYTES_MAX: u64 = 1 << 48;

/// Largest average block: RocksDB's blocks are kilobytes; monolithic index blocks reach some hundred MB.
pub const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// Checks readings of single threads (not sums, not differences) against what always holds. A wrong
/// layout or a wrong thread-local block shows here as pointers, times or bytes in the place of counts.
/// A reading taken while its thread runs `PerfContext::Reset` may fail once: read again before refusing.
/// Errors: says, in words, which relation does not hold.
pub fn check_invariants(threads: &[Counters]) -> Result<(), String> {
    threads.iter().try_for_each(check_thread)
}

fn check_thread(counters: &Counters) -> Result<(), String> {
    let counts = [
        ("internal_delete_skipped_count", counters.tombstones_skipped),
        ("internal_key_skipped_count", counters.keys_skipped),
        ("block_read_count", counters.block_reads),
        ("block_cache_hit_count", counters.block_cache_hits),
        ("internal_merge_count", counters.merge_operands),
        ("internal_range_del_reseek_count", counters.range_deletion_reseeks),
    ];
    for (name, value) in counts {
        if value >= COUNT_MAX {
            return Err(format!("{name} is {value}, which no thread can have counted (limit {COUNT_MAX})"));
        }
    }
    let (reads, bytes) = (counters.block_reads, counters.block_read_bytes);
    if bytes >= BYTES_MAX {
        return Err(format!("block_read_byte is {bytes}, which no thread can have read (limit {BYTES_MAX})"));
    }
    // RocksDB counts the read first and its bytes after it, so a reading in between has bytes missing,
    // never bytes without a read.
    if bytes > 0 && reads == 0 {
        return Err(format!("block_read_byte is {bytes} although block_read_count is 0"));
    }
    if bytes > reads.saturating_mul(BLOCK_BYTES_MAX) {
        return Err(format!(
            "block_read_byte is {bytes} for {reads} reads: over {BLOCK_BYTES_MAX} bytes a block"
        ));
    }
    // Every block has a trailer of 5 bytes, and at most one read is counted without its bytes yet.
    if bytes > 0 && bytes < reads {
        return Err(format!("block_read_byte is {bytes} for {reads} reads: under one byte a block"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn version(major: u32, minor: u32) -> Version {
        Version { major, minor, patch: None, source: "a test".into() }
    }

    fn delete_offset(major: u32, minor: u32) -> u32 {
        choose(Some(&version(major, minor)), None).unwrap().internal_delete_skipped_count
    }

    #[test]
    fn the_offsets_of_every_run_of_versions() {
        let expected = [
            ((5, 8), 88),
            ((5, 18), 88),
            ((6, 0), 128),
            ((6, 23), 128),
            ((6, 24), 136),
            ((7, 4), 136),
            ((7, 5), 184),
            ((7, 6), 184),
            ((7, 7), 232),
            ((8, 0), 232),
            ((8, 1), 232),
            ((8, 2), 240),
            ((9, 0), 240),
            ((9, 1), 272),
            ((10, 10), 272),
            ((11, 0), 272),
            ((11, 1), 280),
            ((11, 3), 280),
            ((11, 4), 288),
            ((11, 12), 288),
        ];
        for ((major, minor), offset) in expected {
            assert_eq!(delete_offset(major, minor), offset, "{major}.{minor}");
        }
    }

    /// As `offsetof` has it in the headers of these versions.
    #[test]
    fn the_offset_of_reseeks() {
        let offset = |major, minor| {
            choose(Some(&version(major, minor)), None).unwrap().internal_range_del_reseek_count
        };
        assert_eq!([offset(5, 8), offset(7, 6)], [None, None]);
        assert_eq!(
            [offset(7, 7), offset(8, 0), offset(8, 1), offset(8, 2)].map(Option::unwrap),
            [256, 256, 264, 272]
        );
        assert_eq!([offset(10, 10), offset(11, 12)], [Some(304), Some(320)]);
        // 7.7 and 8.1 share the offset of the keys, and not this one.
        assert_eq!(of_skip_offset(224, None).internal_range_del_reseek_count, None);
        assert_eq!(of_skip_offset(280, None).internal_range_del_reseek_count, Some(320));
    }

    #[test]
    fn rows_are_in_order_and_share_no_size() {
        let sizes: Vec<u64> = RUNS.iter().flat_map(|row| row.sizes_bytes).copied().collect();
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(RUNS.windows(2).all(|pair| pair[0].last < pair[1].first));
        assert!(RUNS.windows(2).all(|p| p[0].internal_key_skipped_count <= p[1].internal_key_skipped_count));
    }

    #[test]
    fn version_and_size_agree() {
        let layout = choose(Some(&version(7, 7)), Some(784)).unwrap();
        assert_eq!(layout.versions, "7.7-8.0");
        assert_eq!(layout.size_bytes, Some(784));
        assert_eq!(layout.internal_key_skipped_count, 224);
    }

    #[test]
    fn a_size_alone_names_the_row() {
        let layout = choose(None, Some(976)).unwrap();
        assert_eq!(layout.versions, "11.4-11.12");
        assert_eq!(oldest_version_of(&layout), Some((11, 4)));
    }

    #[test]
    fn a_contradiction_is_refused() {
        let error = choose(Some(&version(7, 7)), Some(976)).unwrap_err();
        assert!(matches!(error, LayoutError::Contradiction { size_bytes: 976, .. }));
        let text = error.to_string();
        assert!(text.contains("7.7") && text.contains("a test") && text.contains("11.4-11.12"), "{text}");
    }

    #[test]
    fn different_rows_with_the_same_offsets_do_no_harm() {
        let layout = choose(Some(&version(8, 1)), Some(784)).unwrap();
        assert_eq!(layout.versions, "7.7-8.0");
    }

    #[test]
    fn an_unknown_size_is_refused_even_with_a_version() {
        let error = choose(Some(&version(7, 7)), Some(800)).unwrap_err();
        assert!(matches!(error, LayoutError::UnknownSize { size_bytes: 800, .. }));
        assert!(matches!(choose(None, Some(800)), Err(LayoutError::UnknownSize { .. })));
    }

    #[test]
    fn a_newer_version_is_taken_only_with_a_known_size() {
        assert!(matches!(choose(Some(&version(12, 0)), None), Err(LayoutError::UnknownVersion { .. })));
        assert_eq!(choose(Some(&version(12, 0)), Some(976)).unwrap().versions, "11.4-11.12");
        assert!(choose(Some(&version(12, 0)), Some(784)).is_err());
        assert!(choose(Some(&version(4, 0)), Some(784)).is_err());
    }

    #[test]
    fn nothing_known_is_refused() {
        assert_eq!(choose(None, None), Err(LayoutError::NothingKnown));
    }

    fn counters(reads: u64, bytes: u64) -> Counters {
        Counters { block_reads: reads, block_read_bytes: bytes, ..Counters::default() }
    }

    #[test]
    fn real_readings_hold() {
        let busy = Counters {
            tombstones_skipped: 564_696,
            keys_skipped: 1_200_000,
            block_reads: 7_405,
            block_read_bytes: 30_330_880,
            block_cache_hits: 99,
            ..Counters::default()
        };
        check_invariants(&[Counters::default(), busy, counters(1, 0)]).unwrap();
    }

    #[test]
    fn nonsense_does_not_hold() {
        assert!(check_invariants(&[counters(0, 4096)]).is_err());
        assert!(check_invariants(&[counters(1, BLOCK_BYTES_MAX + 1)]).is_err());
        assert!(check_invariants(&[counters(1_000_000, 12)]).is_err());
        assert!(check_invariants(&[counters(1 << 45, BYTES_MAX)]).is_err());
        let pointer = Counters { tombstones_skipped: 0x5555_5555_6000, ..Counters::default() };
        let error = check_invariants(&[Counters::default(), pointer]).unwrap_err();
        assert!(error.contains("internal_delete_skipped_count"), "{error}");
    }

    proptest! {
        #[test]
        fn a_choice_never_panics_and_its_offsets_are_inside(
            known in any::<bool>(), major in 0u32..20, minor in 0u32..30, size in proptest::option::of(0u64..1100),
        ) {
            let version = version(major, minor);
            if let Ok(layout) = choose(known.then_some(&version), size) {
                let end = u64::from(layout.internal_delete_skipped_count) + 8;
                prop_assert!(end <= layout.size_bytes.unwrap_or(u64::MAX));
            }
        }

        #[test]
        fn counting_on_keeps_the_invariants(reads in 0u64..1 << 24, block in 1u64..1 << 20) {
            prop_assert!(check_invariants(&[counters(reads, reads * block)]).is_ok());
        }
    }
}
