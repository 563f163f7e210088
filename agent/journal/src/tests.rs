//! Journals in directories of their own; an agent that ends is one that is dropped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
use super::action_log::{ACTIONS_PUBLISHED_MAX, Begun, Journal};
use super::clock;
use super::throttles::ThrottleKey;
use sexton_tuner::daily::DailyBytes;
use sexton_tuner::guard::{Guard, GuardRefusal};
use sexton_tuner::key::Key;
use sexton_tuner::plan::{CompactRange, Flush, SetOptions, SetThrottle};
use sexton_tuner::policy::{KeyDisplay, Policy, TimeSpan};
use sexton_tuner::range::KeyRange;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::run::{
    Action, ActionId, ActionKind, DatabaseIdentity, End, JobId, Outcome, Place, ProcessId, SettingChange,
    SettingEvent, VERIFY_WINDOWS_MAX, Verification,
};
use sexton_tuner::schedule::{BudgetBucket, io_budget_at};
use sexton_tuner::throttle::{ThrottleSetting, ThrottleState};
use std::path::Path;
use std::time::Duration;

/// A process that lives; all others have ended.
const LIVING: ProcessId = ProcessId { pid: 1, start_time_ticks: 1 };
const GONE: ProcessId = ProcessId { pid: 4_194_305, start_time_ticks: 7 };

fn is_alive(process: &ProcessId) -> bool {
    *process == LIVING
}

fn open(directory: &Path) -> Journal {
    Journal::open(Some(directory), None, KeyDisplay::Redacted, is_alive).unwrap()
}

fn nowhere() -> Journal {
    Journal::open(None, None, KeyDisplay::Redacted, is_alive).unwrap()
}

fn identity(inode: u64) -> DatabaseIdentity {
    DatabaseIdentity { path: "/db".into(), inode }
}

fn before() -> RangeAssessment {
    serde_json::from_value(serde_json::json!({
        "target": "java-1", "database": "/db", "column_family": "default",
        "range": { "begin": "", "end": null }, "operations_per_second": 1.0, "tombstones_per_seek": 1.0,
        "memtable_tombstones_per_seek": 0.0, "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1,
        "deletions": 1, "density": 1.0, "pain_seconds_per_second": 1.0,
        "relief_seconds_per_second": 0.5, "cost_bytes": 1, "relief_per_byte": 1.0, "reason": ""
    }))
    .unwrap()
}

fn compact(range: KeyRange) -> ActionKind {
    ActionKind::Compact(CompactRange {
        target: "java-1".into(),
        database: "/db".into(),
        column_family: "keyTable".into(),
        range,
        before: Box::new(before()),
        bottommost: sexton_tuner::cost::Bottommost::default(),
        cost_bytes: 1_000,
        largest_job_bytes: 0,
        linked_bytes: 0,
        relief_seconds_per_second: 0.5,
        deletions: 1,
        reason: String::new(),
    })
}

fn begun(prefix: &str) -> Begun {
    let range = KeyRange::with_prefix(Key::new(prefix));
    let place = Place { database: identity(1), column_family: "keyTable".into(), range: range.clone() };
    Begun { kind: compact(range), process: LIVING, place: Some(place) }
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

fn end(outcome: Outcome, rests: bool) -> End {
    End { rests, ..End::new(clock::now(), outcome, "so") }
}

fn done(journal: &mut Journal, begun: Begun) -> ActionId {
    let id = journal.begin(begun).unwrap();
    journal.end(id, end(Outcome::Done, true));
    id
}

fn verification(helped: bool) -> Verification {
    Verification {
        helped,
        pain_after_seconds_per_second: 0.25,
        delivered_seconds_per_second: 0.75,
        cause: None,
        reason: "so".into(),
        failures_in_a_row: 0,
    }
}

fn names(journal: &Journal) -> Vec<&'static str> {
    journal.events().events().iter().map(|event| event.kind.name()).collect()
}

fn newest(journal: &Journal) -> &Action {
    journal.actions().next().unwrap().action
}

#[test]
fn only_the_newest_actions_are_kept() {
    let mut journal = nowhere();
    for _ in 0..4_096 + 10 {
        done(&mut journal, begun("a/"));
    }
    assert_eq!(journal.actions().count(), ACTIONS_PUBLISHED_MAX);
    assert_eq!(newest(&journal).id, ActionId(4_096 + 10));
    assert!(journal.action(ActionId(10)).is_none() && journal.action(ActionId(11)).is_some());
}

