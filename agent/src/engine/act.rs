//! Carrying out a plan, one action at a time, and measuring what came of it.

use super::control::POLL_INTERVAL;
use super::evidence::{SstRead, read_files};
use super::history::{Begun, Owed, Place};
use super::publish::shown;
use super::watched::Watched;
use super::{Control, Engine};
use crate::actuator::{
    Actuator, ActuatorError, AdviseActuator, CommandTemplate, CompactEnd, CompactOutcome, CompactRequest,
    ExecActuator, HookActuator, ThrottleRequest,
};
use crate::snapshot::ActionView;
use crate::sst::Order;
use crate::target::process::is_alive;
use sexton_tuner::cost::Bottommost;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::plan::{Action, CompactRange, SetThrottle};
use sexton_tuner::policy::{ActuatorKind, KeyDisplay, Mode};
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::verify::verdict;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time that one compaction may take. Its bytes are bounded by the budget; a disk that needs longer
/// for them is hurting already.
const COMPACTION_TIME_LIMIT: Duration = Duration::from_secs(600);

impl Engine {
    /// Carries out the plan for the targets whose mode is act.
    pub(super) fn act(&mut self, control: &mut Control) {
        for action in self.plan.actions.clone() {
            control.take_commands();
            // What cannot be written down is not done.
            if control.stopped() || !self.history.may_act() {
                return;
            }
            match action {
                Action::CompactRange(compact) if self.may_act(&compact.target) => {
                    self.compact(&compact, control);
                }
                Action::SetThrottle(throttle) if self.may_act(&throttle.target) => {
                    self.throttle(&throttle);
                }
                _ => {}
            }
        }
    }

    fn may_act(&self, target: &str) -> bool {
        let mut watched = self.roster.watched.iter().filter(|watched| watched.target.name == target);
        watched.any(|watched| watched.mode == Mode::Act && !watched.is_paused())
    }

    /// Compacts one range; the snapshot shows it as running meanwhile.
    fn compact(&mut self, compact: &CompactRange, control: &mut Control) {
        let Some(before) = self.assessed(compact) else { return };
        let Some(id) = self.begin(compact, &before) else { return };
        control.begin_action();
        control.publish(self.snapshot());
        let Some(watched) = self.watched_mut(&compact.target) else { return };
        let process = watched.target.process;
        let files_before = read_files(watched, Path::new(&compact.database));
        if nothing_left(compact, &before, files_before.as_ref()) {
            self.history.end(id, false, |action| {
                action.state = "skipped".into();
                action.outcome = "an earlier compaction has dropped its deletions already".into();
            });
            return;
        }
        let started = Instant::now();
        let result = self.run_compaction(compact, control);
        let is_done = matches!(&result, Ok(outcome) if outcome.end == CompactEnd::Done);
        // The target may have gone meanwhile.
        let files_after = self.watched_mut(&compact.target).and_then(|watched| {
            watched.note_action(result.is_ok());
            read_files(watched, Path::new(&compact.database))
        });
        let effect = Effect::of(compact, files_before.as_ref(), files_after.as_ref(), result.as_ref().ok());
        self.bucket.spend(effect.bytes_rewritten);
        self.history.keep_budget(&self.bucket);
        let is_gone = result.is_err() && !is_alive(&process);
        // What a target that ended made of it is not known: its range rests as if it had been done.
        self.history.end(id, is_done || is_gone, |action| {
            action.duration_seconds = started.elapsed().as_secs_f64();
            action.bytes_rewritten = effect.bytes_rewritten;
            action.deletions_before = effect.deletions_before;
            action.deletions_after = effect.deletions_after;
            (action.state, action.outcome) = in_words(&result, &effect);
        });
        if is_gone {
            self.history.tell_target_gone(id);
        }
        if is_done {
            // What is looked for afterwards is what this slice promised, in the whole range.
            let promised = compact.relief_seconds_per_second;
            self.history.owe(id, RangeAssessment { relief_seconds_per_second: promised, ..before });
        }
        control.publish(self.snapshot());
    }

