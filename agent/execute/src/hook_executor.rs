//! The executor `hook`: what the library inside the target does.
//!
//! A job goes on by steps when it is polled, each of which is one question, or several that share the time of
//! one. It holds the connection for a poll and not longer: between two polls others may ask.

use super::error::ExecuteError;
use super::executor::{Executor, Job, Jobs, POLL_INTERVAL};
use super::flush_watch::FlushWatch;
use super::hook::{HookClient, SharedHook};
use super::properties::Properties;
use super::task::{CompactTask, FlushTask, JobEnd, JobId, JobOutcome, JobStatus, OptionTask, Progress};
use super::template::shell_word;
use super::{SettingTask, Task};
use sexton_hook_protocol::limits::{ANSWER_WAIT_MAX, COMPACTION_TIME_MAX};
use sexton_hook_protocol::{
    BottommostLevelCompaction, ColumnFamilyPointers, CompactRange, CompactionState, ErrorKind, Finished,
    KeyBytes, OptionChange, OptionsScope,
};
use sexton_tuner::cost::Bottommost;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::range::KeyRange;
use sexton_tuner::replaced::bytes_replaced;
use sexton_tuner::run::ORPHAN_TIME_MAX;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

// What nobody has seen end is taken to run for as long as anything may.
const _: () = assert!(ORPHAN_TIME_MAX.as_secs() >= COMPACTION_TIME_MAX.as_secs());

/// A poll begins no further step after this time. Nearly all steps take less than a millisecond.
const POLL_TIME: Duration = Duration::from_millis(20);

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

/// How often a compaction that is to stop is cancelled anew: the first time the hook may have had no thread
/// for it.
const CANCEL_INTERVAL: Duration = Duration::from_secs(5);

/// How long a compaction that is to stop is waited for. RocksDB gives up one that runs within a key or so;
/// what has not ended after this waits for something that may take hours, and other targets wait for this
/// agent.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(60);

/// How long a flush is waited for: a memtable is written in a second or two, and nothing can stop it.
const FLUSH_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Has the hook compact, flush and set options.
pub struct HookExecutor {
    hook: Option<SharedHook>,
    /// For describing: the file that the agent runs with.
    policy_path: Option<PathBuf>,
    cancel_limit: Duration,
    jobs: Jobs,
}

impl HookExecutor {
    /// Over a connection; without one it can only describe.
    pub fn new(hook: Option<SharedHook>, policy_path: Option<PathBuf>) -> HookExecutor {
        HookExecutor { hook, policy_path, cancel_limit: CANCEL_TIME_MAX, jobs: Jobs::default() }
    }

    /// How long a compaction that is to stop is waited for before it is given up on.
    #[must_use]
    pub fn giving_up_after(self, cancel_limit: Duration) -> HookExecutor {
        HookExecutor { cancel_limit, ..self }
    }

    fn hook(&self, pid: u32) -> Result<SharedHook, ExecuteError> {
        self.hook.clone().ok_or(ExecuteError::NoHook { pid })
    }
}

impl Executor for HookExecutor {
    fn start(&mut self, task: &Task) -> Result<JobId, ExecuteError> {
        match task {
            Task::Compact(task) => {
                let compaction = Compaction::new(task, self.cancel_limit)?;
                let steps = Steps::new(self.hook(task.process.pid)?, compaction);
                Ok(self.jobs.add(steps))
            }
            Task::Flush(task) => {
                let flush = Flush { task: task.clone(), begun: None, is_to_stop: false };
                let steps = Steps::new(self.hook(task.process.pid)?, flush);
                Ok(self.jobs.add(steps))
            }
            Task::Set(SettingTask::Option(task)) => {
                let steps = Steps::new(self.hook(task.process.pid)?, SetOption(task.clone()));
                Ok(self.jobs.add(steps))
            }
            _ => Err(ExecuteError::Unsupported { executor: "hook", what: "set or read that" }),
        }
    }

    fn jobs(&mut self) -> &mut Jobs {
        &mut self.jobs
    }

