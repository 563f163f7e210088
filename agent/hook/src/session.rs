//! One conversation with the agent: reading requests within time limits and answering them.

use crate::access::{Access, Failure, enter};
use crate::changed::{Change, Changed, Former, PutBack};
use crate::guard::GUARD;
use crate::job::{Job, Worker};
use crate::lease::{Agent, Lease};
use crate::rocksdb::{Failed, LiveFiles, RocksDb};
use crate::socket::Peer;
use crate::verify::directory;
use crate::{linked, log, owner, pages, start};
use sexton_hook_protocol::{
    ColumnFamilyPointers, CompactRange, ErrorKind, FrameError, Hello, OPTION_NAME_BYTES_MAX,
    OPTION_VALUE_BYTES_MAX, OPTIONS_MAX, OptionChange, PROPERTY_NAME_BYTES_MAX, PROTOCOL_VERSION, Request,
    Response, SetOptions, VerifiedColumnFamily, read, write,
};
use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may be silent between requests before the next one gets its turn. The agent
/// connects anew when it has something to ask.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// How long a client that is silent keeps its turn while another one waits.
const TURN_MIN: Duration = Duration::from_millis(200);

/// How long one frame may take, in either direction.
const FRAME_TIME_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether the agent is gone, while there are options to put back.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Verified column families that are remembered; Ozone's manager has some 30.
const KNOWN_MAX: usize = 256;

/// What a conversation works with; lives as long as the listener.
pub struct Hook {
    rocksdb: Option<Arc<RocksDb>>,
    /// Why the guard does not stand in front of the owners' calls.
    unguarded: Option<String>,
    worker: Worker,
    known: Vec<ColumnFamilyPointers>,
    lease: Lease,
    /// Column families through which this conversation has forbidden manual compactions.
    paused: Vec<ColumnFamilyPointers>,
    /// Options to put back when the agent that holds the lease is gone.
    changed: Changed,
}

/// What comes after a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next client.
    Client,
    /// The end of this hook.
    End,
}

impl Hook {
    /// A hook for the RocksDB that was found, if any, and why its owners' calls are not guarded, if so.
    pub fn new(rocksdb: Option<Arc<RocksDb>>, unguarded: Option<String>) -> Hook {
        Hook {
            rocksdb,
            unguarded,
            worker: Worker::default(),
            known: Vec::new(),
            lease: Lease::default(),
            paused: Vec::new(),
            changed: Changed::default(),
        }
    }

    fn rocksdb(&self) -> Result<Arc<RocksDb>, Failure> {
        self.rocksdb.clone().ok_or_else(|| {
            (ErrorKind::Unsupported, "RocksDB's C API was not found in this process".to_owned())
        })
    }

    fn hello(&self) -> Hello {
        let rocksdb = self.rocksdb.as_deref();
        Hello {
            protocol_version: PROTOCOL_VERSION,
            hook_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            library: rocksdb.map(|rocksdb| rocksdb.library.clone()),
            functions_found: rocksdb.map(|rocksdb| rocksdb.found.clone()).unwrap_or_default(),
            functions_missing: rocksdb.map(|rocksdb| rocksdb.missing.clone()).unwrap_or_default(),
            unguarded: self.unguarded.clone(),
        }
    }

