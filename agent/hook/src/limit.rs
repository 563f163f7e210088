//! From a half-open range to RocksDB's closed one.
//!
//! `CompactRange(begin, end)` includes `end`. Ranges are cut at SST borders, so that `end` usually *is*
//! the smallest key of the next file: taken as it is, that file would be rewritten for nothing.

/// Bytes of `0xff` put behind the shortened key: longer than what distinguishes neighbouring keys.
const FILL_BYTES: usize = 16;

/// A key below `end` (in bytewise order) that hardly any key lies between: the last one to include.
/// `end` itself where that would fall below `begin`.
pub fn inclusive(begin: &[u8], end: &[u8]) -> Vec<u8> {
    let limit = match end.split_last() {
        None => Vec::new(),
        Some((0, shorter)) => shorter.to_vec(),
        Some((last, shorter)) => {
            let mut limit = shorter.to_vec();
            limit.push(last - 1);
            limit.resize(limit.len() + FILL_BYTES, 0xff);
            limit
        }
    };
    if limit.as_slice() < begin { end.to_vec() } else { limit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples() {
        let mut expected = b"/vol/b/key0002".to_vec();
        expected.resize(expected.len() + FILL_BYTES, 0xff);
        assert_eq!(inclusive(b"/vol/b/key0000", b"/vol/b/key0003"), expected);
        assert_eq!(inclusive(b"a", b"a\0"), b"a");
        assert_eq!(inclusive(b"", b""), b"");
    }

    proptest! {
        #[test]
        fn below_the_end_and_not_below_the_begin(
            mut keys in proptest::array::uniform2(proptest::collection::vec(any::<u8>(), 0..6)),
        ) {
            keys.sort();
            let [begin, end] = keys;
            prop_assume!(begin < end);
            let limit = inclusive(&begin, &end);
            prop_assert!(limit >= begin && limit <= end);
            let shortest_between = limit.len() >= end.len() || limit == end[..limit.len()];
            prop_assert!(shortest_between, "{:?} {:?}", limit, end);
        }
    }
}
