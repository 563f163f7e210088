//! Which remedy a range gets: the one that relieves most per byte written.
//!
//! Measured on RocksDB 11.8 with a table used as a queue (a million keys, 20 creates to 8 deletes to one list
//! of 100 keys, as fast as it goes), a list takes 48.8 ms on average when nothing is done, and
//!
//! | with | ms |
//! |---|---|
//! | `memtable_op_scan_flush_trigger=1000` | 1.5 |
//! | `min_tombstones_for_range_conversion=8` | 4.0 |
//! | `read_triggered_compaction_threshold=0.01` | 49.0 |
//! | a forced compaction of the deleted span every 2 s | 1.2 |
//! | that and the first option | 0.75 |
//! | all three options | 3.2 |
//!
//! So flushing and compacting add up, and the first two options spoil each other. The second one is never
//! set: readers then write range tombstones, and RocksDB turns away iterators that have a `table_filter`, so
//! that a program can fail by it. Where its owner has set it, the first one is left alone.

use crate::facts::options::{Against, ColumnFamilyOptions, RUN_TIME_OPTIONS, RunTimeOption, SPOILT_BY};
use crate::policy::{Policy, RemedyKind};
use crate::rank::RangeAssessment;
use crate::rank::ranker::{self, COST_BYTES_MIN};
use crate::words;

/// From this share of tombstones in memtables on the pain lies there, and not in SST files.
pub const MEMTABLE_SHARE_MIN: f64 = 0.5;

/// Share of the pain that a single flush relieves: it leaves the tombstones in L0, where 30,000 of them cost
/// readers 180 ms a second, and 185 in the memtable. What RocksDB's own trigger gains comes from the
/// compactions that many flushes bring about.
const FLUSH_RELIEF_SHARE: f64 = 0.03;

/// A range can wait while less than this share of what its compaction rewrites would be dropped.
const WAITING_DROPPED_SHARE_MAX: f64 = 0.5;

/// But only where that share will be reached within this time, in seconds.
const WAITING_SECONDS_MAX: f64 = 600.0;

/// And only while readers lose less than this many times the policy's threshold.
const WAITING_PAIN_FACTOR: f64 = 4.0;

/// Shortest time between two plans that tells how fast tombstones become more, in seconds.
const GROWTH_SECONDS_MIN: f64 = 1.0;

/// What is to be done about a range.
#[derive(Clone, Debug, PartialEq)]
pub enum Remedy {
    /// Flush the column family; relieves so much (seconds per second).
    Flush {
        /// Seconds per second.
        relief: f64,
    },
    /// Compact the range by slices.
    Compact,
    /// Leave it for now, for the reason that is given.
    Wait { reason: String },
    /// Set an option of the column family.
    SetOption {
        option: &'static RunTimeOption,
        /// The value in force, to be put back one day.
        restore: String,
        /// Seconds per second.
        relief: f64,
    },
    /// The policy allows none that would help.
    None,
}

/// What is known of a range that hurts.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    pub range: &'a RangeAssessment,
    /// Its column family's options.
    pub options: &'a ColumnFamilyOptions,
    /// What the policy allows for its target.
    pub allowed: &'a [RemedyKind],
    /// Whether the column family was flushed only lately.
    pub flush_rests: bool,
    /// Whether one of its options was set only lately: it may not show in its OPTIONS file yet.
    pub options_rest: bool,
    /// Seconds since an earlier plan, and tombstones that readers skipped in the same keys then.
    pub earlier: Option<(f64, f64)>,
}

