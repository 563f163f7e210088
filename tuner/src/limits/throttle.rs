//! Settings of a target that follow the schedule: which value is wanted, and what is to be done about
//! it.
//!
//! Three values can differ: the one that the policy wants, the one that was set last, and the one that the
//! target goes by. Where the policy says how to read the last (`get`), that one counts, and nothing else.

use crate::limits::back_off::{BackOff, Retry};
use crate::policy::{Policy, TargetPolicy, TimeSpan};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Pauses after a command that failed. A service that is being started again answers within a minute; what is
/// wrong for longer is put right by people, and each try of an Ozone costs two JVM starts, eight seconds of a
/// processor.
pub const BACK_OFF: BackOff = BackOff { first_seconds: 30, longest_seconds: 15 * 60 };

/// So long what was read is believed: somebody else may set the value too, and a read every five minutes
/// costs nothing.
const BELIEVED_SECONDS: i64 = 5 * 60;

/// The value a throttle should have now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottleSetting {
    /// Name of the throttle.
    pub name: String,
    /// The value.
    pub value: String,
    /// Program and arguments with the value filled in.
    pub command: Vec<String>,
    /// The same as the policy has it.
    pub template: Vec<String>,
    /// Program and arguments that print the value in force.
    pub get: Option<Vec<String>>,
    /// Whose the commands are; `None`: the agent's user's.
    pub user: Option<String>,
    /// How long each of the commands may run.
    pub timeout: TimeSpan,
    /// Why, in words.
    pub reason: String,
}

/// How a throttle gets its former value back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleRestore {
    /// The value.
    pub value: String,
    /// Program and arguments with this value filled in.
    pub command: Vec<String>,
}

/// Throttles by target's name and their own.
pub type KnownThrottles = BTreeMap<(String, String), ThrottleState>;

/// What is known of a throttle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThrottleState {
    /// The value in force: the one that was read last or, where none can be read, was set last.
    pub value: Option<String>,
    /// When it was read, seconds since the epoch.
    pub read_unix_s: Option<i64>,
    /// Since the last success, if it has failed.
    pub failure: Option<ThrottleFailure>,
    /// Whether it is being restored.
    #[serde(skip)]
    pub is_being_restored: bool,
}

/// A throttle that could not be set, for as long as that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThrottleFailure {
    /// The action that all its tries are told under.
    pub action_id: u64,
    /// Value that was to be set.
    pub value: String,
    /// By which command.
    pub command: Vec<String>,
    /// And read by which.
    #[serde(default)]
    pub get: Option<Vec<String>>,
    /// Why the last try has failed.
    pub reason: String,
    /// How often, and when it is tried again.
    pub retry: Retry,
}

/// What is to be done about a throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleStep {
    /// Nothing: the wanted value is in force.
    InForce,
    /// Nothing yet: it has failed a short while ago, or is being restored.
    Rest,
    /// Read the value in force.
    Read,
    /// Set the wanted value.
    Set,
}

impl ThrottleSetting {
    /// What is to be done at `now`.
    pub fn step(&self, known: Option<&ThrottleState>, now: Timestamp) -> ThrottleStep {
        let Some(known) = known else {
            return if self.get.is_some() { ThrottleStep::Read } else { ThrottleStep::Set };
        };
        let failure = known.failure.as_ref().filter(|failure| failure.is_of(self));
        if known.is_being_restored || failure.is_some_and(|failure| !failure.retry.may_try(BACK_OFF, now)) {
            return ThrottleStep::Rest;
        }
        if self.get.is_some() && !known.is_believed(now) {
            return ThrottleStep::Read;
        }
        match &known.value {
            Some(value) if *value == self.value => ThrottleStep::InForce,
            _ => ThrottleStep::Set,
        }
    }

    /// How the value that was read is put back. One that an argument could not be told from an option with is
    /// not: it is the target's word.
    pub(crate) fn restore(&self, known: Option<&ThrottleState>) -> Option<ThrottleRestore> {
        let value = self.get.as_ref().and(known)?.value.clone()?;
        let is_argument = !value.starts_with('-') || value.parse::<f64>().is_ok();
        is_argument.then(|| ThrottleRestore { command: filled(&self.template, &value), value })
    }
}

