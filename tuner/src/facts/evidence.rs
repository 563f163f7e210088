//! What was observed of one database: the tuner's only view of the world.
//!
//! The agent fills these from the probes (observations, window), the sentinel (exact totals) and the
//! SST files' statistics. Nothing here decides anything.

use crate::facts::index_marks::IndexMarks;
use crate::facts::lineage::Lineage;
use crate::facts::oldest_snapshot::OldestSnapshot;
use crate::facts::options::ColumnFamilyOptions;
use crate::facts::primitives::Primitives;
use crate::facts::{key::Key, range::KeyRange};
use crate::policy::RemedyKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Which positioning call opened an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
pub enum SeekKind {
    /// `Iterator::Seek`.
    Seek,
    /// `Iterator::SeekForPrev`.
    SeekForPrev,
    /// `Iterator::SeekToFirst`.
    SeekToFirst,
    /// `Iterator::SeekToLast`.
    SeekToLast,
}

impl SeekKind {
    /// Whether the scan after it is expected to run towards greater keys.
    pub fn is_forward(self) -> bool {
        matches!(self, SeekKind::Seek | SeekKind::SeekToFirst)
    }

    /// RocksDB's name of the call.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// `rocksdb::PerfContext` counters, as a difference between two readings or as a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// `internal_delete_skipped_count`: tombstones stepped over.
    pub tombstones_skipped: u64,
    /// `internal_key_skipped_count`: internal keys stepped over.
    pub keys_skipped: u64,
    /// `block_read_count`: block-cache misses that went to the file.
    pub block_reads: u64,
    /// `block_read_byte`.
    pub block_read_bytes: u64,
    /// `block_cache_hit_count`.
    pub block_cache_hits: u64,
    /// `internal_merge_count`: merge operands that iterators have merged.
    #[serde(default)]
    pub merge_operands: u64,
    /// `internal_range_del_reseek_count`: times an iterator had to seek behind a range tombstone. RocksDB has
    /// it from 7.7 on.
    #[serde(default)]
    pub range_deletion_reseeks: u64,
}

/// How many counters there are.
pub const COUNTERS: usize = 7;

impl Counters {
    /// Sum, saturating.
    pub fn plus(self, other: Counters) -> Counters {
        self.combine(other, u64::saturating_add)
    }

    /// Difference, never below zero.
    pub fn minus(self, other: Counters) -> Counters {
        self.combine(other, u64::saturating_sub)
    }

    /// Whether a counter is smaller than it was. RocksDB only counts upwards, so a program in which that
    /// happens has set its counters to zero (`PerfContext::Reset`).
    pub fn fell_below(self, before: Counters) -> bool {
        self.at_least(before) != self
    }

    /// So many times as much, saturating.
    pub fn times(self, factor: u64) -> Counters {
        self.each(|count| count.saturating_mul(factor))
    }

    /// The share `part` of `whole`, rounded down, at most all of it; all of it where there is no whole.
    pub fn share(self, part: u128, whole: u128) -> Counters {
        let share = |count: u64| (u128::from(count) * part.min(whole)).checked_div(whole);
        self.each(|count| share(count).and_then(|share| u64::try_from(share).ok()).unwrap_or(count))
    }

    /// The greater of each pair.
    pub fn at_least(self, other: Counters) -> Counters {
        self.combine(other, u64::max)
    }

    /// The counters in the order of their fields.
    pub fn to_array(self) -> [u64; COUNTERS] {
        [
            self.tombstones_skipped,
            self.keys_skipped,
            self.block_reads,
            self.block_read_bytes,
            self.block_cache_hits,
            self.merge_operands,
            self.range_deletion_reseeks,
        ]
    }

