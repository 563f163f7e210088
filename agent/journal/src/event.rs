//! The events: what each says, as JSON and as a line.

use serde::{Deserialize, Serialize};
use sexton_tuner::policy::KeyDisplay;
use sexton_tuner::run::{ActionId, ActionKind, Outcome, SettingChange};
use sexton_tuner::words;
use std::borrow::Cow;
use std::fmt::{Display, Formatter, Result};
use strum::VariantNames;

/// Something that happened to the agent, or that it did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up from 1, over all runs of the agent that share a state directory.
    pub id: u64,
    /// When, RFC 3339.
    pub at: String,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Kind of an action, as the API names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionName {
    CompactRange,
    Flush,
    /// As [`SettingChange::action_name`] has it.
    #[serde(untagged)]
    ChangeSetting(Cow<'static, str>),
}

impl ActionName {
    pub fn name(&self) -> &str {
        match self {
            ActionName::CompactRange => "compact_range",
            ActionName::Flush => "flush",
            ActionName::ChangeSetting(name) => name,
        }
    }
}

impl From<&ActionKind> for ActionName {
    fn from(kind: &ActionKind) -> ActionName {
        match kind {
            ActionKind::Compact(_) => ActionName::CompactRange,
            ActionKind::Flush(_) => ActionName::Flush,
            ActionKind::ChangeSetting(change) => ActionName::ChangeSetting(change.action_name().into()),
        }
    }
}

/// How an action ended, as the API names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EndName {
    Done,
    Skipped,
    Failed,
    Cancelled,
    Stopped,
    Interrupted,
}

impl From<Outcome> for EndName {
    fn from(outcome: Outcome) -> EndName {
        match outcome {
            Outcome::Done => EndName::Done,
            Outcome::Skipped => EndName::Skipped,
            Outcome::Failed => EndName::Failed,
            Outcome::Cancelled => EndName::Cancelled,
            Outcome::Aborted(_) => EndName::Stopped,
            Outcome::Interrupted => EndName::Interrupted,
        }
    }
}

/// What an action is about, its keys shown as the policy allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Id of the action, as in `/api/v1/actions`.
    pub action_id: ActionId,
    pub action: ActionName,
    pub target: String,
    /// Database directory; empty for what is done to no database.
    #[serde(default)]
    pub database: String,
    /// Column family, or the setting's name.
    pub subject: String,
    /// First key; for a throttle its value, for an option `name=value`.
    pub begin: String,
    /// First key no longer inside.
    #[serde(default)]
    pub end: Option<String>,
}

impl Subject {
    pub fn of(action_id: ActionId, kind: &ActionKind, keys: KeyDisplay) -> Subject {
        let mut subject = Subject {
            action_id,
            action: kind.into(),
            target: kind.target().to_owned(),
            database: kind.database().unwrap_or_default().to_owned(),
            subject: kind.column_family().unwrap_or_default().to_owned(),
            begin: String::new(),
            end: None,
        };
        match kind {
            ActionKind::Compact(compact) => {
                subject.begin = words::key(&compact.range.begin, keys);
                subject.end = compact.range.end.as_ref().map(|end| words::key(end, keys));
            }
            ActionKind::Flush(_) => {}
            ActionKind::ChangeSetting(change @ SettingChange::Option(_)) => {
                subject.begin = format!("{}={}", change.setting().name, change.value());
            }
            ActionKind::ChangeSetting(change) => {
                (subject.subject, subject.begin) = (change.setting().name, change.value());
            }
        }
        subject
    }

    /// In words, without the number.
    pub fn in_words(&self) -> String {
        let Subject { action, target, database, subject, begin, end, .. } = self;
        let name = action.name();
        let database = if database.is_empty() { String::new() } else { format!("{database} ") };
        let what = match (action, end) {
            (ActionName::Flush, _) => String::new(),
            (ActionName::CompactRange, Some(end)) => format!(" [{begin}, {end})"),
            (ActionName::CompactRange, None) => format!(" [{begin}, end)"),
            (ActionName::ChangeSetting(_), _) => format!(" {begin}"),
        };
        format!("{name} {target} {database}{subject}{what}")
    }
}

/// An action begins; it is on disk that it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    #[serde(flatten)]
    pub subject: Subject,
    /// Bytes that it is expected to rewrite.
    pub cost_bytes: u64,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    #[serde(flatten)]
    pub subject: Subject,
    pub state: EndName,
    /// Bytes of the SST files that it replaced.
    pub bytes_rewritten: u64,
    pub duration_seconds: f64,
    /// What came of it, in words.
    pub outcome: String,
}

