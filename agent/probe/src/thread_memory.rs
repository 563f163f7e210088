//! Threads' counters, read out of their memory.
//!
//! The kernel names a target's threads and where each one's thread-local memory begins; the steps from there
//! are those of `bpf/tls.h`. They are system calls of an ordinary thread of the agent: one that waits for a
//! page of a file system that hangs holds up its own target and nobody else.

use super::abi::{
    SEXTON_DTV_MUSL_SLOT_BYTES, SEXTON_DTV_OFFSET, SEXTON_DTV_SLOT_BYTES, SEXTON_DTV_UNALLOCATED,
    SEXTON_OFFSET_ABSENT, SEXTON_READING_FAILED, SEXTON_READING_HAS_COUNTERS, SEXTON_READING_HAS_PERF_LEVEL,
    SEXTON_SKIP_WORDS, sexton_counters, sexton_recipe, sexton_thread_reading,
};
use sexton_inspect::memory::{self, MemoryError};

// bindgen takes words of all ones for -1.
const UNALLOCATED: u64 = SEXTON_DTV_UNALLOCATED as u64;
const GLIBC_SLOT_BYTES: u64 = SEXTON_DTV_SLOT_BYTES as u64;
const MUSL_SLOT_BYTES: u64 = SEXTON_DTV_MUSL_SLOT_BYTES as u64;

/// Words of `{block_cache_hit_count, block_read_count, block_read_byte}`.
const BLOCK_WORDS: usize = 3;

/// Words from `internal_key_skipped_count` on.
const SKIP_WORDS: usize = SEXTON_SKIP_WORDS as usize;

/// Reads the counters of a thread whose thread pointer is known. One that has not touched RocksDB has none,
/// and one whose memory cannot be read is marked as such.
pub(super) fn read_counters(pid: u32, recipe: &sexton_recipe, reading: &mut sexton_thread_reading) {
    match counters(pid, recipe, reading.thread_pointer) {
        Ok(Some((block, counters))) => {
            reading.counters = counters;
            reading.flags |= SEXTON_READING_HAS_COUNTERS;
            read_level(pid, recipe, block, reading);
        }
        Ok(None) => {}
        Err(_) => reading.flags |= SEXTON_READING_FAILED,
    }
}

fn read_level(pid: u32, recipe: &sexton_recipe, block: u64, reading: &mut sexton_thread_reading) {
    if recipe.perf_level_offset == SEXTON_OFFSET_ABSENT as u64 {
        return;
    }
    let address = block.wrapping_add(recipe.perf_level_offset);
    if let Some(level) = memory::read(pid, address, 1).ok().and_then(|bytes| bytes.first().copied()) {
        (reading.perf_level, reading.perf_level_address) = (u32::from(level), address);
        reading.flags |= SEXTON_READING_HAS_PERF_LEVEL;
    }
}

/// The module's thread-local block, and the counters in it; `None` where the thread has not touched the
/// module.
fn counters(
    pid: u32,
    recipe: &sexton_recipe,
    thread_pointer: u64,
) -> Result<Option<(u64, sexton_counters)>, MemoryError> {
    let Some(block) = block(pid, recipe, thread_pointer)? else { return Ok(None) };
    let context = block.wrapping_add(recipe.perf_context_offset);
    let at = |offset: u32| context.wrapping_add(u64::from(offset));
    let [cache_hits, reads, read_bytes] = words::<BLOCK_WORDS>(pid, at(recipe.block_counters_offset))?;
    let skips = words::<SKIP_WORDS>(pid, at(recipe.skip_counters_offset))?;
    let [keys, tombstones, _recent, merges, ..] = skips;
    let reseeks = match recipe.reseek_word {
        0 => 0,
        word => usize::try_from(word).ok().and_then(|word| skips.get(word)).copied().unwrap_or(0),
    };
    let counters = sexton_counters {
        tombstones_skipped: tombstones,
        keys_skipped: keys,
        block_reads: reads,
        block_read_bytes: read_bytes,
        block_cache_hits: cache_hits,
        merge_operands: merges,
        range_deletion_reseeks: reseeks,
    };
    Ok(Some((block, counters)))
}

