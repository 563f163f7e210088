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
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a running compaction is asked after: cancelling takes effect within this time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often RocksDB is asked about itself meanwhile: a write stall is noticed within this time.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// How often the other column families are asked: there can be hundreds, and files in their L0 become more by seconds.
const LOADS_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is asked whether a file was flushed, while that can be expected: a compaction of a few megabytes is
/// over in some tens of milliseconds, and the file with it.
const FLUSH_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A flush comes before everything else: what is flushed later is none of this compaction's.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// Times that the live files are listed for it: RocksDB holds its mutex for as long as that takes.
const FLUSH_LISTS_MAX: u32 = 3;

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
    /// Column families of the database, for the report.
    others: Vec<ColumnFamilyPointers>,
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
        HookActuator { client, time_limit, cancel_limit: CANCEL_TIME_MAX, report, others: Vec::new() }
    }

    /// How long a compaction that is to stop is waited for before it is given up on.
    #[must_use]
    pub fn giving_up_after(self, cancel_limit: Duration) -> HookActuator<C> {
        HookActuator { cancel_limit, ..self }
    }

    /// What RocksDB says of itself goes here while a compaction runs, and what waits in these column families.
    #[must_use]
    pub fn reporting_to(self, report: PropertyReport, others: Vec<ColumnFamilyPointers>) -> HookActuator<C> {
        HookActuator { report, others, ..self }
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
        flush: &mut FlushWatch,
    ) -> Result<(Finished, Option<String>), ActuatorError> {
        let deadline = Instant::now() + self.time_limit;
        let (mut reported, mut reported_others) = (Instant::now(), Instant::now());
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
                Err(ActuatorError::Connection { .. }) if reconnects_left > 0 => {
                    reconnects_left -= 1;
                    std::thread::sleep(POLL_INTERVAL);
                }
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
            if reported_others.elapsed() >= LOADS_INTERVAL {
                reported_others = Instant::now();
                self.report_loads();
            }
            flush.look(self.client(), pointers);
            std::thread::sleep(if flush.is_over() { POLL_INTERVAL } else { FLUSH_POLL_INTERVAL });
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

    fn report_loads(&mut self) {
        let others = std::mem::take(&mut self.others);
        match self.client().loads(&others) {
            Ok(loads) => self.report.put_loads(loads),
            Err(error) => tracing::debug!(%error, "the hook gave no loads"),
        }
        self.others = others;
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
        let mut flush = FlushWatch::new(self.client(), &pointers, &before);
        let started = Instant::now();
        let id = self.client().start_compaction(range)?;
        self.report.put_job(id);
        let (finished, stopped) = self.wait(id, &pointers, cancelled, &mut flush)?;
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
            bytes_flushed: flush.bytes(self.client(), &pointers),
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

/// Looks for the file that a compaction has the memtables flushed to before it begins. It is live until the compaction
/// has taken it: in the lists before and after it is not to be found.
struct FlushWatch {
    /// Files of the column family's L0, by number.
    level0_before: HashSet<u64>,
    memtable_bytes_before: Option<u64>,
    until: Instant,
    lists_left: u32,
    found_bytes: Option<u64>,
}

impl FlushWatch {
    fn new(client: &mut HookClient, pointers: &ColumnFamilyPointers, before: &[SstFile]) -> FlushWatch {
        let level0 = before.iter().filter(|file| file.column_family == pointers.name && file.level == 0);
        FlushWatch {
            level0_before: level0.map(|file| file.number).collect(),
            memtable_bytes_before: number(client, pointers, MEMTABLE_BYTES),
            until: Instant::now() + FLUSH_WITHIN,
            lists_left: FLUSH_LISTS_MAX,
            found_bytes: None,
        }
    }

    fn is_over(&self) -> bool {
        self.found_bytes.is_some() || self.lists_left == 0 || Instant::now() >= self.until
    }

    fn look(&mut self, client: &mut HookClient, pointers: &ColumnFamilyPointers) {
        if self.is_over() {
            return;
        }
        let files = number(client, pointers, LEVEL0_FILES);
        let known = u64::try_from(self.level0_before.len()).unwrap_or(u64::MAX);
        if files.is_none_or(|files| files <= known) {
            return;
        }
        self.lists_left -= 1;
        let Ok(files) = client.sst_files(pointers) else { return };
        let is_new = |file: &&SstFile| {
            let is_own = file.column_family == pointers.name && file.level == 0;
            is_own && !self.level0_before.contains(&file.number)
        };
        let bytes: u64 = files.iter().filter(is_new).map(|file| file.size_bytes).sum();
        self.found_bytes = (bytes > 0).then_some(bytes);
    }

    /// Bytes that were flushed: of the file, where it was seen; else what the memtables have lost, which is somewhat
    /// more than the file had.
    fn bytes(&self, client: &mut HookClient, pointers: &ColumnFamilyPointers) -> u64 {
        self.found_bytes.unwrap_or_else(|| {
            let after = number(client, pointers, MEMTABLE_BYTES);
            let lost =
                self.memtable_bytes_before.zip(after).map(|(before, after)| before.saturating_sub(after));
            lost.unwrap_or_default()
        })
    }
}

/// Memory of the memtables that are not flushed yet.
const MEMTABLE_BYTES: &str = "rocksdb.cur-size-all-mem-tables";

/// Files in L0.
const LEVEL0_FILES: &str = "rocksdb.num-files-at-level0";

fn number(client: &mut HookClient, pointers: &ColumnFamilyPointers, name: &str) -> Option<u64> {
    client.property(pointers, name).ok().flatten()?.trim().parse().ok()
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
