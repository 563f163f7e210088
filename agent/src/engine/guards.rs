//! The guards' view of a target: what can be read of it and of what it stands on, and how often they have
//! objected. What is too much is decided in the tuner.

use super::Engine;
use super::publish::shown_range;
use super::watched::Watched;
use crate::session::{FILES_LIMIT, Meanwhile, PlaceReadings, READINGS_LIMIT, Session, SstRead};
use crate::snapshot::GuardView;
use sexton_execute::Properties;
use sexton_hook_protocol::ColumnFamilyLoad;
use sexton_inspect::facts::{Gap, ProcessId};
use sexton_journal::EventKind;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::guard::{self, FamilyReadings, Guard, GuardRefusal, Readings};
use sexton_tuner::latency::{Latencies, LatencyReading};
use sexton_tuner::plan::{CompactRange, Flush, SetOptions};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// What guards have said of one target.
#[derive(Clone, Debug, Default)]
pub struct GuardLedger {
    /// How often each has objected, and its last reason.
    objections: BTreeMap<Guard, (u64, String)>,
    /// Who objects now: nothing is begun.
    standing: Option<Guard>,
    /// Who cannot object, for want of a reading.
    unread: Vec<Guard>,
}

impl GuardLedger {
    /// Nothing objects, and these guards could not be asked.
    fn clear(&mut self, unread: Vec<Guard>) {
        self.standing = None;
        self.unread = unread;
    }

    /// Somebody objects; gives whether that is news.
    pub fn note(&mut self, refusal: &GuardRefusal) -> bool {
        let (count, reason) = self.objections.entry(refusal.guard).or_default();
        *count += 1;
        reason.clone_from(&refusal.reason);
        self.standing.replace(refusal.guard) != Some(refusal.guard)
    }

    /// As the outside sees it.
    pub fn view(&self) -> Vec<GuardView> {
        let view = |(guard, (refusals, reason)): (&Guard, &(u64, String))| GuardView {
            guard: guard.name().to_owned(),
            objects: self.standing == Some(*guard),
            refusals: *refusals,
            reason: reason.clone(),
        };
        self.objections.iter().map(view).collect()
    }

    /// What the guards cannot see.
    pub fn gap(&self) -> Option<Gap> {
        if self.unread.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.unread.iter().map(|guard| guard.name()).collect();
        Some(Gap {
            what: format!("{} guards cannot read the target", names.len()),
            reason: format!("nothing tells what these go by: {}", names.join(", ")),
            remedy: "actuator: hook asks RocksDB itself; else keep the I/O budget small".into(),
        })
    }
}

/// Where an action would be done.
struct Place<'a> {
    target: &'a str,
    database: &'a str,
    column_family: &'a str,
}

impl Place<'_> {
    fn of(compact: &CompactRange) -> Place<'_> {
        let CompactRange { target, database, column_family, .. } = compact;
        Place { target, database, column_family }
    }
}

impl Engine {
    /// Who objects to the action now.
    pub(super) fn objection(&mut self, compact: &CompactRange) -> Option<GuardRefusal> {
        let readings = self.readings(&Place::of(compact));
        guard::before(&self.options.policy.guards, &readings, compact.disk_price()).err()
    }

    /// Whether the target can bear the action now. An objection is counted, and told where it is new.
    pub(super) fn bears(&mut self, compact: &CompactRange) -> Result<(), GuardRefusal> {
        let place = Place::of(compact);
        let readings = self.readings(&place);
        let verdict = guard::before(&self.options.policy.guards, &readings, compact.disk_price());
        let range = shown_range(&compact.range, self.options.policy.keys);
        self.note_verdict(&place, &readings, verdict, &format!("{} {range}", compact.column_family))
    }