/// An option of an open column family that was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptionChange {
    pub target: String,
    pub database: String,
    pub column_family: String,
    pub name: String,
    pub value: String,
}

/// The value of a throttle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThrottleChange {
    pub target: String,
    pub name: String,
    pub value: String,
}

/// What happened. Settings and flushes have events of their own since schema version 2: before it, what they
/// did stands as `slice_started` and `slice_done` with their kind of action, and is read as such.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr, VariantNames)]
#[serde(tag = "event", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventKind {
    /// A plan was made that differs from the last one that was emitted. `first` is its first step.
    PlanMade {
        steps: usize,
        refusals: usize,
        cost_bytes: u64,
        budget_bytes: u64,
        first: String,
    },
    SliceStarted(Started),
    /// A guard has stopped an action for now; what is left of it follows.
    SlicePaused {
        #[serde(flatten)]
        subject: Subject,
        guard: String,
        reason: String,
    },
    SliceDone(Ended),
    FlushStarted(Started),
    FlushDone(Ended),
    SettingChangeStarted(Started),
    SettingChangeDone(Ended),
    /// The range was measured again. Pain is in seconds of reader time per second.
    Verified {
        #[serde(flatten)]
        subject: Subject,
        helped: bool,
        pain_before: f64,
        pain_after: f64,
        reason: String,
    },
    /// So many ranges of a column family are left alone by a rule or guard, and were not before; `subject` is
    /// the most painful of them.
    Refused {
        target: String,
        database: String,
        /// `None` where no probe could tell.
        column_family: Option<String>,
        rule: String,
        ranges: usize,
        subject: String,
        reason: String,
    },
    /// An action did not help: its range has to rest, longer each time.
    BackedOff {
        #[serde(flatten)]
        subject: Subject,
        failures_in_a_row: u32,
        reason: String,
    },
    /// A throttle could not be set, for the first time or for another reason than before. It is tried again,
    /// after longer and longer pauses; that it is set at last, or not wanted any more, ends the action.
    ThrottleFailed {
        #[serde(flatten)]
        subject: Subject,
        failures_in_a_row: u32,
        reason: String,
    },
    /// An option was set. It is put back when it is not wanted any more, or the agent is gone.
    OptionsSet {
        #[serde(flatten)]
        change: OptionChange,
        restore: String,
    },
    /// An option that was set is not any more.
    OptionsRestored {
        #[serde(flatten)]
        change: OptionChange,
        reason: String,
    },
    /// A throttle that was set has another value: its former one, or one that somebody else has set.
    ThrottleRestored {
        #[serde(flatten)]
        change: ThrottleChange,
        reason: String,
    },
    /// Somebody else has changed a throttle from the value that was set. The wanted one is set again, or the
    /// policy yields.
    ThrottleChanged {
        #[serde(flatten)]
        change: ThrottleChange,
        /// The value that was set.
        set: String,
        yields: bool,
    },
    /// An action was under way when an earlier run of the agent ended.
    Interrupted {
        #[serde(flatten)]
        subject: Subject,
        reason: String,
    },
    /// A target ended while it was acted on.
    TargetGone {
        #[serde(flatten)]
        subject: Subject,
        pid: u32,
    },
    /// A target has not answered within a deadline, or nothing in it runs. It is tried again.
    TargetUnresponsive {
        target: String,
        pid: u32,
        reason: String,
    },
    /// A target answers again.
    TargetResponsive {
        target: String,
        pid: u32,
        after_seconds: f64,
    },
    /// The disk under the state directory is full: nothing is begun until there is room.
    StateFull {
        reason: String,
    },
    /// The state cannot be written for another reason: nothing is begun until it can.
    StateUnwritable {
        reason: String,
    },
    /// The state can be written again: so many batches had waited, so many could not be kept so long.
    StateRecovered {
        written: usize,
        lost: u64,
    },
    /// The state was corrupt; it was moved here and begun anew. Cooldowns are forgotten.
    StateSetAside {
        path: String,
        reason: String,
    },
    /// The policy's file has gone or cannot be read; the last good one stays in force.
    PolicyGone {
        path: String,
        reason: String,
    },
    /// The policy's file is no policy any more; the last good one stays in force.
    PolicyBroken {
        path: String,
        reason: String,
    },
    /// The policy was read again and is in force.
    PolicyLoaded {
        path: String,
    },
    /// A period of the policy's schedule has opened or closed.
    ScheduleChanged {
        /// Periods that are open now.
        open: Vec<String>,
    },
}