impl Case<'_> {
    fn allows(&self, kind: RemedyKind) -> bool {
        self.allowed.contains(&kind)
    }

    /// The allowed remedy with the most relief per byte, for pain that tombstones cause.
    pub fn remedy(&self, policy: &Policy) -> Remedy {
        let range = self.range;
        let relief = range.relief_seconds_per_second;
        let flush_bytes = self.options.write_buffer_size.max(COST_BYTES_MIN);
        let mut best = (0.0, Remedy::None);
        let mut offer = |relief: f64, bytes: u64, remedy: Remedy| {
            let worth = ranker::worth(relief, bytes);
            if worth > best.0 {
                best = (worth, remedy);
            }
        };
        if self.allows(RemedyKind::Compact) {
            // A compaction flushes what it overlaps in memtables before it begins.
            let flushed = if are_in_memtables(self.range) { flush_bytes } else { 0 };
            if let Some(cost_bytes) = range.cost_bytes {
                offer(relief, cost_bytes.saturating_add(flushed), Remedy::Compact);
            }
        }
        if self.allows(RemedyKind::Flush) && are_in_memtables(self.range) && !self.flush_rests {
            let relief = relief * FLUSH_RELIEF_SHARE;
            offer(relief, flush_bytes, Remedy::Flush { relief });
        }
        let are_in_memtables = are_in_memtables(self.range);
        for (option, restore) in self.unset_options(Against::MemtableTombstones).filter(|_| are_in_memtables)
        {
            let relief = relief * option.relief_share;
            offer(relief, 0, Remedy::SetOption { option, restore, relief });
        }
        match best.1 {
            Remedy::Compact => self.waiting(policy).unwrap_or(Remedy::Compact),
            remedy => remedy,
        }
    }

    /// For pain that block reads cause, which no compaction that Sexton asks for relieves.
    pub fn remedy_for_block_reads(&self) -> Remedy {
        let Some((option, restore)) = self.unset_options(Against::BlockReads).next() else {
            return Remedy::None;
        };
        let relief = self.range.block_read_seconds_per_second * option.relief_share;
        Remedy::SetOption { option, restore, relief }
    }

    /// Options that would help, are known to the target's RocksDB, off, and do not spoil one that is on; with
    /// the value in force.
    fn unset_options(&self, against: Against) -> impl Iterator<Item = (&'static RunTimeOption, String)> + '_ {
        let may_set = self.allows(RemedyKind::Options) && !self.options_rest;
        let value = move |name: &str| self.options.run_time_options.get(name).filter(|_| may_set);
        let is_off = |value: &str| value.parse::<f64>().is_ok_and(|value| value == 0.0);
        let is_spoilt = move |name: &str| {
            let others = SPOILT_BY.iter().filter(|(spoilt, _)| *spoilt == name).map(|(_, other)| *other);
            others.filter_map(value).any(|value| !is_off(value))
        };
        RUN_TIME_OPTIONS.iter().filter(move |option| option.against == against).filter_map(move |option| {
            let restore = value(option.name).filter(|value| is_off(value))?;
            (!is_spoilt(option.name)).then(|| (option, restore.clone()))
        })
    }

    /// Waiting, where tombstones are becoming more and will soon make up most of what has to be rewritten.
    fn waiting(&self, policy: &Policy) -> Option<Remedy> {
        let range = self.range;
        let (seconds, before) = self.earlier.filter(|(seconds, _)| *seconds >= GROWTH_SECONDS_MIN)?;
        let (growth, dropped) = ((range.tombstones_per_seek - before) / seconds, dropped_share(range));
        let threshold = policy.thresholds.pain.seconds_per_second();
        let hurts_much = range.pain_seconds_per_second >= threshold * WAITING_PAIN_FACTOR;
        let is_candidate = self.allows(RemedyKind::Wait) && !are_in_memtables(self.range) && !hurts_much;
        if !is_candidate || growth <= 0.0 || dropped <= 0.0 || dropped >= WAITING_DROPPED_SHARE_MAX {
            return None;
        }
        let missing = range.tombstones_per_seek * (WAITING_DROPPED_SHARE_MAX / dropped - 1.0);
        let wait_s = missing / growth;
        (wait_s <= WAITING_SECONDS_MAX).then(|| Remedy::Wait {
            reason: format!(
                "{} of the {} to be rewritten would be dropped now; at {} tombstones more a second it is {} in {}",
                words::percent(dropped),
                words::bytes(range.cost_bytes.unwrap_or_default()),
                words::number(growth),
                words::percent(WAITING_DROPPED_SHARE_MAX),
                words::span(wait_s.ceil() as i64),
            ),
        })
    }
}

