//! Which keys a ranker that goes by files alone looks at next.
//!
//! A database can have more files than a plan can price, and those that nobody reads are in no hurry. So each
//! plan looks at the next files in the order of column families and keys: at as many as it takes to be
//! through all of them once in an interval. Where the survey stands is a key, as Apache Ozone's is: files
//! come and go meanwhile, and whoever kept the key goes on there after a restart.

use crate::facts::evidence::SstFile;
use crate::facts::key::Key;
use crate::facts::range::KeyRange;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Fewest files that a plan looks at: about as many as it prices parts of in one column family. Smaller
/// databases are always looked at as a whole.
const FILES_MIN: usize = 1_024;

/// The keys of each column family that are looked at; in those that are missing none are.
pub type Surveyed = BTreeMap<String, KeyRange>;

/// Where the survey of a database stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurveyCursor {
    /// Column family and key from which on nothing has been looked at; `None`: a new pass begins.
    next: Option<(String, Key)>,
    /// When the last plan looked.
    at: Option<Timestamp>,
}

impl SurveyCursor {
    /// What to look at now, so that a pass over all of these files takes no longer than the interval.
    pub fn advance(&mut self, files: &[SstFile], interval: Duration, now: Timestamp) -> Surveyed {
        let elapsed = self.at.map_or(Duration::ZERO, |at| now.duration_since(at).unsigned_abs());
        self.at = Some(now);
        let share = (elapsed.as_secs_f64() / interval.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0);
        let count = ((files.len() as f64 * share).ceil() as usize).max(FILES_MIN);
        let place = |file: &'_ SstFile| (file.column_family.clone(), file.smallest.clone());
        let mut ahead: Vec<&SstFile> = files.iter().collect();
        ahead.retain(|file| {
            let next = self.next.as_ref().map(|(family, key)| (family.as_str(), key));
            next.is_none_or(|next| (file.column_family.as_str(), &file.smallest) >= next)
        });
        ahead.sort_by(|one, two| {
            (&one.column_family, &one.smallest).cmp(&(&two.column_family, &two.smallest))
        });
        // More files than that can begin at one key: then all of them are looked at.
        let others = ahead.iter().skip(count).map(|file| place(file));
        let behind = others.into_iter().find(|behind| Some(behind) != self.next.as_ref());
        let mut surveyed = Surveyed::new();
        for file in &ahead {
            if behind.as_ref().is_some_and(|behind| *behind <= place(file)) {
                break;
            }
            let begins = match &self.next {
                Some((family, key)) if *family == file.column_family => key.clone(),
                _ => Key::default(),
            };
            let ends = behind.as_ref().filter(|(family, _)| *family == file.column_family);
            if let Some(range) = KeyRange::new(begins, ends.map(|(_, key)| key.clone())) {
                surveyed.entry(file.column_family.clone()).or_insert(range);
            }
        }
        self.next = behind;
        surveyed
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const INTERVAL: Duration = Duration::from_secs(60);

    fn file(column_family: &str, smallest: &[u8]) -> SstFile {
        SstFile {
            number: 1,
            column_family: column_family.to_owned(),
            level: 6,
            size_bytes: 1,
            entries: 1,
            deletions: 1,
            smallest: Key::new(smallest),
            largest: Key::new(smallest),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seen(surveyed: &Surveyed, files: &[SstFile]) -> BTreeSet<usize> {
        let is_in = |file: &SstFile| {
            surveyed.get(&file.column_family).is_some_and(|range| range.contains(&file.smallest))
        };
        (0..files.len()).filter(|at| is_in(&files[*at])).collect()
    }

    /// So many files in two column families.
    fn files(count: u32) -> Vec<SstFile> {
        (0..count).map(|at| file(["a", "b"][(at % 2) as usize], &at.to_be_bytes())).collect()
    }

    #[test]
    fn a_pass_over_a_hundred_thousand_files_takes_an_interval_and_none_is_left_out() {
        let files = files(100_000);
        let mut cursor = SurveyCursor::default();
        let mut all = BTreeSet::new();
        for turn in 0..=12 {
            let surveyed = cursor.advance(&files, INTERVAL, at(turn * 5));
            let seen = seen(&surveyed, &files);
            assert!(seen.len() <= 100_000 / 12 + 1, "{}", seen.len());
            assert!(seen.is_disjoint(&all), "{turn}");
            all.extend(seen);
        }
        assert_eq!(all.len(), files.len());
    }

    #[test]
    fn after_a_restart_it_goes_on_where_it_was() {
        let files = files(10_000);
        let mut cursor = SurveyCursor::default();
        let first = seen(&cursor.advance(&files, INTERVAL, at(0)), &files);
        let stored = serde_json::to_string(&cursor).unwrap();
        let mut cursor: SurveyCursor = serde_json::from_str(&stored).unwrap();
        let second = seen(&cursor.advance(&files, INTERVAL, at(5)), &files);
        assert_eq!((first.len(), second.len()), (FILES_MIN, FILES_MIN));
        assert!(first.is_disjoint(&second));
        // Down for longer than the interval: the rest at once.
        let rest = seen(&cursor.advance(&files, INTERVAL, at(500)), &files);
        assert_eq!(rest.len(), files.len() - 2 * FILES_MIN);
    }

    #[test]
    fn a_small_database_is_looked_at_as_a_whole_each_time() {
        let files = files(1_000);
        let mut cursor = SurveyCursor::default();
        for turn in 0..3 {
            let surveyed = cursor.advance(&files, INTERVAL, at(turn));
            assert!(surveyed.values().all(|range| *range == KeyRange::everything()), "{surveyed:?}");
            assert_eq!(surveyed.len(), 2);
        }
        assert_eq!(cursor.advance(&[], INTERVAL, at(9)), Surveyed::new());
    }

    proptest! {
        /// Files come and go, and many begin at the same key: those that stay are all seen in two passes.
        #[test]
        fn whatever_comes_and_goes_files_that_stay_are_seen(
            stays in proptest::collection::vec((0u8..3, proptest::collection::vec(0u8..4, 0..4)), 1..40),
            others in proptest::collection::vec((0u8..3, 0u16..4000, 0usize..4000), 30),
        ) {
            let family = |number: u8| ["a", "b", "c"][usize::from(number)];
            let stays: Vec<SstFile> = stays.iter().map(|(number, key)| file(family(*number), key)).collect();
            let mut cursor = SurveyCursor::default();
            let mut all = BTreeSet::new();
            for (turn, (number, first, count)) in (0..).zip(&others) {
                // Others lie behind each other, or all begin at the same key.
                let step = turn % 2;
                let key = |at: usize| first.wrapping_add(at as u16 * step as u16).to_be_bytes();
                let others = (0..*count).map(|at| file(family(*number), &key(at)));
                let files: Vec<SstFile> = stays.iter().cloned().chain(others).collect();
                let surveyed = cursor.advance(&files, INTERVAL, at(turn * 5));
                all.extend(seen(&surveyed, &stays));
            }
            prop_assert_eq!(all.len(), stays.len());
        }
    }
}
