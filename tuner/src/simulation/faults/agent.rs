//! The agent: carries effects out as the engine does, and hands in what there is to hear.

use super::fault::Fault;
use super::history::History;
use super::oracle::Disk;
use super::world::{Job, SECOND_NS, Work, World};
use crate::cost::Bottommost;
use crate::evidence::SstFile;
use crate::guard::{Guard, Readings};
use crate::key::Key;
use crate::plan::primitive::Primitive;
use crate::plan::{CompactRange, Flush, SetOptions, SetThrottle};
use crate::policy::{Mode, TimeSpan};
use crate::range::KeyRange;
use crate::rank::RangeAssessment;
use crate::run::consent::{Answer, Consent};
use crate::run::{
    Action, ActionId, ActionKind, ActionState, Admission, Budget, Claim, DeviceId, Effect, Event, JobId,
    JobStatus, Ledger, Measurement, Offer, Place, ProcessId, ReadingsKind, Record, RejectedBy, Rejection,
    Restoration, SettingChange, SettingEvent, SettingRecord, Stored, WindowSeen,
};
use crate::verify::Seen;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const COLUMN_FAMILY: &str = "cf";

/// How long one part may take.
const TIME_LIMIT: Duration = Duration::from_secs(100);

/// What the agent has in memory, all of which is lost when it is killed.
pub struct Agent {
    pub ledger: Ledger,
    /// Batches that wait until the disk has room.
    waiting: Vec<(Action, Record, Budget)>,
    /// When, to whom, and what.
    replies: Vec<(u64, ActionId, Reply)>,
    /// The job that each action runs, as an index into the world's.
    jobs: BTreeMap<ActionId, usize>,
    /// Actions that go on in halves.
    halves: BTreeSet<ActionId>,
    /// Processes that have ended since it has looked.
    pub gone: Vec<ProcessId>,
}

impl Agent {
    /// Whether nothing has to be restored either.
    pub fn is_quiet(&self) -> bool {
        self.ledger.settings().is_empty() && self.is_idle()
    }

    /// Whether nothing is under way, and nothing waits to be written down.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.ledger.actions().all(|action| !action.state.is_open())
    }
}

/// An answer that comes later.
enum Reply {
    Files(Option<Vec<SstFile>>),
    Measured(Measurement),
}

/// Values that are the same in all histories, made once.
pub struct Models {
    calm: Readings,
    objecting: Readings,
    grave: Readings,
    assessment: RangeAssessment,
}

impl Models {
    pub fn new() -> Models {
        let objecting = Readings { delayed_write_bytes_per_second: Some(1), ..Readings::default() };
        let grave = Readings { is_write_stopped: Some(true), ..Readings::default() };
        let assessment = RangeAssessment {
            operations_per_second: 1.0,
            tombstones_per_seek: 1.0,
            size_bytes: 1,
            entries: 1,
            deletions: 1,
            density: 1.0,
            pain_seconds_per_second: 1.0,
            relief_seconds_per_second: 1.0,
            cost_bytes: Some(1),
            relief_per_byte: 1.0,
            ..RangeAssessment::without_loss("", "", COLUMN_FAMILY, KeyRange::everything())
        };
        Models { calm: Readings::default(), objecting, grave, assessment }
    }
}

fn range_of(keys: (u8, u8)) -> KeyRange {
    KeyRange { begin: Key::new([keys.0]), end: Some(Key::new([keys.1])) }
}

fn keys_of(range: &KeyRange) -> (u8, u8) {
    let first = |key: &Key| key.as_bytes().first().copied();
    (first(&range.begin).unwrap_or(0), range.end.as_ref().and_then(first).unwrap_or(u8::MAX))
}