    /// Whether the target can bear a flush now, as for a compaction.
    pub(super) fn bears_flush(&mut self, flush: &Flush) -> Result<(), GuardRefusal> {
        let Flush { target, database, column_family, cost_bytes, .. } = flush;
        let place = Place { target, database, column_family };
        let readings = self.readings(&place);
        let verdict = guard::before_flush(&self.options.policy.guards, &readings, *cost_bytes);
        self.note_verdict(&place, &readings, verdict, column_family)
    }

    /// Whether an option may be set now, as for a compaction.
    pub(super) fn bears_option(&mut self, set: &SetOptions) -> Result<(), GuardRefusal> {
        let SetOptions { target, database, column_family, name, .. } = set;
        let place = Place { target, database, column_family };
        let readings = self.readings(&place);
        let verdict = guard::before_option(&self.options.policy.guards, &readings);
        self.note_verdict(&place, &readings, verdict, &format!("{column_family} {name}"))
    }

    /// Counts an objection before an action, and tells of it where it is new; `subject` is what would be
    /// acted on.
    fn note_verdict(
        &mut self,
        place: &Place<'_>,
        readings: &Readings,
        verdict: Result<(), GuardRefusal>,
        subject: &str,
    ) -> Result<(), GuardRefusal> {
        let Err(refusal) = &verdict else {
            if let Some(watched) = self.watched_mut(place.target) {
                watched.guards.clear(readings.unread());
            }
            return verdict;
        };
        if self.note_objection(place.target, refusal) {
            self.history.emit(EventKind::Refused {
                target: place.target.to_owned(),
                database: place.database.to_owned(),
                column_family: Some(place.column_family.to_owned()),
                rule: refusal.guard.name().to_owned(),
                ranges: 1,
                subject: subject.to_owned(),
                reason: refusal.reason.clone(),
            });
        }
        verdict
    }

    /// Counts an objection; gives whether it is new.
    pub(super) fn note_objection(&mut self, target: &str, refusal: &GuardRefusal) -> bool {
        self.watched_mut(target).is_some_and(|watched| watched.guards.note(refusal))
    }