/// A plan may hold more actions than are published: what the windows after it say of the first is counted all
/// the same.
#[test]
fn an_action_that_is_no_longer_published_is_counted_when_it_is_verified() {
    let mut journal = nowhere();
    let first = done(&mut journal, begun("a/"));
    for _ in 0..ACTIONS_PUBLISHED_MAX {
        done(&mut journal, begun("b/"));
    }
    assert!(journal.actions().all(|listed| listed.action.id != first));
    journal.verify(first, verification(true));
    let counts = journal.counts()["java-1"].clone();
    assert_eq!((counts.done, counts.helped), (ACTIONS_PUBLISHED_MAX as u64 + 1, 1));
    assert_eq!((counts.relief_promised, counts.relief_delivered), (0.5, 0.75));
}

#[test]
fn each_change_of_state_counts_once() {
    let mut journal = nowhere();
    let id = journal.begin(begun("a/")).unwrap();
    let objection = GuardRefusal { guard: Guard::Level0Files, reason: "19 of 20".into() };
    for _ in 0..2 {
        journal.pause(id, &objection);
        journal.pause(id, &objection);
        journal.resume(id);
    }
    journal.end(id, End { bytes_rewritten: 30, ..end(Outcome::Aborted(Guard::Level0Files), true) });
    journal.verify(id, verification(true));
    journal.forgive(&begun("a/").place.unwrap());
    let failed = journal.begin(begun("b/")).unwrap();
    journal.end(failed, end(Outcome::Failed, false));
    let counts = journal.counts()["java-1"].clone();
    let counted: Vec<_> = counts.by_state().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [("failed", 1), ("stopped", 1), ("helped", 1)]);
    assert_eq!((counts.pauses, counts.bytes_rewritten), (2, 30));
    assert_eq!(journal.action(id).unwrap().pauses, 2);
}

#[test]
fn targets_that_are_counted_apart_are_bounded() {
    let mut journal = nowhere();
    for number in 0..600 {
        let mut begun = begun("a/");
        if let ActionKind::Compact(compact) = &mut begun.kind {
            compact.target = format!("java-{number}");
        }
        done(&mut journal, begun);
    }
    assert_eq!(journal.counts().len(), 257);
    assert_eq!(journal.counts()["other"].done, 600 - 256);
}

#[test]
fn each_kind_has_events_of_its_own() {
    let mut journal = nowhere();
    done(&mut journal, begun("a/"));
    done(&mut journal, Begun { kind: flush(), ..begun("") });
    done(&mut journal, set_options("1000"));
    done(&mut journal, set_throttle(LIVING, "scrub"));
    let expected = [
        "slice_started",
        "slice_done",
        "flush_started",
        "flush_done",
        "setting_change_started",
        "setting_change_done",
        "setting_change_started",
        "setting_change_done",
    ];
    assert_eq!(names(&journal), expected);
}

#[test]
fn a_verification_is_not_pending_for_ever() {
    let mut journal = nowhere();
    done(&mut journal, begun("a/"));
    let mut windows = 0;
    loop {
        let pending = journal.pending("java-1").next().unwrap();
        windows += 1;
        if !journal.postpone(pending) {
            break;
        }
    }
    assert_eq!(windows, VERIFY_WINDOWS_MAX + 1);
    assert_eq!(journal.pending("java-1").count(), 0);
    assert!(journal.past_actions(&identity(1)).iter().all(|past| !past.awaits_verdict));
}

