//! Carrying out a plan, one action at a time.
//!
//! A slice runs in [`super::slice`], under the guards' eyes; what came of it is measured in
//! [`super::verify`].

use super::effect::{Effect, nothing_left, outcome_of};
use super::evidence::{SstRead, read_files};
use super::guards::{device_bytes, properties};
use super::lineage::linked_files;
use super::publish::shown_range;
use super::recovery::may_run_on;
use super::slice::Ran;
use super::watched::Watched;
use super::{Control, Engine};
use sexton_execute::{
    CompactTask, ExecuteError, Executor, JobEnd, JobOutcome, JobStatus, Site, Task, executor_for,
};
use sexton_inspect::process::is_alive;
use sexton_journal::{Begun, EventKind, clock};
use sexton_sst::Order;
use sexton_tuner::charge::charged_bytes;
use sexton_tuner::cost::Levels;
use sexton_tuner::ends::closed;
use sexton_tuner::evidence::{MemtableDeletions, SstFile};
use sexton_tuner::guard::Course;
use sexton_tuner::plan::{Action, CompactRange};
use sexton_tuner::policy::{ActuatorKind, KeyDisplay, Mode};
use sexton_tuner::range::KeyRange;
use sexton_tuner::reprice::{as_of_now, is_still_worth_it};
use sexton_tuner::run::{ActionId, ActionKind, End, Outcome, Place};
use sexton_tuner::schedule::io_budget_at;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::warn;

impl Engine {
    /// Carries out the plan for the targets whose mode is act.
    pub(super) fn act(&mut self, control: &mut Control) {
        let mut left_alone = HashSet::new();
        for action in self.plan.actions.clone() {
            control.take_commands();
            // What cannot be written down is not done.
            if control.stopped() || !self.history.is_writable() {
                return;
            }
            match action {
                Action::CompactRange(compact)
                    if self.may_act(&compact.target) && !left_alone.contains(&compact.target) =>
                {
                    let goes_on = self.compact(&compact, control);
                    if !goes_on {
                        left_alone.insert(compact.target);
                    }
                }
                Action::Flush(flush) if self.may_act(&flush.target) => self.flush(&flush, control),
                Action::SetOptions(set) if self.may_act(&set.target) => self.set_options(&set, control),
                Action::SetThrottle(throttle) if self.may_act(&throttle.target) => {
                    self.set_throttle(&throttle, control)
                }
                _ => {}
            }
        }
    }

    pub(super) fn may_act(&self, target: &str) -> bool {
        let mut watched = self.roster.watched.iter().filter(|watched| watched.target.name == target);
        watched.any(|watched| {
            let is_free = !self.history.is_in_doubt(&watched.target.process);
            watched.mode == Mode::Act && !watched.is_paused() && is_free
        })
    }

