//! The history as the outside may see it: keys leave it as the policy allows.

use super::range::PublishedRanges;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton_tuner::history::{Cell, Column, Drawn, History, Metric, Place, Row, Statistic, Stretch};
use sexton_tuner::latency::LatencyHistogram;
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::waits::Times;
use sexton_tuner::words;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Column families whose sums are listed: those that lost most.
const FAMILIES_MAX: usize = 64;

/// The history of one moment. What is in it can be had by the functions below only, with redacted keys.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    history: History,
    keys: KeyDisplay,
    ranges: Arc<PublishedRanges>,
}

/// Pain, or something else, by keys and time.
#[derive(Serialize, JsonSchema)]
pub struct HeatmapView {
    pub metric: Metric,
    pub statistic: Statistic,
    /// Intervals of keys, by column family and key.
    pub rows: Vec<RowView>,
    /// Stretches of time, oldest first; old ones are longer.
    pub columns: Vec<ColumnView>,
}

#[derive(Serialize, JsonSchema)]
pub struct RowView {
    pub target: String,
    pub database: String,
    pub column_family: String,
    /// First key, redacted unless the policy shows keys; empty: from the start.
    pub begin: String,
    /// The key behind the last one; `None`: to the end.
    pub end: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub struct ColumnView {
    pub begin_unix_seconds: i64,
    pub length_seconds: i64,
    /// Numbers of the rows that have a value, from 0.
    pub rows: Vec<usize>,
    /// Their values: seconds, or counts, or those a second.
    pub values: Vec<f32>,
    /// Numbers of the rows in which actions ended.
    pub acted_on: Vec<usize>,
}

/// What was counted in some keys in a stretch of time.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CountedView {
    /// Reader time lost, seconds.
    pub pain_seconds: f64,
    /// The greatest pain that an interval of them had, seconds a second.
    pub pain_seconds_per_second_max: f64,
    /// Operations that lost time.
    pub operations: f64,
    pub tombstones_skipped: f64,
    pub block_misses: f64,
    /// Bytes that actions have rewritten.
    pub bytes_compacted: f64,
    /// Actions that ended.
    pub actions: f64,
}

impl From<&Cell> for CountedView {
    fn from(cell: &Cell) -> CountedView {
        let sum = |metric| cell.sums.get(metric);
        CountedView {
            pain_seconds: sum(Metric::Pain),
            pain_seconds_per_second_max: cell.peaks.get(Metric::Pain),
            operations: sum(Metric::Operations),
            tombstones_skipped: sum(Metric::TombstonesSkipped),
            block_misses: sum(Metric::BlockMisses),
            bytes_compacted: sum(Metric::BytesCompacted),
            actions: sum(Metric::Actions),
        }
    }
}

/// How long operations took, by those that windows have seen. Quantiles lie within a power of two; `None`: no
/// operation was seen.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TimesView {
    /// Operations that ended within a window.
    pub lists: u64,
    /// From the positioning call to the operation's end, the caller's own time included.
    pub list_p50_seconds: Option<f64>,
    pub list_p99_seconds: Option<f64>,
    /// Positioning calls alone, from entry to return.
    pub seek_p50_seconds: Option<f64>,
    pub seek_p99_seconds: Option<f64>,
}

/// How long operations took in a stretch of time, in all column families that were asked for together.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StretchView {
    pub begin_unix_seconds: i64,
    pub length_seconds: i64,
    #[serde(flatten)]
    pub times: TimesView,
}

/// What was counted in column families over time.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FamiliesView {
    /// By stretch of time, oldest first.
    pub rows: Vec<FamilyView>,
    /// Column families that are not among them: there are more in which readers lost more.
    pub families_left_out: usize,
    /// How long operations took, oldest first: of all column families, those left out above among them.
    pub stretches: Vec<StretchView>,
}

/// What was counted in a column family in a stretch of time.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FamilyView {
    pub begin_unix_seconds: i64,
    pub length_seconds: i64,
    pub target: String,
    pub database: String,
    pub column_family: String,
    #[serde(flatten)]
    pub counted: CountedView,
    #[serde(flatten)]
    pub times: TimesView,
}

