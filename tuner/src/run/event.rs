//! What an action hears, and what is to be done about it.

use super::consent::Consent;
use super::identity::{ActionId, JobId};
use super::job::JobStatus;
use super::kept::{KeptSetting, SettingRecord};
use super::moment::Moment;
use super::news::News;
use super::rejection::Rejection;
use crate::evidence::SstFile;
use crate::guard::{GuardRefusal, Readings};
use crate::policy::Policy;
use crate::range::KeyRange;
use crate::rank::RangeAssessment;
use std::time::Duration;

/// What an action hears, and when.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// Now.
    pub now: Moment,
    /// What the operator wants.
    pub policy: &'a Policy,
    /// Bytes that may be written now, as if this action had reserved none.
    pub available_bytes: u64,
    /// What has happened.
    pub event: Event<'a>,
}

/// Something that happened to an action.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Its turn has come.
    Admit(Admission<'a>),
    /// Whether it is on disk that it begins.
    Written(bool),
    /// How its job stands.
    Job(JobStatus),
    /// What can be read of its target: while it runs as [`super::Wanted::readings`] says, while it is paused
    /// as before an action.
    Readings(&'a Readings),
    /// What the commands of the guards say now.
    Consent(&'a Consent),
    /// The live files of its column family, or that they cannot be read.
    Files(Option<&'a [SstFile]>),
    /// What has changed.
    Measured(Measurement),
    /// It is to stop; why, in words.
    Cancel(&'a str),
    /// Its process has ended.
    TargetGone,
    /// The value that it sets is not wanted any more.
    Unwanted,
    /// The value that it sets is in force already.
    InForce,
    /// A window on its target has closed.
    Window(WindowSeen<'a>),
    /// It was read from the disk by another run of the agent than the one that wrote it.
    AgentRestarted {
        /// Whether the process that it is done to still lives.
        is_alive: bool,
    },
    /// Time has passed.
    Tick,
}

/// What is known right before an action begins. The action's price is that of now.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// What can be read of the target.
    pub readings: &'a Readings,
    /// What the commands of the guards have said.
    pub consent: &'a Consent,
    /// What the plan thought that it costs.
    pub planned_cost_bytes: u64,
    /// The keys as the executor is asked for them; `None`: as planned.
    pub part: Option<&'a KeyRange>,
    /// Whether an earlier action has left nothing to do.
    pub nothing_left: bool,
    /// How long one part may take.
    pub time_limit: Duration,
}

/// What an action has changed, seen when it ended; `None` is what could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    /// Bytes of the SST files that are no more.
    pub bytes_replaced: Option<u64>,
    /// Deletions in the range's SST files, before and after.
    pub deletions: Option<(u64, u64)>,
    /// Deletions in the column family's memtables before.
    pub memtable_deletions_before: Option<u64>,
    /// After.
    pub memtable_deletions_after: Option<u64>,
    /// Snapshots that are held in the database.
    pub snapshots: Option<u64>,
    /// How long ago the oldest of them was taken, seconds.
    pub oldest_snapshot_age_seconds: Option<u64>,
    /// The oldest snapshot's sequence number.
    pub oldest_snapshot_sequence: Option<u64>,
    /// Bytes that the database's file system has.
    pub device_bytes: Option<u64>,
}

/// What a window after an action has shown.
#[derive(Clone, Copy, Debug)]
pub struct WindowSeen<'a> {
    /// How long it was, seconds.
    pub seconds: f64,
    /// Whether any operation was seen in it.
    pub has_operations: bool,
    /// All ranges of the target in it.
    pub after: &'a [RangeAssessment],
    /// How often in a row acting in the same way on these keys had not helped before this action.
    pub failures_before: u32,
}

/// Something to be done, in the order given. What is not done because the agent ends is made up for after its
/// restart.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// It does not begin, and nothing of it is written down.
    Refuse(Rejection),
    /// Have it on disk, synced, that the action begins: itself, the setting with it, and the news that it has
    /// started. Answered by [`Event::Written`], before which nothing else is done.
    ///
    /// It comes again before each part after the first: of a job that is not on disk nobody could ask.
    WriteAhead {
        /// Whether it is the first time, which is told.
        is_first: bool,
        /// The setting that it changes, which has to be restored.
        setting: Option<Box<KeptSetting>>,
        /// An old action that is forgotten to make room.
        forget: Option<ActionId>,
    },
    /// Have the executor begin with these keys. Answered by [`Event::Job`], now and then until the job has
    /// ended.
    Start(KeyRange),
    /// Tell the executor to stop the job.
    Cancel,
    /// Ask the executor after a job of an earlier run. Answered by [`Event::Job`], now and then.
    AskAfter(JobId),
    /// Read the live files. Answered by [`Event::Files`].
    ReadFiles,
    /// Read what has changed. Answered by [`Event::Measured`].
    Measure,
    /// Write down the action as it is now, with the setting, the budget and the news in one batch.
    Record(Record),
    /// A guard has objected: count it.
    Objection(GuardRefusal),
    /// Its job may run on where nobody sees it: see [`super::Ledger::orphans`].
    Orphan,
}

/// What is written down together with an action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// What is told, in this order.
    pub news: Vec<News>,
    /// Bytes that it has taken from the budgets; where there are any, these are written down too.
    pub spent_bytes: u64,
    /// What becomes of the setting that it has changed.
    pub setting: SettingRecord,
}