#[test]
fn what_was_done_and_what_is_pending_outlives_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let id = done(&mut first, begun("a/"));
    let slow = ThrottleState { value: Some("slow".into()), ..ThrottleState::default() };
    first.keep_throttle(&scrub(LIVING), &slow);
    first.keep_throttle(&ThrottleKey { target: "java-0".into(), ..scrub(GONE) }, &slow);
    let bucket = BudgetBucket { tokens_bytes: -5, refilled_at: jiff::Timestamp::UNIX_EPOCH };
    first.keep_budget(&bucket);
    drop(first);

    let mut second = open(folder.path());
    let listed = second.actions().next().unwrap();
    assert_eq!((listed.action.id, listed.action.state.name(), listed.is_earlier), (id, "done", true));
    assert_eq!(second.pending("java-1").count(), 1, "its target still lives");
    assert!(second.past_actions(&identity(1)).iter().all(|past| past.awaits_verdict));
    assert_eq!(second.budget(), Some(bucket));
    let throttles = second.throttles();
    assert_eq!(throttles.len(), 1, "those of ended processes are forgotten: {throttles:?}");
    let failed = second.begin(begun("b/")).unwrap();
    assert_eq!(failed.0, id.0 + 1, "counting goes on");
    second.end(failed, end(Outcome::Failed, true));
    let waiting: Vec<bool> =
        second.past_actions(&identity(1)).iter().map(|past| past.awaits_verdict).collect();
    assert_eq!(waiting, [true, false], "what failed promises nothing");
    assert!(second.past_actions(&identity(2)).is_empty(), "another database at the same path");
}

fn scrub_setting() -> ThrottleSetting {
    ThrottleSetting {
        name: "scrub".into(),
        value: "slow".into(),
        command: vec!["set".into(), "slow".into()],
        get: None,
        timeout: TimeSpan::from_seconds(1),
        reason: String::new(),
    }
}

fn scrub(process: ProcessId) -> ThrottleKey {
    ThrottleKey { process, target: "java-1".into(), name: "scrub".into() }
}

fn set_throttle(process: ProcessId, name: &str) -> Begun {
    let kind = ActionKind::ChangeSetting(SettingChange::Throttle(SetThrottle {
        target: "java-1".into(),
        name: name.into(),
        value: "slow".into(),
        command: vec!["set".into(), "slow".into()],
        get: None,
        timeout: TimeSpan::from_seconds(1),
        reason: String::new(),
    }));
    Begun { kind, process, place: None }
}

/// Begins the action of a throttle, whose first try fails.
fn failing(journal: &mut Journal, key: &ThrottleKey) -> (ActionId, ThrottleState) {
    let id = journal.begin(set_throttle(key.process, &key.name)).unwrap();
    let mut known = ThrottleState::default();
    assert!(known.fail(id.0, &scrub_setting(), "exit code 3".into(), jiff::Timestamp::now()));
    journal.fail_throttle(key, &known, true);
    (id, known)
}

#[test]
fn a_throttle_that_fails_is_one_action_until_it_is_set_over_restarts_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let key = scrub(LIVING);
    let (id, mut known) = failing(&mut first, &key);
    for _ in 0..3 {
        let is_news = known.fail(id.0, &scrub_setting(), "exit code 3".into(), jiff::Timestamp::now());
        first.fail_throttle(&key, &known, is_news);
    }
    drop(first);

    let mut second = open(folder.path());
    let known = second.throttles().remove(&("java-1".to_owned(), "scrub".to_owned())).unwrap();
    assert_eq!(known.failure.as_ref().unwrap().retry.failures_in_a_row, 4, "its pause outlives the agent");
    let action = newest(&second);
    assert_eq!((action.state.name(), action.failures(), action.state.is_open()), ("failing", 4, true));
    assert!(second.is_open(id));
    let in_force = ThrottleState { value: Some("slow".into()), ..ThrottleState::default() };
    second.end_throttle(&key, &in_force, id, (Outcome::Done, "it is set".into()), 1.0);
    drop(second);

    let mut third = open(folder.path());
    assert_eq!(third.actions().count(), 1);
    assert_eq!(newest(&third).state.end().unwrap().message, "it is set, after 4 failures");
    assert!(third.throttles().values().all(|known| *known == in_force));
    assert_eq!(names(&third), ["setting_change_started", "throttle_failed", "setting_change_done"]);
}

#[test]
fn a_throttle_that_failed_in_a_process_that_has_ended_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    failing(&mut open(folder.path()), &scrub(GONE));
    let mut second = open(folder.path());
    assert_eq!(newest(&second).state.outcome(), Some(Outcome::Interrupted));
    assert!(second.throttles().is_empty());
}

