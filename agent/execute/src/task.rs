//! What an executor is asked to do, how that stands, and what came of it.

use super::error::ExecuteError;
use super::properties::Properties;
use super::words::one_line;
use sexton_hook_protocol::{ColumnFamilyLoad, ColumnFamilyPointers};
use sexton_inspect::facts::{ProcessId, ThreadLevel};
pub use sexton_inspect::identity::HandlePointers;
use sexton_tuner::compact_files::CompactFiles;
use sexton_tuner::cost::Bottommost;
use sexton_tuner::range::KeyRange;
use sexton_tuner::run::SettingChange;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something to do in a target.
#[derive(Clone, Debug)]
pub enum Task {
    /// Compact a range of a column family.
    Compact(CompactTask),
    /// Write a column family's memtables to SST files.
    Flush(FlushTask),
    /// Set a setting, and read it back where that can be done.
    Set(SettingTask),
    /// Read the value of a setting that is in force.
    Read(SettingTask),
}

/// A setting and the value it is to have.
#[derive(Clone, Debug)]
pub enum SettingTask {
    /// An option of a column family.
    Option(OptionTask),
    /// A value that commands of the policy set and read.
    Throttle(ThrottleTask),
    /// The perf level of threads that do not count.
    PerfLevel(PerfLevelTask),
}

impl SettingTask {
    /// What is to be done in a process to change a setting; `None` where that takes more than the change
    /// says.
    pub fn of(change: &SettingChange, process: ProcessId) -> Option<SettingTask> {
        match change {
            SettingChange::Throttle(set) => Some(SettingTask::Throttle(ThrottleTask {
                process,
                value: set.value.clone(),
                command: set.command.clone(),
                get: set.get.clone(),
                user: set.user.clone(),
                only_from: None,
                time_limit: set.timeout.duration(),
            })),
            SettingChange::Option(_) => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct CompactTask {
    pub process: ProcessId,
    /// Its name for people, `java-4711`.
    pub target: String,
    /// The database's directory, as the target names it.
    pub database: PathBuf,
    pub column_family: String,
    /// Where the probes saw database and column family in the target's memory; the hook needs it.
    pub handles: Option<HandlePointers>,
    /// Other column families of the database: what waits to be compacted in them is reported while this task
    /// runs.
    pub others: Vec<ColumnFamilyPointers>,
    /// Keys to compact; sorted bytewise.
    pub range: KeyRange,
    /// Bytes that it is expected to rewrite.
    pub cost_bytes: u64,
    /// What is done with the bottommost level's files: rewritten where tombstones lie that nothing else would
    /// remove.
    pub bottommost: Bottommost,
    /// The files that are compacted; `None`: all that overlaps the range. Only the hook can do that.
    pub files: Option<CompactFiles>,
}

impl CompactTask {
    /// The pointers and what they have to be, for the hook.
    pub fn pointers(&self) -> Option<ColumnFamilyPointers> {
        self.handles.map(|handles| handles.of(&self.column_family))
    }
}

/// A column family to flush.
#[derive(Clone, Debug)]
pub struct FlushTask {
    pub process: ProcessId,
    pub column_family: ColumnFamilyPointers,
}

/// An option of a column family to set.
#[derive(Clone, Debug)]
pub struct OptionTask {
    pub process: ProcessId,
    pub column_family: ColumnFamilyPointers,
    pub name: String,
    pub value: String,
    /// The value in force, which the hook puts back when this agent is gone; `None`: the new value is to
    /// stay.
    pub restore: Option<String>,
}

/// A throttle to set or read.
#[derive(Clone, Debug)]
pub struct ThrottleTask {
    pub process: ProcessId,
    pub value: String,
    /// Program and arguments that set it, with `{value}` and `{pid}` in them.
    pub command: Vec<String>,
    /// Program and arguments that print the value in force.
    pub get: Option<Vec<String>>,
    /// Set it only where this value is in force, as `get` tells it: what somebody else has set stays.
    pub only_from: Option<String>,
    /// Whose the commands are; `None`: the agent's user's.
    pub user: Option<String>,
    /// How long each of them may run.
    pub time_limit: Duration,
}

/// Threads whose perf level is to be one at which RocksDB counts, until the executor is dropped.
#[derive(Clone, Debug)]
pub struct PerfLevelTask {
    pub process: ProcessId,
    /// Where the process has the level that its threads begin with, which is RocksDB's default.
    pub initial_level: u64,
    /// Their levels as they were read last.
    pub levels: Vec<ThreadLevel>,
}

/// Names something that an executor has begun; no other has the same in the agent's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

impl JobId {
    pub fn unused() -> JobId {
        static LAST: AtomicU64 = AtomicU64::new(0);
        JobId(LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
    }
}

#[derive(Debug)]
pub enum JobStatus {
    Running(Progress),
    /// It has ended, and is forgotten.
    Ended(Result<JobOutcome, ExecuteError>),
}

/// What is new of a running job since it was polled last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The hook's number of it, once: the hook works on without an agent, and tells by this number how it
    /// ended.
    pub hook_job: Option<u64>,
    /// What the RocksDB says of itself meanwhile.
    pub properties: Option<Properties>,
    /// What waits to be compacted in the database's column families.
    pub loads: Vec<ColumnFamilyLoad>,
    /// When it is to be polled the next time.
    pub poll_again_in: Duration,
}

/// How a job ended that did not fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobEnd {
    #[default]
    Done,
    /// It was stopped, and why.
    Cancelled {
        /// In words: asked for, or the time limit.
        reason: String,
    },
    /// Nothing was done; later it may go.
    NotBegun {
        /// In words: its files have changed, or RocksDB compacts some of them.
        reason: String,
    },
}

/// What came of a job. Counts are those of a compaction, and zero where the executor cannot see the SST
/// files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOutcome {
    pub end: JobEnd,
    pub duration: Duration,
    /// Bytes of the SST files that went with it, see [`sexton_tuner::replaced`].
    pub bytes_replaced: u64,
    /// Bytes of the files that it had memtables flushed to first: they come and go while it runs.
    pub bytes_flushed: u64,
    /// Deletions in the SST files that overlap the range, before.
    pub deletions_before: u64,
    pub deletions_after: u64,
    /// How the policy's command ended; `None` where there was none.
    pub command: Option<CommandEnd>,
    /// The value of the setting that is in force, where it was read.
    pub value: Option<String>,
}

/// How a command of the policy ended that did what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit code; `None` where a signal has ended it.
    pub exit_code: Option<i32>,
    /// First bytes of what it printed.
    pub output: String,
}

impl CommandEnd {
    /// In one line: `the command ended with exit code 0: 12 ranges compacted`.
    pub fn in_words(&self) -> String {
        let ended = match self.exit_code {
            Some(code) => format!("the command ended with exit code {code}"),
            None => "the command was ended by a signal".to_owned(),
        };
        match one_line(&self.output).as_str() {
            "" => format!("{ended} and printed nothing"),
            output => format!("{ended}: {output}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::KEPT_CHARS_MAX;
    use super::*;

    #[test]
    fn what_a_command_printed_is_kept_in_a_line() {
        let end = |output: &str| CommandEnd { exit_code: Some(0), output: output.to_owned() }.in_words();
        assert_eq!(end(" a\n\tb \x1b[31mred\n"), "the command ended with exit code 0: a b [31mred");
        assert_eq!(end("\n"), "the command ended with exit code 0 and printed nothing");
        let long = end(&"\u{fc}".repeat(KEPT_CHARS_MAX + 1));
        assert!(long.ends_with("\u{fc}...") && long.chars().count() < KEPT_CHARS_MAX + 64);
    }
}
