//! Where keys lie among those that are known.
//!
//! Between a file's smallest and its largest key nobody says where its entries lie, and the bytes of keys do
//! not tell: counters in decimal digits use ten of the 256 values of a byte. What is known is the order of
//! the keys that files begin and end at, and how many entries each file has. These keys are the marks of the
//! ruler, and between two of them lie as many entries as the files have there that reach over both. Keys of
//! other bytes in the same order give the same ruler.

use crate::facts::evidence::SstFile;
use crate::facts::key::Key;

/// How often a file's entries are shared out by what all files have: evenly at first, so that what is known
/// of narrow files tells where a wide one has its entries.
const ROUNDS: usize = 2;

/// Two neighbouring marks are at least this far apart, in entries: none lies where another one does.
const APART_MIN: f64 = 1e-6;

/// Where a span has less than this share of everything, differences of running sums do not tell how much.
const EXACT_SHARE_MIN: f64 = 1e-6;

/// A place in the order of keys: right before a key, or right behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark<'k> {
    bytes: &'k [u8],
    is_behind: bool,
}

impl<'k> Mark<'k> {
    /// Before all keys.
    pub(crate) const FIRST: Mark<'static> = Mark { bytes: &[], is_behind: false };

    /// Right before a key. A key that ends with the least byte is the next one to the rest of it, so before
    /// it is behind that.
    pub(crate) fn before(key: &'k Key) -> Mark<'k> {
        match key.as_bytes() {
            [rest @ .., 0] => Mark { bytes: rest, is_behind: true },
            bytes => Mark { bytes, is_behind: false },
        }
    }

    pub(crate) fn behind(key: &'k Key) -> Mark<'k> {
        Mark { bytes: key.as_bytes(), is_behind: true }
    }

    /// Where a file's keys begin and end; the wrong way round they are only in a broken one.
    pub(crate) fn around(file: &'k SstFile) -> (Mark<'k>, Mark<'k>) {
        let (smallest, largest) = (&file.smallest, &file.largest);
        (Mark::before(smallest.min(largest)), Mark::behind(largest.max(smallest)))
    }
}

/// Marks in order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Of all keys, one after the other.
    bytes: Vec<u8>,
    /// Where a key's bytes end, and whether the mark is behind it.
    ends: Vec<(usize, bool)>,
}

impl Marks {
    /// The marks of some spans of keys, and the spans by the numbers of their marks.
    pub(crate) fn of(spans: &[(Mark<'_>, Mark<'_>)]) -> (Marks, Vec<(usize, usize)>) {
        let ends =
            (0..).zip(spans).flat_map(|(place, (low, high))| [(*low, 2 * place), (*high, 2 * place + 1)]);
        let mut ends: Vec<(Mark<'_>, usize)> = ends.collect();
        ends.sort();
        let mut marks = Marks::default();
        let mut numbers = vec![(0, 0); spans.len()];
        let mut last = None;
        for (mark, place) in ends {
            if last != Some(mark) {
                marks.bytes.extend_from_slice(mark.bytes);
                marks.ends.push((marks.bytes.len(), mark.is_behind));
                last = Some(mark);
            }
            let number = marks.len() - 1;
            if let Some(span) = numbers.get_mut(place / 2) {
                *(if place % 2 == 0 { &mut span.0 } else { &mut span.1 }) = number;
            }
        }
        (marks, numbers)
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, number: usize) -> Option<Mark<'_>> {
        let (end, is_behind) = *self.ends.get(number)?;
        let begin =
            number.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |before| before.0);
        Some(Mark { bytes: self.bytes.get(begin..end)?, is_behind })
    }

    /// Whether between this mark and the next one there is a single key.
    fn is_one_key(&self, number: usize) -> bool {
        let (Some(mark), Some(next)) = (self.get(number), self.get(number + 1)) else { return false };
        match (mark.is_behind, next.bytes) {
            (false, bytes) => next.is_behind && bytes == mark.bytes,
            // Right before a key that ends with the least byte is behind the rest of it.
            (true, [rest @ .., 0]) => next.is_behind && rest == mark.bytes,
            (true, _) => false,
        }
    }

