//! Rust's view of `bpf/sexton.h`, generated from that header, and the way from bytes to these types.
//!
//! No structure is written by hand a second time: they come from bindgen, with tests of their layout.

use sexton_rocksdb_layout::column_family_handle;
use sexton_tuner::evidence::{BlockFetches, Counters, KEYS_PER_TOMBSTONE, TOMBSTONES_PER_RESEEK};

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
const _: () = assert!(SEXTON_KEYS_PER_TOMBSTONE as u64 == KEYS_PER_TOMBSTONE);
const _: () = assert!(SEXTON_TOMBSTONES_PER_RESEEK as u64 == TOMBSTONES_PER_RESEEK);

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

macro_rules! records {
    ($($record:ident),* $(,)?) => {
        // SAFETY: all of these are integers and arrays of integers, with explicit padding fields.
        $(unsafe impl Record for $record {})*
    };
}

records!(
    sexton_recipe,
    sexton_process,
    sexton_operation,
    sexton_identity,
    sexton_iterator_id,
    sexton_thread_id,
    sexton_thread,
    sexton_spending,
    sexton_learnt,
    sexton_file_id,
    sexton_file,
    sexton_family_id,
    sexton_family,
    sexton_totals,
    sexton_thread_reading,
    sexton_process_event,
    u32,
    u64,
);

impl From<sexton_counters> for Counters {
    fn from(counters: sexton_counters) -> Counters {
        Counters {
            tombstones_skipped: counters.tombstones_skipped,
            keys_skipped: counters.keys_skipped,
            block_reads: counters.block_reads,
            block_read_bytes: counters.block_read_bytes,
            block_cache_hits: counters.block_cache_hits,
            merge_operands: counters.merge_operands,
            range_deletion_reseeks: counters.range_deletion_reseeks,
        }
    }
}

impl From<sexton_fetches> for BlockFetches {
    fn from(fetches: sexton_fetches) -> BlockFetches {
        BlockFetches { count: fetches.count, bytes: fetches.bytes, latency_ns: fetches.latency_ns }
    }
}

impl sexton_totals {
    /// Number by number through `combine`: a sum over CPUs, or the difference of two readings. It consists of
    /// `u64` alone.
    pub fn combine(self, other: sexton_totals, combine: fn(u64, u64) -> u64) -> sexton_totals {
        let (ours, theirs) = (self.as_bytes().as_chunks().0, other.as_bytes().as_chunks().0);
        let number = |(one, two): (&[u8; 8], &[u8; 8])| {
            combine(u64::from_ne_bytes(*one), u64::from_ne_bytes(*two)).to_ne_bytes()
        };
        let bytes: Vec<u8> = ours.iter().zip(theirs).flat_map(number).collect();
        sexton_totals::from_bytes(&bytes).unwrap_or_default()
    }
}
