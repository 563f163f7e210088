//! The older, the wider: stretches of time in layers, as TiDB's key visualizer keeps them.

use super::bucket::Bucket;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Stretches of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// `1min`, ...: what its file is called.
    pub name: &'static str,
    pub width_s: i64,
    /// How long it keeps them; then the next layer has them.
    pub span_s: i64,
}

/// From the finest to the coarsest; each width is a whole number of times the one before.
pub const LAYERS: [Layer; 5] = [
    Layer { name: "1min", width_s: 60, span_s: 3_600 },
    Layer { name: "2min", width_s: 120, span_s: 8 * 3_600 },
    Layer { name: "6min", width_s: 360, span_s: 24 * 3_600 },
    Layer { name: "30min", width_s: 1_800, span_s: 7 * 24 * 3_600 },
    Layer { name: "4h", width_s: 14_400, span_s: 35 * 24 * 3_600 },
];

/// Most cells of all stretches: some 40 MiB with the longest keys. A node whose readers lose time in a
/// hundred ranges at any time of five weeks has fewer.
pub const CELLS_MAX: usize = 131_072;

/// Most times of column families of all stretches: some 10 MiB. A node whose readers ask twenty column
/// families at any time of five weeks has as many.
pub const TIMES_IN_ALL_MAX: usize = 16_384;

/// Fewest cells that a stretch is merged down to for want of room.
const CELLS_KEPT_MIN: usize = 16;

/// Stretches beyond a layer's span that it may have: those whose next wider stretch is not over, and those of
/// a clock that was set back.
const STRETCHES_EXCESS_MAX: usize = 16;

/// Five weeks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// By the beginning of each stretch, seconds since the Unix epoch.
    layers: [BTreeMap<i64, Arc<Bucket>>; LAYERS.len()],
}

impl History {
    /// Takes in what was counted at `now_s`.
    pub fn record(&mut self, now_s: i64, counted: &Bucket) {
        if !counted.is_empty() {
            let [finest, ..] = &mut self.layers;
            let [layer, ..] = LAYERS;
            let begin = aligned(now_s, layer.width_s);
            Arc::make_mut(finest.entry(begin).or_default()).merge(counted.clone());
        }
        self.age(now_s);
    }

    /// Puts back what was stored of a layer. What a wider stretch has already is left out: whoever stored it
    /// ended before the finer layer was stored without it. So the widest layer comes first.
    pub fn restore(&mut self, layer: usize, begin_s: i64, stored: &Bucket) {
        let begin_s = aligned(begin_s, LAYERS.get(layer).map_or(1, |layer| layer.width_s));
        let is_known = (layer + 1..LAYERS.len()).any(|wider| {
            let width_s = LAYERS.get(wider).map_or(1, |wider| wider.width_s);
            self.layers.get(wider).is_some_and(|buckets| buckets.contains_key(&aligned(begin_s, width_s)))
        });
        let Some(buckets) = self.layers.get_mut(layer).filter(|_| !is_known && !stored.is_empty()) else {
            return;
        };
        Arc::make_mut(buckets.entry(begin_s).or_default()).merge(stored.clone());
        self.keep_within_limit();
    }

    /// The stretches of one layer, oldest first, with their beginnings.
    pub fn layer(&self, layer: usize) -> impl Iterator<Item = (i64, &Bucket)> {
        self.layers.get(layer).into_iter().flatten().map(|(begin, bucket)| (*begin, &**bucket))
    }

    /// All stretches that end after `since_s`, oldest first: beginning, length in seconds, and what was
    /// counted in them.
    pub(super) fn since(&self, since_s: i64) -> Vec<(i64, i64, &Arc<Bucket>)> {
        let layers = LAYERS.iter().zip(&self.layers);
        let all = layers.flat_map(|(layer, buckets)| {
            buckets.iter().map(|(begin, bucket)| (*begin, layer.width_s, bucket))
        });
        let mut stretches: Vec<_> = all.filter(|(begin, width, _)| begin + width > since_s).collect();
        stretches.sort_by_key(|(begin, width, _)| (*begin, *width));
        stretches
    }