    /// No tool outside of the process can compact an open database, so the command is this agent's own, in
    /// mode `act`.
    fn describe(&self, task: &Task) -> Vec<String> {
        let Task::Compact(task) = task else { return Vec::new() };
        vec![match &self.policy_path {
            Some(policy) => format!(
                "sexton run --policy {}  # with `mode: act` for {}",
                shell_word(&policy.to_string_lossy()),
                shell_word(&task.target)
            ),
            None => format!(
                "sexton run --policy act.yaml  # a policy with `mode: act` and `pid: {}` as a target",
                task.process.pid
            ),
        }]
    }
}

/// Something that the hook does in steps.
trait Stepwise: Send {
    /// Takes the next step. What is new goes into `progress`.
    fn step(&mut self, hook: &mut HookClient, progress: &mut Progress) -> Result<Step, ExecuteError>;

    fn cancel(&mut self);
}

/// What a step has come to.
enum Step {
    /// The next one can be taken at once.
    Next,
    /// There is nothing to do before so long.
    Wait(Duration),
    Ended(JobOutcome),
}

/// A job over the hook's connection.
struct Steps<S> {
    hook: SharedHook,
    work: S,
}

impl<S: Stepwise> Steps<S> {
    fn new(hook: SharedHook, work: S) -> Steps<S> {
        Steps { hook, work }
    }
}

impl<S: Stepwise> Job for Steps<S> {
    fn poll(&mut self) -> JobStatus {
        let began = Instant::now();
        let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = Progress::default();
        loop {
            match hook.within(ANSWER_WAIT_MAX, |hook| self.work.step(hook, &mut progress)) {
                Ok(Step::Ended(outcome)) => return JobStatus::Ended(Ok(outcome)),
                Ok(Step::Wait(pause)) => {
                    progress.poll_again_in = pause;
                    return JobStatus::Running(progress);
                }
                // The hook's number of the job is told before anything else is done.
                Ok(Step::Next) if began.elapsed() < POLL_TIME && progress.hook_job.is_none() => {}
                Ok(Step::Next) => return JobStatus::Running(progress),
                Err(error) => return JobStatus::Ended(Err(error)),
            }
        }
    }

    fn cancel(&mut self) {
        self.work.cancel();
    }
}

/// A compaction of a range.
struct Compaction {
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
    flush: FlushWatch,
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

struct Stop {
    reason: String,
    /// Since when its end is waited for.
    since: Instant,
    /// When the hook is asked the next time; `None`: it cannot.
    next_ask: Option<Instant>,
}

impl Stop {
    fn new(reason: String) -> Stop {
        let now = Instant::now();
        Stop { reason, since: now, next_ask: Some(now) }
    }

    /// Whether the hook is to be asked now; if so, the next time is later.
    fn is_to_be_asked(&mut self) -> bool {
        let is_due = self.next_ask.is_some_and(|next| next <= Instant::now());
        if is_due {
            self.next_ask = Some(Instant::now() + CANCEL_INTERVAL);
        }
        is_due
    }

