//! Options of a column family that decide what a compaction rewrites, under RocksDB's own names.
//!
//! They come from the text of the target's OPTIONS file. What it does not say has RocksDB's default.

use crate::facts::comparator::Order;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fewest levels: L0, and one to compact into.
const NUM_LEVELS_MIN: u32 = 2;

/// Most levels that a prediction walks down; RocksDB's default is 7, and no level style has dozens.
const NUM_LEVELS_MAX: u32 = 64;

/// `max_compaction_bytes` where it is 0 in the file: this many times `target_file_size_base`.
const MAX_COMPACTION_FILES: u64 = 25;

/// Smallest sizes of files and jobs that are believed: below it a prediction would be all steps.
const FILE_SIZE_MIN: u64 = 16 << 10;

/// `compression` of RocksDB builds that have it, by its name in an OPTIONS file.
const COMPRESSION_DEFAULT: &str = "kSnappyCompression";

/// `ttl` and `periodic_compaction_seconds` that leave the choice to RocksDB.
const SECONDS_BY_DEFAULT: u64 = u64::MAX - 1;

/// `bottommost_compression` that means "as the other levels".
const COMPRESSION_DISABLED: &str = "kDisableCompressionOption";

/// What an option of RocksDB helps against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Tombstones in memtables.
    MemtableTombstones,
    BlockReads,
}

/// An option of a column family that can be set while the database is open (`SetOptions`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunTimeOption {
    /// RocksDB's name for it.
    pub name: &'static str,
    /// The value that switches it on.
    pub value: &'static str,
    /// What it helps against.
    pub against: Against,
    /// Share of that pain that it is expected to relieve.
    pub relief_share: f64,
}

/// Options that help readers, and that are off (0) in RocksDB by default.
///
/// A target's RocksDB knows one if its OPTIONS file names it.
pub const RUN_TIME_OPTIONS: [RunTimeOption; 2] = [
    // 10.2 and later. A scan that skips so many entries of the memtable has it flushed. Lists of a queue fell
    // from 48.8 to 1.5 ms with a million keys, from 35.3 to 5.0 ms with ten.
    RunTimeOption {
        name: "memtable_op_scan_flush_trigger",
        value: "1000",
        against: Against::MemtableTombstones,
        relief_share: 0.86,
    },
    // 11.2 and later. Files that are read much are compacted: a third more random reads by RocksDB's own
    // measurement, a quarter less time; nothing for a queue's lists (49.0 ms).
    RunTimeOption {
        name: "read_triggered_compaction_threshold",
        value: "0.01",
        against: Against::BlockReads,
        relief_share: 0.25,
    },
];

/// An option that is set where another one is off, which it would spoil.
pub const SPOILT_BY: [(&str, &str); 1] =
    [("memtable_op_scan_flush_trigger", "min_tombstones_for_range_conversion")];

/// Names of the options whose value in force decides what is set.
pub fn run_time_option_names() -> impl Iterator<Item = &'static str> {
    let set = RUN_TIME_OPTIONS.iter().map(|option| option.name);
    set.chain(SPOILT_BY.iter().map(|(_, other)| *other))
}

/// How a column family is compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStyle {
    /// `kCompactionStyleLevel`, RocksDB's default.
    #[default]
    Level,
    /// `kCompactionStyleUniversal`: a manual compaction takes all files, whatever its range.
    Universal,
    /// `kCompactionStyleFIFO`: files are dropped whole when they are old; a manual compaction with a range
    /// rewrites nothing.
    Fifo,
}

