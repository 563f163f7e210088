//! What a column family is used for, told by its figures.

use super::figures::Figures;
use crate::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Files of new entries that it takes to tell their order; by chance two of random keys never lie behind each
/// other, and four tell more than two.
const ORDERED_FILES_MIN: u64 = 2;

/// The share of them whose keys grow, where keys grow with time. A file that two threads have written to may
/// overlap another a little.
const ORDERED_SHARE_MIN: f64 = 0.9;

/// From this share of deletions on, entries are deleted one by one.
const DELETING_RATIO_MIN: f64 = 0.1;

/// Tombstones that a seek steps over on average where readers stand at the place that is being deleted.
const TOMBSTONES_AT_FRONT_MIN: f64 = 10.0;

/// What is left of the entries of a queue that is taken as fast as it is filled, less the deletions and what
/// they delete.
const QUEUE_LEFT_MAX: f64 = 0.5;

/// Reads in an operation where it is mostly read.
const READ_MOSTLY_MIN: f64 = 0.9;

/// Reads in an operation where it is read and updated: a read that the memtable answers is no lookup of a
/// block, so that half reads show as a third.
const READ_AND_UPDATED_MIN: f64 = 0.3;

/// What has been written again, as a share of all that was written, where keys are overwritten. Keys drawn at
/// random so often as there are keys repeat each other by 0.37.
const OVERWRITTEN_RATIO_MIN: f64 = 0.45;

/// Most entries that are in no large sorted run, for what was written again to have been dropped.
const UNMERGED_RATIO_MAX: f64 = 0.6;

/// Fewest operations a second that are a use.
const IN_USE_PER_SECOND_MIN: f64 = 1.0;

/// What a column family is used for.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Workload {
    /// New keys are written in no order, and hardly read.
    WriteOnly,
    /// The same keys are written again and again, and hardly read.
    Overwrite,
    /// Mostly read, seldom written.
    ReadMostlyFewUpdates,
    /// Read, and updated nearly as often.
    ReadMostlyManyUpdates,
    /// Keys grow with time, in one order or within each prefix, and the old ones go or may go.
    TimeSeries,
    /// Entries are added at one end and deleted at the other when they have been taken.
    Queue,
    /// Keys grow with time, and nothing is deleted.
    MonotonicLog,
    /// Keys are written and deleted in no order.
    InsertAndDelete,
    /// Neither read nor written to speak of.
    Idle,
    /// It cannot be told.
    #[default]
    Unknown,
}

impl Workload {
    /// Its name in the API.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What it is, for people.
    pub fn in_words(self) -> &'static str {
        match self {
            Workload::WriteOnly => "write-only",
            Workload::Overwrite => "overwrite",
            Workload::ReadMostlyFewUpdates => "read-mostly with few updates",
            Workload::ReadMostlyManyUpdates => "read-mostly with many updates",
            Workload::TimeSeries => "time series",
            Workload::Queue => "queue",
            Workload::MonotonicLog => "monotonic log",
            Workload::InsertAndDelete => "inserts and deletes in no order",
            Workload::Idle => "idle",
            Workload::Unknown => "cannot be told",
        }
    }
}

/// A workload, the sentences that it was told by, and what is missing to tell it, or to tell it better.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    pub workload: Workload,
    pub because: Vec<String>,
    pub missing: Vec<String>,
}

/// Tells the workload.
pub(super) fn tell(figures: &Figures, has_filter: bool) -> Told {
    let mut told = Told::default();
    let Some(writes) = figures.writes_per_second else {
        told.missing.push("a second look: it was looked at once, and rates are made of two".to_owned());
        return told;
    };
    if figures.block_lookups_per_second.is_none() {
        told.missing.push(
            "reads: RocksDB counts none in this process (its perf level is off, or no thread of it can be read)"
                .to_owned(),
        );
    }
    let reads = figures.reads_per_second().unwrap_or_default();
    told.because.push(format!(
        "{} entries written and {} reads a second, over {}",
        words::number(writes),
        words::number(reads),
        words::span(figures.watched_seconds as i64),
    ));
    if let Some(workload) = by_order(figures, has_filter, writes, &mut told) {
        return Told { workload, ..told };
    }
    told.workload = by_rates(figures, writes, reads, &mut told);
    told
}

