//! The guards' view of a target: what can be read of it and of what it stands on, and how often they have
//! objected. What is too much is decided in the tuner.

use super::Engine;
use super::publish::shown_range;
use crate::observe::Watched;
use crate::session::{Meanwhile, PlaceReadings};
use sexton_hook_protocol::ColumnFamilyLoad;
use sexton_inspect::facts::{ProcessId, TargetId};
use sexton_journal::EventKind;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::guard::{FamilyReadings, GuardRefusal, Readings};
use sexton_tuner::latency::{Latencies, LatencyReading};
use sexton_tuner::plan::CompactRange;
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::run::{Action, ActionKind, ActionState, Orphan};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

impl Engine {
    /// Counts an objection to an action, and tells of it where it is new.
    pub(super) fn note_refusal(&mut self, kind: &ActionKind, refusal: &GuardRefusal) {
        if !self.note_objection(kind.target(), refusal) {
            return;
        }
        self.history.emit(EventKind::Refused {
            target: kind.target().to_owned(),
            database: kind.database().unwrap_or_default().to_owned(),
            column_family: kind.column_family().map(str::to_owned),
            rule: refusal.guard.name().to_owned(),
            ranges: 1,
            subject: subject(kind, self.observer.policy.keys),
            reason: refusal.reason.clone(),
        });
    }

    /// Counts an objection; gives whether it is new.
    pub(super) fn note_objection(&mut self, target: &str, refusal: &GuardRefusal) -> bool {
        self.observer.roster.named_mut(target).is_some_and(|watched| watched.guards.note(refusal))
    }

    /// What is known before an action begins or goes on, of what was `read` for it.
    pub(super) fn readings(
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
    pub(super) fn readings_meanwhile(
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
    pub(super) fn compactions_on_device(
        &self,
        (target, database): (TargetId, &Path),
        counted: &BTreeMap<(TargetId, PathBuf), u64>,
    ) -> Option<u64> {
        let counts_all = self.observer.policy.guards.count_rocksdb_compactions;
        let device = device_of(self.observer.roster.get(target)?, database)?;
        let mut running: u64 = 0;
        for watched in &self.observer.roster.watched {
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

/// What an action is done to, as the policy allows it to be shown.
pub fn subject(kind: &ActionKind, keys: KeyDisplay) -> String {
    let column_family = kind.column_family().unwrap_or_default();
    match kind {
        ActionKind::Compact(compact) => format!("{column_family} {}", shown_range(&compact.range, keys)),
        ActionKind::Flush(_) => column_family.to_owned(),
        ActionKind::ChangeSetting(change) => format!("{column_family} {}", change.setting().name),
    }
}

/// The databases of a target that lie on a block device.
pub fn databases_on(watched: &Watched, device: u64) -> Vec<PathBuf> {
    let databases = watched.target.databases.iter();
    databases.filter(|known| known.device == Some(device)).map(|known| known.path.clone()).collect()
}

/// The readings of all column families: those that no probe has seen are known by the files that they had
/// when these were last read.
fn family_readings(watched: &Watched, database: &Path, loads: Vec<ColumnFamilyLoad>) -> Vec<FamilyReadings> {
    let evidence = watched.evidence.iter().find(|evidence| Path::new(&evidence.database) == database);
    let files = evidence.map_or(&[][..], |evidence| &evidence.files);
    with_limits(watched, database, with_files(loads, files))
}

/// Adds the column families that are known by their files alone.
fn with_files(mut loads: Vec<ColumnFamilyLoad>, files: &[SstFile]) -> Vec<ColumnFamilyLoad> {
    let asked: HashSet<String> = loads.iter().map(|load| load.name.clone()).collect();
    let mut level0: BTreeMap<&str, u64> = BTreeMap::new();
    for file in files.iter().filter(|file| !asked.contains(&file.column_family)) {
        *level0.entry(&file.column_family).or_default() += u64::from(file.level == 0);
    }
    loads.extend(level0.into_iter().map(|(name, files)| ColumnFamilyLoad {
        name: name.to_owned(),
        level0_files: Some(files),
        pending_compaction_bytes: None,
    }));
    loads
}

/// Loads with the limits that their column families have.
fn with_limits(watched: &Watched, database: &Path, loads: Vec<ColumnFamilyLoad>) -> Vec<FamilyReadings> {
    let known = watched.options.get(database);
    let readings = |load: ColumnFamilyLoad| {
        let options = known.and_then(|families| families.get(&load.name));
        FamilyReadings {
            level0_files: load.level0_files,
            level0_slowdown_files: options
                .and_then(|options| i64::try_from(options.level0_slowdown_writes_trigger).ok()),
            pending_compaction_bytes: load.pending_compaction_bytes,
            pending_compaction_bytes_soft: options.map(|options| options.soft_pending_compaction_bytes_limit),
            disable_auto_compactions: options.is_some_and(|options| options.disable_auto_compactions),
            name: load.name,
        }
    };
    loads.into_iter().map(readings).collect()
}

/// The block device that a database lies on.
pub fn device_of(watched: &Watched, database: &Path) -> Option<u64> {
    watched.target.databases.iter().find(|known| known.path == database)?.device
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

    /// A column family that no reader has opened an iterator on is none the less one of the database.
    #[test]
    fn column_families_that_cannot_be_asked_are_known_by_their_files() {
        let file = |number: u64, column_family: &str, level: u32| SstFile {
            number,
            column_family: column_family.to_owned(),
            level,
            size_bytes: 1,
            entries: 1,
            deletions: 0,
            smallest: sexton_tuner::Key::default(),
            largest: sexton_tuner::Key::default(),
        };
        let files = [file(1, "asked", 0), file(2, "other", 0), file(3, "other", 0), file(4, "other", 6)];
        let asked = ColumnFamilyLoad {
            name: "asked".to_owned(),
            level0_files: Some(9),
            pending_compaction_bytes: Some(5),
        };
        let loads = with_files(vec![asked.clone()], &files);
        let other = ColumnFamilyLoad {
            name: "other".to_owned(),
            level0_files: Some(2),
            pending_compaction_bytes: None,
        };
        assert_eq!(loads, [asked, other]);
    }

    #[test]
    fn what_needs_no_target_is_read() {
        let own = procfs::process::Process::myself().unwrap().stat().unwrap();
        let process = ProcessId { pid: std::process::id(), start_time_ticks: own.starttime };
        assert!(age_seconds(&process).unwrap() < 3600);
    }
}
