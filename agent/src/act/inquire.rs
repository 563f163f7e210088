//! What has to be read before an action begins, and before one that is paused goes on: of its target, and of
//! the others on the same block device. Nobody is waited for; what has not come in time is not known.

use super::inquiry::{INQUIRY_LIMIT, Inquiry, Purpose};
use super::place::{databases_on, device_of, option_of};
use super::{Actor, FOLLOW_INTERVAL};
use crate::observe::{Observer, Watched};
use crate::session::{Answer, Before, FILES_LIMIT, READINGS_LIMIT, RunningCompactions, Session, Wanted};
use sexton_inspect::facts::TargetId;
use sexton_journal::clock;
use sexton_tuner::guard::Readings;
use sexton_tuner::run::{ActionKind, Event, ReadingsKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

impl Actor {
    /// Asks what has to be known; gives whether it could be asked.
    pub fn inquire(&mut self, observer: &mut Observer, kind: &ActionKind, purpose: Purpose) -> bool {
        let (Some(database), Some(column_family)) = (kind.database(), kind.column_family()) else {
            return false;
        };
        let database = PathBuf::from(database);
        let is_to_begin = matches!(purpose, Purpose::Begin(_));
        let counts_all = observer.policy.guards.count_rocksdb_compactions;
        self.last_number += 1;
        let number = self.last_number;
        let Some(watched) = observer.roster.named_mut(kind.target()) else { return false };
        let device = device_of(watched, &database).filter(|_| counts_all);
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
        let read = move |session: &mut Session| Answer::Before {
            inquiry: number,
            before: Box::new(session.before(&wanted)),
        };
        if !watched.ask(&observer.post, "what has to be known before an action", limit, read) {
            return false;
        }
        let (target, generation) = (watched.target.id, watched.worker.generation());
        let mut awaited = BTreeSet::new();
        for watched in observer.roster.watched.iter_mut().filter(|it| it.target.id != target) {
            let databases = on_device(watched);
            if databases.is_empty() || !watched.hook.is_connected {
                continue;
            }
            let count = move |session: &mut Session| Answer::Running {
                inquiry: number,
                running: session.running(&databases),
            };
            if watched.ask(&observer.post, "the count of running compactions", READINGS_LIMIT, count) {
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
    pub fn take_before(&mut self, number: u64, before: Before) {
        let Some(inquiry) = self.inquiries.iter_mut().find(|inquiry| inquiry.number == number) else {
            return;
        };
        let mut before = before;
        inquiry.take_running(inquiry.target, std::mem::take(&mut before.running));
        inquiry.before = Some(before);
    }

    /// Another target on the device has.
    pub fn take_running(&mut self, number: u64, target: TargetId, running: RunningCompactions) {
        let Some(inquiry) = self.inquiries.iter_mut().find(|inquiry| inquiry.number == number) else {
            return;
        };
        inquiry.awaited.remove(&target);
        inquiry.take_running(target, running);
    }

    /// Whether something is about to begin in a target.
    pub fn is_inquired(&self, target: TargetId) -> bool {
        self.inquiries.iter().any(|inquiry| inquiry.target == target)
    }

    /// Goes on with what is known completely, and forgets what nobody answers any more.
    pub fn follow_inquiries(&mut self, observer: &mut Observer) {
        let roster = &observer.roster;
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
            if let Some(watched) = observer.roster.get_mut(target) {
                let options = before.options.clone();
                watched.options.extend(options.map(|options| (place.0.clone(), options)));
            }
            let Some(readings) = self.readings_of(observer, target, &place, &before, &counted) else {
                continue;
            };
            match purpose {
                Purpose::Begin(kind) => {
                    self.begin(observer, target, *kind, before, &readings);
                    // Others that are wanted of the target have waited.
                    self.has_ended = true;
                }
                Purpose::GoOn(id) => self.hear(observer, id, Event::Readings(&readings)),
            }
        }
    }

    fn readings_of(
        &self,
        observer: &Observer,
        target: TargetId,
        (database, column_family): &(PathBuf, String),
        before: &Before,
        counted: &BTreeMap<(TargetId, PathBuf), u64>,
    ) -> Option<Readings> {
        let watched = observer.roster.get(target)?;
        let on_device = self.compactions_on_device(observer, (target, database), counted);
        Some(self.readings(watched, (database, column_family), &before.readings, on_device))
    }

    /// Asks for what paused actions wait for.
    pub fn look_at_paused(&mut self, observer: &mut Observer) {
        let now = clock::now();
        let mut due = Vec::new();
        for acting in &mut self.acting {
            let action = self.ledger.action(acting.id);
            let wants = action.is_some_and(|it| it.wanted(now).readings == Some(ReadingsKind::Before));
            let is_asked =
                |inquiry: &Inquiry| matches!(inquiry.purpose, Purpose::GoOn(id) if id == acting.id);
            if wants && acting.looked.elapsed() >= FOLLOW_INTERVAL && !self.inquiries.iter().any(is_asked) {
                acting.looked = Instant::now();
                due.push((acting.id, acting.baseline.kind.clone()));
            }
        }
        for (id, kind) in due {
            self.inquire(observer, &kind, Purpose::GoOn(id));
        }
    }
}
