//! What has to be read before an action begins, and before one that is paused goes on: of its target, and of
//! the others on the same block device. Nobody is waited for; what has not come in time is not known.

use super::Engine;
use super::control::POLL_INTERVAL;
use super::guards::databases_on;
use crate::observe::Watched;
use crate::session::{Answer, Before, FILES_LIMIT, READINGS_LIMIT, RunningCompactions, Wanted};
use sexton_inspect::facts::TargetId;
use sexton_journal::clock;
use sexton_tuner::guard::Readings;
use sexton_tuner::run::{ActionId, ActionKind, Event, KeptSetting, Place, ReadingsKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the target of an inquiry is waited for: what it was asked stands behind other requests, and one
/// that stood still meanwhile was not asked at all.
const INQUIRY_LIMIT: Duration = Duration::from_secs(120);

/// What an inquiry is for.
pub enum Purpose {
    /// An action that is wanted.
    Begin(Box<ActionKind>),
    /// One that is paused.
    GoOn(ActionId),
}

/// What was asked, and what has come.
pub struct Inquiry {
    number: u64,
    purpose: Purpose,
    pub target: TargetId,
    /// Of the target's worker.
    generation: u64,
    asked: Instant,
    place: (PathBuf, String),
    before: Option<Before>,
    /// Others that have not told how many compactions they run.
    awaited: BTreeSet<TargetId>,
    counted: BTreeMap<(TargetId, PathBuf), u64>,
    /// When the others are no longer waited for.
    until: Instant,
}

impl Inquiry {
    fn take_running(&mut self, target: TargetId, running: RunningCompactions) {
        let known = running.into_iter().filter_map(|(path, count)| Some(((target, path), count?)));
        self.counted.extend(known);
    }

    fn is_complete(&self) -> bool {
        self.before.is_some() && (self.awaited.is_empty() || Instant::now() >= self.until)
    }
}

impl Engine {
    /// Asks what has to be known; gives whether it could be asked.
    pub(super) fn inquire(&mut self, kind: &ActionKind, purpose: Purpose) -> bool {
        let (Some(database), Some(column_family)) = (kind.database(), kind.column_family()) else {
            return false;
        };
        let database = PathBuf::from(database);
        let is_to_begin = matches!(purpose, Purpose::Begin(_));
        let counts_all = self.observer.policy.guards.count_rocksdb_compactions;
        self.last_number += 1;
        let number = self.last_number;
        let Some(at) = self.observer.roster.watched.iter().position(|it| it.target.name == kind.target())
        else {
            return false;
        };
        let Some(watched) = self.observer.roster.watched.get_mut(at) else { return false };
        let device = super::guards::device_of(watched, &database).filter(|_| counts_all);
        let on_device = |watched: &Watched| device.map_or_else(Vec::new, |it| databases_on(watched, it));
        let is_compaction = matches!(kind, ActionKind::Compact(_));
        let wanted = Wanted {
            database: database.clone(),
            column_family: column_family.to_owned(),
            files: is_compaction && is_to_begin,
            option: if is_to_begin { option_of(watched, kind) } else { None },
            on_device: on_device(watched),
        };
        let is_long = wanted.files || wanted.option.is_some();
        let limit: Duration = if is_long { FILES_LIMIT } else { READINGS_LIMIT };
        let read = move |session: &mut crate::session::Session| Answer::Before {
            inquiry: number,
            before: Box::new(session.before(&wanted)),
        };
        if !watched.ask(&self.observer.post, "what has to be known before an action", limit, read) {
            return false;
        }
        let (target, generation) = (watched.target.id, watched.worker.generation());
        let mut awaited = BTreeSet::new();
        for watched in self.observer.roster.watched.iter_mut().filter(|it| it.target.id != target) {
            let databases = on_device(watched);
            if databases.is_empty() || !watched.hook.is_connected {
                continue;
            }
            let count = move |session: &mut crate::session::Session| Answer::Running {
                inquiry: number,
                running: session.running(&databases),
            };
            if watched.ask(&self.observer.post, "the count of running compactions", READINGS_LIMIT, count) {
                awaited.insert(watched.target.id);
            }
        }
        self.inquiries.push(Inquiry {
            number,
            purpose,
            target,
            generation,
            asked: Instant::now(),
            place: (database, column_family.to_owned()),
            before: None,
            awaited,
            counted: BTreeMap::new(),
            until: Instant::now() + READINGS_LIMIT,
        });
        true
    }

    /// The target of an inquiry has answered.
    pub(super) fn take_before(&mut self, number: u64, before: Before) {
        let Some(inquiry) = self.inquiries.iter_mut().find(|inquiry| inquiry.number == number) else {
            return;
        };
        let mut before = before;
        inquiry.take_running(inquiry.target, std::mem::take(&mut before.running));
        inquiry.before = Some(before);
    }

    /// Another target on the device has.
    pub(super) fn take_running(&mut self, number: u64, target: TargetId, running: RunningCompactions) {
        let Some(inquiry) = self.inquiries.iter_mut().find(|inquiry| inquiry.number == number) else {
            return;
        };
        inquiry.awaited.remove(&target);
        inquiry.take_running(target, running);
    }

    /// Whether something is about to begin in a target.
    pub(super) fn is_inquired(&self, target: TargetId) -> bool {
        self.inquiries.iter().any(|inquiry| inquiry.target == target)
    }

    /// Goes on with what is known completely, and forgets what nobody answers any more.
    pub(super) fn follow_inquiries(&mut self) {
        let roster = &self.observer.roster;
        self.inquiries.retain(|inquiry| {
            let watched = roster.get(inquiry.target);
            inquiry.before.is_some()
                || inquiry.asked.elapsed() < INQUIRY_LIMIT
                    && watched.is_some_and(|watched| {
                        watched.worker.is_current(inquiry.generation) && watched.worker.trouble().is_none()
                    })
        });
        while let Some(at) = self.inquiries.iter().position(Inquiry::is_complete) {
            let Inquiry { purpose, target, place, before, counted, .. } = self.inquiries.remove(at);
            let Some(before) = before else { continue };
            if let Some(watched) = self.observer.roster.get_mut(target) {
                let options = before.options.clone();
                watched.options.extend(options.map(|options| (place.0.clone(), options)));
            }
            let Some(readings) = self.readings_of(target, &place, &before, &counted) else { continue };
            match purpose {
                Purpose::Begin(kind) => {
                    self.begin(target, *kind, before, &readings);
                    // Others that are wanted of the target have waited.
                    self.has_ended = true;
                }
                Purpose::GoOn(id) => self.hear(id, Event::Readings(&readings)),
            }
        }
    }

    fn readings_of(
        &self,
        target: TargetId,
        (database, column_family): &(PathBuf, String),
        before: &Before,
        counted: &BTreeMap<(TargetId, PathBuf), u64>,
    ) -> Option<Readings> {
        let watched = self.observer.roster.get(target)?;
        let on_device = self.compactions_on_device((target, database), counted);
        Some(self.readings(watched, (database, column_family), &before.readings, on_device))
    }

    /// Asks for what paused actions wait for.
    pub(super) fn look_at_paused(&mut self) {
        let now = clock::now();
        let mut due = Vec::new();
        for acting in &mut self.acting {
            let action = self.ledger.action(acting.id);
            let wants = action.is_some_and(|it| it.wanted(now).readings == Some(ReadingsKind::Before));
            let is_asked =
                |inquiry: &Inquiry| matches!(inquiry.purpose, Purpose::GoOn(id) if id == acting.id);
            if wants && acting.looked.elapsed() >= POLL_INTERVAL && !self.inquiries.iter().any(is_asked) {
                acting.looked = Instant::now();
                due.push((acting.id, acting.baseline.kind.clone()));
            }
        }
        for (id, kind) in due {
            self.inquire(&kind, Purpose::GoOn(id));
        }
    }
}

/// The option that an action would set, as it would be kept.
fn option_of(watched: &Watched, kind: &ActionKind) -> Option<KeptSetting> {
    let place = place_of(watched, kind)?;
    KeptSetting::of(ActionId::default(), kind, watched.target.process, Some(&place))
}

/// The keys that an action is done to; `None` where these are none of a database that is open.
pub fn place_of(watched: &Watched, kind: &ActionKind) -> Option<Place> {
    Some(Place {
        database: watched.identity_of(Path::new(kind.database()?))?,
        column_family: kind.column_family()?.to_owned(),
        range: kind.range(),
    })
}
