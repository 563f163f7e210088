//! Histories in directories of their own; an agent that ends is one that is dropped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
use super::owed::VERIFY_WINDOWS_MAX;
use super::*;
use crate::engine::options::Wish;
use sexton_tuner::daily::DailyBytes;
use sexton_tuner::key::Key;
use sexton_tuner::policy::Policy;
use sexton_tuner::rank::RangeAssessment;
use sexton_tuner::schedule::{BudgetBucket, io_budget_at};
use sexton_tuner::throttle::{ThrottleSetting, ThrottleState};
use std::path::Path;

fn open(directory: &Path) -> History {
    History::new(Chronicle::open(Some(directory), None).unwrap())
}

fn nowhere() -> History {
    History::new(Chronicle::open(None, None).unwrap())
}

/// This test's own process: it lives as long as the test.
fn own() -> ProcessId {
    sexton_inspect::process::process_id(std::process::id()).unwrap()
}

fn identity(inode: u64) -> DatabaseIdentity {
    DatabaseIdentity { path: "/db".into(), inode }
}

fn begun(prefix: &str) -> Begun {
    let range = KeyRange::with_prefix(Key::new(prefix));
    let view = ActionView {
        action: "compact_range".into(),
        target: "java-1".into(),
        subject: "keyTable".into(),
        cost_bytes: 1_000,
        ..ActionView::default()
    };
    let place = Place { database: identity(1), column_family: "keyTable".into(), range };
    Begun { view, process: own(), place: Some(place), option: None }
}

fn before() -> RangeAssessment {
    serde_json::from_value(serde_json::json!({
        "target": "java-1", "database": "/db", "column_family": "default",
        "range": { "begin": "", "end": null }, "operations_per_second": 1.0, "tombstones_per_seek": 1.0,
        "memtable_tombstones_per_seek": 0.0, "misses_per_seek": 0.0, "size_bytes": 1, "entries": 1,
        "deletions": 1, "density": 1.0, "pain_seconds_per_second": 1.0,
        "relief_seconds_per_second": 1.0, "cost_bytes": 1, "relief_per_byte": 1.0, "reason": ""
    }))
    .unwrap()
}

fn done(history: &mut History, prefix: &str) -> u64 {
    let id = history.begin(begun(prefix)).unwrap();
    history.end(id, true, |action| action.state = "done".into());
    id
}

fn names(history: &History) -> Vec<&'static str> {
    history.chronicle().events().iter().map(|event| event.what.name()).collect()
}

#[test]
fn only_the_newest_actions_are_kept() {
    let mut history = nowhere();
    for _ in 0..ACTIONS_STORED_MAX + 10 {
        history.begin(begun("a/")).unwrap();
    }
    let actions = history.actions();
    assert_eq!(actions.len(), ACTIONS_KEPT_MAX);
    assert_eq!(actions.first().map(|action| action.id), Some(ACTIONS_STORED_MAX as u64 + 10));
    assert_eq!(history.actions.len(), ACTIONS_STORED_MAX);
}

#[test]
fn a_measurement_is_not_owed_for_ever() {
    let mut history = nowhere();
    let id = done(&mut history, "a/");
    history.owe(id, before());
    let mut windows = 0;
    while let Some(owed) = history.due("java-1").pop() {
        windows += 1;
        if !history.postpone(owed) {
            break;
        }
    }
    assert_eq!(windows, VERIFY_WINDOWS_MAX + 1);
    assert!(!history.owes("java-1"));
    assert!(history.past_actions(&identity(1)).iter().all(|past| !past.awaits_verdict));
}

#[test]
fn what_was_done_and_what_is_owed_outlives_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let id = done(&mut first, "a/");
    first.owe(id, before());
    let slow = ThrottleState { value: Some("slow".into()), ..ThrottleState::default() };
    first.keep_throttle(&scrub(own()), &slow);
    let gone = ProcessId { start_time_ticks: 1, ..own() };
    first.keep_throttle(&ThrottleKey { target: "java-0".into(), ..scrub(gone) }, &slow);
    let bucket = BudgetBucket { tokens_bytes: -5, refilled_at: jiff::Timestamp::UNIX_EPOCH };
    first.keep_budget(&bucket);
    drop(first);

    let mut second = open(folder.path());
    let action = second.actions().remove(0);
    assert_eq!((action.id, action.state.as_str(), action.is_earlier), (id, "done", true));
    assert!(second.owes("java-1"), "its target still lives");
    assert!(second.past_actions(&identity(1)).iter().all(|past| past.awaits_verdict));
    assert_eq!(second.budget(), Some(bucket));
    let throttles = second.throttles();
    assert_eq!(throttles.len(), 1, "those of ended processes are forgotten: {throttles:?}");
    assert_eq!(done(&mut second, "b/"), id + 1, "counting goes on");
    let waiting: Vec<bool> =
        second.past_actions(&identity(1)).iter().map(|past| past.awaits_verdict).collect();
    assert_eq!(waiting, [true, false], "nothing was promised of the second one");
    assert!(second.past_actions(&identity(2)).is_empty(), "another database at the same path");
}

