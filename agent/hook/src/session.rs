//! One conversation with the agent: reading requests within time limits and answering them.
//!
//! What a request does is in [`crate::commands`].

use crate::commands::{Answer, Hook};
use crate::lease::Agent;
use crate::socket::Peer;
use crate::{log, pages};
use sexton_hook_protocol::limits::{FRAME_TIME_MAX, IDLE_MAX};
use sexton_hook_protocol::{ErrorKind, FrameError, PROTOCOL_VERSION, Request, Response, read, write};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a client that is silent keeps its turn while another one waits.
const TURN_MIN: Duration = Duration::from_millis(200);

/// What comes after a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Client,
    /// The end of this hook.
    End,
}

/// Talks to one client until it closes, falls silent, or breaks the protocol. `others` is the listener:
/// when somebody waits there, silence is shorter.
pub fn serve(stream: &UnixStream, peer: Peer, others: BorrowedFd<'_>, hook: &mut Hook) -> Next {
    converse(stream, peer, others, hook).unwrap_or_else(|error| {
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
    })
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
            send(stream, &hook.greet(agent))?;
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
        request @ Request::Detach {} => return answer(stream, hook, None, request),
        _ => {
            let message = "the first request is hello".to_owned();
            send(stream, &Response::Error { kind: ErrorKind::BadRequest, message })?;
            return Ok(Next::Client);
        }
    };
    loop {
        let request = receive(stream, others, hook)?;
        if answer(stream, hook, Some(agent), request)? == Next::End {
            return Ok(Next::End);
        }
    }
}

/// Has one request answered; listing files answers in several frames.
fn answer(
    stream: &UnixStream,
    hook: &mut Hook,
    agent: Option<Agent>,
    request: Request,
) -> Result<Next, FrameError> {
    match hook.answer(agent, request) {
        Ok(Answer::One(response)) => send(stream, &response)?,
        Ok(Answer::Files(files)) => pages::send_all(&files, |page| send(stream, page))?,
        Ok(Answer::Last(response)) => {
            // A hook that has taken itself away is gone, whether anybody hears of it or not.
            let _ = send(stream, &response);
            return Ok(Next::End);
        }
        Err((kind, message)) => send(stream, &Response::Error { kind, message })?,
    }
    Ok(Next::Client)
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
    use sexton_hook_protocol::{
        BottommostLevelCompaction, COMPACT_FILES_MAX, ColumnFamilyPointers, CompactFiles, CompactRange,
        KeyBytes, LOADS_MAX, OptionChange, SetOptions,
    };
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
        };
        let options = SetOptions {
            column_family: pointers(),
            options: vec![change("max_sequential_skip_in_iterations", "16", Some("8"))],
        };
        let with = |option: OptionChange| {
            Request::SetOptions(SetOptions { options: vec![option], ..options.clone() })
        };
        let files = |count: u64, output_level| CompactFiles {
            column_family: pointers(),
            files: (0..count).collect(),
            output_level,
            output_file_bytes: 1 << 20,
        };
        let long = "9".repeat(2_000);
        let responses = talk(&frames(&[
            hello(PROTOCOL_VERSION),
            Request::SstFiles { column_family: pointers() },
            Request::Property { column_family: pointers(), name: "rocksdb.stats".into() },
            Request::Loads { column_families: vec![pointers()] },
            Request::CompactRange(range),
            Request::CompactFiles(files(1, 6)),
            Request::Flush { column_family: pointers() },
            Request::SetOptions(options.clone()),
            Request::CompactionStatus { id: 1 },
            Request::Cancel { id: 1 },
            Request::SetOptions(SetOptions { options: Vec::new(), ..options.clone() }),
            with(change("max_sequential_skip_in_iterations\0", "1", None)),
            with(change("", "1", None)),
            with(change("max_sequential_skip_in_iterations", "1", Some(&long))),
            with(change("level0_stop_writes_trigger", "1", None)),
            Request::Loads { column_families: vec![pointers(); LOADS_MAX + 1] },
            Request::CompactFiles(files(0, 6)),
            Request::CompactFiles(files(COMPACT_FILES_MAX as u64 + 1, 6)),
            Request::CompactFiles(files(1, 0)),
            Request::ChangedOptions {},
        ]));
        let (last, responses) = responses.split_last().unwrap();
        assert_eq!(*last, Response::ChangedOptions { options: Vec::new() });
        let kinds: Vec<_> = responses.iter().skip(1).map(kind).collect();
        assert_eq!(kinds[..7], [ErrorKind::Unsupported; 7]);
        assert_eq!(kinds[7..9], [ErrorKind::NotFound; 2]);
        assert_eq!(kinds[9..], [ErrorKind::BadRequest; 9]);
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
