//! Rust's view of `bpf/sexton.h`, generated from that header, and the way from bytes to these types.
//!
//! No structure is written by hand a second time: they come from bindgen, with tests of their layout.

use sexton_rocksdb_layout::column_family_handle;
use sexton_tuner::evidence::{BlockFetches, Counters};

#[allow(
    missing_docs,
    non_camel_case_types,
    dead_code,
    unsafe_op_in_unsafe_fn,
    clippy::undocumented_unsafe_blocks,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated from bpf/sexton.h, which documents every field"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/sexton_h.rs"));
}

pub use generated::*;

const _: () = assert!(SEXTON_COLUMN_FAMILY_HANDLE_DATA as u64 == column_family_handle::DATA);

/// Structures of `sexton.h`: plain integers, valid for any bytes, no padding that is read.
///
/// # Safety
/// Every bit pattern must be a valid value, and the type must have no references, pointers or
/// uninitialised padding.
pub unsafe trait Record: Sized + Copy {
    /// The record that stands at the start of `bytes`; `None` where there are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: the length was checked, the read need not be aligned, and by the trait's contract any
        // bytes are a valid value.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The record's bytes, as the kernel expects them.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: pointer and length are those of `self`, which by the trait's contract has no
        // uninitialised padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast::<u8>(), size_of::<Self>()) }
    }
}

// SAFETY: all of these are integers and arrays of integers, with explicit padding fields.
unsafe impl Record for sexton_recipe {}
// SAFETY: as above.
unsafe impl Record for sexton_process {}
// SAFETY: as above.
unsafe impl Record for sexton_operation {}
// SAFETY: as above.
unsafe impl Record for sexton_iterator_id {}
// SAFETY: as above.
unsafe impl Record for sexton_thread_id {}
// SAFETY: as above.
unsafe impl Record for sexton_thread {}
// SAFETY: as above.
unsafe impl Record for sexton_spending {}
// SAFETY: as above.
unsafe impl Record for sexton_learnt {}
// SAFETY: as above.
unsafe impl Record for sexton_file_id {}
// SAFETY: as above.
unsafe impl Record for sexton_file {}
// SAFETY: as above.
unsafe impl Record for sexton_totals {}
// SAFETY: as above.
unsafe impl Record for sexton_thread_reading {}
// SAFETY: as above.
unsafe impl Record for sexton_process_event {}

const _: () = assert!(size_of::<sexton_recipe>() == 120);
const _: () = assert!(size_of::<sexton_operation>() == 488);
const _: () = assert!(size_of::<sexton_thread>() == 176);
const _: () = assert!(size_of::<sexton_totals>() == 1072);
const _: () = assert!(size_of::<sexton_thread_reading>() == 88);
const _: () = assert!(size_of::<sexton_process_event>() == 16);
const _: () = assert!(std::mem::offset_of!(sexton_operation, end_key) == 360);

impl From<sexton_counters> for Counters {
    fn from(counters: sexton_counters) -> Counters {
        Counters {
            tombstones_skipped: counters.tombstones_skipped,
            keys_skipped: counters.keys_skipped,
            block_reads: counters.block_reads,
            block_read_bytes: counters.block_read_bytes,
            block_cache_hits: counters.block_cache_hits,
        }
    }
}

impl From<sexton_fetches> for BlockFetches {
    fn from(fetches: sexton_fetches) -> BlockFetches {
        BlockFetches { count: fetches.count, bytes: fetches.bytes, latency_ns: fetches.latency_ns }
    }
}

type Histogram = [u64; SEXTON_LATENCY_BUCKETS as usize];

impl sexton_totals {
    /// Field by field through `combine`: a sum over CPUs, or the difference of two readings.
    pub fn combine(self, other: sexton_totals, combine: fn(u64, u64) -> u64) -> sexton_totals {
        let counters = |one: sexton_counters, two: sexton_counters| sexton_counters {
            tombstones_skipped: combine(one.tombstones_skipped, two.tombstones_skipped),
            keys_skipped: combine(one.keys_skipped, two.keys_skipped),
            block_reads: combine(one.block_reads, two.block_reads),
            block_read_bytes: combine(one.block_read_bytes, two.block_read_bytes),
            block_cache_hits: combine(one.block_cache_hits, two.block_cache_hits),
        };
        let hits = |one: sexton_site_hits, two: sexton_site_hits| sexton_site_hits {
            entries: combine(one.entries, two.entries),
            entries_skipped: combine(one.entries_skipped, two.entries_skipped),
            returns: combine(one.returns, two.returns),
            returns_skipped: combine(one.returns_skipped, two.returns_skipped),
        };
        let mut sites = self.sites;
        for (site, other) in sites.iter_mut().zip(other.sites) {
            *site = hits(*site, other);
        }
        let histogram = |mut one: Histogram, two: Histogram| {
            for (bucket, other) in one.iter_mut().zip(two) {
                *bucket = combine(*bucket, other);
            }
            one
        };
        sexton_totals {
            attributed: counters(self.attributed, other.attributed),
            unowned: counters(self.unowned, other.unowned),
            discarded: counters(self.discarded, other.discarded),
            operations: combine(self.operations, other.operations),
            operations_painful: combine(self.operations_painful, other.operations_painful),
            operations_estimated: combine(self.operations_estimated, other.operations_estimated),
            block_reads_timed: combine(self.block_reads_timed, other.block_reads_timed),
            records_lost: combine(self.records_lost, other.records_lost),
            read_failures: combine(self.read_failures, other.read_failures),
            map_full: combine(self.map_full, other.map_full),
            sites,
            seek_histogram: histogram(self.seek_histogram, other.seek_histogram),
            block_read_histogram: histogram(self.block_read_histogram, other.block_read_histogram),
        }
    }
}