    /// Takes a pass, checks the pointers and remembers them.
    fn enter(
        &mut self,
        rocksdb: &RocksDb,
        pointers: &ColumnFamilyPointers,
    ) -> Result<Access<'static>, Failure> {
        let access = enter(rocksdb, pointers);
        self.known.retain(|known| known != pointers);
        if access.is_ok() {
            if self.known.len() >= KNOWN_MAX {
                self.known.remove(0);
            }
            self.known.push(pointers.clone());
        }
        access
    }

    fn databases(&mut self) -> Vec<VerifiedColumnFamily> {
        let Some(rocksdb) = self.rocksdb.clone() else { return Vec::new() };
        for registered in linked::registered() {
            // What cannot be entered any more is left out below.
            drop(self.enter(&rocksdb, &registered));
        }
        let mut column_families = Vec::new();
        self.known.retain(|pointers| {
            let Ok(access) = enter(&rocksdb, pointers) else { return false };
            let directory = directory(pointers.database);
            column_families.push(VerifiedColumnFamily { pointers: pointers.clone(), directory });
            drop(access);
            true
        });
        column_families
    }

    fn property(&mut self, pointers: &ColumnFamilyPointers, name: &str) -> Result<Response, Failure> {
        let name = CString::new(name)
            .ok()
            .filter(|name| name.as_bytes().len() <= PROPERTY_NAME_BYTES_MAX)
            .ok_or_else(|| (ErrorKind::BadRequest, "not the name of a property".to_owned()))?;
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_read_properties() {
            return Err(unsupported("properties cannot be read"));
        }
        let access = self.enter(&rocksdb, pointers)?;
        let (value, truncated) = rocksdb
            .property(access.handles(), &name)
            .map_or((None, false), |(value, cut)| (Some(value), cut));
        Ok(Response::Property { value, truncated })
    }

    fn live_files(&mut self, pointers: &ColumnFamilyPointers) -> Result<LiveFiles, Failure> {
        let rocksdb = self.rocksdb()?;
        let access = self.enter(&rocksdb, pointers)?;
        rocksdb.live_files(access.handles()).ok_or_else(|| unsupported("live SST files cannot be listed"))
    }

    fn compact_range(&mut self, request: CompactRange) -> Result<Response, Failure> {
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_compact() {
            return Err(unsupported("range compaction with options is missing"));
        }
        if let Some(end) = &request.end
            && *end <= request.begin
        {
            return Err((ErrorKind::BadRequest, "the range holds no key: end is not above begin".to_owned()));
        }
        if request.max_subcompactions.is_some() && !rocksdb.can_limit_subcompactions() {
            return Err(unsupported("subcompactions cannot be limited"));
        }
        if GUARD.is_paused(request.column_family.database) {
            return Err((
                ErrorKind::Refused,
                "manual compactions are forbidden by the agent itself".to_owned(),
            ));
        }
        self.enter(&rocksdb, &request.column_family)?;
        self.worker.start(rocksdb, Job::Compact(request)).map(|id| Response::Started { id })
    }

    fn flush(&mut self, pointers: ColumnFamilyPointers) -> Result<Response, Failure> {
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_flush() {
            return Err(unsupported("column families cannot be flushed"));
        }
        self.enter(&rocksdb, &pointers)?;
        self.worker.start(rocksdb, Job::Flush(pointers)).map(|id| Response::Started { id })
    }

    fn set_options(&mut self, request: &SetOptions) -> Result<Response, Failure> {
        if request.options.is_empty() || request.options.len() > OPTIONS_MAX {
            return Err((ErrorKind::BadRequest, format!("one to {OPTIONS_MAX} options are set at a time")));
        }
        let changes: Option<Vec<_>> = request.options.iter().map(change).collect();
        let changes = changes
            .ok_or_else(|| (ErrorKind::BadRequest, "not the name or value of an option".to_owned()))?;
        let rocksdb = self.rocksdb()?;
        let access = self.enter(&rocksdb, &request.column_family)?;
        self.changed.retain(|database| GUARD.is_changed(database));
        if !self.changed.has_room(changes.len()) {
            return Err((ErrorKind::BadRequest, "too many options are to be put back already".to_owned()));
        }
        let values: Vec<_> =
            changes.iter().map(|change| (change.name.clone(), change.value.clone())).collect();
        match rocksdb.set_options(access.handles(), request.scope, &values) {
            Ok(()) => {
                self.changed.note(&request.column_family, request.scope, &changes);
                GUARD.note_changed(request.column_family.database);
                Ok(Response::Done {})
            }
            Err(Failed::Missing) => Err(unsupported("these options cannot be set")),
            Err(Failed::Status(words)) => {
                // RocksDB takes them before it writes its OPTIONS file, and keeps them where that fails.
                let restores = changes.into_iter().filter_map(|change| Some((change.name, change.restore?)));
                let restores: Vec<_> = restores.collect();
                if !restores.is_empty() {
                    let _ = rocksdb.set_options(access.handles(), request.scope, &restores);
                }
                Err((ErrorKind::Failed, words))
            }
        }
    }

    /// Puts options back once the agent that has changed them is gone.
    pub fn tend(&mut self) {
        if !self.changed.is_empty() && self.lease.is_over() {
            self.put_back();
        }
    }

    /// How long [`Hook::tend`] can wait; `None`: there is nothing to wait for.
    pub fn patience(&self) -> Option<Duration> {
        (!self.changed.is_empty()).then_some(LOOK_INTERVAL)
    }

    /// Puts all options back; why not, for those where it failed.
    fn put_back(&mut self) -> Vec<String> {
        let Some(rocksdb) = self.rocksdb.clone() else { return Vec::new() };
        self.changed.retain(|database| GUARD.is_changed(database));
        let known = &self.known;
        let failures = self.changed.put_back(|former| put_back_one(&rocksdb, former, known));
        failures.iter().for_each(|words| log::line(words));
        failures
    }

    fn manual_compaction(
        &mut self,
        pointers: ColumnFamilyPointers,
        allowed: bool,
    ) -> Result<Response, Failure> {
        let rocksdb = self.rocksdb()?;
        if !rocksdb.can_cancel() {
            return Err(unsupported("manual compactions cannot be forbidden"));
        }
        let access = self.enter(&rocksdb, &pointers)?;
        if allowed {
            if GUARD.resume(pointers.database) {
                rocksdb.enable_manual_compaction(access.handles().only_database());
            }
        } else if self.paused.len() >= KNOWN_MAX {
            return Err((ErrorKind::BadRequest, "too many databases are told so at a time".to_owned()));
        } else if GUARD.pause(pointers.database) {
            rocksdb.disable_manual_compaction(access.handles().only_database());
            self.paused.push(pointers);
        }
        Ok(Response::Done {})
    }

    /// Allows again what this conversation has forbidden.
    fn allow_all(&mut self) {
        let Some(rocksdb) = self.rocksdb.clone() else { return };
        for pointers in std::mem::take(&mut self.paused) {
            // If the database was closed meanwhile there is nothing left to allow.
            if let Ok(access) = enter(&rocksdb, &pointers)
                && GUARD.resume(pointers.database)
            {
                rocksdb.enable_manual_compaction(access.handles().only_database());
            }
        }
    }

    /// Ends what runs and takes the guard away; the listener goes when this succeeds.
    fn detach(&mut self) -> Result<Response, Failure> {
        self.allow_all();
        if let (Some(reason), false) = (self.put_back().first(), self.changed.is_empty()) {
            return Err((ErrorKind::Failed, reason.clone()));
        }
        if let Some(id) = self.worker.stop() {
            return Err((ErrorKind::Busy, format!("compaction or flush {id} does not end")));
        }
        if !owner::remove() {
            let message = "somebody else has changed RocksDB's virtual tables since";
            return Err((ErrorKind::Failed, message.to_owned()));
        }
        start::stop();
        Ok(Response::Done {})
    }

    /// Answers one request; listing files answers in several frames.
    fn answer(
        &mut self,
        stream: &UnixStream,
        agent: Option<Agent>,
        request: Request,
    ) -> Result<Next, FrameError> {
        if let Some(agent) = agent {
            self.lease.seen(agent);
        }
        // What another agent has changed is put back before the next one acts.
        self.tend();
        if is_acting(&request)
            && let Err(message) = self.lease.take(agent)
        {
            return send(stream, &Response::Error { kind: ErrorKind::Taken, message }).map(|()| Next::Client);
        }
        let is_end = matches!(request, Request::Detach {});
        let answer = match request {
            Request::Hello { .. } => Ok(Response::Hello(self.hello())),
            Request::Databases {} => Ok(Response::Databases { column_families: self.databases() }),
            Request::SstFiles { column_family } => match self.live_files(&column_family) {
                Ok(files) => {
                    return pages::send_all(&files, |page| send(stream, page)).map(|()| Next::Client);
                }
                Err(failure) => Err(failure),
            },
            Request::Property { column_family, name } => self.property(&column_family, &name),
            Request::CompactRange(request) => self.compact_range(request),
            Request::Flush { column_family } => self.flush(column_family),
            Request::CompactionStatus { id } => self.worker.status(id),
            Request::Cancel { id } => self.worker.cancel(id),
            Request::SetOptions(request) => self.set_options(&request),
            Request::ChangedOptions {} => {
                self.changed.retain(|database| GUARD.is_changed(database));
                Ok(Response::ChangedOptions { options: self.changed.list() })
            }
            Request::ManualCompaction { column_family, allowed } => {
                self.manual_compaction(column_family, allowed)
            }
            Request::Detach {} => self.detach(),
        };
        let next = if is_end && answer.is_ok() { Next::End } else { Next::Client };
        let sent = send(stream, &answer.unwrap_or_else(|(kind, message)| Response::Error { kind, message }));
        // A hook that has taken itself away is gone, whether anybody hears of it or not.
        if next == Next::End { Ok(next) } else { sent.map(|()| next) }
    }
}