/// What an agent was told by a target that lies about its files, and wrote down, keeps no later agent from
/// acting.
#[test]
fn a_budget_that_was_emptied_by_a_lie_heals() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let (now, policy) = (jiff::Timestamp::now(), Policy::default());
    let budget = io_budget_at(&policy, now);
    let mut bucket = BudgetBucket::full(budget, now);
    bucket.spend(1 << 63);
    first.keep_budget(&bucket);
    let mut daily = DailyBytes::default();
    daily.add(1 << 63, now);
    first.keep_daily(&daily);
    drop(first);

    let second = open(folder.path());
    assert_eq!(second.daily().sum(now), 0);
    let mut bucket = second.budget().unwrap();
    let burst = budget.burst.bytes();
    let time_to_fill = 2 * burst / budget.rate.bytes_per_second();
    bucket.refill(budget, now);
    bucket.refill(budget, now + Duration::from_secs(time_to_fill));
    assert_eq!(bucket.available_bytes(), burst);
}

#[test]
fn an_action_under_way_is_interrupted_exactly_once() {
    let folder = tempfile::tempdir().unwrap();
    let id = open(folder.path()).begin(begun("a/")).unwrap();
    let mut second = open(folder.path());
    let listed = second.actions().next().unwrap();
    let outcome = listed.action.state.outcome();
    assert_eq!((listed.action.id, outcome, listed.is_earlier), (id, Some(Outcome::Interrupted), false));
    assert_eq!(second.counts()["java-1"].interrupted, 1);
    let past = second.past_actions(&identity(1));
    assert_eq!(past.len(), 1, "its cooldown counts");
    assert!(past.iter().all(|past| !past.awaits_verdict), "nobody will measure it");
    assert_eq!((second.take_interrupted_bytes(), second.take_interrupted_bytes()), (1_000, 0));
    assert_eq!(second.take_interrupted(), [(LIVING, "/db".into())]);
    assert!(second.take_interrupted().is_empty());
    drop(second);
    let mut third = open(folder.path());
    assert_eq!(third.take_interrupted_bytes(), 0);
    assert_eq!(third.actions().count(), 1);
    assert_eq!(names(&third), ["slice_started", "interrupted"]);
}

/// The hook may know what became of it: it has no end until the hook was asked, over however many runs.
#[test]
fn an_action_that_the_hook_may_know_of_is_in_doubt_until_it_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let id = first.begin(begun("a/")).unwrap();
    first.note_job(id, Some(JobId(4711)));
    drop(first);
    drop(open(folder.path()));
    let mut third = open(folder.path());
    let in_doubt: Vec<_> = third.in_doubt().map(|(it, doubt)| (it.id, it.process, doubt.job)).collect();
    assert_eq!(in_doubt, [(id, LIVING, JobId(4711))]);
    assert!(third.is_in_doubt(&LIVING) && newest(&third).state.is_open());
    assert_eq!(third.take_interrupted_bytes(), 0);
    third.end_in_doubt(id, end(Outcome::Done, true));
    assert_eq!(third.in_doubt().count(), 0);
    assert_eq!(third.take_interrupted_bytes(), 1_000, "what it may have rewritten is paid for once");
    assert_eq!(third.past_actions(&identity(1)).len(), 1, "its cooldown counts");
    assert_eq!(third.pending("java-1").count(), 0, "what it left behind was not measured");
    drop(third);
    let mut fourth = open(folder.path());
    assert!(fourth.in_doubt().next().is_none() && fourth.take_interrupted_bytes() == 0);
    assert_eq!(names(&fourth), ["slice_started", "slice_done"]);
}

#[test]
fn what_no_hook_was_asked_about_is_interrupted_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let id = first.begin(begun("a/")).unwrap();
    first.note_job(id, Some(JobId(4711)));
    drop(first);
    let mut second = open(folder.path());
    second.interrupt_in_doubt();
    assert_eq!(second.in_doubt().count(), 0);
    drop(second);
    assert_eq!(names(&open(folder.path())), ["slice_started", "interrupted"]);
}

/// A part's end is not the action's, and a process that is gone has no hook.
#[test]
fn parts_and_processes_that_are_gone_are_interrupted_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let id = first.begin(begun("a/")).unwrap();
    first.note_job(id, Some(JobId(4711)));
    first.note_job(id, None);
    let gone = first.begin(Begun { process: GONE, ..begun("b/") }).unwrap();
    first.note_job(gone, Some(JobId(4712)));
    drop(first);
    let second = open(folder.path());
    assert_eq!(second.in_doubt().count(), 0);
    assert!(second.actions().all(|listed| listed.action.state.outcome() == Some(Outcome::Interrupted)));
}

