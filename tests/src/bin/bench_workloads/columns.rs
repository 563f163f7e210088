//! The figures of a run, one a column: in the table for people and in the file for programs.

use crate::order::{Healthy, Latencies, Measured};
use crate::results::Run;

const MS: f64 = 1e6;
const US: f64 = 1e3;
const MIB: f64 = 1_048_576.0;

/// One figure.
pub struct Column {
    /// With its unit: `list_mean_ns`.
    pub name: &'static str,
    /// In the table, where the figure is divided by what follows and shown with so many decimals. Empty:
    /// it is not there.
    pub heading: &'static str,
    pub divisor: f64,
    pub decimals: usize,
    /// `None` where the run has none.
    pub value: fn(&Run, &Healthy) -> Option<f64>,
}

/// A figure that is not in the table.
const fn hidden(name: &'static str, value: fn(&Run, &Healthy) -> Option<f64>) -> Column {
    Column { name, heading: "", divisor: 1.0, decimals: 0, value }
}

const fn shown(
    name: &'static str,
    heading: &'static str,
    (divisor, decimals): (f64, usize),
    value: fn(&Run, &Healthy) -> Option<f64>,
) -> Column {
    Column { name, heading, divisor, decimals, value }
}

pub const COLUMNS: [Column; 36] = [
    shown("list_mean_ns", "list mean ms", (MS, 3), |run, _| some(&run.measured.list, |all| all.mean_ns)),
    shown("list_p50_ns", "p50", (MS, 3), |run, _| some(&run.measured.list, |all| all.p50_ns as f64)),
    shown("list_p99_ns", "p99", (MS, 2), |run, _| some(&run.measured.list, |all| all.p99_ns as f64)),
    shown("list_max_ns", "max", (MS, 1), |run, _| some(&run.measured.list, |all| all.max_ns as f64)),
    shown("seek_mean_ns", "seek mean ms", (MS, 3), |run, _| some(&run.measured.seek, |all| all.mean_ns)),
    shown("seek_p50_ns", "p50", (MS, 3), |run, _| some(&run.measured.seek, |all| all.p50_ns as f64)),
    shown("seek_p99_ns", "p99", (MS, 2), |run, _| some(&run.measured.seek, |all| all.p99_ns as f64)),
    shown("seek_max_ns", "max", (MS, 1), |run, _| some(&run.measured.seek, |all| all.max_ns as f64)),
    shown("get_p99_ns", "get p99 us", (US, 1), |run, _| some(&run.measured.get, |all| all.p99_ns as f64)),
    shown("write_p99_ns", "write p99 us", (US, 1), |run, _| {
        some(&run.measured.write, |all| all.p99_ns as f64)
    }),
    shown("reader_seconds_lost", "lost s", (1.0, 3), |run, healthy| {
        (!run.measured.seconds.is_empty()).then(|| lost_seconds(&run.measured, healthy))
    }),
    shown("tombstones_per_list", "tombstones", (1.0, 0), |run, _| Some(run.measured.tombstones_per_list)),
    shown("operations_per_second", "operations/s", (1.0, 0), |run, _| {
        Some(run.measured.operations_per_second)
    }),
    shown("flushed_bytes", "flushed MiB", (MIB, 1), |run, _| Some(run.measured.flushed_bytes as f64)),
    shown("compaction_written_bytes", "compacted MiB", (MIB, 1), |run, _| {
        Some(run.measured.compaction_written_bytes as f64)
    }),
    shown("compaction_peak_bytes_per_second", "peak MiB/s", (MIB, 1), |run, _| {
        Some(run.measured.seconds.iter().map(|second| second.compaction_bytes).max()? as f64)
    }),
    shown("sst_bytes_after", "space MiB", (MIB, 1), |run, _| Some(run.measured.sst_bytes_after as f64)),
    shown("disk_peak_bytes", "peak MiB", (MIB, 1), |run, _| Some(run.measured.disk_peak_bytes as f64)),
    shown("processor_seconds", "CPU s", (1.0, 1), |run, _| Some(run.measured.processor_seconds)),
    shown("agent_processor_seconds", "agent CPU s", (1.0, 2), |run, _| {
        run.agent.as_ref().map(|agent| agent.processor_seconds)
    }),
    shown("agent_resident_peak_bytes", "agent MiB", (MIB, 1), |run, _| {
        run.agent.as_ref().map(|agent| agent.resident_peak_bytes as f64)
    }),
    shown("agent_probe_seconds", "probes s", (1.0, 3), |run, _| {
        run.agent.as_ref().map(|agent| agent.probe_seconds)
    }),
    shown("agent_actions", "actions", (1.0, 0), |run, _| {
        run.agent.as_ref().map(|agent| agent.actions() as f64)
    }),
    shown("agent_rewritten_bytes", "rewritten MiB", (MIB, 1), |run, _| {
        run.agent.as_ref().map(|agent| agent.rewritten_bytes as f64)
    }),
    hidden("list_count", |run, _| Some(run.measured.list.count as f64)),
    hidden("lists_missed", |run, _| {
        Some(run.measured.seconds.iter().map(|second| second.lists_missed).sum::<u64>() as f64)
    }),
    hidden("get_p50_ns", |run, _| some(&run.measured.get, |all| all.p50_ns as f64)),
    hidden("write_p50_ns", |run, _| some(&run.measured.write, |all| all.p50_ns as f64)),
    hidden("write_max_ns", |run, _| some(&run.measured.write, |all| all.max_ns as f64)),
    hidden("block_reads_per_list", |run, _| Some(run.measured.block_reads_per_list)),
    hidden("compaction_read_bytes", |run, _| Some(run.measured.compaction_read_bytes as f64)),
    hidden("stall_us", |run, _| Some(run.measured.stall_us as f64)),
    hidden("sst_bytes_before", |run, _| Some(run.measured.sst_bytes_before as f64)),
    hidden("rows_verified", |run, _| Some(run.verified.rows as f64)),
    hidden("answers_verified", |run, _| Some(run.verified.answers as f64)),
    hidden("took_seconds", |run, _| Some(run.took_seconds)),
];

