//! Why an action was not done, with what to do about it.

use super::perf_level::KeeperError;
use super::sql_trouble::SqlTrouble;
use sexton_hook_protocol::{ErrorKind, FrameError, PROTOCOL_VERSION};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why an action, or the way to it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    #[error("process {pid} has ended")]
    ProcessGone { pid: u32 },
    #[error("cannot {what} of process {pid}: {source}")]
    Process {
        pid: u32,
        /// What was tried: "open the root directory".
        what: &'static str,
        source: io::Error,
    },
    /// The process does not run at all now: it could answer nothing, and would only later do what it was
    /// asked for.
    #[error("process {pid} stands still: {why}")]
    StandsStill { pid: u32, why: &'static str },
    /// The process is no JVM, or one that would take harm: no signal was sent.
    #[error("process {pid} cannot be attached to: {reason}")]
    NotAttachable { pid: u32, reason: &'static str },
    #[error("attaching to the JVM {pid} failed: {reason}")]
    Attach {
        pid: u32,
        /// Where it failed, with the JVM's own words.
        reason: String,
    },
    /// The hook library is not where it should be, or cannot be made visible to the target.
    #[error("hook library {}: {reason}", path.display())]
    Library {
        /// The library, or the last place looked at.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    #[error("no hook answers in process {pid}, and only a JVM can be given one while it runs")]
    NoHook { pid: u32 },
    #[error("the socket of the hook in process {pid} is held by {holder}")]
    Impostor { pid: u32, holder: String },
    #[error("the hook in process {pid} speaks another version than {PROTOCOL_VERSION}: {message}")]
    Version { pid: u32, message: String },
    #[error("the hook in process {pid} found RocksDB in {found}, not in {}", expected.display())]
    OtherLibrary {
        pid: u32,
        /// Module the hook found, or "no module".
        found: String,
        expected: PathBuf,
    },
    #[error("hook in process {pid}: {source}")]
    Connection { pid: u32, source: FrameError },
    #[error("the hook in process {pid} refused: {message}")]
    Hook { pid: u32, kind: ErrorKind, message: String },
    #[error(
        "compaction {job} in process {pid} was to stop because {reason}, and has not ended within {} s",
        waited.as_secs()
    )]
    StillRunning {
        pid: u32,
        /// The hook's number of it.
        job: u64,
        /// Why it was to stop.
        reason: String,
        /// How long its end was waited for.
        waited: Duration,
    },
    #[error("the hook in process {pid} gave an answer that does not fit: {what}")]
    UnexpectedAnswer {
        pid: u32,
        /// What was wanted, or which limit was passed.
        what: &'static str,
    },
    /// The request lacks what this executor needs, or is for somebody else.
    #[error("{reason}")]
    Request {
        /// What is wrong with it.
        reason: String,
    },
    /// A command is not well formed.
    #[error("command {program}: {reason}")]
    Template { program: String, reason: String },
    #[error("cannot run {program}: {source}")]
    Spawn { program: String, source: io::Error },
    #[error("{program} {ending}: {output}")]
    Command {
        program: String,
        /// How it ended: "ended with exit code 3".
        ending: String,
        /// First bytes of what it printed.
        output: String,
    },
    #[error("MariaDB: {message}")]
    Sql {
        trouble: SqlTrouble,
        /// The server's words, the client's, or ours.
        message: String,
    },
    #[error("the value in force is {value} all the same; {words}")]
    NotInForce {
        /// The value that was read.
        value: String,
        /// How the command that set it ended.
        words: String,
    },
    #[error("whether it is in force cannot be read: {error}; {words}")]
    NotRead {
        /// Why not.
        error: Box<ExecuteError>,
        /// How the command that set it ended.
        words: String,
    },
    /// The priorities of a process' threads.
    #[error("process {pid}: {reason}")]
    Threads {
        pid: u32,
        /// Which thread, and why not.
        reason: String,
    },
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error("the executor {executor} cannot {what}")]
    Unsupported {
        /// Its name in the policy.
        executor: &'static str,
        what: &'static str,
    },
}

