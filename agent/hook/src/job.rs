//! One compaction or flush at a time, in a thread of its own, and stopping it.
//!
//! A compaction is stopped by its own flag ([`cancel`]), at which RocksDB looks at each key. One that waits
//! (for an automatic compaction of the same files, or for a flush that would stall writers) notices it when
//! its turn comes, and then does nothing. Where this RocksDB has no such flag, for compactions of files,
//! which are small, and for flushes there is nothing but to wait: nothing of ours may fail a compaction of
//! the application's own.

use crate::access::{Access, Failure, enter};
use crate::rocksdb::{Failed, LiveFile, RocksDb};
use crate::{cancel, limit, log, pages, thread};
use sexton_hook_protocol::limits::{CANCEL_WAIT_MAX, STOP_WAIT_MAX};
use sexton_hook_protocol::{
    COMPACT_FILES_BYTES_MAX, ColumnFamilyPointers, CompactFiles, CompactRange, CompactionState, ErrorKind,
    Finished, KeyBytes, Response,
};
use std::collections::BTreeSet;
use std::ffi::{CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Finished jobs whose outcome is kept for an agent that lost its connection meanwhile.
const OUTCOMES_KEPT_MAX: usize = 8;

/// What there is to do.
#[derive(Clone)]
pub enum Job {
    Compact(CompactRange),
    CompactFiles(CompactFiles),
    /// A flush of a column family.
    Flush(ColumnFamilyPointers),
}

impl Job {
    fn pointers(&self) -> &ColumnFamilyPointers {
        match self {
            Job::Compact(request) => &request.column_family,
            Job::CompactFiles(request) => &request.column_family,
            Job::Flush(pointers) => pointers,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Job::Compact(_) => "compaction",
            Job::CompactFiles(_) => "compaction of files",
            Job::Flush(_) => "flush",
        }
    }
}

/// Starts, watches and stops jobs.
#[derive(Clone, Default)]
pub struct Worker {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    /// A job has ended.
    changed: Condvar,
}

struct Jobs {
    last_id: u64,
    running: Option<Running>,
    outcomes: Vec<(u64, Finished)>,
}

/// Factor between the time of day in milliseconds and the number of a first job: so many jobs in a
/// millisecond no RocksDB can do, and up to the year 2250 the numbers are exact in every JSON.
const IDS_PER_MILLISECOND: u64 = 1_000;

impl Default for Jobs {
    /// Numbers go on from the time of day: an agent that comes back must not take a job of this hook for one
    /// of the hook that was here before.
    fn default() -> Jobs {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let milliseconds = u64::try_from(since_epoch.as_millis()).unwrap_or_default();
        let last_id = milliseconds.saturating_mul(IDS_PER_MILLISECOND);
        Jobs { last_id, running: None, outcomes: Vec::new() }
    }
}

struct Running {
    id: u64,
    started: Instant,
    cancelled: bool,
    rocksdb: Arc<RocksDb>,
    job: Job,
}

/// How a job's own part ended.
#[derive(Default)]
struct Done {
    error: Option<String>,
    busy: bool,
    closed_by_owner: bool,
}

impl Done {
    fn failed(error: String) -> Done {
        Done { error: Some(error), ..Done::default() }
    }
}

/// Why RocksDB did not do a job.
struct Trouble {
    reason: String,
    /// Whether nothing was begun, and it may go later.
    is_busy: bool,
}

impl From<String> for Trouble {
    fn from(reason: String) -> Trouble {
        Trouble { reason, is_busy: false }
    }
}

impl Shared {
    /// No panic can leave the state half changed, so a poisoned lock is as good as another.
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job uses this database from here on; `false`: it was asked to stop before.
    fn begin_use(&self, database: u64) -> bool {
        let jobs = self.jobs();
        let is_wanted = jobs.running.as_ref().is_some_and(|running| !running.cancelled);
        if is_wanted {
            cancel::begin(database);
        }
        is_wanted
    }

    /// Keeps how the running job ended.
    fn finish(&self, done: Done) {
        let mut jobs = self.jobs();
        if let Some(running) = jobs.running.take() {
            let cancelled = running.cancelled || done.closed_by_owner;
            let error = done.error.clone().or_else(|| cancelled.then(|| "cancelled".to_owned()));
            let duration_ns = nanoseconds(running.started);
            let (name, id) = (running.job.name(), running.id);
            let result = error.as_deref().unwrap_or("done");
            log::line(&format!("{name} {id} ended after {duration_ns} ns: {result}"));
            if jobs.outcomes.len() >= OUTCOMES_KEPT_MAX {
                jobs.outcomes.remove(0);
            }
            let Done { closed_by_owner, busy, .. } = done;
            let ok = error.is_none();
            let finished = Finished { ok, cancelled, closed_by_owner, busy, error, duration_ns };
            jobs.outcomes.push((running.id, finished));
        }
        drop(jobs);
        self.changed.notify_all();
    }
}

impl Jobs {
    fn state(&self, id: u64) -> Option<CompactionState> {
        if let Some(running) = self.running.as_ref().filter(|running| running.id == id) {
            return Some(CompactionState::Running { elapsed_ns: nanoseconds(running.started) });
        }
        let outcome = self.outcomes.iter().find(|(finished, _)| *finished == id);
        outcome.map(|(_, finished)| CompactionState::Finished(finished.clone()))
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Worker {
    /// Starts a job, or refuses because one is running.
    pub fn start(&self, rocksdb: Arc<RocksDb>, job: Job) -> Result<u64, Failure> {
        let mut jobs = self.shared.jobs();
        if let Some(running) = &jobs.running {
            return Err((ErrorKind::Busy, format!("{} {} is still running", running.job.name(), running.id)));
        }
        jobs.last_id += 1;
        let id = jobs.last_id;
        let running = Running {
            id,
            started: Instant::now(),
            cancelled: false,
            rocksdb: Arc::clone(&rocksdb),
            job: job.clone(),
        };
        jobs.running = Some(running);
        drop(jobs);
        let shared = Arc::clone(&self.shared);
        let spawned = thread::spawn("sexton-compact", thread::COMPACTION_STACK_BYTES, move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| run(&shared, &rocksdb, &job)));
            if outcome.is_err() {
                shared.finish(Done::failed("the hook panicked".to_owned()));
            }
        });
        match spawned {
            Ok(()) => Ok(id),
            Err(error) => {
                let message = format!("cannot start a thread: {error}");
                self.shared.finish(Done::failed(message.clone()));
                Err((ErrorKind::Internal, message))
            }
        }
    }

    /// How job `id` stands.
    pub fn status(&self, id: u64) -> Result<Response, Failure> {
        let state = self.shared.jobs().state(id).ok_or_else(|| not_found(id))?;
        Ok(Response::Compaction { id, state })
    }

    /// Ends what runs; what still does after [`STOP_WAIT_MAX`].
    pub fn stop(&self) -> Option<u64> {
        let running = || self.shared.jobs().running.as_ref().map(|running| running.id);
        if let Some(id) = running() {
            // Where it cannot be cancelled it is waited for.
            let _ = self.cancel(id);
            self.wait(id, STOP_WAIT_MAX);
        }
        running()
    }

    /// Stops compaction `id` and waits for its end, at most [`CANCEL_WAIT_MAX`]. What has not ended by then
    /// is stopped all the same, as soon as its turn comes. Asking again does no harm.
    pub fn cancel(&self, id: u64) -> Result<Response, Failure> {
        let unsupported = |message: &str| Err((ErrorKind::Unsupported, message.to_owned()));
        let mut jobs = self.shared.jobs();
        let Some(running) = jobs.running.as_mut().filter(|running| running.id == id) else {
            drop(jobs);
            return self.status(id);
        };
        if !matches!(running.job, Job::Compact(_)) {
            return unsupported(&format!(
                "a {} cannot be cancelled; it will run to its end",
                running.job.name()
            ));
        }
        if !running.rocksdb.can_cancel() {
            return unsupported("this RocksDB cannot cancel a compaction; it will run to its end");
        }
        running.cancelled = true;
        // Under the lock: of a job that does not use its database yet the mark is enough, and the next one
        // begins with another flag.
        cancel::request();
        drop(jobs);
        self.wait(id, CANCEL_WAIT_MAX);
        self.status(id)
    }

    fn wait(&self, id: u64, time: Duration) {
        let is_running = |jobs: &mut Jobs| jobs.running.as_ref().is_some_and(|running| running.id == id);
        drop(self.shared.changed.wait_timeout_while(self.shared.jobs(), time, is_running));
    }
}

