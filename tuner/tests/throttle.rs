//! Throttles as texts: a policy, what signals say over time, and what the agent does about it.
//!
//! `BLESS=1 cargo test -p sexton-tuner --test throttle` writes what comes out into the files; the difference
//! is what to review. A block is a command, its input, a line `----`, and the output up to an empty line.
//! Commands:
//!
//! - `policy`: the policy's YAML; throttles of its first target are followed.
//! - `check`: a policy that is only checked.
//! - `daemon NAME VALUE`: the value that a throttle has in the target.
//! - `run`: lines `TIME for=SPAN [every=SPAN] [SIGNAL=VALUE ..] [daemon=NAME:VALUE] [refuses=yes]`. From
//!   TIME on a cycle is made every so often (10 s); signals keep their values, as policies write levels; `-`
//!   is a signal that cannot be read. `daemon` is what an administrator sets at that time; `refuses`: the
//!   target's commands fail. What comes out is each change of what is done, with its reason.
//! - `restart`: the agent ends in order, with what it has changed put back, and another one begins.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cases;

use jiff::Timestamp;
use sexton_tuner::controller::{Controller, Situation};
use sexton_tuner::policy::{Level, Policy};
use sexton_tuner::pressure::Pressure;
use sexton_tuner::throttle::{BACK_OFF, ThrottleFailure};
use sexton_tuner::{KnownThrottles, ThrottleSetting, ThrottleState, ThrottleStep, throttle_values};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const TARGET: &str = "om";

#[test]
fn cases() {
    cases::check("throttle", 24, run);
}

fn run(text: &str, _: &Path) -> String {
    let mut node = Node::default();
    cases::outputs_anew(text, |command, lines| node.command(command, lines))
}

/// A node with one target and the agent on it.
#[derive(Default)]
struct Node {
    policy: Option<Policy>,
    /// Values in the target.
    daemon: BTreeMap<String, String>,
    /// Those before the agent changed them.
    former: BTreeMap<String, String>,
    known: KnownThrottles,
    controllers: BTreeMap<String, Controller>,
    signals: BTreeMap<String, Result<f64, String>>,
    refuses: bool,
    /// What was said of each throttle last.
    said: BTreeMap<String, String>,
}