    /// How many entries lie in each interval, from what lies in spans that reach over it.
    pub(crate) fn densities(&self, spans: &[(usize, usize)], entries: &[f64]) -> Vec<f64> {
        let held =
            || spans.iter().copied().zip(entries.iter().copied()).filter(|(_, entries)| *entries > 0.0);
        let mut files = OverSpans::new(self.len());
        held().for_each(|(span, _)| files.add(span, 1.0));
        // Of one key there is at most one entry in each file.
        let most = files.amounts().enumerate();
        let most = most.map(|(place, files)| if self.is_one_key(place) { files } else { f64::MAX });
        let most: Vec<f64> = most.collect();
        let mut densities = vec![1.0; self.len()];
        for _ in 0..ROUNDS {
            densities = shared_out(&densities, held());
            densities
                .iter_mut()
                .zip(&most)
                .for_each(|(density, most)| *density = density.min(*most).max(APART_MIN));
        }
        densities
    }

    /// How many of the marks lie before this one, and whether it is among them itself.
    fn find(&self, mark: Mark<'_>) -> (usize, bool) {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(|other| other < mark) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low, self.get(low) == Some(mark))
    }
}

/// Amounts that hold for every interval from a mark to the next one, given for spans of marks.
pub(crate) struct OverSpans(Vec<f64>);

impl OverSpans {
    pub(crate) fn new(marks: usize) -> OverSpans {
        OverSpans(vec![0.0; marks])
    }

    pub(crate) fn add(&mut self, (first, last): (usize, usize), amount: f64) {
        if let Some(begin) = self.0.get_mut(first) {
            *begin += amount;
        }
        if let Some(end) = self.0.get_mut(last) {
            *end -= amount;
        }
    }

    /// The amount of each interval.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = f64> + '_ {
        let mut sum = 0.0;
        self.0.iter().map(move |more| {
            sum += more;
            sum
        })
    }
}

/// Running sums: what lies before each mark.
pub(crate) fn running(amounts: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let before = |amount: f64| {
        let before = sum;
        sum += amount;
        before
    };
    amounts.into_iter().map(before).collect()
}

/// What lies in a span, by running sums.
pub(crate) fn within(sums: &[f64], (first, last): (usize, usize)) -> f64 {
    let at = |place: usize| sums.get(place).or(sums.last()).copied().unwrap_or(0.0);
    (at(last) - at(first)).max(0.0)
}

/// Amounts that each belong to a span, shared out to its intervals by how thick these are: the sums.
pub(crate) fn shared_out(
    thickness: &[f64],
    amounts: impl IntoIterator<Item = ((usize, usize), f64)>,
) -> Vec<f64> {
    let sums = running(thickness.iter().copied());
    let exact_min = sums.last().copied().unwrap_or(0.0) * EXACT_SHARE_MIN;
    let mut over = OverSpans::new(thickness.len());
    let mut thin = vec![0.0; thickness.len()];
    for ((first, last), amount) in amounts {
        let here = within(&sums, (first, last));
        if here > exact_min {
            over.add((first, last), amount / here);
            continue;
        }
        let Some(own) = thickness.get(first..last) else { continue };
        let here: f64 = own.iter().sum();
        for (sum, own) in thin.iter_mut().skip(first).zip(own) {
            *sum += if here > 0.0 { amount * (own / here) } else { amount / (last - first) as f64 };
        }
    }
    let over = over.amounts().zip(thickness).map(|(amount, thickness)| (amount * thickness).max(0.0));
    over.zip(thin).map(|(over, thin)| over + thin).collect()
}

/// A length for each mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ruler {
    marks: Marks,
    /// Entries before each mark, as far as is known.
    lengths: Vec<f64>,
}

impl Ruler {
    /// Of marks, and the entries before each.
    pub(crate) fn new(marks: Marks, lengths: Vec<f64>) -> Ruler {
        Ruler { marks, lengths }
    }