impl History {
    /// An agent is started, with what is on the disk.
    pub(super) fn start_agent(&mut self) {
        let Disk { actions, settings, budget, daily, .. } = &self.disk;
        let mut actions: Vec<Action> = actions.values().cloned().collect();
        if self.fault == Fault::NothingInDoubt {
            actions.retain(|action| !action.state.is_open());
        }
        let stored = Stored {
            actions,
            settings: settings.values().cloned().collect(),
            budget: *budget,
            daily: daily.clone(),
        };
        let world = &self.world;
        let (ledger, effects) =
            Ledger::load(stored, &self.policy, world.now(), |process| world.is_alive(process));
        let in_doubt = ledger.actions().any(|action| matches!(action.state, ActionState::InDoubt(_)));
        self.agent = Some(Agent {
            ledger,
            waiting: Vec::new(),
            replies: Vec::new(),
            jobs: BTreeMap::new(),
            halves: BTreeSet::new(),
            gone: Vec::new(),
        });
        if in_doubt {
            self.note("in doubt");
        }
        self.tell(|| "an agent is started".to_owned());
        self.carry_out(effects);
    }

    /// Hands an event in, and carries out what is to be done.
    fn step(&mut self, id: ActionId, event: Event<'_>) {
        let now = self.world.now();
        if let Some(told) = told(&event).filter(|_| self.agent.is_some()) {
            self.tell(|| format!("#{id} hears {told}"));
        }
        let Some(agent) = &mut self.agent else { return };
        let effects = agent.ledger.step(id, event, &self.policy, now);
        self.carry_out(effects.into_iter().map(|effect| (id, effect)).collect());
    }

    /// Carries effects out in their order. The agent may be killed before each of them.
    pub(super) fn carry_out(&mut self, effects: Vec<(ActionId, Effect)>) {
        for (id, effect) in effects {
            if !self.is_calm && self.random.per_mille(10) {
                self.note("killed between effects");
                self.tell(|| format!("#{id} was to {effect:?}"));
                self.kill_agent("the agent is killed between two effects");
            }
            if self.agent.is_none() {
                return;
            }
            self.tell(|| format!("#{id} {effect:?}"));
            self.carry_out_one(id, effect);
        }
    }

    fn carry_out_one(&mut self, id: ActionId, effect: Effect) {
        match effect {
            Effect::WriteAhead { setting, forget, .. } => {
                let setting = setting.map_or(SettingRecord::Unchanged, SettingRecord::Put);
                let is_written = self.write_ahead(id, &setting);
                if let Some(forget) = forget.filter(|_| is_written) {
                    self.disk.actions.remove(&forget);
                }
                self.step(id, Event::Written(is_written));
            }
            Effect::Start(part) => self.begin_job(id, &part),
            Effect::Cancel => self.cancel_job(id),
            Effect::ReadFiles => {
                let files = self.files_of(id);
                self.reply_later(id, Reply::Files(files));
            }
            Effect::Measure => {
                let done = self.world.jobs.iter().filter(|job| job.action == id);
                let done = done.filter(|job| matches!(job.ended, Some((_, crate::run::JobResult::Done))));
                let bytes = done.map(|job| job.written).sum();
                let left = if self.random.per_mille(100) { 100 } else { 0 };
                let measured = Measurement {
                    bytes_replaced: Some(bytes),
                    deletions: Some((100, left)),
                    snapshots: Some(left.min(1)),
                    ..Measurement::default()
                };
                self.reply_later(id, Reply::Measured(measured));
            }
            Effect::Record(record) => {
                if !(self.fault == Fault::EndsForgotten && record.news.contains(&crate::run::News::Ended)) {
                    self.record(id, &record);
                }
                if self.fault == Fault::EndsTwice {
                    self.record(id, &record);
                }
            }
            Effect::Orphan => self.note("orphan"),
            Effect::Refuse(_) => self.note("not written"),
            Effect::AskAfter(_) | Effect::Objection(_) => {}
        }
    }

    fn write_ahead(&mut self, id: ActionId, setting: &SettingRecord) -> bool {
        let Some(agent) = &self.agent else { return false };
        if self.fault == Fault::NotWrittenAhead {
            return true;
        }
        if self.disk.is_full || !agent.waiting.is_empty() {
            return false;
        }
        let Some(action) = agent.ledger.action(id) else { return false };
        self.disk.actions.insert(id, action.clone());
        self.disk.write_setting(setting);
        true
    }

