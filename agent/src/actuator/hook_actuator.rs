//! The actuator `hook`: compaction by the library inside the target.

use super::error::ActuatorError;
use super::hook::HookClient;
use super::properties::{Properties, PropertyReport};
use super::request::{CompactEnd, CompactOutcome, CompactRequest, ThrottleOutcome, ThrottleRequest};
use super::{Actuator, AdviseActuator};
use sexton_hook_protocol::{
    BottommostLevelCompaction, ColumnFamilyPointers, CompactRange, CompactionState, ErrorKind, Finished,
    KeyBytes,
};
use sexton_tuner::cost::Bottommost;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::range::KeyRange;
use sexton_tuner::replaced::bytes_replaced;
use std::borrow::BorrowMut;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a running compaction is asked after: cancelling takes effect within this time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often RocksDB is asked about itself meanwhile: a write stall is noticed within this time.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Lost connections that are forgiven while a compaction runs.
const RECONNECTS_MAX: u32 = 3;

/// How often a compaction that is to stop is cancelled anew: the first time the hook may have had no thread for it.
const CANCEL_INTERVAL: Duration = Duration::from_secs(5);

/// How long a compaction that is to stop is waited for. RocksDB gives up one that runs within a key or so; what has not
/// ended after this waits for something that may take hours, and other targets wait for this agent.
const CANCEL_TIME_MAX: Duration = Duration::from_secs(60);

/// Compacts through a [`HookClient`], owned or borrowed.
pub struct HookActuator<C> {
    client: C,
    time_limit: Duration,
    cancel_limit: Duration,
    report: PropertyReport,
}

/// A compaction's being stopped.
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

impl<C: BorrowMut<HookClient>> HookActuator<C> {
    /// Over a connected client; a compaction that takes longer than `time_limit` is cancelled.
    pub fn new(client: C, time_limit: Duration) -> HookActuator<C> {
        let report = PropertyReport::default();
        HookActuator { client, time_limit, cancel_limit: CANCEL_TIME_MAX, report }
    }

    /// How long a compaction that is to stop is waited for before it is given up on.
    #[must_use]
    pub fn giving_up_after(self, cancel_limit: Duration) -> HookActuator<C> {
        HookActuator { cancel_limit, ..self }
    }

    /// What RocksDB says of itself goes here while a compaction runs.
    #[must_use]
    pub fn reporting_to(self, report: PropertyReport) -> HookActuator<C> {
        HookActuator { report, ..self }
    }

    fn client(&mut self) -> &mut HookClient {
        self.client.borrow_mut()
    }

    /// Refuses a request that is for another process or another database than its pointers lead to.
    fn check(
        &mut self,
        request: &CompactRequest,
        pointers: &ColumnFamilyPointers,
    ) -> Result<(), ActuatorError> {
        let process = self.client().target().process;
        if process != request.process {
            let reason = format!("the hook lives in process {}, not {}", process.pid, request.process.pid);
            return Err(ActuatorError::Request { reason });
        }
        let known = self.client().databases()?;
        let directory =
            known.into_iter().find(|known| known.pointers == *pointers).and_then(|known| known.directory);
        match directory {
            Some(found) if !is_same_directory(Path::new(&found), &request.database) => {
                let reason = format!("the pointers lead to {found}, not to {}", request.database.display());
                Err(ActuatorError::Request { reason })
            }
            _ => Ok(()),
        }
    }

