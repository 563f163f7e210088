//! All actions and all that follows from them: what rests, what is in doubt, which devices are taken, what
//! may be spent, and which settings have to be restored.
//!
//! There is one record of each fact. Whoever carries actions out hands events in and carries the effects out,
//! in their order; nothing else changes an action. "May this be done now?" is asked in [`super::may_act`].

use super::action::Action;
use super::budget::Budget;
use super::consent;
use super::event::{Admission, Effect, Event, Input, Record};
use super::identity::{ActionId, DatabaseIdentity, DeviceId, Place, ProcessId};
use super::kept::SettingRecord;
use super::kept::{KeptSetting, KeptState, SettingEffect, SettingEvent};
use super::kind::ActionKind;
use super::moment::Moment;
use super::news::News;
use super::offer::{Offer, Subject};
use super::outcome::Outcome;
use super::rejection::Rejection;
use super::setting::SettingChange;
use super::state::ActionState;
use super::step::step;
use crate::back_off::{BackOff, Retry};
use crate::daily::DailyBytes;
use crate::evidence::{Delivered, PastAction};
use crate::guard::GuardRefusal;
use crate::plan::Rule;
use crate::policy::Policy;
use crate::throttle::ThrottleRestore;
use crate::verify::Cause;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Actions remembered, all targets together: a week, the longest back-off, at one action every two and a half
/// minutes.
pub const ACTIONS_STORED_MAX: usize = 4_096;

/// Past actions of one database that a plan takes into account: enough for any cooldown at the pace of
/// actions.
const PAST_ACTIONS_MAX: usize = 1_000;

/// Pauses after actions that failed: some of it is over in seconds, and what is wrong in a target for longer
/// is put right by people.
pub(super) const BACK_OFF: BackOff = BackOff { first_seconds: 5, longest_seconds: 10 * 60 };

/// Settings that are changed at the same time: a few in each of some dozen column families of some dozen
/// databases. Beyond that none is changed before another one is restored.
const SETTINGS_MAX: usize = 1_000;

/// How long a job whose end nobody has seen is taken to run where its RocksDB cannot be asked: none may take
/// longer.
pub const ORPHAN_TIME_MAX: Duration = Duration::from_secs(600);

/// A job whose end nobody has seen: the agent was killed, lost its connection, or has cancelled one that did
/// not end. It is taken for one that runs until its RocksDB runs none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The action.
    pub action: ActionId,
    /// The process that it runs in.
    pub process: ProcessId,
    /// The block device that it writes to.
    pub device: Option<DeviceId>,
    /// The database.
    pub database: Option<DatabaseIdentity>,
    /// Since when nobody sees it.
    pub since: Moment,
}

/// What earlier runs of the agent have left.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Actions, in any order.
    pub actions: Vec<Action>,
    /// Settings that have to be restored.
    pub settings: Vec<KeptSetting>,
    /// The I/O budget.
    pub budget: Option<Budget>,
    /// Bytes of the last day.
    pub daily: Option<DailyBytes>,
}

/// All actions and all that follows from them.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Newest first.
    pub(super) actions: VecDeque<Action>,
    pub(super) orphans: Vec<Orphan>,
    /// Failures in a row, by process.
    pub(super) failures: BTreeMap<ProcessId, Retry>,
    /// Processes that the commands of the guards have said no to: how often in a row, and why.
    pub(super) refused: BTreeMap<ProcessId, (Retry, GuardRefusal)>,
    pub(super) is_writable: bool,
    settings: Vec<KeptSetting>,
    budget: Budget,
    daily: DailyBytes,
    last_id: ActionId,
}

