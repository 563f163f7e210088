//! Properties of the controller, over any policy and any course of pressure.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::policy::TimeSpan;
use proptest::prelude::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// A daemon that takes what it is given, and the controller that gives it.
struct Plant {
    control: ControlPolicy,
    controller: Controller,
    in_force: Option<String>,
}

impl Plant {
    fn new(control: &ControlPolicy, in_force: Option<String>) -> Plant {
        Plant { control: control.clone(), controller: Controller::default(), in_force }
    }

    /// What is wanted now.
    fn ask(&mut self, second: i64, pressure: f64, ratio: f64) -> String {
        let pressure = Pressure { ratio: pressure, signals: Vec::new() };
        let in_force = self.in_force.as_deref();
        let situation = Situation { pressure: &pressure, ratio, in_force, now: at(second) };
        self.controller.step(&self.control, &situation);
        self.controller.wanted().unwrap().value.clone()
    }

    fn follow(&mut self, second: i64, pressure: f64, ratio: f64) -> i64 {
        let wanted = self.ask(second, pressure, ratio);
        self.in_force = Some(wanted.clone());
        SpeedRange::of(&self.control, ratio).speed(&wanted).unwrap()
    }
}

fn controls() -> impl Strategy<Value = ControlPolicy> {
    let number = prop_oneof![(0_u32..100_000).prop_map(f64::from), 0.0..1000.0, (0.0..0.01)];
    let shares = (0.01..=1.0, 0.0..0.5, 0_u64..200, 0_u64..600);
    (number.clone(), number, shares).prop_filter_map("the same", |(slowest, fastest, shares)| {
        let (step_ratio_max, hysteresis_ratio, interval, calm) = shares;
        (slowest != fastest).then(|| ControlPolicy {
            slowest,
            fastest,
            step_ratio_max,
            hysteresis_ratio,
            interval_min: TimeSpan::from_seconds(interval),
            calm: TimeSpan::from_seconds(calm),
        })
    })
}

/// Seconds until the next reading, pressure, whether a period is open, and whether what is wanted gets
/// into force.
fn courses() -> impl Strategy<Value = Vec<(i64, f64, bool, bool)>> {
    let pressure = prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0];
    proptest::collection::vec((0_i64..120, pressure, any::<bool>(), any::<bool>()), 1..60)
}

