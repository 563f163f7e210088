//! Whatever bytes stand in a ring buffer or come out of an iterator, decoding them does no harm.

use super::abi::{Record, sexton_counters, sexton_operation, sexton_thread_reading};
use super::operation::Operation;
use sexton_fuzz::fuzz;

#[test]
fn records_of_operations() {
    let counters = sexton_counters { tombstones_skipped: 49_999, keys_skipped: 3, ..Default::default() };
    let mut real = sexton_operation {
        seek: counters,
        scan: counters,
        iterator: 0x7f00_dead_0000,
        database: 0x7f00_beef_0000,
        start_ns: 1_000,
        return_ns: 2_000,
        end_ns: 3_000,
        key_bytes: 8,
        end_key_bytes: 4,
        ..Default::default()
    };
    real.key[..8].copy_from_slice(b"/vol/a/1");
    let open = sexton_operation { return_ns: 0, end_key_bytes: 0, ..real };
    fuzz("record decoder, operations", &[real.as_bytes().to_vec(), open.as_bytes().to_vec()], |bytes| {
        let Some(record) = sexton_operation::from_bytes(bytes) else { return false };
        let seen = Operation::from_record(&record).observation;
        assert!(seen.key.as_bytes().len() <= real.key.len());
        assert!(seen.end_key.is_none_or(|key| key.as_bytes().len() <= real.key.len()));
        true
    });
}

#[test]
fn readings_of_threads() {
    let real = sexton_thread_reading::default();
    let two = [real.as_bytes(), real.as_bytes()].concat();
    fuzz("record decoder, thread readings", &[real.as_bytes().to_vec(), two], |bytes| {
        let size = size_of::<sexton_thread_reading>();
        let readings: Vec<_> = bytes.chunks(size).map_while(sexton_thread_reading::from_bytes).collect();
        assert_eq!(readings.len(), bytes.len() / size);
        !readings.is_empty()
    });
}
