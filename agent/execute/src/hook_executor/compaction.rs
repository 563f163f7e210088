//! A compaction, of a range or of files: begun, watched, cancelled, and what it has replaced.

use super::steps::{Step, Stepwise};
use super::stop::Stop;
use crate::error::ExecuteError;
use crate::executor::POLL_INTERVAL;
use crate::flush_watch::FlushWatch;
use crate::hook::HookClient;
use crate::properties::Properties;
use crate::task::{CompactTask, JobEnd, JobOutcome, Progress};
use sexton_hook_protocol::limits::COMPACTION_TIME_MAX;
use sexton_hook_protocol::{
    BottommostLevelCompaction, COMPACT_FILES_BYTES_MAX, COMPACT_FILES_MAX, ColumnFamilyPointers,
    CompactFiles, CompactRange, CompactionState, ErrorKind, Finished, KeyBytes,
};
use sexton_tuner::compact_files::{BYTES_MAX, FILES_MAX, is_as_planned};
use sexton_tuner::cost::Bottommost;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::range::KeyRange;
use sexton_tuner::replaced::{bytes_gone, bytes_replaced};
use sexton_tuner::run::ORPHAN_TIME_MAX;
use std::path::Path;
use std::time::{Duration, Instant};

// What nobody has seen end is taken to run for as long as anything may.
const _: () = assert!(ORPHAN_TIME_MAX.as_secs() >= COMPACTION_TIME_MAX.as_secs());
// What is planned as a compaction of files the hook takes.
const _: () = assert!(FILES_MAX <= COMPACT_FILES_MAX && BYTES_MAX <= COMPACT_FILES_BYTES_MAX);

/// How often RocksDB is asked about itself while a compaction runs: a write stall is noticed within this
/// time.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// How often the other column families are asked: there can be hundreds, and files in their L0 become more by
/// seconds.
const LOADS_INTERVAL: Duration = Duration::from_secs(1);

/// How often a compaction is polled while a file that it flushes can be expected: one of a few megabytes is
/// over in some tens of milliseconds, and the file with it.
const FLUSH_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Lost connections that are forgiven while a compaction runs.
const RECONNECTS_MAX: u32 = 3;

/// A compaction.
pub struct Compaction {
    task: CompactTask,
    pointers: ColumnFamilyPointers,
    cancel_limit: Duration,
    stop: Option<Stop>,
    stage: Stage,
}

/// How far a compaction has come.
enum Stage {
    /// Its files are to be listed, and the pointers checked.
    New,
    /// All is known that it takes to begin.
    Ready {
        before: Vec<SstFile>,
    },
    Running(Running),
    /// It has ended; its files are to be listed again.
    Finished {
        running: Running,
        finished: Finished,
    },
}

/// A compaction that the hook has begun.
struct Running {
    id: u64,
    before: Vec<SstFile>,
    /// Files are compacted without a flush.
    flush: Option<FlushWatch>,
    began: Instant,
    reconnects_left: u32,
    /// What is asked next of the RocksDB; how the job stands comes first.
    question: Question,
    reported: Instant,
    reported_loads: Instant,
}

#[derive(Clone, Copy)]
enum Question {
    State,
    Properties,
    Loads,
    Flushed,
}

impl Compaction {
    pub fn new(task: &CompactTask, cancel_limit: Duration) -> Result<Compaction, ExecuteError> {
        let pointers = task.pointers().ok_or_else(|| ExecuteError::Request {
            reason: format!("no probe has seen the column family {} being opened yet", task.column_family),
        })?;
        // Before anything is sent.
        request_of(task, &pointers)?;
        Ok(Compaction { task: task.clone(), pointers, cancel_limit, stop: None, stage: Stage::New })
    }

