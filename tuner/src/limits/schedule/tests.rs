//! Periods against tables made by hand, and what must hold for all of them.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use proptest::prelude::*;

fn policy(periods: &str) -> Policy {
    Policy::parse(&format!("io_budget: {{ rate: 10B/s, burst: 100B }}\nschedule: [{periods}]")).unwrap()
}

fn period(fields: &str) -> Period {
    policy(&format!("{{ name: p, {fields} }}")).schedule.remove(0)
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn is_open(period: &Period, now: &str) -> bool {
    period.is_open(at(now), 0)
}

/// Open from the first to before the second.
fn assert_span(period: &Period, opens: &str, closes: &str) {
    let before = |text: &str| at(text) - jiff::SignedDuration::from_secs(1);
    assert!(!period.is_open(before(opens), 0) && is_open(period, opens), "{period:?} opens at {opens}");
    assert!(period.is_open(before(closes), 0) && !is_open(period, closes), "{period:?} closes at {closes}");
}

#[test]
fn a_period_inside_a_day() {
    let period = period("time_zone: UTC, from: '01:00', to: '02:00'");
    assert_span(&period, "2026-11-20T01:00:00Z", "2026-11-20T02:00:00Z");
    assert_span(&period, "2026-11-21T01:00:00Z", "2026-11-21T02:00:00Z");
}

#[test]
fn a_day_names_the_evening_of_a_period_across_midnight() {
    // 2026-11-20 is a Friday.
    let period = period("time_zone: UTC, from: '22:00', to: '05:00', days: [fri]");
    assert_span(&period, "2026-11-20T22:00:00Z", "2026-11-21T05:00:00Z");
    assert!(!is_open(&period, "2026-11-21T23:00:00Z") && !is_open(&period, "2026-11-20T04:00:00Z"));
    assert_span(&period, "2026-11-27T22:00:00Z", "2026-11-28T05:00:00Z");
}

/// The nights on which the clocks change, in five zones: from, to, and the hours that they are open.
#[test]
fn nights_on_which_the_clocks_change() {
    let nights = [
        // Berlin: forward from 02:00 to 03:00, back from 03:00 to 02:00.
        ("Europe/Berlin", "22:00", "05:00", "2026-03-28T21:00:00Z", "2026-03-29T03:00:00Z"),
        ("Europe/Berlin", "22:00", "05:00", "2026-10-24T20:00:00Z", "2026-10-25T04:00:00Z"),
        // 02:30 does not exist that day: it opens at 03:30 +02:00.
        ("Europe/Berlin", "02:30", "04:00", "2026-03-29T01:30:00Z", "2026-03-29T02:00:00Z"),
        // New York: forward on the second Sunday of March, back on the first of November.
        ("America/New_York", "00:00", "06:00", "2026-03-08T05:00:00Z", "2026-03-08T10:00:00Z"),
        ("America/New_York", "00:00", "06:00", "2026-11-01T04:00:00Z", "2026-11-01T11:00:00Z"),
        // 01:30 exists twice: it closes the first time.
        ("America/New_York", "00:00", "01:30", "2026-11-01T04:00:00Z", "2026-11-01T05:30:00Z"),
        // Lord Howe Island: by half an hour.
        ("Australia/Lord_Howe", "22:00", "04:00", "2026-10-03T11:30:00Z", "2026-10-03T17:00:00Z"),
        ("Australia/Lord_Howe", "22:00", "04:00", "2026-04-04T11:00:00Z", "2026-04-04T17:30:00Z"),
        // Beirut: forward at midnight, which does not exist then.
        ("Asia/Beirut", "00:00", "03:00", "2026-03-28T22:00:00Z", "2026-03-29T00:00:00Z"),
        // Kolkata: never.
        ("Asia/Kolkata", "22:00", "05:00", "2026-03-28T16:30:00Z", "2026-03-28T23:30:00Z"),
    ];
    for (zone, from, to, opens, closes) in nights {
        assert_span(&period(&format!("time_zone: {zone}, from: '{from}', to: '{to}'")), opens, closes);
    }
}

#[test]
fn whole_days_by_their_dates() {
    let freeze = period("time_zone: UTC, dates: [2026-12-24, 2026-12-31]");
    assert_span(&freeze, "2026-12-24T00:00:00Z", "2026-12-25T00:00:00Z");
    assert!(!is_open(&freeze, "2026-12-26T12:00:00Z") && is_open(&freeze, "2026-12-31T12:00:00Z"));
    let nights = period("time_zone: UTC, from: '22:00', to: '05:00', except: [2026-12-24]");
    assert!(!is_open(&nights, "2026-12-24T23:00:00Z") && !is_open(&nights, "2026-12-25T04:00:00Z"));
    assert!(is_open(&nights, "2026-12-24T04:00:00Z") && is_open(&nights, "2026-12-25T23:00:00Z"));
}

#[test]
fn jitter_opens_later_by_node_and_day_and_never_after_it() {
    let period = period("time_zone: UTC, from: '01:00', to: '02:00', jitter: 30m");
    let date = |day| jiff::civil::date(2026, 11, day);
    let opening = |day, node| period.span_of(date(day), node).unwrap().opens.as_second();
    let delays: Vec<i64> =
        (0..200).map(|node| opening(20, node) - at("2026-11-20T01:00:00Z").as_second()).collect();
    assert!(delays.iter().all(|delay| (0..30 * 60).contains(delay)), "{delays:?}");
    // Spread over the half hour, not all in one corner of it.
    for third in 0..3 {
        let inside = delays.iter().filter(|delay| (third * 600..(third + 1) * 600).contains(*delay)).count();
        assert!((40..95).contains(&inside), "{inside} of 200 in third {third}");
    }
    assert_ne!(opening(21, 1) - opening(20, 1), 86_400);
    assert_eq!(opening(20, 1), opening(20, 1));
}

#[test]
fn the_first_open_period_that_gives_a_value_decides_it() {
    let policy = policy(
        "{ name: freeze, time_zone: UTC, dates: [2026-12-24], mode: observe },
         { name: night, time_zone: UTC, from: '01:00', to: '05:00', mode: act, io_budget_ratio: 4, pain: 1ms/s,
           guards: { latency_ratio_max: 5 } },
         { name: day, time_zone: UTC, io_budget: { rate: 1B/s, burst: 2B }, ranker: density, pain: 9ms/s,
           guards: { latency_ratio_max: 3, compactions_per_device_max: 2 } }",
    );
    let values = policy.at(at("2026-12-24T02:00:00Z"), 0);
    assert_eq!(values.open_periods, ["freeze", "night", "day"]);
    assert_eq!(values.mode, crate::policy::Mode::Observe);
    assert_eq!((values.io_budget.rate.bytes_per_second(), values.io_budget.burst.bytes()), (40, 400));
    assert_eq!(values.thresholds.pain, policy.schedule[1].pain.unwrap());
    assert_eq!((values.guards.latency_ratio_max, values.guards.compactions_per_device_max), (5.0, 2));
    assert_eq!(values.ranker, crate::policy::RankerKind::Density);
    let values = policy.at(at("2026-12-23T12:00:00Z"), 0);
    assert_eq!(values.open_periods, ["day"]);
    assert_eq!((values.mode, values.io_budget.burst.bytes()), (policy.mode, 2));
}

#[test]
fn a_target_that_does_more_than_the_period_does_less() {
    let text = "
targets:
  - { name: eager, match: { pid: 1 }, mode: act }
  - { name: shy, match: { pid: 2 }, mode: observe }
  - { name: other, match: { pid: 3 } }
schedule:
  - { name: night, time_zone: UTC, from: '01:00', to: '02:00', mode: act }
  - { name: freeze, time_zone: UTC, from: '03:00', to: '04:00', mode: advise }
";
    let modes = |now: &str| {
        let values = Policy::parse(text).unwrap().at(at(now), 0);
        values.targets.iter().map(|target| values.mode_of(target)).collect::<Vec<_>>()
    };
    use crate::policy::Mode::{Act, Advise, Observe};
    assert_eq!(modes("2026-11-20T00:00:00Z"), [Act, Observe, Advise]);
    assert_eq!(modes("2026-11-20T01:00:00Z"), [Act, Observe, Act]);
    assert_eq!(modes("2026-11-20T03:00:00Z"), [Advise, Observe, Advise]);
}

#[test]
fn changes_of_a_week() {
    let policy = policy(
        "{ name: night, time_zone: UTC, from: '22:00', to: '05:00', days: [mon], io_budget_ratio: 2 },
         { name: nothing, time_zone: UTC, from: '10:00', to: '11:00' }",
    );
    // The second period says nothing of budgets, but throttles follow it, so it is a change as well.
    let found = changes(&policy, at("2026-11-23T12:00:00Z"), at("2026-11-24T23:00:00Z"), 0);
    let times: Vec<String> = found.iter().map(|change| change.at.to_string()).collect();
    let expected =
        ["2026-11-23T22:00:00Z", "2026-11-24T05:00:00Z", "2026-11-24T10:00:00Z", "2026-11-24T11:00:00Z"];
    assert_eq!(times, expected);
    assert!(changes(&Policy::default(), Timestamp::MIN, Timestamp::MAX, 0).is_empty());
}

#[test]
fn the_end_of_time_is_no_panic() {
    let policy =
        policy("{ name: p, time_zone: Pacific/Kiritimati, from: '22:00', to: '05:00', days: [mon] }");
    for now in [Timestamp::MAX, Timestamp::MIN] {
        let _ = policy.at(now, 0);
        let _ = changes(&policy, now, Timestamp::MAX, 0);
    }
}

fn any_period() -> impl Strategy<Value = Period> {
    let zones =
        ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "Asia/Kolkata"];
    let zone = proptest::sample::select(zones.to_vec());
    let days = proptest::sample::select(vec!["", "days: [sat, sun],", "dates: [2026-03-29, 2026-10-25],"]);
    (zone, 0u8..24, 0u8..60, 0u8..24, 0u8..60, days).prop_map(
        |(zone, hour, minute, to_hour, to_minute, days)| {
            period(&format!(
                "time_zone: {zone}, {days} from: '{hour:02}:{minute:02}', to: '{to_hour:02}:{to_minute:02}'"
            ))
        },
    )
}

proptest! {
    /// The list of changes and the question whether it is open say the same at every instant.
    #[test]
    fn no_instant_is_both_in_and_out(
        period in any_period(),
        day in 0i64..365,
        probes in proptest::collection::vec(0i64..4 * 86_400, 1..40),
    ) {
        let policy = Policy { schedule: vec![period.clone()], ..Policy::default() };
        let begin = at("2026-01-01T00:00:00Z").as_second() + day * 86_400;
        let moment = |second: i64| Timestamp::from_second(second).unwrap();
        let found = changes(&policy, moment(begin), moment(begin + 4 * 86_400), 0);
        let mut was_open = period.is_open(moment(begin), 0);
        for change in &found {
            let is_open = !change.policy.open_periods.is_empty();
            prop_assert_ne!(was_open, is_open);
            was_open = is_open;
        }
        for probe in probes {
            let now = moment(begin + probe);
            let last = found.iter().rev().find(|change| change.at <= now);
            let listed =
                last.map_or(period.is_open(moment(begin), 0), |change| !change.policy.open_periods.is_empty());
            prop_assert_eq!(period.is_open(now, 0), listed, "{} {:?}", now, period);
        }
    }
}