impl EventKind {
    /// Name, as in JSON and metrics: `slice_started`.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// All names, for metrics that count from zero.
    pub const NAMES: &'static [&'static str] = EventKind::VARIANTS;

    /// That an action of this kind begins.
    pub(super) fn started(kind: &ActionKind, started: Started) -> EventKind {
        match kind {
            ActionKind::Compact(_) => EventKind::SliceStarted(started),
            ActionKind::Flush(_) => EventKind::FlushStarted(started),
            ActionKind::ChangeSetting(_) => EventKind::SettingChangeStarted(started),
        }
    }

    /// That an action of this kind has ended.
    pub(super) fn ended(kind: &ActionKind, ended: Ended) -> EventKind {
        match kind {
            ActionKind::Compact(_) => EventKind::SliceDone(ended),
            ActionKind::Flush(_) => EventKind::FlushDone(ended),
            ActionKind::ChangeSetting(_) => EventKind::SettingChangeDone(ended),
        }
    }

    /// Whether somebody should look at it.
    pub fn is_trouble(&self) -> bool {
        match self {
            EventKind::SliceDone(end) | EventKind::FlushDone(end) | EventKind::SettingChangeDone(end) => {
                end.state == EndName::Failed
            }
            EventKind::ThrottleFailed { .. }
            | EventKind::ThrottleChanged { .. }
            | EventKind::Interrupted { .. }
            | EventKind::TargetGone { .. }
            | EventKind::TargetUnresponsive { .. }
            | EventKind::StateFull { .. }
            | EventKind::StateUnwritable { .. }
            | EventKind::StateSetAside { .. }
            | EventKind::PolicyGone { .. }
            | EventKind::PolicyBroken { .. } => true,
            EventKind::PlanMade { .. }
            | EventKind::SliceStarted(_)
            | EventKind::FlushStarted(_)
            | EventKind::SettingChangeStarted(_)
            | EventKind::SlicePaused { .. }
            | EventKind::Verified { .. }
            | EventKind::Refused { .. }
            | EventKind::BackedOff { .. }
            | EventKind::TargetResponsive { .. }
            | EventKind::OptionsSet { .. }
            | EventKind::OptionsRestored { .. }
            | EventKind::ThrottleRestored { .. }
            | EventKind::StateRecovered { .. }
            | EventKind::PolicyLoaded { .. }
            | EventKind::ScheduleChanged { .. } => false,
        }
    }
}

impl Display for Subject {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "#{} {}", self.action_id, self.in_words())
    }
}

impl Display for Started {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let Started { subject, cost_bytes, reason } = self;
        write!(formatter, "{subject} started, {cost_bytes} bytes expected: {reason}")
    }
}

impl Display for Ended {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let Ended { subject, state, duration_seconds, outcome, .. } = self;
        let state: &str = state.into();
        write!(formatter, "{subject} {state} after {duration_seconds:.3} s: {outcome}")
    }
}

impl Display for OptionChange {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let OptionChange { target, database, column_family, name, value } = self;
        write!(formatter, "{target}: {name} of {column_family} in {database} is {value}")
    }
}

impl Display for ThrottleChange {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let ThrottleChange { target, name, value } = self;
        write!(formatter, "{target}: {name} is {value}")
    }
}

/// That somebody else has changed a throttle, and what is done about it.
fn changed(formatter: &mut Formatter<'_>, change: &ThrottleChange, set: &str, yields: bool) -> Result {
    let then = if yields { "it is left alone" } else { "what is wanted is set again" };
    write!(formatter, "{change}, which somebody else has set: it had been set to {set}; {then}")
}