    /// Refuses a task that is for another process or another database than its pointers lead to.
    fn check(&self, hook: &mut HookClient) -> Result<(), ExecuteError> {
        let process = hook.target().process;
        if process != self.task.process {
            let reason = format!("the hook lives in process {}, not {}", process.pid, self.task.process.pid);
            return Err(ExecuteError::Request { reason });
        }
        let known = hook.databases()?.into_iter().find(|known| known.pointers == self.pointers);
        match known.and_then(|known| known.directory) {
            Some(found) if !is_same_directory(Path::new(&found), &self.task.database) => {
                let reason = format!("the pointers lead to {found}, not to {}", self.task.database.display());
                Err(ExecuteError::Request { reason })
            }
            _ => Ok(()),
        }
    }

    fn begin(&self, hook: &mut HookClient, before: Vec<SstFile>) -> Result<Running, ExecuteError> {
        let request = request_of(&self.task, &self.pointers)?;
        let flush = match request {
            Asked::Range(_) => Some(FlushWatch::new(hook, &self.pointers, &before)),
            Asked::Files(_) => None,
        };
        let began = Instant::now();
        let id = match request {
            Asked::Range(range) => hook.start_compaction(range)?,
            Asked::Files(files) => hook.start_compaction_of_files(files)?,
        };
        Ok(Running {
            id,
            before,
            flush,
            began,
            reconnects_left: RECONNECTS_MAX,
            question: Question::State,
            reported: began,
            reported_loads: began,
        })
    }

    /// Asks how it stands, cancelling it when asked or out of time. What does not end then is given up on.
    fn ask_state(
        &mut self,
        hook: &mut HookClient,
        running: &mut Running,
    ) -> Result<Option<Finished>, ExecuteError> {
        let deadline = running.began + COMPACTION_TIME_MAX;
        if self.stop.is_none() && Instant::now() >= deadline {
            self.stop = Some(Stop::new(format!("its time limit of {COMPACTION_TIME_MAX:?} was over")));
        }
        let state = if self.stop.as_mut().is_some_and(Stop::is_to_be_asked) {
            hook.cancel_compaction(running.id)
        } else {
            hook.compaction_status(running.id)
        };
        match state {
            Ok(CompactionState::Finished(finished)) => return Ok(Some(finished)),
            Ok(CompactionState::Running { .. }) => {}
            // It runs to its end, and that is waited for as long as for one that nobody stops.
            Err(ExecuteError::Hook { kind: ErrorKind::Unsupported, message, .. }) => {
                tracing::warn!(message, "a compaction goes on");
                self.stop.iter_mut().for_each(|stop| stop.cannot(deadline));
            }
            Err(ExecuteError::Connection { .. }) if running.reconnects_left > 0 => {
                running.reconnects_left -= 1;
            }
            Err(error) => return Err(error),
        }
        match &self.stop {
            Some(stop) if stop.since.elapsed() >= self.cancel_limit => Err(ExecuteError::StillRunning {
                pid: self.task.process.pid,
                job: running.id,
                reason: stop.reason.clone(),
                waited: self.cancel_limit,
            }),
            _ => Ok(None),
        }
    }

    /// What of the RocksDB is to be asked next is asked. What cannot be read is not reported: whoever watches
    /// goes by what there is.
    fn watch(
        &self,
        hook: &mut HookClient,
        running: &mut Running,
        question: Question,
        progress: &mut Progress,
    ) -> Step {
        let now = Instant::now();
        let unheard =
            |error: ExecuteError| tracing::debug!(%error, "the hook does not say how its RocksDB is");
        running.question = match question {
            Question::State | Question::Properties => {
                if now.saturating_duration_since(running.reported) >= REPORT_INTERVAL {
                    running.reported = now;
                    progress.properties = Properties::read(hook, &self.pointers).map_err(unheard).ok();
                }
                Question::Loads
            }
            Question::Loads => {
                if now.saturating_duration_since(running.reported_loads) >= LOADS_INTERVAL {
                    running.reported_loads = now;
                    progress.loads = hook.loads(&self.task.others).map_err(unheard).unwrap_or_default();
                }
                Question::Flushed
            }
            Question::Flushed => {
                running.flush.iter_mut().for_each(|flush| flush.look(hook, &self.pointers));
                running.question = Question::State;
                let is_over = running.flush.as_ref().is_none_or(FlushWatch::is_over);
                return Step::Wait(if is_over { POLL_INTERVAL } else { FLUSH_POLL_INTERVAL });
            }
        };
        Step::Next
    }