/// `None` where there was no such operation.
fn some(latencies: &Latencies, value: fn(&Latencies) -> f64) -> Option<f64> {
    (latencies.count > 0).then(|| value(latencies))
}

/// The value of a column, by its name.
pub fn value(name: &str, run: &Run, healthy: &Healthy) -> Option<f64> {
    let column = COLUMNS.iter().find(|column| column.name == name)?;
    (column.value)(run, healthy)
}

/// Time that readers have lost since the contender began: what a list took beyond one where nothing is
/// wrong, for each list that the pace asked for. One that nobody was free for would have taken as long as
/// those of its second.
fn lost_seconds(measured: &Measured, healthy: &Healthy) -> f64 {
    let (mut lost_ns, mut mean_ns) = (0.0, healthy.list_mean_ns);
    for second in &measured.seconds {
        if second.lists > 0 {
            mean_ns = second.list_ns as f64 / second.lists as f64;
        }
        lost_ns += (mean_ns - healthy.list_mean_ns).max(0.0) * (second.lists + second.lists_missed) as f64;
    }
    lost_ns / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Second;
    use std::collections::BTreeSet;

    #[test]
    fn missed_lists_lose_what_the_others_of_their_second_do() {
        let second =
            |lists, lists_missed, list_ns| Second { lists, lists_missed, list_ns, ..Second::default() };
        // 10 ms too much for 50 and 5; no list ended, 20 were due; faster than where nothing is wrong.
        let seconds = vec![second(50, 5, 550_000_000), second(0, 20, 0), second(50, 0, 10_000_000)];
        let measured = Measured { seconds, ..Measured::default() };
        let lost = lost_seconds(&measured, &Healthy { list_mean_ns: 1_000_000.0 });
        assert!((lost - (0.55 + 0.2)).abs() < 1e-9, "{lost}");
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = COLUMNS.iter().map(|column| column.name).collect();
        assert_eq!(names.len(), COLUMNS.len());
        assert_eq!(
            value("took_seconds", &Run { took_seconds: 3.0, ..Run::default() }, &Healthy::default()),
            Some(3.0)
        );
        assert_eq!(value("list_p99_ns", &Run::default(), &Healthy::default()), None);
    }
}