#[test]
fn failures_add_up_and_help_ends_them() {
    let mut journal = nowhere();
    let mut verdict = |prefix: &str, helped: bool| {
        let id = done(&mut journal, begun(prefix));
        journal.verify(id, verification(helped));
        let past = journal.past_actions(&identity(1));
        (past.last().unwrap().helped, past.last().unwrap().failures_in_a_row)
    };
    assert_eq!(verdict("a/", false), (Some(false), 1));
    assert_eq!(verdict("a/", false), (Some(false), 2));
    assert_eq!(verdict("b/", false), (Some(false), 1), "another range");
    assert_eq!(verdict("a/", true), (Some(true), 0));
    assert_eq!(verdict("a/", false), (Some(false), 1));
    let backed_off = names(&journal).into_iter().filter(|name| *name == "backed_off");
    assert_eq!(backed_off.count(), 4);
    journal.forgive(&begun("a/").place.unwrap());
    let failures = journal.past_actions(&identity(1)).into_iter().map(|past| past.failures_in_a_row);
    assert_eq!(failures.collect::<Vec<_>>(), [0, 0, 1, 0, 0], "those of another range stay");
}

/// A flush that did not help says nothing about a compaction.
#[test]
fn failures_are_counted_by_kind_of_action() {
    let mut journal = nowhere();
    let mut fails = |kind: ActionKind| {
        let id = done(&mut journal, Begun { kind, ..begun("a") });
        journal.verify(id, verification(false));
        journal.past_actions(&identity(1)).last().unwrap().failures_in_a_row
    };
    let compact = || compact(KeyRange::everything());
    assert_eq!((fails(flush()), fails(compact()), fails(flush())), (1, 1, 2));
}

fn set_options(value: &str) -> Begun {
    let kind = ActionKind::ChangeSetting(SettingChange::Option(SetOptions {
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
    }));
    Begun { kind, ..begun("") }
}

/// An agent that is killed after it wrote that it would set an option, and before or after it did.
#[test]
fn an_option_is_remembered_from_before_it_is_set_until_it_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let id = first.begin(set_options("1000")).unwrap();
    drop(first);
    let mut second = open(folder.path());
    let [left] = second.settings() else { panic!("{:?}", second.settings()) };
    assert_eq!((left.action, left.database.clone()), (id, Some(identity(1))));
    assert!(left.is_to_be_restored(clock::now()));
    second.step_settings(&SettingEvent::Restored(Some("0")), |_| true);
    assert!(second.settings().is_empty());
    assert_eq!(names(&second).last(), Some(&"options_restored"));
    drop(second);
    assert!(open(folder.path()).settings().is_empty());
}