fn block(pid: u32, recipe: &sexton_recipe, thread_pointer: u64) -> Result<Option<u64>, MemoryError> {
    if thread_pointer == 0 {
        return Ok(None);
    }
    if recipe.module_id == 0 {
        return Ok(Some(thread_pointer.wrapping_add_signed(recipe.static_offset)));
    }
    let (slot_bytes, length_before) =
        if recipe.has_musl_vector != 0 { (MUSL_SLOT_BYTES, 0) } else { (GLIBC_SLOT_BYTES, GLIBC_SLOT_BYTES) };
    let vector = memory::read_u64(pid, thread_pointer.wrapping_add(SEXTON_DTV_OFFSET.into()))?;
    let length = memory::read_u64(pid, vector.wrapping_sub(length_before))?;
    // A vector that is too short belongs to a thread older than the module.
    if recipe.module_id > length {
        return Ok(None);
    }
    let block = memory::read_u64(pid, vector.wrapping_add(slot_bytes.wrapping_mul(recipe.module_id)))?;
    Ok((block != 0 && block != UNALLOCATED).then_some(block))
}

fn words<const COUNT: usize>(pid: u32, address: u64) -> Result<[u64; COUNT], MemoryError> {
    let bytes = memory::read(pid, address, COUNT * size_of::<u64>())?;
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    const MODULE: usize = 3;
    const LEVEL: u64 = 2;

    /// Thread-local memory as a thread of this process could have it: a block with a perf level and, 16 bytes
    /// further, counters.
    fn block_of(first: u64) -> Vec<u64> {
        let mut block = vec![LEVEL, 0];
        block.extend((0..16).map(|word| first + word));
        block
    }

    fn recipe() -> sexton_recipe {
        sexton_recipe {
            perf_context_offset: 16,
            perf_level_offset: 0,
            block_counters_offset: 8,
            skip_counters_offset: 48,
            reseek_word: 5,
            ..sexton_recipe::default()
        }
    }

    fn address(words: &[u64]) -> u64 {
        words.as_ptr() as u64
    }

    fn read(recipe: &sexton_recipe, thread_pointer: u64) -> sexton_thread_reading {
        let mut reading = sexton_thread_reading { thread_pointer, ..sexton_thread_reading::default() };
        read_counters(std::process::id(), recipe, &mut reading);
        reading
    }

    fn assert_found(reading: &sexton_thread_reading, block: &[u64]) {
        let expected = sexton_counters {
            block_cache_hits: 101,
            block_reads: 102,
            block_read_bytes: 103,
            keys_skipped: 106,
            tombstones_skipped: 107,
            merge_operands: 109,
            range_deletion_reseeks: 111,
        };
        assert_eq!(reading.counters, expected);
        assert_eq!(reading.flags, SEXTON_READING_HAS_COUNTERS | SEXTON_READING_HAS_PERF_LEVEL);
        assert_eq!((u64::from(reading.perf_level), reading.perf_level_address), (LEVEL, address(block)));
    }

    #[test]
    fn static_memory_lies_at_a_distance_from_the_thread_pointer() {
        let block = block_of(100);
        let recipe = sexton_recipe { static_offset: -4096, ..recipe() };
        assert_found(&read(&recipe, address(&block) + 4096), &block);
    }

    #[test]
    fn dynamic_memory_is_found_by_glibcs_vector_and_by_musls() {
        let block = block_of(100);
        // Slots of 16 bytes; the length stands one slot before slot 0.
        let mut glibc = [0u64; 2 * (MODULE + 3)];
        (glibc[0], glibc[2 * (MODULE + 1)]) = (MODULE as u64, address(&block));
        let mut musl = [0u64; MODULE + 1];
        (musl[0], musl[MODULE]) = (MODULE as u64, address(&block));
        for (vector, has_musl_vector) in [(address(&glibc[2..]), 0), (address(&musl), 1)] {
            let thread = [0, vector];
            let recipe = sexton_recipe { module_id: MODULE as u64, has_musl_vector, ..recipe() };
            assert_found(&read(&recipe, address(&thread)), &block);
        }
    }

    #[test]
    fn a_thread_that_has_not_touched_the_module_has_nothing_to_read() {
        let mut glibc = [0u64; 2 * (MODULE + 3)];
        let recipe = sexton_recipe { module_id: MODULE as u64, ..recipe() };
        for (length, slot) in [(MODULE as u64, 0), (MODULE as u64, UNALLOCATED), (MODULE as u64 - 1, 4096)] {
            (glibc[0], glibc[2 * (MODULE + 1)]) = (length, slot);
            let thread = [0, address(&glibc[2..])];
            assert_eq!(read(&recipe, address(&thread)).flags, 0);
        }
        assert_eq!(read(&recipe, 0).flags, 0);
    }

    #[test]
    fn memory_that_cannot_be_read_is_told_apart_from_no_counters() {
        let nowhere = [0, 4096];
        let recipe = sexton_recipe { module_id: MODULE as u64, ..recipe() };
        for thread_pointer in [1, u64::MAX - 3, address(&nowhere)] {
            assert_eq!(read(&recipe, thread_pointer).flags, SEXTON_READING_FAILED);
        }
    }
}
