//! Ends of a range that are open, and what RocksDB is told instead.
//!
//! Without an end RocksDB flushes the memtables whatever they hold, and takes each level that has a file as
//! one that has keys of the range. With the outermost files' keys it looks whether there are any.

use crate::facts::evidence::SstFile;
use crate::facts::range::KeyRange;
use crate::plan::remedy::are_in_memtables;
use crate::rank::RangeAssessment;

/// Longest key that stands in for an open end: executors take longer ones, but not much longer.
const KEY_BYTES_MAX: usize = 1024;

/// The range with the outermost files' keys in place of ends that are open; `files` are the live files of the
/// column family. Unchanged where no file holds a key of it, and where the tombstones `of` the range that it
/// was cut from lie in memtables: these can reach out of all files, and are to be flushed.
pub fn closed(range: &KeyRange, files: &[&SstFile], of: &RangeAssessment) -> KeyRange {
    if are_in_memtables(of) {
        return range.clone();
    }
    let inside = || files.iter().filter(|file| range.overlaps_closed(&file.smallest, &file.largest));
    let is_short = |bytes: &[u8]| bytes.len() < KEY_BYTES_MAX;
    let smallest = inside().map(|file| &file.smallest).min().filter(|key| is_short(key.as_bytes()));
    let largest = inside().map(|file| &file.largest).max().filter(|key| is_short(key.as_bytes()));
    let begin = match smallest {
        Some(smallest) if range.begin.is_empty() => smallest.clone(),
        _ => range.begin.clone(),
    };
    let end = range.end.clone().or_else(|| largest.map(crate::facts::key::Key::successor));
    KeyRange::new(begin, end).unwrap_or_else(|| range.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::facts::key::Key;

    fn file(smallest: &str, largest: &str) -> SstFile {
        SstFile {
            number: 1,
            column_family: "cf".to_owned(),
            level: 6,
            size_bytes: 1,
            entries: 10,
            deletions: 5,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    fn assessed(memtable_tombstones: f64) -> RangeAssessment {
        let json = serde_json::json!({
            "target": "t", "database": "/db", "column_family": "cf",
            "range": KeyRange::everything(),
            "operations_per_second": 1.0, "tombstones_per_seek": 100.0,
            "memtable_tombstones_per_seek": memtable_tombstones, "misses_per_seek": 0.0,
            "size_bytes": 1, "entries": 10, "deletions": 5, "density": 0.5,
            "pain_seconds_per_second": 1.0, "relief_seconds_per_second": 1.0,
            "cost_bytes": 1, "relief_per_byte": 1.0, "reason": "",
        });
        serde_json::from_value(json).unwrap()
    }

    fn range(begin: &str, end: Option<&str>) -> KeyRange {
        KeyRange::new(Key::new(begin), end.map(Key::new)).unwrap()
    }

    #[test]
    fn open_ends_are_the_outermost_files_keys() {
        let files = [file("d", "f"), file("b", "c"), file("x", "z")];
        let files: Vec<&SstFile> = files.iter().collect();
        let closed = |range: &KeyRange| closed(range, &files, &assessed(0.0));
        let all = closed(&KeyRange::everything());
        assert_eq!((all.begin, all.end), (Key::new("b"), Some(Key::new("z").successor())));
        assert_eq!(closed(&range("", Some("e"))), range("b", Some("e")));
        let behind = closed(&range("e", None));
        assert_eq!((behind.begin, behind.end), (Key::new("e"), Some(Key::new("z").successor())));
        assert_eq!(closed(&range("c", Some("e"))), range("c", Some("e")), "it is closed already");
    }

    #[test]
    fn what_has_no_file_or_lies_in_memtables_stays_open() {
        let files = [file("b", "c")];
        let files: Vec<&SstFile> = files.iter().collect();
        assert_eq!(closed(&range("m", None), &files, &assessed(0.0)), range("m", None));
        assert_eq!(closed(&KeyRange::everything(), &[], &assessed(0.0)), KeyRange::everything());
        assert_eq!(closed(&KeyRange::everything(), &files, &assessed(90.0)), KeyRange::everything());
        let long = [file("b", &"z".repeat(5000))];
        let long: Vec<&SstFile> = long.iter().collect();
        assert_eq!(closed(&KeyRange::everything(), &long, &assessed(0.0)), range("b", None));
    }
}
