//! Whether an action helped: pain before, pain after, and what was promised.

use crate::rank::RangeAssessment;
use crate::words;
use serde::{Deserialize, Serialize};

/// An action has helped when the pain fell by at least this share of what was promised. Not all of it:
/// readers come and go, and what is measured in a window varies.
pub const HELPED_SHARE_MIN: f64 = 0.5;

/// Where this share of the deletions is still there, the files were not rewritten for good.
const DELETIONS_LEFT_SHARE: f64 = 0.5;

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the pain fell as promised.
    pub helped: bool,
    /// Pain in the range's keys now.
    pub pain_after_seconds_per_second: f64,
    /// In words, with the likely cause where it did not help.
    pub reason: String,
}

/// Judges an action on the range of `before`, which promised to relieve `promised_seconds_per_second`.
///
/// `after` are the assessments of a later window of the same database, all of them: those that share
/// keys with the range count. While an action waits for its verdict it is among the evidence's past
/// actions, and so its range is assessed on its own.
pub fn verdict(
    before: &RangeAssessment,
    after: &[RangeAssessment],
    promised_seconds_per_second: f64,
) -> Verdict {
    let same = after.iter().filter(|now| {
        now.column_family == before.column_family
            && now.database == before.database
            && now.range.overlaps(&before.range)
    });
    let (pain, deletions) = same.fold((0.0, 0u64), |(pain, deletions), now| {
        (pain + now.pain_seconds_per_second, deletions.saturating_add(now.deletions))
    });
    let fell = before.pain_seconds_per_second - pain;
    let helped = fell > 0.0 && fell >= promised_seconds_per_second * HELPED_SHARE_MIN;
    let numbers = format!(
        "readers lost {} before and lose {} now; {} less was promised",
        words::pain(before.pain_seconds_per_second),
        words::pain(pain),
        words::pain(promised_seconds_per_second),
    );
    let reason = if helped { numbers } else { format!("{numbers}; {}", cause(before, deletions)) };
    Verdict { helped, pain_after_seconds_per_second: pain, reason }
}

/// The likely cause of a pain that stayed.
fn cause(before: &RangeAssessment, deletions_after: u64) -> String {
    let (was, is) = (words::count(before.deletions), words::count(deletions_after));
    if before.deletions == 0 {
        "the tombstones were in a memtable and have been written again meanwhile, or a snapshot keeps them"
            .to_owned()
    } else if deletions_after as f64 >= before.deletions as f64 * DELETIONS_LEFT_SHARE {
        format!(
            "{is} of {was} deletions are in the files: a snapshot keeps them, files were moved without being \
             rewritten, or they were written again"
        )
    } else {
        format!(
            "the deletions are gone from the files ({was} before, {is} now): new ones are in a memtable, or \
             readers wait for something else"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{key::Key, range::KeyRange};

    fn assessment(prefix: &str, pain: f64, deletions: u64) -> RangeAssessment {
        RangeAssessment {
            target: "t".to_owned(),
            database: "/db".to_owned(),
            column_family: Some("cf".to_owned()),
            range: KeyRange::with_prefix(Key::new(prefix)),
            operations_per_second: 1.0,
            tombstones_per_seek: 1.0,
            memtable_tombstones_per_seek: 0.0,
            misses_per_seek: 0.0,
            seconds_per_miss: 0.0,
            cache_hit_ratio: None,
            size_bytes: 0,
            entries: deletions,
            deletions,
            density: 1.0,
            pain_seconds_per_second: pain,
            relief_seconds_per_second: pain,
            block_read_seconds_per_second: 0.0,
            cost_bytes: 0,
            relief_per_byte: 0.0,
            reason: String::new(),
        }
    }

    #[test]
    fn half_of_what_was_promised_is_enough() {
        let before = assessment("a/", 0.1, 100);
        assert!(verdict(&before, &[], 0.1).helped);
        assert!(verdict(&before, &[assessment("b/", 9.0, 0)], 0.1).helped);
        assert!(verdict(&before, &[assessment("a/", 0.05, 0)], 0.1).helped);
        assert!(!verdict(&before, &[assessment("a/", 0.051, 0)], 0.1).helped);
        assert!(!verdict(&before, &[assessment("a/", 0.2, 0)], 0.0).helped);
    }

    #[test]
    fn the_likely_cause_is_named() {
        let before = assessment("a/", 0.1, 100);
        assert!(verdict(&before, &[assessment("a/", 0.1, 100)], 0.1).reason.contains("snapshot"));
        assert!(verdict(&before, &[assessment("a/", 0.1, 3)], 0.1).reason.contains("gone from the files"));
        let memtable = assessment("a/", 0.1, 0);
        assert!(verdict(&memtable, std::slice::from_ref(&memtable), 0.1).reason.contains("memtable"));
    }
}