/// What decides which files a compaction rewrites.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnFamilyOptions {
    /// Name of the `comparator`. Ranges are bytewise: in any other order their ends would be somewhere else.
    pub comparator: String,
    /// `compaction_style`.
    pub compaction_style: CompactionStyle,
    /// `num_levels`, from 2 to 64.
    pub num_levels: u32,
    /// `level_compaction_dynamic_level_bytes`: L0 is compacted into the first level that is in use.
    pub level_compaction_dynamic_level_bytes: bool,
    /// `target_file_size_base`, in bytes.
    pub target_file_size_base: u64,
    /// `target_file_size_multiplier`, from level to level.
    pub target_file_size_multiplier: u64,
    /// `max_bytes_for_level_base`.
    pub max_bytes_for_level_base: u64,
    /// `max_bytes_for_level_multiplier`, whole; at least 1.
    pub max_bytes_for_level_multiplier: u64,
    /// `max_compaction_bytes`: a larger manual compaction is run in several jobs.
    pub max_compaction_bytes: u64,
    /// `write_buffer_size`, in bytes: roughly the most that a flush writes.
    pub write_buffer_size: u64,
    /// `level0_file_num_compaction_trigger`: from so many files in L0 on RocksDB compacts them by itself.
    pub level0_file_num_compaction_trigger: u64,
    /// `level0_slowdown_writes_trigger`: from so many files in L0 on writes are delayed.
    pub level0_slowdown_writes_trigger: u64,
    /// `soft_pending_compaction_bytes_limit`: from so many bytes that wait for compaction on writes are
    /// delayed; 0 is never.
    pub soft_pending_compaction_bytes_limit: u64,
    /// `disable_auto_compactions`: then nothing but a manual compaction empties L0, and neither its files nor
    /// bytes that wait for compaction delay writes.
    pub disable_auto_compactions: bool,
    /// `compression`.
    pub compression: String,
    /// `bottommost_compression`; `None` where it is that of the other levels.
    pub bottommost_compression: Option<String>,
    /// `compression_per_level`; empty where all are alike.
    pub compression_per_level: Vec<String>,
    /// Whether there is a compaction filter: then a manual compaction moves no file without rewriting it.
    pub has_compaction_filter: bool,
    /// `ttl`, in seconds, 0 where it is off; `None` where RocksDB does not know it.
    pub ttl_seconds: Option<u64>,
    /// `periodic_compaction_seconds`, in the same way.
    pub periodic_compaction_seconds: Option<u64>,
    /// `level_compaction_dynamic_file_size`; `None` where RocksDB does not know it.
    pub level_compaction_dynamic_file_size: Option<bool>,
    /// Options that help readers past tombstones and can be set at run time, with the value in force. Only
    /// those that the target's RocksDB knows, see [`crate::plan::remedy`].
    pub run_time_options: BTreeMap<String, String>,
}

impl Default for ColumnFamilyOptions {
    fn default() -> ColumnFamilyOptions {
        ColumnFamilyOptions {
            comparator: Order::BYTEWISE_COMPARATOR.to_owned(),
            compaction_style: CompactionStyle::Level,
            num_levels: 7,
            level_compaction_dynamic_level_bytes: true,
            target_file_size_base: 64 << 20,
            target_file_size_multiplier: 1,
            max_bytes_for_level_base: 256 << 20,
            max_bytes_for_level_multiplier: 10,
            max_compaction_bytes: MAX_COMPACTION_FILES * (64 << 20),
            write_buffer_size: 64 << 20,
            level0_file_num_compaction_trigger: 4,
            level0_slowdown_writes_trigger: 20,
            soft_pending_compaction_bytes_limit: 64 << 30,
            disable_auto_compactions: false,
            compression: COMPRESSION_DEFAULT.to_owned(),
            bottommost_compression: None,
            compression_per_level: Vec::new(),
            has_compaction_filter: false,
            ttl_seconds: None,
            periodic_compaction_seconds: None,
            level_compaction_dynamic_file_size: None,
            run_time_options: BTreeMap::new(),
        }
    }
}

impl ColumnFamilyOptions {
    const NAMES: [&'static str; 21] = [
        "compaction_style",
        "num_levels",
        "level_compaction_dynamic_level_bytes",
        "target_file_size_base",
        "target_file_size_multiplier",
        "max_bytes_for_level_base",
        "max_bytes_for_level_multiplier",
        "max_compaction_bytes",
        "write_buffer_size",
        "level0_file_num_compaction_trigger",
        "level0_slowdown_writes_trigger",
        "soft_pending_compaction_bytes_limit",
        "disable_auto_compactions",
        "compression",
        "bottommost_compression",
        "compression_per_level",
        "compaction_filter",
        "compaction_filter_factory",
        "ttl",
        "periodic_compaction_seconds",
        "level_compaction_dynamic_file_size",
    ];

