//! Every metric there is.
//!
//! Names and units follow Prometheus' conventions; `deploy/prometheus/metrics.md` is generated from here.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Never falls while the agent runs.
    Counter,
    Gauge,
    /// With buckets, a sum and a count; none of them falls while the agent runs.
    Histogram,
}

#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const TARGET: &[&str] = &["target"];
const THROTTLE: &[&str] = &["target", "throttle"];

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels: &["target", "column_family"], help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

/// Every metric there is, in the order of the list in `deploy/prometheus/metrics.md`.
pub const METRICS: &[Metric] = &[
    gauge("sexton_build_info", &["version"], "Version of the agent; always 1."),
    counter(
        "sexton_cycles_total",
        &[],
        "Loops of observing, ranking, planning and acting that were completed.",
    ),
    gauge("sexton_snapshot_timestamp_seconds", &[], "When the state shown here was published, as Unix time."),
    gauge(
        "sexton_schedule_period_open",
        &["period"],
        "Whether a period of the policy's schedule is open and its values hold (1) or not (0).",
    ),
    gauge("sexton_budget_bytes_per_second", &[], "Bytes a second that actions may rewrite now."),
    gauge(
        "sexton_workers_left_behind",
        &[],
        "Threads of the agent that wait for processes or files which do not answer.",
    ),
    gauge("sexton_target_up", TARGET, "Whether the process is there (1) or has gone (0)."),
    gauge(
        "sexton_target_readable",
        TARGET,
        "Whether the counters of the process can be read (1) or not (0).",
    ),
    gauge(
        "sexton_target_unresponsive",
        TARGET,
        "Whether the process has missed a deadline of the agent's, or stands still (1), or answers (0).",
    ),
    gauge(
        "sexton_target_gaps",
        TARGET,
        "Things that could not be found out about the process; /api/v1/targets names them.",
    ),
    gauge("sexton_target_hook", TARGET, "Whether a hook answers inside the process (1) or not (0)."),
    gauge(
        "sexton_target_act_mode",
        TARGET,
        "Whether the policy lets Sexton act on the process: 1 in mode act, else 0.",
    ),
    gauge(
        "sexton_target_executor_info",
        &["target", "executor"],
        "Who compacts in mode act by the policy (hook, exec, sql or none); always 1.",
    ),
    gauge("sexton_target_threads", TARGET, "Threads of the process with a perf_context at the last reading."),
    counter("sexton_target_threads_ended_total", TARGET, "Threads that ended."),
    counter(
        "sexton_target_threads_ended_unread_total",
        TARGET,
        "Threads that ended unread, taking what they counted since the last reading along.",
    ),
    gauge(
        "sexton_target_perf_level",
        TARGET,
        "Lowest RocksDB perf level of any thread; counters move from 2 on.",
    ),
    gauge(
        "sexton_target_perf_level_raised_threads",
        TARGET,
        "Threads that count only because the policy has their perf level raised.",
    ),
    counter(
        "sexton_tombstones_skipped_total",
        TARGET,
        "Tombstones that readers stepped over (internal_delete_skipped_count).",
    ),
    counter(
        "sexton_keys_skipped_total",
        TARGET,
        "Internal keys that readers stepped over (internal_key_skipped_count).",
    ),
    counter(
        "sexton_old_versions_skipped_total",
        TARGET,
        "Older versions of keys that operations in windows stepped over: at least so many.",
    ),
    counter(
        "sexton_merge_operands_total",
        TARGET,
        "Merge operands that iterators merged (internal_merge_count).",
    ),
    counter(
        "sexton_range_deletion_reseeks_total",
        TARGET,
        "Seeks of iterators behind a range tombstone (internal_range_del_reseek_count, from RocksDB 7.7 on).",
    ),
    counter(
        "sexton_block_reads_total",
        TARGET,
        "Blocks that were not in the block cache and were read from files (block_read_count).",
    ),
    counter(
        "sexton_block_read_bytes_total",
        TARGET,
        "Bytes of the blocks read from files (block_read_byte).",
    ),
    counter(
        "sexton_block_cache_hits_total",
        TARGET,
        "Blocks found in the block cache (block_cache_hit_count).",
    ),
    counter(
        "sexton_tombstones_attributed_total",
        TARGET,
        "Part of the tombstones skipped that windows attributed to operations.",
    ),
    counter("sexton_windows_total", TARGET, "Windows opened: short times with probes in the process."),
    counter("sexton_window_seconds_total", TARGET, "Time that probes were in the process."),
    gauge(
        "sexton_window_duty_ratio",
        TARGET,
        "Share of the time since it is watched that probes were in the process.",
    ),
    counter(
        "sexton_windows_truncated_total",
        TARGET,
        "Windows that were closed before their time because the probe budget was spent.",
    ),
    counter(
        "sexton_windows_deferred_total",
        TARGET,
        "Windows that were wanted when there was no probe budget for one.",
    ),
    counter(
        "sexton_probe_cost_seconds_total",
        TARGET,
        "Time that probes took from the threads of the process: firings times their corrected price.",
    ),
    counter(
        "sexton_probe_learnt_cost_seconds_total",
        TARGET,
        "The same by the learnt prices, before they are corrected by the process' own counters.",
    ),
    gauge("sexton_probe_budget_ratio", TARGET, "Share of one processor core that probes may take."),
    gauge(
        "sexton_probe_budget_available_seconds",
        TARGET,
        "Time that probes may take now; below zero it is owed.",
    ),
    gauge(
        "sexton_probe_price_seconds",
        &["kind"],
        "What one firing of a probe costs on this machine, as learnt on functions of the agent's own.",
    ),
    gauge(
        "sexton_probe_corrected_price_seconds",
        &["target", "kind"],
        "What one firing of a probe costs the process: the learnt price, corrected by the process' own counters.",
    ),
    gauge(
        "sexton_probe_price_correction_ratio",
        TARGET,
        "What the learnt prices are multiplied by for the process; 1 until enough windows have told.",
    ),
    gauge(
        "sexton_probe_price_correction_windows",
        TARGET,
        "Windows that tell the correction, of the last 64 that were fit to.",
    ),
    counter("sexton_operations_total", TARGET, "Iterator operations seen in windows."),
    counter(
        "sexton_operations_recorded_total",
        TARGET,
        "Iterator operations seen in windows that were chosen for a record: large ones, and a sample of small ones.",
    ),
    counter(
        "sexton_operations_estimated_total",
        TARGET,
        "Iterator operations whose tombstones are an estimate: RocksDB's counters stand still.",
    ),
    counter(
        "sexton_records_lost_total",
        TARGET,
        "Operations chosen for a record that did not fit into the ring buffer.",
    ),
    counter(
        "sexton_block_reads_timed_total",
        TARGET,
        "Block reads that windows timed, a part of all block reads.",
    ),
    counter("sexton_block_read_seconds_total", TARGET, "Time that the timed block reads took."),
    histogram(
        "sexton_seek_latency_seconds",
        "Positioning calls of iterators in windows, from entry to return.",
    ),
    histogram(
        "sexton_list_latency_seconds",
        "Operations in windows, from the positioning call to their end; the caller's own time is in it.",
    ),
    histogram("sexton_block_read_latency_seconds", "Block reads from files for operations in windows."),
    histogram(
        "sexton_tombstones_per_operation",
        "Tombstones that operations in windows stepped over, and what takes readers as long.",
    ),
    gauge(
        "sexton_seek_pain_ratio",
        TARGET,
        "Seek pain of all ranges: reader seconds lost to tombstones and block misses per second.",
    ),
    gauge(
        "sexton_seek_pain_unrecorded_ratio",
        TARGET,
        "Seek pain of operations that were too small for a record and that no record stands for; in no range.",
    ),
    gauge(
        "sexton_seek_pain_unowned_ratio",
        TARGET,
        "Seek pain of tombstones that were skipped in no operation the probes followed; in no range.",
    ),
    gauge(
        "sexton_block_reads_unowned_ratio",
        TARGET,
        "Time of blocks read in no operation the probes followed: for point reads and compactions, above all.",
    ),
    gauge(
        "sexton_range_seek_pain_ratio",
        &["target", "rank"],
        "Seek pain of the best ranked ranges, seconds per second; rank 1 is relieved first.",
    ),
    gauge(
        "sexton_range_block_read_pain_ratio",
        &["target", "rank"],
        "The block misses' part of the seek pain of the best ranked ranges, seconds per second.",
    ),
    gauge(
        "sexton_range_block_cache_hit_ratio",
        &["target", "rank"],
        "Blocks that readers of the best ranked ranges found in the block cache, per block they needed.",
    ),
    gauge("sexton_plan_steps", &[], "Steps of the current plan."),
    gauge("sexton_plan_cost_bytes", &[], "Bytes that the current plan would rewrite."),
    gauge("sexton_plan_budget_bytes", &[], "Bytes that the current plan may spend."),
    gauge(
        "sexton_plan_refusals",
        &["target", "rule"],
        "Ranges and throttles that the current plan leaves alone, by the rule that says so, as in /api/v1/plan.",
    ),
    gauge("sexton_actions_running", TARGET, "Actions that run now."),
    gauge("sexton_throttles_failing", TARGET, "Throttles that could not be set, and are tried again."),
    gauge(
        "sexton_throttle_wanted",
        THROTTLE,
        "Number that a throttle should have; there is none where its value is no number, or not known yet.",
    ),
    gauge(
        "sexton_throttle_observed",
        THROTTLE,
        "Number that was read last, or set last where none can be read.",
    ),
    gauge(
        "sexton_throttle_in_force",
        THROTTLE,
        "Whether a throttle has the value that it should have (1) or not (0).",
    ),
    gauge("sexton_throttle_slowest", THROTTLE, "Number that a throttle has under full pressure now."),
    gauge("sexton_throttle_fastest", THROTTLE, "Number that a throttle has without any pressure now."),
    gauge(
        "sexton_pressure_ratio",
        TARGET,
        "Pressure that a target is under by the policy's signals, from 0 (none) to 1 (full).",
    ),
    gauge(
        "sexton_pressure_signal_ratio",
        &["target", "signal"],
        "Pressure by one signal, from 0 to 1; there is none where it cannot be read.",
    ),
    gauge(
        "sexton_pressure_signal_value",
        &["target", "signal", "kind"],
        "A signal as it was measured: a share of 1, seconds, or the number of a metric.",
    ),
    gauge(
        "sexton_pressure_signal_readable",
        &["target", "signal"],
        "Whether a signal can be read (1) or not (0); /api/v1/throttles says why.",
    ),
    counter(
        "sexton_actions_total",
        &["target", "state"],
        "Actions that ended (done, skipped, failed, cancelled, stopped by a guard, interrupted), and how the done ones were verified (helped, did_not_help).",
    ),
    counter("sexton_slice_pauses_total", TARGET, "Times that guards paused a slice while it ran."),
    counter(
        "sexton_guard_refusals_total",
        &["target", "guard"],
        "Objections of each guard to acting on the process, before a slice began or while it ran.",
    ),
    gauge(
        "sexton_guard_blocking",
        &["target", "guard"],
        "Whether the guard objects to acting on the process now (1) or not (0).",
    ),
    counter(
        "sexton_relief_promised_ratio_total",
        TARGET,
        "Seek pain (reader seconds per second) that verified actions were to take away, summed over the actions.",
    ),
    counter(
        "sexton_relief_delivered_ratio_total",
        TARGET,
        "Seek pain (reader seconds per second) that these actions did take away, summed over them.",
    ),
    gauge(
        "sexton_tombstone_cost_seconds",
        TARGET,
        "Reader time per tombstone stepped over, as learnt from the process or assumed.",
    ),
    gauge(
        "sexton_block_read_cost_seconds",
        TARGET,
        "Reader time per block read that was not timed itself, as learnt from the process or assumed.",
    ),
    counter(
        "sexton_bytes_rewritten_total",
        TARGET,
        "Bytes of the SST files that ended actions replaced, flushed first, or had written when they were stopped.",
    ),
    gauge(
        "sexton_policy_current",
        &[],
        "Whether what is in the policy's file is in force (1), or the last good one instead (0).",
    ),
    gauge(
        "sexton_state_writable",
        &[],
        "Whether the agent's state can be written (1) or not (0); while it cannot, no action begins.",
    ),
    gauge(
        "sexton_state_waiting_batches",
        &[],
        "Batches of records that wait in memory until the state can be written.",
    ),
    counter("sexton_events_total", &["event"], "Events that were told, as in /api/v1/events."),
];