/// Whether what is dead in a range, as far as it is known where it lies, lies in memtables for the most part.
pub(crate) fn are_in_memtables(range: &RangeAssessment) -> bool {
    let known = range.tombstones_per_seek - range.unexplained_tombstones_per_seek + range.hidden_per_seek();
    known > 0.0 && range.memtable_tombstones_per_seek >= known * MEMTABLE_SHARE_MIN
}

/// Share of the bytes that compacting a range rewrites which it drops: deletions, and about one older entry
/// each, where the files lie in the range.
fn dropped_share(range: &RangeAssessment) -> f64 {
    let Some(cost_bytes) = range.cost_bytes.filter(|bytes| *bytes > 0 && range.entries > 0) else {
        return 0.0;
    };
    let dead = (range.deletions as f64 * 2.0 / range.entries as f64).min(1.0);
    dead * (range.size_bytes as f64 / cost_bytes as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::key::Key;
    use crate::facts::options::run_time_option_names;
    use crate::facts::range::KeyRange;

    const ALL: [RemedyKind; 4] =
        [RemedyKind::Flush, RemedyKind::Compact, RemedyKind::Wait, RemedyKind::Options];

    fn range(memtable_tombstones: f64, cost_bytes: u64) -> RangeAssessment {
        RangeAssessment {
            operations_per_second: 1.0,
            tombstones_per_seek: 1000.0,
            memtable_tombstones_per_seek: memtable_tombstones,
            size_bytes: cost_bytes,
            entries: 10_000,
            deletions: 1000,
            density: 0.1,
            pain_seconds_per_second: 0.01,
            relief_seconds_per_second: 0.01,
            cost_bytes: Some(cost_bytes),
            ..RangeAssessment::without_loss("t", "/db", "cf", KeyRange::with_prefix(Key::new("a")))
        }
    }

    fn options(values: &[(&str, &str)]) -> ColumnFamilyOptions {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ColumnFamilyOptions { run_time_options: values.collect(), ..ColumnFamilyOptions::default() }
    }

    fn case<'a>(
        range: &'a RangeAssessment,
        options: &'a ColumnFamilyOptions,
        allowed: &'a [RemedyKind],
    ) -> Case<'a> {
        Case { range, options, allowed, flush_rests: false, options_rest: false, earlier: None }
    }

    fn option_of(remedy: &Remedy) -> Option<&'static str> {
        match remedy {
            Remedy::SetOption { option, .. } => Some(option.name),
            _ => None,
        }
    }

    #[test]
    fn a_memtables_tombstones_are_flushed_where_compacting_would_rewrite_much_else() {
        let (policy, options) = (Policy::default(), options(&[]));
        let (large, small) = (range(900.0, 1 << 33), range(900.0, 1 << 20));
        assert!(matches!(case(&large, &options, &ALL).remedy(&policy), Remedy::Flush { .. }));
        assert_eq!(case(&small, &options, &ALL).remedy(&policy), Remedy::Compact);
        let rested = Case { flush_rests: true, ..case(&large, &options, &ALL) };
        assert_eq!(rested.remedy(&policy), Remedy::Compact);
        assert_eq!(case(&range(100.0, 1 << 30), &options, &ALL).remedy(&policy), Remedy::Compact);
        assert_eq!(case(&large, &options, &[RemedyKind::Wait]).remedy(&policy), Remedy::None);
    }

    #[test]
    fn an_option_is_set_where_rocksdb_has_it_the_policy_allows_it_and_it_is_off() {
        let policy = Policy::default();
        let trigger = options(&[("memtable_op_scan_flush_trigger", "0")]);
        let large = range(900.0, 1 << 30);
        let chosen = case(&large, &trigger, &ALL).remedy(&policy);
        assert_eq!(option_of(&chosen), Some("memtable_op_scan_flush_trigger"));
        let forbidden = case(&large, &trigger, &[RemedyKind::Compact]).remedy(&policy);
        assert_eq!(forbidden, Remedy::Compact);
        let set = options(&[("memtable_op_scan_flush_trigger", "1000")]);
        assert_eq!(option_of(&case(&large, &set, &ALL).remedy(&policy)), None);
        let rests = Case { options_rest: true, ..case(&large, &trigger, &ALL) };
        assert_eq!(option_of(&rests.remedy(&policy)), None);
    }

    #[test]
    fn an_option_that_would_spoil_another_one_is_not_set() {
        let policy = Policy::default();
        let in_memtables = range(900.0, 1 << 30);
        let names = ["memtable_op_scan_flush_trigger", "min_tombstones_for_range_conversion"];
        let both_off = options(&[(names[0], "0"), (names[1], "0")]);
        assert_eq!(option_of(&case(&in_memtables, &both_off, &ALL).remedy(&policy)), Some(names[0]));
        let one_on = options(&[(names[0], "0"), (names[1], "8")]);
        assert_eq!(case(&in_memtables, &one_on, &ALL).remedy(&policy), Remedy::Compact);
    }

    /// A program whose iterators have a `table_filter` fails while it is on.
    #[test]
    fn no_plan_sets_min_tombstones_for_range_conversion() {
        let policy = Policy::default();
        let off = options(&[("min_tombstones_for_range_conversion", "0")]);
        for memtable_tombstones in [0.0, 900.0] {
            let range = range(memtable_tombstones, 1 << 40);
            for allowed in [&ALL[..], &[RemedyKind::Options]] {
                assert_eq!(option_of(&case(&range, &off, allowed).remedy(&policy)), None);
            }
            assert_eq!(case(&range, &off, &ALL).remedy_for_block_reads(), Remedy::None);
        }
        assert!(
            run_time_option_names().any(|name| name == "min_tombstones_for_range_conversion"),
            "it is read"
        );
    }

    /// What a flush of 64 MiB relieves does not pay for itself where a compaction takes 256 MiB and all of
    /// the pain.
    #[test]
    fn a_flush_promises_what_a_flush_was_measured_to_deliver() {
        let (policy, options) = (Policy::default(), options(&[]));
        let range = range(1000.0, 256 << 20);
        assert_eq!(case(&range, &options, &ALL).remedy(&policy), Remedy::Compact);
        let Remedy::Flush { relief } = case(&range, &options, &[RemedyKind::Flush]).remedy(&policy) else {
            unreachable!("the one remedy that is allowed")
        };
        let (before_ms, after_ms) = (185.0, 180.0);
        let measured = range.relief_seconds_per_second * (before_ms - after_ms) / before_ms;
        assert!((measured * 0.5..measured * 2.0).contains(&relief), "{relief} and not {measured}");
    }

    #[test]
    fn block_reads_have_an_option_of_their_own() {
        let threshold = options(&[("read_triggered_compaction_threshold", "0.000000")]);
        let reads = RangeAssessment { block_read_seconds_per_second: 1.0, ..range(0.0, 1 << 30) };
        let chosen = case(&reads, &threshold, &ALL).remedy_for_block_reads();
        assert_eq!(option_of(&chosen), Some("read_triggered_compaction_threshold"));
        assert_eq!(case(&reads, &options(&[]), &ALL).remedy_for_block_reads(), Remedy::None);
    }

    #[test]
    fn a_range_waits_while_its_tombstones_grow_fast_and_it_hurts_little() {
        let policy = Policy::parse("thresholds: { pain: 5ms/s }").unwrap_or_default();
        let options = options(&[]);
        let range = range(0.0, 1 << 30);
        // A fifth would be dropped, 1500 tombstones are missing for half of it.
        let growing = Case { earlier: Some((10.0, 900.0)), ..case(&range, &options, &ALL) };
        assert!(matches!(growing.remedy(&policy), Remedy::Wait { .. }));
        let slowly = Case { earlier: Some((1000.0, 900.0)), ..growing };
        assert_eq!(slowly.remedy(&policy), Remedy::Compact);
        let not_allowed = Case { allowed: &[RemedyKind::Compact], ..growing };
        assert_eq!(not_allowed.remedy(&policy), Remedy::Compact);
        let hurting = RangeAssessment { pain_seconds_per_second: 1.0, ..range.clone() };
        assert_eq!(Case { range: &hurting, ..growing }.remedy(&policy), Remedy::Compact);
    }
}