proptest! {
    /// It never leaves its bounds, never moves faster than allowed, and changes nothing while what it wants
    /// is not in force, but for bounds that have moved.
    #[test]
    fn it_keeps_to_its_bounds_and_its_pace(
        control in controls(),
        course in courses(),
        first in proptest::option::of(0.0..200_000.0),
        inside_ratio in 0.01..20.0,
    ) {
        let mut plant = Plant::new(&control, first.map(|first: f64| first.to_string()));
        let (mut second, mut changed): (i64, Option<i64>) = (0, None);
        for (pause, pressure, is_inside, is_taken) in course {
            second += pause;
            let ratio = if is_inside { inside_ratio } else { 1.0 };
            let range = SpeedRange::of(&control, ratio);
            let before = plant.in_force.as_deref().and_then(|value| range.speed(value));
            let held = plant.controller.wanted().and_then(|wanted| range.speed(&wanted.value));
            let is_under_way = plant.controller.is_grounded && held != before;
            let wanted = plant.ask(second, pressure, ratio);
            let speed = range.speed(&wanted).unwrap();
            prop_assert!((0..=range.greatest).contains(&speed), "{wanted} of {}", range.text(0));
            prop_assert_eq!(range.text(speed), wanted.clone(), "it is not read back as it is written");
            if let Some(before) = before {
                let step = ((control.step_ratio_max * range.greatest as f64) as i64).max(1);
                let is_within = (0..=range.greatest).contains(&before);
                if is_under_way {
                    prop_assert_eq!(Some(speed), held.map(|held| held.clamp(0, range.greatest)));
                } else if is_within && speed != before {
                    prop_assert!(speed.abs_diff(before) <= step.unsigned_abs());
                    let rested = changed.is_none_or(|at| second - at >= control.interval_min.duration().as_secs() as i64);
                    prop_assert!(rested, "{before} became {speed} too soon");
                }
            }
            if is_taken {
                plant.in_force = Some(wanted);
                changed = if before == Some(speed) { changed } else { Some(second) };
            }
        }
    }

    /// Under constant pressure it comes to rest where it belongs, up to its hysteresis; at either end
    /// exactly.
    #[test]
    fn it_converges_under_constant_pressure(
        control in controls(),
        pressure in prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0],
        first in 0.0..200_000.0_f64,
    ) {
        let mut plant = Plant::new(&control, Some(first.to_string()));
        let range = SpeedRange::of(&control, 1.0);
        let goal = range.at(pressure);
        let mut speeds = Vec::new();
        for cycle in 0..260 {
            speeds.push(plant.follow(cycle * 200, pressure, 1.0));
        }
        let (last, rest) = speeds.split_last().unwrap();
        let off = last.abs_diff(goal) as f64;
        prop_assert!(off <= control.hysteresis_ratio * range.greatest as f64, "{last} and not {goal}");
        prop_assert!((goal != 0 && goal != range.greatest) || *last == goal);
        prop_assert_eq!(rest[rest.len() - 10..].iter().find(|speed| *speed != last), None, "it does not rest");
        // It goes there and nowhere else, once it is within its bounds.
        let away = |pair: &[i64]| pair[1].abs_diff(goal) > pair[0].abs_diff(goal);
        prop_assert!(!speeds.windows(2).any(away), "{speeds:?}");
    }

    /// Pressure that comes and goes faster than the policy's calm makes it slow, and nothing else.
    #[test]
    fn it_does_not_oscillate_under_a_square_wave(
        control in controls(),
        half_seconds in 1_i64..600,
        high in 0.1..=1.0,
        cycle_seconds in 1_i64..30,
    ) {
        let calm = i64::try_from(control.calm.duration().as_secs()).unwrap();
        let mut plant = Plant::new(&control, Some(control.fastest.to_string()));
        let mut speeds = Vec::new();
        for cycle in 0..600 {
            let second = cycle * cycle_seconds;
            let is_high = second / half_seconds % 2 == 0;
            speeds.push(plant.follow(second, if is_high { high } else { 0.0 }, 1.0));
        }
        let turns = speeds.windows(2).map(|pair| (pair[1] - pair[0]).signum()).filter(|sign| *sign != 0);
        let mut turns: Vec<i64> = turns.collect();
        turns.dedup();
        // Readings are a cycle apart: of a faster wave they show another one. The last high one that was read
        // may be a cycle before the end of its half, the next one a cycle after the beginning of its own.
        if cycle_seconds <= half_seconds && half_seconds + 2 * cycle_seconds <= calm {
            prop_assert!(turns.iter().all(|turn| *turn < 0), "{speeds:?}");
        }
        let halves = 600 * cycle_seconds / half_seconds + 1;
        prop_assert!(turns.len() as i64 <= halves, "{} turns in {halves} halves", turns.len());
    }
}

#[test]
fn a_limit_that_is_not_zero_is_never_zero() {
    let control = ControlPolicy {
        slowest: 1.0,
        fastest: 10.0,
        step_ratio_max: 1.0,
        hysteresis_ratio: 0.0,
        interval_min: TimeSpan::from_seconds(0),
        calm: TimeSpan::from_seconds(0),
    };
    let mut plant = Plant::new(&control, Some("10".into()));
    assert_eq!(plant.ask(0, 1.0, 0.1), "1");
    // A pause between requests is longest where it is slowest.
    let pause = ControlPolicy { slowest: 2.0, fastest: 0.0, ..control };
    let mut plant = Plant::new(&pause, Some("0.000000".into()));
    assert_eq!((plant.ask(0, 0.0, 1.0), plant.ask(1, 1.0, 1.0)), ("0".to_owned(), "2".to_owned()));
}