#[test]
fn an_option_that_did_not_help_or_was_not_taken_is_not_kept() {
    let mut journal = nowhere();
    let id = journal.begin(set_options("1000")).unwrap();
    journal.step_settings(&SettingEvent::Changed, |kept| kept.action == id);
    assert_eq!(names(&journal).last(), Some(&"options_set"));
    journal.end(id, end(Outcome::Done, true));
    assert_eq!(journal.pending("java-1").count(), 0, "it is given time to show what it is good for");
    journal.verify(id, verification(false));
    assert!(journal.settings().iter().all(|kept| kept.is_to_be_restored(clock::now())));
    journal.step_settings(&SettingEvent::Restored(Some("0")), |_| true);

    let id = journal.begin(set_options("2000")).unwrap();
    journal.step_settings(&SettingEvent::NotChanged, |kept| kept.action == id);
    assert!(journal.settings().is_empty());
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
fn check_first_release(journal: &mut Journal) {
    let states = journal.actions().collect::<Vec<_>>().into_iter().rev();
    let states: Vec<String> =
        states.map(|it| format!("{} {}", it.action.kind.name(), it.action.state.name())).collect();
    let expected = "compact_range interrupted,flush interrupted,compact_range skipped,compact_range failed,\
        compact_range cancelled,compact_range stopped,compact_range did_not_help,compact_range did_not_help,\
        compact_range helped,compact_range done,compact_range done,flush done,flush failed,set_options done,\
        set_options done,set_options failed,set_throttle done,set_throttle failing,set_throttle interrupted,\
        set_throttle failed,compact_range running,compact_range interrupted,flush interrupted,\
        set_options interrupted";
    assert_eq!(states.join(","), expected);
    let pending: Vec<u64> = journal.pending("java-4711").map(|pending| pending.id.0).collect();
    assert_eq!((pending, journal.pending("java-4000").count()), (vec![10, 12], 0));
    let claim = journal.pending("java-4711").next().unwrap().claim;
    assert_eq!((claim.before.pain_seconds_per_second, claim.promised_seconds_per_second), (0.5, 0.5));
    let in_doubt: Vec<_> = journal.in_doubt().map(|(action, doubt)| (action.id.0, doubt.job.0)).collect();
    assert_eq!(in_doubt, [(21, 1_795_300_000_000)]);
    let settings: Vec<_> =
        journal.settings().iter().map(|kept| (kept.action.0, kept.restore.as_deref().unwrap())).collect();
    assert_eq!(settings, [(14, "0"), (24, "4")]);
    let throttles: Vec<_> = journal.throttles().into_keys().map(|(_, name)| name).collect();
    assert_eq!(throttles, ["deletion", "heartbeat", "scrub"]);
    assert_eq!(journal.budget().unwrap().tokens_bytes, -5);
    let daily: DailyBytes = journal.events().state().get(super::batch::Kind::Agent, "daily_bytes").unwrap();
    assert_eq!(daily.sum("2026-11-22T07:00:00Z".parse().unwrap()), 123_456_789);
    let database = DatabaseIdentity { path: "/var/db/om".into(), inode: 4711 };
    let failures: Vec<u32> =
        journal.past_actions(&database).iter().map(|past| past.failures_in_a_row).collect();
    assert_eq!(failures, [0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let other = DatabaseIdentity { path: "/var/db/scm".into(), inode: 4712 };
    let now = "2026-11-22T06:45:07Z".parse().unwrap();
    assert_eq!(journal.samples.since_window_ns(&[other], now), Some(7_000_000_000));
    assert_eq!(journal.samples.since_window_ns(&[database], now), None, "something was wanted");
    assert_eq!(journal.events().events().len(), 73 + 4, "four actions were interrupted");
}

#[test]
fn what_the_first_release_has_written_is_read_and_nothing_is_done_twice() {
    let folder = left_by_first_release();
    let mut first = open(folder.path());
    check_first_release(&mut first);
    assert_eq!(first.take_interrupted_bytes(), 10_500);
    assert_eq!(first.take_interrupted().len(), 1);
    let stopped = first.action(ActionId(6)).unwrap();
    assert_eq!(stopped.state.outcome(), Some(Outcome::Aborted(Guard::Level0Files)));
    assert_eq!(stopped.pauses, 2);
    let pinned = first.action(ActionId(7)).unwrap().state.verification().unwrap().clone();
    assert_eq!(pinned.cause, Some(sexton_tuner::verify::Cause::PinnedBySnapshot));
    let end = first.action(ActionId(9)).unwrap().state.end().unwrap().clone();
    assert_eq!(
        (end.bytes_rewritten, end.snapshots, end.memtable_deletions_before),
        (8_000_000, Some(1), Some(200))
    );
    drop(first);
    let mut again = open(folder.path());
    check_first_release(&mut again);
    assert_eq!((again.take_interrupted_bytes(), again.take_interrupted().len()), (0, 0));
}

/// What was read of the first release says the same when it is written in this release's form.
#[test]
fn the_first_releases_actions_survive_being_written_anew() {
    let folder = left_by_first_release();
    let mut first = open(folder.path());
    let actions: Vec<Action> = first.actions().map(|listed| listed.action.clone()).collect();
    for action in &actions {
        first.change(action.id, |_| {});
    }
    drop(first);
    let second = open(folder.path());
    let again: Vec<Action> = second.actions().map(|listed| listed.action.clone()).collect();
    let without_doubt = |actions: Vec<Action>| -> Vec<Action> {
        // Since when it is in doubt is this run's own.
        actions.into_iter().filter(|action| action.id != ActionId(21)).collect()
    };
    assert_eq!(without_doubt(again), without_doubt(actions));
    assert!(second.is_in_doubt(&LIVING));
}
