//! The guards' view of a target: what can be read of it and of what it stands on, and how often they have
//! objected. What is too much is decided in the tuner.

use super::Actor;
use super::family_readings::{family_readings, with_limits};
use super::place::{databases_on, device_of, subject};
use crate::observe::{Observer, Watched};
use crate::session::{Meanwhile, PlaceReadings};
use sexton_inspect::facts::{ProcessId, TargetId};
use sexton_journal::EventKind;
use sexton_tuner::guard::{GuardRefusal, Readings};
use sexton_tuner::latency::{Latencies, LatencyReading};
use sexton_tuner::plan::CompactRange;
use sexton_tuner::run::{Action, ActionKind, ActionState, Orphan};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

impl Actor {
    /// Counts an objection to an action, and tells of it where it is new.
    pub fn note_refusal(&mut self, observer: &mut Observer, kind: &ActionKind, refusal: &GuardRefusal) {
        if !self.note_objection(observer, kind.target(), refusal) {
            return;
        }
        self.journal.emit(EventKind::Refused {
            target: kind.target().to_owned(),
            database: kind.database().unwrap_or_default().to_owned(),
            column_family: kind.column_family().map(str::to_owned),
            rule: refusal.guard.name().to_owned(),
            ranges: 1,
            subject: subject(kind, observer.policy.keys),
            reason: refusal.reason.clone(),
        });
    }

    /// Counts an objection; gives whether it is new.
    pub fn note_objection(&mut self, observer: &mut Observer, target: &str, refusal: &GuardRefusal) -> bool {
        observer.roster.named_mut(target).is_some_and(|watched| watched.guards.note(refusal))
    }

    /// What is known before an action begins or goes on, of what was `read` for it.
    pub fn readings(
        &self,
        watched: &Watched,
        (database, column_family): (&Path, &str),
        read: &PlaceReadings,
        compactions_on_device: Option<u64>,
    ) -> Readings {
        let mut readings = Readings {
            disk_free_bytes: read.disk_free_bytes,
            bytes_of_day: self.ledger.daily().sum(jiff::Timestamp::now()),
            target_age_seconds: age_seconds(&watched.target.process),
            compactions_on_device,
            ..Readings::default()
        };
        let mut loads = read.loads.clone();
        if let Some(properties) = read.properties {
            properties.fill(&mut readings);
            loads.push(properties.load(column_family));
        }
        readings.families = family_readings(watched, database, loads);
        readings
    }

    /// What can be read while a slice runs; `meanwhile` is what was heard of it.
    pub fn readings_meanwhile(
        &self,
        watched: &Watched,
        compact: &CompactRange,
        meanwhile: Meanwhile,
        now: &Latencies,
    ) -> Readings {
        let database = Path::new(&compact.database);
        let mut readings = Readings {
            disk_free_bytes: meanwhile.disk_free_bytes,
            bytes_of_day: self.ledger.daily().sum(jiff::Timestamp::now()),
            ..Readings::default()
        };
        let mut loads = meanwhile.heard.loads;
        if let Some(properties) = meanwhile.heard.properties {
            properties.fill(&mut readings);
            loads.push(properties.load(&compact.column_family));
        }
        readings.families = with_limits(watched, database, loads);
        let before = &watched.latencies;
        readings.seek_latency = LatencyReading::of(&before.seeks, &now.seeks);
        readings.block_read_latency = LatencyReading::of(&before.block_reads, &now.block_reads);
        readings
    }

    /// Compactions in all databases on the block device of one, as the policy counts them: `counted` are
    /// those that RocksDB runs, where it was asked. `None` where the policy counts RocksDB's own and this one
    /// could not be asked.
    pub fn compactions_on_device(
        &self,
        observer: &Observer,
        (target, database): (TargetId, &Path),
        counted: &BTreeMap<(TargetId, PathBuf), u64>,
    ) -> Option<u64> {
        let counts_all = observer.policy.guards.count_rocksdb_compactions;
        let device = device_of(observer.roster.get(target)?, database)?;
        let mut running: u64 = 0;
        for watched in &observer.roster.watched {
            for path in databases_on(watched, device) {
                let may_run = u64::from(self.may_run_unseen(&watched.target.process, &path));
                let is_same = watched.target.id == target && path == database;
                let known = counted.get(&(watched.target.id, path)).copied();
                let here = match (counts_all, is_same) {
                    (false, _) => may_run,
                    (true, true) => known?,
                    (true, false) => known.unwrap_or(may_run),
                };
                running = running.saturating_add(here);
            }
        }
        Some(running)
    }

    /// Whether something may run in a database whose end nobody has seen.
    fn may_run_unseen(&self, process: &ProcessId, database: &Path) -> bool {
        let is_there = |orphan: &Orphan| {
            orphan.process == *process && orphan.database.as_ref().is_some_and(|it| it.path == database)
        };
        let in_doubt =
            |action: &Action| action.process == *process && matches!(action.state, ActionState::InDoubt(_));
        self.ledger.orphans().iter().any(is_there) || self.ledger.actions().any(in_doubt)
    }
}

fn age_seconds(process: &ProcessId) -> Option<u64> {
    let started_s = process.start_time_ticks / procfs::ticks_per_second().max(1);
    let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(u64::try_from(since_boot.tv_sec).ok()?.saturating_sub(started_s))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_needs_no_target_is_read() {
        let own = procfs::process::Process::myself().unwrap().stat().unwrap();
        let process = ProcessId { pid: std::process::id(), start_time_ticks: own.starttime };
        assert!(age_seconds(&process).unwrap() < 3600);
    }
}