    /// Compacts one range, unless a guard objects; the snapshot shows it as running meanwhile. Gives whether
    /// the target may be acted on further in this cycle.
    fn compact(&mut self, planned: &CompactRange, control: &mut Control) -> bool {
        let before = &planned.before;
        let read = |watched| read_files(watched, Path::new(&planned.database));
        let files_before = self.watched_mut(&planned.target).and_then(read);
        // Budget and guards are asked for the price of now.
        let Some(compact) = &self.repriced(planned, files_before.as_ref()) else { return true };
        if self.bears(compact).is_err() {
            return false;
        }
        let Some(id) = self.begin(compact) else { return false };
        control.begin_action();
        control.publish(self.snapshot());
        let Some(watched) = self.watched_mut(&compact.target) else { return false };
        let process = watched.target.process;
        let memtables_before = memtables(watched, compact);
        let asked = with_ends(watched, compact, files_before.as_ref());
        if nothing_left(compact, before, files_before.as_ref()) {
            let why = "an earlier compaction has dropped its deletions already";
            self.history.end(id, End::new(clock::now(), Outcome::Skipped, why));
            return true;
        }
        let started = Instant::now();
        let ran = self.run_slice(&asked, id, control);
        // The target may have gone meanwhile.
        let files_after = self.watched_mut(&compact.target).and_then(|watched| {
            watched.note_action(ran.result.is_ok());
            read_files(watched, Path::new(&compact.database))
        });
        let memtables_after =
            self.watched_mut(&compact.target).and_then(|watched| memtables(watched, compact));
        let effect = Effect::of(compact, files_before.as_ref(), files_after.as_ref(), &ran)
            .with_memtables(memtables_before, memtables_after);
        self.charge(self.charged(compact, &effect));
        let is_gone = ran.result.is_err() && !is_alive(&process);
        // What a target that ended made of it is not known: its range rests as if it had been done.
        let rests = is_done(&ran) || ran.given_up_for.is_some() || is_gone;
        self.note_end(compact, id, rests, (started.elapsed(), &ran, &effect));
        if is_gone {
            self.history.emit_target_gone(id);
        } else if ran.result.as_ref().is_err_and(may_run_on) {
            self.orphans.add(process, PathBuf::from(&compact.database));
        }
        control.publish(self.snapshot());
        ran.given_up_for.is_none()
    }

    /// What a compaction takes from the budgets. The sizes of its files are the target's word.
    fn charged(&self, compact: &CompactRange, effect: &Effect) -> u64 {
        let watched = self.roster.watched.iter().find(|watched| watched.target.name == compact.target);
        let databases = watched.into_iter().flat_map(|watched| &watched.target.databases);
        let device_bytes = databases
            .filter(|database| database.path == Path::new(&compact.database))
            .find_map(|database| device_bytes(&database.path_from_agent));
        let charged = charged_bytes(effect.bytes_rewritten, compact.cost_bytes, device_bytes);
        if charged < effect.bytes_rewritten {
            let (target, reported) = (compact.target.as_str(), effect.bytes_rewritten);
            warn!(
                target_name = target,
                reported, charged, "a compaction that rewrote more than can be believed"
            );
        }
        charged
    }

    /// The slice at what it costs with the files of now. `None` where it is no longer worth that, or not paid
    /// for any more; that is told.
    fn repriced(&mut self, planned: &CompactRange, files: Option<&SstRead>) -> Option<CompactRange> {
        let watched = self.watched_mut(&planned.target)?;
        // MyRocks compacts all there is, and chooses the way by itself.
        let chooses = watched.entry.actuator != ActuatorKind::Sql;
        let levels = files.filter(|_| chooses).map(|files| levels(watched, planned, files));
        let now = levels.map_or_else(|| planned.clone(), |levels| as_of_now(planned, &levels));
        let time = jiff::Timestamp::now();
        self.bucket.refill(io_budget_at(&self.options.policy, time), time);
        let verdict = is_still_worth_it(planned, &now, self.bucket.available_bytes());
        let Err((rule, reason)) = verdict else { return Some(now) };
        let range = shown_range(&planned.range, self.options.policy.keys);
        self.history.emit(EventKind::Refused {
            target: planned.target.clone(),
            database: planned.database.clone(),
            column_family: Some(planned.column_family.clone()),
            rule: rule.name().to_owned(),
            ranges: 1,
            subject: format!("{} {range}", planned.column_family),
            reason,
        });
        None
    }

    /// Takes bytes that were written from the budgets.
    pub(super) fn charge(&mut self, bytes: u64) {
        self.bucket.spend(bytes);
        self.history.keep_budget(&self.bucket);
        self.daily.add(bytes, jiff::Timestamp::now());
        self.history.keep_daily(&self.daily);
    }

