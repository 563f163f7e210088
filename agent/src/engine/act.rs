//! Carrying out a plan, one action at a time.
//!
//! A slice runs in [`super::slice`], under the guards' eyes; what came of it is measured in
//! [`super::verify`].

use super::control::POLL_INTERVAL;
use super::effect::{Effect, nothing_left, outcome_of};
use super::publish::shown_range;
use super::recovery::may_run_on;
use super::slice::{self, Acting, Ran};
use super::watched::Watched;
use super::{Control, Engine};
use crate::session::{Order, READINGS_LIMIT, ReportedStatus, Session, SstRead};
use sexton_execute::{CompactTask, ExecuteError, JobEnd, JobOutcome, Site, Task, executor_for};
use sexton_hook_protocol::FrameError;
use sexton_inspect::facts::TargetId;
use sexton_inspect::process::is_alive;
use sexton_journal::{Begun, EventKind, clock};
use sexton_tuner::charge::charged_bytes;
use sexton_tuner::cost::Levels;
use sexton_tuner::ends::closed;
use sexton_tuner::evidence::{MemtableDeletions, SstFile};
use sexton_tuner::plan::{Action, CompactRange};
use sexton_tuner::policy::{ActuatorKind, KeyDisplay, Mode};
use sexton_tuner::range::KeyRange;
use sexton_tuner::reprice::{as_of_now, is_still_worth_it};
use sexton_tuner::run::{ActionId, ActionKind, End, Outcome, Place};
use sexton_tuner::schedule::io_budget_at;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::warn;

impl Engine {
    /// Takes in what a new plan wants. What an earlier one wanted of targets that this one knows nothing new
    /// of is still wanted.
    pub(super) fn take_plan(&mut self) {
        let fresh: HashSet<&str> = self.fresh.iter().map(String::as_str).collect();
        self.queue.retain(|action| !fresh.contains(target_of(action)) && !is_of_commands(action));
        let queued: HashSet<String> = self.queue.iter().map(|action| target_of(action).to_owned()).collect();
        let is_new = |action: &&Action| is_of_commands(action) || !queued.contains(target_of(action));
        let wanted: Vec<Action> = self.plan.actions.iter().filter(is_new).cloned().collect();
        self.queue.extend(wanted);
    }

    /// Begins what is wanted of the targets whose mode is act, as far as their devices are free.
    pub(super) fn act(&mut self, control: &mut Control) {
        for action in std::mem::take(&mut self.queue) {
            control.take_commands();
            // What cannot be written down is not done.
            if control.stopped() || !self.history.is_writable() {
                return;
            }
            let target = target_of(&action);
            if !self.may_act(target) || self.left_alone.contains(target) {
                continue;
            }
            if !is_of_commands(&action) && !self.is_device_free(&action) {
                self.queue.push_back(action);
                continue;
            }
            match action {
                Action::CompactRange(compact) => self.compact(&compact, control),
                Action::Flush(flush) => self.flush(&flush, control),
                Action::SetOptions(set) => self.set_options(&set, control),
                Action::SetThrottle(throttle) => self.set_throttle(&throttle, control),
            }
        }
    }

    /// Whether no action runs in the target, nor on the block device that its database lies on.
    fn is_device_free(&self, action: &Action) -> bool {
        let Ok(watched) = self.watched(target_of(action)) else { return true };
        let device = database_of(action).and_then(|database| device_of(watched, Path::new(database)));
        self.acting
            .iter()
            .all(|acting| acting.target != watched.target.id && (device.is_none() || acting.device != device))
    }

    /// Whether something is done to a target, or about to be: it has windows of its own then.
    pub(super) fn is_acted_on(&self, id: TargetId) -> bool {
        self.acting.iter().any(|acting| acting.target == id)
    }

    /// Bytes that running compactions may still take from the budget.
    pub(super) fn reserved_bytes(&self) -> u64 {
        let costs = self.acting.iter().map(|acting| acting.priced.cost_bytes);
        costs.fold(0, u64::saturating_add)
    }