    fn record(&mut self, id: ActionId, record: &Record) {
        let Some(action) = self.agent.as_ref().and_then(|agent| agent.ledger.action(id)).cloned() else {
            return;
        };
        if let Some(name) =
            action.state.outcome().map(|_| action.state.name()).filter(|_| !record.news.is_empty())
        {
            self.note(name);
        }
        if matches!(action.state, ActionState::Paused(_)) {
            self.note("paused");
        }
        if !action.state.is_open() {
            // Nobody hears any more how its job ends.
            let now_ns = self.world.now_ns;
            let jobs = self.world.jobs.iter_mut().filter(|job| job.action == id && job.lost_ns.is_none());
            jobs.filter(|job| job.runs()).for_each(|job| job.lost_ns = Some(now_ns));
        }
        let Some(agent) = &mut self.agent else { return };
        agent.waiting.push((action, record.clone(), *agent.ledger.budget()));
        self.write_waiting();
    }

    fn write_waiting(&mut self) {
        let Some(agent) = &mut self.agent else { return };
        if self.disk.is_full {
            return;
        }
        for (action, record, budget) in agent.waiting.drain(..) {
            self.oracle.recorded(&action, &record, self.disk.actions.get(&action.id));
            self.disk.write(&action, &record, &budget);
        }
    }

    fn reply_later(&mut self, id: ActionId, reply: Reply) {
        // Some answers never come.
        if !self.is_calm && self.random.per_mille(50) {
            return self.note("reply lost");
        }
        let due_ns = self.world.now_ns + self.random.between(0, 5 * SECOND_NS);
        if let Some(agent) = &mut self.agent {
            agent.replies.push((due_ns, id, reply));
        }
    }

    fn begin_job(&mut self, id: ActionId, part: &KeyRange) {
        let Some(agent) = &mut self.agent else { return };
        let Some(action) = agent.ledger.action(id) else { return };
        if let ActionState::Running(running) = &action.state
            && !running.left.is_empty()
        {
            agent.halves.insert(id);
        }
        let is_half = agent.halves.contains(&id);
        let retried = action.failures() > 0;
        let Some(job) = self.world.job_of(action, part, is_half) else {
            let reason = "it is not there any more".to_owned();
            let failed = crate::run::JobResult::Failed { reason, may_run_on: false };
            return self.step(id, Event::Job(JobStatus::Ended(crate::run::JobEnd::new(failed))));
        };
        if is_half {
            self.note("went on in halves");
        }
        if retried {
            self.note("retried");
        }
        let is_calm = self.is_calm;
        let often = |often| if is_calm { 0 } else { often };
        let done_ns = self.world.now_ns + World::duration_ns(&mut self.random);
        let job = Job {
            began_ns: self.world.now_ns,
            done_ns,
            is_deaf: self.random.per_mille(often(100)),
            fails: self.random.per_mille(often(if job.work == Work::SetThrottle { 500 } else { 80 })),
            ..job
        };
        self.oracle.begins(&job, &self.world, &self.disk);
        self.oracle.is_locked(&job, &self.locks);
        self.oracle.changes(&job, &self.disk);
        let at = self.world.begin(job);
        if let Some(agent) = &mut self.agent {
            agent.jobs.insert(id, at);
        }
        if self.random.per_mille(often(30)) {
            self.note("reply lost");
            self.step(id, Event::Job(JobStatus::Lost("timed out".to_owned())));
        }
    }

    fn cancel_job(&mut self, id: ActionId) {
        let stop_ns = self.world.now_ns + self.random.between(0, SECOND_NS);
        let Some(at) = self.agent.as_ref().and_then(|agent| agent.jobs.get(&id).copied()) else { return };
        if let Some(job) = self.world.jobs.get_mut(at)
            && job.stop_ns.is_none()
        {
            job.stop_ns = Some(stop_ns);
        }
    }