    /// What can be read before an action begins.
    fn readings(&mut self, place: &Place<'_>) -> Readings {
        let database = Path::new(place.database);
        let compactions_on_device = self.compactions_on_device(place.target, database);
        let bytes_of_day = self.daily.sum(jiff::Timestamp::now());
        let Some(watched) = self.watched_mut(place.target) else { return Readings::default() };
        let read = watched.place_readings(database, place.column_family).unwrap_or_default();
        let mut readings = Readings {
            disk_free_bytes: read.disk_free_bytes,
            bytes_of_day,
            target_age_seconds: age_seconds(&watched.target.process),
            compactions_on_device,
            ..Readings::default()
        };
        let mut loads = read.loads;
        if let Some(properties) = read.properties {
            properties.fill(&mut readings);
            loads.push(properties.load(place.column_family));
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
            bytes_of_day: self.daily.sum(jiff::Timestamp::now()),
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

    /// Compactions in all databases on the same block device, as the policy counts them; `None` where it
    /// counts RocksDB's own and this one cannot be asked.
    ///
    /// One slice runs at a time, and none when this is asked: what there may be are slices that nobody saw
    /// end.
    fn compactions_on_device(&mut self, target: &str, database: &Path) -> Option<u64> {
        let counts_all = self.options.policy.guards.count_rocksdb_compactions;
        let device = device_of(self.roster.named(target)?, database)?;
        let Engine { roster, history, orphans, .. } = self;
        let mut running: u64 = 0;
        for watched in &mut roster.watched {
            let process = watched.target.process;
            let is_open = history.is_in_doubt(&process);
            let on_device: Vec<PathBuf> = databases_on(watched, device);
            if on_device.is_empty() {
                continue;
            }
            let counted =
                if counts_all { watched.running_compactions(on_device.clone()) } else { Vec::new() };
            for path in on_device {
                let is_same = watched.target.name == target && path == database;
                let may_run = u64::from(is_open || orphans.may_run_in(&process, &path));
                let known =
                    counted.iter().find(|(known, _)| *known == path).and_then(|(_, running)| *running);
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
}

impl Watched {
    /// What guards go by before an action begins; `None` where no answer comes.
    fn place_readings(&mut self, database: &Path, column_family: &str) -> Option<PlaceReadings> {
        let (database, column_family) = (database.to_owned(), column_family.to_owned());
        let read = move |session: &mut Session| session.place_readings(&database, &column_family);
        self.call("the guards' readings", READINGS_LIMIT, read)
    }

    /// What the column family's RocksDB says of itself; `None` where no hook answers or no probe has seen it.
    pub fn properties(&mut self, database: &Path, column_family: &str) -> Option<Properties> {
        if !self.hook.is_connected {
            return None;
        }
        let (database, column_family) = (database.to_owned(), column_family.to_owned());
        let read = move |session: &mut Session| session.properties(&database, &column_family);
        self.call("RocksDB's properties", READINGS_LIMIT, read)?
    }

    /// Compactions that each of these databases runs, as far as they can be asked.
    pub fn running_compactions(&mut self, databases: Vec<PathBuf>) -> Vec<(PathBuf, Option<u64>)> {
        if !self.hook.is_connected {
            return Vec::new();
        }
        let read = move |session: &mut Session| {
            let running = |path: PathBuf| (path.clone(), session.running_compactions(&path));
            databases.into_iter().map(running).collect()
        };
        self.call("the count of running compactions", READINGS_LIMIT, read).unwrap_or_default()
    }
}

impl Watched {
    /// The live SST files of a database; `None` where they cannot be read. Options are brought up to date
    /// with them.
    pub fn read_files(&mut self, database: &Path) -> Option<SstRead> {
        let path = database.to_owned();
        let read = move |session: &mut Session| (session.read_files(&path), session.options_of(&path));
        let (files, options) = self.call("reading the live files of a database", FILES_LIMIT, read)?;
        self.options.extend(options.map(|options| (database.to_owned(), options)));
        files
    }

    /// The SST files of a database that have hard links elsewhere now.
    pub fn linked_files(&mut self, database: &Path) -> BTreeSet<u64> {
        let path = database.to_owned();
        let read = move |session: &mut Session| session.linked_files(&path);
        self.call("reading the links of a database", FILES_LIMIT, read).unwrap_or_default()
    }

    /// Bytes that the file system of a database has, free or not.
    pub fn device_bytes(&mut self, database: &Path) -> Option<u64> {
        let path = database.to_owned();
        let read = move |session: &mut Session| session.device_bytes(&path);
        self.call("the size of a file system", READINGS_LIMIT, read)?
    }
}

fn databases_on(watched: &Watched, device: u64) -> Vec<PathBuf> {
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

fn device_of(watched: &Watched, database: &Path) -> Option<u64> {
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

    #[test]
    fn objections_are_counted_and_told_when_they_are_new() {
        let mut ledger = GuardLedger::default();
        let refusal = |guard| GuardRefusal { guard, reason: format!("{guard:?}") };
        assert!(ledger.note(&refusal(Guard::Level0Files)));
        assert!(!ledger.note(&refusal(Guard::Level0Files)));
        assert!(ledger.note(&refusal(Guard::FlushPending)));
        let view = ledger.view();
        let shown: Vec<_> =
            view.iter().map(|view| (view.guard.as_str(), view.refusals, view.objects)).collect();
        assert_eq!(shown, [("level0_files", 2, false), ("flush_pending", 1, true)]);
        ledger.clear(vec![Guard::DiskSpace]);
        assert!(ledger.view().iter().all(|view| !view.objects));
        assert!(ledger.gap().unwrap().reason.contains("disk_space"));
        assert!(ledger.note(&refusal(Guard::FlushPending)), "it had stopped objecting");
    }

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
