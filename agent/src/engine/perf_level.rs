//! The perf level of a target's threads: what it means for the counters, and raising it where the policy says so.

use crate::keeper::{Keeper, KeeperError, LEVEL_COUNTS};
use crate::probe::SentinelReading;
use crate::target::facts::{Gap, ProcessId};
use tracing::{info, warn};

/// What is done about the perf level of one target.
#[derive(Debug, Default)]
pub struct PerfLevel {
    is_wanted: bool,
    keeper: Option<Keeper>,
    error: Option<KeeperError>,
    lowest: Option<u8>,
    raised: u32,
    refused: u32,
}

impl PerfLevel {
    /// `is_wanted`: the policy says `raise_perf_level`.
    pub fn new(is_wanted: bool) -> PerfLevel {
        PerfLevel { is_wanted, ..PerfLevel::default() }
    }

    /// Looks at a reading, and has the threads raised that are too low.
    pub fn take(&mut self, process: ProcessId, reading: &SentinelReading) {
        self.lowest = reading.perf_level;
        let is_low = reading.levels.iter().any(|level| level.level < LEVEL_COUNTS);
        if !self.is_wanted || self.error.is_some() || self.keeper.is_none() && !is_low {
            return;
        }
        if let Err(error) = self.raise(process, reading) {
            warn!(pid = process.pid, %error, help = error.remedy(), "perf level");
            // What a keeper still holds it puts back when it is dropped.
            self.keeper = None;
            self.error = Some(error);
        }
    }

    fn raise(&mut self, process: ProcessId, reading: &SentinelReading) -> Result<(), KeeperError> {
        let keeper = match &mut self.keeper {
            Some(keeper) => keeper,
            none => {
                info!(pid = process.pid, "raising the perf level, as the policy says");
                none.insert(Keeper::start(process)?)
            }
        };
        keeper.raise(&reading.levels)?;
        self.raised = keeper.raised(&reading.levels);
        self.refused = keeper.refused(&reading.levels);
        Ok(())
    }

    /// Threads that count because their level was raised.
    pub fn raised_threads(&self) -> u32 {
        if self.keeper.is_some() { self.raised } else { 0 }
    }

    /// What it means for what is shown.
    pub fn gaps(&self) -> Vec<Gap> {
        let gaps = [self.too_low(), self.is_raised(), self.cannot_be_raised(), self.keeps_falling()];
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

    fn cannot_be_raised(&self) -> Option<Gap> {
        let error = self.error.as_ref()?;
        Some(Gap {
            what: "the perf level is not raised, though the policy says so".into(),
            reason: error.to_string(),
            remedy: error.remedy().into(),
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
