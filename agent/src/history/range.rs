//! What was counted in one published range over time. Its keys stay in here: it is asked for by its id.

use super::view::{CountedView, Shown};
use schemars::JsonSchema;
use serde::Serialize;
use sexton_tuner::history::Place;
use sexton_tuner::range::KeyRange;
use std::collections::BTreeMap;

/// Where the published ranges lie, by their ids.
pub type PublishedRanges = BTreeMap<String, (Place, KeyRange)>;

/// What was counted in the intervals of keys that a range meets, in one stretch of time.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct RangeStretchView {
    pub begin_unix_seconds: i64,
    pub length_seconds: i64,
    #[serde(flatten)]
    pub counted: CountedView,
}

impl Shown {
    /// The stretches since `since_s`, seconds since the Unix epoch, in which something was counted in the
    /// range of this id, oldest first.
    pub fn in_range(&self, id: &str, since_s: i64) -> Vec<RangeStretchView> {
        let Some((place, range)) = self.ranges().get(id) else { return Vec::new() };
        let stretches = self.history().in_range(place, range, since_s).into_iter();
        let views = stretches.map(|(begin, length, cell)| RangeStretchView {
            begin_unix_seconds: begin,
            length_seconds: length,
            counted: CountedView::from(&cell),
        });
        views.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::history::{Amounts, Bucket, Cell, History, Metric};
    use sexton_tuner::key::Key;
    use sexton_tuner::policy::KeyDisplay;

    #[test]
    fn a_range_has_what_its_keys_had_and_no_more() {
        let range = |begin: &str, end: &str| KeyRange::new(Key::new(begin), Some(Key::new(end))).unwrap();
        let cell = |begin, end, pain| {
            Cell::new(&range(begin, end), Amounts::default().with(Metric::Pain, pain), 1.0)
        };
        let cells = [cell("a", "b", 8.0), cell("b", "c", 2.0), cell("c", "d", 1.0)];
        let mut history = History::default();
        history.record(600, &Bucket::of(cells.map(|cell| (Place::default(), cell))));
        history.record(720, &Bucket::of([(Place::default(), cell("x", "y", 1.0))]));
        let ranges = PublishedRanges::from([("r".to_owned(), (Place::default(), range("b", "d")))]);
        let shown = Shown::new(history, KeyDisplay::Redacted).with_ranges(ranges);
        let [stretch] = shown.in_range("r", 0).try_into().unwrap();
        assert_eq!((stretch.begin_unix_seconds, stretch.counted.pain_seconds), (600, 3.0));
        assert_eq!(stretch.counted.pain_seconds_per_second_max, 2.0);
        assert_eq!(shown.in_range("r", 660), []);
        assert_eq!(shown.in_range("other", 0), []);
    }
}
