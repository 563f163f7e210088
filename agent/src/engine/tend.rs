//! Options that are set in targets are kept while they are wanted and put back when they are not: when they
//! did not help, when the policy does not allow them any more, when the agent ends.
//!
//! The hook puts them back by itself once it has not heard of the agent for a while, so it is told now and
//! then that there is one. What is in force is read from the database's own OPTIONS file, never assumed:
//! somebody else may have set it meanwhile.

use super::Engine;
use super::evidence::connect_hook;
use super::watched::Watched;
use sexton_execute::{ExecuteError, HookClient, SharedHook};
use sexton_hook_protocol::limits::LEASE_RENEWAL_INTERVAL;
use sexton_hook_protocol::{ChangedOption, ColumnFamilyPointers, OptionChange, OptionsScope};
use sexton_journal::{OptionRecord, Wish};
use sexton_tuner::policy::{ActuatorKind, Mode, Policy, RemedyKind};
use sexton_tuner::run::is_same_value;
use std::path::Path;
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
            let Some(changed) = changed_options(watched) else { continue };
            for record in kept {
                let pointers = pointers(watched_of(&mut self.roster.watched, &record), &record);
                if !pointers.is_some_and(|pointers| is_among(&changed, &pointers, &record.name)) {
                    self.settle_lost(&record);
                }
            }
        }
    }

    /// An option that the hook does not know of any more: it was put back when the hook had not heard of the
    /// agent for too long, or its database was closed.
    fn settle_lost(&mut self, record: &OptionRecord) {
        let Some(watched) = watched_of(&mut self.roster.watched, record) else { return };
        match value_in_force(watched, record) {
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
        let library = self.options.hook_library.clone();
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
            if watched.hook.is_none() {
                connect_hook(watched, library.as_deref());
            }
            match put_back(watched, &record) {
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

/// Puts an option back, unless somebody else has changed it since. Gives the value that is in force then.
fn put_back(watched: &mut Watched, record: &OptionRecord) -> Result<String, String> {
    let in_force = value_in_force(watched, record)?;
    let is_ours = in_force.as_ref().is_some_and(|value| is_same_value(value, &record.value));
    let changed = changed_options(watched).unwrap_or_default();
    let pointers = pointers(Some(watched), record);
    let is_known = pointers.as_ref().is_some_and(|pointers| is_among(&changed, pointers, &record.name));
    let value = in_force.filter(|_| !is_ours).unwrap_or_else(|| record.restore.clone());
    if !is_ours && !is_known {
        return Ok(value);
    }
    // Where it is another value by now, the hook is to leave it alone as well.
    let pointers = pointers.ok_or_else(|| "no hook knows its column family".to_owned())?;
    let hook = watched.hook.as_ref().ok_or_else(|| "no hook answers".to_owned())?;
    let mut hook = hook.try_lock().map_err(|_| "the hook is busy with an action".to_owned())?;
    let change = OptionChange { name: record.name.clone(), value: value.clone(), restore: None };
    let set = hook.set_options(&pointers, OptionsScope::ColumnFamily, &[change]);
    drop(hook);
    if let Err(ExecuteError::Hook { .. }) = set {
        watched.identities.forget(pointers.database);
    }
    set.map(|()| value).map_err(|error| error.to_string())
}

/// The option's value by the database's newest OPTIONS file; `None` where that does not name it.
pub fn value_in_force(watched: &Watched, record: &OptionRecord) -> Result<Option<String>, String> {
    let mut databases = watched.target.databases.iter();
    let database = databases.find(|database| database.path == record.database.path);
    let database = database.ok_or_else(|| "its database is not open".to_owned())?;
    let read = sexton_sst::read_database(&database.path_from_agent).map_err(|error| error.to_string())?;
    let family = read.column_families.into_iter().find(|family| family.name == record.column_family);
    Ok(family.and_then(|mut family| family.options.run_time_options.remove(&record.name)))
}

/// Notes a value as the next OPTIONS file will have it.
pub fn note_value(watched: &mut Watched, record: &OptionRecord, value: &str) {
    let families = watched.options.get_mut(&record.database.path);
    if let Some(options) = families.and_then(|families| families.get_mut(&record.column_family)) {
        options.run_time_options.insert(record.name.clone(), value.to_owned());
    }
}

/// What the hook would put back; `None` where it does not answer now.
fn changed_options(watched: &Watched) -> Option<Vec<ChangedOption>> {
    let changed = ask(watched.hook.as_ref()?, HookClient::changed_options)?;
    changed.inspect_err(|error| debug!(target = watched.target.name, %error, "no changed options")).ok()
}

fn ask<T>(
    hook: &SharedHook,
    question: impl FnOnce(&mut HookClient) -> Result<T, ExecuteError>,
) -> Option<Result<T, ExecuteError>> {
    Some(question(&mut *hook.try_lock().ok()?))
}

/// Where the record's column family is: from a probe, else from the hook itself.
fn pointers(watched: Option<&mut Watched>, record: &OptionRecord) -> Option<ColumnFamilyPointers> {
    let watched = watched?;
    if let Some(handles) = watched.identities.handles(&record.database.path, &record.column_family) {
        return Some(handles.of(&record.column_family));
    }
    let known = ask(watched.hook.as_ref()?, HookClient::databases)?.ok()?;
    let is_it = |directory: &str| Path::new(directory) == record.database.path;
    let families = known.into_iter().filter(|family| family.directory.as_deref().is_some_and(is_it));
    families.map(|family| family.pointers).find(|pointers| pointers.name == record.column_family)
}

fn is_among(changed: &[ChangedOption], pointers: &ColumnFamilyPointers, name: &str) -> bool {
    changed.iter().any(|option| {
        option.database == pointers.database && option.column_family_id == pointers.id && option.name == name
    })
}