fn scrub_setting() -> ThrottleSetting {
    ThrottleSetting {
        name: "scrub".into(),
        value: "slow".into(),
        command: vec!["set".into(), "slow".into()],
        get: None,
        timeout: sexton_tuner::policy::TimeSpan::from_seconds(1),
        reason: String::new(),
    }
}

fn scrub(process: ProcessId) -> ThrottleKey {
    ThrottleKey { process, target: "java-1".into(), name: "scrub".into() }
}

/// Begins the action of a throttle, whose first try fails.
fn failing(history: &mut History, key: &ThrottleKey) -> (u64, ThrottleState) {
    let view = ActionView { action: "set_throttle".into(), target: "java-1".into(), ..ActionView::default() };
    let id = history.begin(Begun { view, process: key.process, place: None, option: None }).unwrap();
    let mut known = ThrottleState::default();
    assert!(known.fail(id, &scrub_setting(), "exit code 3".into(), jiff::Timestamp::now()));
    history.fail_throttle(key, &known, true);
    (id, known)
}

#[test]
fn a_throttle_that_fails_is_one_action_until_it_is_set_over_restarts_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let key = scrub(own());
    let (id, mut known) = failing(&mut first, &key);
    for _ in 0..3 {
        let is_news = known.fail(id, &scrub_setting(), "exit code 3".into(), jiff::Timestamp::now());
        first.fail_throttle(&key, &known, is_news);
    }
    drop(first);

    let mut second = open(folder.path());
    let known = second.throttles().remove(&("java-1".to_owned(), "scrub".to_owned())).unwrap();
    assert_eq!(known.failure.as_ref().unwrap().retry.failures_in_a_row, 4, "its pause outlives the agent");
    let action = second.actions().remove(0);
    assert_eq!((action.state.as_str(), action.failures, action.ended_at.clone()), ("failing", 4, None));
    assert!(action.outcome.contains("exit code 3; failed 4 times, tried again after"), "{}", action.outcome);
    assert!(second.is_open(id));
    let in_force = ThrottleState { value: Some("slow".into()), ..ThrottleState::default() };
    second.end_throttle(&key, &in_force, id, ("done", "it is set".into()), 1.0);
    drop(second);

    let mut third = open(folder.path());
    let actions = third.actions();
    assert_eq!(actions.len(), 1);
    assert_eq!(
        (actions[0].state.as_str(), actions[0].outcome.as_str()),
        ("done", "it is set, after 4 failures")
    );
    assert!(third.throttles().values().all(|known| *known == in_force));
    assert_eq!(names(&third), ["slice_started", "throttle_failed", "slice_done"]);
}

#[test]
fn a_throttle_that_failed_in_a_process_that_has_ended_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let gone = ProcessId { start_time_ticks: 1, ..own() };
    failing(&mut open(folder.path()), &scrub(gone));
    let mut second = open(folder.path());
    assert_eq!(second.actions().remove(0).state, "interrupted");
    assert!(second.throttles().is_empty());
}

/// What an agent was told by a target that lies about its files, and wrote down, keeps no later agent from acting.
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
    let action = second.actions().remove(0);
    assert_eq!((action.id, action.state.as_str(), action.is_earlier), (id, "interrupted", false));
    assert!(action.ended_at.is_some());
    let past = second.past_actions(&identity(1));
    assert_eq!(past.len(), 1, "its cooldown counts");
    assert!(past.iter().all(|past| !past.awaits_verdict), "nobody will measure it");
    assert_eq!((second.take_interrupted_bytes(), second.take_interrupted_bytes()), (1_000, 0));
    assert_eq!(second.take_interrupted(), [(own(), "/db".into())]);
    assert!(second.take_interrupted().is_empty());
    drop(second);
    let mut third = open(folder.path());
    assert_eq!(third.take_interrupted_bytes(), 0);
    assert_eq!(third.actions().len(), 1);
    assert_eq!(names(&third), ["slice_started", "interrupted"]);
}

