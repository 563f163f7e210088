//! Which files a compaction has replaced, seen from the live files before and after it.
//!
//! Files of its range are not all: a file that reaches out of the range takes along what lies below the rest
//! of it. So from the files of the range that are gone one goes on to those that share keys with what they
//! span, as long as such are gone as well. What an automatic compaction replaced meanwhile among the same
//! keys is counted too.

use crate::facts::evidence::SstFile;
use crate::facts::range::KeyRange;
use crate::lsm::tombstone_placement::Placement;
use std::collections::HashSet;

/// Bytes of the files of a column family that were there before, are not there after, and went with a
/// compaction of this range. A file that was only moved to another level keeps its number.
pub fn bytes_replaced(before: &[SstFile], after: &[SstFile], column_family: &str, range: &KeyRange) -> u64 {
    let left: HashSet<u64> = after.iter().map(|file| file.number).collect();
    let is_gone = |file: &&SstFile| file.column_family == column_family && !left.contains(&file.number);
    let (mut taken, mut others): (Vec<&SstFile>, Vec<&SstFile>) =
        before.iter().filter(is_gone).partition(|file| range.overlaps_closed(&file.smallest, &file.largest));
    loop {
        let smallest = taken.iter().map(|file| &file.smallest).min();
        let largest = taken.iter().map(|file| &file.largest).max();
        let Some((smallest, largest)) = smallest.zip(largest) else { return 0 };
        let (more, rest): (Vec<&SstFile>, Vec<&SstFile>) =
            others.into_iter().partition(|file| file.smallest <= *largest && *smallest <= file.largest);
        if more.is_empty() {
            return taken.iter().map(|file| file.size_bytes).fold(0, u64::saturating_add);
        }
        taken.extend(more);
        others = rest;
    }
}

/// The same of files of these numbers, which are in order.
pub fn bytes_gone(before: &[SstFile], after: &[SstFile], numbers: &[u64]) -> u64 {
    let left: HashSet<u64> = after.iter().map(|file| file.number).collect();
    let is_gone =
        |file: &&SstFile| numbers.binary_search(&file.number).is_ok() && !left.contains(&file.number);
    before.iter().filter(is_gone).map(|file| file.size_bytes).fold(0, u64::saturating_add)
}

/// Deletions of a column family in a range, before a compaction and after it: shares of those of its files,
/// which are wider. Where the files of one time lie tells where those of the other have what they hold.
pub fn deletions_within(
    before: &[SstFile],
    after: &[SstFile],
    column_family: &str,
    range: &KeyRange,
) -> (u64, u64) {
    let of_family = |file: &&SstFile| file.column_family == column_family;
    let is_inside = |file: &&SstFile| of_family(file) && range.overlaps_closed(&file.smallest, &file.largest);
    let all = || before.iter().chain(after);
    // Whatever reaches into the keys of the files that reach into the range.
    let hull = all().filter(is_inside).map(|file| (&file.smallest, &file.largest));
    let hull = hull.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)));
    let Some((smallest, largest)) = hull else { return (0, 0) };
    let near = all().filter(of_family).filter(|file| file.smallest <= *largest && *smallest <= file.largest);
    let placement = Placement::of(&near.collect::<Vec<_>>(), &[], None);
    let count = |files: &[SstFile]| {
        let deletions = files.iter().filter(is_inside).map(|file| (file, file.deletions as f64));
        let [count] = placement.sums_within([&placement.like_deletions(deletions)], range);
        count.round() as u64
    };
    (count(before), count(after))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::key::Key;
    use proptest::prelude::*;

    fn file(number: u64, level: u32, smallest: u8, largest: u8) -> SstFile {
        SstFile {
            number,
            column_family: "cf".to_owned(),
            level,
            size_bytes: 1 << (number % 40),
            entries: 10,
            deletions: 0,
            smallest: Key::new([smallest]),
            largest: Key::new([largest]),
        }
    }

    fn range(begin: u8, end: u8) -> KeyRange {
        KeyRange::new(Key::new([begin]), Some(Key::new([end]))).unwrap()
    }

    /// A slice of a tenth of a wide file: all that lies below the wide one was rewritten with it, and what
    /// lies beside it was not, though it is gone as well.
    #[test]
    fn a_wide_file_takes_along_what_lies_below_it() {
        let before = [
            file(1, 5, 10, 59),
            file(2, 6, 0, 19),
            file(3, 6, 20, 39),
            file(4, 6, 40, 69),
            file(5, 6, 80, 99),
        ];
        let after = [file(6, 6, 0, 69)];
        assert_eq!(bytes_replaced(&before, &after, "cf", &range(20, 25)), 0b11110);
        assert_eq!(bytes_replaced(&before, &after, "cf", &range(80, 81)), 0b100000);
        assert_eq!(bytes_replaced(&before, &after, "cf", &range(70, 75)), 0);
        assert_eq!(bytes_replaced(&before, &after, "other", &range(20, 25)), 0);
    }

    #[test]
    fn what_is_still_there_was_not_replaced() {
        let before = [file(1, 5, 10, 59), file(2, 6, 0, 19), file(3, 6, 20, 39)];
        assert_eq!(bytes_replaced(&before, &[file(1, 6, 10, 59)], "cf", &range(60, 70)), 0);
        // The wide one was only moved: nothing ties the others to this range.
        assert_eq!(bytes_replaced(&before, &[file(1, 6, 10, 59)], "cf", &range(0, 5)), 1 << 2);
    }

    /// One file held everything, and what became of it are files that lie closer to the range.
    #[test]
    fn deletions_are_counted_alike_however_wide_files_are() {
        let holding = |file: SstFile, deletions| SstFile { entries: deletions, deletions, ..file };
        let before = [holding(file(1, 6, 0, 200), 2_000)];
        let after: Vec<SstFile> = (0..10)
            .map(|part| holding(file(2 + u64::from(part), 6, part * 20, part * 20 + 19), 200))
            .collect();
        let range = KeyRange::new(Key::new([100]), Some(Key::new([120]))).unwrap();
        let counted = deletions_within(&before, &after, "cf", &range);
        assert!((195..=205).contains(&counted.0) && (195..=205).contains(&counted.1), "{counted:?}");
        assert_eq!(deletions_within(&before, &[], "other", &range), (0, 0));
    }

    proptest! {
        #[test]
        fn never_more_than_what_is_gone_and_never_less_than_what_is_gone_in_the_range(
            files in proptest::collection::vec((1u32..7, 0u8..100, 0u8..30, any::<bool>()), 0..20),
            begin in 0u8..100,
            length in 1u8..50,
        ) {
            let mut before = Vec::new();
            let mut after = Vec::new();
            for (number, (level, smallest, length, stays)) in (1..).zip(files) {
                let file = file(number, level, smallest, smallest + length);
                if stays {
                    after.push(file.clone());
                }
                before.push(file);
            }
            let range = range(begin, begin + length);
            let gone = before.iter().filter(|file| !after.contains(file));
            let all: u64 = gone.clone().map(|file| file.size_bytes).sum();
            let inside = gone.filter(|file| range.overlaps_closed(&file.smallest, &file.largest));
            let inside: u64 = inside.map(|file| file.size_bytes).sum();
            let replaced = bytes_replaced(&before, &after, "cf", &range);
            prop_assert!((inside..=all).contains(&replaced));
            prop_assert_eq!(replaced == 0, inside == 0);
        }
    }
}