    /// Runs the compaction on a thread of its own, so that commands are heard and processes are followed while it
    /// runs.
    fn run_compaction(
        &mut self,
        compact: &CompactRange,
        control: &mut Control,
    ) -> Result<CompactOutcome, ActuatorError> {
        let gone = || ActuatorError::Request { reason: format!("{} has gone", compact.target) };
        let watched = self.watched_mut(&compact.target).ok_or_else(gone)?;
        let request = request(watched, compact);
        refuse_unless_bytewise(watched, &request)?;
        let no_hook = || ActuatorError::NoHook { pid: request.process.pid };
        let result = match watched.entry.actuator {
            ActuatorKind::Exec => {
                let mut exec = exec_actuator(watched, false)?;
                self.on_a_thread(&mut exec, &request, control)
            }
            ActuatorKind::Hook => {
                let hook = watched.hook.clone().ok_or_else(no_hook)?;
                let mut hook = hook.try_borrow_mut().map_err(|_| no_hook())?;
                let mut actuator = HookActuator::new(&mut *hook, COMPACTION_TIME_LIMIT);
                self.on_a_thread(&mut actuator, &request, control)
            }
            ActuatorKind::None => Err(no_hook()),
        };
        if let (Err(ActuatorError::Hook { .. }), Some(handles)) = (&result, request.handles)
            && let Some(watched) = self.watched_mut(&compact.target)
        {
            watched.identities.forget(handles.database);
        }
        result
    }

