//! What an actuator is asked for, and what it reports.

use sexton_hook_protocol::ColumnFamilyPointers;
use sexton_inspect::facts::ProcessId;
use sexton_tuner::cost::Bottommost;
use sexton_tuner::range::KeyRange;
use std::path::PathBuf;
use std::time::Duration;

/// A range to compact.
#[derive(Clone, Debug)]
pub struct CompactRequest {
    /// The process.
    pub process: ProcessId,
    /// Its name for people, `java-4711`.
    pub target: String,
    /// The database's directory, as the target names it.
    pub database: PathBuf,
    /// Column family.
    pub column_family: String,
    /// Where the probes saw database and column family in the target's memory; the hook needs it.
    pub handles: Option<HandlePointers>,
    /// Keys to compact; sorted bytewise.
    pub range: KeyRange,
    /// Bytes that it is expected to rewrite.
    pub cost_bytes: u64,
    /// What is done with the bottommost level's files: rewritten where tombstones lie that nothing else would
    /// remove.
    pub bottommost: Bottommost,
}

impl CompactRequest {
    /// The pointers and what they have to be, for the hook.
    pub fn pointers(&self) -> Option<ColumnFamilyPointers> {
        self.handles.map(|handles| handles.of(&self.column_family))
    }
}

/// Addresses inside the target that probes saw; nobody follows them without checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlePointers {
    /// `rocksdb::DBImpl*`.
    pub database: u64,
    /// `rocksdb::ColumnFamilyHandleImpl*`.
    pub column_family_handle: u64,
    /// Id of the column family.
    pub column_family_id: u32,
}

impl HandlePointers {
    /// The same for the hook, which compares what it finds there with the column family's name and id.
    pub fn of(self, column_family: &str) -> ColumnFamilyPointers {
        ColumnFamilyPointers {
            database: self.database,
            handle: self.column_family_handle,
            name: column_family.to_owned(),
            id: self.column_family_id,
        }
    }
}

/// How a compaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactEnd {
    /// It ran through.
    Done,
    /// It was stopped, and why.
    Cancelled {
        /// In words: asked for, or the time limit.
        reason: String,
    },
}

/// What came of a compaction. Counts are zero where the actuator cannot see the SST files.
#[derive(Clone, Debug)]
pub struct CompactOutcome {
    /// How it ended.
    pub end: CompactEnd,
    /// How long it took.
    pub duration: Duration,
    /// Bytes of the SST files that went with it, see [`sexton_tuner::replaced`].
    pub bytes_replaced: u64,
    /// Bytes of the files that it had memtables flushed to first: they come and go while it runs.
    pub bytes_flushed: u64,
    /// Deletions in the SST files that overlap the range, before.
    pub deletions_before: u64,
    /// The same, after.
    pub deletions_after: u64,
    /// How the policy's command ended; `None` where there was none.
    pub command: Option<CommandEnd>,
}

/// How a command of the policy ended that did what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit code; `None` where a signal has ended it.
    pub exit_code: Option<i32>,
    /// First bytes of what it printed.
    pub output: String,
}

/// Characters of a command's output that go into the history: some lines, and of thousands of actions some
/// megabytes.
const OUTPUT_KEPT_CHARS_MAX: usize = 2048;

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

/// What a command printed as one line that can be kept and shown anywhere.
pub fn one_line(output: &str) -> String {
    let words = output.split(|character: char| character.is_whitespace() || character.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(OUTPUT_KEPT_CHARS_MAX) {
        Some((cut, _)) => format!("{}...", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}

/// A throttle to set.
#[derive(Clone, Debug)]
pub struct ThrottleRequest {
    /// The process.
    pub process: ProcessId,
    /// Name of the throttle, for people.
    pub name: String,
    /// Value to set.
    pub value: String,
    /// Program and arguments with `{value}` in them.
    pub command: Vec<String>,
    /// How long the command may run.
    pub time_limit: Duration,
}

/// What came of setting a throttle.
#[derive(Clone, Debug)]
pub struct ThrottleOutcome {
    /// How long it took.
    pub duration: Duration,
    /// How its command ended.
    pub command: CommandEnd,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_printed_is_kept_in_a_line() {
        let end = |output: &str| CommandEnd { exit_code: Some(0), output: output.to_owned() }.in_words();
        assert_eq!(end(" a\n\tb \x1b[31mred\n"), "the command ended with exit code 0: a b [31mred");
        assert_eq!(end("\n"), "the command ended with exit code 0 and printed nothing");
        let long = end(&"\u{fc}".repeat(OUTPUT_KEPT_CHARS_MAX + 1));
        assert!(long.ends_with("\u{fc}...") && long.chars().count() < OUTPUT_KEPT_CHARS_MAX + 64);
    }
}