    fn outcome(
        &self,
        hook: &mut HookClient,
        running: &Running,
        finished: Finished,
    ) -> Result<JobOutcome, ExecuteError> {
        if finished.busy {
            return Ok(not_begun(finished.error.unwrap_or_else(|| "RocksDB compacts its files".to_owned())));
        }
        let end = match (finished.cancelled, finished.ok) {
            (true, _) => {
                let reason = self.stop.as_ref().map(|stop| stop.reason.clone());
                JobEnd::Cancelled { reason: reason.unwrap_or_else(|| "somebody else did".into()) }
            }
            (false, true) => JobEnd::Done,
            (false, false) => return Err(failed(self.task.process.pid, finished.error)),
        };
        let after = hook.sst_files(&self.pointers)?;
        let replaced = match &self.task.files {
            Some(compact) => bytes_gone(&running.before, &after, &compact.files),
            None => bytes_replaced(&running.before, &after, &self.task.column_family, &self.task.range),
        };
        let deletions = |files| overlapping(&self.task, files).map(|file| file.deletions).sum();
        Ok(JobOutcome {
            end,
            duration: match finished.duration_ns {
                0 => running.began.elapsed(),
                nanoseconds => Duration::from_nanos(nanoseconds),
            },
            bytes_replaced: replaced,
            bytes_flushed: running.flush.as_ref().map_or(0, |flush| flush.bytes(hook, &self.pointers)),
            deletions_before: deletions(&running.before),
            deletions_after: deletions(&after),
            ..JobOutcome::default()
        })
    }
}

impl Stepwise for Compaction {
    fn step(&mut self, hook: &mut HookClient, progress: &mut Progress) -> Result<Step, ExecuteError> {
        if let (Stage::New | Stage::Ready { .. }, Some(stop)) = (&self.stage, &self.stop) {
            // Nothing has begun, and nothing will.
            let end = JobEnd::Cancelled { reason: stop.reason.clone() };
            return Ok(Step::Ended(JobOutcome { end, ..JobOutcome::default() }));
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::New) {
            Stage::New => {
                let before = hook.sst_files(&self.pointers)?;
                self.check(hook)?;
                Stage::Ready { before }
            }
            Stage::Ready { before } => {
                if let Some(compact) = &self.task.files
                    && !is_as_planned(&of_family(&self.task, &before), compact)
                {
                    let reason = "the files have changed since they were chosen".to_owned();
                    return Ok(Step::Ended(not_begun(reason)));
                }
                let running = self.begin(hook, before)?;
                progress.hook_job = Some(running.id);
                Stage::Running(running)
            }
            Stage::Running(mut running) => match running.question {
                Question::State => match self.ask_state(hook, &mut running)? {
                    Some(finished) => Stage::Finished { running, finished },
                    None => {
                        running.question = Question::Properties;
                        Stage::Running(running)
                    }
                },
                question => {
                    let step = self.watch(hook, &mut running, question, progress);
                    self.stage = Stage::Running(running);
                    return Ok(step);
                }
            },
            Stage::Finished { running, finished } => {
                return self.outcome(hook, &running, finished).map(Step::Ended);
            }
        };
        Ok(Step::Next)
    }

    fn cancel(&mut self) {
        if self.stop.is_none() {
            self.stop = Some(Stop::new("it was asked for".to_owned()));
        }
    }
}

fn not_begun(reason: String) -> JobOutcome {
    JobOutcome { end: JobEnd::NotBegun { reason }, ..JobOutcome::default() }
}

fn failed(pid: u32, error: Option<String>) -> ExecuteError {
    let message = error.unwrap_or_else(|| "it failed without a reason".to_owned());
    ExecuteError::Hook { pid, kind: ErrorKind::Internal, message }
}

/// What the hook is asked.
enum Asked {
    Range(CompactRange),
    Files(CompactFiles),
}

