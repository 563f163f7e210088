//! One recorded operation, from the kernel's record to the tuner's observation.

use super::abi::{
    SEXTON_KEY_BYTES_MAX, SEXTON_SEEK_FOR_PREV, SEXTON_SEEK_TO_FIRST, SEXTON_SEEK_TO_LAST, sexton_operation,
};
use sexton_inspect::identity::Addresses;
use sexton_tuner::evidence::{Observation, SeekKind};
use sexton_tuner::key::Key;

/// Of the tombstones of an operation, one in so many may be another iterator's: a ranking is not more exact
/// than that.
const AMBIGUOUS_SHARE: u64 = 10;

/// A recorded operation with the addresses that say whose it is.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Database and handle are 0 when the iterator's creation was not seen.
    pub addresses: Addresses,
    /// What was observed; its column family is still to be filled in from the addresses.
    pub observation: Observation,
}

impl Operation {
    pub(super) fn from_record(raw: &sexton_operation) -> Operation {
        Operation {
            addresses: Addresses {
                database: raw.database,
                column_family_handle: raw.column_family_handle,
                column_family_data: raw.column_family_data,
            },
            observation: Observation {
                column_family: None,
                kind: match raw.kind {
                    SEXTON_SEEK_FOR_PREV => SeekKind::SeekForPrev,
                    SEXTON_SEEK_TO_FIRST => SeekKind::SeekToFirst,
                    SEXTON_SEEK_TO_LAST => SeekKind::SeekToLast,
                    _ => SeekKind::Seek,
                },
                key: key(&raw.key, raw.key_bytes),
                end_key: (raw.end_key_bytes > 0).then(|| key(&raw.end_key, raw.end_key_bytes)),
                seek: raw.seek.into(),
                scan: raw.scan.into(),
                // Still inside the call when the window closed: the whole time so far was the seek's.
                seek_latency_ns: latest(raw.return_ns, raw.end_ns).saturating_sub(raw.start_ns),
                scan_elapsed_ns: if raw.return_ns == 0 {
                    0
                } else {
                    raw.end_ns.saturating_sub(raw.return_ns)
                },
                block_fetches: raw.fetches.into(),
                estimated: raw.is_estimated != 0,
                ambiguous: is_ambiguous(raw),
                weight: u64::from(raw.weight.max(1)),
                steps: raw.steps_and_one.checked_sub(1),
            },
        }
    }
}

/// Whether so many of an operation's tombstones may be another iterator's that they say nothing of where it
/// has been.
fn is_ambiguous(raw: &sexton_operation) -> bool {
    let tombstones = raw.seek.tombstones_skipped.saturating_add(raw.scan.tombstones_skipped);
    raw.tombstones_ambiguous.saturating_mul(AMBIGUOUS_SHARE) > tombstones
}

/// The valid bytes of a key's room.
fn key(room: &[u8], bytes: u32) -> Key {
    let bytes = bytes.min(SEXTON_KEY_BYTES_MAX) as usize;
    Key::new(room.get(..bytes).unwrap_or_default())
}

/// The return's time, or the end's where the call had not returned.
fn latest(return_ns: u64, end_ns: u64) -> u64 {
    if return_ns == 0 { end_ns } else { return_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_call_that_returned_and_of_one_that_did_not() {
        let returned =
            sexton_operation { start_ns: 10, return_ns: 15, end_ns: 40, ..sexton_operation::default() };
        let seen = Operation::from_record(&returned).observation;
        assert_eq!((seen.seek_latency_ns, seen.scan_elapsed_ns), (5, 25));
        let inside = sexton_operation { return_ns: 0, ..returned };
        let seen = Operation::from_record(&inside).observation;
        assert_eq!((seen.seek_latency_ns, seen.scan_elapsed_ns), (30, 0));
    }

    #[test]
    fn an_operation_is_ambiguous_when_more_than_a_tenth_of_its_tombstones_are() {
        let mut raw = sexton_operation::default();
        raw.seek.tombstones_skipped = 40_000;
        assert!(!Operation::from_record(&raw).observation.ambiguous);
        (raw.scan.tombstones_skipped, raw.tombstones_ambiguous) = (4_000, 4_000);
        assert!(!Operation::from_record(&raw).observation.ambiguous);
        (raw.scan.tombstones_skipped, raw.tombstones_ambiguous) = (5_000, 5_000);
        assert!(Operation::from_record(&raw).observation.ambiguous);
    }

    #[test]
    fn a_length_beyond_the_room_is_cut() {
        let raw = sexton_operation { key_bytes: u32::MAX, ..sexton_operation::default() };
        assert_eq!(
            Operation::from_record(&raw).observation.key.as_bytes().len(),
            SEXTON_KEY_BYTES_MAX as usize
        );
    }
}
