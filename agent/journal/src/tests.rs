//! Journals in directories of their own, with the ledger whose effects they write; an agent that ends is one
//! that is dropped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
use super::action_log::{ACTIONS_PUBLISHED_MAX, Journal};
use super::clock;
use super::throttles::ThrottleKey;
use sexton_tuner::bucket::BudgetBucket;
use sexton_tuner::daily::DailyBytes;
use sexton_tuner::guard::{Guard, Readings};
use sexton_tuner::key::Key;
use sexton_tuner::plan::{CompactRange, Flush, SetOptions, SetThrottle};
use sexton_tuner::policy::{ByteSize, KeyDisplay, Mode, Policy, TimeSpan};
use sexton_tuner::range::KeyRange;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::run::consent::Consent;
use sexton_tuner::run::{
    Action, ActionId, ActionKind, ActionState, Admission, Budget, DatabaseIdentity, DeviceId, Effect, Event,
    JobEnd, JobId, JobResult, JobStatus, Ledger, Measurement, Offer, Outcome, Place, ProcessId,
    SettingChange, SettingEvent, WindowSeen,
};
use sexton_tuner::throttle::ThrottleState;
use std::path::Path;
use std::time::Duration;

/// A process that lives; all others have ended.
const LIVING: ProcessId = ProcessId { pid: 1, start_time_ticks: 1 };

fn is_alive(process: &ProcessId) -> bool {
    *process == LIVING
}

/// A journal with its ledger.
struct Agent {
    journal: Journal,
    ledger: Ledger,
    policy: Policy,
}

impl Agent {
    fn start(directory: Option<&Path>) -> Agent {
        let policy = Policy { cooldown: TimeSpan::from_seconds(0), ..Policy::default() };
        let mut journal = Journal::open(directory, None, KeyDisplay::Redacted).unwrap();
        let stored = journal.load().unwrap();
        assert!(journal.load().is_none(), "it is loaded once");
        let (ledger, effects) = Ledger::load(stored, &policy, clock::now(), is_alive);
        let mut agent = Agent { journal, ledger, policy };
        agent.carry_out(effects);
        agent
    }

    /// Carries out what is the journal's to do, and gives the rest.
    fn carry_out(&mut self, effects: Vec<(ActionId, Effect)>) -> Vec<Effect> {
        let mut left = Vec::new();
        for (id, effect) in effects {
            match effect {
                Effect::WriteAhead { is_first, setting, forget } => {
                    let action = self.ledger.action(id).unwrap();
                    let is_written = self.journal.write_ahead(action, is_first, setting.as_deref(), forget);
                    left.extend(self.hear(id, Event::Written(is_written)));
                }
                Effect::Record(record) => {
                    let (ledger, action) = (&self.ledger, self.ledger.action(id));
                    self.journal.record(action, &record, ledger.budget(), ledger.daily());
                }
                effect => left.push(effect),
            }
        }
        left
    }

    fn hear(&mut self, id: ActionId, event: Event<'_>) -> Vec<Effect> {
        let effects = self.ledger.step(id, event, &self.policy, clock::now());
        self.carry_out(effects.into_iter().map(|effect| (id, effect)).collect())
    }

    fn begin(&mut self, kind: ActionKind) -> ActionId {
        let place = kind.column_family().map(|column_family| Place {
            database: identity(1),
            column_family: column_family.to_owned(),
            range: kind.range(),
        });
        let admission = Admission {
            readings: &Readings::default(),
            consent: &Consent::default(),
            planned_cost_bytes: kind.cost_bytes(),
            part: None,
            nothing_left: false,
            time_limit: Duration::from_secs(60),
        };
        let (process, claim, device) = (LIVING, kind.claim(), place.is_some().then_some(DeviceId(7)));
        let offer = Offer { kind, process, mode: Mode::Act, place, device, claim };
        let (id, effects) = self.ledger.offer(offer, admission, &self.policy, clock::now()).unwrap();
        self.carry_out(effects.into_iter().map(|effect| (id, effect)).collect());
        id
    }