    /// Takes what runs a step further. Where something has ended, its device is free for the next.
    pub(super) fn follow_actions(&mut self, control: &mut Control) {
        let pauses = |acting: &[Acting]| acting.iter().map(|acting| acting.ran.pauses).sum::<u32>();
        let pauses_before = pauses(&self.acting);
        let over = self.follow_slices(control);
        let is_news = !over.is_empty() || pauses(&self.acting) != pauses_before;
        let has_ended = !over.is_empty();
        over.into_iter().for_each(|acting| self.end_compaction(acting));
        if has_ended {
            self.act(control);
        }
        if is_news {
            control.publish(self.snapshot());
        }
    }

    pub(super) fn may_act(&self, target: &str) -> bool {
        let mut watched = self.roster.watched.iter().filter(|watched| watched.target.name == target);
        watched.any(|watched| {
            let is_free = !self.history.is_in_doubt(&watched.target.process);
            let responds = watched.worker.trouble().is_none();
            watched.mode == Mode::Act && !watched.is_paused() && is_free && responds
        })
    }

    /// Begins to compact one range, unless a guard objects; the snapshot shows it as running meanwhile.
    fn compact(&mut self, planned: &CompactRange, control: &mut Control) {
        let read = |watched: &mut Watched| watched.read_files(Path::new(&planned.database));
        let files_before = self.watched_mut(&planned.target).and_then(read);
        // Budget and guards are asked for the price of now.
        let Some(priced) = self.repriced(planned, files_before.as_ref()) else { return };
        let begun = if self.bears(&priced).is_ok() { self.begin(&priced) } else { None };
        let Some(id) = begun else {
            self.left_alone.insert(priced.target);
            return;
        };
        if self.acting.is_empty() {
            control.begin_action();
        }
        let Some(watched) = self.watched_mut(&priced.target) else { return };
        let memtables_before = memtables(watched, &priced);
        let compact = with_ends(watched, &priced, files_before.as_ref());
        let target = watched.target.id;
        let device = device_of(watched, Path::new(&priced.database));
        if nothing_left(&priced, &planned.before, files_before.as_ref()) {
            let why = "an earlier compaction has dropped its deletions already";
            self.history.end(id, End::new(clock::now(), Outcome::Skipped, why));
            return;
        }
        let begun = slice::Begun { target, device, id, compact, priced, files_before, memtables_before };
        let mut acting = Acting::new(begun);
        self.follow_slice(&mut acting, control);
        self.acting.push(acting);
        control.publish(self.snapshot());
    }

    /// A compaction is over: what it changed is measured and written down.
    fn end_compaction(&mut self, acting: Acting) {
        let Acting { target, id, priced: compact, files_before, memtables_before, started, ran, .. } = acting;
        let process = target.process;
        // The target may have gone meanwhile.
        let files_after = self.watched_mut(&compact.target).and_then(|watched| {
            watched.note_action(ran.result.is_ok());
            watched.read_files(Path::new(&compact.database))
        });
        let memtables_after =
            self.watched_mut(&compact.target).and_then(|watched| memtables(watched, &compact));
        let effect = Effect::of(&compact, files_before.as_ref(), files_after.as_ref(), &ran)
            .with_memtables(memtables_before, memtables_after);
        let charged = self.charged(&compact, &effect);
        self.charge(charged);
        let is_gone = ran.result.is_err() && !is_alive(&process);
        // What a target that ended made of it is not known: its range rests as if it had been done.
        let rests = is_done(&ran) || ran.given_up_for.is_some() || is_gone;
        self.note_end(&compact, id, rests, (started.elapsed(), &ran, &effect));
        if is_gone {
            self.history.emit_target_gone(id);
        } else if ran.result.as_ref().is_err_and(may_run_on) {
            self.orphans.add(process, PathBuf::from(&compact.database));
        }
        if ran.given_up_for.is_some() {
            self.left_alone.insert(compact.target);
        }
    }