    /// What a slice has left, as its files show.
    fn files_of(&mut self, id: ActionId) -> Option<Vec<SstFile>> {
        let action = self.agent.as_ref().and_then(|agent| agent.ledger.action(id))?;
        let ActionState::Paused(paused) = &action.state else { return None };
        let (begin, end) = keys_of(&paused.part);
        let file = |smallest: u8, largest: u8| SstFile {
            number: 1,
            column_family: COLUMN_FAMILY.to_owned(),
            level: 6,
            size_bytes: 1,
            entries: 2,
            deletions: 1,
            smallest: Key::new([smallest]),
            largest: Key::new([largest]),
        };
        match self.random.index(4) {
            0 => None,
            1 => Some(Vec::new()),
            _ => {
                let middle = begin + (end - begin) / 2;
                Some(vec![file(begin, middle), file((middle + 1).min(end - 1), end - 1)])
            }
        }
    }

    /// All that there is to hear: processes that have ended, answers, jobs, guards, windows, and that time
    /// has passed.
    pub(super) fn hear(&mut self) {
        self.write_waiting();
        let now = self.world.now();
        let Some(agent) = &mut self.agent else { return };
        for process in std::mem::take(&mut agent.gone) {
            let Some(agent) = &mut self.agent else { return };
            let effects = agent.ledger.target_gone(&process, &self.policy, now);
            self.carry_out(effects);
        }
        self.hear_replies();
        let Some(agent) = &self.agent else { return };
        let open = agent.ledger.actions().filter(|action| action.state.is_open());
        let open: Vec<ActionId> = open.map(|action| action.id).collect();
        for id in open {
            self.hear_of(id);
        }
        let Some(agent) = &mut self.agent else { return };
        let effects = agent.ledger.tick(&self.policy, now, |_| true);
        self.carry_out(effects);
        self.hear_of_the_past();
        self.restore_settings();
    }

    fn hear_replies(&mut self) {
        let now_ns = self.world.now_ns;
        let Some(agent) = &mut self.agent else { return };
        let (due, later) =
            std::mem::take(&mut agent.replies).into_iter().partition(|(due_ns, _, _)| *due_ns <= now_ns);
        agent.replies = later;
        let due: Vec<(u64, ActionId, Reply)> = due;
        for (_, id, reply) in due {
            match reply {
                Reply::Files(files) => self.step(id, Event::Files(files.as_deref())),
                Reply::Measured(measured) => self.step(id, Event::Measured(measured)),
            }
        }
    }

    /// How an action's job stands, and what the guards read.
    fn hear_of(&mut self, id: ActionId) {
        let now = self.world.now();
        let Some(action) = self.agent.as_ref().and_then(|agent| agent.ledger.action(id)) else { return };
        let (wanted, process) = (action.wanted(now), action.process);
        let is_throttle = action.place.is_none();
        let doubt = if let ActionState::InDoubt(doubt) = &action.state { Some(doubt.job) } else { None };
        if wanted.job {
            let answers = self.world.answers(&process) || is_throttle;
            if let Some(status) = self.status_of(id, doubt, answers) {
                self.step(id, Event::Job(status));
            }
        }
        if let Some(kind) = wanted.readings.filter(|_| self.world.answers(&process)) {
            let often = if kind == ReadingsKind::During { 80 } else { 300 };
            let objects = !self.is_calm && self.random.per_mille(often);
            let is_grave = self.random.per_mille(100);
            let readings = match (objects, is_grave) {
                (false, _) => self.models.calm.clone(),
                (true, false) => self.models.objecting.clone(),
                (true, true) => self.models.grave.clone(),
            };
            self.step(id, Event::Readings(&readings));
        }
        if !self.is_calm && self.random.per_mille(10) {
            self.step(id, Event::Cancel("somebody asked for it"));
        }
        if !is_throttle {
            self.hear_of_lock(id);
        }
        let is_retrying = |action: &Action| matches!(action.state, ActionState::Retrying(_));
        let retrying = self.agent.as_ref().and_then(|agent| agent.ledger.action(id)).is_some_and(is_retrying);
        if retrying && (self.is_calm || self.random.per_mille(50)) {
            let event = if self.random.per_mille(500) { Event::Unwanted } else { Event::InForce };
            self.step(id, event);
        }
    }