/// Whether a request changes something in the target.
fn is_acting(request: &Request) -> bool {
    match request {
        Request::Hello { .. }
        | Request::Databases {}
        | Request::SstFiles { .. }
        | Request::Property { .. }
        | Request::CompactionStatus { .. }
        | Request::ChangedOptions {} => false,
        Request::CompactRange(_)
        | Request::Flush { .. }
        | Request::Cancel { .. }
        | Request::SetOptions(_)
        | Request::ManualCompaction { .. }
        | Request::Detach {} => true,
    }
}

/// As C strings; `None` where they break a limit.
fn change(option: &OptionChange) -> Option<Change> {
    let text = |text: &str, bytes_max: usize| CString::new(text).ok().filter(|_| text.len() <= bytes_max);
    let value = |value: &str| text(value, OPTION_VALUE_BYTES_MAX);
    let name = text(&option.name, OPTION_NAME_BYTES_MAX).filter(|name| !name.is_empty())?;
    let restore = match &option.restore {
        Some(restore) => Some(value(restore)?),
        None => None,
    };
    Some(Change { name, value: value(&option.value)?, restore })
}

/// Puts an option back, through another handle of its column family where the one that was used is gone.
fn put_back_one(rocksdb: &RocksDb, former: &Former, known: &[ColumnFamilyPointers]) -> PutBack {
    let family = &former.column_family;
    let is_other = |other: &&ColumnFamilyPointers| {
        other.database == family.database && other.id == family.id && *other != family
    };
    let mut reason = String::new();
    for pointers in std::iter::once(family).chain(known.iter().filter(is_other)) {
        let access = match enter(rocksdb, pointers) {
            Ok(access) => access,
            Err((_, refusal)) => {
                reason = refusal;
                continue;
            }
        };
        // While the pass is out the database stays what it is.
        if !GUARD.is_changed(family.database) {
            return PutBack::Gone;
        }
        let option = [(former.name.clone(), former.value.clone())];
        match rocksdb.set_options(access.handles(), former.scope, &option) {
            Ok(()) => {
                log::line(&format!("{:?} is {:?} again", former.name, former.value));
                return PutBack::Done;
            }
            Err(Failed::Missing) => return PutBack::Gone,
            Err(Failed::Status(words)) => reason = words,
        }
    }
    if GUARD.is_changed(family.database) { PutBack::Failed(reason) } else { PutBack::Gone }
}