    fn note_job(&mut self, id: ActionId, job: u64) {
        self.hear(id, Event::Job(JobStatus::Running { job: Some(JobId(job)), can_stop: true }));
    }

    fn end(&mut self, id: ActionId, result: JobResult) {
        self.hear(id, Event::Job(JobStatus::Ended(JobEnd::new(result))));
        let dropped = Measurement {
            deletions: Some((10, 0)),
            memtable_deletions_before: Some(10),
            ..Measurement::default()
        };
        self.hear(id, Event::Measured(dropped));
    }

    fn done(&mut self, kind: ActionKind) -> ActionId {
        let id = self.begin(kind);
        self.end(id, JobResult::Done);
        id
    }

    /// A window shows that it helped, or that it did not.
    fn verify(&mut self, id: ActionId, helped: bool) {
        let after = if helped { Vec::new() } else { vec![before()] };
        let failures_before = self.ledger.failures_before(id);
        let seen = WindowSeen { seconds: 3_600.0, has_operations: true, after: &after, failures_before };
        self.hear(id, Event::Window(seen));
        let verification = self.ledger.action(id).unwrap().state.verification().unwrap();
        assert_eq!(verification.helped, helped, "{verification:?}");
    }

    fn names(&self) -> Vec<&'static str> {
        self.journal.events().events().iter().map(|event| event.kind.name()).collect()
    }

    fn newest(&self) -> &Action {
        self.ledger.actions().next().unwrap()
    }
}

fn nowhere() -> Agent {
    Agent::start(None)
}

fn identity(inode: u64) -> DatabaseIdentity {
    DatabaseIdentity { path: "/db".into(), inode }
}

fn before() -> RangeAssessment {
    serde_json::from_value(serde_json::json!({
        "target": "java-1", "database": "/db", "column_family": "keyTable",
        "range": { "begin": "", "end": null }, "operations_per_second": 1.0, "tombstones_per_seek": 1.0,
        "memtable_tombstones_per_seek": 0.0, "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1,
        "deletions": 1, "density": 1.0, "pain_seconds_per_second": 1.0,
        "relief_seconds_per_second": 0.5, "cost_bytes": 1, "relief_per_byte": 1.0, "reason": ""
    }))
    .unwrap()
}

fn compact(prefix: &str) -> ActionKind {
    ActionKind::Compact(CompactRange {
        target: "java-1".into(),
        database: "/db".into(),
        column_family: "keyTable".into(),
        range: KeyRange::with_prefix(Key::new(prefix)),
        before: Box::new(before()),
        primitive: sexton_tuner::primitive::Primitive::default(),
        bottommost: sexton_tuner::cost::Bottommost::default(),
        cost_bytes: 1_000,
        largest_job_bytes: 0,
        linked_bytes: 0,
        relief_seconds_per_second: 0.5,
        deletions: 1,
        reason: String::new(),
    })
}

fn flush() -> ActionKind {
    ActionKind::Flush(Flush {
        target: "java-1".into(),
        database: "/db".into(),
        column_family: "keyTable".into(),
        ranges: Vec::new(),
        before: Box::new(before()),
        pain_seconds_per_second: 1.0,
        cost_bytes: 10,
        relief_seconds_per_second: 0.5,
        reason: String::new(),
    })
}

fn set_options(value: &str) -> ActionKind {
    ActionKind::ChangeSetting(SettingChange::Option(SetOptions {
        target: "java-1".into(),
        database: "/db".into(),
        column_family: "keyTable".into(),
        name: "trigger".into(),
        value: value.into(),
        restore: "0".into(),
        ranges: Vec::new(),
        before: Box::new(before()),
        pain_seconds_per_second: 1.0,
        relief_seconds_per_second: 0.5,
        reason: String::new(),
    }))
}

