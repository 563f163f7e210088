//! What something is worth: by this number ranges, slices and remedies are all ordered, so another way to
//! rank is another function here.

/// A compaction is taken to cost at least this much: opening and writing files has a price of its own,
/// and a range whose tombstones are all in a memtable (0 bytes in files) still has to be flushed.
pub const COST_BYTES_MIN: u64 = 1 << 20;

/// Relief, in seconds per second, per byte that is written for it.
pub(crate) fn worth(relief_seconds_per_second: f64, written_bytes: u64) -> f64 {
    relief_seconds_per_second / written_bytes.max(COST_BYTES_MIN) as f64
}
