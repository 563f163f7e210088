//! The controller of a throttle: which number it should have now, by pressure and schedule.
//!
//! It counts in speed: 0 is the slowest number that the policy allows now, and the greatest speed the fastest
//! one, whichever of the two numbers is the greater. A speed is a whole number of steps of the last digit
//! that is written, so that what is read back is what was set.

use super::pressure::Pressure;
use crate::policy::ControlPolicy;
use jiff::Timestamp;

/// Significant digits of the range that a number which is not whole is written with.
const DIGITS: i32 = 4;
/// Most digits behind the point.
const DECIMALS_MAX: i32 = 9;
/// Digits that a number has in all, before it is multiplied by as much as a thousand: beyond 15 a float
/// cannot tell it from its neighbours.
const DIGITS_MAX: i32 = 12;

/// A throttle's number over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controller {
    wanted: Option<WantedValue>,
    /// Whether it follows from what was in force, and not from pressure alone.
    is_grounded: bool,
    /// Whether it is another number than the one that was in force, and has not got there yet.
    is_pending: bool,
    /// When a number last got into force that was wanted.
    changed: Option<Timestamp>,
    peak: Peak,
}

/// The number that is wanted, as it is written, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedValue {
    pub value: String,
    /// Why, in words.
    pub reason: String,
}

/// What a number is made of.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub pressure: &'a Pressure,
    /// What the range is multiplied by now.
    pub ratio: f64,
    /// The value in force, where it is known.
    pub in_force: Option<&'a str>,
    pub now: Timestamp,
}

impl Controller {
    /// The number that is wanted, if any was asked for yet.
    pub fn wanted(&self) -> Option<&WantedValue> {
        self.wanted.as_ref()
    }

    /// Takes in what is known now.
    pub fn step(&mut self, control: &ControlPolicy, situation: &Situation<'_>) {
        let range = SpeedRange::of(control, situation.ratio);
        let peak = self.peak.take(situation.pressure.ratio, control, situation.now);
        let wanted = self.wanted.as_ref().and_then(|wanted| range.speed(&wanted.value));
        let in_force = situation.in_force.and_then(|value| range.speed(value));
        let is_there = in_force.is_some() && wanted == in_force;
        if self.is_pending && is_there {
            (self.is_pending, self.changed) = (false, Some(situation.now));
        }
        let (speed, why) = match (in_force, wanted) {
            // Nothing tells where it stands: it is set to where it belongs.
            (None, None) => {
                self.is_pending = true;
                (range.at(peak), "; what is in force is not known yet".to_owned())
            }
            // What is wanted is waited for, where it is still allowed.
            (held, Some(wanted)) if held.is_none() || self.is_grounded && !is_there => {
                if (0..=range.greatest).contains(&wanted) {
                    return;
                }
                (wanted.clamp(0, range.greatest), "; the bounds have moved".to_owned())
            }
            (in_force, _) => {
                let (speed, why) = self.next(control, &range, in_force.unwrap_or_default(), peak, situation);
                self.is_grounded = true;
                self.is_pending = Some(speed) != in_force;
                (speed, why)
            }
        };
        let value = range.text(speed);
        let reason = format!("pressure {}{why}", situation.pressure.in_words());
        self.wanted = Some(WantedValue { value, reason });
    }

    /// The speed after `current`, and what keeps it from where it belongs.
    fn next(
        &self,
        control: &ControlPolicy,
        range: &SpeedRange,
        current: i64,
        peak: f64,
        situation: &Situation<'_>,
    ) -> (i64, String) {
        let greatest = range.greatest;
        if !(0..=greatest).contains(&current) {
            return (current.clamp(0, greatest), "; what was in force is beyond the bounds".to_owned());
        }
        let (by_now, by_peak) = (range.at(situation.pressure.ratio), range.at(peak));
        let goal = if by_now < current { by_now } else { by_peak.max(current) };
        let waits = |why: &str| (current, format!("; {} {why}", range.text(goal)));
        let distance = goal.saturating_sub(current);
        let is_small = (distance.unsigned_abs() as f64) < control.hysteresis_ratio * greatest as f64;
        if distance == 0 {
            let is_held = by_now > current;
            let held = format!("; pressure was {peak:.2} of late, and has to be less for {}", control.calm);
            return (current, if is_held { held } else { String::new() });
        }
        if is_small && goal != 0 && goal != greatest {
            return waits("is within the hysteresis");
        }
        let rests = self.changed.is_some_and(|changed| {
            let since = situation.now.duration_since(changed);
            !since.is_negative() && since.unsigned_abs() < control.interval_min.duration()
        });
        if rests {
            return waits(&format!("waits: the last change was less than {} ago", control.interval_min));
        }
        let step = ((control.step_ratio_max * greatest as f64).floor() as i64).max(1);
        let why = if distance.abs() > step {
            format!("; {} step by step", range.text(goal))
        } else {
            String::new()
        };
        (current.saturating_add(distance.clamp(-step, step)), why)
    }
}