    /// From the order of their fields.
    pub fn from_array(counts: [u64; COUNTERS]) -> Counters {
        let [
            tombstones_skipped,
            keys_skipped,
            block_reads,
            block_read_bytes,
            block_cache_hits,
            merge_operands,
            range_deletion_reseeks,
        ] = counts;
        Counters {
            tombstones_skipped,
            keys_skipped,
            block_reads,
            block_read_bytes,
            block_cache_hits,
            merge_operands,
            range_deletion_reseeks,
        }
    }

    fn each(self, of: impl Fn(u64) -> u64) -> Counters {
        Counters::from_array(self.to_array().map(of))
    }

    fn combine(self, other: Counters, with: fn(u64, u64) -> u64) -> Counters {
        let mut counts = self.to_array();
        counts.iter_mut().zip(other.to_array()).for_each(|(count, other)| *count = with(*count, other));
        Counters::from_array(counts)
    }
}

/// Blocks fetched from SST files (`BlockFetcher::ReadBlockContents`), timed by the probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockFetches {
    /// Block reads that were timed: `block_read_count`. What came out of RocksDB's readahead buffer is
    /// not among them, though its time is in `latency_ns`.
    pub count: u64,
    /// `block_read_byte` of these.
    pub bytes: u64,
    /// From entry to return, summed: reading, verifying and uncompressing.
    pub latency_ns: u64,
}

impl BlockFetches {
    /// Sum, saturating.
    pub fn plus(self, other: BlockFetches) -> BlockFetches {
        BlockFetches {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
            latency_ns: self.latency_ns.saturating_add(other.latency_ns),
        }
    }
}

/// Blocks that one SST file was asked for in a window, by whatever operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReads {
    /// File number, as in `000123.sst`.
    pub number: u64,
    pub fetches: BlockFetches,
    /// Fetches by latency: the bucket at index n counts those that took from 2^n to 2^(n+1) ns.
    pub latency_histogram: Vec<u64>,
}

/// Keys that go with a tombstone: itself and the version that it hides.
pub const KEYS_PER_TOMBSTONE: u64 = 2;

/// Time to step over one tombstone where it cannot be learnt: measured 200 ns in a warm cache.
pub const NS_PER_TOMBSTONE_DEFAULT: f64 = 200.0;
/// Time of one block-cache miss where it was not timed and cannot be learnt: a read from a fast disk.
pub const NS_PER_BLOCK_READ_DEFAULT: f64 = 100_000.0;
/// Time of one seek behind a range tombstone, in the tombstones that take as long: an iterator below it
/// looks into an index and a data block anew. Measured 2.4 us in a warm cache, where a tombstone took 90
/// ns, an older version 75 and a merge operand 100.
pub const TOMBSTONES_PER_RESEEK: u64 = 10;

/// Time that one event takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventCosts {
    /// Time per tombstone skipped.
    pub ns_per_tombstone: f64,
    /// Whether it was learnt, or is the default.
    pub tombstone_learnt: bool,
    /// Time per block-cache miss that was not timed itself.
    pub ns_per_block_read: f64,
    pub block_read_source: BlockReadSource,
}

/// Where the time per block-cache miss is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BlockReadSource {
    /// The default.
    Assumed,
    /// From the latency of seeks that read many blocks.
    #[strum(serialize = "measured")]
    Learnt,
    /// The block reads themselves were timed.
    Timed,
}

impl BlockReadSource {
    /// For a plan's reasons.
    pub fn in_words(self) -> &'static str {
        self.into()
    }
}

impl Default for EventCosts {
    fn default() -> EventCosts {
        EventCosts {
            ns_per_tombstone: NS_PER_TOMBSTONE_DEFAULT,
            tombstone_learnt: false,
            ns_per_block_read: NS_PER_BLOCK_READ_DEFAULT,
            block_read_source: BlockReadSource::Assumed,
        }
    }
}

