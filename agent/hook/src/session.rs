//! One conversation with the agent: reading requests within time limits and answering them.

use crate::compaction::Compactor;
use crate::log;
use crate::pages;
use crate::rocksdb::{Handles, LiveFiles, RocksDb};
use crate::verify::{Checker, directory};
use sexton_hook_protocol::{
    COLUMN_FAMILY_NAME_BYTES_MAX, ColumnFamilyPointers, CompactRange, ErrorKind, FrameError, Hello,
    PROPERTY_NAME_BYTES_MAX, PROTOCOL_VERSION, Request, Response, VerifiedColumnFamily, read, write,
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

/// Verified column families that are remembered; Ozone's manager has some 30.
const KNOWN_MAX: usize = 256;

/// What a conversation works with; lives as long as the listener.
pub struct Hook {
    rocksdb: Option<Arc<RocksDb>>,
    compactor: Compactor,
    known: Vec<ColumnFamilyPointers>,
}

/// Why a request was not done.
pub type Failure = (ErrorKind, String);

impl Hook {
    /// A hook for the RocksDB that was found, if any.
    pub fn new(rocksdb: Option<Arc<RocksDb>>, compactor: Compactor) -> Hook {
        Hook { rocksdb, compactor, known: Vec::new() }
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
        }
    }

    /// Checks the pointers and remembers them.
    fn verified(&mut self, rocksdb: &RocksDb, pointers: &ColumnFamilyPointers) -> Result<Handles, Failure> {
        let handles = verified(rocksdb, pointers);
        self.known.retain(|known| known != pointers);
        if handles.is_ok() {
            if self.known.len() >= KNOWN_MAX {
                self.known.remove(0);
            }
            self.known.push(pointers.clone());
        }
        handles
    }

    fn databases(&mut self) -> Vec<VerifiedColumnFamily> {
        let Some(checker) = self.rocksdb.as_deref().map(Checker::new) else { return Vec::new() };
        self.known.retain(|pointers| checker.check(pointers).is_ok());
        let describe = |pointers: &ColumnFamilyPointers| VerifiedColumnFamily {
            pointers: pointers.clone(),
            directory: directory(pointers.database),
        };
        self.known.iter().map(describe).collect()
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
        let handles = self.verified(&rocksdb, pointers)?;
        let (value, truncated) =
            rocksdb.property(handles, &name).map_or((None, false), |(value, cut)| (Some(value), cut));
        Ok(Response::Property { value, truncated })
    }

    fn live_files(&mut self, pointers: &ColumnFamilyPointers) -> Result<LiveFiles, Failure> {
        let rocksdb = self.rocksdb()?;
        let handles = self.verified(&rocksdb, pointers)?;
        rocksdb.live_files(handles).ok_or_else(|| unsupported("live SST files cannot be listed"))
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
        self.verified(&rocksdb, &request.column_family)?;
        self.compactor.start(rocksdb, request).map(|id| Response::Started { id })
    }

    /// Answers one request; listing files answers in several frames.
    fn answer(&mut self, stream: &UnixStream, request: Request) -> Result<(), FrameError> {
        let answer = match request {
            Request::Hello { .. } => Ok(Response::Hello(self.hello())),
            Request::Databases {} => Ok(Response::Databases { column_families: self.databases() }),
            Request::SstFiles { column_family } => match self.live_files(&column_family) {
                Ok(files) => return pages::send_all(&files, |page| send(stream, page)),
                Err(failure) => Err(failure),
            },
            Request::Property { column_family, name } => self.property(&column_family, &name),
            Request::CompactRange(request) => self.compact_range(request),
            Request::CompactionStatus { id } => self.compactor.status(id),
            Request::Cancel { id } => self.compactor.cancel(id),
        };
        send(stream, &answer.unwrap_or_else(|(kind, message)| Response::Error { kind, message }))
    }
}

/// Checks the pointers and turns them into the C API's handles, to be used at once.
pub fn verified(rocksdb: &RocksDb, pointers: &ColumnFamilyPointers) -> Result<Handles, Failure> {
    if pointers.name.len() > COLUMN_FAMILY_NAME_BYTES_MAX {
        return Err((ErrorKind::BadRequest, "the column family's name is too long".to_owned()));
    }
    Checker::new(rocksdb).check(pointers).map_err(|reason| (ErrorKind::Refused, reason))?;
    // SAFETY: both were just found to be live objects of these classes, the second of the first. That
    // they stay so is the host's word; the module documentation of the crate says what remains.
    Ok(unsafe { Handles::new(pointers.database, pointers.handle) })
}

