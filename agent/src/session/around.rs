//! What is read of a target around an action: before it begins, while it is paused, and when it has ended.

use super::{PlaceReadings, Session, SstRead, ValueInForce};
use sexton_execute::Properties;
use sexton_tuner::evidence::{MemtableDeletions, SstFile};
use sexton_tuner::options::ColumnFamilyOptions;
use sexton_tuner::plan::CompactRange;
use sexton_tuner::replaced::{bytes_gone, bytes_replaced, deletions_within};
use sexton_tuner::run::{ActionKind, KeptSetting, Measurement};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is to be read before an action.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub database: PathBuf,
    pub column_family: String,
    /// Whether the live files are.
    pub files: bool,
    /// The option whose value is.
    pub option: Option<KeptSetting>,
    /// The databases whose running compactions are counted.
    pub on_device: Vec<PathBuf>,
}

/// What was read before an action.
#[derive(Debug)]
pub struct Before {
    /// The live files; `None` where they cannot be read, or were not wanted.
    pub files: Option<SstRead>,
    /// What the OPTIONS file says, as it is known now.
    pub options: Option<BTreeMap<String, ColumnFamilyOptions>>,
    /// The files that have hard links elsewhere.
    pub linked: BTreeSet<u64>,
    pub readings: PlaceReadings,
    /// The option's value.
    pub value: Option<ValueInForce>,
    pub running: RunningCompactions,
}

/// Compactions that databases run; `None` where one cannot be asked.
pub type RunningCompactions = Vec<(PathBuf, Option<u64>)>;

/// What an action is measured against.
#[derive(Debug)]
pub struct Baseline {
    /// What is done, at its price of then.
    pub kind: ActionKind,
    /// The live files before.
    pub files: Option<SstRead>,
    /// Deletions in the column family's memtables before.
    pub memtable_deletions: Option<u64>,
}

impl Baseline {
    /// Whether it is that of a compaction.
    pub fn is_compaction(&self) -> bool {
        matches!(self.kind, ActionKind::Compact(_))
    }
}

impl Session {
    /// Reads what is wanted before an action.
    pub fn before(&mut self, wanted: &Wanted) -> Before {
        let Wanted { database, column_family, files, option, on_device } = wanted;
        let files = if *files { self.read_files(database) } else { None };
        Before {
            linked: files.as_ref().map_or_else(BTreeSet::new, |_| self.linked_files(database)),
            files,
            options: self.options_of(database),
            readings: self.place_readings(database, column_family),
            value: option.as_ref().map(|kept| self.value_in_force(kept)),
            running: self.running(on_device),
        }
    }

    /// How many compactions databases run.
    pub fn running(&self, databases: &[PathBuf]) -> RunningCompactions {
        databases.iter().map(|path| (path.clone(), self.running_compactions(path))).collect()
    }

    /// What RocksDB says of column families; those that cannot be asked are left out.
    pub fn properties_of(&self, places: Vec<(PathBuf, String)>) -> Vec<(PathBuf, String, Properties)> {
        let read = |(database, column_family): (PathBuf, String)| {
            let properties = self.properties(&database, &column_family)?;
            Some((database, column_family, properties))
        };
        places.into_iter().filter_map(read).collect()
    }

    /// What an action has changed.
    pub fn measure(&mut self, baseline: &Baseline) -> Measurement {
        let Baseline { kind, files, memtable_deletions } = baseline;
        let (Some(database), Some(column_family)) = (kind.database(), kind.column_family()) else {
            return Measurement::default();
        };
        let database = Path::new(database);
        let mut measured =
            Measurement { memtable_deletions_before: *memtable_deletions, ..Measurement::default() };
        let properties = self.properties(database, column_family);
        measured.memtable_deletions_after =
            properties.and_then(|read| read.memtable_deletions()).map(MemtableDeletions::total);
        let ActionKind::Compact(compact) = kind else { return measured };
        let taken_at = properties.and_then(|read| read.oldest_snapshot_unix_s);
        let now_s = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
        measured.snapshots = properties.and_then(|read| read.snapshots);
        measured.oldest_snapshot_age_seconds = taken_at.map(|taken| now_s.saturating_sub(taken));
        measured.oldest_snapshot_sequence = properties.and_then(|read| read.oldest_snapshot_sequence);
        measured.device_bytes = self.device_bytes(database);
        if let (Some(before), Some(after)) = (files, self.read_files(database)) {
            measured.bytes_replaced = Some(match compact.primitive.files() {
                Some(compact) => bytes_gone(before, &after, &compact.files),
                None => bytes_replaced(before, &after, &compact.column_family, &compact.range),
            });
            measured.deletions =
                Some(deletions_within(before, &after, &compact.column_family, &compact.range));
        }
        measured
    }
}

/// Whether an SST file holds keys that are to be compacted.
pub fn is_inside(compact: &CompactRange, file: &SstFile) -> bool {
    file.column_family == compact.column_family
        && compact.range.overlaps_closed(&file.smallest, &file.largest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::cost::Bottommost;
    use sexton_tuner::key::Key;
    use sexton_tuner::primitive::Primitive;
    use sexton_tuner::range::KeyRange;
    use sexton_tuner::verify::Aftermath;

    fn file(number: u64, smallest: u8, largest: u8, deletions: u64) -> SstFile {
        SstFile {
            number,
            column_family: "cf".into(),
            level: 6,
            size_bytes: 1_000,
            entries: deletions,
            deletions,
            smallest: Key::new([smallest]),
            largest: Key::new([largest]),
        }
    }

    /// One file held everything; what the compaction made of it are files that lie closer to the range.
    /// Nothing has gone from it.
    #[test]
    fn deletions_that_a_snapshot_keeps_are_kept_however_wide_the_files_were() {
        let before = serde_json::json!({
            "target": "t", "database": "/db", "column_family": "cf", "range": KeyRange::everything(),
            "operations_per_second": 1.0, "tombstones_per_seek": 1.0, "memtable_tombstones_per_seek": 0.0,
            "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1, "deletions": 1, "density": 1.0,
            "pain_seconds_per_second": 1.0, "relief_seconds_per_second": 1.0, "cost_bytes": 1,
            "relief_per_byte": 1.0, "reason": ""
        });
        let compact = CompactRange {
            target: "t".into(),
            database: "/db".into(),
            column_family: "cf".into(),
            range: KeyRange::new(Key::new([100]), Some(Key::new([120]))).unwrap(),
            before: serde_json::from_value(before).unwrap(),
            primitive: Primitive::CompactRange,
            bottommost: Bottommost::Default,
            cost_bytes: 0,
            largest_job_bytes: 0,
            linked_bytes: 0,
            relief_seconds_per_second: 0.0,
            deletions: 0,
            reason: String::new(),
        };
        let before = vec![file(1, 0, 200, 2_000)];
        let after: Vec<SstFile> =
            (0..10).map(|part| file(2 + u64::from(part), part * 20, part * 20 + 19, 200)).collect();
        let (before_count, after_count) = deletions_within(&before, &after, "cf", &compact.range);
        assert!((195..=205).contains(&before_count), "{before_count}");
        assert!((190..=205).contains(&after_count), "{after_count}");
        let aftermath = Aftermath {
            deletions_before: before_count,
            deletions_after: after_count,
            bytes_rewritten: bytes_replaced(&before, &after, "cf", &compact.range),
            snapshots: Some(1),
            ..Aftermath::default()
        };
        assert!(aftermath.is_pinned());
    }
}
