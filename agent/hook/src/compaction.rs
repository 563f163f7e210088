//! One range compaction at a time, in a thread of its own, and stopping it.
//!
//! Stopping: the C API has no switch for one compaction, so all manual compactions of the database are
//! disabled, which makes RocksDB give them up within a key or so, and enabled again. A manual compaction
//! the application itself had running at that moment ends with `Status::Incomplete` too. One that still
//! waits for an automatic compaction of the same files may not notice before that one has ended (7.7.3).

use crate::log;
use crate::rocksdb::RocksDb;
use crate::session::{Failure, verified};
use crate::{limit, thread};
use sexton_hook_protocol::{CompactRange, CompactionState, ErrorKind, Finished, KeyBytes, Response};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a cancelled compaction may take to end before the agent is told that it still runs.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(20);

/// Finished compactions whose outcome is kept for an agent that lost its connection meanwhile.
const OUTCOMES_KEPT_MAX: usize = 8;

/// Starts, watches and stops compactions.
#[derive(Clone, Default)]
pub struct Compactor {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    finished: Condvar,
}

#[derive(Default)]
struct Jobs {
    last_id: u64,
    running: Option<Running>,
    outcomes: Vec<(u64, Finished)>,
}

struct Running {
    id: u64,
    started: Instant,
    cancelled: bool,
    rocksdb: Arc<RocksDb>,
    request: CompactRange,
}

impl Shared {
    /// No panic can leave the state half changed, so a poisoned lock is as good as another.
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the running job was asked to stop.
    fn is_cancelled(&self) -> bool {
        self.jobs().running.as_ref().is_some_and(|running| running.cancelled)
    }

    /// Ends the running job with this error, or with success.
    fn finish(&self, error: Option<String>) {
        let mut jobs = self.jobs();
        if let Some(running) = jobs.running.take() {
            let cancelled = running.cancelled;
            let error = error.or_else(|| cancelled.then(|| "cancelled".to_owned()));
            let duration_ns = nanoseconds(running.started);
            log::line(&format!("compaction {} ended after {duration_ns} ns: {error:?}", running.id));
            if jobs.outcomes.len() >= OUTCOMES_KEPT_MAX {
                jobs.outcomes.remove(0);
            }
            jobs.outcomes.push((running.id, Finished { ok: error.is_none(), cancelled, error, duration_ns }));
        }
        drop(jobs);
        self.finished.notify_all();
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

impl Compactor {
    /// Starts a compaction, or refuses because one is running.
    pub fn start(&self, rocksdb: Arc<RocksDb>, request: CompactRange) -> Result<u64, Failure> {
        let mut jobs = self.shared.jobs();
        if let Some(running) = &jobs.running {
            return Err((ErrorKind::Busy, format!("compaction {} is still running", running.id)));
        }
        jobs.last_id += 1;
        let id = jobs.last_id;
        let running = Running {
            id,
            started: Instant::now(),
            cancelled: false,
            rocksdb: Arc::clone(&rocksdb),
            request: request.clone(),
        };
        jobs.running = Some(running);
        drop(jobs);
        let shared = Arc::clone(&self.shared);
        let spawned = thread::spawn("sexton-compact", thread::COMPACTION_STACK_BYTES, move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| compact(&shared, &rocksdb, &request)));
            shared.finish(outcome.unwrap_or_else(|_| Err("the hook panicked".to_owned())).err());
        });
        match spawned {
            Ok(()) => Ok(id),
            Err(error) => {
                let message = format!("cannot start a thread: {error}");
                self.shared.finish(Some(message.clone()));
                Err((ErrorKind::Internal, message))
            }
        }
    }

    /// How compaction `id` stands.
    pub fn status(&self, id: u64) -> Result<Response, Failure> {
        let state = self.shared.jobs().state(id).ok_or_else(|| not_found(id))?;
        Ok(Response::Compaction { id, state })
    }

    /// Stops compaction `id` and waits for its end, at most [`CANCEL_WAIT_MAX`].
    pub fn cancel(&self, id: u64) -> Result<Response, Failure> {
        let mut jobs = self.shared.jobs();
        let Some(running) = jobs.running.as_mut().filter(|running| running.id == id) else {
            drop(jobs);
            return self.status(id);
        };
        running.cancelled = true;
        let (rocksdb, request) = (Arc::clone(&running.rocksdb), running.request.clone());
        drop(jobs);
        if !rocksdb.can_cancel() {
            let message = "this RocksDB cannot cancel a compaction; it will run to its end";
            return Err((ErrorKind::Unsupported, message.to_owned()));
        }
        rocksdb.disable_manual_compaction(verified(&rocksdb, &request.column_family)?);
        let is_running = |jobs: &mut Jobs| jobs.running.as_ref().is_some_and(|running| running.id == id);
        let waited = self.shared.finished.wait_timeout_while(self.shared.jobs(), CANCEL_WAIT_MAX, is_running);
        drop(waited);
        // If the database was closed meanwhile there is nothing left to enable.
        if let Ok(handles) = verified(&rocksdb, &request.column_family) {
            rocksdb.enable_manual_compaction(handles);
        }
        self.status(id)
    }
}

fn not_found(id: u64) -> Failure {
    (ErrorKind::NotFound, format!("there is no compaction {id}, or its outcome is long forgotten"))
}

/// The compaction's thread: checks the pointers once more and calls RocksDB.
fn compact(shared: &Shared, rocksdb: &RocksDb, request: &CompactRange) -> Result<(), String> {
    let pointers = &request.column_family;
    let begin = request.begin.as_bytes();
    let limit = request.end.as_ref().map(KeyBytes::as_bytes).map(|end| limit::inclusive(begin, end));
    let errors_before = background_errors(rocksdb, request)?;
    if shared.is_cancelled() {
        return Ok(());
    }
    let handles = verified(rocksdb, pointers).map_err(|(_, reason)| reason)?;
    if !rocksdb.compact_range(handles, begin, limit.as_deref(), request.force_bottommost) {
        return Err("RocksDB gave no options for a compaction".to_owned());
    }
    match (errors_before, background_errors(rocksdb, request)?) {
        (Some(before), Some(after)) if after > before => Err(format!(
            "the database counted {} background errors during the compaction; see its LOG",
            after - before
        )),
        _ => Ok(()),
    }
}

/// The property `rocksdb.background-errors`; `None` where it cannot be read.
fn background_errors(rocksdb: &RocksDb, request: &CompactRange) -> Result<Option<u64>, String> {
    let handles = verified(rocksdb, &request.column_family).map_err(|(_, reason)| reason)?;
    let value = rocksdb.property(handles, c"rocksdb.background-errors");
    Ok(value.and_then(|(text, _)| text.trim().parse().ok()))
}
