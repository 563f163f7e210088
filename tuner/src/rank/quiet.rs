//! Keys that no reader was seen to lose time in, for rankers that do not go by that.

use crate::facts::evidence::Evidence;
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use crate::rank::{Families, RangeAssessment};

/// What lies between the ranges that hurt, in each column family that has files.
pub(crate) fn quiet_ranges(
    evidence: &Evidence,
    families: &Families<'_>,
    hurting: &[RangeAssessment],
) -> Vec<RangeAssessment> {
    let mut quiet = Vec::new();
    for name in families.keys() {
        let own = hurting.iter().filter(|range| range.column_family.as_deref() == Some(*name));
        let mut ranges: Vec<&KeyRange> = own.map(|range| &range.range).collect();
        ranges.sort();
        let mut begin = Some(Key::default());
        for range in ranges {
            let before = begin.take().and_then(|begin| KeyRange::new(begin, Some(range.begin.clone())));
            quiet.extend(before.map(|range| nothing_lost(evidence, name, range)));
            begin.clone_from(&range.end);
        }
        let last = begin.and_then(|begin| KeyRange::new(begin, None));
        quiet.extend(last.map(|range| nothing_lost(evidence, name, range)));
    }
    quiet
}

fn nothing_lost(evidence: &Evidence, column_family: &str, range: KeyRange) -> RangeAssessment {
    RangeAssessment {
        target: evidence.target.clone(),
        database: evidence.database.clone(),
        column_family: Some(column_family.to_owned()),
        ambiguous: false,
        range,
        operations_per_second: 0.0,
        tombstones_per_seek: 0.0,
        memtable_tombstones_per_seek: 0.0,
        unexplained_tombstones_per_seek: 0.0,
        is_estimated: false,
        misses_per_seek: 0.0,
        seconds_per_miss: 0.0,
        cache_hit_ratio: None,
        size_bytes: 0,
        entries: 0,
        deletions: 0,
        density: 0.0,
        pain_seconds_per_second: 0.0,
        relief_seconds_per_second: 0.0,
        unexplained_seconds_per_second: 0.0,
        block_read_seconds_per_second: 0.0,
        cost_bytes: Some(0),
        relief_per_byte: 0.0,
        reason: "no reader was seen to lose time".to_owned(),
    }
}