    /// What a compaction takes from the budgets. The sizes of its files are the target's word.
    fn charged(&mut self, compact: &CompactRange, effect: &Effect) -> u64 {
        let watched = self.watched_mut(&compact.target);
        let device_bytes = watched.and_then(|watched| watched.device_bytes(Path::new(&compact.database)));
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
        let available_bytes = self.bucket.available_bytes().saturating_sub(self.reserved_bytes());
        let verdict = is_still_worth_it(planned, &now, available_bytes);
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
            .and_then(|watched| watched.properties(Path::new(&compact.database), &compact.column_family));
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

    /// Begins the compaction of a part of a slice.
    pub(super) fn start_part(
        &mut self,
        compact: &CompactRange,
        part: &KeyRange,
    ) -> Result<StartedJob, ExecuteError> {
        let watched = self.watched(&compact.target)?;
        let task = CompactTask { range: part.clone(), ..task(watched, compact) };
        let all_keys = watched.entry.actuator == ActuatorKind::Sql;
        self.start_job(&compact.target, move |session: &Session| session.located(task, all_keys))
    }

    /// A command that used pointers into a database was refused: they are not believed any more.
    pub(super) fn forget_pointers(&mut self, target: &str, database: &str) {
        let database = PathBuf::from(database);
        let forget = move |session: &mut Session| {
            if let Some(pointers) = session.identities.any_pointers(&database) {
                session.identities.forget(pointers.database);
            }
        };
        if let Some(watched) = self.watched_mut(target) {
            watched.worker.ask("forgetting pointers", READINGS_LIMIT, forget);
        }
    }

    /// Has a task done that nobody has to watch. Meanwhile commands are heard and processes followed.
    pub(super) fn carry_out(
        &mut self,
        target: &str,
        task: impl FnOnce(&Session) -> Result<Task, ExecuteError> + Send + 'static,
        control: &mut Control,
    ) -> Result<JobOutcome, ExecuteError> {
        let job = self.start_job(target, task)?;
        loop {
            if let Some(ReportedStatus::Ended(result)) = self.report_of(&job) {
                return result;
            }
            self.is_heard_of(&job)?;
            self.turn(control, POLL_INTERVAL);
            if control.stopped() {
                self.cancel_job(&job);
            }
        }
    }

    /// Begins a job in the target's session.
    pub(super) fn start_job(
        &mut self,
        target: &str,
        task: impl FnOnce(&Session) -> Result<Task, ExecuteError> + Send + 'static,
    ) -> Result<StartedJob, ExecuteError> {
        self.last_job += 1;
        let number = self.last_job;
        let Engine { options, post, roster, .. } = self;
        let gone = || ExecuteError::Request { reason: format!("{target} has gone, or does not respond") };
        let mut watched = roster.watched.iter_mut().filter(|watched| watched.target.name == target);
        let watched = watched.next().ok_or_else(gone)?;
        let order = Order {
            number,
            entry: watched.entry.clone(),
            policy_path: options.policy_path.clone(),
            shows_keys: options.policy.keys == KeyDisplay::Shown,
        };
        let start = move |session: &mut Session| session.start_job(order, task);
        if !watched.ask(post, "beginning a job", READINGS_LIMIT, start) {
            return Err(gone());
        }
        Ok(StartedJob { number, target: watched.target.id, generation: watched.worker.generation() })
    }

    /// What was heard of a job, one report after the other.
    pub(super) fn report_of(&mut self, job: &StartedJob) -> Option<ReportedStatus> {
        let at = self.reports.iter().position(|report| report.number == job.number)?;
        Some(self.reports.remove(at).status)
    }

    /// Whether anything can still be heard of it.
    pub(super) fn is_heard_of(&mut self, job: &StartedJob) -> Result<(), ExecuteError> {
        let watched = self.roster.get_mut(job.target);
        if watched.is_some_and(|watched| watched.worker.is_current(job.generation)) {
            return Ok(());
        }
        if !is_alive(&job.target.process) {
            return Err(ExecuteError::ProcessGone { pid: job.target.process.pid });
        }
        let source = FrameError::Io(std::io::ErrorKind::TimedOut.into());
        Err(ExecuteError::Connection { pid: job.target.process.pid, source })
    }

    /// Has a job end before its time.
    pub(super) fn cancel_job(&mut self, job: &StartedJob) {
        let number = job.number;
        if let Some(watched) = self.roster.get_mut(job.target) {
            let cancel = move |session: &mut Session| session.cancel_job(number);
            watched.worker.ask("cancelling a job", READINGS_LIMIT, cancel);
        }
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
        self.history.begin(Begun { kind, process, place: Some(place) }).ok()
    }

    /// What an operator would run to the same end.
    pub(super) fn commands_for(&self, compact: &CompactRange) -> Vec<String> {
        let Ok(watched) = self.watched(&compact.target) else { return Vec::new() };
        let task = Task::Compact(task(watched, compact));
        let site = Site {
            entry: &watched.entry,
            hook: None,
            policy_path: self.options.policy_path.as_ref(),
            shows_keys: self.options.policy.keys == KeyDisplay::Shown,
        };
        match executor_for(&task, &site) {
            Ok(executor) => executor.describe(&task),
            Err(error) => vec![format!("# {error}")],
        }
    }
}

/// The files of a slice's column family.
fn own<'files>(compact: &CompactRange, files: &'files SstRead) -> Vec<&'files SstFile> {
    files.iter().filter(|file| file.column_family == compact.column_family).collect()
}