    /// The hook cannot: it has until `deadline`, as it would have had anyway.
    fn cannot(&mut self, deadline: Instant) {
        (self.next_ask, self.since) = (None, self.since.max(deadline));
    }
}

impl Compaction {
    fn new(task: &CompactTask, cancel_limit: Duration) -> Result<Compaction, ExecuteError> {
        let pointers = task.pointers().ok_or_else(|| ExecuteError::Request {
            reason: format!("no probe has seen the column family {} being opened yet", task.column_family),
        })?;
        // Before anything is sent.
        compact_range(task, &pointers)?;
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
        let flush = FlushWatch::new(hook, &self.pointers, &before);
        let began = Instant::now();
        let id = hook.start_compaction(compact_range(&self.task, &self.pointers)?)?;
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
                running.flush.look(hook, &self.pointers);
                running.question = Question::State;
                return Step::Wait(if running.flush.is_over() { POLL_INTERVAL } else { FLUSH_POLL_INTERVAL });
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
        let end = match (finished.cancelled, finished.ok) {
            (true, _) => {
                let reason = self.stop.as_ref().map(|stop| stop.reason.clone());
                JobEnd::Cancelled { reason: reason.unwrap_or_else(|| "somebody else did".into()) }
            }
            (false, true) => JobEnd::Done,
            (false, false) => return Err(failed(self.task.process.pid, finished.error)),
        };
        let after = hook.sst_files(&self.pointers)?;
        let replaced = bytes_replaced(&running.before, &after, &self.task.column_family, &self.task.range);
        let deletions = |files| overlapping(&self.task, files).map(|file| file.deletions).sum();
        Ok(JobOutcome {
            end,
            duration: match finished.duration_ns {
                0 => running.began.elapsed(),
                nanoseconds => Duration::from_nanos(nanoseconds),
            },
            bytes_replaced: replaced,
            bytes_flushed: running.flush.bytes(hook, &self.pointers),
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

/// A flush, which nothing can stop.
struct Flush {
    task: FlushTask,
    begun: Option<(u64, Instant)>,
    is_to_stop: bool,
}

impl Stepwise for Flush {
    fn step(&mut self, hook: &mut HookClient, progress: &mut Progress) -> Result<Step, ExecuteError> {
        let goes_on =
            |why: String| Err(ExecuteError::Request { reason: format!("{why}, and the flush goes on") });
        let Some((id, began)) = self.begun else {
            let id = hook.flush(&self.task.column_family)?;
            self.begun = Some((id, Instant::now()));
            progress.hook_job = Some(id);
            return Ok(Step::Next);
        };
        match hook.compaction_status(id)? {
            CompactionState::Finished(finished) if finished.ok => {
                Ok(Step::Ended(JobOutcome { duration: began.elapsed(), ..JobOutcome::default() }))
            }
            CompactionState::Finished(finished) => Err(ExecuteError::Request {
                reason: finished.error.unwrap_or_else(|| "the flush failed".to_owned()),
            }),
            CompactionState::Running { .. } if began.elapsed() >= FLUSH_TIME_LIMIT => {
                goes_on(format!("it takes longer than {FLUSH_TIME_LIMIT:?}"))
            }
            CompactionState::Running { .. } if self.is_to_stop => goes_on("the agent ends".to_owned()),
            CompactionState::Running { .. } => Ok(Step::Wait(POLL_INTERVAL)),
        }
    }

    fn cancel(&mut self) {
        self.is_to_stop = true;
    }
}

/// An option that is set: one question.
struct SetOption(OptionTask);

impl Stepwise for SetOption {
    fn step(&mut self, hook: &mut HookClient, _: &mut Progress) -> Result<Step, ExecuteError> {
        let OptionTask { column_family, name, value, restore, .. } = &self.0;
        let change = OptionChange { name: name.clone(), value: value.clone(), restore: restore.clone() };
        hook.set_options(column_family, OptionsScope::ColumnFamily, &[change])?;
        Ok(Step::Ended(JobOutcome { value: Some(value.clone()), ..JobOutcome::default() }))
    }

    fn cancel(&mut self) {}
}

fn failed(pid: u32, error: Option<String>) -> ExecuteError {
    let message = error.unwrap_or_else(|| "it failed without a reason".to_owned());
    ExecuteError::Hook { pid, kind: ErrorKind::Internal, message }
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
        max_subcompactions: None,
    })
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
    use super::super::exec::tests::request;
    use super::super::task::HandlePointers;
    use super::*;
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

    #[test]
    fn without_a_hook_it_only_describes() {
        let mut executor = HookExecutor::new(None, Some("/etc/sexton/my policy.yaml".into()));
        let mut request = request(b"a", None);
        let line = executor.describe(&Task::Compact(request.clone())).remove(0);
        assert!(line.starts_with("sexton run --policy '/etc/sexton/my policy.yaml'"), "{line}");
        let line = HookExecutor::new(None, None).describe(&Task::Compact(request.clone())).remove(0);
        assert!(line.contains("4711"), "{line}");
        let unseen = executor.start(&Task::Compact(request.clone())).unwrap_err();
        assert!(unseen.to_string().starts_with("no probe has seen"), "{unseen}");
        request.handles = Some(HandlePointers { database: 8, column_family_handle: 16, column_family_id: 2 });
        let error = executor.start(&Task::Compact(request)).unwrap_err();
        assert!(matches!(error, ExecuteError::NoHook { pid: 4711 }), "{error}");
    }
}
