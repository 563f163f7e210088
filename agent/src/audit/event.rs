//! The events: what each says, as JSON and as a line.

use crate::text::shown;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter, Result};

/// Something that happened to the agent, or that it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up from 1, over all runs of the agent that share a state directory.
    pub id: u64,
    /// When, RFC 3339.
    pub at: String,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What an action is about: a range, a throttle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Id of the action, as in `/api/v1/actions`.
    pub action_id: u64,
    /// `compact_range`, `set_throttle`, ...
    pub action: String,
    /// Target's name.
    pub target: String,
    /// Database directory; empty for a throttle.
    #[serde(default)]
    pub database: String,
    /// Column family, or the throttle's name.
    pub subject: String,
    /// First key, shown as the policy allows; for a throttle its value.
    pub begin: String,
    /// First key no longer inside.
    #[serde(default)]
    pub end: Option<String>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A plan was made that differs from the last one that was told.
    PlanMade {
        /// Steps.
        steps: usize,
        /// Ranges that hurt and are left alone.
        refusals: usize,
        /// Bytes that the steps would rewrite.
        cost_bytes: u64,
        /// Bytes that might be rewritten.
        budget_bytes: u64,
        /// The first step: action, target, subject and range.
        first: String,
    },
    /// An action begins; it is on disk that it does.
    SliceStarted {
        /// Which.
        #[serde(flatten)]
        subject: Subject,
        /// Bytes that it is expected to rewrite.
        cost_bytes: u64,
        /// Why.
        reason: String,
    },
    /// An action was stopped for now; what is left of it follows.
    SlicePaused {
        /// Which.
        #[serde(flatten)]
        subject: Subject,
        /// The guard's name.
        guard: String,
        /// In words, with the numbers.
        reason: String,
    },
    /// An action has ended.
    SliceDone {
        /// Which.
        #[serde(flatten)]
        subject: Subject,
        /// `done`, `skipped`, `failed`, `cancelled`, ...
        state: String,
        /// Bytes of the SST files that it replaced.
        bytes_rewritten: u64,
        /// How long it took, seconds.
        duration_seconds: f64,
        /// What came of it, in words.
        outcome: String,
    },
    /// The range was measured again.
    Verified {
        /// Which.
        #[serde(flatten)]
        subject: Subject,
        /// Whether it helped.
        helped: bool,
        /// Pain before, seconds of reader time per second.
        pain_before: f64,
        /// Pain after.
        pain_after: f64,
        /// In words.
        reason: String,
    },
    /// Ranges of a column family are left alone by a rule, and were not before.
    Refused {
        /// Target's name.
        target: String,
        /// Database directory.
        database: String,
        /// Column family; `None` where no probe could tell.
        column_family: Option<String>,
        /// Name of the rule or guard.
        rule: String,
        /// Ranges that it is about.
        ranges: usize,
        /// The most painful of them.
        subject: String,
        /// Why that one, in words.
        reason: String,
    },
    /// An action did not help: its range has to rest, longer each time.
    BackedOff {
        /// Which.
        #[serde(flatten)]
        subject: Subject,
        /// How many times in a row it has not helped.
        failures_in_a_row: u32,
        /// The likely cause, in words.
        reason: String,
    },
    /// A throttle could not be set, for the first time or for another reason than before. It is tried again, after longer
    /// and longer pauses; that it is set at last, or not wanted any more, ends the action.
    ThrottleFailed {
        /// Which.
        #[serde(flatten)]
        subject: Subject,
        /// How many times in a row it has failed.
        failures_in_a_row: u32,
        /// Why the last time, in words.
        reason: String,
    },
    /// An option was set in a target. It is put back when it is not wanted any more, or the agent is gone.
    OptionsSet {
        /// Target's name.
        target: String,
        /// Database directory.
        database: String,
        /// Column family.
        column_family: String,
        /// The option.
        name: String,
        /// Its value now.
        value: String,
        /// Its value before.
        restore: String,
    },
    /// An option that was set in a target is not any more.
    OptionsRestored {
        /// Target's name.
        target: String,
        /// Database directory.
        database: String,
        /// Column family.
        column_family: String,
        /// The option.
        name: String,
        /// Its value now.
        value: String,
        /// Why, in words.
        reason: String,
    },
    /// An action was under way when an earlier run of the agent ended.
    Interrupted {
        /// Which.
        #[serde(flatten)]
        subject: Subject,
        /// What is known of it.
        reason: String,
    },
    /// A target ended while it was acted on.
    TargetGone {
        /// Which action.
        #[serde(flatten)]
        subject: Subject,
        /// Process id.
        pid: u32,
    },
    /// The disk under the state directory is full: nothing is begun until there is room.
    StateFull {
        /// The system's words.
        reason: String,
    },
    /// The state cannot be written for another reason: nothing is begun until it can.
    StateUnwritable {
        /// RocksDB's words.
        reason: String,
    },
    /// The state can be written again.
    StateRecovered {
        /// Batches of records that had waited and are written now.
        written: usize,
        /// Batches that could not be kept so long.
        lost: u64,
    },
    /// The state was corrupt; it was moved away and begun anew. Cooldowns are forgotten.
    StateSetAside {
        /// Where it lies now.
        path: String,
        /// What was wrong with it.
        reason: String,
    },
    /// The policy's file has gone or cannot be read; the last good one stays in force.
    PolicyGone {
        /// The file.
        path: String,
        /// The system's words.
        reason: String,
    },
    /// The policy's file is no policy any more; the last good one stays in force.
    PolicyBroken {
        /// The file.
        path: String,
        /// What is wrong with it, with the line.
        reason: String,
    },
    /// The policy was read again and is in force.
    PolicyLoaded {
        /// The file.
        path: String,
    },
}