impl Ledger {
    /// Goes on from what earlier runs have left, with what is to be done about it.
    pub fn load(
        stored: Stored,
        policy: &Policy,
        now: Moment,
        is_alive: impl Fn(&ProcessId) -> bool,
    ) -> (Ledger, Vec<(ActionId, Effect)>) {
        let mut actions = stored.actions;
        actions.sort_by_key(|action| std::cmp::Reverse(action.id));
        actions.truncate(ACTIONS_STORED_MAX);
        for action in &mut actions {
            action.started = action.started.not_after(&now);
            if let ActionState::Done(end) | ActionState::Verified { end, .. } = &mut action.state {
                end.at = end.at.not_after(&now);
            }
        }
        let settings = stored.settings.into_iter();
        let settings = settings.filter_map(|setting| setting.step(&SettingEvent::AgentRestarted, now).0);
        let mut ledger = Ledger {
            last_id: actions.first().map_or(ActionId(0), |action| action.id),
            orphans: actions.iter().filter_map(|action| orphan_of(action, &is_alive)).collect(),
            actions: actions.into(),
            failures: BTreeMap::new(),
            refused: BTreeMap::new(),
            is_writable: true,
            settings: settings.collect(),
            budget: stored.budget.unwrap_or_else(|| Budget::full(&policy.io_budget, now)),
            daily: stored.daily.unwrap_or_default().believable(now.at),
        };
        let known: Vec<(ActionId, ProcessId)> =
            ledger.actions.iter().rev().map(|action| (action.id, action.process)).collect();
        let mut effects = Vec::new();
        for (id, process) in known {
            let restarted = Event::AgentRestarted { is_alive: is_alive(&process) };
            let due = ledger.step(id, restarted, policy, now);
            effects.extend(due.into_iter().map(|effect| (id, effect)));
        }
        (ledger, effects)
    }

    /// Begins with an action, if it may: gives its number and what is to be done.
    ///
    /// # Errors
    /// Why it may not begin now.
    pub fn offer(
        &mut self,
        offer: Offer,
        admission: Admission<'_>,
        policy: &Policy,
        now: Moment,
    ) -> Result<(ActionId, Vec<Effect>), Rejection> {
        let Offer { kind, process, mode, place, device, claim } = offer;
        let remedy = kind.remedy();
        let subject = Subject { process, mode, place: place.as_ref(), device, remedy };
        self.may_act(&subject, policy, now)?;
        self.may_change(&kind, place.as_ref(), process)?;
        let id = ActionId(self.last_id.0.saturating_add(1));
        let mut action = Action::planned(id, kind, process, now);
        (action.place, action.device, action.claim) = (place, device, claim);
        let available_bytes = self.available_bytes(policy, now);
        let event = Event::Admit(admission);
        let effects = step(&mut action, Input { now, policy, available_bytes, event });
        if let Some(Effect::Refuse(rejection)) = effects.into_iter().next() {
            return Err(rejection);
        }
        self.refused.remove(&action.process);
        let setting = self.intend(&action).map(Box::new);
        self.last_id = id;
        self.actions.push_front(action);
        let forget = self.forget_oldest();
        Ok((id, vec![Effect::WriteAhead { is_first: true, setting, forget }]))
    }

    /// The commands of the guards have said no to an action in this process: they are asked again after a
    /// pause, longer each time.
    pub fn note_refused(&mut self, process: ProcessId, refusal: &GuardRefusal, now: Moment) {
        let (retry, reason) =
            self.refused.entry(process).or_insert_with(|| (Retry::default(), refusal.clone()));
        retry.fail(consent::BACK_OFF, now.at);
        reason.clone_from(refusal);
    }

    /// Takes in what has happened to an action; gives what is to be done, in this order.
    pub fn step(&mut self, id: ActionId, event: Event<'_>, policy: &Policy, now: Moment) -> Vec<Effect> {
        let available_bytes = self.available_to(Some(id), policy, now);
        let Some(action) = self.actions.iter_mut().find(|action| action.id == id) else { return Vec::new() };
        let was_open = action.state.is_open();
        let mut effects = step(action, Input { now, policy, available_bytes, event });
        if matches!(action.state, ActionState::Planned) {
            self.forget_planned(id);
            return effects;
        }
        let ended = if was_open { action.state.outcome() } else { None };
        if let Some(outcome) = ended {
            self.note_end(id, outcome, now);
        }
        self.note_unhelpful(id);
        for effect in &mut effects {
            match effect {
                Effect::Record(record) => self.keep_record(id, record, ended, now),
                Effect::Orphan => self.add_orphan(id, now),
                _ => {}
            }
        }
        effects
    }