impl Display for EventKind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            EventKind::PlanMade { steps: 0, refusals, .. } => {
                write!(formatter, "plan made: nothing to do, {refusals} ranges are left alone")
            }
            EventKind::PlanMade { steps, refusals, cost_bytes, budget_bytes, first } => write!(
                formatter,
                "plan made: {steps} steps for {cost_bytes} of {budget_bytes} bytes, first {first}; {refusals} ranges \
                 are left alone"
            ),
            EventKind::SliceStarted(started)
            | EventKind::FlushStarted(started)
            | EventKind::SettingChangeStarted(started) => started.fmt(formatter),
            EventKind::SlicePaused { subject, guard, reason } => {
                write!(formatter, "{subject} paused by {guard}: {reason}")
            }
            EventKind::SliceDone(ended)
            | EventKind::FlushDone(ended)
            | EventKind::SettingChangeDone(ended) => ended.fmt(formatter),
            EventKind::Verified { subject, helped, reason, .. } => {
                let verdict = if *helped { "helped" } else { "did not help" };
                write!(formatter, "{subject} {verdict}: {reason}")
            }
            EventKind::Refused { target, database, rule, ranges, subject, reason, .. } => write!(
                formatter,
                "{target}: {rule} refuses {ranges} ranges of {database}, first {subject}: {reason}"
            ),
            EventKind::BackedOff { subject, failures_in_a_row, reason } => {
                write!(formatter, "{subject} backed off after {failures_in_a_row} in a row: {reason}")
            }
            EventKind::ThrottleFailed { subject, failures_in_a_row, reason } => {
                write!(formatter, "{subject} failed {failures_in_a_row} times in a row: {reason}")
            }
            EventKind::OptionsSet { change, restore } => {
                write!(formatter, "{change} now, and {restore} again when that is not wanted any more")
            }
            EventKind::OptionsRestored { change, reason } => write!(formatter, "{change} again: {reason}"),
            EventKind::ThrottleRestored { change, reason } => write!(formatter, "{change} again: {reason}"),
            EventKind::ThrottleChanged { change, set, yields } => changed(formatter, change, set, *yields),
            EventKind::Interrupted { subject, reason } => {
                write!(formatter, "{subject} interrupted: {reason}")
            }
            EventKind::TargetGone { subject, pid } => {
                write!(formatter, "{subject}: its target, process {pid}, ended meanwhile")
            }
            EventKind::TargetUnresponsive { target, pid, reason } => {
                write!(formatter, "{target}: process {pid} does not respond: {reason}")
            }
            EventKind::TargetResponsive { target, pid, after_seconds } => {
                write!(formatter, "{target}: process {pid} responds again after {after_seconds:.1} s")
            }
            EventKind::StateFull { reason } => {
                write!(formatter, "no room for the state, nothing is begun until there is: {reason}")
            }
            EventKind::StateUnwritable { reason } => {
                write!(formatter, "the state cannot be written, nothing is begun until it can: {reason}")
            }
            EventKind::StateRecovered { written, lost } => write!(
                formatter,
                "the state can be written again: {written} records had waited, {lost} were lost"
            ),
            EventKind::StateSetAside { path, reason } => {
                write!(formatter, "the state was corrupt and begins anew, the old one is {path}: {reason}")
            }
            EventKind::PolicyGone { path, reason } => former_policy(formatter, path, "has gone", reason),
            EventKind::PolicyBroken { path, reason } => former_policy(formatter, path, "is broken", reason),
            EventKind::PolicyLoaded { path } => loaded_policy(formatter, path),
            EventKind::ScheduleChanged { open } => schedule(formatter, open),
        }
    }
}

fn schedule(formatter: &mut Formatter<'_>, open: &[String]) -> Result {
    match open {
        [] => formatter.write_str("no period of the schedule is open: the policy's own values hold"),
        open => write!(formatter, "the schedule's values of {} hold now", open.join(", ")),
    }
}

fn loaded_policy(formatter: &mut Formatter<'_>, path: &str) -> Result {
    write!(formatter, "the policy {path} was read again and is in force")
}

fn former_policy(formatter: &mut Formatter<'_>, path: &str, what: &str, reason: &str) -> Result {
    write!(formatter, "the policy {path} {what}, the last good one stays in force: {reason}")
}

/// Number, time, event. Foreign words stand in it as they came.
impl Display for Event {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{} {} {}", self.id, self.at, self.kind)
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn subject() -> Subject {
        Subject {
            action_id: ActionId(7),
            action: ActionName::CompactRange,
            target: "java-1".into(),
            database: "/db".into(),
            subject: "keyTable".into(),
            begin: "61".into(),
            end: None,
        }
    }

    fn started() -> Started {
        Started { subject: subject(), cost_bytes: 9, reason: "since\nit is so".into() }
    }

    fn ended() -> Ended {
        Ended {
            subject: subject(),
            state: EndName::Done,
            bytes_rewritten: 1,
            duration_seconds: 0.25,
            outcome: "done".into(),
        }
    }

    fn option_change() -> OptionChange {
        OptionChange {
            target: "java-1".into(),
            database: "/db".into(),
            column_family: "keyTable".into(),
            name: "memtable_op_scan_flush_trigger".into(),
            value: "1000".into(),
        }
    }