impl What {
    /// Name, as in JSON and metrics: `slice_started`.
    pub fn name(&self) -> &'static str {
        match self {
            What::PlanMade { .. } => "plan_made",
            What::SliceStarted { .. } => "slice_started",
            What::SlicePaused { .. } => "slice_paused",
            What::SliceDone { .. } => "slice_done",
            What::Verified { .. } => "verified",
            What::Refused { .. } => "refused",
            What::BackedOff { .. } => "backed_off",
            What::ThrottleFailed { .. } => "throttle_failed",
            What::OptionsSet { .. } => "options_set",
            What::OptionsRestored { .. } => "options_restored",
            What::Interrupted { .. } => "interrupted",
            What::TargetGone { .. } => "target_gone",
            What::StateFull { .. } => "state_full",
            What::StateUnwritable { .. } => "state_unwritable",
            What::StateRecovered { .. } => "state_recovered",
            What::StateSetAside { .. } => "state_set_aside",
            What::PolicyGone { .. } => "policy_gone",
            What::PolicyBroken { .. } => "policy_broken",
            What::PolicyLoaded { .. } => "policy_loaded",
        }
    }

    /// All names, for metrics that count from zero.
    pub const NAMES: [&str; 19] = [
        "plan_made",
        "slice_started",
        "slice_paused",
        "slice_done",
        "verified",
        "refused",
        "backed_off",
        "throttle_failed",
        "options_set",
        "options_restored",
        "interrupted",
        "target_gone",
        "state_full",
        "state_unwritable",
        "state_recovered",
        "state_set_aside",
        "policy_gone",
        "policy_broken",
        "policy_loaded",
    ];

    /// Whether somebody should look at it.
    pub fn is_trouble(&self) -> bool {
        match self {
            What::SliceDone { state, .. } => state == "failed",
            What::ThrottleFailed { .. }
            | What::Interrupted { .. }
            | What::TargetGone { .. }
            | What::StateFull { .. }
            | What::StateUnwritable { .. }
            | What::StateSetAside { .. }
            | What::PolicyGone { .. }
            | What::PolicyBroken { .. } => true,
            What::PlanMade { .. }
            | What::SliceStarted { .. }
            | What::SlicePaused { .. }
            | What::Verified { .. }
            | What::Refused { .. }
            | What::BackedOff { .. }
            | What::OptionsSet { .. }
            | What::OptionsRestored { .. }
            | What::StateRecovered { .. }
            | What::PolicyLoaded { .. } => false,
        }
    }
}

