//! Keys that no reader was seen to lose time in, for rankers that do not go by that.

use crate::facts::evidence::Evidence;
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use crate::rank::{Families, RangeAssessment};

/// What lies between the ranges that hurt, in each column family that has files, as far as it is looked at
/// now.
pub(crate) fn quiet_ranges(
    evidence: &Evidence,
    families: &Families<'_>,
    hurting: &[RangeAssessment],
) -> Vec<RangeAssessment> {
    let nothing_lost = |column_family: &str, range| {
        RangeAssessment::without_loss(&evidence.target, &evidence.database, column_family, range)
    };
    let mut quiet = Vec::new();
    for name in families.keys() {
        // What is looked at now lies between two keys.
        let everything = KeyRange::everything();
        let surveyed = match &evidence.surveyed {
            None => &everything,
            Some(surveyed) => match surveyed.get(*name) {
                None => continue,
                Some(range) => range,
            },
        };
        let own = hurting.iter().filter(|range| range.column_family.as_deref() == Some(*name));
        let mut ranges: Vec<&KeyRange> = own.map(|range| &range.range).collect();
        ranges.sort();
        let mut begin = Some(Key::default());
        for range in ranges {
            let before = begin.take().and_then(|begin| KeyRange::new(begin, Some(range.begin.clone())));
            quiet.extend(
                before
                    .and_then(|before| before.intersection(surveyed))
                    .map(|range| nothing_lost(name, range)),
            );
            begin.clone_from(&range.end);
        }
        let last = begin.and_then(|begin| KeyRange::new(begin, None));
        quiet
            .extend(last.and_then(|last| last.intersection(surveyed)).map(|range| nothing_lost(name, range)));
    }
    quiet
}