/// The numbers that are allowed now.
struct SpeedRange {
    /// The slowest one, in steps of the last digit.
    slowest: i64,
    /// What a greater speed does to the number: 1 or -1.
    direction: i64,
    /// The fastest one's speed.
    greatest: i64,
    decimals: i32,
}

impl SpeedRange {
    fn of(control: &ControlPolicy, ratio: f64) -> SpeedRange {
        let decimals = decimals(control);
        let border = |number: f64| {
            let steps = in_steps(number * ratio, decimals);
            // For many a daemon 0 means that there is no limit.
            if steps == 0 && number != 0.0 { 1 } else { steps }
        };
        let (slowest, fastest) = (border(control.slowest), border(control.fastest));
        let direction = if fastest >= slowest { 1 } else { -1 };
        SpeedRange { slowest, direction, greatest: fastest.abs_diff(slowest).cast_signed(), decimals }
    }

    fn at(&self, pressure: f64) -> i64 {
        (self.greatest as f64 * (1.0 - pressure.clamp(0.0, 1.0))).round() as i64
    }

    /// The speed of a number that was read; `None` where it is none.
    fn speed(&self, value: &str) -> Option<i64> {
        let number = value.trim().parse::<f64>().ok().filter(|number| number.is_finite())?;
        Some(in_steps(number, self.decimals).saturating_sub(self.slowest).saturating_mul(self.direction))
    }

    fn text(&self, speed: i64) -> String {
        let steps = self.slowest.saturating_add(speed.saturating_mul(self.direction));
        if self.decimals == 0 {
            return steps.to_string();
        }
        let decimals = usize::try_from(self.decimals).unwrap_or(0);
        let text = format!("{:.decimals$}", steps as f64 / 10_f64.powi(self.decimals));
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn in_steps(number: f64, decimals: i32) -> i64 {
    (number * 10_f64.powi(decimals)).round() as i64
}

/// Digits behind the point: none for whole numbers, else as many as the range is worth. They are the same
/// whatever it is multiplied by, so that a number is written as it was before.
fn decimals(control: &ControlPolicy) -> i32 {
    let (slowest, fastest) = (control.slowest, control.fastest);
    if slowest.fract() == 0.0 && fastest.fract() == 0.0 {
        return 0;
    }
    let magnitude = |number: f64| number.max(1e-9).log10().floor() as i32;
    let span = magnitude((fastest - slowest).abs());
    let left = DIGITS_MAX - 1 - magnitude(fastest.max(slowest));
    (DIGITS - 1 - span).clamp(0, DECIMALS_MAX.min(left.max(0)))
}

/// The greatest pressure of a time that is at least as long as the policy's.
#[derive(Clone, Debug, Default, PartialEq)]
struct Peak {
    since: Option<Timestamp>,
    /// Since then.
    current: f64,
    /// In the time before.
    former: f64,
}

impl Peak {
    fn take(&mut self, pressure: f64, control: &ControlPolicy, now: Timestamp) -> f64 {
        let age = self.since.map(|since| now.duration_since(since));
        let is_over =
            age.is_none_or(|age| age.is_negative() || age.unsigned_abs() >= control.calm.duration());
        if is_over {
            let former = if control.calm.nanoseconds() == 0 { 0.0 } else { self.current };
            *self = Peak { since: Some(now), current: pressure, former };
        } else {
            self.current = self.current.max(pressure);
        }
        self.current.max(self.former)
    }
}

#[cfg(test)]
mod tests;