fn filled(command: &[String], value: &str) -> Vec<String> {
    let fill = |argument: &String| argument.replace(crate::policy::THROTTLE_PLACEHOLDER, value);
    command.iter().map(fill).collect()
}

impl ThrottleState {
    fn is_believed(&self, now: Timestamp) -> bool {
        let age_seconds = |read: i64| now.as_second().saturating_sub(read);
        self.read_unix_s.is_some_and(|read| (0..BELIEVED_SECONDS).contains(&age_seconds(read)))
    }

    /// The value in force was read.
    pub fn take_read(&mut self, value: String, now: Timestamp) {
        (self.value, self.read_unix_s) = (Some(value), Some(now.as_second()));
    }
}

impl ThrottleFailure {
    /// Whether it is this setting that has failed. Another value, or a command that was put right, deserves a
    /// try at once.
    fn is_of(&self, setting: &ThrottleSetting) -> bool {
        self.value == setting.value && self.command == setting.command && self.get == setting.get
    }
}

/// The values that a target's throttles should have, in the policy's order; the policy as it holds now.
pub fn throttle_values(policy: &Policy, target: &TargetPolicy) -> Vec<ThrottleSetting> {
    let (side, reason) = policy.throttle_side();
    let settings = target.throttles.iter().map(|throttle| {
        let value = throttle.value(side);
        ThrottleSetting {
            name: throttle.name.clone(),
            command: filled(&throttle.command, &value),
            template: throttle.command.clone(),
            get: throttle.get.clone(),
            user: target.commands_user.clone(),
            timeout: throttle.timeout,
            reason: format!("{} is to be {value}: {reason}", throttle.name),
            value,
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
schedule:
  - { name: off-peak, time_zone: UTC, from: '01:00', to: '02:00' }
";

    fn values(policy: &Policy, now: &str) -> Vec<(String, Vec<String>)> {
        let policy = policy.at(now.parse().unwrap(), 0);
        let settings = throttle_values(&policy, policy.targets.first().unwrap());
        settings.into_iter().map(|setting| (setting.value, setting.command)).collect()
    }

    #[test]
    fn the_value_follows_the_schedule() {
        let mut policy = Policy::parse(POLICY).unwrap();
        let setting = |value: &str| vec![(value.to_owned(), vec!["set".to_owned(), format!("x={value}")])];
        assert_eq!(values(&policy, "2026-11-20T01:30:00Z"), setting("9"));
        assert_eq!(values(&policy, "2026-11-20T02:30:00Z"), setting("1"));
        policy.targets[0].throttles[0].inside = None;
        policy.targets[0].throttles[0].inside_ratio = Some(2.5);
        assert_eq!(values(&policy, "2026-11-20T01:30:00Z"), setting("3"));
        policy.schedule.clear();
        assert_eq!(values(&policy, "2026-11-20T01:30:00Z"), setting("1"));
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn setting(value: &str, get: Option<&str>) -> ThrottleSetting {
        ThrottleSetting {
            name: "t".into(),
            value: value.into(),
            command: vec!["set".into(), value.into()],
            template: vec!["set".into(), "{value}".into()],
            get: get.map(|program| vec![program.to_owned()]),
            user: None,
            timeout: TimeSpan::from_seconds(30),
            reason: String::new(),
        }
    }

    /// As it is known after so many failures, the last one at `now`.
    fn failed(setting: &ThrottleSetting, failures: u32, now: i64) -> ThrottleState {
        let ThrottleSetting { value, command, get, .. } = setting.clone();
        let mut retry = Retry::default();
        (0..failures).for_each(|_| retry.fail(BACK_OFF, at(now)));
        let failure = ThrottleFailure { action_id: 7, value, command, get, reason: "no".into(), retry };
        ThrottleState { failure: Some(failure), ..ThrottleState::default() }
    }

    #[test]
    fn without_a_way_to_read_it_the_value_that_was_set_is_in_force() {
        let wanted = setting("9", None);
        assert_eq!(wanted.step(None, at(0)), ThrottleStep::Set);
        let known = ThrottleState { value: Some("9".into()), ..ThrottleState::default() };
        assert_eq!(wanted.step(Some(&known), at(0)), ThrottleStep::InForce);
        assert_eq!(setting("1", None).step(Some(&known), at(0)), ThrottleStep::Set);
    }

    #[test]
    fn with_one_the_value_that_was_read_is_in_force_for_as_long_as_it_is_believed() {
        let wanted = setting("50000", Some("get"));
        assert_eq!(wanted.step(None, at(0)), ThrottleStep::Read);
        // It was set, and nobody has looked.
        let mut known = ThrottleState { value: Some("50000".into()), ..ThrottleState::default() };
        assert_eq!(wanted.step(Some(&known), at(0)), ThrottleStep::Read);
        // The target's own default equals it.
        known.take_read("50000".into(), at(0));
        assert_eq!(wanted.step(Some(&known), at(BELIEVED_SECONDS - 1)), ThrottleStep::InForce);
        assert_eq!(wanted.step(Some(&known), at(BELIEVED_SECONDS)), ThrottleStep::Read);
        assert_eq!(wanted.step(Some(&known), at(-1)), ThrottleStep::Read, "the clock was set back");
        known.take_read("7".into(), at(BELIEVED_SECONDS));
        assert_eq!(wanted.step(Some(&known), at(BELIEVED_SECONDS)), ThrottleStep::Set);
    }

    #[test]
    fn what_fails_rests_longer_each_time() {
        let wanted = setting("9", None);
        let mut now = 0;
        let mut rests = Vec::new();
        for failures in 1..=8 {
            let known = failed(&wanted, failures, now);
            let began = now;
            while wanted.step(Some(&known), at(now)) == ThrottleStep::Rest {
                now += 1;
            }
            assert_eq!(wanted.step(Some(&known), at(now)), ThrottleStep::Set);
            rests.push(now - began);
        }
        assert_eq!(rests, [30, 60, 120, 240, 480, 900, 900, 900]);
    }

    #[test]
    fn another_value_or_command_is_tried_at_once() {
        let wanted = setting("9", None);
        let known = failed(&wanted, 1, 0);
        assert_eq!(wanted.step(Some(&known), at(1)), ThrottleStep::Rest);
        assert_eq!(setting("1", None).step(Some(&known), at(1)), ThrottleStep::Set);
        assert_eq!(setting("9", Some("get")).step(Some(&known), at(1)), ThrottleStep::Read);
        let corrected = ThrottleSetting { command: vec!["other".into(), "9".into()], ..wanted };
        assert_eq!(corrected.step(Some(&known), at(1)), ThrottleStep::Set);
    }

    #[test]
    fn the_value_that_was_read_is_put_back_by_the_same_command() {
        let read = |value: &str| ThrottleState { value: Some(value.into()), ..ThrottleState::default() };
        let restore = |get: Option<&str>, known: &ThrottleState| {
            let restore = setting("9", get).restore(Some(known));
            restore.map(|restore| restore.command.join(" "))
        };
        assert_eq!(restore(Some("get"), &read("7")).as_deref(), Some("set 7"));
        assert_eq!(restore(Some("get"), &read("-1")).as_deref(), Some("set -1"));
        assert_eq!(restore(Some("get"), &read("--force")), None);
        assert_eq!(restore(None, &read("9")), None, "it is what was set, and nobody knows what was before");
        assert_eq!(restore(Some("get"), &ThrottleState::default()), None);
    }

    #[test]
    fn it_is_not_set_while_it_is_being_restored() {
        let known = ThrottleState { is_being_restored: true, ..ThrottleState::default() };
        assert_eq!(setting("9", Some("get")).step(Some(&known), at(0)), ThrottleStep::Rest);
    }

    #[test]
    fn what_an_older_agent_has_kept_is_understood() {
        let known: ThrottleState = serde_json::from_str(r#"{"value":"slow"}"#).unwrap();
        assert_eq!(known, ThrottleState { value: Some("slow".into()), ..ThrottleState::default() });
    }
}