/// The hook may know what became of it: it has no end until the hook was asked, over however many runs.
#[test]
fn an_action_that_the_hook_may_know_of_waits_for_its_word() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let id = first.begin(begun("a/")).unwrap();
    first.note_job(Some(4711));
    drop(first);
    drop(open(folder.path()));
    let mut third = open(folder.path());
    let unsettled: Vec<_> = third.unsettled().iter().map(|it| (it.id, it.process, it.job)).collect();
    assert_eq!(unsettled, [(id, own(), 4711)]);
    assert!(third.is_unsettled(&own()) && third.actions().remove(0).ended_at.is_none());
    assert_eq!(third.take_interrupted_bytes(), 0);
    third.end_earlier(id, true, |action| action.state = "done".into());
    assert!(third.unsettled().is_empty());
    assert_eq!(third.take_interrupted_bytes(), 1_000, "what it may have rewritten is paid for once");
    assert_eq!(third.past_actions(&identity(1)).len(), 1, "its cooldown counts");
    drop(third);
    let mut fourth = open(folder.path());
    assert!(fourth.unsettled().is_empty() && fourth.take_interrupted_bytes() == 0);
    assert_eq!(names(&fourth), ["slice_started", "slice_done"]);
}

#[test]
fn what_no_hook_was_asked_about_is_interrupted_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    first.begin(begun("a/")).unwrap();
    first.note_job(Some(4711));
    drop(first);
    let mut second = open(folder.path());
    second.interrupt_unsettled();
    assert!(second.unsettled().is_empty());
    drop(second);
    assert_eq!(names(&open(folder.path())), ["slice_started", "interrupted"]);
}

/// A part's end is not the action's, and a process that is gone has no hook.
#[test]
fn parts_and_processes_that_are_gone_are_interrupted_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    first.begin(begun("a/")).unwrap();
    first.note_job(Some(4711));
    first.note_job(None);
    let gone = ProcessId { start_time_ticks: 1, ..own() };
    first.begin(Begun { process: gone, ..begun("b/") }).unwrap();
    first.note_job(Some(4712));
    drop(first);
    let second = open(folder.path());
    assert!(second.unsettled().is_empty());
    assert!(second.actions().iter().all(|action| action.state == "interrupted"));
}

#[test]
fn failures_add_up_and_help_ends_them() {
    let mut history = nowhere();
    let mut verdict = |prefix: &str, helped: bool| {
        let id = done(&mut history, prefix);
        let owed = Owed::new(id, before(), Duration::ZERO);
        history.settle(&owed, helped, "so", |action| action.state = "helped".into());
        let past = history.past_actions(&identity(1));
        (past.last().unwrap().helped, past.last().unwrap().failures_in_a_row)
    };
    assert_eq!(verdict("a/", false), (Some(false), 1));
    assert_eq!(verdict("a/", false), (Some(false), 2));
    assert_eq!(verdict("b/", false), (Some(false), 1), "another range");
    assert_eq!(verdict("a/", true), (Some(true), 0));
    assert_eq!(verdict("a/", false), (Some(false), 1));
    let backed_off = names(&history).into_iter().filter(|name| *name == "backed_off");
    assert_eq!(backed_off.count(), 4);
}

fn option() -> OptionRecord {
    serde_json::from_value(serde_json::json!({
        "action_id": 0, "target": "java-1", "process": own(), "database": identity(1),
        "column_family": "keyTable", "name": "trigger", "value": "1000", "restore": "0"
    }))
    .unwrap()
}

/// An agent that is killed after it wrote that it would set an option, and before or after it did.
#[test]
fn an_option_is_remembered_from_before_it_is_set_until_it_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = open(folder.path());
    let id = first.begin(Begun { option: Some(option()), ..begun("a") }).unwrap();
    drop(first);
    let mut second = open(folder.path());
    let left = second.options().records().to_vec();
    assert_eq!(left.iter().map(|record| record.action_id).collect::<Vec<_>>(), [id]);
    assert!(left.iter().all(|record| matches!(record.wish, Wish::PutBack(_))));
    second.end_option(&left[0], "0", "so");
    assert!(second.options().records().is_empty());
    assert_eq!(names(&second).last(), Some(&"options_restored"));
    drop(second);
    assert!(open(folder.path()).options().records().is_empty());
}

