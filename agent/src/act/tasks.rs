//! What is known here of what a target is to do; where it lies in memory is left to the session.

use crate::observe::Watched;
use crate::session::Session;
use sexton_execute::{CompactTask, ExecuteError, FlushTask, OptionTask, SettingTask, Task};
use sexton_tuner::plan::{CompactRange, SetOptions};
use std::path::{Path, PathBuf};

/// A task without its place in the target's memory.
pub enum Unlocated {
    /// It has none.
    Setting(SettingTask),
    Compact(CompactTask),
    Flush((PathBuf, String)),
    Option((PathBuf, String), SetOptions),
}

pub fn locate(session: &Session, task: Unlocated, all_keys: bool) -> Result<Task, ExecuteError> {
    let process = session.process();
    let pointers = |(database, column_family): &(PathBuf, String)| {
        session.pointers_of(Path::new(database), column_family)
    };
    match task {
        Unlocated::Setting(task) => Ok(Task::Set(task)),
        Unlocated::Compact(task) => session.located(task, all_keys),
        Unlocated::Flush(place) => Ok(Task::Flush(FlushTask { process, column_family: pointers(&place)? })),
        Unlocated::Option(place, SetOptions { name, value, restore, .. }) => {
            let (column_family, restore) = (pointers(&place)?, Some(restore));
            Ok(Task::Set(SettingTask::Option(OptionTask { process, column_family, name, value, restore })))
        }
    }
}

/// What is known of a compaction here; where it lies in memory knows the session.
pub fn task(watched: &Watched, compact: &CompactRange) -> CompactTask {
    CompactTask {
        process: watched.target.process,
        target: watched.target.name.clone(),
        handles: None,
        others: Vec::new(),
        database: PathBuf::from(&compact.database),
        column_family: compact.column_family.clone(),
        range: compact.range.clone(),
        cost_bytes: compact.cost_bytes,
        bottommost: compact.bottommost,
        files: compact.primitive.files().cloned(),
    }
}
