//! One level while a compaction goes through it: the live files, and in their midst those that it has put
//! there.
//!
//! A compaction changes a few files of a level that may have a hundred thousand. So only the part from the
//! first to the last changed file is copied, and what it looks at elsewhere is the live files themselves.

use crate::lsm::placed::{File, Span};
use std::ops::Range;

/// Files in order, by their places.
#[derive(Clone, Debug)]
pub(super) struct LevelView<'l> {
    live: &'l [File],
    /// These of the live files are not looked at any more,
    replaced: Range<usize>,
    /// but these in their place.
    files: Vec<File>,
}

impl<'l> LevelView<'l> {
    /// Nothing is changed yet.
    pub(super) fn of(live: &'l [File]) -> LevelView<'l> {
        LevelView { live, replaced: 0..0, files: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len() - self.replaced.len() + self.files.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<&File> {
        match place.checked_sub(self.replaced.start) {
            None => self.live.get(place),
            Some(inside) if inside < self.files.len() => self.files.get(inside),
            Some(inside) => self.live.get(inside - self.files.len() + self.replaced.end),
        }
    }

    /// From L1 on: where those lie that overlap a span.
    pub(super) fn overlapping(&self, span: &Span) -> Range<usize> {
        let first = self.partition_point(|file| file.end <= span.begin);
        let behind = self.partition_point(|file| file.begin < span.end);
        first..behind.max(first)
    }

    /// In L0: those that overlap a span, or one that is taken already, and so on: their places, in order.
    pub(super) fn drawn_in(&self, span: &Span) -> Vec<usize> {
        let mut span = *span;
        let mut taken = vec![false; self.len()];
        loop {
            let mut found = false;
            for (place, taken) in taken.iter_mut().enumerate() {
                if let Some(file) = self.get(place).filter(|file| !*taken && span.overlaps(file)) {
                    (*taken, found) = (true, true);
                    span.extend(file);
                }
            }
            if !found {
                return (0..taken.len()).filter(|place| taken.get(*place) == Some(&true)).collect();
            }
        }
    }

    /// Takes out the files at these places, which are in order.
    pub(super) fn take(&mut self, places: &[usize]) -> Vec<File> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Vec::new() };
        self.open(*first..last + 1);
        let mut place = self.replaced.start;
        let is_taken = |_: &mut File| {
            place += 1;
            places.binary_search(&(place - 1)).is_ok()
        };
        self.files.extract_if(.., is_taken).collect()
    }

    /// Puts files in, each before the first that begins behind it.
    pub(super) fn insert(&mut self, files: Vec<File>) {
        let begins = || files.iter().map(|file| file.begin);
        let (least, greatest) = (begins().reduce(f64::min), begins().reduce(f64::max));
        let (Some(least), Some(greatest)) = (least, greatest) else { return };
        let first = self.partition_point(|file| file.begin < least);
        self.open(first..self.partition_point(|file| file.begin <= greatest));
        self.files.extend(files);
        self.files.sort_by(|one, two| one.begin.total_cmp(&two.begin));
    }

    /// Copies the live files at these places, so that they can be changed. All places stay what they are.
    fn open(&mut self, places: Range<usize>) {
        if self.files.is_empty() && self.replaced.is_empty() {
            self.replaced = places.start..places.start;
        }
        let before = places.start.min(self.replaced.start)..self.replaced.start;
        self.replaced.start = before.start;
        self.files.splice(0..0, self.live.get(before).unwrap_or(&[]).iter().copied());
        let missing = places.end.saturating_sub(self.replaced.start + self.files.len());
        let end = self.live.len().min(self.replaced.end + missing);
        self.files.extend_from_slice(self.live.get(self.replaced.end..end).unwrap_or(&[]));
        self.replaced.end = end;
    }

    /// The first place whose file is not so; those that are so come first.
    fn partition_point(&self, is_so: impl Fn(&File) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(&is_so) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::evidence::SstFile;
    use crate::facts::key::Key;
    use proptest::prelude::*;

    fn file(begin: u32) -> File {
        let (smallest, largest) = (Key::default(), Key::default());
        let column_family = String::new();
        let number = u64::from(begin);
        let file = SstFile {
            number,
            column_family,
            level: 1,
            size_bytes: 1,
            entries: 1,
            deletions: 0,
            smallest,
            largest,
        };
        File::of(&file, (f64::from(begin), f64::from(begin) + 1.0))
    }

    fn begins<'f>(files: impl IntoIterator<Item = &'f File>) -> Vec<u64> {
        files.into_iter().map(|file| file.begin as u64).collect()
    }

    fn seen(view: &LevelView<'_>) -> Vec<u64> {
        begins((0..view.len()).filter_map(|place| view.get(place)))
    }

    proptest! {
        /// Whatever is taken out and put in: the same as with a list of all files.
        #[test]
        fn a_view_is_the_level_with_its_changes(
            live in 0u32..40,
            steps in proptest::collection::vec(
                (any::<bool>(), proptest::collection::btree_set(0usize..50, 0..6)),
                0..12,
            ),
        ) {
            let live: Vec<File> = (0..live).map(|place| file(place * 3)).collect();
            let (mut view, mut list) = (LevelView::of(&live), live.clone());
            for (takes, numbers) in steps {
                if takes {
                    let places: Vec<usize> = numbers.into_iter().filter(|place| *place < list.len()).collect();
                    let taken = view.take(&places);
                    let mut place = 0;
                    let expected: Vec<File> = list.extract_if(.., |_| {
                        place += 1;
                        places.contains(&(place - 1))
                    }).collect();
                    prop_assert_eq!(begins(&taken), begins(&expected));
                } else {
                    let files: Vec<File> = numbers.into_iter().map(|place| file(place as u32 * 2)).collect();
                    view.insert(files.clone());
                    list.extend(files);
                    list.sort_by(|one, two| one.begin.total_cmp(&two.begin));
                }
                prop_assert_eq!(seen(&view), begins(&list));
                let span = Span { begin: 7.0, end: 31.0 };
                let overlapping = view.overlapping(&span).filter_map(|place| view.get(place));
                prop_assert_eq!(begins(overlapping), begins(list.iter().filter(|file| span.overlaps(file))));
            }
        }
    }
}