impl Display for Subject {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let Subject { action_id, action, target, database, subject, begin, end } = self;
        write!(formatter, "#{action_id} {action} {target} ")?;
        if !database.is_empty() {
            write!(formatter, "{database} ")?;
        }
        formatter.write_str(subject)?;
        match (action.as_str(), end) {
            ("flush", _) => Ok(()),
            ("set_throttle" | "set_options", _) => write!(formatter, " {begin}"),
            (_, Some(end)) => write!(formatter, " [{begin}, {end})"),
            (_, None) => write!(formatter, " [{begin}, end)"),
        }
    }
}

impl Display for What {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            What::PlanMade { steps: 0, refusals, .. } => {
                write!(formatter, "plan made: nothing to do, {refusals} ranges are left alone")
            }
            What::PlanMade { steps, refusals, cost_bytes, budget_bytes, first } => write!(
                formatter,
                "plan made: {steps} steps for {cost_bytes} of {budget_bytes} bytes, first {first}; {refusals} ranges \
                 are left alone"
            ),
            What::SliceStarted { subject, cost_bytes, reason } => {
                write!(formatter, "{subject} started, {cost_bytes} bytes expected: {reason}")
            }
            What::SlicePaused { subject, guard, reason } => {
                write!(formatter, "{subject} paused by {guard}: {reason}")
            }
            What::SliceDone { subject, state, duration_seconds, outcome, .. } => {
                write!(formatter, "{subject} {state} after {duration_seconds:.3} s: {outcome}")
            }
            What::Verified { subject, helped, reason, .. } => {
                let verdict = if *helped { "helped" } else { "did not help" };
                write!(formatter, "{subject} {verdict}: {reason}")
            }
            What::Refused { target, database, rule, ranges, subject, reason, .. } => write!(
                formatter,
                "{target}: {rule} refuses {ranges} ranges of {database}, first {subject}: {reason}"
            ),
            What::BackedOff { subject, failures_in_a_row, reason } => {
                write!(formatter, "{subject} backed off after {failures_in_a_row} in a row: {reason}")
            }
            What::ThrottleFailed { subject, failures_in_a_row, reason } => {
                write!(formatter, "{subject} failed {failures_in_a_row} times in a row: {reason}")
            }
            What::OptionsSet { target, database, column_family, name, value, restore } => write!(
                formatter,
                "{target}: {name} of {column_family} in {database} is {value} now, and {restore} again when that is not wanted any \
                 more"
            ),
            What::OptionsRestored { target, database, column_family, name, value, reason } => write!(
                formatter,
                "{target}: {name} of {column_family} in {database} is {value} again: {reason}"
            ),
            What::Interrupted { subject, reason } => write!(formatter, "{subject} interrupted: {reason}"),
            What::TargetGone { subject, pid } => {
                write!(formatter, "{subject}: its target, process {pid}, ended meanwhile")
            }
            What::StateFull { reason } => {
                write!(formatter, "no room for the state, nothing is begun until there is: {reason}")
            }
            What::StateUnwritable { reason } => {
                write!(formatter, "the state cannot be written, nothing is begun until it can: {reason}")
            }
            What::StateRecovered { written, lost } => {
                write!(
                    formatter,
                    "the state can be written again: {written} records had waited, {lost} were lost"
                )
            }
            What::StateSetAside { path, reason } => {
                write!(formatter, "the state was corrupt and begins anew, the old one is {path}: {reason}")
            }
            What::PolicyGone { path, reason } => {
                write!(formatter, "the policy {path} has gone, the last good one stays in force: {reason}")
            }
            What::PolicyBroken { path, reason } => {
                write!(formatter, "the policy {path} is broken, the last good one stays in force: {reason}")
            }
            What::PolicyLoaded { path } => {
                write!(formatter, "the policy {path} was read again and is in force")
            }
        }
    }
}

