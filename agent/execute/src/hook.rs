//! The conversation with the hook inside a target.

use super::error::ExecuteError;
use super::process::{TargetProcess, peer_pid};
use super::words::one_line;
use super::{attach, library, standstill};
use sexton_hook_protocol::limits::{ANSWER_WAIT_MAX, STOP_ANSWER_WAIT_MAX};
use sexton_hook_protocol::{
    COMPACT_FILES, ChangedOption, ColumnFamilyLoad, ColumnFamilyPointers, CompactFiles, CompactRange,
    CompactionState, ErrorKind, FrameError, Hello, LOADS_MAX, OptionChange, PROTOCOL_VERSION, Request,
    Response, Scanner, SetOptions, VerifiedColumnFamily, read, write,
};
use sexton_inspect::facts::Target;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::key::Key;
use sexton_tuner::oldest_snapshot::Sequences;
use sexton_tuner::primitives::Primitives;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long all pages of a list of files may take.
const LIST_WAIT_MAX: Duration = Duration::from_secs(20);

/// How long a hook that was just loaded may take to listen.
const LISTEN_WAIT_MAX: Duration = Duration::from_secs(3);

/// Pause between two tries to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// SST files taken from one hook: a petabyte in files of the usual 64 MiB would have 16 times as many,
/// and nobody keeps that in one process.
const FILES_MAX: usize = 1_000_000;

/// How to bring the hook in.
#[derive(Clone, Debug, Default)]
pub struct HookOptions {
    /// The hook library; `None`: beside the agent's program, or in `/usr/lib/sexton`.
    pub library: Option<PathBuf>,
    /// Whether a hook may be brought in where none listens yet. That changes the target.
    pub may_attach: bool,
}

/// A hook that answers. Reconnects by itself when the hook closed an idle connection.
pub struct HookClient {
    target: Target,
    process: TargetProcess,
    stream: Option<UnixStream>,
    hello: Hello,
    /// When what is being asked has to be answered, where several questions share their time.
    until: Option<Instant>,
}

/// A connection that a job and whoever else works on the target share. A job holds it for a poll, not longer.
pub type SharedHook = Arc<Mutex<HookClient>>;