/// One recorded iterator operation: a seek and the scan (`Next`, `Prev`) that followed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Column family; `None` where the probes could not tell.
    pub column_family: Option<String>,
    /// How the iterator was positioned.
    pub kind: SeekKind,
    /// Seek target, possibly only its first bytes; empty for `SeekToFirst` and `SeekToLast`.
    pub key: Key,
    /// Where the iterator stood at the end of the operation, possibly only the first bytes: what was
    /// skipped lies between the two keys. `None` where the probes could not tell.
    #[serde(default)]
    pub end_key: Option<Key>,
    /// Counted between the entry of the seek and its return.
    pub seek: Counters,
    /// Counted from the return of the seek to the iterator's end or its next seek.
    pub scan: Counters,
    /// From the entry of the seek to its return.
    pub seek_latency_ns: u64,
    /// From the return of the seek to the end of the scan: the caller's own time is in it, so it is
    /// only an upper bound of what RocksDB took.
    pub scan_elapsed_ns: u64,
    /// Block reads of both that were timed; fewer than were counted where the probes saw not all.
    #[serde(default)]
    pub block_fetches: BlockFetches,
    /// Calls of `Next` and `Prev` in the scan; `None` where the probes could not tell.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Whether its tombstones are an estimate: the internal keys of all kinds that the calls which were seen
    /// stepped over, by the iterator's own count. RocksDB's counters stood still.
    #[serde(default)]
    pub estimated: bool,
    /// Whether too many of its tombstones may be another iterator's to say where they lie: several iterators
    /// of the thread had moved.
    #[serde(default)]
    pub ambiguous: bool,
    /// Operations like it that it stands for, itself among them: of small ones only a sample is recorded.
    #[serde(default = "one")]
    pub weight: u64,
}

fn one() -> u64 {
    1
}

impl Observation {
    /// An operation that counted nothing, in a column family that is not known.
    pub fn at(kind: SeekKind, key: Key) -> Observation {
        Observation {
            column_family: None,
            kind,
            key,
            end_key: None,
            seek: Counters::default(),
            scan: Counters::default(),
            seek_latency_ns: 0,
            scan_elapsed_ns: 0,
            block_fetches: BlockFetches::default(),
            steps: None,
            estimated: false,
            ambiguous: false,
            weight: 1,
        }
    }

    /// Counters of the seek and of the scan together.
    pub fn total(&self) -> Counters {
        self.seek.plus(self.scan)
    }

    /// Older versions of keys that it has stepped over: at least so many. RocksDB counts in one number
    /// each live key that a step leaves, each older version, going backwards each entry, and what lies
    /// under a tombstone. Nothing is known without the number of steps.
    pub fn old_versions(&self) -> u64 {
        let Some(steps) = self.steps else { return 0 };
        let Counters { keys_skipped, tombstones_skipped, .. } = self.total();
        let of_tombstones = tombstones_skipped.saturating_mul(KEYS_PER_TOMBSTONE);
        keys_skipped.saturating_sub(steps).saturating_sub(of_tombstones)
    }

    /// Those of them that its positioning call stepped over, and those of its scan.
    pub fn old_versions_by_part(&self) -> [u64; 2] {
        let all = self.old_versions();
        let Counters { keys_skipped, tombstones_skipped, .. } = self.seek;
        let of_tombstones = tombstones_skipped.saturating_mul(KEYS_PER_TOMBSTONE);
        // A call that looks backwards counts the entry that it finds.
        let in_seek = keys_skipped.saturating_sub(of_tombstones).saturating_sub(1).min(all);
        [in_seek, all - in_seek]
    }

    /// Counters of all the operations that it stands for.
    pub fn weighted(&self) -> Counters {
        self.total().times(self.weight)
    }
}

