//! From a target's facts to the recipe that the BPF programs follow.

use super::{Credit, ProbeError, abi};
use crate::target::facts::{Target, TlsRecipe};

/// From where an operation is painful enough for a record of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Tombstones skipped by one operation, its scan included.
    pub tombstones_per_operation: u64,
    /// Blocks read by one operation, its scan included.
    pub block_reads_per_operation: u64,
}

/// The recipe of a target.
///
/// # Errors
/// [`ProbeError::NoCounters`] where threads have none, [`ProbeError::Layout`] where they are not neighbours
/// the way the programs read them.
pub fn recipe(
    target: &Target,
    thresholds: Thresholds,
    credit: &Credit,
) -> Result<abi::sexton_recipe, ProbeError> {
    let module = &target.module;
    let (Some(layout), Some(tls), Some(perf_context_offset)) =
        (&module.layout, module.tls, module.perf_context_offset)
    else {
        return Err(ProbeError::NoCounters { pid: target.process.pid });
    };
    let neighbours = layout.block_read_count == layout.block_cache_hit_count + 8
        && layout.block_read_byte == layout.block_read_count + 8
        && layout.internal_delete_skipped_count == layout.internal_key_skipped_count + 8;
    if !neighbours {
        return Err(ProbeError::Layout { pid: target.process.pid, versions: layout.versions.clone() });
    }
    let (module_id, static_offset) = match tls {
        TlsRecipe::Static { offset } => (0, offset),
        TlsRecipe::DynamicThreadVector { module_id } => (module_id, 0),
    };
    Ok(abi::sexton_recipe {
        module_id,
        static_offset,
        perf_context_offset,
        perf_level_offset: module.perf_level_offset.unwrap_or(abi::SEXTON_OFFSET_ABSENT as u64),
        tombstones_painful: thresholds.tombstones_per_operation,
        block_reads_painful: thresholds.block_reads_per_operation,
        block_counters_offset: layout.block_cache_hit_count,
        skip_counters_offset: layout.internal_key_skipped_count,
        db_iter_offset: module.db_iter_offset.unwrap_or(0),
        current_key_offset: module.current_key_offset.unwrap_or(0),
        process_id: target.process.pid,
        padding: 0,
        price_ns: credit.price_ns,
    })
}