    fn on_a_thread(
        &mut self,
        actuator: &mut (dyn Actuator + Send),
        request: &CompactRequest,
        control: &mut Control,
    ) -> Result<CompactOutcome, ActuatorError> {
        let cancelled = control.cancelled();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| actuator.compact_range(request, &cancelled));
            while !running.is_finished() {
                control.take_commands();
                self.follower.wait(POLL_INTERVAL);
                self.follow(control);
            }
            running.join().unwrap_or_else(|_| {
                Err(ActuatorError::Request { reason: "the actuator failed in a way it must not".into() })
            })
        })
    }

    fn watched_mut(&mut self, target: &str) -> Option<&mut Watched> {
        self.roster.watched.iter_mut().find(|watched| watched.target.name == target)
    }

    /// Writes down that an action begins; `None`: its target has gone, or it cannot be written down.
    fn begin(&mut self, compact: &CompactRange, before: &RangeAssessment) -> Option<u64> {
        let keys = self.options.policy.keys;
        let watched = self.watched_mut(&compact.target)?;
        let place = Place {
            database: watched.identity_of(Path::new(&compact.database))?,
            column_family: compact.column_family.clone(),
            range: compact.range.clone(),
        };
        let process = watched.target.process;
        let view = ActionView {
            action: "compact_range".into(),
            target: compact.target.clone(),
            database: compact.database.clone(),
            subject: compact.column_family.clone(),
            begin: shown(&compact.range.begin, keys),
            end: compact.range.end.as_ref().map(|end| shown(end, keys)),
            cost_bytes: compact.cost_bytes,
            reason: compact.reason.clone(),
            pain_before: before.pain_seconds_per_second,
            ..ActionView::default()
        };
        self.history.begin(Begun { view, process, place: Some(place) }).ok()
    }

    /// The assessment that the plan's action came from.
    fn assessed(&self, compact: &CompactRange) -> Option<RangeAssessment> {
        let found = self.plan.assessments.iter().find(|assessed| {
            assessed.target == compact.target
                && assessed.database == compact.database
                && assessed.column_family.as_ref() == Some(&compact.column_family)
                && assessed.range == compact.of
        });
        found.cloned()
    }

    fn throttle(&mut self, throttle: &SetThrottle) {
        let Some(watched) = self.roster.watched.iter().find(|watched| watched.target.name == throttle.target)
        else {
            return;
        };
        let process = watched.target.process;
        let request = ThrottleRequest {
            process,
            name: throttle.name.clone(),
            value: throttle.value.clone(),
            command: throttle.command.clone(),
            time_limit: throttle.timeout.duration(),
        };
        let view = ActionView {
            action: "set_throttle".into(),
            target: throttle.target.clone(),
            subject: throttle.name.clone(),
            begin: throttle.value.clone(),
            reason: throttle.reason.clone(),
            ..ActionView::default()
        };
        let Ok(id) = self.history.begin(Begun { view, process, place: None }) else { return };
        let started = Instant::now();
        let result = ExecActuator::new(None, throttle.timeout.duration(), false).set_throttle(&request);
        let (state, outcome) = match &result {
            Ok(outcome) => ("done", outcome.output.clone()),
            Err(error) => ("failed", error.to_string()),
        };
        if result.is_ok() {
            let key = (throttle.target.clone(), throttle.name.clone());
            self.throttles.insert(key, throttle.value.clone());
            self.history.keep_throttle(process, &throttle.target, &throttle.name, &throttle.value);
        }
        self.history.end(id, false, |action| {
            action.state = state.into();
            action.outcome = outcome;
            action.duration_seconds = started.elapsed().as_secs_f64();
        });
    }

    /// Measures the actions whose targets have had a window since.
    pub(super) fn verify(&mut self) {
        let fresh: Vec<String> = self.fresh.drain(..).collect();
        for target in fresh {
            let due = self.history.due(&target);
            if due.is_empty() {
                continue;
            }
            let ranges = self.plan.assessments.iter().filter(|range| range.target == target);
            let after: Vec<RangeAssessment> = ranges.cloned().collect();
            for owed in due {
                self.verify_one(owed, &after);
            }
        }
    }

    /// `after` are all ranges of its target in the new window.
    fn verify_one(&mut self, owed: Owed, after: &[RangeAssessment]) {
        let before = &owed.before;
        let watched = self.roster.watched.iter().find(|watched| watched.target.name == before.target);
        let Some(watched) = watched else { return };
        let had_operations = watched.evidence.iter().any(|evidence| evidence.window.operations > 0);
        if !had_operations && self.history.postpone(owed.clone()) {
            return;
        }
        let verdict = verdict(before, after, before.relief_seconds_per_second);
        self.history.settle(&owed, verdict.helped, &verdict.reason, |action| {
            action.pain_after = Some(verdict.pain_after_seconds_per_second);
            action.state = if verdict.helped { "helped" } else { "did_not_help" }.into();
            action.outcome = format!("{}; {}", action.outcome, verdict.reason);
        });
    }

    /// What an operator would run to the same end.
    pub(super) fn commands_for(&self, compact: &CompactRange) -> Vec<String> {
        let watched = self.roster.watched.iter().find(|watched| watched.target.name == compact.target);
        watched.map_or_else(Vec::new, |watched| {
            let show_keys = self.options.policy.keys == KeyDisplay::Shown;
            let advise = match (watched.entry.actuator, exec_actuator(watched, show_keys)) {
                (ActuatorKind::Exec, Ok(exec)) => AdviseActuator::instead_of_exec(exec),
                _ => AdviseActuator::instead_of_hook(self.options.policy_path.clone()),
            };
            advise.commands_for(&request(watched, compact))
        })
    }
}

/// Ranges are bytewise: in another order their ends would be the wrong way round, or somewhere else.
fn refuse_unless_bytewise(watched: &Watched, request: &CompactRequest) -> Result<(), ActuatorError> {
    let orders = watched.orders.get(&request.database);
    let order = orders.and_then(|orders| orders.get(&request.column_family).copied().flatten());
    if order == Some(Order::Bytewise) {
        return Ok(());
    }
    let reason = format!(
        "column family {} is not known to be in bytewise order, and only such are compacted by range",
        request.column_family
    );
    Err(ActuatorError::Request { reason })
}