    /// Writes down how an action ended, with the snapshots that were held then.
    fn note_end(
        &mut self,
        compact: &CompactRange,
        id: ActionId,
        rests: bool,
        end: (Duration, &Ran, &Effect),
    ) {
        let (took, ran, effect) = end;
        let read = self
            .watched_mut(&compact.target)
            .and_then(|watched| properties(watched, Path::new(&compact.database), &compact.column_family));
        let taken_at = read.and_then(|properties| properties.oldest_snapshot_unix_s);
        let now_s = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
        let (outcome, message) = outcome_of(ran, effect);
        let end = End {
            duration_seconds: took.as_secs_f64(),
            bytes_rewritten: effect.bytes_rewritten,
            bytes_transient: ran.bytes_transient,
            deletions_before: effect.deletions_before,
            deletions_after: effect.deletions_after,
            memtable_deletions_before: effect.memtable_deletions_before,
            memtable_deletions_after: effect.memtable_deletions_after,
            snapshots: read.and_then(|properties| properties.snapshots),
            oldest_snapshot_age_seconds: taken_at.map(|taken| now_s.saturating_sub(taken)),
            rests,
            ..End::new(clock::now(), outcome, message)
        };
        self.history.end(id, end);
    }

    /// Runs the compaction of a part of a slice, watched by the guards; gives what they said as well.
    pub(super) fn run_part(
        &mut self,
        compact: &CompactRange,
        part: &KeyRange,
        interruptions: (ActionId, u32),
        control: &mut Control,
    ) -> (Result<JobOutcome, ExecuteError>, Course) {
        let (mut executor, task) = match self.executor_of_part(compact, part) {
            Ok(found) => found,
            Err(error) => return (Err(error), Course::Go),
        };
        let handles = task.handles;
        let is_whole = task.range == compact.range;
        let watch = (compact, is_whole, interruptions);
        let (result, course) = self.drive(executor.as_mut(), &Task::Compact(task), watch, control);
        if let (Err(ExecuteError::Hook { .. }), Some(handles)) = (&result, handles)
            && let Some(watched) = self.watched_mut(&compact.target)
        {
            watched.identities.forget(handles.database);
        }
        (result, course)
    }

    /// Who compacts a part of a slice, and the task for it.
    fn executor_of_part(
        &mut self,
        compact: &CompactRange,
        part: &KeyRange,
    ) -> Result<(Box<dyn Executor>, CompactTask), ExecuteError> {
        let watched = self.watched(&compact.target)?;
        let task = CompactTask { range: part.clone(), ..task(watched, compact) };
        // All keys are all keys in any order.
        if watched.entry.actuator != ActuatorKind::Sql {
            refuse_unless_bytewise(watched, &task)?;
        }
        let executor = self.executor(watched, &Task::Compact(task.clone()))?;
        Ok((executor, task))
    }

    /// Has a task done that nobody has to watch. Meanwhile commands are heard and processes followed.
    pub(super) fn carry_out(
        &mut self,
        target: &str,
        task: &Task,
        control: &mut Control,
    ) -> Result<JobOutcome, ExecuteError> {
        let mut executor = self.executor(self.watched(target)?, task)?;
        let job = executor.start(task)?;
        loop {
            let progress = match executor.poll(job) {
                JobStatus::Ended(result) => return result,
                JobStatus::Running(progress) => progress,
            };
            self.follower.wait(progress.poll_again_in);
            self.follow(control);
            control.take_commands();
            if control.stopped() {
                executor.cancel(job);
            }
        }
    }

    fn executor(&self, watched: &Watched, task: &Task) -> Result<Box<dyn Executor>, ExecuteError> {
        let site = Site {
            entry: &watched.entry,
            hook: watched.hook.as_ref(),
            policy_path: self.options.policy_path.as_ref(),
            shows_keys: self.options.policy.keys == KeyDisplay::Shown,
        };
        executor_for(task, &site)
    }

    pub(super) fn watched(&self, target: &str) -> Result<&Watched, ExecuteError> {
        let mut watched = self.roster.watched.iter().filter(|watched| watched.target.name == target);
        watched.next().ok_or_else(|| ExecuteError::Request { reason: format!("{target} has gone") })
    }