    /// Names of all that is read, those of the run-time options included.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ColumnFamilyOptions::NAMES.into_iter().chain(run_time_option_names())
    }

    /// From an OPTIONS file's names and values. What is missing or cannot be read has its default.
    pub fn of_text(stated: &BTreeMap<String, String>) -> ColumnFamilyOptions {
        let defaults = ColumnFamilyOptions::default();
        let text = |name: &str| stated.get(name).map(|value| value.trim());
        let number = |name: &str, default: u64| text(name).and_then(whole).unwrap_or(default);
        let named = |name: &str| text(name).filter(|value| !value.is_empty()).map(str::to_owned);
        let is_set = |name: &str| text(name).is_some_and(|value| !value.is_empty() && value != "nullptr");
        let target_file_size_base =
            number("target_file_size_base", defaults.target_file_size_base).max(FILE_SIZE_MIN);
        let largest_default = target_file_size_base.saturating_mul(MAX_COMPACTION_FILES);
        let levels = number("num_levels", u64::from(defaults.num_levels));
        let levels = u32::try_from(levels).unwrap_or(NUM_LEVELS_MAX);
        ColumnFamilyOptions {
            comparator: named("comparator").unwrap_or(defaults.comparator),
            compaction_style: match text("compaction_style") {
                Some("kCompactionStyleUniversal") => CompactionStyle::Universal,
                Some("kCompactionStyleFIFO") => CompactionStyle::Fifo,
                _ => CompactionStyle::Level,
            },
            num_levels: levels.clamp(NUM_LEVELS_MIN, NUM_LEVELS_MAX),
            level_compaction_dynamic_level_bytes: text("level_compaction_dynamic_level_bytes")
                .map_or(defaults.level_compaction_dynamic_level_bytes, |value| value == "true"),
            target_file_size_base,
            target_file_size_multiplier: number("target_file_size_multiplier", 1).max(1),
            max_bytes_for_level_base: number("max_bytes_for_level_base", defaults.max_bytes_for_level_base),
            max_bytes_for_level_multiplier: number("max_bytes_for_level_multiplier", 10).max(1),
            max_compaction_bytes: match number("max_compaction_bytes", 0) {
                0 => largest_default,
                bytes => bytes.max(FILE_SIZE_MIN),
            },
            write_buffer_size: number("write_buffer_size", defaults.write_buffer_size),
            level0_file_num_compaction_trigger: number(
                "level0_file_num_compaction_trigger",
                defaults.level0_file_num_compaction_trigger,
            ),
            level0_slowdown_writes_trigger: number(
                "level0_slowdown_writes_trigger",
                defaults.level0_slowdown_writes_trigger,
            ),
            soft_pending_compaction_bytes_limit: number(
                "soft_pending_compaction_bytes_limit",
                defaults.soft_pending_compaction_bytes_limit,
            ),
            disable_auto_compactions: text("disable_auto_compactions") == Some("true"),
            compression: named("compression").unwrap_or(defaults.compression),
            bottommost_compression: named("bottommost_compression")
                .filter(|value| value != COMPRESSION_DISABLED),
            compression_per_level: text("compression_per_level")
                .filter(|value| !value.is_empty())
                .map(|value| value.split(':').map(str::to_owned).collect())
                .unwrap_or_default(),
            has_compaction_filter: is_set("compaction_filter") || is_set("compaction_filter_factory"),
            ttl_seconds: text("ttl").and_then(whole).map(by_default),
            periodic_compaction_seconds: text("periodic_compaction_seconds").and_then(whole).map(by_default),
            level_compaction_dynamic_file_size: text("level_compaction_dynamic_file_size")
                .map(|value| value == "true"),
            run_time_options: run_time_option_names()
                .filter_map(|name| Some((name.to_owned(), text(name)?.to_owned())))
                .collect(),
        }
    }

    /// Size that RocksDB gives to the files that it writes into a level.
    pub(crate) fn target_file_size(&self, level: usize, base_level: usize) -> u64 {
        let place = if self.level_compaction_dynamic_level_bytes && level >= base_level {
            level - base_level
        } else {
            level
        };
        // The first two places have the same size.
        let steps = place.saturating_sub(1);
        let factor =
            self.target_file_size_multiplier.saturating_pow(u32::try_from(steps).unwrap_or(u32::MAX));
        self.target_file_size_base.saturating_mul(factor).max(1)
    }

    /// The compression of files in a level; `deepest` is the last level that holds any.
    pub(crate) fn compression_of(&self, level: usize, base_level: usize, deepest: usize) -> &str {
        if let Some(bottommost) = self.bottommost_compression.as_deref().filter(|_| level >= deepest) {
            return bottommost;
        }
        let place = if level == 0 { 0 } else { (level + 1).saturating_sub(base_level) };
        let last = self.compression_per_level.len().saturating_sub(1);
        self.compression_per_level.get(place.min(last)).unwrap_or(&self.compression)
    }
}

