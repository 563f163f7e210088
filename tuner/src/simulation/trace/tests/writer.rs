//! Traces as RocksDB writes them, for tests.

use crate::simulation::trace::{BEGIN, SEEK, WRITE};

pub(crate) const HEADER: &str =
    "feedcafedeadbeef\tTrace Version: 0.2\tRocksDB Version: 7.8\tFormat: Timestamp OpType Payload\n";

pub(crate) fn prefixed(bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128);
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

pub(crate) fn framed(at_us: u64, kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&at_us.to_le_bytes()[..], &[kind], &length.to_le_bytes(), payload].concat()
}

pub(crate) fn with_map(held: u64, payload: &[u8]) -> Vec<u8> {
    [&held.to_le_bytes()[..], payload].concat()
}

pub(crate) fn batch(entries: &[u8]) -> Vec<u8> {
    with_map(2, &prefixed(&[&[0; 12][..], entries].concat()))
}

/// A trace of so many microseconds between the calls, which [`put`], [`delete`] and [`seek`] make.
pub(crate) fn trace(step_us: u64, calls: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = framed(1_000, BEGIN, HEADER.as_bytes());
    for (at_us, call) in (1..).map(|number| 1_000 + number * step_us).zip(calls) {
        let (kind, payload) = call.split_first().unwrap();
        bytes.extend(framed(at_us, *kind, payload));
    }
    bytes
}

pub(crate) fn put(key: &str, value: &[u8]) -> Vec<u8> {
    let entry = [&[0x01][..], &prefixed(key.as_bytes()), &prefixed(value)].concat();
    [&[WRITE][..], &batch(&entry)].concat()
}

pub(crate) fn delete(key: &str) -> Vec<u8> {
    [&[WRITE][..], &batch(&[&[0x00][..], &prefixed(key.as_bytes())].concat())].concat()
}

pub(crate) fn seek(key: &str) -> Vec<u8> {
    let payload = [&0u32.to_le_bytes()[..], &prefixed(key.as_bytes())].concat();
    [&[SEEK][..], &with_map(0b11_0000, &payload)].concat()
}
