//! Options that are set in targets are kept while they are wanted and put back when they are not: when they
//! did not help, when the policy does not allow them any more, when the agent ends.
//!
//! The hook puts them back by itself once it has not heard of the agent for a while, so it is told now and
//! then that there is one. What is in force is read from the database's own OPTIONS file, never assumed:
//! somebody else may have set it meanwhile.

use super::Engine;
use super::watched::Watched;
use crate::session::{Access, OPTION_LIMIT, PROBE_LIMIT, Session, ValueInForce};
use sexton_hook_protocol::limits::LEASE_RENEWAL_INTERVAL;
use sexton_journal::{OptionRecord, Wish};
use sexton_tuner::policy::{ActuatorKind, Mode, Policy, RemedyKind};
use sexton_tuner::run::is_same_value;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// Pause between two tries to put an option back: its database is read anew each time.
const RETRY_INTERVAL: Duration = Duration::from_secs(15);

/// How long the agent's end may be put off by targets that do not answer: their hooks put the options back.
const END_TIME_LIMIT: Duration = Duration::from_secs(10);

impl Engine {
    /// Keeps the options that are wanted, and puts the others back, when it is time.
    pub(super) fn tend_options(&mut self) {
        let is_due = self.options_tended.is_none_or(|at| at.elapsed() >= LEASE_RENEWAL_INTERVAL);
        if !is_due || self.history.options().records().is_empty() {
            return;
        }
        self.options_tended = Some(Instant::now());
        self.keep_options();
        self.put_back_unwanted(None);
    }

    /// The policy is about to change: puts back what the next one does not allow.
    pub(super) fn put_back_for(&mut self, policy: &Policy) {
        let Engine { roster, history, .. } = self;
        history.unwant_options("the policy does not allow it any more", |record| {
            let watched = roster.watched.iter().find(|watched| watched.target.name == record.target);
            watched.is_some_and(|watched| !is_allowed(policy, watched, &record.column_family))
        });
        self.put_back_unwanted(None);
    }

    /// The agent ends: puts everything back.
    pub(super) fn put_back_all(&mut self) {
        self.history.unwant_options("the agent ends", |_| true);
        self.put_back_unwanted(Some(Instant::now() + END_TIME_LIMIT));
    }

    /// Tells the hooks that this agent is still there, and looks whether its options are, too.
    fn keep_options(&mut self) {
        let names: Vec<String> =
            self.roster.watched.iter().map(|watched| watched.target.name.clone()).collect();
        self.history.unwant_options("its process has gone", |record| !names.contains(&record.target));
        for name in names {
            let records = self.history.options().records().iter();
            let kept = records.filter(|record| record.wish == Wish::Keep && record.target == name);
            let kept: Vec<OptionRecord> = kept.cloned().collect();
            let Some(watched) = self.watched_mut(&name).filter(|_| !kept.is_empty()) else { continue };
            let read = move |session: &mut Session| session.lost_options(kept);
            let lost = watched.call("the options that are set", OPTION_LIMIT, read).flatten();
            lost.into_iter().flatten().for_each(|(record, value)| self.settle_lost(&record, value));
        }
    }

    /// An option that the hook does not know of any more: it was put back when the hook had not heard of the
    /// agent for too long, or its database was closed.
    fn settle_lost(&mut self, record: &OptionRecord, value: ValueInForce) {
        let Some(watched) = watched_of(&mut self.roster.watched, record) else { return };
        match value {
            Ok(Some(value)) if is_same_value(&value, &record.value) => {
                let of_it = |other: &OptionRecord| other.action_id == record.action_id;
                self.history.unwant_options("its database was opened anew with it", of_it);
            }
            Ok(value) => {
                let value = value.unwrap_or_else(|| record.restore.clone());
                note_value(watched, record, &value);
                let reason = "the hook has put it back, or its database was opened anew";
                self.history.end_option(record, &value, reason);
            }
            Err(reason) => debug!(target = record.target, reason, "an option's value cannot be read"),
        }
    }

    /// Puts back what is not wanted; what cannot be put back now is tried again later.
    fn put_back_unwanted(&mut self, deadline: Option<Instant>) {
        for record in self.history.options().records().to_vec() {
            let Wish::PutBack(why) = record.wish else { continue };
            if deadline.is_none() && record.rests(RETRY_INTERVAL) {
                continue;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let database = record.database.path.display();
                warn!(target = record.target, %database, option = record.name, "left to the hook to put back");
                continue;
            }
            let Some(watched) = watched_of(&mut self.roster.watched, &record) else { continue };
            let access = Access::of(&watched.entry, watched.mode);
            let wanted = record.clone();
            let put_back = move |session: &mut Session| session.put_back(&wanted, access);
            let limit =
                deadline.map_or(OPTION_LIMIT, |until| until.saturating_duration_since(Instant::now()));
            let put_back = watched.call("putting an option back", limit, put_back);
            match put_back.unwrap_or_else(|| Err("the target does not respond".to_owned())) {
                Ok(value) => {
                    note_value(watched, &record, &value);
                    self.history.end_option(&record, &value, why);
                }
                Err(reason) => {
                    let database = record.database.path.display();
                    let (target, option) = (&record.target, &record.name);
                    warn!(target, %database, option, reason, "cannot be put back yet");
                    self.history.note_option_tried(&record);
                }
            }
        }
    }
}

/// Whether a policy lets options of a column family be set.
fn is_allowed(policy: &Policy, watched: &Watched, column_family: &str) -> bool {
    let target = &watched.target;
    let executable = target.executable.to_string_lossy();
    let entry = policy.target_for(target.process.pid, &executable, &target.command_line);
    entry.is_some_and(|entry| {
        policy.mode_of(entry) == Mode::Act
            && entry.actuator == ActuatorKind::Hook
            && entry.remedies.contains(&RemedyKind::Options)
            && entry.includes(column_family)
    })
}

/// The target that has the record's database open: the process of then, or another one.
fn watched_of<'a>(watched: &'a mut [Watched], record: &OptionRecord) -> Option<&'a mut Watched> {
    let has_it = |watched: &Watched| {
        let mut databases = watched.target.databases.iter();
        databases.any(|database| database.identity() == record.database)
    };
    let same_process = watched.iter().position(|it| it.target.process == record.process && has_it(it));
    let at = same_process.or_else(|| watched.iter().position(has_it))?;
    watched.get_mut(at)
}

/// The option's value by the database's newest OPTIONS file; `None` where that does not name it.
pub fn value_in_force(watched: &mut Watched, record: &OptionRecord) -> ValueInForce {
    let wanted = record.clone();
    let read = move |session: &mut Session| session.value_in_force(&wanted);
    let read = watched.call("reading the OPTIONS file", OPTION_LIMIT, read);
    read.unwrap_or_else(|| Err("the target does not respond".to_owned()))
}

/// Notes a value as the next OPTIONS file will have it.
pub fn note_value(watched: &mut Watched, record: &OptionRecord, value: &str) {
    let families = watched.options.get_mut(&record.database.path);
    if let Some(options) = families.and_then(|families| families.get_mut(&record.column_family)) {
        options.run_time_options.insert(record.name.clone(), value.to_owned());
    }
    let (record, value) = (record.clone(), value.to_owned());
    watched.worker.ask("noting an option's value", PROBE_LIMIT, move |session: &mut Session| {
        session.note_value(&record, &value);
    });
}