/// What one window saw of a target, all its databases together, beside its observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// How long the probes were armed.
    pub duration_ns: u64,
    /// Operations that ended in the window, painless ones included.
    pub operations: u64,
    /// Operations that were chosen for a record; each has an observation, or is among the lost ones.
    pub operations_recorded: u64,
    /// Those of them whose record did not fit into the ring buffer.
    pub records_lost: u64,
    /// Counted in operations, recorded or not.
    pub attributed: Counters,
    /// The part of it that the observations stand for, of all databases. It is an estimate: a little more or
    /// less by chance.
    #[serde(default)]
    pub recorded: Counters,
    /// Counted in the target's threads while the probes were followed, by operations and by whatever else.
    /// 0: as much as was attributed.
    #[serde(default)]
    pub followed: Counters,
    /// Counted in the target's threads during the window, by the sentinel's two readings.
    pub total: Counters,
    /// Block reads that the probes timed, of all databases; `total` has those that were counted.
    #[serde(default)]
    pub block_reads_timed: u64,
    /// Operations whose tombstones are an estimate; they are in `attributed` and in `total` as well.
    #[serde(default)]
    pub operations_estimated: u64,
}

impl Window {
    /// Whether RocksDB's counters have moved: those that are never estimated.
    pub fn has_counted(&self) -> bool {
        let Counters { keys_skipped, block_reads, block_cache_hits, .. } = self.total;
        keys_skipped > 0 || block_reads > 0 || block_cache_hits > 0
    }

    /// Counted while the probes were followed, at least what was attributed.
    pub fn followed(&self) -> Counters {
        self.followed.at_least(self.attributed)
    }
}

/// The sentinel's exact totals over an interval: no probe, all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentinelInterval {
    /// Length of the interval.
    pub duration_ns: u64,
    /// What all threads counted in it.
    pub counters: Counters,
}

/// One live SST file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SstFile {
    /// File number, as in `000123.sst`.
    pub number: u64,
    /// Column family the file belongs to.
    pub column_family: String,
    /// Level, 0 first.
    pub level: u32,
    pub size_bytes: u64,
    /// `num_entries`, deletions included.
    pub entries: u64,
    /// `num_deletions`: point tombstones.
    pub deletions: u64,
    /// Smallest user key.
    pub smallest: Key,
    /// Largest user key, inclusive.
    pub largest: Key,
}

/// Deletions in the memtables of a column family, by RocksDB's own count: what readers step over there is at
/// most this many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemtableDeletions {
    /// `rocksdb.num-deletes-active-mem-table`.
    pub active: u64,
    /// `rocksdb.num-deletes-imm-mem-tables`: of those that wait to be flushed.
    pub immutable: u64,
}

impl MemtableDeletions {
    /// In all memtables.
    pub fn total(self) -> u64 {
        self.active.saturating_add(self.immutable)
    }
}

/// What an earlier action has relieved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    /// Pain in its keys before it.
    pub pain_before_seconds_per_second: f64,
    /// By how much it fell, at the pace that readers had before.
    pub delivered_seconds_per_second: f64,
    /// That pace.
    pub operations_per_second: f64,
}

/// An earlier action on this database, for cooldowns and back-off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastAction {
    /// Column family acted on.
    pub column_family: String,
    /// Keys acted on.
    pub range: KeyRange,
    /// When it ended, in seconds since the Unix epoch.
    pub ended_unix_s: i64,
    /// Whether verification found the promised gain; `None` while not yet verified, and where nothing is
    /// verified: it was interrupted, or given up.
    pub helped: Option<bool>,
    /// Whether its measurement is still owed.
    #[serde(default)]
    pub awaits_verdict: bool,
    /// How many times in a row acting on this range has not helped.
    pub failures_in_a_row: u32,
    /// What was done. A flush and a compaction of the same keys do not wait for each other.
    #[serde(default)]
    pub remedy: RemedyKind,
    /// What it has relieved; `None` where that was not measured.
    #[serde(default)]
    pub delivered: Option<Delivered>,
}

