//! The conversation with the hook inside a target.

use super::error::ActuatorError;
use super::process::{TargetProcess, peer_pid};
use super::{attach, library, standstill};
use sexton_hook_protocol::{
    ChangedOption, ColumnFamilyLoad, ColumnFamilyPointers, CompactRange, CompactionState, ErrorKind,
    FrameError, Hello, LOADS_MAX, OptionChange, OptionsScope, PROTOCOL_VERSION, Request, Response,
    SetOptions, VerifiedColumnFamily, read, write,
};
use sexton_inspect::facts::Target;
use sexton_tuner::evidence::SstFile;
use sexton_tuner::key::Key;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the hook may take for one answer; listing 100,000 files takes a second.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// The same for a cancellation and for going away, which a hook waits 20 s for.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(30);

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
}

impl HookClient {
    /// Connects to the hook of `target`: to the one that listens already, else, in a JVM, to one that is
    /// brought in by attaching.
    ///
    /// # Errors
    /// Each with its [`ActuatorError::remedy`]; nothing is left behind in the target.
    pub fn connect(target: &Target, options: &HookOptions) -> Result<HookClient, ActuatorError> {
        let process = TargetProcess::open(&target.process)?;
        if let Some(why) = standstill::of(process.pid) {
            return Err(ActuatorError::StandsStill { pid: process.pid, why });
        }
        let can_attach = target.is_jvm && options.may_attach;
        let stream = match open_stream(&process)? {
            Some(stream) => stream,
            None if can_attach => attach_and_open(target, &process, options)?,
            None => return Err(ActuatorError::NoHook { pid: process.pid }),
        };
        let (stream, hello) = match handshake(&process, &stream) {
            // A hook of another agent's version: it is asked to go, and ours brought in.
            Err(ActuatorError::Version { message, .. }) if can_attach => {
                tracing::info!(target = target.name, message, "the hook is replaced by this agent's");
                let stream = replace(target, &process, options)?;
                let hello = handshake(&process, &stream)?;
                (stream, hello)
            }
            hello => (stream, hello?),
        };
        check_library(target, &hello)?;
        Ok(HookClient { target: target.clone(), process, stream: Some(stream), hello })
    }

    /// What the hook said about itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The target it lives in.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether the target's RocksDB exports what cancelling a compaction takes.
    pub fn can_cancel(&self) -> bool {
        self.hello.functions_found.iter().any(|name| name == "rocksdb_disable_manual_compaction")
    }

    /// The column families that the hook has verified so far, with their databases' directories.
    ///
    /// # Errors
    /// When the hook does not answer.
    pub fn databases(&mut self) -> Result<Vec<VerifiedColumnFamily>, ActuatorError> {
        match self.ask(&Request::Databases {})? {
            Response::Databases { column_families } => Ok(column_families),
            other => Err(self.unexpected(other, "databases")),
        }
    }

    /// The live SST files of all column families of the database that `column_family` belongs to.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] in [`ActuatorError::Hook`] when the pointers are not what they should be.
    pub fn sst_files(&mut self, column_family: &ColumnFamilyPointers) -> Result<Vec<SstFile>, ActuatorError> {
        let request = Request::SstFiles { column_family: column_family.clone() };
        let mut files = Vec::new();
        let mut answer = self.ask(&request)?;
        loop {
            match answer {
                Response::SstFiles { files: page, last } => {
                    files.extend(page.into_iter().map(sst_file));
                    if last {
                        return Ok(files);
                    }
                }
                other => return Err(self.unexpected(other, "SST files")),
            }
            if files.len() > FILES_MAX {
                self.stream = None;
                return Err(self.unexpected_what("fewer than a million SST files"));
            }
            answer = self.receive()?;
        }
    }