    /// Waits for the end of compaction `id`, cancelling it when asked or out of time. What does not end then is given up
    /// on.
    fn wait(
        &mut self,
        id: u64,
        pointers: &ColumnFamilyPointers,
        cancelled: &AtomicBool,
    ) -> Result<(Finished, Option<String>), ActuatorError> {
        let deadline = Instant::now() + self.time_limit;
        let mut reported = Instant::now();
        let mut stop: Option<Stop> = None;
        let mut reconnects_left = RECONNECTS_MAX;
        loop {
            if stop.is_none() {
                stop = self.wants_stop(cancelled, deadline).map(Stop::new);
            }
            let state = if stop.as_mut().is_some_and(Stop::is_to_be_asked) {
                self.client().cancel_compaction(id)
            } else {
                self.client().compaction_status(id)
            };
            match state {
                Ok(CompactionState::Finished(finished)) => {
                    return Ok((finished, stop.map(|stop| stop.reason)));
                }
                Ok(CompactionState::Running { .. }) => {}
                // It runs to its end, and that is waited for as long as for one that nobody stops.
                Err(ActuatorError::Hook { kind: ErrorKind::Unsupported, message, .. }) => {
                    tracing::warn!(message, "a compaction goes on");
                    stop.iter_mut().for_each(|stop| stop.cannot(deadline));
                }
                Err(ActuatorError::Connection { .. }) if reconnects_left > 0 => reconnects_left -= 1,
                Err(error) => return Err(error),
            }
            if let Some(stop) = &stop
                && stop.since.elapsed() >= self.cancel_limit
            {
                return Err(ActuatorError::StillRunning {
                    pid: self.client().target().process.pid,
                    job: id,
                    reason: stop.reason.clone(),
                    waited: self.cancel_limit,
                });
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                self.report(pointers);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Why the compaction is to stop, if it is.
    fn wants_stop(&self, cancelled: &AtomicBool, deadline: Instant) -> Option<String> {
        if cancelled.load(Ordering::Relaxed) {
            return Some("it was asked for".to_owned());
        }
        (Instant::now() >= deadline).then(|| format!("its time limit of {:?} was over", self.time_limit))
    }

    /// What cannot be read is not reported: whoever watches goes by what there is.
    fn report(&mut self, pointers: &ColumnFamilyPointers) {
        match Properties::read(self.client(), pointers) {
            Ok(properties) => self.report.put(properties),
            Err(error) => tracing::debug!(%error, "the hook gave no properties"),
        }
    }
}

impl<C: BorrowMut<HookClient>> Actuator for HookActuator<C> {
    fn name(&self) -> &'static str {
        "hook"
    }

    fn compact_range(
        &mut self,
        request: &CompactRequest,
        cancelled: &AtomicBool,
    ) -> Result<CompactOutcome, ActuatorError> {
        let pointers = request.pointers().ok_or_else(|| ActuatorError::Request {
            reason: format!("no probe has seen the column family {} being opened yet", request.column_family),
        })?;
        let range = compact_range(request, &pointers)?;
        let before = self.client().sst_files(&pointers)?;
        self.check(request, &pointers)?;
        let started = Instant::now();
        let id = self.client().start_compaction(range)?;
        self.report.put_job(id);
        let (finished, stopped) = self.wait(id, &pointers, cancelled)?;
        let end = match (finished.cancelled, finished.ok) {
            (true, _) => {
                CompactEnd::Cancelled { reason: stopped.unwrap_or_else(|| "somebody else did".into()) }
            }
            (false, true) => CompactEnd::Done,
            (false, false) => {
                let message = finished.error.unwrap_or_else(|| "it failed without a reason".to_owned());
                return Err(ActuatorError::Hook {
                    pid: request.process.pid,
                    kind: ErrorKind::Internal,
                    message,
                });
            }
        };
        let after = self.client().sst_files(&pointers)?;
        let replaced = bytes_replaced(&before, &after, &request.column_family, &request.range);
        let (before, after) = (overlapping(request, &before), overlapping(request, &after));
        Ok(CompactOutcome {
            end,
            duration: match finished.duration_ns {
                0 => started.elapsed(),
                nanoseconds => Duration::from_nanos(nanoseconds),
            },
            bytes_replaced: replaced,
            deletions_before: before.iter().map(|file| file.deletions).sum(),
            deletions_after: after.iter().map(|file| file.deletions).sum(),
            command: None,
        })
    }

    fn set_throttle(&mut self, _setting: &ThrottleRequest) -> Result<ThrottleOutcome, ActuatorError> {
        Err(ActuatorError::Unsupported { actuator: "hook", what: "set a throttle" })
    }

    fn commands_for(&self, request: &CompactRequest) -> Vec<String> {
        AdviseActuator::instead_of_hook(None).commands_for(request)
    }
}

fn compact_range(
    request: &CompactRequest,
    pointers: &ColumnFamilyPointers,
) -> Result<CompactRange, ActuatorError> {
    let KeyRange { begin, end } = &request.range;
    if end.as_ref().is_some_and(|end| end <= begin) {
        return Err(ActuatorError::Request { reason: "the range holds no key".to_owned() });
    }
    let key = |bytes: &[u8]| {
        KeyBytes::new(bytes).map_err(|error| ActuatorError::Request { reason: error.to_string() })
    };
    Ok(CompactRange {
        column_family: pointers.clone(),
        begin: key(begin.as_bytes())?,
        end: end.as_ref().map(|end| key(end.as_bytes())).transpose()?,
        bottommost: match request.bottommost {
            Bottommost::Default => BottommostLevelCompaction::IfHaveCompactionFilter,
            Bottommost::ForceOptimized => BottommostLevelCompaction::ForceOptimized,
            Bottommost::Force => BottommostLevelCompaction::Force,
        },
        max_subcompactions: None,
    })
}

/// The files of the request's column family that share a key with its range.
fn overlapping<'files>(request: &CompactRequest, files: &'files [SstFile]) -> Vec<&'files SstFile> {
    let inside = |file: &&SstFile| {
        file.column_family == request.column_family
            && request.range.overlaps_closed(&file.smallest, &file.largest)
    };
    files.iter().filter(inside).collect()
}

/// Directories are compared as written, up to a slash at the end.
fn is_same_directory(one: &Path, two: &Path) -> bool {
    one.components().eq(two.components())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::exec::tests::request;
    use super::super::request::HandlePointers;
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
        assert_eq!(inside.iter().map(|file| file.number).collect::<Vec<_>>(), [2, 3]);
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