    /// Time has passed for all actions. A setting is tried again where its process `is_there`.
    pub fn tick(
        &mut self,
        policy: &Policy,
        now: Moment,
        is_there: impl Fn(&ProcessId) -> bool,
    ) -> Vec<(ActionId, Effect)> {
        let open = self.actions.iter().filter(|action| match action.state {
            ActionState::Retrying(_) => is_there(&action.process),
            _ => action.state.is_open(),
        });
        let open: Vec<ActionId> = open.map(|action| action.id).collect();
        let mut effects = Vec::new();
        for id in open {
            let due = self.step(id, Event::Tick, policy, now);
            effects.extend(due.into_iter().map(|effect| (id, effect)));
        }
        effects
    }

    /// When [`Ledger::tick`] has to be called, at the latest.
    pub fn next_wake(&self, now: Moment) -> Option<Moment> {
        let wakes = self.actions.iter().filter_map(|action| action.wanted(now).wake);
        wakes.min_by_key(|wake| now.until(wake))
    }

    /// A process has ended.
    pub fn target_gone(
        &mut self,
        process: &ProcessId,
        policy: &Policy,
        now: Moment,
    ) -> Vec<(ActionId, Effect)> {
        self.orphans.retain(|orphan| orphan.process != *process);
        self.failures.remove(process);
        self.refused.remove(process);
        let of_it = self.actions.iter().filter(|action| action.process == *process);
        let concerned = of_it.filter(|action| action.state.is_open() || action.awaits_verification());
        let concerned: Vec<ActionId> = concerned.map(|action| action.id).collect();
        let mut effects = Vec::new();
        for id in concerned {
            let due = self.step(id, Event::TargetGone, policy, now);
            effects.extend(due.into_iter().map(|effect| (id, effect)));
        }
        let unwanted = SettingEvent::Unwanted("its process has gone");
        effects.extend(self.step_settings(&unwanted, now, |setting| setting.process == *process));
        effects
    }

    /// An action that is remembered.
    pub fn action(&self, id: ActionId) -> Option<&Action> {
        self.actions.iter().find(|action| action.id == id)
    }

