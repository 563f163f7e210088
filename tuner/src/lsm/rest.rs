//! What is left of a slice that was stopped, and how it is cut in two.

use crate::facts::evidence::SstFile;
use crate::facts::key::Key;
use crate::facts::range::KeyRange;

/// The part of `slice` in which files still hold deletions; `None` where none does. `files` are the live
/// files of the column family.
pub fn rest(slice: &KeyRange, files: &[SstFile]) -> Option<KeyRange> {
    let inside = |file: &&SstFile| file.deletions > 0 && slice.overlaps_closed(&file.smallest, &file.largest);
    let begin = files.iter().filter(inside).map(|file| &file.smallest).min()?;
    let largest = files.iter().filter(inside).map(|file| &file.largest).max()?;
    let begin = begin.max(&slice.begin).clone();
    let end = match &slice.end {
        Some(end) if *end <= *largest => Some(end.clone()),
        _ => Some(largest.successor()),
    };
    KeyRange::new(begin, end)
}

/// A slice in two, at the file border that leaves about as many bytes on either side; in one piece where no
/// file begins within it.
pub fn halves(slice: KeyRange, files: &[SstFile]) -> Vec<KeyRange> {
    let inside = files.iter().filter(|file| slice.overlaps_closed(&file.smallest, &file.largest));
    let mut inside: Vec<(&Key, u64)> = inside.map(|file| (&file.smallest, file.size_bytes)).collect();
    inside.sort();
    let sum = inside.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let mut before: u64 = 0;
    let mut best: Option<(u64, &Key)> = None;
    for (smallest, bytes) in &inside {
        // How far from the middle a cut before this file is.
        let distance = before.abs_diff(sum / 2);
        if **smallest > slice.begin && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, smallest));
        }
        before = before.saturating_add(*bytes);
    }
    let parts = best.and_then(|(_, at)| {
        let low = KeyRange::new(slice.begin.clone(), Some(at.clone()))?;
        Some(vec![low, KeyRange::new(at.clone(), slice.end.clone())?])
    });
    parts.unwrap_or_else(|| vec![slice])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn file(smallest: &str, largest: &str, size_bytes: u64, deletions: u64) -> SstFile {
        SstFile {
            number: 1,
            column_family: "default".to_owned(),
            level: 6,
            size_bytes,
            entries: 10,
            deletions,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    fn range(begin: &str, end: &str) -> KeyRange {
        KeyRange::new(Key::new(begin), Some(Key::new(end))).unwrap()
    }

    #[test]
    fn what_holds_deletions_is_left() {
        let files = [file("a", "c", 1, 5), file("d", "f", 1, 0), file("g", "i", 1, 7), file("k", "z", 1, 1)];
        let left = rest(&range("b", "m"), &files).unwrap();
        assert_eq!(left, range("b", "m"));
        let left = rest(&range("d", "j"), &files).unwrap();
        assert_eq!((left.begin, left.end), (Key::new("g"), Some(Key::new("i").successor())));
        assert_eq!(rest(&range("d", "g"), &files[..2]), None);
        assert_eq!(rest(&range("a", "z"), &[]), None);
    }

    #[test]
    fn halves_are_cut_between_files() {
        let files =
            [file("a", "c", 10, 5), file("d", "f", 10, 5), file("g", "i", 10, 7), file("j", "k", 10, 1)];
        assert_eq!(halves(range("a", "l"), &files), [range("a", "g"), range("g", "l")]);
        // One wide file weighs as much as all others.
        let uneven = [file("a", "c", 100, 5), file("d", "f", 10, 5), file("g", "i", 10, 7)];
        assert_eq!(halves(range("a", "l"), &uneven), [range("a", "d"), range("d", "l")]);
        assert_eq!(halves(range("b", "c"), &files), [range("b", "c")]);
    }

    fn key() -> impl Strategy<Value = Key> {
        proptest::collection::vec(b'a'..=b'd', 0..4).prop_map(Key::new)
    }

    fn files() -> impl Strategy<Value = Vec<SstFile>> {
        let file =
            (key(), key(), any::<u64>(), 0u64..3).prop_map(|(one, two, size_bytes, deletions)| SstFile {
                smallest: one.clone().min(two.clone()),
                largest: one.max(two),
                ..file("", "", size_bytes, deletions)
            });
        proptest::collection::vec(file, 0..12)
    }

    proptest! {
        #[test]
        fn the_rest_lies_within_and_holds_all_deletions(
            begin in key(),
            end in proptest::option::of(key()),
            files in files(),
        ) {
            let Some(slice) = KeyRange::new(begin, end) else { return Ok(()) };
            let left = rest(&slice, &files);
            let dirty = |file: &&SstFile| {
                file.deletions > 0 && slice.overlaps_closed(&file.smallest, &file.largest)
            };
            prop_assert_eq!(left.is_some(), files.iter().any(|file| dirty(&file)));
            if let Some(left) = left {
                prop_assert!(left.begin >= slice.begin);
                prop_assert!(slice.end.is_none() || left.end.is_some() && left.end <= slice.end);
                prop_assert!(files.iter().filter(dirty).all(|file| left.overlaps_closed(&file.smallest, &file.largest)));
            }
        }

        #[test]
        fn halves_are_the_whole(begin in key(), end in proptest::option::of(key()), files in files()) {
            let Some(slice) = KeyRange::new(begin, end) else { return Ok(()) };
            let parts = halves(slice.clone(), &files);
            prop_assert!((1..=2).contains(&parts.len()));
            prop_assert_eq!(&parts[0].begin, &slice.begin);
            prop_assert_eq!(&parts[parts.len() - 1].end, &slice.end);
            if let [low, high] = &parts[..] {
                prop_assert_eq!(low.end.as_ref(), Some(&high.begin));
            }
        }
    }
}
