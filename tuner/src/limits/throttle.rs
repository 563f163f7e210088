//! Settings of a target that follow the schedule, and pressure: which value is wanted, and what is to be done
//! about it. How a number follows pressure is in [`super::controller`].
//!
//! Three values can differ: the one that the policy wants, the one that was set last, and the one that the
//! target goes by. Where the policy says how to read the last (`get`), that one counts, and nothing else.

use crate::limits::back_off::{BackOff, Retry};
use crate::limits::controller::WantedValue;
use crate::policy::{Policy, TargetPolicy, TimeSpan, WhenChanged};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Pauses after a command that failed. A service that is being started again answers within a minute; what is
/// wrong for longer is put right by people, and a try of an Ozone that refuses costs two JVM starts, eight
/// seconds of a processor.
pub const BACK_OFF: BackOff = BackOff { first_seconds: 30, longest_seconds: 15 * 60 };

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
    /// How often the value in force is read, seconds.
    pub read_interval_seconds: i64,
    /// What is done where somebody else has changed it.
    pub when_changed: WhenChanged,
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
    /// The value that this agent has set last, as long as nobody can take another one for its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Since the last success, if it has failed.
    pub failure: Option<ThrottleFailure>,
    /// Whether it is being restored.
    #[serde(skip)]
    pub is_being_restored: bool,
    /// What its controller wants, where it has one.
    #[serde(skip)]
    pub wanted: Option<WantedValue>,
}

/// Somebody else has changed a throttle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedElsewhere {
    /// The value that was set.
    pub set: String,
    /// The one that was read.
    pub read: String,
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
    /// Nothing: somebody else has set another value, and the policy yields to that.
    Yield,
}

impl ThrottleSetting {
    /// What is to be done at `now`.
    pub fn step(&self, known: Option<&ThrottleState>, now: Timestamp) -> ThrottleStep {
        let Some(known) = known else {
            return if self.get.is_some() { ThrottleStep::Read } else { ThrottleStep::Set };
        };
        if self.rests(known, now) {
            return ThrottleStep::Rest;
        }
        if self.when_changed == WhenChanged::Yield && known.changed_elsewhere().is_some() {
            return ThrottleStep::Yield;
        }
        if self.get.is_some() && !known.is_believed(self.read_interval_seconds, now) {
            return ThrottleStep::Read;
        }
        match &known.value {
            Some(value) if is_same_value(value, &self.value) => ThrottleStep::InForce,
            _ => ThrottleStep::Set,
        }
    }

    /// Whether the value in force is to be read at `now`.
    pub fn is_read_due(&self, known: Option<&ThrottleState>, now: Timestamp) -> bool {
        let is_old = |known: &ThrottleState| {
            !self.rests(known, now) && !known.is_believed(self.read_interval_seconds, now)
        };
        self.get.is_some() && known.is_none_or(is_old)
    }