    /// All actions that are remembered, newest first.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.actions.iter()
    }

    /// Whether actions can be written down; while they cannot, none begins.
    pub fn set_writable(&mut self, is_writable: bool) {
        self.is_writable = is_writable;
    }

    /// The I/O budget, to be written down when bytes were spent.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Bytes of the last day, to be written down when bytes were spent.
    pub fn daily(&self) -> &DailyBytes {
        &self.daily
    }

    /// Bytes that may be written now, beside those that actions under way, and jobs that nobody sees, will
    /// write.
    pub fn available_bytes(&mut self, policy: &Policy, now: Moment) -> u64 {
        self.available_to(None, policy, now)
    }

    /// The same for an action under way, as if it had reserved none.
    fn available_to(&mut self, id: Option<ActionId>, policy: &Policy, now: Moment) -> u64 {
        self.budget.refill(&policy.io_budget, now);
        let others = self.actions.iter().filter(|action| Some(action.id) != id);
        // What an orphan has been charged it may write only now.
        let orphaned = self.orphans.iter().filter_map(|orphan| self.action(orphan.action));
        let orphaned = orphaned.map(|action| action.kind.cost_bytes());
        let reserved = others.map(Action::reserved_bytes).chain(orphaned).fold(0_u64, u64::saturating_add);
        self.budget.available_bytes().saturating_sub(reserved)
    }

    /// Jobs that may run where nobody sees them.
    pub fn orphans(&self) -> &[Orphan] {
        &self.orphans
    }

    /// Forgets those that have ended: `running` gives how many compactions their database runs, where it can
    /// be asked.
    pub fn follow_orphans(&mut self, now: Moment, running: impl Fn(&Orphan) -> Option<u64>) {
        self.orphans.retain(|orphan| match running(orphan) {
            Some(running) => running > 0,
            None => now.since(&orphan.since) < ORPHAN_TIME_MAX,
        });
    }

    /// Earlier actions on a database, newest last.
    pub fn past_actions(&self, database: &DatabaseIdentity, now: Moment) -> Vec<PastAction> {
        let past = self.past_on(database, now).map(|(_, past)| past);
        let mut past: Vec<PastAction> = past.take(PAST_ACTIONS_MAX).collect();
        past.reverse();
        past
    }

    /// The same, newest first, with where they were done.
    pub(super) fn past_on<'a>(
        &'a self,
        database: &'a DatabaseIdentity,
        now: Moment,
    ) -> impl Iterator<Item = (&'a Place, PastAction)> {
        self.actions.iter().filter_map(move |action| {
            let place = action.place.as_ref().filter(|place| place.database == *database)?;
            Some((place, past_action(action, place, now)?))
        })
    }

    /// Actions whose keys a snapshot pins: that did not help because of one that may have been released
    /// since.
    pub fn pinned(&self) -> impl Iterator<Item = &Action> {
        self.actions.iter().filter(|action| {
            action.state.verification().is_some_and(|verification| {
                verification.cause == Some(Cause::PinnedBySnapshot) && verification.failures_in_a_row > 0
            })
        })
    }

    /// Forgets how often acting on these keys has not helped: what stood in the way has gone. Gives what is
    /// to be written down.
    pub fn forgive(&mut self, place: &Place) -> Vec<(ActionId, Effect)> {
        let mut effects = Vec::new();
        for action in &mut self.actions {
            let is_there = action.place.as_ref().is_some_and(|other| other.overlaps(place));
            if let ActionState::Verified { verification, .. } = &mut action.state
                && is_there
                && verification.failures_in_a_row > 0
            {
                verification.failures_in_a_row = 0;
                effects.push((action.id, Effect::Record(Record::default())));
            }
        }
        effects
    }

    /// How often in a row acting in the same way where this action did had not helped before it.
    pub fn failures_before(&self, id: ActionId) -> u32 {
        let Some(this) = self.action(id) else { return 0 };
        let Some(place) = &this.place else { return 0 };
        let is_same = |action: &&Action| {
            action.id < id
                && action.kind.name() == this.kind.name()
                && action.place.as_ref().is_some_and(|other| other.overlaps(place))
        };
        let mut judged = self.actions.iter().filter(is_same).filter_map(|action| action.state.verification());
        judged.next().map_or(0, |verification| verification.failures_in_a_row)
    }

    /// Settings that have to be restored some day, oldest first.
    pub fn settings(&self) -> &[KeptSetting] {
        &self.settings
    }

    /// Takes in what has happened to the settings for which `is_it` holds; gives what is to be written down
    /// and told.
    pub fn step_settings(
        &mut self,
        event: &SettingEvent<'_>,
        now: Moment,
        is_it: impl Fn(&KeptSetting) -> bool,
    ) -> Vec<(ActionId, Effect)> {
        let mut effects = Vec::new();
        for setting in std::mem::take(&mut self.settings) {
            if !is_it(&setting) {
                self.settings.push(setting);
                continue;
            }
            let action = setting.action;
            let (setting, SettingEffect { record, news }) = setting.step(event, now);
            if setting.is_none() {
                self.stop_measuring(action);
            }
            self.settings.extend(setting);
            if record != SettingRecord::Unchanged {
                let news = news.into_iter().collect();
                effects.push((action, Effect::Record(Record { news, spent_bytes: 0, setting: record })));
            }
        }
        effects
    }

    /// A setting that has its former value again shows nothing more of what it was good for.
    fn stop_measuring(&mut self, id: ActionId) {
        let action = self.actions.iter_mut().find(|action| action.id == id);
        if let Some(action) = action.filter(|action| action.awaits_verification()) {
            action.claim = None;
        }
    }

    /// A setting that is being changed is not changed once more, and an option that is set already is
    /// restored before it is set anew.
    fn may_change(
        &self,
        kind: &ActionKind,
        place: Option<&Place>,
        process: ProcessId,
    ) -> Result<(), Rejection> {
        let ActionKind::ChangeSetting(change) = kind else { return Ok(()) };
        let is_tried = |action: &&Action| {
            let ActionKind::ChangeSetting(other) = &action.kind else { return false };
            let is_elsewhere = action.process != process || action.place.as_ref() != place;
            action.state.is_open() && !is_elsewhere && other.setting() == change.setting()
        };
        if let Some(action) = self.actions.iter().find(is_tried) {
            let reason = format!("action {} changes it", action.id);
            return Err(Rejection::by_rule(Rule::SettingKept, reason));
        }
        let SettingChange::Option(_) = change else { return Ok(()) };
        let wanted = KeptSetting::of(ActionId(0), kind, process, place);
        let is_set = |wanted: &KeptSetting| self.settings.iter().any(|kept| kept.is_same(wanted));
        let is_set = wanted.as_ref().is_some_and(is_set);
        if is_set || self.settings.len() >= SETTINGS_MAX {
            let reason = match is_set {
                true => "it is set already, and restored before it is set anew",
                false => "too many settings wait to be restored",
            };
            return Err(Rejection::by_rule(Rule::SettingKept, reason));
        }
        Ok(())
    }

    /// A throttle that could not be set is about to be set once more, and by now it may be known how it is
    /// restored. Gives what is to be written down before.
    pub fn intend_again(&mut self, id: ActionId, restore: Option<ThrottleRestore>) -> Option<Effect> {
        let action = self.actions.iter_mut().find(|action| action.id == id)?;
        let ActionKind::ChangeSetting(SettingChange::Throttle(set)) = &mut action.kind else { return None };
        set.restore = set.restore.take().or(restore);
        let action = action.clone();
        let setting = SettingRecord::Put(Box::new(self.intend(&action)?));
        Some(Effect::Record(Record { setting, ..Record::default() }))
    }

    /// Notes the setting that an action is about to change, with the value that it had before all changes.
    fn intend(&mut self, action: &Action) -> Option<KeptSetting> {
        let mut setting = KeptSetting::of(action.id, &action.kind, action.process, action.place.as_ref())?;
        if let Some(at) = self.settings.iter().position(|kept| kept.is_same(&setting)) {
            setting = setting.after(self.settings.remove(at));
        }
        setting.restore.as_ref()?;
        self.settings.push(setting.clone());
        Some(setting)
    }

    /// An action could not be written down: nothing of it has happened.
    fn forget_planned(&mut self, id: ActionId) {
        self.actions.retain(|action| action.id != id);
        self.settings.retain(|setting| setting.action != id);
        if self.last_id == id {
            self.last_id = ActionId(id.0.saturating_sub(1));
        }
    }

    fn forget_oldest(&mut self) -> Option<ActionId> {
        if self.actions.len() <= ACTIONS_STORED_MAX {
            return None;
        }
        let oldest = self.actions.iter().rposition(|action| !action.state.is_open())?;
        self.actions.remove(oldest).map(|action| action.id)
    }

    /// Failures pause acting on a process, longer each time.
    fn note_end(&mut self, id: ActionId, outcome: Outcome, now: Moment) {
        let Some(action) = self.actions.iter().find(|action| action.id == id) else { return };
        if action.place.is_none() {
            return;
        }
        let retry = self.failures.entry(action.process).or_default();
        match outcome {
            Outcome::Failed => retry.fail(BACK_OFF, now.at),
            Outcome::Done | Outcome::Cancelled | Outcome::Aborted(_) => retry.succeed(),
            Outcome::Skipped | Outcome::Interrupted => {}
        }
    }

    /// A setting that did not help is not wanted any more.
    fn note_unhelpful(&mut self, id: ActionId) {
        let Some(action) = self.actions.iter().find(|action| action.id == id) else { return };
        if action.state.verification().is_some_and(|verification| !verification.helped) {
            let kept = self.settings.iter_mut().filter(|setting| setting.action == id);
            kept.filter(|setting| setting.state == KeptState::InForce)
                .for_each(|setting| setting.state = KeptState::Restoring("it did not help".to_owned()));
        }
    }

    /// What is written down with an action: bytes that it has spent, and its setting.
    fn keep_record(&mut self, id: ActionId, record: &mut Record, ended: Option<Outcome>, now: Moment) {
        if record.spent_bytes > 0 {
            self.budget.spend(record.spent_bytes);
            self.daily.add(record.spent_bytes, now.at);
        }
        let Some(outcome) = ended else { return };
        let Some(action) = self.actions.iter().find(|action| action.id == id) else { return };
        let may_be_set =
            action.state.end().is_some_and(|end| end.may_run_on) || record.news.contains(&News::TargetGone);
        let event = match outcome {
            Outcome::Done => SettingEvent::Changed,
            Outcome::Interrupted => SettingEvent::AgentRestarted,
            Outcome::Skipped => SettingEvent::NotChanged,
            Outcome::Failed if !may_be_set => SettingEvent::NotChanged,
            Outcome::Failed | Outcome::Cancelled | Outcome::Aborted(_) => {
                SettingEvent::Unwanted("whether it was set is not known")
            }
        };
        for (_, effect) in self.step_settings(&event, now, |setting| setting.action == id) {
            if let Effect::Record(Record { news, setting, .. }) = effect {
                record.setting = setting;
                record.news.extend(news);
            }
        }
    }

    fn add_orphan(&mut self, id: ActionId, now: Moment) {
        let Some(action) = self.actions.iter().find(|action| action.id == id) else { return };
        self.orphans.push(Orphan {
            action: id,
            process: action.process,
            device: action.device,
            database: action.place.as_ref().map(|place| place.database.clone()),
            since: now,
        });
    }
}