/// RocksDB's own choice where an option has the value that leaves it the choice: 30 days.
fn by_default(seconds: u64) -> u64 {
    if seconds == SECONDS_BY_DEFAULT { 30 * 24 * 3600 } else { seconds }
}

/// A whole number, also where the file has it with a fraction (`10.000000`).
fn whole(text: &str) -> Option<u64> {
    let digits = text.split('.').next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stated(pairs: &[(&str, &str)]) -> ColumnFamilyOptions {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ColumnFamilyOptions::of_text(&pairs.collect())
    }

    #[test]
    fn what_the_file_does_not_say_has_rocksdbs_default() {
        assert_eq!(stated(&[]), ColumnFamilyOptions::default());
        assert_eq!(stated(&[("num_levels", "many")]), ColumnFamilyOptions::default());
    }

    #[test]
    fn values_are_read_as_rocksdb_writes_them() {
        let options = stated(&[
            ("compaction_style", "kCompactionStyleUniversal"),
            ("max_bytes_for_level_multiplier", "8.500000"),
            ("target_file_size_base", "100000"),
            ("max_compaction_bytes", "0"),
            ("bottommost_compression", "kDisableCompressionOption"),
            ("compression_per_level", "kNoCompression:kLZ4Compression"),
            ("compaction_filter", "nullptr"),
            ("compaction_filter_factory", "TtlFactory"),
        ]);
        assert_eq!(options.compaction_style, CompactionStyle::Universal);
        assert_eq!((options.max_bytes_for_level_multiplier, options.max_compaction_bytes), (8, 2_500_000));
        assert_eq!(options.bottommost_compression, None);
        assert!(options.has_compaction_filter);
        assert_eq!(options.compression_of(0, 3, 6), "kNoCompression");
        assert_eq!(options.compression_of(3, 3, 6), "kLZ4Compression");
    }

    #[test]
    fn the_bottommost_level_can_be_compressed_in_its_own_way() {
        let options = stated(&[("compression", "kLZ4Compression"), ("bottommost_compression", "kZSTD")]);
        assert_eq!(options.compression_of(5, 1, 6), "kLZ4Compression");
        assert_eq!(options.compression_of(6, 1, 6), "kZSTD");
    }

    proptest! {
        #[test]
        fn any_text_gives_options_that_can_be_reckoned_with(name in 0usize..21, value in ".{0,24}", level in 0usize..99) {
            let name = ColumnFamilyOptions::NAMES.get(name).copied().unwrap_or("");
            let options = stated(&[(name, &value)]);
            prop_assert!((NUM_LEVELS_MIN..=NUM_LEVELS_MAX).contains(&options.num_levels));
            prop_assert!(options.target_file_size(level, 3) > 0);
            prop_assert!(!options.compression_of(level, 3, 6).is_empty() || !options.compression_per_level.is_empty());
        }
    }
}