    pub(super) fn watched_mut(&mut self, target: &str) -> Option<&mut Watched> {
        self.roster.watched.iter_mut().find(|watched| watched.target.name == target)
    }

    /// Writes down that an action begins; `None`: its target has gone, or it cannot be written down.
    fn begin(&mut self, compact: &CompactRange) -> Option<ActionId> {
        let watched = self.watched_mut(&compact.target)?;
        let place = Place {
            database: watched.identity_of(Path::new(&compact.database))?,
            column_family: compact.column_family.clone(),
            range: compact.range.clone(),
        };
        let process = watched.target.process;
        let kind = ActionKind::Compact(compact.clone());
        self.history.begin(Begun { kind, process, place: Some(place), option: None }).ok()
    }

    /// What an operator would run to the same end.
    pub(super) fn commands_for(&self, compact: &CompactRange) -> Vec<String> {
        let Ok(watched) = self.watched(&compact.target) else { return Vec::new() };
        let task = Task::Compact(task(watched, compact));
        match self.executor(watched, &task) {
            Ok(executor) => executor.describe(&task),
            Err(error) => vec![format!("# {error}")],
        }
    }
}

/// The files of a slice's column family.
fn own<'files>(compact: &CompactRange, files: &'files SstRead) -> Vec<&'files SstFile> {
    files.iter().filter(|file| file.column_family == compact.column_family).collect()
}

fn levels(watched: &Watched, compact: &CompactRange, files: &SstRead) -> Levels {
    let options = watched.options.get(Path::new(&compact.database));
    let options = options.and_then(|families| families.get(&compact.column_family)).cloned();
    let linked = linked_files(watched, Path::new(&compact.database));
    Levels::of_linked(&own(compact, files), &options.unwrap_or_default(), &linked)
}

/// The slice as it is asked for: an end that is open would have RocksDB flush and compact without a look at
/// what there is.
fn with_ends(watched: &Watched, compact: &CompactRange, files: Option<&SstRead>) -> CompactRange {
    let files = files.filter(|_| watched.entry.actuator != ActuatorKind::Sql);
    let range = files.map(|files| closed(&compact.range, &own(compact, files), &compact.before));
    CompactRange { range: range.unwrap_or_else(|| compact.range.clone()), ..compact.clone() }
}

/// Deletions in the memtables that a slice may flush; `None` where RocksDB cannot be asked.
fn memtables(watched: &Watched, compact: &CompactRange) -> Option<MemtableDeletions> {
    properties(watched, Path::new(&compact.database), &compact.column_family)?.memtable_deletions()
}

/// Whether a slice ran through, with pauses or without.
fn is_done(ran: &Ran) -> bool {
    ran.given_up_for.is_none() && matches!(&ran.result, Ok(outcome) if outcome.end == JobEnd::Done)
}

/// Ranges are bytewise: in another order their ends would be the wrong way round, or somewhere else.
fn refuse_unless_bytewise(watched: &Watched, task: &CompactTask) -> Result<(), ExecuteError> {
    let orders = watched.orders.get(&task.database);
    let order = orders.and_then(|orders| orders.get(&task.column_family).copied().flatten());
    if order == Some(Order::Bytewise) {
        return Ok(());
    }
    let reason = format!(
        "column family {} is not known to be in bytewise order, and only such are compacted by range",
        task.column_family
    );
    Err(ExecuteError::Request { reason })
}

fn task(watched: &Watched, compact: &CompactRange) -> CompactTask {
    let database = PathBuf::from(&compact.database);
    CompactTask {
        process: watched.target.process,
        target: watched.target.name.clone(),
        handles: watched.identities.handles(&database, &compact.column_family),
        others: watched.identities.all_pointers(&database),
        database,
        column_family: compact.column_family.clone(),
        range: compact.range.clone(),
        cost_bytes: compact.cost_bytes,
        bottommost: compact.bottommost,
    }
}
