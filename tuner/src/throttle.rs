//! Settings of a target that follow the off-peak window.

use crate::policy::{Policy, TargetPolicy, TimeSpan};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The value a throttle should have now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleSetting {
    /// Name of the throttle.
    pub name: String,
    /// The value.
    pub value: String,
    /// Program and arguments with the value filled in.
    pub command: Vec<String>,
    /// How long the command may run.
    pub timeout: TimeSpan,
    /// Why, in words.
    pub reason: String,
}

/// The values that a target's throttles should have at `now`, in the policy's order.
pub fn throttle_values(policy: &Policy, target: &TargetPolicy, now: Timestamp) -> Vec<ThrottleSetting> {
    let (inside, reason) = match &policy.off_peak {
        None => (false, "there is no off-peak window".to_owned()),
        Some(window) => {
            let is_open = window.is_open(now);
            let hours = format!("{} to {} {}", window.from, window.to, window.time_zone);
            (is_open, format!("{} the off-peak window, {hours}", if is_open { "inside" } else { "outside" }))
        }
    };
    let settings = target.throttles.iter().map(|throttle| {
        let value = if inside { &throttle.inside } else { &throttle.outside };
        let fill = |argument: &String| argument.replace(crate::policy::THROTTLE_PLACEHOLDER, value);
        ThrottleSetting {
            name: throttle.name.clone(),
            value: value.clone(),
            command: throttle.command.iter().map(fill).collect(),
            timeout: throttle.timeout,
            reason: format!("{} is to be {value}: {reason}", throttle.name),
        }
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const POLICY: &str = "
targets:
  - name: a
    match: { pid: 1 }
    throttles:
      - { name: t, inside: '9', outside: '1', command: [set, 'x={value}'] }
off_peak: { time_zone: UTC, from: '01:00', to: '02:00', io_budget: { rate: 1B/s, burst: 1B } }
";

    fn values(policy: &Policy, now: &str) -> Vec<(String, Vec<String>)> {
        let settings = throttle_values(policy, policy.targets.first().unwrap(), now.parse().unwrap());
        settings.into_iter().map(|setting| (setting.value, setting.command)).collect()
    }

    #[test]
    fn the_value_follows_the_window() {
        let mut policy = Policy::parse(POLICY).unwrap();
        let setting = |value: &str| vec![(value.to_owned(), vec!["set".to_owned(), format!("x={value}")])];
        assert_eq!(values(&policy, "2026-11-20T01:30:00Z"), setting("9"));
        assert_eq!(values(&policy, "2026-11-20T02:30:00Z"), setting("1"));
        policy.off_peak = None;
        assert_eq!(values(&policy, "2026-11-20T01:30:00Z"), setting("1"));
    }
}