/// A connection of which each read and write ends in time: a limit on each of them alone would have a hook
/// that sends a byte now and then keep the agent for ever.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl HookClient {
    /// Connects to the hook of `target`: to the one that listens already, else, in a JVM, to one that is
    /// brought in by attaching.
    ///
    /// # Errors
    /// Each with its [`ExecuteError::remedy`]; nothing is left behind in the target.
    pub fn connect(target: &Target, options: &HookOptions) -> Result<HookClient, ExecuteError> {
        let process = TargetProcess::open(&target.process)?;
        if let Some(why) = standstill::of(process.pid) {
            return Err(ExecuteError::StandsStill { pid: process.pid, why });
        }
        let can_attach = target.is_jvm && options.may_attach;
        let stream = match open_stream(&process)? {
            Some(stream) => stream,
            None if can_attach => attach_and_open(target, &process, options)?,
            None => return Err(ExecuteError::NoHook { pid: process.pid }),
        };
        let until = || Instant::now() + ANSWER_WAIT_MAX;
        let (stream, hello) = match handshake(&process, &stream, until()) {
            // A hook of another agent's version: it is asked to go, and ours brought in.
            Err(ExecuteError::Version { message, .. }) if can_attach => {
                tracing::info!(target = target.name, message, "the hook is replaced by this agent's");
                let stream = replace(target, &process, options)?;
                let hello = handshake(&process, &stream, until())?;
                (stream, hello)
            }
            hello => (stream, hello?),
        };
        check_library(target, &hello)?;
        Ok(HookClient { target: target.clone(), process, stream: Some(stream), hello, until: None })
    }

    /// Has all questions of `ask` answered within `limit` together.
    ///
    /// # Errors
    /// Those of `ask`.
    pub fn within<T>(
        &mut self,
        limit: Duration,
        ask: impl FnOnce(&mut HookClient) -> Result<T, ExecuteError>,
    ) -> Result<T, ExecuteError> {
        self.until = Some(Instant::now() + limit);
        let answer = ask(self);
        self.until = None;
        answer
    }

    /// What the hook said about itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The target it lives in.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The column families that the hook has verified so far, with their databases' directories.
    ///
    /// # Errors
    /// When the hook does not answer.
    pub fn databases(&mut self) -> Result<Vec<VerifiedColumnFamily>, ExecuteError> {
        match self.ask(&Request::Databases {})? {
            Response::Databases { column_families } => Ok(column_families),
            other => Err(self.unexpected(other, "databases")),
        }
    }

    /// The live SST files of all column families of the database that `column_family` belongs to.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] in [`ExecuteError::Hook`] when the pointers are not what they should be.
    pub fn sst_files(&mut self, column_family: &ColumnFamilyPointers) -> Result<Vec<SstFile>, ExecuteError> {
        let mut files = Vec::new();
        self.list(column_family, |file| files.push(sst_file(file)))?;
        Ok(files)
    }

    /// Sequence numbers of the same files, by their number; of none where RocksDB does not tell them.
    ///
    /// # Errors
    /// As [`HookClient::sst_files`].
    pub fn sequences(
        &mut self,
        column_family: &ColumnFamilyPointers,
    ) -> Result<BTreeMap<u64, Sequences>, ExecuteError> {
        let mut sequences = BTreeMap::new();
        self.list(column_family, |file| {
            let of_file = file.smallest_sequence.zip(file.largest_sequence);
            sequences
                .extend(of_file.map(|(smallest, largest)| (file.number, Sequences { smallest, largest })));
        })?;
        Ok(sequences)
    }

    /// Hands the live files to `take`.
    fn list(
        &mut self,
        column_family: &ColumnFamilyPointers,
        mut take: impl FnMut(sexton_hook_protocol::SstFile),
    ) -> Result<(), ExecuteError> {
        let request = Request::SstFiles { column_family: column_family.clone() };
        let mut count = 0;
        let until = self.until.unwrap_or_else(|| Instant::now() + LIST_WAIT_MAX);
        let mut answer = self.ask(&request)?;
        loop {
            match answer {
                Response::SstFiles { files: page, last } => {
                    count += page.len();
                    page.into_iter().for_each(&mut take);
                    if last {
                        return Ok(());
                    }
                }
                other => return Err(self.unexpected(other, "SST files")),
            }
            if count > FILES_MAX {
                self.stream = None;
                return Err(self.unexpected_what("fewer than a million SST files"));
            }
            answer = self.receive(until)?;
        }
    }

    /// One of RocksDB's properties; `None` where RocksDB does not know it.
    pub fn property(
        &mut self,
        column_family: &ColumnFamilyPointers,
        name: &str,
    ) -> Result<Option<String>, ExecuteError> {
        let request = Request::Property { column_family: column_family.clone(), name: name.to_owned() };
        match self.ask(&request)? {
            Response::Property { value, .. } => Ok(value),
            other => Err(self.unexpected(other, "a property")),
        }
    }

    /// What waits to be compacted in these column families. Those that are gone are left out.
    ///
    /// # Errors
    /// When the hook does not answer, or cannot read properties.
    pub fn loads(
        &mut self,
        column_families: &[ColumnFamilyPointers],
    ) -> Result<Vec<ColumnFamilyLoad>, ExecuteError> {
        let mut loads = Vec::with_capacity(column_families.len());
        for page in column_families.chunks(LOADS_MAX) {
            match self.ask(&Request::Loads { column_families: page.to_vec() })? {
                Response::Loads { loads: page } => loads.extend(page),
                other => return Err(self.unexpected(other, "loads")),
            }
        }
        Ok(loads)
    }

    /// Starts a compaction; it runs in the target's own time from here. Never asked twice: where the
    /// answer is lost, whether it runs is not known.
    ///
    /// # Errors
    /// As [`HookClient::sst_files`], and [`ErrorKind::Busy`] while another one runs.
    pub fn start_compaction(&mut self, range: CompactRange) -> Result<u64, ExecuteError> {
        self.databases()?;
        match self.ask_once(&Request::CompactRange(range))? {
            Response::Started { id } => Ok(id),
            other => Err(self.unexpected(other, "a compaction that started")),
        }
    }

    /// Starts a compaction of files, as [`HookClient::start_compaction`] does one of a range. It cannot be
    /// cancelled.
    ///
    /// # Errors
    /// As [`HookClient::start_compaction`], and [`ErrorKind::Unsupported`] where there is no such call.
    pub fn start_compaction_of_files(&mut self, files: CompactFiles) -> Result<u64, ExecuteError> {
        self.databases()?;
        match self.ask_once(&Request::CompactFiles(files))? {
            Response::Started { id } => Ok(id),
            other => Err(self.unexpected(other, "a compaction that started")),
        }
    }

    /// What this RocksDB can be asked to compact by, as the hook has found it.
    pub fn primitives(&self) -> Primitives {
        let found = &self.hello.functions_found;
        Primitives { compact_files: found.iter().any(|name| name == COMPACT_FILES) }
    }

    /// Starts a flush of the column family's memtables, as [`HookClient::start_compaction`] starts a
    /// compaction; how it stands is asked in the same way. It cannot be cancelled.
    pub fn flush(&mut self, column_family: &ColumnFamilyPointers) -> Result<u64, ExecuteError> {
        self.databases()?;
        match self.ask_once(&Request::Flush { column_family: column_family.clone() })? {
            Response::Started { id } => Ok(id),
            other => Err(self.unexpected(other, "a flush that started")),
        }
    }

    /// Changes options of a column family, all of them or none: names and values as the OPTIONS file
    /// writes them. The hook puts back what they say when this agent is gone.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`] in [`ExecuteError::Hook`] with RocksDB's own words when it does not take them.
    pub fn set_options(
        &mut self,
        column_family: &ColumnFamilyPointers,
        options: &[OptionChange],
    ) -> Result<(), ExecuteError> {
        let request = SetOptions { column_family: column_family.clone(), options: options.to_vec() };
        match self.ask(&Request::SetOptions(request))? {
            Response::Done {} => Ok(()),
            other => Err(self.unexpected(other, "options that were set")),
        }
    }

    /// The options that the hook will put back when this agent is gone. Asking tells the hook that it is not.
    ///
    /// # Errors
    /// When the hook does not answer.
    pub fn changed_options(&mut self) -> Result<Vec<ChangedOption>, ExecuteError> {
        match self.ask(&Request::ChangedOptions {})? {
            Response::ChangedOptions { options } => Ok(options),
            other => Err(self.unexpected(other, "changed options")),
        }
    }

    /// The data scanners of an Ozone DataNode, with their bandwidths.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] in [`ExecuteError::Hook`] where there are none.
    pub fn scanners(&mut self) -> Result<Vec<Scanner>, ExecuteError> {
        self.ask_scanners(&Request::Scanners {})
    }

    /// Gives each of these scanners another bandwidth; what they have then. It lasts until the process ends.
    ///
    /// # Errors
    /// As [`HookClient::scanners`], and [`ErrorKind::BadRequest`] for a bandwidth that is out of bounds.
    pub fn set_scrub_bandwidth(&mut self, bytes_per_second: u64) -> Result<Vec<Scanner>, ExecuteError> {
        self.ask_scanners(&Request::SetScrubBandwidth { bytes_per_second })
    }

    fn ask_scanners(&mut self, request: &Request) -> Result<Vec<Scanner>, ExecuteError> {
        match self.ask(request)? {
            Response::Scanners { scanners } => Ok(scanners),
            other => Err(self.unexpected(other, "data scanners")),
        }
    }

    /// Has the hook end what runs, take its guard out of the target and stop listening. Its library stays
    /// mapped, doing nothing, until the target ends.
    ///
    /// # Errors
    /// When the hook does not answer, or a job does not end.
    pub fn detach(mut self) -> Result<(), ExecuteError> {
        let pid = self.process.pid;
        let until = Instant::now() + STOP_ANSWER_WAIT_MAX;
        detach(pid, self.stream(until)?, until)
    }

    /// How a compaction or flush stands.
    ///
    /// # Errors
    /// When the hook does not answer, or knows no such job.
    pub fn compaction_status(&mut self, id: u64) -> Result<CompactionState, ExecuteError> {
        match self.ask(&Request::CompactionStatus { id })? {
            Response::Compaction { id: answered, state } if answered == id => Ok(state),
            other => Err(self.unexpected(other, "a compaction's state")),
        }
    }

    /// Stops a compaction; [`CompactionState::Running`] where it has not ended within the hook's time limit.
    /// It ends as soon as its turn comes, and may be asked for again.
    ///
    /// # Errors
    /// When the hook does not answer, or the target's RocksDB cannot cancel.
    pub fn cancel_compaction(&mut self, id: u64) -> Result<CompactionState, ExecuteError> {
        match self.ask(&Request::Cancel { id })? {
            Response::Compaction { id: answered, state } if answered == id => Ok(state),
            other => Err(self.unexpected(other, "a compaction's state")),
        }
    }

    /// Asks, and once more on a new connection if the old one had been closed.
    fn ask(&mut self, request: &Request) -> Result<Response, ExecuteError> {
        match self.ask_once(request) {
            Err(ExecuteError::Connection { source, .. }) if was_closed(&source) => self.ask_once(request),
            answer => answer,
        }
    }

    fn ask_once(&mut self, request: &Request) -> Result<Response, ExecuteError> {
        let until = self.until();
        if let Err(source) = write(&mut Timed { stream: self.stream(until)?, until }, request) {
            return Err(self.lost(source));
        }
        self.receive(until)
    }

    fn receive(&mut self, until: Instant) -> Result<Response, ExecuteError> {
        match read(&mut Timed { stream: self.stream(until)?, until }) {
            Ok(response) => Ok(response),
            Err(source) => Err(self.lost(source)),
        }
    }

    /// By when what is asked now has to be answered.
    fn until(&self) -> Instant {
        self.until.unwrap_or_else(|| Instant::now() + ANSWER_WAIT_MAX)
    }

    /// The connection, a new one where the last was lost.
    fn stream(&mut self, until: Instant) -> Result<&UnixStream, ExecuteError> {
        if self.stream.is_none() {
            let none = ExecuteError::NoHook { pid: self.process.pid };
            let stream = open_stream(&self.process)?.ok_or(none)?;
            self.hello = handshake(&self.process, &stream, until)?;
            self.stream = Some(stream);
        }
        self.stream.as_ref().ok_or(ExecuteError::NoHook { pid: self.process.pid })
    }

    /// After an error nothing on the connection can be told apart any more: a new one is made.
    fn lost(&mut self, source: FrameError) -> ExecuteError {
        self.stream = None;
        if !self.process.is_alive() {
            return ExecuteError::ProcessGone { pid: self.process.pid };
        }
        ExecuteError::Connection { pid: self.process.pid, source }
    }

    fn unexpected(&mut self, response: Response, what: &'static str) -> ExecuteError {
        match response {
            Response::Error { kind, message } => failure(self.process.pid, kind, message),
            _ => {
                self.stream = None;
                self.unexpected_what(what)
            }
        }
    }

    fn unexpected_what(&self, what: &'static str) -> ExecuteError {
        ExecuteError::UnexpectedAnswer { pid: self.process.pid, what }
    }
}

