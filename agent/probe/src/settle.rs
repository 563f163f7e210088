//! What threads have counted between their last event and the end of a window, and whom it is charged to.
//! The programs see no event there; the sentinel's readings around the end tell.

use super::SentinelReading;
use super::abi::{sexton_counters, sexton_operation, sexton_thread};
use sexton_tuner::evidence::Counters;
use std::collections::HashMap;

/// What was counted after the last events of threads.
#[derive(Default)]
pub(crate) struct Settled {
    /// Charged to the operations that are still open.
    pub(crate) attributed: Counters,
    /// Counted around a pause.
    pub(crate) paused: Counters,
}

/// Charges what was counted after each thread's last event, up to the settling reading. Of a thread whose
/// last event was before the last pause it is not known whose it is.
pub(crate) fn settle(
    threads: &[(u32, sexton_thread)],
    pause: u64,
    open: &mut HashMap<u64, sexton_operation>,
    (settling, closing): (&SentinelReading, &SentinelReading),
) -> Settled {
    let mut settled = Settled::default();
    for (thread_id, thread) in threads {
        let key = (*thread_id, thread.start_boot_ns);
        let Some(work) = settling.by_thread.get(&key) else { continue };
        let after = closing.by_thread.get(&key).filter(|_| closing.at > settling.at);
        let delta = since_last_event(thread.boundary.into(), work.counters, after.map(|work| work.counters));
        if thread.pause != pause {
            settled.paused = settled.paused.plus(delta);
            continue;
        }
        let in_seek = thread.active != 0;
        let charged = if in_seek { thread.active } else { thread.owner };
        // Which of them has moved since then is not asked: the process may have gone on, or have gone.
        let is_one_of_several =
            thread.positioned.iter().filter(|iterator| open.contains_key(iterator)).count() > 1;
        let Some(operation) = open.get_mut(&charged) else { continue };
        let part = if in_seek { &mut operation.seek } else { &mut operation.scan };
        *part = raw(Counters::from(*part).plus(delta));
        settled.attributed = settled.attributed.plus(delta);
        if !in_seek && is_one_of_several {
            operation.tombstones_ambiguous += delta.tombstones_skipped;
        }
    }
    settled
}

/// What a thread has counted from its last event to the settling reading; `after` is what it had counted when
/// the probes had gone. Most threads that work have events between that reading and the probes' end: their
/// boundary is ahead of the reading, and nothing is left to charge. Only one that is below its boundary in
/// the end too has set its counters to zero, in a way that no probe saw: then all of it was counted since.
fn since_last_event(boundary: Counters, settling: Counters, after: Option<Counters>) -> Counters {
    if !settling.fell_below(boundary) {
        return settling.minus(boundary);
    }
    let was_reset = after.is_some_and(|after| after.fell_below(boundary));
    if was_reset { settling } else { Counters::default() }
}

fn raw(counters: Counters) -> sexton_counters {
    sexton_counters {
        tombstones_skipped: counters.tombstones_skipped,
        keys_skipped: counters.keys_skipped,
        block_reads: counters.block_reads,
        block_read_bytes: counters.block_read_bytes,
        block_cache_hits: counters.block_cache_hits,
        merge_operands: counters.merge_operands,
        range_deletion_reseeks: counters.range_deletion_reseeks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstones(tombstones_skipped: u64) -> Counters {
        Counters { tombstones_skipped, ..Counters::default() }
    }

    #[test]
    fn what_came_after_the_last_event_is_charged() {
        assert_eq!(since_last_event(tombstones(100), tombstones(140), Some(tombstones(150))), tombstones(40));
        assert_eq!(since_last_event(tombstones(100), tombstones(140), None), tombstones(40));
    }

    /// A thread that lists ten thousand times a second was charged with all that it had counted in its life.
    #[test]
    fn a_thread_with_events_after_the_settling_reading_is_charged_with_nothing() {
        assert_eq!(since_last_event(tombstones(100), tombstones(90), Some(tombstones(120))), tombstones(0));
        assert_eq!(since_last_event(tombstones(100), tombstones(90), None), tombstones(0));
    }

    #[test]
    fn counters_that_were_set_to_zero_are_charged_whole() {
        assert_eq!(since_last_event(tombstones(100), tombstones(30), Some(tombstones(35))), tombstones(30));
    }
}