fn set_throttle(name: &str) -> ActionKind {
    ActionKind::ChangeSetting(SettingChange::Throttle(SetThrottle {
        target: "java-1".into(),
        name: name.into(),
        value: "slow".into(),
        command: vec!["set".into(), "slow".into()],
        get: None,
        restore: None,
        user: None,
        timeout: TimeSpan::from_seconds(1),
        reason: String::new(),
    }))
}

fn failed() -> JobResult {
    JobResult::Failed { reason: "so".into(), may_run_on: false }
}

#[test]
fn an_action_that_is_no_longer_published_is_counted_when_it_is_verified() {
    let mut agent = nowhere();
    let first = agent.done(compact("a/"));
    for _ in 0..ACTIONS_PUBLISHED_MAX {
        agent.done(flush());
        let newest = agent.newest().id;
        agent.verify(newest, true);
    }
    assert!(agent.journal.listed(&agent.ledger).all(|listed| listed.action.id != first));
    agent.verify(first, true);
    let counts = agent.journal.counts(&agent.ledger)["java-1"].clone();
    assert_eq!(
        (counts.done, counts.helped),
        (ACTIONS_PUBLISHED_MAX as u64 + 1, ACTIONS_PUBLISHED_MAX as u64 + 1)
    );
}

#[test]
fn each_change_of_state_counts_once() {
    let mut agent = nowhere();
    let id = agent.begin(compact("a/"));
    agent.note_job(id, 1);
    let stop = Readings { delayed_write_bytes_per_second: Some(1), ..Readings::default() };
    agent.hear(id, Event::Readings(&stop));
    agent.hear(id, Event::Readings(&stop));
    let cancelled = JobResult::Cancelled("a guard".into());
    agent.hear(id, Event::Job(JobStatus::Ended(JobEnd::new(cancelled))));
    assert_eq!(agent.ledger.action(id).unwrap().pauses, 1);
    agent.hear(id, Event::Cancel("it was asked for"));
    agent.hear(id, Event::Measured(Measurement { bytes_replaced: Some(30), ..Measurement::default() }));
    let second = agent.begin(compact("b/"));
    agent.end(second, failed());
    let counts = agent.journal.counts(&agent.ledger)["java-1"].clone();
    let counted: Vec<_> = counts.by_state().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("failed", 1), ("cancelled", 1)]);
    assert_eq!(counts.pauses, 1);
    let told = agent.names();
    assert_eq!(told, ["slice_started", "slice_paused", "slice_done", "slice_started", "slice_done"]);
}

#[test]
fn targets_that_are_counted_apart_are_bounded() {
    let mut agent = nowhere();
    for number in 0..600 {
        let mut kind = set_throttle("scrub");
        if let ActionKind::ChangeSetting(SettingChange::Throttle(set)) = &mut kind {
            set.target = format!("java-{number}");
        }
        agent.done(kind);
    }
    let counts = agent.journal.counts(&agent.ledger);
    assert_eq!(counts.len(), 257);
    assert_eq!(counts["other"].done, 600 - 256);
}

#[test]
fn each_kind_has_events_of_its_own() {
    let mut agent = nowhere();
    agent.done(compact("a/"));
    agent.done(flush());
    agent.done(set_options("1000"));
    agent.done(set_throttle("scrub"));
    let expected = [
        "slice_started",
        "slice_done",
        "flush_started",
        "flush_done",
        "setting_change_started",
        "setting_change_done",
        "options_set",
        "setting_change_started",
        "setting_change_done",
    ];
    assert_eq!(agent.names(), expected);
}