    pub fn cells(&self) -> usize {
        self.layers.iter().flat_map(BTreeMap::values).map(|bucket| bucket.len()).sum()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.layers.iter().flat_map(BTreeMap::values).all(|bucket| bucket.is_empty())
    }

    fn times(&self) -> usize {
        self.layers.iter().flat_map(BTreeMap::values).map(|bucket| bucket.times.len()).sum()
    }

    /// Which layers differ from an earlier state of the same history.
    pub fn changed_since<'a>(&'a self, earlier: &'a History) -> impl Iterator<Item = usize> + 'a {
        let is_same = |one: &BTreeMap<i64, Arc<Bucket>>, two: &BTreeMap<i64, Arc<Bucket>>| {
            one.len() == two.len()
                && one.iter().zip(two).all(|(one, two)| one.0 == two.0 && Arc::ptr_eq(one.1, two.1))
        };
        let layers = self.layers.iter().zip(&earlier.layers).enumerate();
        layers.filter(move |(_, (now, before))| !is_same(now, before)).map(|(layer, _)| layer)
    }

    /// What has become too old for its layer goes to the next one, all that is in one of its stretches at
    /// once; what is too old for the last one is forgotten.
    fn age(&mut self, now_s: i64) {
        for number in 0..LAYERS.len() {
            let (Some(layer), next) = (LAYERS.get(number), LAYERS.get(number + 1)) else { return };
            let width_s = next.map_or(layer.width_s, |next| next.width_s);
            let kept_max = usize::try_from(layer.span_s / layer.width_s).unwrap_or(usize::MAX);
            let kept_max = kept_max.saturating_add(STRETCHES_EXCESS_MAX);
            while let Some((begin, group)) = self.oldest(number, width_s) {
                let is_old = begin.saturating_add(width_s) <= now_s.saturating_sub(layer.span_s);
                let count = self.layers.get(number).map_or(0, BTreeMap::len);
                if !is_old && count <= kept_max {
                    break;
                }
                for old in group {
                    let bucket = self.layers.get_mut(number).and_then(|buckets| buckets.remove(&old));
                    let Some((bucket, wider)) = bucket.zip(self.layers.get_mut(number + 1)) else { continue };
                    Arc::make_mut(wider.entry(begin).or_default()).merge(Arc::unwrap_or_clone(bucket));
                }
            }
        }
        self.keep_within_limit();
    }

    /// The oldest stretches of a layer that lie in one of `width_s`, and where that begins.
    fn oldest(&self, layer: usize, width_s: i64) -> Option<(i64, Vec<i64>)> {
        let buckets = self.layers.get(layer)?;
        let begin = aligned(*buckets.keys().next()?, width_s);
        let group = buckets.range(begin..begin.saturating_add(width_s)).map(|(begin, _)| *begin);
        Some((begin, group.collect()))
    }

    /// Where there is no room, the stretch with most column families keeps half of them.
    fn keep_times_within_limit(&mut self) {
        while self.times() > TIMES_IN_ALL_MAX {
            let all = self.layers.iter_mut().flat_map(BTreeMap::values_mut);
            let Some(largest) = all.max_by_key(|bucket| bucket.times.len()) else { return };
            let kept = largest.times.len() / 2;
            Arc::make_mut(largest).leave_out_times(kept);
        }
    }

    fn keep_within_limit(&mut self) {
        self.keep_times_within_limit();
        while self.cells() > CELLS_MAX {
            let all = self.layers.iter_mut().flat_map(BTreeMap::values_mut);
            let Some(largest) = all.max_by_key(|bucket| bucket.len()) else { return };
            let fewer = (largest.len() / 2).max(largest.places());
            if fewer >= CELLS_KEPT_MIN && fewer < largest.len() {
                Arc::make_mut(largest).shrink(fewer);
            } else {
                // Nothing is left to merge but column families.
                let coarsest = self.layers.iter_mut().rev().find(|buckets| !buckets.is_empty());
                if coarsest.and_then(BTreeMap::pop_first).is_none() {
                    return;
                }
            }
        }
    }
}

