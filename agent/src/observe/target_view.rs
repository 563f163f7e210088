//! A target as the outside sees it.

use super::watched::{Watched, WindowStage};
use crate::snapshot::{CostView, FileView, GapView, HOT_FILES_MAX, TargetState, TargetView};
use sexton_inspect::facts::Gap;
use sexton_inspect::layout::check_invariants;
use sexton_probe::TotalsBy;
use sexton_tuner::evidence::{Evidence, Window};
use sexton_tuner::heat::{FileHeat, file_heat};
use sexton_tuner::policy::Mode;
use sexton_tuner::unplaced::Unplaced;

impl Watched {
    /// What is missing now, the facts' gaps and those that show only at run time.
    pub fn gaps(&self) -> Vec<GapView> {
        let estimated = self.is_estimated.then(|| Gap {
            what: "tombstones are estimated".into(),
            reason: "RocksDB's counters stand still, so the iterator's own count is taken: keys of all kinds that the \
                     positioning call and the scan's last call stepped over"
                .into(),
            remedy: "where the perf level is below 2, raise it in the host; a build without PerfContext has nothing \
                     better"
                .into(),
        });
        let invariants = check_invariants(&self.last.thread_counters()).err().map(|reason| Gap {
            what: "the counters do not look like RocksDB's".into(),
            reason,
            remedy: "report the RocksDB build: its PerfContext is laid out differently".into(),
        });
        let unread = (self.last.threads_ended_unread > 0).then(|| Gap {
            what: format!("{} threads ended unread", self.last.threads_ended_unread),
            reason: "what they counted after the sentinel's last reading is missing in the totals".into(),
            remedy:
                "Linux 6.16 or newer reads a thread a last time when it ends; otherwise shorten loop.interval"
                    .into(),
        });
        let resets = (self.last.resets > 0).then(|| Gap {
            what: "the process sets its counters to zero".into(),
            reason: "what it counts between two readings of the sentinel is lost with them, so that totals are the \
                     least that was counted"
                .into(),
            remedy: "nothing to do: windows see each zeroing and are exact; shorten loop.survey to have more of them"
                .into(),
        });
        let windows_only = (self.last.totals_by == TotalsBy::Windows).then(|| Gap {
            what: "this kernel has no sentinel".into(),
            reason:
                "what was counted while no window was open is not known, and windows come by the survey timer"
                    .into(),
            remedy:
                "Linux 6.1 or newer has it (task iterators of one process); otherwise shorten loop.survey"
                    .into(),
        });
        let run_time = [
            windows_only,
            estimated,
            invariants,
            unread,
            resets,
            self.hook.gap.clone(),
            self.unresponsive(),
            self.files_gap.clone(),
            self.guards.gap(),
        ];
        let gaps = self.target.gaps.iter().cloned().chain(self.perf_level.gaps());
        let gaps = gaps.chain(run_time.into_iter().flatten());
        gaps.map(|gap| GapView { what: gap.what, reason: gap.reason, remedy: gap.remedy }).collect()
    }

    /// Why nothing is heard of the target, where nothing is.
    fn unresponsive(&self) -> Option<Gap> {
        let trouble = self.worker.trouble()?;
        Some(Gap {
            what: "the target does not respond".into(),
            reason: trouble.reason.clone(),
            remedy: "it is tried again every few seconds; see what holds the process, its file systems or its hook"
                .into(),
        })
    }

    fn state(&self) -> TargetState {
        if self.worker.trouble().is_some() {
            TargetState::Unresponsive
        } else if self.is_blind() {
            TargetState::Blind
        } else if matches!(self.window, WindowStage::Open(_)) {
            TargetState::Armed
        } else {
            TargetState::Watching
        }
    }

    /// The target as the outside sees it.
    pub fn view(&self, pain_seconds_per_second: f64) -> TargetView {
        TargetView {
            name: self.target.name.clone(),
            series: match self.entry.matches.is_empty() {
                true => self.target.program.clone(),
                false => self.entry.name.clone(),
            },
            pid: self.target.process.pid,
            state: self.state(),
            mode: mode_name(self.mode).to_owned(),
            executor: self.entry.executor.name().to_owned(),
            rocksdb_version: self.target.module.version.to_string(),
            module: self.target.module.path.display().to_string(),
            databases: self
                .target
                .databases
                .iter()
                .map(|database| database.path.display().to_string())
                .collect(),
            totals: match self.last.totals_by {
                TotalsBy::Sentinel => self.last.total.minus(self.baseline.unwrap_or_default()),
                TotalsBy::Windows => self.sums.totals,
            },
            totals_by: match self.last.totals_by {
                TotalsBy::Sentinel => "sentinel".to_owned(),
                TotalsBy::Windows => "windows".to_owned(),
            },
            attributed: self.sums.attributed,
            operations: self.sums.operations,
            operations_recorded: self.sums.operations_recorded,
            operations_estimated: self.sums.operations_estimated,
            old_versions_skipped: self.sums.old_versions,
            window_seconds: self.sums.window_ns as f64 / 1e9,
            windows: self.sums.windows,
            records_lost: self.sums.records_lost,
            probes: self.spending.view(),
            threads: self.last.threads_with_counters,
            threads_ended: self.last.threads_ended,
            threads_ended_unread: self.last.threads_ended_unread,
            perf_level: self.last.perf_level,
            block_reads_timed: self.sums.fetches.count,
            block_read_seconds: self.sums.fetches.latency_ns as f64 / 1e9,
            perf_level_raised_threads: self.perf_level.raised_threads(),
            pain_seconds_per_second,
            unplaced: Unplaced::of(&self.seen, &self.interval, &self.costs.costs()),
            hot_files: self.hot_files(),
            hook: self.hook.is_connected,
            guards: self.guards.view(),
            costs: self.cost_view(),
            gaps: self.gaps(),
        }
    }

    fn cost_view(&self) -> CostView {
        let costs = self.costs.costs();
        CostView {
            seconds_per_tombstone: costs.ns_per_tombstone / 1e9,
            tombstone_source: if costs.tombstone_learnt { "measured" } else { "assumed" }.to_owned(),
            seconds_per_block_read: costs.ns_per_block_read / 1e9,
            block_read_source: costs.block_read_source.in_words().to_owned(),
        }
    }

    /// The files that readers waited for longest, of all its databases.
    fn hot_files(&self) -> Vec<FileView> {
        let mut files: Vec<FileView> =
            self.evidence.iter().flat_map(|evidence| file_views(evidence, &self.seen)).collect();
        files.sort_by(|one, two| two.wait_seconds_per_second.total_cmp(&one.wait_seconds_per_second));
        files.truncate(HOT_FILES_MAX);
        files
    }

    /// The target as it is shown once its process has gone.
    pub fn view_when_lost(&self) -> TargetView {
        TargetView { state: TargetState::Lost, hook: false, ..self.view(0.0) }
    }
}

fn file_views(evidence: &Evidence, window: &Window) -> Vec<FileView> {
    let view = |heat: FileHeat| FileView {
        database: evidence.database.clone(),
        number: heat.number,
        column_family: heat.column_family,
        level: heat.level,
        reads_per_second: heat.reads_per_second,
        bytes_per_second: heat.bytes_per_second,
        wait_seconds_per_second: heat.wait_seconds_per_second,
        latency_p50_seconds: heat.latency_p50_seconds,
        latency_p99_seconds: heat.latency_p99_seconds,
    };
    file_heat(evidence, window).into_iter().take(HOT_FILES_MAX).map(view).collect()
}

/// The mode in the policy's words.
pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe",
        Mode::Advise => "advise",
        Mode::Act => "act",
    }
}