    /// One of RocksDB's properties; `None` where RocksDB does not know it.
    ///
    /// # Errors
    /// As [`HookClient::sst_files`].
    pub fn property(
        &mut self,
        column_family: &ColumnFamilyPointers,
        name: &str,
    ) -> Result<Option<String>, ActuatorError> {
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
    ) -> Result<Vec<ColumnFamilyLoad>, ActuatorError> {
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
    pub fn start_compaction(&mut self, range: CompactRange) -> Result<u64, ActuatorError> {
        self.databases()?;
        match self.ask_once(&Request::CompactRange(range))? {
            Response::Started { id } => Ok(id),
            other => Err(self.unexpected(other, "a compaction that started")),
        }
    }

    /// Starts a flush of the column family's memtables, as [`HookClient::start_compaction`] starts a
    /// compaction; how it stands is asked in the same way. It cannot be cancelled.
    ///
    /// # Errors
    /// As [`HookClient::start_compaction`].
    pub fn flush(&mut self, column_family: &ColumnFamilyPointers) -> Result<u64, ActuatorError> {
        self.databases()?;
        match self.ask_once(&Request::Flush { column_family: column_family.clone() })? {
            Response::Started { id } => Ok(id),
            other => Err(self.unexpected(other, "a flush that started")),
        }
    }

    /// Changes options of the running database, all of them or none: names and values as the OPTIONS file
    /// writes them. The hook puts back what they say when this agent is gone.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`] in [`ActuatorError::Hook`] with RocksDB's own words when it does not take them,
    /// [`ErrorKind::Unsupported`] for options of the database before RocksDB 11.
    pub fn set_options(
        &mut self,
        column_family: &ColumnFamilyPointers,
        scope: OptionsScope,
        options: &[OptionChange],
    ) -> Result<(), ActuatorError> {
        let request = SetOptions { column_family: column_family.clone(), scope, options: options.to_vec() };
        match self.ask(&Request::SetOptions(request))? {
            Response::Done {} => Ok(()),
            other => Err(self.unexpected(other, "options that were set")),
        }
    }

    /// The options that the hook will put back when this agent is gone. Asking tells the hook that it is not.
    ///
    /// # Errors
    /// When the hook does not answer.
    pub fn changed_options(&mut self) -> Result<Vec<ChangedOption>, ActuatorError> {
        match self.ask(&Request::ChangedOptions {})? {
            Response::ChangedOptions { options } => Ok(options),
            other => Err(self.unexpected(other, "changed options")),
        }
    }

    /// Forbids or allows manual compactions of a database, the application's own too. What is forbidden is
    /// allowed again when this client's connection ends.
    ///
    /// # Errors
    /// As [`HookClient::sst_files`], and where the target's RocksDB cannot forbid them.
    pub fn set_manual_compaction(
        &mut self,
        column_family: &ColumnFamilyPointers,
        allowed: bool,
    ) -> Result<(), ActuatorError> {
        let request = Request::ManualCompaction { column_family: column_family.clone(), allowed };
        match self.ask(&request)? {
            Response::Done {} => Ok(()),
            other => Err(self.unexpected(other, "manual compactions forbidden or allowed")),
        }
    }

    /// Has the hook end what runs, take its guard out of the target and stop listening. Its library stays
    /// mapped, doing nothing, until the target ends.
    ///
    /// # Errors
    /// When the hook does not answer, or a job does not end.
    pub fn detach(mut self) -> Result<(), ActuatorError> {
        let pid = self.process.pid;
        detach(pid, self.stream()?)
    }

    /// How a compaction or flush stands.
    ///
    /// # Errors
    /// When the hook does not answer, or knows no such job.
    pub fn compaction_status(&mut self, id: u64) -> Result<CompactionState, ActuatorError> {
        match self.ask(&Request::CompactionStatus { id })? {
            Response::Compaction { id: answered, state } if answered == id => Ok(state),
            other => Err(self.unexpected(other, "a compaction's state")),
        }
    }

    /// Stops a compaction; [`CompactionState::Running`] where it has not ended within the hook's time limit. It ends as
    /// soon as its turn comes, and may be asked for again. Until it has ended the database does no manual
    /// compactions, the application's own among them.
    ///
    /// # Errors
    /// When the hook does not answer, or the target's RocksDB cannot cancel.
    pub fn cancel_compaction(&mut self, id: u64) -> Result<CompactionState, ActuatorError> {
        self.stream()?.set_read_timeout(Some(CANCEL_WAIT_MAX)).map_err(|error| self.broken(error))?;
        let answer = self.ask(&Request::Cancel { id });
        if let Some(stream) = &self.stream {
            stream.set_read_timeout(Some(ANSWER_WAIT_MAX)).map_err(|error| self.broken(error))?;
        }
        match answer? {
            Response::Compaction { id: answered, state } if answered == id => Ok(state),
            other => Err(self.unexpected(other, "a compaction's state")),
        }
    }

    /// Asks, and once more on a new connection if the old one had been closed.
    fn ask(&mut self, request: &Request) -> Result<Response, ActuatorError> {
        match self.ask_once(request) {
            Err(ActuatorError::Connection { source, .. }) if was_closed(&source) => self.ask_once(request),
            answer => answer,
        }
    }

    fn ask_once(&mut self, request: &Request) -> Result<Response, ActuatorError> {
        let mut stream = self.stream()?;
        if let Err(source) = write(&mut stream, request) {
            return Err(self.lost(source));
        }
        self.receive()
    }

    fn receive(&mut self) -> Result<Response, ActuatorError> {
        let mut stream = self.stream()?;
        match read(&mut stream) {
            Ok(response) => Ok(response),
            Err(source) => Err(self.lost(source)),
        }
    }

    /// The connection, a new one where the last was lost.
    fn stream(&mut self) -> Result<&UnixStream, ActuatorError> {
        if self.stream.is_none() {
            let none = ActuatorError::NoHook { pid: self.process.pid };
            let stream = open_stream(&self.process)?.ok_or(none)?;
            self.hello = handshake(&self.process, &stream)?;
            self.stream = Some(stream);
        }
        self.stream.as_ref().ok_or(ActuatorError::NoHook { pid: self.process.pid })
    }

    /// After an error nothing on the connection can be told apart any more: a new one is made.
    fn lost(&mut self, source: FrameError) -> ActuatorError {
        self.stream = None;
        if !self.process.is_alive() {
            return ActuatorError::ProcessGone { pid: self.process.pid };
        }
        ActuatorError::Connection { pid: self.process.pid, source }
    }

    fn broken(&self, error: io::Error) -> ActuatorError {
        ActuatorError::Connection { pid: self.process.pid, source: FrameError::Io(error) }
    }

    fn unexpected(&mut self, response: Response, what: &'static str) -> ActuatorError {
        match response {
            Response::Error { kind, message } => failure(self.process.pid, kind, message),
            _ => {
                self.stream = None;
                self.unexpected_what(what)
            }
        }
    }

    fn unexpected_what(&self, what: &'static str) -> ActuatorError {
        ActuatorError::UnexpectedAnswer { pid: self.process.pid, what }
    }
}

fn failure(pid: u32, kind: ErrorKind, message: String) -> ActuatorError {
    match kind {
        ErrorKind::VersionMismatch => ActuatorError::Version { pid, message },
        kind => ActuatorError::Hook { pid, kind, message },
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
fn open_stream(process: &TargetProcess) -> Result<Option<UnixStream>, ActuatorError> {
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
            return Err(ActuatorError::Impostor { pid: process.pid, holder: error.to_string() });
        }
    };
    match peer_pid(&stream) {
        Ok(peer) if peer == process.pid => Ok(Some(stream)),
        Ok(peer) => Err(ActuatorError::Impostor { pid: process.pid, holder: format!("process {peer}") }),
        Err(error) => Err(ActuatorError::Impostor { pid: process.pid, holder: error.to_string() }),
    }
}

/// Brings the library into the JVM and connects to its socket.
fn attach_and_open(
    target: &Target,
    process: &TargetProcess,
    options: &HookOptions,
) -> Result<UnixStream, ActuatorError> {
    // Before anything is put into its /tmp.
    attach::check_attachable(process)?;
    let placed = library::place(process, &library::find(options.library.as_deref())?)?;
    let module = target.module.path.to_str().ok_or_else(|| ActuatorError::Attach {
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
            return Err(ActuatorError::Attach {
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
) -> Result<UnixStream, ActuatorError> {
    if let Some(stream) = open_stream(process)? {
        detach(process.pid, &stream)?;
    }
    attach_and_open(target, process, options)
}

/// Asks the hook on `stream` to go. It may be of any version: this request needs no greeting.
fn detach(pid: u32, stream: &UnixStream) -> Result<(), ActuatorError> {
    let broken = |source| ActuatorError::Connection { pid, source };
    stream.set_read_timeout(Some(CANCEL_WAIT_MAX)).map_err(|error| broken(FrameError::Io(error)))?;
    stream.set_write_timeout(Some(ANSWER_WAIT_MAX)).map_err(|error| broken(FrameError::Io(error)))?;
    let mut stream = stream;
    write(&mut stream, &Request::Detach {}).map_err(broken)?;
    match read(&mut stream).map_err(broken)? {
        Response::Done {} => Ok(()),
        Response::Error { kind, message } => Err(failure(pid, kind, message)),
        _ => Err(ActuatorError::UnexpectedAnswer { pid, what: "a hook that goes" }),
    }
}

/// What tells this agent from others, for as long as it lives.
fn agent_id() -> u64 {
    static ID: OnceLock<u64> = OnceLock::new();
    // Hash states are seeded from the system's random numbers; nothing is hashed.
    *ID.get_or_init(|| RandomState::new().build_hasher().finish())
}

fn handshake(process: &TargetProcess, stream: &UnixStream) -> Result<Hello, ActuatorError> {
    let pid = process.pid;
    let broken = |source| ActuatorError::Connection { pid, source };
    stream.set_read_timeout(Some(ANSWER_WAIT_MAX)).map_err(|error| broken(FrameError::Io(error)))?;
    stream.set_write_timeout(Some(ANSWER_WAIT_MAX)).map_err(|error| broken(FrameError::Io(error)))?;
    let mut stream = stream;
    let request = Request::Hello {
        protocol_version: PROTOCOL_VERSION,
        agent_pid: std::process::id(),
        agent_id: agent_id(),
    };
    write(&mut stream, &request).map_err(broken)?;
    match read(&mut stream).map_err(broken)? {
        Response::Hello(hello) if hello.protocol_version == PROTOCOL_VERSION => Ok(hello),
        Response::Hello(hello) => {
            Err(ActuatorError::Version { pid, message: format!("version {}", hello.protocol_version) })
        }
        Response::Error { kind, message } => Err(failure(pid, kind, message)),
        _ => Err(ActuatorError::UnexpectedAnswer { pid, what: "a greeting" }),
    }
}

/// The hook must work with the module that the agent reads: only then do its checks mean anything.
fn check_library(target: &Target, hello: &Hello) -> Result<(), ActuatorError> {
    let expected = &target.module.path;
    match &hello.library {
        Some(found) if std::path::Path::new(found) == expected => Ok(()),
        found => Err(ActuatorError::OtherLibrary {
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
    fn closed_connections_are_told_from_broken_ones() {
        assert!(was_closed(&FrameError::Closed));
        assert!(was_closed(&FrameError::Io(io::ErrorKind::BrokenPipe.into())));
        assert!(!was_closed(&FrameError::Truncated));
        assert!(!was_closed(&FrameError::Io(io::ErrorKind::WouldBlock.into())));
    }
}