    /// What the command says that holds the lock of an action.
    fn hear_of_lock(&mut self, id: ActionId) {
        let is_lost = !self.is_calm && self.random.per_mille(20);
        if is_lost && self.locks.lose(id) {
            self.note("lock lost");
            self.tell(|| format!("the lock of #{id} is lost"));
        }
        if self.locks.is_lost(id) && self.fault != Fault::LossNotTold {
            let consent = self.locks.consent(id);
            self.step(id, Event::Consent(&consent));
        }
        // What its executor has lost nobody can stop.
        let now = self.world.now();
        let action = self.agent.as_ref().and_then(|agent| agent.ledger.action(id));
        if action.is_some_and(|action| action.wanted(now).job) {
            self.oracle.runs_locked(id, &self.world, &self.locks);
        }
    }

    /// The executor's word; `None` while there is none.
    fn status_of(&mut self, id: ActionId, doubt: Option<JobId>, answers: bool) -> Option<JobStatus> {
        if !answers {
            let is_lost = self.random.per_mille(200);
            return is_lost.then(|| JobStatus::Lost("timed out".to_owned()));
        }
        if !self.is_calm && self.random.per_mille(5) {
            return Some(JobStatus::Unknown);
        }
        let job = match doubt {
            Some(number) => self.world.jobs.iter().find(|job| job.id == number),
            None => {
                let at = self.agent.as_ref().and_then(|agent| agent.jobs.get(&id).copied());
                at.and_then(|at| self.world.jobs.get(at))
            }
        };
        Some(job.map_or(JobStatus::Unknown, Job::status))
    }

    /// Windows after actions, and snapshots that are released.
    fn hear_of_the_past(&mut self) {
        let now = self.world.now();
        let Some(agent) = &self.agent else { return };
        let due: Vec<ActionId> = agent
            .ledger
            .actions()
            .filter(|action| action.wants_window(now))
            .map(|action| action.id)
            .collect();
        for id in due {
            let Some(agent) = &self.agent else { return };
            if !self.random.per_mille(300) {
                continue;
            }
            let failures_before = agent.ledger.failures_before(id);
            let place = agent.ledger.action(id).and_then(|action| action.place.clone());
            let hurts = self.random.per_mille(400);
            let range = place.map_or_else(KeyRange::everything, |place| place.range);
            let after = RangeAssessment { range, ..self.models.assessment.clone() };
            let after = if hurts { vec![after] } else { Vec::new() };
            let (seconds, has_operations) = (60.0, true);
            self.step(
                id,
                Event::Window(WindowSeen { seconds, has_operations, after: &after, failures_before }),
            );
        }
        let Some(agent) = &mut self.agent else { return };
        let pinned = agent.ledger.pinned().find_map(|action| action.place.clone());
        if let Some(place) = pinned.filter(|_| self.random.per_mille(100)) {
            let effects = agent.ledger.forgive(&place);
            self.carry_out(effects);
        }
        let world = &self.world;
        if let Some(agent) = &mut self.agent {
            agent.ledger.follow_orphans(now, |orphan| {
                let database = orphan.database.as_ref()?;
                world.answers(&orphan.process).then(|| world.running_in(database))
            });
        }
    }