#[test]
fn an_option_that_did_not_help_or_was_not_taken_is_not_kept() {
    let mut history = nowhere();
    let keep = Wish::Keep;
    let kept = || OptionRecord { wish: keep, ..option() };
    let id = history.begin(Begun { option: Some(kept()), ..begun("a") }).unwrap();
    history.tell_option_set(id);
    assert_eq!(names(&history).last(), Some(&"options_set"));
    history.end(id, true, |action| action.state = "done".into());
    history.owe(id, before());
    let owed = history.due("java-1").pop().unwrap();
    history.settle(&owed, false, "so", |_| {});
    assert!(history.options().records().iter().all(|record| record.wish != keep));
    let left = history.options().records().to_vec();
    history.end_option(&left[0], "0", "so");

    let id = history.begin(Begun { option: Some(kept()), ..begun("b") }).unwrap();
    history.forget_option(id);
    assert!(history.options().records().is_empty());
}

/// A flush that did not help says nothing about a compaction.
#[test]
fn failures_are_counted_by_kind_of_action() {
    let mut history = nowhere();
    let mut fails = |action: &str| {
        let mut begun = begun("a");
        begun.view.action = action.into();
        let id = history.begin(begun).unwrap();
        history.end(id, true, |action| action.state = "done".into());
        history.owe(id, before());
        let owed = history.due("java-1").pop().unwrap();
        history.settle(&owed, false, "so", |_| {});
        history.past_actions(&identity(1)).last().unwrap().failures_in_a_row
    };
    assert_eq!((fails("flush"), fails("compact_range"), fails("flush")), (1, 1, 2));
}

/// Every record of a store that the first release has left: key, space, JSON. `{"pid":1,"start_time_ticks":1}` stands for a
/// process that lives.
const FIRST_RELEASE: &str = include_str!("../../../journal/tests/schema_1.records");

/// A state directory as the first release has left it.
fn left_by_first_release() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = rust_rocksdb::DB::open_default(folder.path().join("store")).unwrap();
    let living = serde_json::to_string(&own()).unwrap();
    for line in FIRST_RELEASE.replace(r#"{"pid":1,"start_time_ticks":1}"#, &living).lines() {
        let (key, value) = line.split_once(' ').unwrap();
        store.put(key, value).unwrap();
    }
    folder
}

#[test]
fn what_the_first_release_has_written_is_read_and_nothing_is_done_twice() {
    let folder = left_by_first_release();
    let mut history = open(folder.path());
    let states: Vec<String> =
        history.actions().iter().rev().map(|it| format!("{} {}", it.action, it.state)).collect();
    let expected = "compact_range interrupted,flush interrupted,compact_range skipped,compact_range failed,\
        compact_range cancelled,compact_range stopped,compact_range did_not_help,compact_range did_not_help,\
        compact_range helped,compact_range done,compact_range done,flush done,flush failed,set_options done,\
        set_options done,set_options failed,set_throttle done,set_throttle failing,set_throttle interrupted,\
        set_throttle failed,compact_range running,compact_range interrupted,flush interrupted,\
        set_options interrupted";
    assert_eq!(states.join(","), expected);
    let due: Vec<u64> = history.due("java-4711").iter().map(|owed| owed.id).collect();
    assert_eq!((due, history.owes("java-4000")), (vec![12, 10], false));
    let unsettled: Vec<_> = history.unsettled().iter().map(|it| (it.id, it.job)).collect();
    assert_eq!(unsettled, [(21, 1_795_300_000_000)]);
    let options: Vec<_> =
        history.options().records().iter().map(|it| (it.action_id, it.restore.as_str())).collect();
    assert_eq!(options, [(14, "0"), (24, "4")]);
    let throttles: Vec<_> = history.throttles().into_keys().map(|(_, name)| name).collect();
    assert_eq!(throttles, ["deletion", "heartbeat", "scrub"]);
    assert_eq!(history.budget().unwrap().tokens_bytes, -5);
    assert_eq!(history.take_interrupted_bytes(), 10_500);
    assert_eq!(history.take_interrupted().len(), 1);
    let database = DatabaseIdentity { path: "/var/db/om".into(), inode: 4711 };
    let failures: Vec<u32> =
        history.past_actions(&database).iter().map(|past| past.failures_in_a_row).collect();
    assert_eq!(failures, [0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let other = DatabaseIdentity { path: "/var/db/scm".into(), inode: 4712 };
    let now = "2026-11-22T06:45:07Z".parse().unwrap();
    assert_eq!(history.surveys.since_window_ns(&[other], now), Some(7_000_000_000));
    assert_eq!(history.surveys.since_window_ns(&[database], now), None, "something was wanted");
    assert_eq!(history.chronicle().events().len(), 73 + 4, "four actions were interrupted");
    drop(history);
    let mut again = open(folder.path());
    assert_eq!((again.chronicle().events().len(), again.take_interrupted_bytes()), (73 + 4, 0));
}