#[test]
fn what_was_done_and_what_is_pending_outlives_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Agent::start(Some(folder.path()));
    let id = first.done(compact("a/"));
    let slow = ThrottleState { value: Some("slow".into()), ..ThrottleState::default() };
    let scrub = ThrottleKey { process: LIVING, target: "java-1".into(), name: "scrub".into() };
    first.journal.keep_throttle(&scrub, &slow);
    let gone = ProcessId { pid: 4_194_305, start_time_ticks: 7 };
    first.journal.keep_throttle(&ThrottleKey { process: gone, target: "java-0".into(), ..scrub }, &slow);
    drop(first);

    let mut second = Agent::start(Some(folder.path()));
    let listed = second.journal.listed(&second.ledger).next().unwrap();
    assert_eq!((listed.action.id, listed.action.state.name(), listed.is_earlier), (id, "done", true));
    assert!(listed.action.awaits_verification(), "its target still lives");
    let throttles = second.journal.throttles(is_alive);
    assert_eq!(throttles.len(), 1, "those of ended processes are forgotten: {throttles:?}");
    second.verify(id, true);
    let listed = second.journal.listed(&second.ledger).next().unwrap();
    assert!(listed.is_earlier, "it has ended in the run before");
    let next = second.begin(compact("b/"));
    assert_eq!(next.0, id.0 + 1, "counting goes on");
}

#[test]
fn a_throttle_that_fails_is_one_action_until_it_is_set_over_restarts_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Agent::start(Some(folder.path()));
    let id = first.begin(set_throttle("scrub"));
    first.end(id, failed());
    drop(first);

    let mut second = Agent::start(Some(folder.path()));
    let action = second.newest();
    assert_eq!((action.state.name(), action.failures(), action.state.is_open()), ("failing", 1, true));
    second.hear(id, Event::InForce);
    let listed = second.journal.listed(&second.ledger).next().unwrap();
    assert!(!listed.is_earlier, "it has ended in this run");
    drop(second);

    let third = Agent::start(Some(folder.path()));
    assert_eq!(third.ledger.actions().count(), 1);
    assert!(third.newest().state.end().unwrap().message.ends_with("after 1 failures"));
    assert_eq!(third.names(), ["setting_change_started", "throttle_failed", "setting_change_done"]);
}

/// What an agent was told by a target that lies about its files, and wrote down, keeps no later agent from
/// acting.
#[test]
fn a_budget_that_was_emptied_by_a_lie_heals() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Agent::start(Some(folder.path()));
    let id = first.begin(compact("a/"));
    first.hear(id, Event::Job(JobStatus::Ended(JobEnd::new(JobResult::Done))));
    let lie =
        Measurement { bytes_replaced: Some(1 << 63), device_bytes: Some(u64::MAX), ..Measurement::default() };
    first.hear(id, Event::Measured(lie));
    drop(first);
    let second = Agent::start(Some(folder.path()));
    let now = clock::now();
    let budget = &second.policy.io_budget;
    let time_to_fill = Duration::from_secs(2 * budget.burst.bytes() / budget.rate.bytes_per_second() + 1);
    let mut bucket: Budget = *second.ledger.budget();
    bucket.refill(budget, now);
    bucket.refill(budget, now.plus(time_to_fill));
    assert_eq!(ByteSize::from_bytes(bucket.available_bytes()), budget.burst);
}

#[test]
fn an_action_under_way_is_interrupted_exactly_once() {
    let folder = tempfile::tempdir().unwrap();
    let id = Agent::start(Some(folder.path())).begin(compact("a/"));
    let second = Agent::start(Some(folder.path()));
    let listed = second.journal.listed(&second.ledger).next().unwrap();
    let outcome = listed.action.state.outcome();
    assert_eq!((listed.action.id, outcome, listed.is_earlier), (id, Some(Outcome::Interrupted), false));
    assert_eq!(second.journal.counts(&second.ledger)["java-1"].interrupted, 1);
    let past = second.ledger.past_actions(&identity(1), clock::now());
    assert_eq!(past.len(), 1, "its cooldown counts");
    assert!(past.iter().all(|past| !past.awaits_verdict), "nobody will measure it");
    assert_eq!(second.ledger.orphans().len(), 1);
    drop(second);
    let third = Agent::start(Some(folder.path()));
    assert_eq!(third.ledger.actions().count(), 1);
    assert_eq!(third.names(), ["slice_started", "interrupted"]);
}