    fn restore_settings(&mut self) {
        let now = self.world.now();
        let Some(agent) = &self.agent else { return };
        let due = agent.ledger.settings().iter().filter(|setting| setting.is_to_be_restored(now));
        let due: Vec<_> = due.cloned().collect();
        for setting in due {
            let is_it =
                |database: &super::world::Database| Some(&database.identity) == setting.database.as_ref();
            let at = self.world.databases.iter().position(is_it);
            let Some(at) = at else { continue };
            let Some(database) = self.world.databases.get(at) else { continue };
            let mut restored = None;
            if self.world.answers(&database.process) {
                let in_force = database.option.to_string();
                let value = match setting.restoration(Some(&in_force), self.random.per_mille(500)) {
                    Restoration::Set(value) => value,
                    Restoration::Leave(value) => value.unwrap_or(in_force),
                };
                if self.fault != Fault::SettingsForgotten
                    && let (Some(database), Ok(number)) = (self.world.databases.get_mut(at), value.parse())
                {
                    database.option = number;
                }
                restored = Some(value);
            }
            if restored.is_some() {
                self.note("setting restored");
            }
            let event = match &restored {
                Some(value) => SettingEvent::Restored(Some(value)),
                None => SettingEvent::NotRestored,
            };
            let Some(agent) = &mut self.agent else { return };
            let effects = agent.ledger.step_settings(&event, now, |kept| kept.action == setting.action);
            self.carry_out(effects);
        }
        if !self.is_calm && self.random.per_mille(20) {
            self.unwant("the policy does not allow it any more", |_| true);
        }
    }

    /// The plan wants something.
    pub(super) fn want(&mut self) {
        let at = self.random.index(self.world.databases.len());
        let Some(database) = self.world.databases.get(at).cloned() else { return };
        let begin = u8::try_from(self.random.between(0, 8)).unwrap_or(0);
        let keys = (begin, begin + 1 + u8::try_from(self.random.between(0, 4)).unwrap_or(0));
        let cost_bytes = self.random.between(1 << 20, 40 << 20);
        let value = self.random.between(1, 1_000_000);
        let before = &self.models.assessment;
        let (kind, range) = match self.random.index(10) {
            0..=5 => (compaction(range_of(keys), cost_bytes, before), Some(range_of(keys))),
            6 => (flush(cost_bytes, before), Some(KeyRange::everything())),
            7..=8 => (option(value, database.option, before), Some(KeyRange::everything())),
            _ => (throttle(), None),
        };
        let device = if self.fault == Fault::DevicesIgnored { 100 + at as u64 } else { database.device.0 };
        let device = range.is_some().then_some(DeviceId(device));
        let has_claim = range.is_some() && self.random.per_mille(600);
        let claim = has_claim.then(|| Claim {
            before: RangeAssessment {
                range: range.clone().unwrap_or_else(KeyRange::everything),
                ..self.models.assessment.clone()
            },
            promised_seconds_per_second: 1.0,
            windows_waited: 0,
            seen: Seen::default(),
        });
        let place = range.map(|range| {
            let column_family = COLUMN_FAMILY.to_owned();
            Place { database: database.identity.clone(), column_family, range }
        });
        let mode = if self.random.per_mille(20) { Mode::Advise } else { Mode::Act };
        let offer = Offer { kind, process: database.process, mode, place, device, claim };
        let now = self.world.now();
        let nothing_left = self.random.per_mille(30);
        let objects = self.random.per_mille(50);
        let readings = if objects { &self.models.objecting } else { &self.models.calm };
        let planned_cost_bytes = cost_bytes;
        let is_had = self.random.per_mille(950);
        let hold = if is_had || self.fault == Fault::LockIgnored { Answer::Given } else { Answer::NotAsked };
        let consent = Consent { hold, ..Consent::default() };
        let admission = Admission {
            readings,
            consent: &consent,
            planned_cost_bytes,
            part: None,
            nothing_left,
            time_limit: TIME_LIMIT,
        };
        let Some(agent) = &mut self.agent else { return };
        agent.ledger.set_writable(agent.waiting.is_empty());
        match agent.ledger.offer(offer, admission, &self.policy, now) {
            Ok((id, effects)) => {
                if is_had {
                    self.locks.take(id);
                }
                let name = agent.ledger.action(id).map_or("", |action| action.kind.name());
                self.tell(|| format!("#{id} {name} of {keys:?} in database {at} for {cost_bytes} bytes"));
                self.carry_out(effects.into_iter().map(|effect| (id, effect)).collect());
            }
            Err(Rejection { by: RejectedBy::Guard(Guard::Hold), .. }) => self.note("lock not had"),
            Err(_) => self.note("rejected"),
        }
    }
}