fn not_found(id: u64) -> Failure {
    (ErrorKind::NotFound, format!("there is no compaction or flush {id}, or its outcome is long forgotten"))
}

/// The job's thread: enters the database, calls RocksDB, and leaves when the outcome is kept, so that an
/// owner that closes the database finds it kept.
fn run(shared: &Shared, rocksdb: &RocksDb, job: &Job) {
    let access = match enter(rocksdb, job.pointers()) {
        Ok(access) => access,
        Err((_, reason)) => return shared.finish(Done::failed(reason)),
    };
    let outcome = match job {
        _ if !shared.begin_use(job.pointers().database) => Ok(()),
        Job::Compact(request) => compact(rocksdb, request, &access).map_err(Trouble::from),
        Job::CompactFiles(request) => compact_files(rocksdb, request, &access),
        Job::Flush(_) => rocksdb.flush(access.handles()).map_err(|failed| trouble(failed, "a flush")),
    };
    cancel::end();
    let closed_by_owner = access.is_ending();
    let done = match outcome {
        // What ran through did so before its owner went on.
        Ok(()) if matches!(job, Job::CompactFiles(_)) => Done::default(),
        _ if closed_by_owner => {
            let error = Some(format!("its owner closed the database during the {}", job.name()));
            Done { error, closed_by_owner, ..Done::default() }
        }
        Ok(()) => Done::default(),
        Err(Trouble { reason, is_busy }) => Done { busy: is_busy, ..Done::failed(reason) },
    };
    shared.finish(done);
}

