//! What a plan wants is begun here, as far as the ledger lets it: what has to be known is asked first, and
//! nothing is waited for.

use super::Actor;
use super::acting::Acting;
use super::inquiry::Purpose;
use super::place::{device_of, note_value, place_of, subject};
use super::tasks::task;
use crate::observe::{Observer, Watched};
use crate::session::{Baseline, Before, SstRead, is_inside};
use sexton_execute::{Site, Task, executor_for};
use sexton_hook_protocol::limits::COMPACTION_TIME_MAX;
use sexton_inspect::facts::TargetId;
use sexton_journal::{EventKind, clock};
use sexton_tuner::cost::Levels;
use sexton_tuner::ends::closed;
use sexton_tuner::evidence::{MemtableDeletions, SstFile};
use sexton_tuner::guard::{Guard, GuardRefusal, Readings};
use sexton_tuner::plan::{CompactRange, Plan, Rule};
use sexton_tuner::policy::{ExecutorKind, KeyDisplay, Mode};
use sexton_tuner::range::KeyRange;
use sexton_tuner::reprice::as_of_now;
use sexton_tuner::run::{
    ActionKind, Admission, DeviceId, KeptSetting, Offer, RejectedBy, Rejection, SettingChange, Subject,
};
use sexton_tuner::throttle::is_same_value;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// What one part of an action may take where its executor has limits of its own.
const PART_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

impl Actor {
    /// Takes in what a new plan wants. What an earlier one wanted of targets that this one knows nothing new
    /// of is still wanted.
    pub fn take_plan(&mut self, plan: &Plan, fresh: &[String]) {
        self.left_alone.clear();
        let fresh: HashSet<&str> = fresh.iter().map(String::as_str).collect();
        self.queue.retain(|kind| !fresh.contains(kind.target()) && !is_throttle(kind));
        let queued: HashSet<String> = self.queue.iter().map(|kind| kind.target().to_owned()).collect();
        let wanted = plan.actions.iter().cloned().map(ActionKind::from);
        self.queue.extend(wanted.filter(|kind| is_throttle(kind) || !queued.contains(kind.target())));
    }

    /// Begins what is wanted of the targets whose mode is act, as far as their devices are free.
    pub fn act(&mut self, observer: &mut Observer, may_begin: bool) {
        // What cannot be written down is not done.
        self.ledger.set_writable(self.journal.is_writable());
        if !may_begin || !self.journal.is_writable() {
            return self.consents.release_unused();
        }
        for kind in std::mem::take(&mut self.queue) {
            if !self.accepts(observer, kind.target()) || self.left_alone.contains(kind.target()) {
                continue;
            }
            match &kind {
                ActionKind::ChangeSetting(change @ SettingChange::Throttle(_)) => {
                    self.begin_throttle(observer, change)
                }
                _ => self.consider(observer, kind),
            }
        }
    }

    /// Whether a target is there, answers and may be acted on.
    pub fn accepts(&self, observer: &Observer, target: &str) -> bool {
        let watched = observer.roster.named(target);
        watched.is_some_and(|watched| watched.mode == Mode::Act && watched.worker.trouble().is_none())
    }

    /// Asks what has to be known before an action, where it could begin now.
    fn consider(&mut self, observer: &mut Observer, kind: ActionKind) {
        let Some(watched) = observer.roster.named(kind.target()) else { return };
        let Some(place) = place_of(watched, &kind) else { return };
        let id = watched.target.id;
        if self.is_inquired(id) {
            return self.queue.push_back(kind);
        }
        let subject = Subject {
            process: watched.target.process,
            mode: watched.mode,
            place: Some(&place),
            device: device_id(watched, &kind),
            remedy: kind.remedy(),
        };
        match self.ledger.may_act(&subject, &observer.policy, clock::now()) {
            Ok(()) if !self.has_consent(observer, &kind) => {}
            Ok(()) => {
                let purpose = Purpose::Begin(Box::new(kind.clone()));
                self.inquire(observer, &kind, purpose);
            }
            Err(rejection) => {
                self.consents.release(&kind);
                self.note_rejection(observer, kind, rejection, true);
            }
        }
    }

