//! Pressure: what signals of a target and its node come to, from 0, none, to 1, full.

use crate::policy::{Combine, PressurePolicy, SignalKind, SignalPolicy};
use std::fmt::Write;

/// What a signal says now.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalReading {
    pub name: String,
    pub kind: SignalKind,
    /// As it was measured: a share of 1, seconds, or the metric's own number; `Err`: why it cannot be.
    pub value: Result<f64, String>,
    /// Its pressure; `None` where it cannot be read.
    pub pressure: Option<f64>,
}

/// What all signals say now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// From 0 to 1.
    pub ratio: f64,
    pub signals: Vec<SignalReading>,
}

impl Pressure {
    /// What the signals come to; `read` gives each of them.
    pub fn of(policy: &PressurePolicy, read: impl Fn(&SignalPolicy) -> Result<f64, String>) -> Pressure {
        let signals: Vec<SignalReading> = policy
            .signals
            .iter()
            .map(|signal| {
                let not_a_number = || Err("what was read is not a number".to_owned());
                let value =
                    read(signal).and_then(|value| if value.is_finite() { Ok(value) } else { not_a_number() });
                let pressure = value.as_ref().ok().map(|value| signal.pressure(*value));
                SignalReading { name: signal.name.clone(), kind: signal.kind, value, pressure }
            })
            .collect();
        let known = signals.iter().zip(&policy.signals);
        let known = known.filter_map(|(reading, signal)| Some((reading.pressure?, signal.weight)));
        let ratio = match policy.combine {
            Combine::Maximum => known.map(|(pressure, _)| pressure).reduce(f64::max),
            Combine::Weights => {
                let sums = known.fold((0.0, 0.0), |(sum, weights), (pressure, weight)| {
                    (sum + pressure * weight, weights + weight)
                });
                (sums.1 > 0.0).then(|| (sums.0 / sums.1).clamp(0.0, 1.0))
            }
        };
        Pressure { ratio: ratio.unwrap_or(1.0), signals }
    }

    /// Which signals it comes from: `0.62 (disk 0.62, queue not read)`.
    pub fn in_words(&self) -> String {
        let mut text = format!("{:.2}", self.ratio);
        for (at, signal) in self.signals.iter().enumerate() {
            let _ = write!(text, "{}{} ", if at == 0 { " (" } else { ", " }, signal.name);
            let _ = match signal.pressure {
                Some(pressure) => write!(text, "{pressure:.2}"),
                None => write!(text, "not read"),
            };
        }
        if !self.signals.is_empty() {
            text.push(')');
        }
        text
    }
}

impl SignalPolicy {
    /// What a value of it means: 0 up to its low level, 1 from its high one on.
    fn pressure(&self, value: f64) -> f64 {
        let (low, high) = (self.low.value(), self.high.value());
        if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { f64::from(value >= high) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::policy::Policy;
    use proptest::prelude::*;

    fn policy(combine: &str) -> PressurePolicy {
        let text = format!(
            "targets:\n  - name: a\n    match: {{ pid: 1 }}\n    pressure:\n      combine: {combine}\n      signals:\n        \
             - {{ name: io, kind: node_io_pressure, low: 10%, high: 60%, weight: 3 }}\n        \
             - {{ name: wait, kind: device_latency, low: 2ms, high: 12ms }}\n"
        );
        Policy::parse(&text).unwrap().targets.remove(0).pressure.unwrap()
    }

    fn ratio(combine: &str, io: Option<f64>, wait: Option<f64>) -> f64 {
        let pressure = Pressure::of(&policy(combine), |signal| {
            let value = if signal.name == "io" { io } else { wait };
            value.ok_or_else(|| "no".to_owned())
        });
        (pressure.ratio * 1000.0).round() / 1000.0
    }

    #[test]
    fn each_signal_is_normalised_between_its_levels() {
        assert_eq!(ratio("maximum", Some(0.1), None), 0.0);
        assert_eq!(ratio("maximum", Some(0.35), None), 0.5);
        assert_eq!(ratio("maximum", Some(0.9), None), 1.0);
        assert_eq!(ratio("maximum", None, Some(0.007)), 0.5);
    }

    #[test]
    fn signals_are_combined_by_maximum_or_weights_and_what_cannot_be_read_does_not_count() {
        assert_eq!(ratio("maximum", Some(0.35), Some(0.0)), 0.5);
        assert_eq!(ratio("maximum", Some(0.35), Some(1.0)), 1.0);
        assert_eq!(ratio("weights", Some(0.35), Some(0.0)), 0.375);
        assert_eq!(ratio("weights", Some(0.35), None), 0.5);
        assert_eq!(ratio("maximum", None, None), 1.0);
        assert_eq!(ratio("weights", None, Some(f64::NAN)), 1.0);
    }

    #[test]
    fn it_says_what_it_comes_from() {
        let io = |signal: &SignalPolicy| if signal.name == "io" { Ok(0.35) } else { Err(String::new()) };
        assert_eq!(Pressure::of(&policy("maximum"), io).in_words(), "0.50 (io 0.50, wait not read)");
        assert_eq!(Pressure::default().in_words(), "0.00");
    }

    proptest! {
        #[test]
        fn it_stays_between_none_and_full(io: f64, wait: f64, weights: bool) {
            let ratio = ratio(if weights { "weights" } else { "maximum" }, Some(io), Some(wait));
            prop_assert!((0.0..=1.0).contains(&ratio));
        }

        #[test]
        fn more_of_a_signal_is_never_less_pressure(low in 0.0..2.0, more in 0.0..2.0, wait in 0.0..0.1, weights: bool) {
            let combine = if weights { "weights" } else { "maximum" };
            prop_assert!(ratio(combine, Some(low + more), Some(wait)) >= ratio(combine, Some(low), Some(wait)));
        }
    }
}
