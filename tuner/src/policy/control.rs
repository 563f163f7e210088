//! The part of a policy about a throttle that follows pressure. How it does is in
//! [`crate::limits::controller`].

use super::TimeSpan;
use super::units::{number_or_size, number_or_size_schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number between two, by the pressure that the target is under: `slowest + (fastest - slowest) x (1 -
/// pressure)`, multiplied by `inside_ratio` inside of periods. Where both are whole numbers it is one, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlPolicy {
    /// Number under full pressure; of bytes also a size with its unit, such as `2MiB`. It is the greater one
    /// of the two for what slows the target down, such as a pause between requests.
    #[serde(deserialize_with = "number_or_size")]
    #[schemars(schema_with = "number_or_size_schema")]
    pub slowest: f64,
    /// Number without any pressure.
    #[serde(deserialize_with = "number_or_size")]
    #[schemars(schema_with = "number_or_size_schema")]
    pub fastest: f64,
    /// Greatest change at once, as a share of the range between the two, above 0, to 1. A number that lies
    /// beyond the range is put to its border at once. Default: 0.25.
    #[serde(default = "step_ratio_max")]
    pub step_ratio_max: f64,
    /// The number is left as it is where it would change by less than this share of the range, 0 to 1, and
    /// not to either end. Default: 0.1.
    #[serde(default = "hysteresis_ratio")]
    pub hysteresis_ratio: f64,
    /// Least time between two changes. Default: 1m.
    #[serde(default = "interval_min")]
    pub interval_min: TimeSpan,
    /// It gets faster only as far as the greatest pressure of this time allows, and slower at once. Default:
    /// 5m.
    #[serde(default = "calm")]
    pub calm: TimeSpan,
}

fn step_ratio_max() -> f64 {
    0.25
}

fn hysteresis_ratio() -> f64 {
    0.1
}

fn interval_min() -> TimeSpan {
    TimeSpan::from_seconds(60)
}

fn calm() -> TimeSpan {
    TimeSpan::from_seconds(5 * 60)
}

/// What is done about a throttle that somebody else has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenChanged {
    /// The wanted value is set again.
    #[default]
    Insist,
    /// It is left alone for as long as it has another value than the one that was set.
    Yield,
}

impl WhenChanged {
    /// Whether it is the default.
    pub(super) fn is_insist(&self) -> bool {
        *self == WhenChanged::Insist
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_number_is_taken_as_it_is_and_a_size_in_bytes() {
        let read = |text: &str| serde_yaml::from_str::<ControlPolicy>(text);
        let control = read("{ slowest: 0.5, fastest: 2MiB }").unwrap();
        assert_eq!((control.slowest, control.fastest), (0.5, 2_097_152.0));
        assert_eq!(read("{ slowest: -7, fastest: 12 }").unwrap().slowest, -7.0);
        let written = serde_yaml::to_string(&control).unwrap();
        assert_eq!(read(&written).unwrap(), control);
        let error = read("{ slowest: 1MB, fastest: 2MiB }").unwrap_err().to_string();
        assert!(error.contains("1MB"), "{error}");
        assert!(read("{ slowest: [], fastest: 1 }").is_err());
    }
}
