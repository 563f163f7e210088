//! The heat of SST files: how much readers fetch from each, and how long they wait for it.

use crate::facts::evidence::{Evidence, FileReads, SstFile, Window};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Limit of the extrapolation from the block reads that were timed to all that were counted. Where less than
/// a hundredth was timed, the rest may have gone elsewhere.
const UNTIMED_SCALE_MAX: f64 = 100.0;

/// One SST file that readers fetched blocks from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileHeat {
    /// File number, as in `000123.sst`.
    pub number: u64,
    /// Column family; `None` where the file is not among the live ones any more.
    pub column_family: Option<String>,
    /// Level; `None` as above.
    pub level: Option<u32>,
    /// Size of the file; 0 as above.
    pub size_bytes: u64,
    /// Block-cache misses a second that were read from it.
    pub reads_per_second: f64,
    /// Bytes a second that were read from it.
    pub bytes_per_second: f64,
    /// Reader time a second that went into fetching from it.
    pub wait_seconds_per_second: f64,
    /// Half of the fetches took at most so long, in seconds, to the next power of two nanoseconds.
    pub latency_p50_seconds: f64,
    /// Of a hundred fetches one took longer.
    pub latency_p99_seconds: f64,
}

/// The heat of a database's files in the window that saw their reads, those that readers wait for longest
/// first.
///
/// The probes may time a part of the reads only; the sentinel counted all of the target's, so that the
/// rates are scaled by what is missing. The latencies are as they were timed.
pub fn file_heat(evidence: &Evidence, window: &Window) -> Vec<FileHeat> {
    let seconds = window.duration_ns as f64 / 1e9;
    if seconds <= 0.0 {
        return Vec::new();
    }
    let live: HashMap<u64, &SstFile> = evidence.files.iter().map(|file| (file.number, file)).collect();
    let scale = untimed_scale(window);
    let per_second = |count: u64| count as f64 * scale / seconds;
    let mut heat: Vec<FileHeat> = evidence
        .file_reads
        .iter()
        .map(|reads| {
            let file = live.get(&reads.number);
            FileHeat {
                number: reads.number,
                column_family: file.map(|file| file.column_family.clone()),
                level: file.map(|file| file.level),
                size_bytes: file.map_or(0, |file| file.size_bytes),
                reads_per_second: per_second(reads.fetches.count),
                bytes_per_second: per_second(reads.fetches.bytes),
                wait_seconds_per_second: per_second(reads.fetches.latency_ns) / 1e9,
                latency_p50_seconds: latency_seconds(reads, 0.5),
                latency_p99_seconds: latency_seconds(reads, 0.99),
            }
        })
        .collect();
    let by_wait = |one: &FileHeat, two: &FileHeat| {
        (two.wait_seconds_per_second.total_cmp(&one.wait_seconds_per_second))
            .then_with(|| one.number.cmp(&two.number))
    };
    heat.sort_by(by_wait);
    heat
}

/// Block reads that were counted per one that was timed, at least 1.
fn untimed_scale(window: &Window) -> f64 {
    match window.block_reads_timed {
        0 => 1.0,
        timed => (window.total.block_reads as f64 / timed as f64).clamp(1.0, UNTIMED_SCALE_MAX),
    }
}

/// The upper end of the bucket that holds this quantile of the fetches, in seconds; 0 without fetches.
fn latency_seconds(reads: &FileReads, quantile: f64) -> f64 {
    let sum = reads.latency_histogram.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let wanted = sum as f64 * quantile;
    let mut below: u64 = 0;
    for (bucket, count) in (1_i32..).zip(&reads.latency_histogram) {
        below = below.saturating_add(*count);
        if below as f64 >= wanted && below > 0 {
            return 2_f64.powi(bucket) / 1e9;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::{BlockFetches, Counters};
    use crate::facts::key::Key;
    use proptest::prelude::*;

    fn reads(number: u64, count: u64, latency_ns: u64) -> FileReads {
        let fetches = BlockFetches { count, bytes: count * 4096, latency_ns };
        FileReads { number, fetches, latency_histogram: Vec::new() }
    }

    fn evidence(file_reads: Vec<FileReads>, counted: u64, timed: u64) -> Evidence {
        let file = SstFile {
            number: 7,
            column_family: "keyTable".to_owned(),
            level: 6,
            size_bytes: 1 << 20,
            entries: 10,
            deletions: 0,
            smallest: Key::new("a"),
            largest: Key::new("b"),
        };
        let total = Counters { block_reads: counted, ..Counters::default() };
        let window =
            Window { duration_ns: 2_000_000_000, total, block_reads_timed: timed, ..Window::default() };
        Evidence { window, files: vec![file], file_reads, ..Evidence::default() }
    }

    fn heat_of(evidence: &Evidence) -> Vec<FileHeat> {
        file_heat(evidence, &evidence.window)
    }

    #[test]
    fn the_file_that_readers_wait_for_longest_comes_first() {
        let heat = heat_of(&evidence(vec![reads(7, 100, 1_000_000), reads(9, 1, 5_000_000)], 101, 101));
        assert_eq!(heat.iter().map(|file| file.number).collect::<Vec<_>>(), [9, 7]);
        // File 9 has been compacted away since.
        assert_eq!((heat[0].column_family.as_deref(), heat[0].level), (None, None));
        assert_eq!((heat[1].column_family.as_deref(), heat[1].level), (Some("keyTable"), Some(6)));
        assert_eq!((heat[1].reads_per_second, heat[1].bytes_per_second), (50.0, 204_800.0));
        assert_eq!(heat[1].wait_seconds_per_second, 0.0005);
    }

    #[test]
    fn reads_that_were_not_timed_are_shared_out() {
        let heat = heat_of(&evidence(vec![reads(7, 100, 1_000_000)], 400, 100));
        assert_eq!(heat[0].reads_per_second, 200.0);
        // More timed than counted: the sentinel read before the last of them.
        assert_eq!(heat_of(&evidence(vec![reads(7, 100, 0)], 90, 100))[0].reads_per_second, 50.0);
    }

    #[test]
    fn quantiles_are_the_upper_ends_of_buckets() {
        let mut file = reads(7, 0, 0);
        assert_eq!(latency_seconds(&file, 0.5), 0.0);
        // 98 fetches of 1 to 2 µs, two of 1 to 2 ms.
        file.latency_histogram = vec![0; 24];
        file.latency_histogram[10] = 98;
        file.latency_histogram[20] = 2;
        assert_eq!(latency_seconds(&file, 0.5), 2048.0 / 1e9);
        assert_eq!(latency_seconds(&file, 0.99), 2_097_152.0 / 1e9);
    }

    proptest! {
        #[test]
        fn any_counts_give_finite_heat(
            files in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..9),
            histogram in proptest::collection::vec(any::<u64>(), 0..64),
            counted: u64,
            timed: u64,
        ) {
            let file_reads: Vec<FileReads> = files
                .into_iter()
                .map(|(number, count, latency_ns)| FileReads {
                    number,
                    fetches: BlockFetches { count, bytes: count, latency_ns },
                    latency_histogram: histogram.clone(),
                })
                .collect();
            for file in heat_of(&evidence(file_reads, counted, timed)) {
                prop_assert!(file.reads_per_second.is_finite() && file.wait_seconds_per_second.is_finite());
                prop_assert!(file.latency_p50_seconds <= file.latency_p99_seconds);
            }
        }
    }
}
