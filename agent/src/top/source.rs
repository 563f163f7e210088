//! Where pictures come from: an agent that runs already, or an engine of our own.

use super::client::Client;
use super::picture::Picture;
use crate::engine::{Control, Engine, EngineOptions};
use crate::failure::Failure;
use crate::snapshot::{COMMANDS_QUEUED_MAX, Snapshot};
use sexton_probe::Loader;
use sexton_tuner::policy::{Mode, Policy};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use thiserror::Error;
use tokio::sync::{mpsc, watch};

/// Why there is nothing to show; [`TopError::remedy`] says what to do.
#[derive(Debug, Error)]
pub enum TopError {
    /// Not a URL of an agent.
    #[error("{url:?} is no URL of an agent")]
    Url {
        /// What was given.
        url: String,
    },
    /// Nothing answers there.
    #[error("no agent answers at {url}: {source}")]
    Unreachable {
        /// Where it was asked.
        url: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something answers that is no agent of this version.
    #[error("what answers at {url} is no agent that this version understands: {what}")]
    NoAgent {
        /// Where it was asked.
        url: String,
        /// What was wrong.
        what: String,
    },
    /// The agent answers with an error.
    #[error("the agent at {url} refuses: {message}")]
    Refused {
        /// Where it was asked.
        url: String,
        /// Its words.
        message: String,
    },
    /// The engine inside has ended.
    #[error("the engine inside has ended")]
    EngineEnded,
}

impl TopError {
    /// What an operator can do about it, in one sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            TopError::Url { .. } => "give it as http://HOST:PORT, for example http://127.0.0.1:9776",
            TopError::Unreachable { .. } => {
                "start an agent with `sexton run`, name another one with --url, or look without one: \
                 `sexton top --standalone`"
            }
            TopError::NoAgent { .. } => {
                "give the address of `sexton run --listen` with --url, and use the same version of both"
            }
            TopError::Refused { .. } => "see the agent's log",
            TopError::EngineEnded => {
                "run it with SEXTON_LOG=info and standard error in a file, and report it"
            }
        }
    }
}

impl From<TopError> for Failure {
    fn from(error: TopError) -> Failure {
        match error {
            TopError::Url { .. } => Failure::usage(&error, error.remedy()),
            _ => Failure::new(&error, error.remedy()),
        }
    }
}

/// Where pictures come from.
pub enum Source {
    /// The HTTP API of a running agent.
    Agent(Client),
    /// An engine of our own.
    Own(OwnEngine),
}

impl Source {
    /// An engine of our own, in mode observe, on all processes or on these. It runs on a thread of its own until the
    /// source is dropped.
    ///
    /// # Errors
    /// As `sexton run`: a kernel that refuses the programs, a process that is no target.
    pub fn standalone(pids: Vec<u32>) -> Result<Source, Failure> {
        OwnEngine::start(pids).map(Source::Own)
    }

    /// What is asked, for the title.
    pub fn name(&self) -> String {
        match self {
            Source::Agent(client) => client.url(),
            Source::Own(_) => "standalone".to_owned(),
        }
    }

    /// The state now.
    ///
    /// # Errors
    /// [`TopError`].
    pub fn picture(&self) -> Result<Picture, TopError> {
        match self {
            Source::Agent(client) => client.picture(),
            Source::Own(engine) => engine.picture(),
        }
    }
}

/// An engine that only observes.
pub struct OwnEngine {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl OwnEngine {
    fn start(pids: Vec<u32>) -> Result<OwnEngine, Failure> {
        let (publisher, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (started, start) = std::sync::mpsc::sync_channel(1);
        let stop_engine = Arc::clone(&stop);
        // The engine is made where it runs: what it holds of the kernel stays on one thread.
        let body = move || {
            let policy = Policy { mode: Mode::Observe, ..Policy::default() };
            let options = EngineOptions {
                policy,
                policy_path: None,
                pids,
                hook_library: None,
                mechanism: None,
                loader: Loader::default(),
                state_directory: None,
                audit_log: None,
            };
            let mut engine = match Engine::new(options) {
                Ok(engine) => engine,
                Err(failure) => return drop(started.send(Err(failure))),
            };
            // Nobody commands this engine; the channel is open as long as it runs.
            let (_sender, commands) = mpsc::channel(COMMANDS_QUEUED_MAX);
            if started.send(Ok(())).is_ok() {
                engine.run(&mut Control::new(publisher, commands, stop_engine));
            }
        };
        let failed = |error| Failure::new(error, "see the system's message");
        let thread = std::thread::Builder::new().name("sexton-engine".into()).spawn(body).map_err(failed)?;
        match start.recv() {
            Ok(Ok(())) => Ok(OwnEngine { snapshots, stop, thread: Some(thread) }),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(TopError::EngineEnded.into()),
        }
    }

    fn picture(&self) -> Result<Picture, TopError> {
        match self.snapshots.has_changed() {
            Ok(_) => Ok(Picture::from(&**self.snapshots.borrow())),
            Err(_) => Err(TopError::EngineEnded),
        }
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends by itself; what made it panic has been printed.
            let _ = thread.join();
        }
    }
}