/// The hook may know what became of it: it has no end until the hook was asked, over however many runs.
#[test]
fn an_action_that_the_hook_may_know_of_is_in_doubt_until_it_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Agent::start(Some(folder.path()));
    let id = first.begin(compact("a/"));
    first.note_job(id, 4711);
    drop(first);
    drop(Agent::start(Some(folder.path())));
    let mut third = Agent::start(Some(folder.path()));
    let ActionState::InDoubt(in_doubt) = &third.newest().state else { panic!("{:?}", third.newest()) };
    assert_eq!(in_doubt.job, JobId(4711));
    third.hear(id, Event::Job(JobStatus::Ended(JobEnd::new(JobResult::Done))));
    assert!(third.newest().state.end().unwrap().message.contains("its job 4711 was done"));
    assert!(!third.newest().awaits_verification(), "what it left behind was not measured");
    drop(third);
    assert_eq!(Agent::start(Some(folder.path())).names(), ["slice_started", "slice_done"]);
}

/// An agent that is killed after it wrote that it would set an option, and before or after it did.
#[test]
fn an_option_is_remembered_from_before_it_is_set_until_it_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Agent::start(Some(folder.path()));
    let id = first.begin(set_options("1000"));
    drop(first);
    let mut second = Agent::start(Some(folder.path()));
    let left = second.ledger.settings().to_vec();
    assert_eq!(left.iter().map(|kept| kept.action).collect::<Vec<_>>(), [id]);
    assert!(left.iter().all(|kept| kept.is_to_be_restored(clock::now())));
    let restored = SettingEvent::Restored(Some("0"));
    let effects = second.ledger.step_settings(&restored, clock::now(), |kept| kept.action == id);
    second.carry_out(effects);
    assert_eq!(second.names().last(), Some(&"options_restored"));
    drop(second);
    assert!(Agent::start(Some(folder.path())).ledger.settings().is_empty());
}

/// Every record of a store that the first release has left: key, space, JSON.
const FIRST_RELEASE: &str = include_str!("../tests/schema_1.records");

/// A state directory as the first release has left it.
fn left_by_first_release() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = rust_rocksdb::DB::open_default(folder.path().join("store")).unwrap();
    for line in FIRST_RELEASE.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        store.put(key, value).unwrap();
    }
    folder
}

