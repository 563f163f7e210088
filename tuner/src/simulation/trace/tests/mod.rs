//! Traces as RocksDB writes them, and what is left of them when they are changed.

#![allow(clippy::unwrap_used, reason = "tests")]

pub(crate) mod writer;

use self::writer::{HEADER, batch, framed, prefixed, with_map};
use super::*;
use proptest::prelude::*;

/// A trace with one of everything.
fn trace() -> Vec<u8> {
    let entries: Vec<u8> = [
        [&[0x01][..], &prefixed(b"a"), &prefixed(b"four")].concat(),
        vec![0x0d],
        [&[0x05, 0x03][..], &prefixed(b"b"), &prefixed(b"")].concat(),
        [&[0x03][..], &prefixed(b"a note")].concat(),
        [&[0x00][..], &prefixed(b"a")].concat(),
        [&[0x08, 0x03][..], &prefixed(b"b")].concat(),
        [&[0x0f][..], &prefixed(b"a"), &prefixed(b"c")].concat(),
        [&[0x02][..], &prefixed(b"d"), &prefixed(b"+1")].concat(),
    ]
    .concat();
    let family = 3u32.to_le_bytes();
    let seek = [&family[..], &prefixed(b"a"), &prefixed(b"c")].concat();
    let families: Vec<u8> = [family, 0u32.to_le_bytes()].concat();
    let keys = [prefixed(b"x"), prefixed(b"y")].concat();
    let multi_get = [&2u32.to_le_bytes()[..], &prefixed(&families), &prefixed(&keys)].concat();
    [
        framed(10, BEGIN, HEADER.as_bytes()),
        framed(11, WRITE, &batch(&entries)),
        framed(12, GET, &with_map(0b1100, &[&family[..], &prefixed(b"b")].concat())),
        framed(13, SEEK, &with_map(0b1011_0000, &seek)),
        framed(14, 7, b"a block"),
        framed(15, MULTI_GET, &with_map(0b111_0000_0000, &multi_get)),
        framed(16, END, b""),
        framed(17, WRITE, b""),
    ]
    .concat()
}

fn read(bytes: &[u8]) -> Result<Vec<Record<'_>>, TraceError> {
    Trace::new(bytes)?.collect()
}

#[test]
fn each_kind_of_record_is_read() {
    let bytes = trace();
    let written = |column_family_id, key, change| Written { column_family_id, key, change };
    let get = |at_us, column_family_id, key| Record { at_us, call: Call::Get { column_family_id, key } };
    let expected = vec![
        Record {
            at_us: 11,
            call: Call::Write(vec![
                written(0, b"a", Change::Put { value_bytes: 4 }),
                written(3, b"b", Change::Put { value_bytes: 0 }),
                written(0, b"a", Change::Delete),
                written(3, b"b", Change::SingleDelete),
                written(0, b"a", Change::DeleteRange { end: b"c" }),
                written(0, b"d", Change::Merge { value_bytes: 2 }),
            ]),
        },
        get(12, 3, b"b"),
        Record {
            at_us: 13,
            call: Call::Seek(Seek {
                column_family_id: 3,
                key: b"a",
                lower: None,
                upper: Some(b"c"),
                is_forward: true,
            }),
        },
        get(15, 3, b"x"),
        get(15, 0, b"y"),
    ];
    assert_eq!(read(&bytes), Ok(expected));
}

#[test]
fn what_is_no_trace_is_refused() {
    assert_eq!(read(b"SQLite format 3\0 and much more"), Err(TraceError::NoTrace));
    assert_eq!(read(b""), Err(TraceError::NoTrace));
    let newer = framed(1, BEGIN, HEADER.replace("0.2", "0.3").as_bytes());
    assert_eq!(read(&newer), Err(TraceError::Version("0.3".to_owned())));
    let unknown = [framed(1, BEGIN, HEADER.as_bytes()), framed(2, WRITE, &batch(&[0x66]))].concat();
    assert_eq!(read(&unknown), Err(TraceError::Entry { record: 1, kind: 0x66 }));
}

#[test]
fn a_trace_that_is_cut_off_has_the_records_before() {
    let bytes = trace();
    let cut = bytes.len() - framed(17, WRITE, b"").len() - framed(16, END, b"").len() - 1;
    assert_eq!(read(&bytes[..cut]).map(|records| records.len()), Ok(3));
}

proptest! {
    #[test]
    fn changed_bytes_are_an_error_or_a_trace(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = trace();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let length = bytes.len();
        let _ = read(&bytes);
        let _ = read(&bytes[..end.index(length)]);
    }
}
