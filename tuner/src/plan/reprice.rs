//! A planned compaction, looked at again right before it begins: the actions before it, and RocksDB itself,
//! have changed the files since.

use crate::lsm::compact_files::Taken;
use crate::lsm::cost::{Levels, Prediction};
use crate::plan::job::prediction_of;
use crate::plan::primitive::Primitive;
use crate::plan::{CompactRange, Rule};
use crate::rank::ranker::COST_BYTES_MIN;
use crate::words;

/// A slice that has become dearer than its plan by more than this factor is left to the next plan, which
/// weighs it against all others: predictions are off by a third at most, so it is another slice by now.
pub const DEARER_FACTOR_MAX: u64 = 2;

/// The compaction at what it costs with the column family's files as they are now, and with its bottommost
/// files treated as these want it. Where some of the files are gone that were to be compacted, it is all of
/// its keys.
pub fn as_of_now(planned: &CompactRange, levels: &Levels) -> CompactRange {
    if let Primitive::CompactFiles { files, by_range_bytes } = &planned.primitive
        && let Some(Taken { compact, prediction, .. }) = levels.compact_files_again(files)
    {
        let primitive = Primitive::CompactFiles { files: compact, by_range_bytes: *by_range_bytes };
        return CompactRange { primitive, ..planned.at(prediction) };
    }
    let (bottommost, prediction) = prediction_of(levels, &planned.range, &planned.before);
    CompactRange { primitive: Primitive::CompactRange, bottommost, ..planned.at(prediction) }
}

impl CompactRange {
    fn at(&self, prediction: Prediction) -> CompactRange {
        let Prediction { read_bytes, largest_job_bytes, linked_bytes, .. } = prediction;
        CompactRange { cost_bytes: read_bytes, largest_job_bytes, linked_bytes, ..self.clone() }
    }
}

/// Whether it is still what the plan has chosen, and still paid for.
pub(crate) fn still_worth_it(
    planned_bytes: u64,
    bytes: u64,
    budget_bytes: u64,
) -> Result<(), (Rule, String)> {
    let (before, after) = (words::bytes(planned_bytes), words::bytes(bytes));
    let most = planned_bytes.max(COST_BYTES_MIN).saturating_mul(DEARER_FACTOR_MAX);
    if bytes > most {
        let reason = format!(
            "the files have changed: compacting rewrites {after} now, and it was planned for {before}; the next plan \
             weighs it anew"
        );
        return Err((Rule::Dearer, reason));
    }
    if bytes > budget_bytes {
        let left = words::bytes(budget_bytes);
        let reason = format!(
            "compacting rewrites {after} now, planned were {before}, and {left} are left of the budget"
        );
        return Err((Rule::OverBudget, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::evidence::SstFile;
    use crate::facts::key::Key;
    use crate::facts::options::ColumnFamilyOptions;
    use crate::facts::range::KeyRange;
    use crate::limits::guard::{Guard, Readings, before};
    use crate::lsm::cost::Bottommost;
    use crate::policy::GuardPolicy;
    use crate::rank::RangeAssessment;

    const MIB: u64 = 1 << 20;

    fn file(level: u32, smallest: &str, largest: &str, size_bytes: u64, deletions: u64) -> SstFile {
        SstFile {
            number: 1,
            column_family: "cf".to_owned(),
            level,
            size_bytes,
            entries: 1000,
            deletions,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    /// Ten files of 16 MiB in the bottommost level.
    fn bottom() -> Vec<SstFile> {
        (0..10).map(|at| file(6, &format!("{at}0"), &format!("{at}9"), 16 * MIB, 400)).collect()
    }

    fn assessed(range: &KeyRange) -> RangeAssessment {
        let json = serde_json::json!({
            "target": "t", "database": "/db", "column_family": "cf", "range": range,
            "operations_per_second": 1.0, "tombstones_per_seek": 400.0,
            "memtable_tombstones_per_seek": 0.0, "misses_per_seek": 0.0,
            "size_bytes": 16 * MIB, "entries": 1000, "deletions": 400, "density": 0.4,
            "pain_seconds_per_second": 1.0, "relief_seconds_per_second": 1.0,
            "cost_bytes": 16 * MIB, "relief_per_byte": 1.0, "reason": "",
        });
        serde_json::from_value(json).unwrap()
    }

    fn planned() -> CompactRange {
        let range = KeyRange::new(Key::new("20"), Some(Key::new("29").successor())).unwrap();
        CompactRange {
            target: "t".to_owned(),
            database: "/db".to_owned(),
            column_family: "cf".to_owned(),
            before: Box::new(assessed(&range)),
            range,
            primitive: Primitive::CompactRange,
            bottommost: Bottommost::ForceOptimized,
            cost_bytes: 16 * MIB,
            largest_job_bytes: 16 * MIB,
            linked_bytes: 0,
            relief_seconds_per_second: 1.0,
            deletions: 400,
            reason: String::new(),
        }
    }

    fn now(files: &[SstFile]) -> CompactRange {
        let levels = Levels::of(&files.iter().collect::<Vec<_>>(), &ColumnFamilyOptions::default());
        as_of_now(&planned(), &levels)
    }

    /// A flush and RocksDB's own compaction have put a wide file over the ten: the slice takes all of them
    /// along.
    fn worth_it(planned: &CompactRange, now: &CompactRange, budget_bytes: u64) -> Result<(), (Rule, String)> {
        still_worth_it(planned.cost_bytes, now.cost_bytes, budget_bytes)
    }

    #[test]
    fn a_slice_is_priced_again_with_the_files_as_they_are_now() {
        let same = now(&bottom());
        assert_eq!((same.cost_bytes, same.largest_job_bytes), (16 * MIB, 16 * MIB));
        assert_eq!(worth_it(&planned(), &same, 64 * MIB), Ok(()));

        let wide = now(&[bottom(), vec![file(1, "00", "99", MIB, 10)]].concat());
        assert!(wide.cost_bytes >= 161 * MIB && wide.largest_job_bytes >= 161 * MIB, "{wide:?}");
        let (rule, reason) = worth_it(&planned(), &wide, u64::MAX).unwrap_err();
        assert_eq!(rule, Rule::Dearer);
        assert!(reason.contains("planned for 16.0 MiB"), "{reason}");
    }

    #[test]
    fn the_budget_and_the_guards_are_asked_for_the_new_price() {
        let beside = now(&[bottom(), vec![file(5, "25", "31", MIB, 10)]].concat());
        assert!((17 * MIB..=40 * MIB).contains(&beside.cost_bytes), "{beside:?}");
        let (rule, reason) =
            worth_it(&planned(), &CompactRange { cost_bytes: 20 * MIB, ..planned() }, 18 * MIB).unwrap_err();
        assert_eq!(rule, Rule::OverBudget);
        assert!(reason.contains("18.0 MiB are left"), "{reason}");
        let policy = GuardPolicy::default();
        let readings = Readings {
            disk_free_bytes: Some(policy.disk_free_min.bytes() + 16 * MIB),
            ..Readings::default()
        };
        assert_eq!(before(&policy, &readings, planned().disk_price()), Ok(()));
        let refusal = before(&policy, &readings, beside.disk_price()).unwrap_err();
        assert_eq!(refusal.guard, Guard::DiskSpace);
    }

    #[test]
    fn small_slices_are_not_dropped_for_small_change() {
        let cheap = CompactRange { cost_bytes: 0, ..planned() };
        let now = CompactRange { cost_bytes: MIB, ..planned() };
        assert_eq!(worth_it(&cheap, &now, MIB), Ok(()));
    }
}
