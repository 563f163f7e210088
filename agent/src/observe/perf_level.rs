//! The perf level of a target's threads: what it means for the counters, and raising it where the policy says
//! so.

use sexton_execute::perf_level::{LEVEL_COUNTS, PerfLevelExecutor, doubt};
use sexton_execute::{ExecuteError, Executor, JobStatus, PerfLevelTask, SettingTask, Task};
use sexton_inspect::facts::{Gap, Target};
use sexton_probe::SentinelReading;
use tracing::warn;

/// What is done about the perf level of one target.
#[derive(Default)]
pub struct PerfLevel {
    is_wanted: bool,
    executor: PerfLevelExecutor,
    error: Option<ExecuteError>,
    /// Why nothing is written, though it is wanted: what was read may not be RocksDB's.
    doubt: Option<String>,
    lowest: Option<u8>,
    raised: u32,
    refused: u32,
}

impl PerfLevel {
    /// `is_wanted`: the policy says `raise_perf_level`.
    pub fn new(is_wanted: bool) -> PerfLevel {
        PerfLevel { is_wanted, ..PerfLevel::default() }
    }

    /// Looks at a reading, and has the threads raised that are too low. Nothing is written as long as any of
    /// what was read does not make sense: where one word was read at a wrong address, a byte would be written
    /// at one.
    pub fn take(&mut self, target: &Target, reading: &SentinelReading) {
        self.lowest = reading.perf_level;
        let is_low = reading.levels.iter().any(|level| level.level < LEVEL_COUNTS);
        self.doubt = None;
        if !self.is_wanted || self.error.is_some() || !self.executor.is_active() && !is_low {
            return;
        }
        self.doubt = doubt(&target.module, &reading.thread_counters(), &reading.levels);
        if self.doubt.is_some() {
            return;
        }
        if let Err(error) = self.raise(target, reading) {
            warn!(pid = target.process.pid, %error, help = error.remedy(), "perf level");
            self.error = Some(error);
        }
    }

    fn raise(&mut self, target: &Target, reading: &SentinelReading) -> Result<(), ExecuteError> {
        let levels = reading.levels.clone();
        let initial_level = target.module.initial_perf_level().unwrap_or_default();
        let task = PerfLevelTask { process: target.process, initial_level, levels };
        let task = Task::Set(SettingTask::PerfLevel(task));
        let job = self.executor.start(&task)?;
        if let JobStatus::Ended(Err(error)) = self.executor.poll(job) {
            return Err(error);
        }
        self.raised = self.executor.raised(&reading.levels);
        self.refused = self.executor.refused(&reading.levels);
        Ok(())
    }

    /// Threads that count because their level was raised.
    pub fn raised_threads(&self) -> u32 {
        if self.executor.is_active() { self.raised } else { 0 }
    }

    /// What it means for what is shown.
    pub fn gaps(&self) -> Vec<Gap> {
        let gaps = [
            self.too_low(),
            self.is_raised(),
            self.is_doubtful(),
            self.cannot_be_raised(),
            self.keeps_falling(),
        ];
        gaps.into_iter().flatten().collect()
    }

    fn too_low(&self) -> Option<Gap> {
        let level = self.lowest.filter(|level| *level < LEVEL_COUNTS)?;
        Some(Gap {
            what: format!("perf level {level} counts nothing"),
            reason: "RocksDB's counters move from perf level 2 (kEnableCount) on, and a thread has a lower one"
                .into(),
            remedy: "set it in the host (MyRocks `SET GLOBAL rocksdb_perf_context_level=2`, db_bench \
                     `--perf_level=2`, else rocksdb::SetPerfLevel), or `raise_perf_level: true` in the policy's target"
                .into(),
        })
    }

    fn is_raised(&self) -> Option<Gap> {
        let raised = Some(self.raised_threads()).filter(|raised| *raised > 0)?;
        Some(Gap {
            what: format!("perf level is raised by policy in {raised} threads"),
            reason: "they had it off and count only while they are watched; each gets its former level back"
                .into(),
            remedy: "nothing to do; without `raise_perf_level` in the policy they are let be".into(),
        })
    }

    fn is_doubtful(&self) -> Option<Gap> {
        Some(Gap {
            what: "the perf level is not raised, though the policy says so".into(),
            reason: format!("what is read of the process does not make sense: {}", self.doubt.as_ref()?),
            remedy:
                "nothing is written where readings are in doubt; report the RocksDB build and the C library"
                    .into(),
        })
    }

    fn cannot_be_raised(&self) -> Option<Gap> {
        let error = self.error.as_ref()?;
        Some(Gap {
            what: "the perf level is not raised, though the policy says so".into(),
            reason: error.to_string(),
            remedy: error.remedy(),
        })
    }

    fn keeps_falling(&self) -> Option<Gap> {
        (self.refused > 0).then(|| Gap {
            what: format!("the perf level of {} threads does not stay raised", self.refused),
            reason: "the program sets it itself, or it cannot be written".into(),
            remedy: "set it in the host, as MyRocks' `SET GLOBAL rocksdb_perf_context_level=2` does".into(),
        })
    }
}