/// What a hook says is the target's word, and ends up in the history.
fn failure(pid: u32, kind: ErrorKind, message: String) -> ExecuteError {
    let message = one_line(&message);
    match kind {
        ErrorKind::VersionMismatch => ExecuteError::Version { pid, message },
        kind => ExecuteError::Hook { pid, kind, message },
    }
}

/// Whether the hook had closed the connection before it saw the request.
fn was_closed(error: &FrameError) -> bool {
    match error {
        FrameError::Closed => true,
        FrameError::Io(error) => {
            matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
        }
        _ => false,
    }
}

fn socket_name(process: &TargetProcess) -> String {
    format!(".sexton-hook-{}.sock", process.namespaced_pid)
}

/// Connects to the hook's socket; `None` where no hook listens.
fn open_stream(process: &TargetProcess) -> Result<Option<UnixStream>, ExecuteError> {
    let directory = process.temporary_directory()?;
    let stream = match directory.connect(&socket_name(process), process.user_id) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let message = "other clients are waiting for the hook already".to_owned();
            return Err(failure(process.pid, ErrorKind::Busy, message));
        }
        Err(error) => {
            return Err(ExecuteError::Impostor { pid: process.pid, holder: error.to_string() });
        }
    };
    match peer_pid(&stream) {
        Ok(peer) if peer == process.pid => Ok(Some(stream)),
        Ok(peer) => Err(ExecuteError::Impostor { pid: process.pid, holder: format!("process {peer}") }),
        Err(error) => Err(ExecuteError::Impostor { pid: process.pid, holder: error.to_string() }),
    }
}