impl Node {
    fn command(&mut self, command: &str, lines: &str) -> Result<String, String> {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["policy"] => {
                self.policy = Some(Policy::parse(lines).map_err(shown)?);
                Ok("ok".to_owned())
            }
            ["check"] => Policy::parse(lines).map(|_| "ok".to_owned()).map_err(shown),
            ["daemon", name, value] => {
                self.daemon.insert((*name).to_owned(), (*value).to_owned());
                Ok("ok".to_owned())
            }
            ["restart"] => Ok(self.restart()),
            ["run"] => {
                let mut text = String::new();
                lines.lines().try_for_each(|line| self.run_line(line, &mut text))?;
                Ok(if text.is_empty() { "nothing changes".to_owned() } else { text })
            }
            _ => Err(format!("unknown command {command}")),
        }
    }

    fn run_line(&mut self, line: &str, text: &mut String) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let begin: Timestamp = words.next().ok_or("TIME")?.parse().map_err(|error| format!("{error}"))?;
        let (mut length, mut every) = (0, 10);
        for word in words {
            let (name, value) = word.split_once('=').ok_or(format!("{word} is no NAME=VALUE"))?;
            match name {
                "for" => length = seconds(value)?,
                "every" => every = seconds(value)?,
                "refuses" => self.refuses = value == "yes",
                "daemon" => {
                    let (name, value) = value.split_once(':').ok_or("daemon=NAME:VALUE")?;
                    self.daemon.insert(name.to_owned(), value.to_owned());
                }
                signal => {
                    self.signals.insert(signal.to_owned(), level(value)?);
                }
            }
        }
        for second in (0..=length).step_by(usize::try_from(every).map_err(|error| error.to_string())?) {
            self.cycle(begin + jiff::SignedDuration::from_secs(second), text);
        }
        Ok(())
    }

    /// One cycle of the agent: controllers are asked, what is due is read, controllers are asked once more,
    /// and what is wanted is set.
    fn cycle(&mut self, now: Timestamp, text: &mut String) {
        let policy = self.policy.as_ref().expect("a policy first").at(now, 0);
        self.ask(&policy, now);
        let target = policy.targets.first().unwrap();
        let mut news = BTreeMap::new();
        for setting in throttle_values(&policy, target, TARGET, &self.known) {
            let name = key(&setting.name);
            if !setting.is_read_due(self.known.get(&name), now) {
                continue;
            }
            let state = self.known.entry(name).or_default();
            let value = self.daemon.get(&setting.name).cloned().unwrap_or_default();
            if let Some(changed) = state.take_read(value, now) {
                news.insert(
                    setting.name,
                    format!("somebody else has changed {} to {}", changed.set, changed.read),
                );
            }
        }
        self.ask(&policy, now);
        for setting in throttle_values(&policy, target, TARGET, &self.known) {
            let said = self.carry_out(&setting, now);
            let told = news.remove(&setting.name).map(|news| format!("{news}; ")).unwrap_or_default();
            // What is said while nothing is done differs by the pressure alone.
            let essence = said.split(": ").next().unwrap_or_default().to_owned();
            let is_new = self.said.insert(setting.name.clone(), essence.clone()) != Some(essence);
            if is_new || said.starts_with("set") || !told.is_empty() {
                let _ = writeln!(text, "{} {} {told}{said}", now.strftime("%H:%M:%S"), setting.name);
            }
        }
    }

    fn ask(&mut self, policy: &Policy, now: Timestamp) {
        let target = policy.targets.first().unwrap();
        let pressure = target.pressure.as_ref().map(|pressure| {
            Pressure::of(pressure, |signal| {
                let read = self.signals.get(&signal.name).cloned();
                read.unwrap_or_else(|| Err("not read yet".to_owned()))
            })
        });
        let pressure = pressure.unwrap_or_default();
        for throttle in &target.throttles {
            let Some(control) = &throttle.control else { continue };
            let state = self.known.entry(key(&throttle.name)).or_default();
            let controller = self.controllers.entry(throttle.name.clone()).or_default();
            let ratio = throttle.ratio(policy.throttle_side().0);
            let in_force = state.value.clone();
            let situation = Situation { pressure: &pressure, ratio, in_force: in_force.as_deref(), now };
            controller.step(control, &situation);
            state.wanted = controller.wanted().cloned();
        }
    }

    fn carry_out(&mut self, setting: &ThrottleSetting, now: Timestamp) -> String {
        let name = key(&setting.name);
        let state = self.known.entry(name).or_default();
        match setting.step(Some(state), now) {
            ThrottleStep::Set if self.refuses => {
                let mut retry = state.failure.take().map(|failure| failure.retry).unwrap_or_default();
                retry.fail(BACK_OFF, now);
                let ThrottleSetting { value, command, get, .. } = setting.clone();
                let reason = "refused".to_owned();
                state.take_failed();
                state.failure = Some(ThrottleFailure { action_id: 1, value, command, get, reason, retry });
                format!("set {} fails", setting.value)
            }
            // What is in force is read once more right before.
            ThrottleStep::Set if yields(state, self.daemon.get(&setting.name), setting, now) => {
                format!("yields to {}", state.value.clone().unwrap_or_default())
            }
            ThrottleStep::Set => {
                let before = self.daemon.insert(setting.name.clone(), setting.value.clone());
                if let (Some(before), true) = (before, setting.get.is_some()) {
                    self.former.entry(setting.name.clone()).or_insert(before);
                }
                *state = ThrottleState { wanted: state.wanted.take(), ..ThrottleState::default() };
                state.take_set(setting.value.clone(), setting.get.is_some(), now);
                format!("set {}: {}", setting.value, setting.reason)
            }
            ThrottleStep::InForce => {
                state.failure = None;
                format!("{} is in force: {}", setting.value, setting.reason)
            }
            ThrottleStep::Yield => format!("yields to {}", state.value.clone().unwrap_or_default()),
            ThrottleStep::Rest => "rests".to_owned(),
            ThrottleStep::Read => "is to be read".to_owned(),
        }
    }

    fn restart(&mut self) -> String {
        let mut text = String::new();
        for (name, former) in std::mem::take(&mut self.former) {
            let state = self.known.get(&key(&name)).cloned().unwrap_or_default();
            // Only what the agent has set itself is put back, as it is read then.
            if state.set == self.daemon.get(&name).cloned() {
                self.daemon.insert(name.clone(), former.clone());
                let _ = writeln!(text, "{name} is {former} again");
            } else {
                let _ = writeln!(text, "{name} stays {}", self.daemon[&name]);
            }
        }
        *self = Node {
            policy: self.policy.take(),
            daemon: std::mem::take(&mut self.daemon),
            signals: std::mem::take(&mut self.signals),
            ..Node::default()
        };
        text
    }
}

/// Whether the value that is read right before it is set is somebody else's, whom the policy yields to.
fn yields(
    state: &mut ThrottleState,
    daemon: Option<&String>,
    setting: &ThrottleSetting,
    now: Timestamp,
) -> bool {
    let Some(value) = daemon.filter(|_| setting.get.is_some()) else { return false };
    state.take_read(value.clone(), now).is_some() && setting.step(Some(state), now) == ThrottleStep::Yield
}

fn key(name: &str) -> (String, String) {
    (TARGET.to_owned(), name.to_owned())
}

fn seconds(text: &str) -> Result<i64, String> {
    let span: jiff::SignedDuration = text.parse().map_err(|error| format!("{error}"))?;
    Ok(span.as_secs())
}

/// A signal's value as a policy would write it; `-` where it cannot be read.
fn level(text: &str) -> Result<Result<f64, String>, String> {
    if text == "-" {
        return Ok(Err("it is not there".to_owned()));
    }
    let level: Level = serde_json::from_value(text.into()).map_err(|error| error.to_string())?;
    Ok(Ok(level.value()))
}

fn shown(error: sexton_tuner::PolicyError) -> String {
    format!("{error}; {}", error.help)
}