    /// One event of each kind.
    pub fn every() -> Vec<EventKind> {
        let (subject, reason) = (subject(), "since\nit is so".to_owned());
        let (path, target) = ("/etc/sexton/policy.yaml".to_owned(), "java-1".to_owned());
        vec![
            EventKind::PlanMade { steps: 1, refusals: 2, cost_bytes: 3, budget_bytes: 4, first: "it".into() },
            EventKind::SliceStarted(started()),
            EventKind::SlicePaused {
                subject: subject.clone(),
                guard: "l0_files".into(),
                reason: reason.clone(),
            },
            EventKind::SliceDone(ended()),
            EventKind::FlushStarted(started()),
            EventKind::FlushDone(ended()),
            EventKind::SettingChangeStarted(started()),
            EventKind::SettingChangeDone(ended()),
            EventKind::Verified {
                subject: subject.clone(),
                helped: false,
                pain_before: 1.0,
                pain_after: 0.5,
                reason: reason.clone(),
            },
            EventKind::Refused {
                target: target.clone(),
                database: "/db".into(),
                column_family: None,
                rule: "cooldown".into(),
                ranges: 3,
                subject: "keyTable [61, 62)".into(),
                reason: reason.clone(),
            },
            EventKind::BackedOff { subject: subject.clone(), failures_in_a_row: 2, reason: reason.clone() },
            EventKind::ThrottleFailed {
                subject: subject.clone(),
                failures_in_a_row: 2,
                reason: reason.clone(),
            },
            EventKind::OptionsSet { change: option_change(), restore: "0".into() },
            EventKind::OptionsRestored { change: option_change(), reason: reason.clone() },
            EventKind::ThrottleRestored {
                change: ThrottleChange { target: "java-1".into(), name: "limit".into(), value: "7".into() },
                reason: reason.clone(),
            },
            EventKind::ThrottleChanged {
                change: ThrottleChange { target: "java-1".into(), name: "limit".into(), value: "9".into() },
                set: "7".into(),
                yields: true,
            },
            EventKind::Interrupted { subject: subject.clone(), reason: reason.clone() },
            EventKind::TargetGone { subject, pid: 1 },
            EventKind::TargetUnresponsive { target: "java-1".into(), pid: 1, reason: reason.clone() },
            EventKind::TargetResponsive { target: "java-1".into(), pid: 1, after_seconds: 1.0 },
            EventKind::StateFull { reason: reason.clone() },
            EventKind::StateUnwritable { reason: reason.clone() },
            EventKind::StateRecovered { written: 1, lost: 0 },
            EventKind::StateSetAside { path: path.clone(), reason: reason.clone() },
            EventKind::PolicyGone { path: path.clone(), reason: reason.clone() },
            EventKind::PolicyBroken { path: path.clone(), reason },
            EventKind::PolicyLoaded { path },
            EventKind::ScheduleChanged { open: vec!["off-peak".into()] },
        ]
    }

    #[test]
    fn each_has_its_name_and_reads_back() {
        for (at, kind) in every().into_iter().enumerate() {
            assert_eq!(EventKind::NAMES.get(at), Some(&kind.name()));
            let event = Event { id: at as u64 + 1, at: "2026-11-20T10:00:00Z".into(), kind };
            let json = serde_json::to_string(&event).unwrap();
            assert!(json.contains(&format!("\"event\":\"{}\"", event.kind.name())), "{json}");
            assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
        }
        assert_eq!(every().len(), EventKind::NAMES.len());
    }

    #[test]
    fn whatever_is_about_a_database_names_it() {
        for kind in every() {
            let json = serde_json::to_value(&kind).unwrap();
            let database = json.get("database").and_then(serde_json::Value::as_str);
            assert!(database.is_none_or(|database| kind.to_string().contains(database)), "{kind}");
        }
    }

    #[test]
    fn a_range_reads_as_such_and_a_value_as_a_value() {
        assert_eq!(subject().to_string(), "#7 compact_range java-1 /db keyTable [61, end)");
        let throttle = Subject {
            action: ActionName::ChangeSetting("set_throttle".into()),
            database: String::new(),
            begin: "5".into(),
            ..subject()
        };
        assert_eq!(throttle.to_string(), "#7 set_throttle java-1 keyTable 5");
        let flush = Subject { action: ActionName::Flush, begin: String::new(), ..subject() };
        assert_eq!(flush.to_string(), "#7 flush java-1 /db keyTable");
    }
}