/// Brings the library into the JVM and connects to its socket.
fn attach_and_open(
    target: &Target,
    process: &TargetProcess,
    options: &HookOptions,
) -> Result<UnixStream, ExecuteError> {
    // Before anything is put into its /tmp.
    attach::check_attachable(process)?;
    let placed =
        library::place(process, &library::find(options.library.as_deref(), library::CLibrary::of(target))?)?;
    let module = target.module.path.to_str().ok_or_else(|| ExecuteError::Attach {
        pid: process.pid,
        reason: "the path of RocksDB's module is not UTF-8".to_owned(),
    })?;
    let arguments = format!("socket=/tmp/{},library={module}", socket_name(process));
    attach::load(process, &placed.path, &arguments)?;
    let deadline = Instant::now() + LISTEN_WAIT_MAX;
    loop {
        if let Some(stream) = open_stream(process)? {
            tracing::info!(target = target.name, "the hook was loaded by attaching");
            return Ok(stream);
        }
        if Instant::now() >= deadline {
            return Err(ExecuteError::Attach {
                pid: process.pid,
                reason: "the JVM loaded the hook, but the hook does not listen".to_owned(),
            });
        }
        std::thread::sleep(CONNECT_INTERVAL);
    }
}

/// Has the hook that listens go away, and brings this agent's in.
fn replace(
    target: &Target,
    process: &TargetProcess,
    options: &HookOptions,
) -> Result<UnixStream, ExecuteError> {
    if let Some(stream) = open_stream(process)? {
        detach(process.pid, &stream, Instant::now() + STOP_ANSWER_WAIT_MAX)?;
    }
    attach_and_open(target, process, options)
}