fn unsupported(what: &str) -> Failure {
    (ErrorKind::Unsupported, format!("{what}: this RocksDB does not export the functions"))
}

/// Talks to one client until it closes, falls silent, or breaks the protocol. `others` is the listener:
/// when somebody waits there, silence is shorter.
pub fn serve(stream: &UnixStream, peer: Peer, others: BorrowedFd<'_>, hook: &mut Hook) -> Next {
    let next = converse(stream, peer, others, hook).unwrap_or_else(|error| {
        match error {
            FrameError::Closed => {}
            FrameError::Json(_) | FrameError::Length { .. } => {
                let message = error.to_string();
                log::line(&message);
                let _ = send(stream, &Response::Error { kind: ErrorKind::BadRequest, message });
            }
            error => log::line(&error.to_string()),
        }
        Next::Client
    });
    hook.allow_all();
    next
}

fn converse(
    stream: &UnixStream,
    peer: Peer,
    others: BorrowedFd<'_>,
    hook: &mut Hook,
) -> Result<Next, FrameError> {
    stream.set_write_timeout(Some(FRAME_TIME_MAX)).map_err(FrameError::Io)?;
    let agent = match receive(stream, others, hook)? {
        Request::Hello { protocol_version: PROTOCOL_VERSION, agent_pid, agent_id } => {
            let agent = Agent { id: agent_id, own_pid: agent_pid, process: peer.process };
            hook.lease.seen(agent);
            send(stream, &Response::Hello(hook.hello()))?;
            agent
        }
        Request::Hello { protocol_version, .. } => {
            let message = format!(
                "this hook speaks version {PROTOCOL_VERSION}, the agent {protocol_version}: detach it, \
                 restart the target, or use the agent it came with"
            );
            send(stream, &Response::Error { kind: ErrorKind::VersionMismatch, message })?;
            return Ok(Next::Client);
        }
        request @ Request::Detach {} => return hook.answer(stream, None, request),
        _ => {
            let message = "the first request is hello".to_owned();
            send(stream, &Response::Error { kind: ErrorKind::BadRequest, message })?;
            return Ok(Next::Client);
        }
    };
    loop {
        let request = receive(stream, others, hook)?;
        if hook.answer(stream, Some(agent), request)? == Next::End {
            return Ok(Next::End);
        }
    }
}