/// The same by level.
fn levels(watched: &mut Watched, compact: &CompactRange, files: &SstRead) -> Levels {
    let options = watched.options.get(Path::new(&compact.database));
    let options = options.and_then(|families| families.get(&compact.column_family)).cloned();
    let linked = watched.linked_files(Path::new(&compact.database));
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
fn memtables(watched: &mut Watched, compact: &CompactRange) -> Option<MemtableDeletions> {
    watched.properties(Path::new(&compact.database), &compact.column_family)?.memtable_deletions()
}

/// Whether a slice ran through, with pauses or without.
fn is_done(ran: &Ran) -> bool {
    ran.given_up_for.is_none() && matches!(&ran.result, Ok(outcome) if outcome.end == JobEnd::Done)
}

fn target_of(action: &Action) -> &str {
    match action {
        Action::CompactRange(compact) => &compact.target,
        Action::Flush(flush) => &flush.target,
        Action::SetOptions(set) => &set.target,
        Action::SetThrottle(throttle) => &throttle.target,
    }
}

fn database_of(action: &Action) -> Option<&str> {
    match action {
        Action::CompactRange(compact) => Some(&compact.database),
        Action::Flush(flush) => Some(&flush.database),
        Action::SetOptions(set) => Some(&set.database),
        Action::SetThrottle(_) => None,
    }
}

/// Whether it is done by the policy's commands, on no device of the target's.
fn is_of_commands(action: &Action) -> bool {
    matches!(action, Action::SetThrottle(_))
}

fn device_of(watched: &Watched, database: &Path) -> Option<u64> {
    watched.target.databases.iter().find(|known| known.path == database)?.device
}

/// A job of a session.
#[derive(Clone, Copy, Debug)]
pub struct StartedJob {
    number: u64,
    target: TargetId,
    generation: u64,
}

/// What is known of it here; where it lies in memory knows the session.
fn task(watched: &Watched, compact: &CompactRange) -> CompactTask {
    let database = PathBuf::from(&compact.database);
    CompactTask {
        process: watched.target.process,
        target: watched.target.name.clone(),
        handles: None,
        others: Vec::new(),
        database,
        column_family: compact.column_family.clone(),
        range: compact.range.clone(),
        cost_bytes: compact.cost_bytes,
        bottommost: compact.bottommost,
    }
}