/// The policy's command for this target.
fn exec_actuator(watched: &Watched, show_keys: bool) -> Result<ExecActuator, ActuatorError> {
    let Some(exec) = &watched.entry.exec else {
        return Ok(ExecActuator::new(None, COMPACTION_TIME_LIMIT, show_keys));
    };
    let template = CommandTemplate::new(&exec.compact)?;
    Ok(ExecActuator::new(Some(template), exec.timeout.duration(), show_keys))
}

fn request(watched: &Watched, compact: &CompactRange) -> CompactRequest {
    let database = PathBuf::from(&compact.database);
    CompactRequest {
        process: watched.target.process,
        target: watched.target.name.clone(),
        handles: watched.identities.handles(&database, &compact.column_family),
        database,
        column_family: compact.column_family.clone(),
        range: compact.range.clone(),
        cost_bytes: compact.cost_bytes,
        force_bottommost: compact.bottommost != Bottommost::Default,
    }
}

/// Whether the range's files hold no deletion any more, and memtables held none: a plan's actions can share
/// files, and forcing the bottommost level rewrites them even for nothing.
fn nothing_left(compact: &CompactRange, before: &RangeAssessment, files: Option<&SstRead>) -> bool {
    let Some(files) = files else { return false };
    let deletions = files.iter().filter(|file| is_inside(compact, file)).map(|file| file.deletions);
    before.memtable_tombstones_per_seek < 1.0 && deletions.sum::<u64>() == 0
}

/// Whether an SST file holds keys that are to be compacted.
fn is_inside(compact: &CompactRange, file: &SstFile) -> bool {
    file.column_family == compact.column_family
        && compact.range.overlaps_closed(&file.smallest, &file.largest)
}

/// What a compaction changed in the live SST files.
struct Effect {
    bytes_rewritten: u64,
    deletions_before: u64,
    deletions_after: u64,
}

impl Effect {
    /// From the files before and after; from the actuator's own count where these could not be read.
    fn of(
        compact: &CompactRange,
        before: Option<&SstRead>,
        after: Option<&SstRead>,
        outcome: Option<&CompactOutcome>,
    ) -> Effect {
        let (Some(before), Some(after)) = (before, after) else {
            return Effect {
                bytes_rewritten: outcome.map_or(0, |outcome| outcome.bytes_replaced),
                deletions_before: outcome.map_or(0, |outcome| outcome.deletions_before),
                deletions_after: outcome.map_or(0, |outcome| outcome.deletions_after),
            };
        };
        let inside = |file: &&SstFile| is_inside(compact, file);
        let left: HashSet<u64> = after.iter().map(|file| file.number).collect();
        let deletions = |files: &SstRead| files.iter().filter(inside).map(|file| file.deletions).sum();
        let replaced = before.iter().filter(inside).filter(|file| !left.contains(&file.number));
        Effect {
            bytes_rewritten: replaced.map(|file| file.size_bytes).sum(),
            deletions_before: deletions(before),
            deletions_after: deletions(after),
        }
    }
}

fn in_words(result: &Result<CompactOutcome, ActuatorError>, effect: &Effect) -> (String, String) {
    let changed = format!(
        "{} bytes of SST files replaced, deletions in them {} -> {}",
        effect.bytes_rewritten, effect.deletions_before, effect.deletions_after
    );
    match result {
        Ok(CompactOutcome { end: CompactEnd::Done, .. }) => ("done".into(), changed),
        Ok(CompactOutcome { end: CompactEnd::Cancelled { reason }, .. }) => {
            ("cancelled".into(), format!("{reason}; {changed}"))
        }
        Err(error) => ("failed".into(), format!("{error}; {}", error.remedy())),
    }
}