    /// The first mark.
    pub(crate) fn first(&self) -> Option<Mark<'_>> {
        self.marks.get(0)
    }

    /// And the last one.
    pub(crate) fn last(&self) -> Option<Mark<'_>> {
        self.marks.get(self.marks.len().checked_sub(1)?)
    }

    /// Where a mark lies; one that is not known halfway between those that are.
    pub(crate) fn at(&self, mark: Mark<'_>) -> f64 {
        match self.marks.find(mark) {
            (0, false) => -1.0,
            (place, false) if place == self.marks.len() => self.lengths.last().map_or(0.0, |last| last + 1.0),
            (place, is_known) => {
                let at = |place: usize| self.lengths.get(place).copied().unwrap_or(0.0);
                let is_same =
                    |place: usize| self.marks.get(place).is_some_and(|other| other.bytes == mark.bytes);
                let (low, high) = (at(place.saturating_sub(1)), at(place));
                match (is_known, mark.is_behind) {
                    (true, _) => high,
                    // Of one key there is one entry.
                    (false, false) if is_same(place) => (high - 1.0).max((low + high) / 2.0),
                    (false, true) if is_same(place.saturating_sub(1)) => (low + 1.0).min((low + high) / 2.0),
                    _ => (low + high) / 2.0,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(2), Just(255)], 0..4).prop_map(Key::new)
    }

    /// From spans of keys and the entries in each, and where each span lies.
    fn ruler(spans: &[(Mark<'_>, Mark<'_>)], entries: &[u64]) -> (Ruler, Vec<(f64, f64)>) {
        let (marks, numbers) = Marks::of(spans);
        let entries: Vec<f64> = entries.iter().map(|entries| (*entries).max(1) as f64).collect();
        let lengths = running(marks.densities(&numbers, &entries));
        let places = numbers.iter().map(|(first, last)| (lengths[*first], lengths[*last])).collect();
        (Ruler::new(marks, lengths), places)
    }

    proptest! {
        #[test]
        fn marks_are_in_the_order_of_keys(one in key(), two in key()) {
            prop_assert_eq!(Mark::before(&one).cmp(&Mark::before(&two)), one.cmp(&two));
            prop_assert_eq!(Mark::behind(&one).cmp(&Mark::behind(&two)), one.cmp(&two));
            prop_assert_eq!(Mark::before(&one) < Mark::behind(&two), one <= two);
            let next = one.successor();
            prop_assert_eq!(Mark::before(&next), Mark::behind(&one));
        }

        #[test]
        fn a_ruler_keeps_the_order(
            files in proptest::collection::vec((key(), key(), 0u64..1000), 1..20),
            keys in (key(), key()),
        ) {
            let spans: Vec<(&Key, &Key)> =
                files.iter().map(|(one, two, _)| (one.min(two), one.max(two))).collect();
            let marks: Vec<_> =
                spans.iter().map(|(low, high)| (Mark::before(low), Mark::behind(high))).collect();
            let entries: Vec<u64> = files.iter().map(|file| file.2).collect();
            let (ruler, places) = ruler(&marks, &entries);
            for ((low, high), place) in marks.iter().zip(&places) {
                prop_assert_eq!((ruler.at(*low), ruler.at(*high)), *place);
                prop_assert!(place.0 < place.1);
            }
            let (one, two) = (Mark::before(&keys.0), Mark::before(&keys.1));
            if one <= two {
                prop_assert!(ruler.at(one) <= ruler.at(two));
            }
            for (low, high) in &marks {
                prop_assert_eq!(one <= *low, ruler.at(one) <= ruler.at(*low));
                prop_assert_eq!(one < *high, ruler.at(one) < ruler.at(*high));
            }
        }
    }

    /// Whatever the key's last byte is, of one key there is one entry.
    #[test]
    fn a_key_that_ends_with_the_least_byte_is_one_key() {
        for last in [0, 1] {
            let (first, key) = (Key::new([5]), Key::new([7, last]));
            let spans =
                [(Mark::before(&first), Mark::behind(&key)), (Mark::before(&key), Mark::behind(&key))];
            let (_, places) = ruler(&spans, &[100, 1]);
            let length = |number: usize| places[number].1 - places[number].0;
            assert!(length(1) <= 2.0 && length(0) > 50.0, "{last}: {places:?}");
        }
    }

    /// The wide file has its entries where the narrow ones are, and hardly any between them.
    #[test]
    fn wide_files_are_shared_out_by_what_narrow_ones_have() {
        let keys = ["a", "b", "c", "d"].map(Key::new);
        let span = |low: usize, high: usize| (Mark::before(&keys[low]), Mark::behind(&keys[high]));
        let (ruler, _) = ruler(&[span(0, 1), span(2, 3), span(0, 3)], &[900, 100, 100]);
        let length = |low: usize, high: usize| {
            ruler.at(Mark::behind(&keys[high])) - ruler.at(Mark::before(&keys[low]))
        };
        assert!((length(0, 3) - 1100.0).abs() < 1.0, "{}", length(0, 3));
        assert!(length(0, 1) > 950.0 && length(2, 3) > 100.0, "{} {}", length(0, 1), length(2, 3));
    }
}