/// The beginning of the stretch of this width that a moment lies in.
fn aligned(moment_s: i64, width_s: i64) -> i64 {
    moment_s.saturating_sub(moment_s.rem_euclid(width_s.max(1)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::amounts::{Amounts, Metric};
    use super::super::bucket::tests::{cell, counted, is_close, is_in_order, place};
    use super::super::bucket::{INTERVALS_MAX, Place};
    use super::super::cell::Cell;
    use super::*;
    use crate::facts::key::Key;
    use crate::facts::range::KeyRange;
    use crate::facts::waits::Times;
    use proptest::prelude::*;

    const WEEK_S: i64 = 7 * 24 * 3_600;

    fn total(history: &History) -> Amounts {
        let all = history.layers.iter().flat_map(BTreeMap::values);
        all.fold(Amounts::default(), |sum, bucket| sum.plus(bucket.total()))
    }

    #[test]
    fn times_are_bounded_and_the_busiest_stay() {
        let mut history = History::default();
        let times = |number: u64| {
            let place = Place { column_family: format!("{number:04}"), ..Place::default() };
            (place, Times::new(&[number + 1], &[number + 1]))
        };
        for minute in 0..150 {
            let counted = Bucket::default().with_times((0..300).map(times));
            history.record(1_790_000_000 + minute * 60, &counted);
        }
        assert!(history.times() <= TIMES_IN_ALL_MAX, "{}", history.times());
        let left = history.since(0).into_iter().flat_map(|(_, _, bucket)| bucket.times());
        let busiest = left.filter(|(place, _)| place.column_family == "0299");
        assert_eq!(busiest.map(|(_, times)| times.lists.count()).sum::<u64>(), 150 * 300);
        history.record(1_790_000_000 + 20 * WEEK_S, &Bucket::default());
        assert!(history.is_empty());
    }

    fn one(pain: f64) -> Bucket {
        let sums = Amounts::default().with(Metric::Pain, pain);
        Bucket::of([(place(0), Cell::new(&KeyRange::everything(), sums, 1.0))])
    }

    #[test]
    fn widths_nest() {
        for two in LAYERS.windows(2) {
            let [one, two] = two else { continue };
            assert_eq!(two.width_s % one.width_s, 0);
            assert!(two.span_s > one.span_s);
        }
    }

    #[test]
    fn five_weeks_of_minutes_are_kept_whole_and_then_forgotten() {
        let mut history = History::default();
        let begin = 1_790_000_000;
        let minutes = 35 * 24 * 60;
        for minute in 0..minutes {
            history.record(begin + minute * 60, &one(1.0));
        }
        assert_eq!(total(&history).get(Metric::Pain), minutes as f64);
        let lengths: Vec<usize> = history.layers.iter().map(BTreeMap::len).collect();
        let expected = [(60, 63), (210, 215), (160, 166), (288, 297), (168, 170)];
        for (length, (least, most)) in lengths.iter().zip(expected) {
            assert!((least..=most).contains(length), "{lengths:?}");
        }
        let stretches = history.since(0);
        let gapless = stretches.windows(2).all(|two| match two {
            [(begin, width, _), (next, _, _)] => begin + width == *next,
            _ => true,
        });
        assert!(gapless, "no time is in two stretches or in none");
        history.record(begin + 5 * WEEK_S + WEEK_S, &one(0.0));
        let left = total(&history).get(Metric::Pain);
        let stretch = f64::from(28 * 24 * 60_u32)..=f64::from(28 * 24 * 60 + 4 * 60_u32);
        assert!(stretch.contains(&left), "four weeks, and a stretch that has not ended then: {left}");
        history.record(begin + 20 * WEEK_S, &Bucket::default());
        assert_eq!(history.cells(), 0);
    }

    #[test]
    fn cells_are_bounded_and_nothing_counted_is_lost() {
        let mut history = History::default();
        let cells = |minute: i64| {
            let range = move |number: i64| {
                let begin = Key::new(format!("{:06}", number * 7 + minute % 5));
                KeyRange::new(begin.clone(), Some(begin.successor())).unwrap()
            };
            let sums = Amounts::default().with(Metric::Pain, 1.0);
            let all = (0..2_000).map(move |number| (place(0), Cell::new(&range(number), sums, 1.0)));
            Bucket::of(all)
        };
        for minute in 0..100 {
            history.record(1_790_000_000 + minute * 60, &cells(minute));
        }
        assert!(history.cells() <= CELLS_MAX, "{}", history.cells());
        assert!(is_close(total(&history), Amounts::default().with(Metric::Pain, 200_000.0)));
    }

    #[test]
    fn what_a_wider_stretch_has_is_not_taken_twice() {
        let mut history = History::default();
        history.restore(1, 1_200, &one(2.0));
        history.restore(0, 1_260, &one(1.0));
        history.restore(0, 1_320, &one(4.0));
        assert_eq!(total(&history).get(Metric::Pain), 6.0);
    }

    #[test]
    fn only_changed_layers_differ() {
        let mut history = History::default();
        history.record(600, &one(1.0));
        let before = history.clone();
        assert_eq!(history.changed_since(&before).count(), 0);
        history.record(610, &one(1.0));
        assert_eq!(history.changed_since(&before).collect::<Vec<_>>(), [0]);
        history.record(600 + 2 * 3_600, &one(1.0));
        assert_eq!(history.changed_since(&before).collect::<Vec<_>>(), [0, 1]);
    }

    fn moments() -> impl Strategy<Value = Vec<(i64, Vec<(Place, Cell)>)>> {
        let step = prop_oneof![0i64..300, -7_200i64..7_200, 0i64..400_000];
        proptest::collection::vec((step, counted()), 1..40).prop_map(|steps| {
            let mut now = 1_790_000_000;
            steps
                .into_iter()
                .map(|(step, counted)| {
                    now += step;
                    (now, counted)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn whatever_the_clock_does(moments in moments(), last in cell()) {
            let mut history = History::default();
            let mut expected = Amounts::default();
            let first = moments.first().map_or(0, |(at, _)| *at);
            for (at, counted) in &moments {
                expected = counted.iter().fold(expected, |sum, (_, cell)| sum.plus(cell.sums));
                history.record(*at, &Bucket::of(counted.clone()));
                for (layer, buckets) in LAYERS.iter().zip(&history.layers) {
                    let most = usize::try_from(layer.span_s / layer.width_s).unwrap() + STRETCHES_EXCESS_MAX;
                    prop_assert!(buckets.len() <= most);
                    prop_assert!(buckets.values().all(|bucket| is_in_order(bucket)));
                    prop_assert!(buckets.values().all(|bucket| bucket.len() <= INTERVALS_MAX));
                    prop_assert!(buckets.keys().all(|begin| begin % layer.width_s == 0));
                }
                prop_assert!(history.cells() <= CELLS_MAX);
            }
            let (lowest, highest) = moments.iter().fold((first, first), |(low, high), (at, _)| {
                (low.min(*at), high.max(*at))
            });
            if highest - lowest < 34 * 24 * 3_600 {
                prop_assert!(is_close(total(&history), expected), "nothing is lost within five weeks");
            }
            let mut restored = History::default();
            for layer in (0..LAYERS.len()).rev() {
                for (begin, bucket) in history.layer(layer) {
                    restored.restore(layer, begin, bucket);
                }
            }
            // A clock that was set back by more than a layer has leaves fine stretches beside wide ones.
            if moments.windows(2).all(|two| matches!(two, [one, two] if one.0 <= two.0)) {
                prop_assert_eq!(&restored, &history);
            }
            restored.record(highest, &Bucket::of([(place(1), last)]));
        }
    }
}