impl ExecuteError {
    /// Whether a hook is there and gives no answer in time.
    pub fn is_silence(&self) -> bool {
        let Self::Connection { source: FrameError::Io(error), .. } = self else { return false };
        matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
    }

    /// Whether what failed so has cost something, here or in the target. To see that a process is gone or
    /// stands still, or that no hook listens, costs next to nothing.
    pub fn is_worth_a_pause(&self) -> bool {
        !matches!(self, Self::ProcessGone { .. } | Self::StandsStill { .. } | Self::NoHook { .. })
    }

    /// What an operator can do about it, one sentence.
    pub fn remedy(&self) -> String {
        match self {
            Self::ProcessGone { .. } => "nothing to do: it will be found again when it starts".into(),
            Self::Process { .. } => {
                "run the agent as root, or with CAP_SYS_PTRACE, CAP_DAC_OVERRIDE and CAP_KILL".into()
            }
            Self::StandsStill { .. } => "nothing to do: it is tried again when the process runs".into(),
            Self::NotAttachable { .. } => {
                "start it without the option that forbids attaching, or use the executor exec".into()
            }
            Self::Attach { .. } => {
                "see the target's standard error; allow it with -XX:+EnableDynamicAgentLoading and without \
                 -XX:+DisableAttachMechanism, or use the executor exec"
                    .into()
            }
            Self::Library { .. } => {
                "build libsexton_hook.so and put it beside the sexton program or into /usr/lib/sexton, or \
                 name it with --hook-library"
                    .into()
            }
            Self::NoHook { .. } => {
                "restart it with LD_PRELOAD=/usr/lib/sexton/libsexton_hook.so (it must export RocksDB's C \
                 API), or use the executor exec"
                    .into()
            }
            Self::Impostor { .. } => "see who holds the socket in the target's /tmp, and remove it".into(),
            Self::Version { .. } => {
                "restart the target, so that it gets this agent's hook; in a JVM the agent replaces it in mode act"
                    .into()
            }
            Self::OtherLibrary { .. } => "restart the target: it holds more than one RocksDB".into(),
            Self::Connection { .. } => {
                "it is tried again; SEXTON_HOOK_LOG=FILE in the target's environment shows the hook's side"
                    .into()
            }
            Self::Hook { kind, .. } => hook_remedy(*kind).into(),
            Self::StillRunning { .. } => {
                "see the target's LOG for what it waits for: a write stall, or a compaction of the same files".into()
            }
            Self::UnexpectedAnswer { .. } => "restart the target, so that it gets this agent's hook".into(),
            Self::Request { .. } => {
                "`sexton targets --pid PID` and GET /api/v1/targets say what is known of the target".into()
            }
            Self::Template { .. } => "correct the command in the policy".into(),
            Self::Spawn { .. } | Self::Command { .. } | Self::NotInForce { .. } => {
                "try the command by hand, as the agent's user".into()
            }
            Self::Threads { .. } => {
                "name threads as /proc/PID/task/*/comm has them, and run as the process' user, or with CAP_SYS_NICE"
                    .into()
            }
            Self::NotRead { error, .. } => error.remedy(),
            Self::Keeper(error) => error.remedy().into(),
            Self::Sql { trouble, .. } => trouble.remedy().into(),
            Self::Unsupported { .. } => "choose another executor in the policy".into(),
        }
    }
}

fn hook_remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Refused => {
            "the database or column family has been closed or was another one: wait for the next window"
        }
        ErrorKind::Busy => "wait until what runs has ended",
        ErrorKind::Taken => "stop the other agent, or give it this target's policy",
        ErrorKind::Failed => "see the target's LOG; the option or its value may be unknown to this RocksDB",
        ErrorKind::Unsupported => "this RocksDB does not export its C API: use the executor exec",
        ErrorKind::VersionMismatch => "restart the target, so that it gets this agent's hook",
        ErrorKind::NotFound => "name another process, or wait until it has what was asked for",
        ErrorKind::BadRequest | ErrorKind::Internal => "report it, with SEXTON_HOOK_LOG's file",
    }
}