impl World {
    /// The job of an action's part, not begun yet; `None` where its process has gone.
    fn job_of(&self, action: &Action, part: &KeyRange, is_half: bool) -> Option<Job> {
        let of_place = action
            .place
            .as_ref()
            .and_then(|place| self.databases.iter().position(|database| database.identity == place.database));
        let is_there = self.is_alive(&action.process);
        let database = of_place.unwrap_or(0);
        let work = match &action.kind {
            ActionKind::Compact(_) => Work::Compact,
            ActionKind::Flush(_) => Work::Flush,
            ActionKind::ChangeSetting(SettingChange::Option(set)) => Work::SetOption(set.value.parse().ok()?),
            ActionKind::ChangeSetting(_) => Work::SetThrottle,
        };
        let cost_bytes = action.kind.cost_bytes();
        is_there.then(|| Job {
            id: JobId(0),
            action: action.id,
            process: action.process,
            database,
            device: self.databases.get(database).map_or(DeviceId(0), |database| database.device),
            work,
            keys: keys_of(part),
            began_ns: 0,
            done_ns: 0,
            bytes: if is_half { cost_bytes / 2 } else { cost_bytes },
            written: 0,
            is_deaf: false,
            fails: false,
            stop_ns: None,
            lost_ns: None,
            ended: None,
        })
    }
}

fn told(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Job(JobStatus::Running { .. }) | Event::Tick | Event::Readings(_) => None,
        Event::Window(_) => Some("of a window".to_owned()),
        event => Some(format!("{event:?}")),
    }
}

fn compaction(range: KeyRange, cost_bytes: u64, before: &RangeAssessment) -> ActionKind {
    ActionKind::Compact(CompactRange {
        target: String::new(),
        database: String::new(),
        column_family: COLUMN_FAMILY.to_owned(),
        range,
        before: Box::new(before.clone()),
        primitive: Primitive::CompactRange,
        bottommost: Bottommost::Default,
        cost_bytes,
        largest_job_bytes: cost_bytes,
        linked_bytes: 0,
        relief_seconds_per_second: 1.0,
        deletions: 1,
        reason: String::new(),
    })
}

fn flush(cost_bytes: u64, before: &RangeAssessment) -> ActionKind {
    ActionKind::Flush(Flush {
        target: String::new(),
        database: String::new(),
        column_family: COLUMN_FAMILY.to_owned(),
        ranges: Vec::new(),
        before: Box::new(before.clone()),
        pain_seconds_per_second: 1.0,
        cost_bytes,
        relief_seconds_per_second: 1.0,
        reason: String::new(),
    })
}

fn option(value: u64, restore: u64, before: &RangeAssessment) -> ActionKind {
    ActionKind::ChangeSetting(SettingChange::Option(SetOptions {
        target: String::new(),
        database: String::new(),
        column_family: COLUMN_FAMILY.to_owned(),
        name: "option".to_owned(),
        value: value.to_string(),
        restore: restore.to_string(),
        ranges: Vec::new(),
        before: Box::new(before.clone()),
        pain_seconds_per_second: 1.0,
        relief_seconds_per_second: 1.0,
        reason: String::new(),
    }))
}

fn throttle() -> ActionKind {
    ActionKind::ChangeSetting(SettingChange::Throttle(SetThrottle {
        target: String::new(),
        name: "throttle".to_owned(),
        value: "1".to_owned(),
        command: Vec::new(),
        get: None,
        restore: None,
        user: None,
        timeout: TimeSpan::from_seconds(30),
        reason: String::new(),
    }))
}