fn unsupported(what: &str) -> Failure {
    (ErrorKind::Unsupported, format!("{what}: this RocksDB does not export the functions"))
}

/// Talks to one client until it closes, falls silent, or breaks the protocol. `others` is the listener:
/// when somebody waits there, silence is shorter.
pub fn serve(stream: &UnixStream, others: BorrowedFd<'_>, hook: &mut Hook) {
    if let Err(error) = converse(stream, others, hook) {
        match error {
            FrameError::Closed => {}
            FrameError::Json(_) | FrameError::Length { .. } => {
                let message = error.to_string();
                log::line(&message);
                let _ = send(stream, &Response::Error { kind: ErrorKind::BadRequest, message });
            }
            error => log::line(&error.to_string()),
        }
    }
}

fn converse(stream: &UnixStream, others: BorrowedFd<'_>, hook: &mut Hook) -> Result<(), FrameError> {
    stream.set_write_timeout(Some(FRAME_TIME_MAX)).map_err(FrameError::Io)?;
    match receive(stream, others)? {
        request @ Request::Hello { protocol_version: PROTOCOL_VERSION, .. } => {
            hook.answer(stream, request)?
        }
        Request::Hello { protocol_version, .. } => {
            let message = format!(
                "this hook speaks version {PROTOCOL_VERSION}, the agent {protocol_version}: restart the \
                 target to be rid of the old hook, or use the agent it came with"
            );
            return send(stream, &Response::Error { kind: ErrorKind::VersionMismatch, message });
        }
        _ => {
            let message = "the first request is hello".to_owned();
            return send(stream, &Response::Error { kind: ErrorKind::BadRequest, message });
        }
    }
    loop {
        let request = receive(stream, others)?;
        hook.answer(stream, request)?;
    }
}

/// Waits for a request, then reads it against a deadline.
fn receive(stream: &UnixStream, others: BorrowedFd<'_>) -> Result<Request, FrameError> {
    let is_there = wait_readable(stream, TURN_MIN)
        .and_then(|is_there| if is_there { Ok(true) } else { wait_unless_others(stream, others) })
        .map_err(FrameError::Io)?;
    if !is_there {
        return Err(FrameError::Closed);
    }
    read(&mut Timed { stream, deadline: Instant::now() + FRAME_TIME_MAX })
}

/// Whether a request comes within [`IDLE_MAX`] and before somebody else wants the turn.
fn wait_unless_others(stream: &UnixStream, others: BorrowedFd<'_>) -> io::Result<bool> {
    let mut waiting = [poll_entry(stream.as_raw_fd()), poll_entry(others.as_raw_fd())];
    poll(&mut waiting, IDLE_MAX)?;
    Ok(waiting.first().is_some_and(|own| own.revents != 0))
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
    use sexton_hook_protocol::KeyBytes;
    use std::io::Write;
    use std::os::fd::AsFd;

    /// A conversation with a hook that found no RocksDB: the requests in, the responses out.
    fn talk(bytes: &[u8]) -> Vec<Response> {
        let (mut agent, hook_end) = UnixStream::pair().unwrap();
        agent.write_all(bytes).unwrap();
        agent.shutdown(std::net::Shutdown::Write).unwrap();
        let (nobody, _other_end) = UnixStream::pair().unwrap();
        serve(&hook_end, nobody.as_fd(), &mut Hook::new(None, Compactor::default()));
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
        Request::Hello { protocol_version, agent_pid: 1 }
    }

    fn pointers() -> ColumnFamilyPointers {
        ColumnFamilyPointers { database: 8, handle: 8, name: "default".into(), id: 0 }
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
            force_bottommost: true,
        };
        let responses = talk(&frames(&[
            hello(PROTOCOL_VERSION),
            Request::SstFiles { column_family: pointers() },
            Request::Property { column_family: pointers(), name: "rocksdb.stats".into() },
            Request::CompactRange(range),
            Request::CompactionStatus { id: 1 },
            Request::Cancel { id: 1 },
        ]));
        let kinds: Vec<_> = responses.iter().skip(1).map(kind).collect();
        assert_eq!(kinds[..3], [ErrorKind::Unsupported; 3]);
        assert_eq!(kinds[3..], [ErrorKind::NotFound; 2]);
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
        serve(&hook_end, others.as_fd(), &mut Hook::new(None, Compactor::default()));
        assert!(started.elapsed() >= TURN_MIN && started.elapsed() < IDLE_MAX / 2);
        assert!(matches!(read(&mut agent), Ok(Response::Hello(_))), "but not unheard");
    }
}
