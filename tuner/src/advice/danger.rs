//! What is about to go wrong, with the option that causes it: write stalls that are near, and deletions that
//! no compaction is going to take for long.

use super::figures::Figures;
use super::history::Family;
use super::strategy::Setup;
use crate::facts::options::CompactionStyle;
use crate::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stall is near from this share of the trigger on.
const NEAR_SHARE: f64 = 0.7;

/// Deletions in an entry of a file from which on it is mostly tombstones.
const DEAD_FILE_RATIO: f64 = 0.5;

/// Deletions in an entry of the column family from which on they are many.
const DENSITY_MIN: f64 = 0.2;

/// Files that are mostly tombstones are late when they have lain for so long: a compaction by size comes
/// within minutes where anything is written.
const LATE_SECONDS: u64 = 600;

/// What goes wrong.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DangerKind {
    /// Writes are delayed or about to be.
    WriteStall,
    /// Tombstones lie where no compaction takes them.
    LateDeletions,
}

/// Something that is about to go wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Danger {
    pub kind: DangerKind,
    /// The option that causes it, by RocksDB's name.
    pub option: String,
    pub reason: String,
}

pub(super) fn dangers(setup: &Setup<'_>, family: &Family, now_unix_s: u64) -> Vec<Danger> {
    let mut dangers = Vec::new();
    stalls(setup, &mut dangers);
    late_deletions(setup, family, now_unix_s, &mut dangers);
    dangers
}

fn stalls(setup: &Setup<'_>, dangers: &mut Vec<Danger>) {
    let (figures, options) = (setup.figures, setup.options);
    let (files, trigger) = (figures.files_in(0), options.level0_slowdown_writes_trigger);
    let stall =
        |option: &str, reason| Danger { kind: DangerKind::WriteStall, option: option.to_owned(), reason };
    if options.compaction_style == CompactionStyle::Fifo {
        return;
    }
    if options.disable_auto_compactions {
        if files >= trigger {
            let reason = format!(
                "{files} files lie in L0 and none is compacted: writes are not delayed for it, and every read looks into \
                 all of them",
            );
            dangers.push(stall("disable_auto_compactions", reason));
        }
        return;
    }
    if trigger > 0 && files as f64 >= trigger as f64 * NEAR_SHARE {
        dangers.push(stall(
            "level0_slowdown_writes_trigger",
            format!("{files} files lie in L0, and from {trigger} on writes are delayed: compaction does not keep up"),
        ));
    }
    let (pending, limit) = (pending_bytes(setup), options.soft_pending_compaction_bytes_limit);
    if limit > 0 && pending as f64 >= limit as f64 * NEAR_SHARE {
        dangers.push(stall(
            "soft_pending_compaction_bytes_limit",
            format!(
                "some {} wait for compaction, and from {} on writes are delayed",
                words::bytes(pending),
                words::bytes(limit)
            ),
        ));
    }
}

/// What leveled compaction has before it, as RocksDB reckons: what is in L0, and of each level what is more
/// than it is to hold, with what that meets in the next one.
fn pending_bytes(setup: &Setup<'_>) -> u64 {
    let (figures, options) = (setup.figures, setup.options);
    if options.compaction_style != CompactionStyle::Level {
        return 0;
    }
    let last = figures.levels.last().map_or(0, |level| level.level);
    let multiplier = options.max_bytes_for_level_multiplier.max(1);
    let mut pending: u64 = 0;
    let mut carried: u64 = 0;
    for level in &figures.levels {
        if level.level == 0 {
            if level.files >= options.level0_file_num_compaction_trigger {
                pending = pending.saturating_add(level.bytes);
                carried = level.bytes;
            }
            continue;
        }
        // With dynamic levels the sizes go by the last one, which is never too large.
        let above = u32::min(level.level - 1, last);
        let wanted = match options.level_compaction_dynamic_level_bytes {
            true if level.level == last => u64::MAX,
            true => {
                let of_last = figures.levels.last().map_or(0, |level| level.bytes);
                let below = last.saturating_sub(level.level);
                (of_last / multiplier.saturating_pow(below))
                    .max(options.max_bytes_for_level_base / multiplier)
            }
            false => options.max_bytes_for_level_base.saturating_mul(multiplier.saturating_pow(above)),
        };
        let excess = level.bytes.saturating_add(carried).saturating_sub(wanted);
        if excess > 0 {
            pending = pending.saturating_add(excess.saturating_mul(multiplier.saturating_add(1)));
        }
        carried = excess;
    }
    pending
}

fn late_deletions(setup: &Setup<'_>, family: &Family, now_unix_s: u64, dangers: &mut Vec<Danger>) {
    let figures: &Figures = setup.figures;
    let options = setup.options;
    let is_dead = |entries: u64, deletions: u64| deletions as f64 >= entries.max(1) as f64 * DEAD_FILE_RATIO;
    let dead = family.files.iter().filter(|file| file.deletions > 0 && is_dead(file.entries, file.deletions));
    let age = |created: u64| if created == 0 { 0 } else { now_unix_s.saturating_sub(created) };
    let late: Vec<u64> =
        dead.map(|file| age(file.created_unix_s)).filter(|age| *age >= LATE_SECONDS).collect();
    let is_dense = figures.density() >= DENSITY_MIN;
    if late.is_empty() && !(is_dense && options.disable_auto_compactions) {
        return;
    }
    let oldest = late.iter().max().copied().unwrap_or_default();
    let what = match late.len() {
        0 => format!("{} of all entries are deletions", words::percent(figures.density())),
        files => format!(
            "{files} files are mostly deletions and have lain for up to {}; {} of all entries are deletions",
            words::span(i64::try_from(oldest).unwrap_or(i64::MAX)),
            words::percent(figures.density())
        ),
    };
    let (option, cause) = if options.disable_auto_compactions {
        ("disable_auto_compactions", "no compaction takes them, whatever their age".to_owned())
    } else if !setup.has_deletion_collector && options.compaction_style == CompactionStyle::Level {
        let ttl = match options.ttl_seconds {
            None | Some(0) => "and ttl is off".to_owned(),
            Some(seconds) => {
                let span = words::span(i64::try_from(seconds).unwrap_or(i64::MAX));
                format!("and ttl takes them after {span}")
            }
        };
        (
            "table_properties_collector_factories",
            format!("no CompactOnDeletionCollector marks such files, their level is not full, {ttl}"),
        )
    } else {
        (
            "periodic_compaction_seconds",
            "they wait for a compaction that their size does not bring".to_owned(),
        )
    };
    dangers.push(Danger {
        kind: DangerKind::LateDeletions,
        option: option.to_owned(),
        reason: format!("{what}: {cause}"),
    });
}