    /// Whether it has failed a short while ago, or is being restored.
    fn rests(&self, known: &ThrottleState, now: Timestamp) -> bool {
        let failure = known.failure.as_ref().filter(|failure| failure.is_of(self));
        known.is_being_restored || failure.is_some_and(|failure| !failure.retry.may_try(BACK_OFF, now))
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
    fn is_believed(&self, seconds: i64, now: Timestamp) -> bool {
        let age_seconds = |read: i64| now.as_second().saturating_sub(read);
        self.read_unix_s.is_some_and(|read| (0..seconds).contains(&age_seconds(read)))
    }

    /// The value in force was read. Gives who is to be told where it is another one than before, and not the
    /// one that was set.
    pub fn take_read(&mut self, value: String, now: Timestamp) -> Option<ChangedElsewhere> {
        let is_known = self.value.as_ref().is_some_and(|known| is_same_value(known, &value));
        (self.value, self.read_unix_s) = (Some(value), Some(now.as_second()));
        self.changed_elsewhere().filter(|_| !is_known)
    }

    /// A value was set; `is_read`: and read afterwards.
    pub fn take_set(&mut self, value: String, is_read: bool, now: Timestamp) {
        (self.value, self.set) = (Some(value.clone()), Some(value));
        self.read_unix_s = is_read.then(|| now.as_second());
    }

    /// It was tried to set a value, and whether it has that value now is not known.
    pub fn take_failed(&mut self) {
        self.set = None;
    }

    /// What somebody else has changed it to since it was set, as far as it was read.
    pub fn changed_elsewhere(&self) -> Option<ChangedElsewhere> {
        let (set, read) = (self.set.as_ref()?, self.value.as_ref()?);
        (!is_same_value(set, read)).then(|| ChangedElsewhere { set: set.clone(), read: read.clone() })
    }
}

/// Whether two values of a setting are the same one: RocksDB writes 0.01 as 0.010000.
pub fn is_same_value(one: &str, two: &str) -> bool {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    one == two || number(one).is_some_and(|one| number(two) == Some(one))
}

impl ThrottleFailure {
    /// Whether it is this setting that has failed. Another value, or a command that was put right, deserves a
    /// try at once.
    fn is_of(&self, setting: &ThrottleSetting) -> bool {
        self.value == setting.value && self.command == setting.command && self.get == setting.get
    }
}

/// The values that a target's throttles should have, in the policy's order; the policy as it holds now. One
/// that follows pressure has none before its controller was asked.
pub fn throttle_values(
    policy: &Policy,
    target: &TargetPolicy,
    name: &str,
    known: &KnownThrottles,
) -> Vec<ThrottleSetting> {
    let (side, reason) = policy.throttle_side();
    let seconds = |span: TimeSpan| i64::try_from(span.duration().as_secs()).unwrap_or(i64::MAX);
    let settings = target.throttles.iter().filter_map(|throttle| {
        let state = known.get(&(name.to_owned(), throttle.name.clone()));
        let (value, reason) = match throttle.value(side) {
            Some(value) => (value, reason.clone()),
            None => {
                let wanted = state?.wanted.as_ref()?;
                (wanted.value.clone(), format!("{reason}; {}", wanted.reason))
            }
        };
        Some(ThrottleSetting {
            name: throttle.name.clone(),
            command: filled(&throttle.command, &value),
            template: throttle.command.clone(),
            get: throttle.get.clone(),
            user: target.commands_user.clone(),
            timeout: throttle.timeout,
            read_interval_seconds: seconds(throttle.read_interval),
            when_changed: throttle.when_changed,
            reason: format!("{} is to be {value}: {reason}", throttle.name),
            value,
        })
    });
    settings.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const READ_INTERVAL: i64 = 300;

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
        let target = policy.targets.first().unwrap();
        let settings = throttle_values(&policy, target, "a", &KnownThrottles::new());
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
            read_interval_seconds: READ_INTERVAL,
            when_changed: WhenChanged::Insist,
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
        let step = |known: &ThrottleState, second| {
            assert_eq!(
                wanted.is_read_due(Some(known), at(second)),
                wanted.step(Some(known), at(second)) == ThrottleStep::Read
            );
            wanted.step(Some(known), at(second))
        };
        assert_eq!(step(&known, READ_INTERVAL - 1), ThrottleStep::InForce);
        assert_eq!(step(&known, READ_INTERVAL), ThrottleStep::Read);
        assert_eq!(step(&known, -1), ThrottleStep::Read, "the clock was set back");
        known.take_read("7".into(), at(READ_INTERVAL));
        assert_eq!(step(&known, READ_INTERVAL), ThrottleStep::Set);
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
    fn what_somebody_else_has_changed_is_told_once_and_yielded_to_where_the_policy_says_so() {
        let insists = setting("9", Some("get"));
        let yields = ThrottleSetting { when_changed: WhenChanged::Yield, ..insists.clone() };
        let mut known = ThrottleState::default();
        assert_eq!(known.take_read("1".into(), at(0)), None, "nothing was set yet");
        assert_eq!(yields.step(Some(&known), at(0)), ThrottleStep::Set);
        known.take_set("9".into(), true, at(0));
        assert_eq!(known.take_read("9.0".into(), at(1)), None);
        let changed = ChangedElsewhere { set: "9".into(), read: "5".into() };
        assert_eq!(known.take_read("5".into(), at(2)), Some(changed.clone()));
        assert_eq!(known.take_read("5".into(), at(3)), None, "it was told");
        assert_eq!(known.changed_elsewhere(), Some(changed));
        assert_eq!(insists.step(Some(&known), at(3)), ThrottleStep::Set);
        assert_eq!(yields.step(Some(&known), at(3)), ThrottleStep::Yield);
        assert!(yields.is_read_due(Some(&known), at(3 + READ_INTERVAL)));
        assert_eq!(known.take_read("6".into(), at(4)).map(|changed| changed.read).as_deref(), Some("6"));
        // It is back.
        assert_eq!(known.take_read("9".into(), at(5)), None);
        assert_eq!(yields.step(Some(&known), at(5)), ThrottleStep::InForce);
        // Nobody can tell whose a value is after a command that has failed.
        known.take_failed();
        assert_eq!(known.take_read("5".into(), at(6)), None);
        assert_eq!(yields.step(Some(&known), at(6)), ThrottleStep::Set);
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