/// A job of an earlier run that may run on.
fn orphan_of(action: &Action, is_alive: &impl Fn(&ProcessId) -> bool) -> Option<Orphan> {
    let end = action.state.end().filter(|end| end.may_run_on && action.kind.cost_bytes() > 0)?;
    is_alive(&action.process).then(|| Orphan {
        action: action.id,
        process: action.process,
        device: action.device,
        database: action.place.as_ref().map(|place| place.database.clone()),
        since: end.at,
    })
}

/// An action as it counts for cooldowns; `None` where it does not.
fn past_action(action: &Action, place: &Place, now: Moment) -> Option<PastAction> {
    let end = action.state.end().filter(|end| end.rests)?;
    let ago_s = i64::try_from(now.since(&end.at).as_secs()).unwrap_or(i64::MAX);
    let verification = action.state.verification();
    Some(PastAction {
        column_family: place.column_family.clone(),
        range: place.range.clone(),
        ended_unix_s: now.at.as_second().saturating_sub(ago_s),
        helped: verification.map(|verification| verification.helped),
        awaits_verdict: action.awaits_verification(),
        failures_in_a_row: verification.map_or(0, |verification| verification.failures_in_a_row),
        remedy: action.kind.remedy()?,
        delivered: action.claim.as_ref().zip(verification).map(|(claim, verification)| Delivered {
            pain_before_seconds_per_second: claim.before.pain_seconds_per_second,
            delivered_seconds_per_second: verification.delivered_seconds_per_second,
            operations_per_second: claim.before.operations_per_second,
        }),
    })
}