fn request_of(task: &CompactTask, pointers: &ColumnFamilyPointers) -> Result<Asked, ExecuteError> {
    // The keys are told and measured by, whatever they are compacted with.
    let range = compact_range(task, pointers)?;
    Ok(match &task.files {
        None => Asked::Range(range),
        Some(compact) => Asked::Files(CompactFiles {
            column_family: pointers.clone(),
            files: compact.files.clone(),
            output_level: compact.output_level,
            output_file_bytes: compact.output_file_bytes,
        }),
    })
}

fn compact_range(task: &CompactTask, pointers: &ColumnFamilyPointers) -> Result<CompactRange, ExecuteError> {
    let KeyRange { begin, end } = &task.range;
    if end.as_ref().is_some_and(|end| end <= begin) {
        return Err(ExecuteError::Request { reason: "the range holds no key".to_owned() });
    }
    let key = |bytes: &[u8]| {
        KeyBytes::new(bytes).map_err(|error| ExecuteError::Request { reason: error.to_string() })
    };
    Ok(CompactRange {
        column_family: pointers.clone(),
        begin: key(begin.as_bytes())?,
        end: end.as_ref().map(|end| key(end.as_bytes())).transpose()?,
        bottommost: match task.bottommost {
            Bottommost::Default => BottommostLevelCompaction::IfHaveCompactionFilter,
            Bottommost::ForceOptimized => BottommostLevelCompaction::ForceOptimized,
            Bottommost::Force => BottommostLevelCompaction::Force,
        },
    })
}

fn of_family<'files>(task: &CompactTask, files: &'files [SstFile]) -> Vec<&'files SstFile> {
    files.iter().filter(|file| file.column_family == task.column_family).collect()
}

/// The files of the task's column family that share a key with its range.
fn overlapping<'files>(
    task: &CompactTask,
    files: &'files [SstFile],
) -> impl Iterator<Item = &'files SstFile> {
    let inside = |file: &&SstFile| {
        file.column_family == task.column_family && task.range.overlaps_closed(&file.smallest, &file.largest)
    };
    files.iter().filter(inside)
}

/// Directories are compared as written, up to a slash at the end.
fn is_same_directory(one: &Path, two: &Path) -> bool {
    one.components().eq(two.components())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::exec::tests::request;
    use crate::task::HandlePointers;
    use sexton_tuner::key::Key;

    fn file(number: u64, smallest: &str, largest: &str) -> SstFile {
        SstFile {
            number,
            column_family: "keyTable".into(),
            level: 6,
            size_bytes: 1 << number,
            entries: 10,
            deletions: number,
            smallest: Key::new(smallest),
            largest: Key::new(largest),
        }
    }

    #[test]
    fn files_of_other_keys_and_column_families_are_not_the_request_s() {
        let request = request(b"c", Some(b"g"));
        let mut other = file(5, "d", "e");
        other.column_family = "fileTable".into();
        let files = [file(1, "a", "b"), file(2, "b", "d"), file(3, "e", "f"), file(4, "g", "h"), other];
        let inside = overlapping(&request, &files);
        assert_eq!(inside.map(|file| file.number).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn ranges_and_keys_are_checked_before_anything_is_sent() {
        let handles = HandlePointers { database: 8, column_family_handle: 16, column_family_id: 2 };
        let mut request = request(b"c", Some(b"g"));
        request.handles = Some(handles);
        let pointers = request.pointers().unwrap();
        assert_eq!((pointers.database, pointers.handle, pointers.id), (8, 16, 2));
        assert!(compact_range(&request, &pointers).is_ok());
        request.range.end = Some(Key::new(*b"c"));
        assert!(compact_range(&request, &pointers).is_err());
        request.range = KeyRange { begin: Key::new(vec![1; 1 << 20]), end: None };
        assert!(compact_range(&request, &pointers).unwrap_err().to_string().contains("longer than"));
    }

    #[test]
    fn directories_are_the_same_up_to_a_slash() {
        assert!(is_same_directory(Path::new("/data/om.db/"), Path::new("/data/om.db")));
        assert!(!is_same_directory(Path::new("/data/om.db"), Path::new("/data/scm.db")));
    }
}