/// Waits for a request, then reads it against a deadline.
fn receive(stream: &UnixStream, others: BorrowedFd<'_>, hook: &mut Hook) -> Result<Request, FrameError> {
    let is_there = wait_readable(stream, TURN_MIN)
        .and_then(|is_there| if is_there { Ok(true) } else { wait_unless_others(stream, others, hook) })
        .map_err(FrameError::Io)?;
    if !is_there {
        return Err(FrameError::Closed);
    }
    read(&mut Timed { stream, deadline: Instant::now() + FRAME_TIME_MAX })
}

/// Whether a request comes within [`IDLE_MAX`] and before somebody else wants the turn.
fn wait_unless_others(stream: &UnixStream, others: BorrowedFd<'_>, hook: &mut Hook) -> io::Result<bool> {
    let deadline = Instant::now() + IDLE_MAX;
    loop {
        hook.tend();
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting = [poll_entry(stream.as_raw_fd()), poll_entry(others.as_raw_fd())];
        if poll(&mut waiting, hook.patience().map_or(left, |look| look.min(left)))? || left.is_zero() {
            return Ok(waiting.first().is_some_and(|own| own.revents != 0));
        }
    }
}

/// Whether somebody wants to be served, within `time`.
pub fn wait_for_client(listener: BorrowedFd<'_>, time: Duration) -> io::Result<bool> {
    poll(&mut [poll_entry(listener.as_raw_fd())], time)
}

fn send(stream: &UnixStream, response: &Response) -> Result<(), FrameError> {
    let mut stream = stream;
    write(&mut stream, response)
}

/// Reads from a stream until a deadline, however the bytes trickle in.
struct Timed<'stream> {
    stream: &'stream UnixStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if !wait_readable(self.stream, left)? {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        self.stream.read(buffer)
    }
}

/// Whether there is something to read, or the end, within `time`.
fn wait_readable(stream: &UnixStream, time: Duration) -> io::Result<bool> {
    poll(&mut [poll_entry(stream.as_raw_fd())], time)
}