/// Asks the hook on `stream` to go. It may be of any version: this request needs no greeting.
fn detach(pid: u32, stream: &UnixStream, until: Instant) -> Result<(), ExecuteError> {
    match exchange(stream, &Request::Detach {}, until, pid)? {
        Response::Done {} => Ok(()),
        Response::Error { kind, message } => Err(failure(pid, kind, message)),
        _ => Err(ExecuteError::UnexpectedAnswer { pid, what: "a hook that goes" }),
    }
}

/// One question and its answer, on a connection that nothing else goes over.
fn exchange(
    stream: &UnixStream,
    request: &Request,
    until: Instant,
    pid: u32,
) -> Result<Response, ExecuteError> {
    let mut stream = Timed { stream, until };
    let answer = write(&mut stream, request).and_then(|()| read(&mut stream));
    answer.map_err(|source| ExecuteError::Connection { pid, source })
}

/// What tells this agent from others, for as long as it lives.
fn agent_id() -> u64 {
    static ID: OnceLock<u64> = OnceLock::new();
    // Hash states are seeded from the system's random numbers; nothing is hashed.
    *ID.get_or_init(|| RandomState::new().build_hasher().finish())
}

fn handshake(process: &TargetProcess, stream: &UnixStream, until: Instant) -> Result<Hello, ExecuteError> {
    let pid = process.pid;
    let request = Request::Hello {
        protocol_version: PROTOCOL_VERSION,
        agent_pid: std::process::id(),
        agent_id: agent_id(),
    };
    match exchange(stream, &request, until, pid)? {
        Response::Hello(hello) if hello.protocol_version == PROTOCOL_VERSION => Ok(hello),
        Response::Hello(hello) => {
            Err(ExecuteError::Version { pid, message: format!("version {}", hello.protocol_version) })
        }
        Response::Error { kind, message } => Err(failure(pid, kind, message)),
        _ => Err(ExecuteError::UnexpectedAnswer { pid, what: "a greeting" }),
    }
}

/// The hook must work with the module that the agent reads: only then do its checks mean anything.
fn check_library(target: &Target, hello: &Hello) -> Result<(), ExecuteError> {
    let expected = &target.module.path;
    match &hello.library {
        Some(found) if std::path::Path::new(found) == expected => Ok(()),
        found => Err(ExecuteError::OtherLibrary {
            pid: target.process.pid,
            found: found.clone().unwrap_or_else(|| "no module with the C API".to_owned()),
            expected: expected.clone(),
        }),
    }
}

fn sst_file(file: sexton_hook_protocol::SstFile) -> SstFile {
    SstFile {
        number: file.number,
        column_family: file.column_family,
        level: file.level,
        size_bytes: file.size_bytes,
        entries: file.entries,
        deletions: file.deletions,
        smallest: Key::new(file.smallest.as_bytes()),
        largest: Key::new(file.largest.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn what_a_hook_says_is_one_short_line() {
        let words = failure(7, ErrorKind::Failed, format!("a\n\x1b[2Jb{}", "x".repeat(200_000))).to_string();
        assert!(words.len() < 4096 && !words.contains(char::is_control), "{words}");
    }

    /// Bytes that come one at a time, each in time, are an answer that does not come.
    #[test]
    fn a_hook_that_trickles_is_not_waited_for() {
        let (own, other) = UnixStream::pair().unwrap();
        let trickle = std::thread::spawn(move || {
            let mut sent = 0;
            while (&other).write_all(b"\0").is_ok() {
                sent += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            sent
        });
        let until = Instant::now() + Duration::from_millis(300);
        let mut stream = Timed { stream: &own, until };
        let mut bytes = [0; 64];
        let error = stream.read_exact(&mut bytes).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        assert!(Instant::now() >= until);
        drop(own);
        assert!(trickle.join().unwrap() < 64, "all of it came in time");
    }

    #[test]
    fn closed_connections_are_told_from_broken_ones() {
        assert!(was_closed(&FrameError::Closed));
        assert!(was_closed(&FrameError::Io(io::ErrorKind::BrokenPipe.into())));
        assert!(!was_closed(&FrameError::Truncated));
        assert!(!was_closed(&FrameError::Io(io::ErrorKind::WouldBlock.into())));
    }
}
