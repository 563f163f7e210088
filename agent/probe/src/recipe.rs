//! From a target's facts to the recipe that the BPF programs follow.

use super::{Credit, ProbeError, abi};
use sexton_inspect::facts::{CountSource, PerfContextLayout, Target, TlsRecipe};
use sexton_tuner::sampling::Sampling;

/// How large an operation is that gets a record of its own. Of smaller ones so many together get one as make
/// that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Tombstones skipped by one operation, its scan included; 0 records every operation.
    pub tombstones_per_operation: u64,
    /// Blocks read by one operation, its scan included.
    pub block_reads_per_operation: u64,
}

impl Thresholds {
    /// Those that a recipe has.
    pub(super) fn of(recipe: &abi::sexton_recipe) -> Thresholds {
        Thresholds {
            tombstones_per_operation: recipe.tombstones_per_record,
            block_reads_per_operation: recipe.block_reads_per_record,
        }
    }

    /// Those that records come by now, where these are what is begun with.
    pub(super) fn scaled(self, sampling: Sampling) -> Thresholds {
        Thresholds {
            tombstones_per_operation: sampling.scaled(self.tombstones_per_operation),
            block_reads_per_operation: sampling.scaled(self.block_reads_per_operation),
        }
    }

    /// Has a recipe record by them.
    pub(super) fn put_into(self, recipe: &mut abi::sexton_recipe) {
        recipe.tombstones_per_record = self.tombstones_per_operation;
        recipe.block_reads_per_record = self.block_reads_per_operation;
    }
}

/// The recipe of a target. Where its threads have no counters, one that estimates from the iterators' own
/// count.
/// Errors: [`ProbeError::NoCounters`] where there is nothing to count by, [`ProbeError::Layout`] where the
/// counters are not neighbours the way the programs read them.
pub fn recipe(
    target: &Target,
    thresholds: Thresholds,
    credit: &Credit,
) -> Result<abi::sexton_recipe, ProbeError> {
    let module = &target.module;
    let keys_skipped_offset = module.keys_skipped_offset.unwrap_or(0);
    let of_threads = match module.counts {
        CountSource::PerfContext => thread_counters(target)?,
        CountSource::IteratorEstimate if keys_skipped_offset != 0 => abi::sexton_recipe::default(),
        CountSource::IteratorEstimate | CountSource::Nothing => {
            return Err(ProbeError::NoCounters { pid: target.process.pid });
        }
    };
    Ok(abi::sexton_recipe {
        tombstones_per_record: thresholds.tombstones_per_operation,
        block_reads_per_record: thresholds.block_reads_per_operation,
        db_iter_offset: module.db_iter_offset.unwrap_or(0),
        current_key_offset: module.current_key_offset.unwrap_or(0),
        keys_skipped_offset,
        skip_count_offset: module.skip_count_offset.unwrap_or(0),
        fetch_file_offset: abi::SEXTON_FETCH_FILE_UNKNOWN,
        process_id: target.process.pid,
        price_ns: credit.price_ns,
        ..of_threads
    })
}

/// Which word from `internal_key_skipped_count` on counts the reseeks; 0 where none is known to.
fn reseek_word(layout: &PerfContextLayout) -> u32 {
    let behind = layout
        .internal_range_del_reseek_count
        .and_then(|it| it.checked_sub(layout.internal_key_skipped_count));
    behind.map(|bytes| bytes / 8).filter(|word| *word < abi::SEXTON_SKIP_WORDS).unwrap_or(0)
}

/// The part of a recipe that says where a thread's counters are.
fn thread_counters(target: &Target) -> Result<abi::sexton_recipe, ProbeError> {
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
    let (module_id, static_offset, has_musl_vector) = match tls {
        TlsRecipe::Static { offset } => (0, offset, 0),
        TlsRecipe::DynamicThreadVector { module_id } => (module_id, 0, 0),
        TlsRecipe::MuslThreadVector { module_id } => (module_id, 0, 1),
    };
    Ok(abi::sexton_recipe {
        has_perf_context: 1,
        module_id,
        static_offset,
        has_musl_vector,
        perf_context_offset,
        perf_level_offset: module.perf_level_offset.unwrap_or(abi::SEXTON_OFFSET_ABSENT as u64),
        block_counters_offset: layout.block_cache_hit_count,
        skip_counters_offset: layout.internal_key_skipped_count,
        reseek_word: reseek_word(layout),
        ..abi::sexton_recipe::default()
    })
}