    /// Begins an action, now that all is known that has to be.
    pub fn begin(
        &mut self,
        observer: &mut Observer,
        target: TargetId,
        planned: ActionKind,
        before: Before,
        readings: &Readings,
    ) {
        let is_still_wanted =
            self.accepts(observer, planned.target()) && !self.left_alone.contains(planned.target());
        let Some(watched) = observer.roster.get(target).filter(|_| is_still_wanted) else { return };
        let (kind, part) = as_it_is_now(watched, &planned, &before);
        let Some(place) = place_of(watched, &kind) else { return };
        let (process, mode, device) = (watched.target.process, watched.mode, device_id(watched, &kind));
        if let ActionKind::Compact(compact) = &kind
            && is_snapshot_news(watched, compact, &before)
        {
            debug!(target = compact.target, "a RocksDB snapshot is held that the plan does not know of");
            return;
        }
        if !self.is_value_as_planned(observer, target, &kind, &before) {
            return;
        }
        let consent = self.consents.of(&kind);
        let admission = Admission {
            readings,
            consent: &consent,
            planned_cost_bytes: planned.cost_bytes(),
            part: part.as_ref(),
            nothing_left: nothing_left(&kind, before.files.as_ref()),
            time_limit: self.time_limit(observer, &kind),
        };
        let (policy, now) = (&observer.policy, clock::now());
        let subject = Subject { process, mode, place: Some(&place), device, remedy: kind.remedy() };
        if let Err(rejection) = self.ledger.may_act(&subject, policy, now) {
            return self.note_rejection(observer, planned, rejection, true);
        }
        let claim = kind.claim();
        let offer = Offer { kind: kind.clone(), process, mode, place: Some(place), device, claim };
        match self.ledger.offer(offer, admission, policy, now) {
            Ok((id, effects)) => {
                if let Some(watched) = observer.roster.get_mut(target) {
                    watched.guards.clear(readings.unread());
                }
                self.consents.begin(&kind, id);
                let memtables = before.readings.properties.and_then(|read| read.memtable_deletions());
                let memtable_deletions = memtables.map(MemtableDeletions::total);
                let baseline = Baseline { kind, files: before.files, memtable_deletions };
                self.acting.push(Acting::new(target, id, Arc::new(baseline)));
                self.carry_out(observer, effects.into_iter().map(|effect| (id, effect)));
            }
            Err(rejection) => self.note_rejection(observer, kind, rejection, false),
        }
    }

    /// Whether an option has the value that the plan knows of; if not, the next plan knows.
    fn is_value_as_planned(
        &mut self,
        observer: &mut Observer,
        target: TargetId,
        kind: &ActionKind,
        before: &Before,
    ) -> bool {
        let Some(read) = &before.value else { return true };
        let Some(watched) = observer.roster.get_mut(target) else { return false };
        let place = place_of(watched, kind);
        let kept = KeptSetting::of(Default::default(), kind, watched.target.process, place.as_ref());
        let Some(kept) = kept else { return true };
        let (target, option) = (kind.target(), &kept.setting.name);
        match read {
            Ok(Some(value)) if kept.restore.as_ref().is_some_and(|known| is_same_value(value, known)) => true,
            Ok(value) => {
                debug!(target, option, ?value, "it is another value by now");
                note_value(watched, &kept, value.as_deref().unwrap_or(&kept.wanted));
                false
            }
            Err(reason) => {
                debug!(target, option, reason, "its value cannot be read");
                false
            }
        }
    }

    /// What is not done now: it waits for whatever is done there, if it `may_wait`, or is left to the next
    /// plan, which is told where it is news.
    pub fn note_rejection(
        &mut self,
        observer: &mut Observer,
        kind: ActionKind,
        rejection: Rejection,
        may_wait: bool,
    ) {
        let Rejection { by, reason, .. } = rejection;
        match by {
            RejectedBy::Guard(Guard::DeviceBusy) if may_wait && self.is_something_done() => {
                self.queue.push_back(kind);
            }
            RejectedBy::Guard(guard) => {
                self.note_refusal(observer, &kind, &GuardRefusal { guard, reason });
                self.left_alone.insert(kind.target().to_owned());
            }
            RejectedBy::Rule(Rule::TargetBusy) => self.queue.push_back(kind),
            RejectedBy::Rule(rule @ (Rule::Dearer | Rule::OverBudget)) => {
                self.journal.emit(EventKind::Refused {
                    target: kind.target().to_owned(),
                    database: kind.database().unwrap_or_default().to_owned(),
                    column_family: kind.column_family().map(str::to_owned),
                    rule: rule.name().to_owned(),
                    ranges: 1,
                    subject: subject(&kind, observer.policy.keys),
                    reason,
                });
            }
            RejectedBy::Rule(rule) => {
                debug!(target = kind.target(), rule = rule.name(), reason, "not now");
            }
        }
    }