/// What must hold of the first release's store, however often it was opened since.
fn check_first_release(agent: &mut Agent) {
    let states = agent.ledger.actions().collect::<Vec<_>>().into_iter().rev();
    let states: Vec<String> =
        states.map(|action| format!("{} {}", action.kind.name(), action.state.name())).collect();
    let expected = "compact_range interrupted,flush interrupted,compact_range skipped,compact_range failed,\
        compact_range cancelled,compact_range stopped,compact_range did_not_help,compact_range did_not_help,\
        compact_range helped,compact_range done,compact_range done,flush done,flush failed,set_options done,\
        set_options done,set_options failed,set_throttle done,set_throttle failing,set_throttle interrupted,\
        set_throttle failed,compact_range running,compact_range interrupted,flush interrupted,\
        set_options interrupted";
    assert_eq!(states.join(","), expected);
    let pending = agent.ledger.actions().filter(|action| action.awaits_verification());
    let mut pending: Vec<&Action> = pending.collect();
    pending.reverse();
    let named: Vec<(u64, &str)> = pending.iter().map(|it| (it.id.0, it.kind.target())).collect();
    assert_eq!(named, [(10, "java-4711"), (12, "java-4711")]);
    let claim = pending[0].claim.as_ref().unwrap();
    assert_eq!((claim.before.pain_seconds_per_second, claim.promised_seconds_per_second), (0.5, 0.5));
    let in_doubt: Vec<(u64, u64)> = agent
        .ledger
        .actions()
        .filter_map(|action| match &action.state {
            ActionState::InDoubt(doubt) => Some((action.id.0, doubt.job.0)),
            _ => None,
        })
        .collect();
    assert_eq!(in_doubt, [(21, 1_795_300_000_000)]);
    let failing = agent.ledger.action(ActionId(18)).unwrap();
    let ActionKind::ChangeSetting(SettingChange::Throttle(set)) = &failing.kind else {
        panic!("{failing:?}")
    };
    assert!(!set.command.is_empty() && failing.failures() > 0, "{failing:?}");
    let settings: Vec<_> =
        agent.ledger.settings().iter().map(|kept| (kept.action.0, kept.restore.as_deref())).collect();
    assert_eq!(settings, [(14, Some("0")), (24, Some("4"))]);
    let throttles: Vec<_> = agent.journal.throttles(is_alive).into_keys().map(|(_, name)| name).collect();
    assert_eq!(throttles, ["deletion", "heartbeat", "scrub"]);
    let database = DatabaseIdentity { path: "/var/db/om".into(), inode: 4711 };
    let past = agent.ledger.past_actions(&database, clock::now());
    let failures: Vec<u32> = past.iter().map(|past| past.failures_in_a_row).collect();
    assert_eq!(failures, [0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let other = DatabaseIdentity { path: "/var/db/scm".into(), inode: 4712 };
    let now = "2026-11-22T06:45:07Z".parse().unwrap();
    assert_eq!(agent.journal.samples.since_window_ns(&[other], now), Some(7_000_000_000));
    assert_eq!(agent.journal.samples.since_window_ns(&[database], now), None, "something was wanted");
    assert_eq!(agent.journal.events().events().len(), 73 + 4, "four actions were interrupted");
}

#[test]
fn what_the_first_release_has_written_is_read_and_nothing_is_done_twice() {
    let folder = left_by_first_release();
    let mut journal = Journal::open(Some(folder.path()), None, KeyDisplay::Redacted).unwrap();
    let stored = journal.load().unwrap();
    let bucket: BudgetBucket = serde_json::from_value(serde_json::to_value(stored.budget).unwrap()).unwrap();
    assert_eq!(bucket.tokens_bytes, -5);
    let daily: DailyBytes = stored.daily.unwrap();
    assert_eq!(daily.sum("2026-11-22T07:00:00Z".parse().unwrap()), 123_456_789);
    drop(journal);
    let mut first = Agent::start(Some(folder.path()));
    check_first_release(&mut first);
    let stopped = first.ledger.action(ActionId(6)).unwrap();
    assert_eq!(stopped.state.outcome(), Some(Outcome::Aborted(Guard::Level0Files)));
    assert_eq!(stopped.pauses, 2);
    let pinned = first.ledger.action(ActionId(7)).unwrap().state.verification().unwrap().clone();
    assert_eq!(pinned.cause, Some(sexton_tuner::verify::Cause::PinnedBySnapshot));
    let end = first.ledger.action(ActionId(9)).unwrap().state.end().unwrap().clone();
    assert_eq!(
        (end.bytes_rewritten, end.snapshots, end.memtable_deletions_before),
        (8_000_000, Some(1), Some(200))
    );
    let spent = first.ledger.daily().clone();
    drop(first);
    let mut again = Agent::start(Some(folder.path()));
    check_first_release(&mut again);
    assert_eq!(*again.ledger.daily(), spent, "what was interrupted is paid for once");
}

/// What was read of the first release says the same when it is written in this release's form.
#[test]
fn the_first_releases_actions_survive_being_written_anew() {
    let folder = left_by_first_release();
    let mut first = Agent::start(Some(folder.path()));
    let actions: Vec<Action> = first.ledger.actions().cloned().collect();
    let anew = Effect::Record(sexton_tuner::run::Record::default());
    first.carry_out(actions.iter().map(|action| (action.id, anew.clone())).collect());
    drop(first);
    let second = Agent::start(Some(folder.path()));
    // Since when one is in doubt is each run's own.
    let is_known = |action: &&Action| action.id != ActionId(21);
    let again: Vec<&Action> = second.ledger.actions().filter(is_known).collect();
    assert_eq!(again, actions.iter().filter(is_known).collect::<Vec<_>>());
}