/// Everything known of one database of one target at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Target the database belongs to, as shown by the API.
    pub target: String,
    /// Database directory, as the target names it.
    pub database: String,
    /// Whether the target has it open only for reading.
    #[serde(default)]
    pub is_read_only: bool,
    /// Whose its SST files are.
    #[serde(default)]
    pub lineage: Lineage,
    /// The last window, of the whole target: the same for each of its databases.
    pub window: Window,
    /// The sentinel's interval the window is extrapolated to, of the whole target.
    pub sentinel: SentinelInterval,
    /// The window's recorded operations in this database.
    pub observations: Vec<Observation>,
    /// Live SST files of all column families.
    pub files: Vec<SstFile>,
    /// Numbers of those that have a hard link elsewhere: to replace them frees nothing.
    #[serde(default)]
    pub linked_files: BTreeSet<u64>,
    /// What is known of the index blocks of some of them, by their numbers.
    #[serde(default)]
    pub index_marks: BTreeMap<u64, IndexMarks>,
    /// Why its SST files cannot be seen; `None` where they were read. Without them it is known what readers
    /// lose, and not what could be done about it nor at what cost.
    #[serde(default)]
    pub files_unseen: Option<String>,
    /// Deletions in memtables by column family, read when the window was over; those that RocksDB could not
    /// be asked of are missing.
    #[serde(default)]
    pub memtables: BTreeMap<String, MemtableDeletions>,
    /// The oldest RocksDB snapshot that its process holds of it; `None`: none, or RocksDB could not be asked.
    #[serde(default)]
    pub oldest_snapshot: Option<OldestSnapshot>,
    /// Options of its column families, by name. Those that are missing are taken to have RocksDB's defaults,
    /// but for the comparator: it is not known.
    #[serde(default)]
    pub column_families: BTreeMap<String, ColumnFamilyOptions>,
    /// What the window saw read from this database's SST files.
    #[serde(default)]
    pub file_reads: Vec<FileReads>,
    /// Earlier actions, newest last.
    pub past_actions: Vec<PastAction>,
    /// What tombstones and block reads cost this database's readers, as learnt over its windows; `None`: what
    /// this window tells alone.
    #[serde(default)]
    pub costs: Option<EventCosts>,
    /// Bytes a second that its block device reads or writes; `None` where that was not measured.
    #[serde(default)]
    pub device_bytes_per_second: Option<f64>,
    /// Keys by column family that a ranker that goes by files alone looks at now; `None`: all.
    #[serde(default)]
    pub surveyed: Option<BTreeMap<String, KeyRange>>,
    /// What its process can be asked to compact by, beside `CompactRange`.
    #[serde(default)]
    pub primitives: Primitives,
}

impl Evidence {
    /// The options of a column family, as far as they are known.
    pub fn options_of(&self, column_family: &str) -> ColumnFamilyOptions {
        self.column_families.get(column_family).cloned().unwrap_or_default()
    }

    /// What tombstones and block reads cost its readers, as well as it is known.
    pub fn event_costs(&self) -> EventCosts {
        self.costs.unwrap_or_else(|| EventCosts::learn(&self.observations))
    }

    /// The name of a column family's comparator, where it is known.
    pub fn comparator_of(&self, column_family: &str) -> Option<&str> {
        self.column_families.get(column_family).map(|options| options.comparator.as_str())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counters_never_wrap(one: u64, two: u64) {
            let counters = |count| {
                Counters { tombstones_skipped: count, block_reads: count, ..Counters::default() }
            };
            let sum = counters(one).plus(counters(two));
            prop_assert_eq!(sum.tombstones_skipped, one.saturating_add(two));
            prop_assert_eq!(counters(one).minus(counters(two)).block_reads, one.saturating_sub(two));
        }
    }

    #[test]
    fn evidence_reads_back_from_json() {
        let file = SstFile {
            number: 7,
            column_family: "keyTable".to_owned(),
            level: 6,
            size_bytes: 1,
            entries: 2,
            deletions: 1,
            smallest: Key::new([0, 255]),
            largest: Key::new([1]),
        };
        let evidence = Evidence { target: "om".to_owned(), files: vec![file], ..Evidence::default() };
        let text = serde_json::to_string(&evidence).unwrap();
        assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), evidence);
    }
}