impl Shown {
    pub fn new(history: History, keys: KeyDisplay) -> Shown {
        Shown { history, keys, ranges: Arc::default() }
    }

    /// With where the published ranges lie.
    pub fn with_ranges(self, ranges: PublishedRanges) -> Shown {
        Shown { ranges: Arc::new(ranges), ..self }
    }

    pub(super) fn history(&self) -> &History {
        &self.history
    }

    pub(super) fn ranges(&self) -> &PublishedRanges {
        &self.ranges
    }

    /// Whether both show the same, and in the same way. Cheap: what has not changed is shared by both.
    pub fn is_same(&self, other: &Shown) -> bool {
        self.keys == other.keys && self.history.changed_since(&other.history).next().is_none()
    }

    /// Whether both show keys in the same way.
    pub fn shows_keys_alike(&self, other: &Shown) -> bool {
        self.keys == other.keys
    }

    /// The same with redacted keys.
    pub fn redacted(&self) -> Shown {
        Shown { keys: KeyDisplay::Redacted, ..self.clone() }
    }

    pub fn heatmap(&self, drawn: &Drawn) -> HeatmapView {
        let heatmap = self.history.heatmap(drawn);
        HeatmapView {
            metric: drawn.metric,
            statistic: drawn.statistic,
            rows: heatmap.rows.into_iter().map(|row| self.row(row)).collect(),
            columns: heatmap.columns.into_iter().map(column).collect(),
        }
    }

    fn row(&self, Row { place, range }: Row) -> RowView {
        let Place { target, database, column_family } = place;
        let key = |key| words::key(key, self.keys);
        let (begin, end) = (key(&range.begin), range.end.as_ref().map(key));
        RowView { target, database, column_family, begin, end }
    }

    pub fn families(&self, drawn: &Drawn) -> FamiliesView {
        let stretches = self.history.by_column_family(drawn);
        let (listed, families_left_out) = most_painful(&stretches);
        let rows = stretches.iter().flat_map(|stretch| {
            let known: BTreeSet<&Arc<Place>> = stretch.counted.keys().chain(stretch.times.keys()).collect();
            let listed = known.into_iter().filter(|place| listed.contains(*place));
            listed.map(|place| family(stretch, place))
        });
        let together = stretches.iter().filter(|stretch| !stretch.times.is_empty());
        FamiliesView { rows: rows.collect(), families_left_out, stretches: together.map(all_of).collect() }
    }
}

/// The column families to be listed, and how many are not.
fn most_painful(stretches: &[Stretch]) -> (BTreeSet<Arc<Place>>, usize) {
    let mut pain: BTreeMap<&Arc<Place>, (f64, u64)> = BTreeMap::new();
    for stretch in stretches {
        for (place, cell) in &stretch.counted {
            pain.entry(place).or_default().0 += cell.sums.get(Metric::Pain);
        }
        for (place, times) in &stretch.times {
            let (_, lists) = pain.entry(place).or_default();
            *lists = lists.saturating_add(times.lists.count());
        }
    }
    let mut by_pain: Vec<_> = pain.into_iter().collect();
    by_pain.sort_by(|(_, one), (_, two)| two.0.total_cmp(&one.0).then(two.1.cmp(&one.1)));
    let left_out = by_pain.len().saturating_sub(FAMILIES_MAX);
    (by_pain.into_iter().take(FAMILIES_MAX).map(|(place, _)| Arc::clone(place)).collect(), left_out)
}

/// Seven digits are more than anybody sees.
fn column(column: Column) -> ColumnView {
    ColumnView {
        begin_unix_seconds: column.begin_s,
        length_seconds: column.length_s,
        rows: column.values.iter().map(|(row, _)| *row).collect(),
        values: column.values.iter().map(|(_, value)| *value as f32).collect(),
        acted_on: column.acted_on,
    }
}

fn all_of(stretch: &Stretch) -> StretchView {
    let mut together = Times::default();
    stretch.times.values().for_each(|times| together.merge(times));
    StretchView {
        begin_unix_seconds: stretch.begin_s,
        length_seconds: stretch.length_s,
        times: times_view(&together),
    }
}