fn poll_entry(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Whether anything happened on one of the descriptors within `time`.
fn poll(entries: &mut [libc::pollfd], time: Duration) -> io::Result<bool> {
    let milliseconds = i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    let count = libc::nfds_t::try_from(entries.len()).map_err(io::Error::other)?;
    // SAFETY: as many initialised entries as `count` says, valid for the call.
    match unsafe { libc::poll(entries.as_mut_ptr(), count, milliseconds) } {
        0 => Ok(false),
        1.. => Ok(true),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use sexton_hook_protocol::{BottommostLevelCompaction, KeyBytes, OptionsScope};
    use std::io::Write;
    use std::os::fd::AsFd;

    fn oneself() -> Peer {
        Peer { process: std::process::id(), user: crate::socket::effective_user() }
    }

    /// A conversation with a hook that found no RocksDB: the requests in, the responses out.
    fn talk(bytes: &[u8]) -> Vec<Response> {
        let (mut agent, hook_end) = UnixStream::pair().unwrap();
        agent.write_all(bytes).unwrap();
        agent.shutdown(std::net::Shutdown::Write).unwrap();
        let (nobody, _other_end) = UnixStream::pair().unwrap();
        serve(&hook_end, oneself(), nobody.as_fd(), &mut Hook::new(None, None));
        drop(hook_end);
        let mut responses = Vec::new();
        while let Ok(response) = read(&mut agent) {
            responses.push(response);
        }
        responses
    }

    fn frames(requests: &[Request]) -> Vec<u8> {
        requests.iter().flat_map(|request| sexton_hook_protocol::encode(request).unwrap()).collect()
    }

    fn hello(protocol_version: u32) -> Request {
        Request::Hello { protocol_version, agent_pid: 1, agent_id: 1 }
    }

    fn pointers() -> ColumnFamilyPointers {
        ColumnFamilyPointers { database: 8, handle: 8, name: "default".into(), id: 0 }
    }

    fn change(name: &str, value: &str, restore: Option<&str>) -> OptionChange {
        OptionChange { name: name.into(), value: value.into(), restore: restore.map(Into::into) }
    }

    fn kind(response: &Response) -> ErrorKind {
        match response {
            Response::Error { kind, .. } => *kind,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hello_comes_first_and_versions_must_agree() {
        let responses = talk(&frames(&[hello(PROTOCOL_VERSION), Request::Databases {}]));
        assert!(matches!(&responses[..], [Response::Hello(hello), Response::Databases { column_families }]
            if hello.pid == std::process::id() && hello.library.is_none() && column_families.is_empty()));
        let responses = talk(&frames(&[Request::Databases {}, hello(PROTOCOL_VERSION)]));
        assert_eq!(responses.iter().map(kind).collect::<Vec<_>>(), [ErrorKind::BadRequest]);
        let responses = talk(&frames(&[hello(PROTOCOL_VERSION + 1), Request::Databases {}]));
        assert_eq!(responses.iter().map(kind).collect::<Vec<_>>(), [ErrorKind::VersionMismatch]);
    }

    #[test]
    fn without_rocksdb_every_command_says_so() {
        let range = CompactRange {
            column_family: pointers(),
            begin: KeyBytes::default(),
            end: None,
            bottommost: BottommostLevelCompaction::Force,
            max_subcompactions: None,
        };
        let options = SetOptions {
            column_family: pointers(),
            scope: OptionsScope::ColumnFamily,
            options: vec![change("disable_auto_compactions", "true", Some("false"))],
        };
        let with = |option: OptionChange| {
            Request::SetOptions(SetOptions { options: vec![option], ..options.clone() })
        };
        let long = "9".repeat(OPTION_VALUE_BYTES_MAX + 1);
        let responses = talk(&frames(&[
            hello(PROTOCOL_VERSION),
            Request::SstFiles { column_family: pointers() },
            Request::Property { column_family: pointers(), name: "rocksdb.stats".into() },
            Request::CompactRange(range),
            Request::Flush { column_family: pointers() },
            Request::SetOptions(options.clone()),
            Request::ManualCompaction { column_family: pointers(), allowed: false },
            Request::CompactionStatus { id: 1 },
            Request::Cancel { id: 1 },
            Request::SetOptions(SetOptions { options: Vec::new(), ..options.clone() }),
            with(change("write_buffer_size\0", "1", None)),
            with(change("", "1", None)),
            with(change("write_buffer_size", "1", Some(&long))),
            Request::ChangedOptions {},
        ]));
        let (last, responses) = responses.split_last().unwrap();
        assert_eq!(*last, Response::ChangedOptions { options: Vec::new() });
        let kinds: Vec<_> = responses.iter().skip(1).map(kind).collect();
        assert_eq!(kinds[..6], [ErrorKind::Unsupported; 6]);
        assert_eq!(kinds[6..8], [ErrorKind::NotFound; 2]);
        assert_eq!(kinds[8..], [ErrorKind::BadRequest; 4]);
    }

    #[test]
    fn one_agent_acts_and_another_may_only_look() {
        let mut hook = Hook::new(None, None);
        let (nobody, _other_end) = UnixStream::pair().unwrap();
        let mut talk_as = |agent_id: u64, request: Request| {
            let (mut agent, hook_end) = UnixStream::pair().unwrap();
            let hello = Request::Hello { protocol_version: PROTOCOL_VERSION, agent_pid: 1, agent_id };
            agent.write_all(&frames(&[hello, request])).unwrap();
            agent.shutdown(std::net::Shutdown::Write).unwrap();
            serve(&hook_end, oneself(), nobody.as_fd(), &mut hook);
            assert!(matches!(read(&mut agent), Ok(Response::Hello(_))));
            read::<Response>(&mut agent).unwrap()
        };
        let flush = || Request::Flush { column_family: pointers() };
        assert_eq!(kind(&talk_as(1, flush())), ErrorKind::Unsupported);
        assert_eq!(kind(&talk_as(2, flush())), ErrorKind::Taken);
        assert_eq!(kind(&talk_as(2, Request::Cancel { id: 1 })), ErrorKind::Taken);
        assert_eq!(kind(&talk_as(2, Request::CompactionStatus { id: 1 })), ErrorKind::NotFound);
        assert!(matches!(talk_as(2, Request::Databases {}), Response::Databases { .. }));
        assert_eq!(kind(&talk_as(1, flush())), ErrorKind::Unsupported);
        assert_eq!(kind(&talk_as(2, Request::Detach {})), ErrorKind::Taken);
        assert_eq!(talk_as(1, Request::Detach {}), Response::Done {});
    }

    #[test]
    fn a_hook_of_another_version_can_be_told_to_go() {
        assert_eq!(talk(&frames(&[Request::Detach {}, Request::Databases {}])), [Response::Done {}]);
    }

    #[test]
    fn nonsense_is_answered_once_and_closed() {
        let mut bytes = frames(&[hello(PROTOCOL_VERSION)]);
        bytes.extend([9, 0, 0, 0]);
        bytes.extend(b"not json!");
        bytes.extend(frames(&[Request::Databases {}]));
        let responses = talk(&bytes);
        assert_eq!(responses.len(), 2);
        assert_eq!(kind(&responses[1]), ErrorKind::BadRequest);
        assert_eq!(kind(&talk(&u32::MAX.to_le_bytes())[0]), ErrorKind::BadRequest);
        assert!(talk(b"\x05\0\0\0{").is_empty(), "cut off within a frame");
    }

    #[test]
    fn a_frame_that_trickles_in_runs_into_the_deadline() {
        let (mut agent, hook_end) = UnixStream::pair().unwrap();
        agent.write_all(&[40, 0, 0, 0, b'{']).unwrap();
        let deadline = Instant::now() + Duration::from_millis(80);
        let mut timed = Timed { stream: &hook_end, deadline };
        assert!(matches!(read::<Request>(&mut timed), Err(FrameError::Io(error))
            if error.kind() == io::ErrorKind::TimedOut));
        assert!(Instant::now() + Duration::from_millis(1) >= deadline);
    }

    #[test]
    fn a_silent_client_gives_way_when_another_one_waits() {
        let (mut agent, hook_end) = UnixStream::pair().unwrap();
        let (others, mut next) = UnixStream::pair().unwrap();
        next.write_all(b"!").unwrap();
        agent.write_all(&frames(&[hello(PROTOCOL_VERSION)])).unwrap();
        let started = Instant::now();
        serve(&hook_end, oneself(), others.as_fd(), &mut Hook::new(None, None));
        assert!(started.elapsed() >= TURN_MIN && started.elapsed() < IDLE_MAX / 2);
        assert!(matches!(read(&mut agent), Ok(Response::Hello(_))), "but not unheard");
    }
}