/// One line: number, time, event.
impl Display for Event {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{} {} {}", self.id, self.at, shown(&self.what.to_string()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn subject() -> Subject {
        Subject {
            action_id: 7,
            action: "compact_range".into(),
            target: "java-1".into(),
            database: "/db".into(),
            subject: "keyTable".into(),
            begin: "61".into(),
            end: None,
        }
    }

    /// One event of each kind.
    pub fn every() -> Vec<What> {
        let (subject, reason) = (subject(), "since\nit is so".to_owned());
        let (path, target) = ("/etc/sexton/policy.yaml".to_owned(), "java-1".to_owned());
        vec![
            What::PlanMade { steps: 1, refusals: 2, cost_bytes: 3, budget_bytes: 4, first: "it".into() },
            What::SliceStarted { subject: subject.clone(), cost_bytes: 9, reason: reason.clone() },
            What::SlicePaused { subject: subject.clone(), guard: "l0_files".into(), reason: reason.clone() },
            What::SliceDone {
                subject: subject.clone(),
                state: "done".into(),
                bytes_rewritten: 1,
                duration_seconds: 0.25,
                outcome: "done".into(),
            },
            What::Verified {
                subject: subject.clone(),
                helped: false,
                pain_before: 1.0,
                pain_after: 0.5,
                reason: reason.clone(),
            },
            What::Refused {
                target: target.clone(),
                database: "/db".into(),
                column_family: None,
                rule: "cooldown".into(),
                ranges: 3,
                subject: "keyTable [61, 62)".into(),
                reason: reason.clone(),
            },
            What::BackedOff { subject: subject.clone(), failures_in_a_row: 2, reason: reason.clone() },
            What::ThrottleFailed { subject: subject.clone(), failures_in_a_row: 2, reason: reason.clone() },
            What::OptionsSet {
                target: target.clone(),
                database: "/db".into(),
                column_family: "keyTable".into(),
                name: "memtable_op_scan_flush_trigger".into(),
                value: "1000".into(),
                restore: "0".into(),
            },
            What::OptionsRestored {
                target: target.clone(),
                database: "/db".into(),
                column_family: "keyTable".into(),
                name: "memtable_op_scan_flush_trigger".into(),
                value: "0".into(),
                reason: reason.clone(),
            },
            What::Interrupted { subject: subject.clone(), reason: reason.clone() },
            What::TargetGone { subject, pid: 1 },
            What::StateFull { reason: reason.clone() },
            What::StateUnwritable { reason: reason.clone() },
            What::StateRecovered { written: 1, lost: 0 },
            What::StateSetAside { path: path.clone(), reason: reason.clone() },
            What::PolicyGone { path: path.clone(), reason: reason.clone() },
            What::PolicyBroken { path: path.clone(), reason },
            What::PolicyLoaded { path },
        ]
    }

    #[test]
    fn each_is_one_line_and_reads_back() {
        for (at, what) in every().into_iter().enumerate() {
            assert_eq!(What::NAMES.get(at), Some(&what.name()));
            let event = Event { id: at as u64 + 1, at: "2026-11-20T10:00:00Z".into(), what };
            let line = event.to_string();
            assert!(!line.contains('\n') && line.len() > 30, "{line}");
            let json = serde_json::to_string(&event).unwrap();
            assert!(json.contains(&format!("\"event\":\"{}\"", event.what.name())), "{json}");
            assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
        }
        assert_eq!(every().len(), What::NAMES.len());
    }

    #[test]
    fn whatever_is_about_a_database_names_it() {
        for what in every() {
            let json = serde_json::to_value(&what).unwrap();
            let database = json.get("database").and_then(serde_json::Value::as_str);
            assert!(database.is_none_or(|database| what.to_string().contains(database)), "{what}");
        }
    }

    #[test]
    fn a_range_reads_as_such_and_a_value_as_a_value() {
        assert_eq!(subject().to_string(), "#7 compact_range java-1 /db keyTable [61, end)");
        let throttle = Subject {
            action: "set_throttle".into(),
            database: String::new(),
            begin: "5".into(),
            ..subject()
        };
        assert_eq!(throttle.to_string(), "#7 set_throttle java-1 keyTable 5");
        let flush = Subject { action: "flush".into(), begin: String::new(), ..subject() };
        assert_eq!(flush.to_string(), "#7 flush java-1 /db keyTable");
    }
}