/// Where keys grow with time.
fn by_order(figures: &Figures, has_filter: bool, writes: f64, told: &mut Told) -> Option<Workload> {
    let order = &figures.order;
    let is_written = writes > 0.0 || figures.new_files > 0;
    if order.known() < ORDERED_FILES_MIN || !is_written || order.by_prefix_share() < ORDERED_SHARE_MIN {
        return None;
    }
    let grows_as_one = order.growing_share() >= ORDERED_SHARE_MIN;
    let deletes = figures.deletion_ratio >= DELETING_RATIO_MIN;
    if !grows_as_one {
        // Keys in stretches that are written again are tables of their own, and no series.
        if is_overwritten(figures) || deletes && figures.tombstones_per_seek >= TOMBSTONES_AT_FRONT_MIN {
            return None;
        }
        told.because.push(format!(
            "of {} new files {} hold keys in stretches of their own between those of the file before: each prefix grows \
             at its end",
            order.known(),
            order.by_prefix + order.ahead + order.behind,
        ));
        return Some(Workload::TimeSeries);
    }
    told.because.push(format!(
        "of {} new files {} hold keys behind those of the file before",
        order.known(),
        order.behind + order.ahead,
    ));
    if deletes {
        return Some(by_deletions(figures, told));
    }
    if figures.range_deletions > 0 {
        told.because.push(format!(
            "the old ones go by range deletions, {} in the new files",
            words::count(figures.range_deletions),
        ));
        return Some(Workload::TimeSeries);
    }
    if has_filter {
        told.because.push("a compaction filter may drop the old ones".to_owned());
        return Some(Workload::TimeSeries);
    }
    if figures.is_front_gone {
        told.because.push("the oldest have gone without being deleted one by one".to_owned());
        return Some(Workload::TimeSeries);
    }
    told.because.push("nothing is deleted".to_owned());
    Some(Workload::MonotonicLog)
}

/// Where keys grow with time and are deleted one by one: by whom, and when.
fn by_deletions(figures: &Figures, told: &mut Told) -> Workload {
    told.because.push(format!("{} of the new entries are deletions", words::percent(figures.deletion_ratio)));
    if figures.tombstones_per_seek >= TOMBSTONES_AT_FRONT_MIN {
        told.because.push(format!(
            "a seek steps over {} tombstones: readers stand where entries are deleted",
            words::number(figures.tombstones_per_seek),
        ));
        return Workload::Queue;
    }
    let left = figures.entries.saturating_sub(figures.deletions.saturating_mul(2));
    if left as f64 <= figures.entries as f64 * QUEUE_LEFT_MAX {
        told.because.push("most of what was written is deleted already".to_owned());
        return Workload::Queue;
    }
    told.because.push("they delete what is old, and readers stand elsewhere".to_owned());
    Workload::TimeSeries
}

/// Where they do not, or where that is not known.
fn by_rates(figures: &Figures, writes: f64, reads: f64, told: &mut Told) -> Workload {
    if writes + reads < IN_USE_PER_SECOND_MIN {
        return Workload::Idle;
    }
    let read_share = reads / (reads + writes);
    if read_share >= READ_MOSTLY_MIN {
        return Workload::ReadMostlyFewUpdates;
    }
    let is_order_known = figures.order.known() >= ORDERED_FILES_MIN;
    if figures.order.mixed > 0 {
        told.because.push(format!(
            "of {} new files {} hold keys among those of the file before: keys come in no order",
            figures.order.known(),
            figures.order.mixed,
        ));
    }
    if figures.new_files > 0 && figures.deletion_ratio >= DELETING_RATIO_MIN {
        if !is_order_known {
            told.missing.push(missing_order(figures));
            return Workload::Unknown;
        }
        told.because
            .push(format!("{} of the new entries are deletions", words::percent(figures.deletion_ratio)));
        return Workload::InsertAndDelete;
    }
    if read_share >= READ_AND_UPDATED_MIN {
        return Workload::ReadMostlyManyUpdates;
    }
    if !is_order_known {
        told.missing.push(missing_order(figures));
        return Workload::Unknown;
    }
    by_keys(figures, told)
}

/// Of what is written and hardly read: whether the same keys come again.
fn by_keys(figures: &Figures, told: &mut Told) -> Workload {
    if figures.merge_ratio >= OVERWRITTEN_RATIO_MIN {
        told.because
            .push(format!("{} of the new entries are merge operands", words::percent(figures.merge_ratio)));
        return Workload::Overwrite;
    }
    let Some(overwritten) = figures.overwritten_ratio else {
        told.missing.push(
            "whether keys are written again: entries go by range deletions, by a compaction filter or with whole files as \
             well"
                .to_owned(),
        );
        return Workload::Unknown;
    };
    if is_overwritten(figures) {
        told.because.push(format!(
            "{} of what was written has been written again since",
            words::percent(overwritten)
        ));
        return Workload::Overwrite;
    }
    if figures.unmerged_ratio > UNMERGED_RATIO_MAX {
        told.missing.push(format!(
            "whether keys are written again: {} of the entries have not been merged yet, and one that was written twice \
             is there twice",
            words::percent(figures.unmerged_ratio),
        ));
        return Workload::Unknown;
    }
    told.because.push(format!("{} of what was written is still there", words::percent(1.0 - overwritten)));
    Workload::WriteOnly
}

fn is_overwritten(figures: &Figures) -> bool {
    figures.overwritten_ratio.is_some_and(|ratio| ratio >= OVERWRITTEN_RATIO_MIN)
}

fn missing_order(figures: &Figures) -> String {
    match figures.order.unknown {
        0 => "in which order keys are written: fewer than three files were flushed while it was watched"
            .to_owned(),
        unknown => format!(
            "in which order keys are written: the indexes of {unknown} new files tell too little, they are small or \
             cannot be read"
        ),
    }
}