    /// Whether an action in a database is under way.
    fn is_something_done(&self) -> bool {
        self.acting.iter().any(|acting| acting.baseline.kind.database().is_some())
    }

    /// What one part may take. Executors other than the hook have the limits of the policy's commands.
    pub fn time_limit(&self, observer: &Observer, kind: &ActionKind) -> Duration {
        let has_hook = observer.roster.named(kind.target()).is_some_and(|it| it.entry.executor.has_hook());
        match kind {
            ActionKind::ChangeSetting(SettingChange::Throttle(_)) => PART_TIME_MAX,
            _ if has_hook => COMPACTION_TIME_MAX,
            _ => PART_TIME_MAX,
        }
    }

    /// What an operator would run to the same end.
    pub fn commands_for(&self, observer: &Observer, compact: &CompactRange) -> Vec<String> {
        let Some(watched) = observer.roster.named(&compact.target) else { return Vec::new() };
        let task = Task::Compact(task(watched, compact));
        let site = Site {
            entry: &watched.entry,
            hook: None,
            policy_path: self.policy_path.as_ref(),
            shows_keys: observer.policy.keys == KeyDisplay::Shown,
        };
        match executor_for(&task, &site) {
            Ok(executor) => executor.describe(&task),
            Err(error) => vec![format!("# {error}")],
        }
    }
}

/// The action at its price with the files of now, and the keys as it is asked for them: an end that is open
/// would have RocksDB flush and compact without a look at what there is. MyRocks compacts all there is, and
/// chooses the way by itself.
fn as_it_is_now(watched: &Watched, planned: &ActionKind, before: &Before) -> (ActionKind, Option<KeyRange>) {
    let ActionKind::Compact(compact) = planned else { return (planned.clone(), None) };
    let files = before.files.as_ref().filter(|_| watched.entry.executor != ExecutorKind::Sql);
    let Some(files) = files else { return (planned.clone(), None) };
    let own: Vec<&SstFile> =
        files.iter().filter(|file| file.column_family == compact.column_family).collect();
    let options = watched.options.get(Path::new(&compact.database));
    let options = options.and_then(|families| families.get(&compact.column_family)).cloned();
    let levels = Levels::of_linked(&own, &options.unwrap_or_default(), &before.linked);
    let part = closed(&compact.range, &own, &compact.before);
    (ActionKind::Compact(as_of_now(compact, &levels)), Some(part))
}

/// Whether a RocksDB snapshot is held of which nobody could be asked for the plan. What it keeps the next
/// plan knows; one that was taken since keeps nothing that lay in files then.
fn is_snapshot_news(watched: &Watched, compact: &CompactRange, before: &Before) -> bool {
    let is_held = before.readings.properties.is_some_and(|read| read.oldest_snapshot_sequence.is_some());
    let evidence = watched.evidence.iter().find(|evidence| evidence.database == compact.database);
    is_held
        && evidence.is_some_and(|evidence| {
            evidence.oldest_snapshot.is_none() && !evidence.memtables.contains_key(&compact.column_family)
        })
}

/// Whether the range's files hold no deletion any more, and memtables held none: a plan's actions can share
/// files, and forcing the bottommost level rewrites them even for nothing. Of entries that newer ones hide
/// no file tells whether they are still there.
fn nothing_left(kind: &ActionKind, files: Option<&SstRead>) -> bool {
    let (ActionKind::Compact(compact), Some(files)) = (kind, files) else { return false };
    let deletions = files.iter().filter(|file| is_inside(compact, file)).map(|file| file.deletions);
    let before = &compact.before;
    before.memtable_tombstones_per_seek < 1.0
        && before.hidden_per_seek() <= 0.0
        && deletions.sum::<u64>() == 0
}

fn is_throttle(kind: &ActionKind) -> bool {
    matches!(kind, ActionKind::ChangeSetting(SettingChange::Throttle(_)))
}

fn device_id(watched: &Watched, kind: &ActionKind) -> Option<DeviceId> {
    device_of(watched, Path::new(kind.database()?)).map(DeviceId)
}