fn times_view(times: &Times) -> TimesView {
    let seconds = |histogram: &LatencyHistogram, share| histogram.quantile_ns(share).map(|ns| ns / 1e9);
    TimesView {
        lists: times.lists.count(),
        list_p50_seconds: seconds(&times.lists, 0.5),
        list_p99_seconds: seconds(&times.lists, 0.99),
        seek_p50_seconds: seconds(&times.seeks, 0.5),
        seek_p99_seconds: seconds(&times.seeks, 0.99),
    }
}

fn family(stretch: &Stretch, place: &Arc<Place>) -> FamilyView {
    FamilyView {
        begin_unix_seconds: stretch.begin_s,
        length_seconds: stretch.length_s,
        target: place.target.clone(),
        database: place.database.clone(),
        column_family: place.column_family.clone(),
        counted: stretch.counted.get(place).map(CountedView::from).unwrap_or_default(),
        times: stretch.times.get(place).map(times_view).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use sexton_tuner::history::{Amounts, Bucket, Cell};
    use sexton_tuner::key::Key;
    use sexton_tuner::range::KeyRange;

    fn history(families: usize) -> History {
        let range = KeyRange::with_prefix(Key::new("/vol/secret"));
        let cell = |pain| Cell::new(&range, Amounts::default().with(Metric::Pain, pain), 1.0);
        let place = |number| Place { column_family: format!("{number:04}"), ..Place::default() };
        let mut history = History::default();
        history.record(600, &Bucket::of((0..families).map(|number| (place(number), cell(number as f64)))));
        history
    }

    #[test]
    fn keys_are_redacted_unless_the_policy_shows_them() {
        let drawn = Drawn { rows_max: 9, ..Drawn::default() };
        let shown = |keys| {
            let shown = Shown::new(history(2), keys);
            format!("{shown:?}{}", serde_json::to_string(&shown.heatmap(&drawn)).unwrap())
        };
        assert!(!shown(KeyDisplay::Redacted).contains("secret"));
        assert!(shown(KeyDisplay::Shown).contains("/vol/secret"));
    }

    #[test]
    fn how_long_operations_took_is_told_by_column_family_and_together() {
        let mut history = History::default();
        let place = |name: &str| Place { column_family: name.to_owned(), ..Place::default() };
        // A hundred lists of a second and more, and as many of a microsecond and more.
        let slow = Times::new(&[], &[[0; 30].as_slice(), &[100]].concat());
        let fast = Times::new(&[0, 0, 1], &[[0; 10].as_slice(), &[100]].concat());
        let times = [(place("slow"), slow), (place("fast"), fast)];
        history.record(600, &Bucket::default().with_times(times));
        let view = |column_family: Option<&str>| {
            let drawn = Drawn { column_family: column_family.map(str::to_owned), ..Drawn::default() };
            Shown::new(history.clone(), KeyDisplay::Redacted).families(&drawn)
        };
        let all = view(None);
        assert_eq!((all.rows.len(), all.stretches.len()), (2, 1));
        let together = &all.stretches.first().unwrap().times;
        assert_eq!(together.lists, 200);
        assert!(together.list_p50_seconds.unwrap() < 3e-6 && together.list_p99_seconds.unwrap() > 1.0);
        let fast = view(Some("fast"));
        let (row, stretch) = (fast.rows.first().unwrap(), fast.stretches.first().unwrap());
        assert!(row.times.list_p99_seconds.unwrap() < 3e-6 && stretch.times.lists == 100);
        assert!(row.times.seek_p50_seconds.is_some() && row.counted.pain_seconds == 0.0);
        let slow = view(Some("slow"));
        assert_eq!(slow.rows.first().unwrap().times.seek_p50_seconds, None);
    }

    #[test]
    fn the_column_families_that_lost_most_are_listed() {
        let shown = Shown::new(history(FAMILIES_MAX + 3), KeyDisplay::Redacted);
        let families = shown.families(&Drawn::default());
        assert_eq!((families.rows.len(), families.families_left_out), (FAMILIES_MAX, 3));
        assert_eq!(families.rows.first().unwrap().column_family, "0003");
    }
}