fn trouble(failed: Failed, what: &str) -> Trouble {
    let is_busy = failed.is_aborted();
    match failed {
        Failed::Missing => format!("RocksDB gave no options for {what}").into(),
        Failed::Status(reason) => Trouble { reason, is_busy },
    }
}

/// Never with files that are gone, and never with more than can be waited for.
fn compact_files(rocksdb: &RocksDb, request: &CompactFiles, access: &Access<'_>) -> Result<(), Trouble> {
    let CompactFiles { column_family, files, output_level, output_file_bytes } = request;
    let level = c_int::try_from(*output_level).map_err(|_| "there is no such level".to_owned())?;
    let Some(list) = rocksdb.live_files(access.handles()) else {
        return Err("live SST files cannot be listed".to_owned().into());
    };
    let wanted: BTreeSet<u64> = files.iter().copied().collect();
    let is_own = |file: &LiveFile<'_>| {
        let is_wanted = pages::number(file.name).is_some_and(|number| wanted.contains(&number));
        is_wanted && file.column_family == column_family.name.as_bytes() && file.level <= level
    };
    let own: Vec<(Vec<u8>, usize)> =
        list.iter().filter(is_own).map(|file| (file.name.to_vec(), file.size_bytes)).collect();
    drop(list);
    if own.len() < wanted.len() {
        let reason = format!("{} of {} files are not there any more", wanted.len() - own.len(), wanted.len());
        return Err(Trouble { reason, is_busy: true });
    }
    let bytes = own.iter().map(|(_, bytes)| *bytes as u64).fold(0, u64::saturating_add);
    if bytes > COMPACT_FILES_BYTES_MAX {
        let reason =
            format!("the files have {bytes} bytes, and at most {COMPACT_FILES_BYTES_MAX} can be waited for");
        return Err(reason.into());
    }
    let names: Result<Vec<CString>, _> = own.into_iter().map(|(name, _)| CString::new(name)).collect();
    let names = names.map_err(|_| "the name of a file has a NUL byte".to_owned())?;
    if access.is_ending() {
        return Err("its owner closes the database".to_owned().into());
    }
    let done = rocksdb.compact_files(access.handles(), &names, level, *output_file_bytes);
    done.map_err(|failed| trouble(failed, "a compaction of files"))
}

fn compact(rocksdb: &RocksDb, request: &CompactRange, access: &Access<'_>) -> Result<(), String> {
    let begin = request.begin.as_bytes();
    let limit = request.end.as_ref().map(KeyBytes::as_bytes).map(|end| limit::inclusive(begin, end));
    let errors_before = background_errors(rocksdb, access);
    if access.is_ending() {
        return Ok(());
    }
    if !rocksdb.compact_range(access.handles(), begin, limit.as_deref(), request.bottommost) {
        return Err("RocksDB gave no options for a compaction".to_owned());
    }
    match (errors_before, background_errors(rocksdb, access)) {
        (Some(before), Some(after)) if after > before => Err(format!(
            "the database counted {} background errors during the compaction; see its LOG",
            after - before
        )),
        _ => Ok(()),
    }
}

/// The property `rocksdb.background-errors`; `None` where it cannot be read.
fn background_errors(rocksdb: &RocksDb, access: &Access<'_>) -> Option<u64> {
    let value = rocksdb.property(access.handles(), c"rocksdb.background-errors");
    value.and_then(|(text, _)| text.trim().parse().ok())
}
