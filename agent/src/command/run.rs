//! `sexton run`: the loop and the HTTP API, until a signal.

use super::remote::RemoteArguments;
use crate::api::{self, ApiError, Keyring, Place, Serving};
use crate::engine::{Control, Engine, EngineOptions};
use crate::failure::Failure;
use crate::inbox::Post;
use crate::policy_file;
use crate::service;
use crate::snapshot::{COMMANDS_QUEUED_MAX, Command, Snapshot};
use clap::Args;
use sexton_journal::DIRECTORY_DEFAULT;
use sexton_probe::{Loader, Mechanism};
use sexton_tuner::policy::Policy;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

/// Arguments of `sexton run`.
#[derive(Args, Debug)]
pub struct RunArguments {
    /// Policy file, or a directory whose `*.yaml` are one policy; without it every RocksDB on the node is
    /// watched, in mode advise.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Watch only this process; can be given several times. The policy must match it too.
    #[arg(long)]
    pid: Vec<u32>,
    /// Where to serve the HTTP API to whoever is on this node, for reading only; loopback addresses only.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9776")]
    listen: SocketAddr,
    #[command(flatten)]
    remote: RemoteArguments,
    /// The unix socket for requests that change something (root, the agent's user and its group may ask);
    /// `none`: no such requests.
    #[arg(long, value_name = "FILE|none", default_value = "/run/sexton/control.sock")]
    control: PathBuf,
    /// The hook's library; by default beside the agent's executable, then in /usr/lib/sexton.
    #[arg(long, value_name = "FILE")]
    hook_library: Option<PathBuf>,
    /// How to attach probes; by default the cheapest way that the kernel has.
    #[arg(long)]
    mechanism: Option<Mechanism>,
    /// The library that loads the BPF programs; libbpf knows more mechanisms and walks fewer threads.
    #[arg(long, default_value = "libbpf")]
    loader: Loader,
    /// Where history, cooldowns and budget are kept over restarts; `none`: nowhere.
    #[arg(long, value_name = "DIRECTORY|none", default_value = DIRECTORY_DEFAULT)]
    state_directory: PathBuf,
    /// The file that events are appended to as JSON lines; by default audit.jsonl in the state directory.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
}

/// `--state-directory` and `--control` that ask for none.
const NO_STATE: &str = "none";

/// Runs until SIGINT or SIGTERM; SIGHUP has the policy read again.
/// Errors: when the policy is none, the address is not loopback, a --pid cannot be a target, the state cannot
/// be used, or the kernel refuses the programs. Once it runs, it only degrades and says so.
pub fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let handed_over = service::handed_over_listener();
    let policy = arguments.policy.as_deref().map(policy_file::load).transpose()?;
    let reading = match handed_over {
        Some(listener) => Place::handed_over(listener)?,
        None => reading_at(arguments.listen)?,
    };
    let remote = arguments.remote.keyring()?;
    let mut engine = Engine::new(EngineOptions {
        policy: policy.unwrap_or_else(Policy::default),
        policy_path: arguments.policy.clone(),
        pids: arguments.pid.clone(),
        hook_library: arguments.hook_library.clone(),
        mechanism: arguments.mechanism,
        loader: arguments.loader,
        state_directory: Some(arguments.state_directory.clone()).filter(|path| *path != Path::new(NO_STATE)),
        audit_log: arguments.audit_log.clone(),
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    let (publisher, snapshots) = watch::channel(Arc::new(Snapshot::default()));
    let (sender, commands) = mpsc::channel(COMMANDS_QUEUED_MAX);
    let control = Some(arguments.control.clone()).filter(|path| *path != Path::new(NO_STATE));
    // Whoever was killed just now may have it for a moment yet: it is tried again, as the port is.
    let control = control.map(|path| {
        let bound = api::bind_control(&path).ok();
        (path, bound)
    });
    let serving = Serving { reading, control, remote };
    let server = serve(serving, snapshots, Asked { sender, stop: Arc::clone(&stop), post: engine.post() })?;
    engine.run(&mut Control::new(publisher, commands, stop));
    drop(engine);
    // The server ends with the signal that stopped the engine.
    let _ = server.join();
    Ok(())
}

/// Where what can be read is served.
/// Errors: [`ApiError::NotLoopback`].
fn reading_at(address: SocketAddr) -> Result<Place, ApiError> {
    match api::bind(address) {
        Ok(listener) => Ok(Place::reading(address, Some(listener))),
        Err(error @ ApiError::NotLoopback { .. }) => Err(error),
        // Whoever has taken it must not keep the agent from watching.
        Err(error) => {
            warn!(%error, help = error.remedy(), "there is no API until that has changed");
            Ok(Place::reading(address, None))
        }
    }
}

/// What is asked of the loop, which is woken by it.
struct Asked {
    sender: mpsc::Sender<Command>,
    stop: Arc<AtomicBool>,
    post: Post,
}

/// Takes commands to the loop until nobody sends any more. With the policy the keyring is read again.
async fn forward(
    sender: mpsc::Sender<Command>,
    post: Post,
    mut commands: mpsc::Receiver<Command>,
    keyring: Option<Arc<Keyring>>,
) {
    while let Some(command) = commands.recv().await {
        if command == Command::ReloadPolicy
            && let Some(keyring) = &keyring
        {
            keyring.renew(true);
        }
        if sender.send(command).await.is_ok() {
            post.ring();
        }
    }
}

/// The half that answers: it sees published snapshots and a channel for commands, and nothing else. Its
/// thread lives as long as the agent does, and the listener as long as the thread.
fn serve(
    serving: Serving,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    asked: Asked,
) -> Result<JoinHandle<()>, Failure> {
    let Asked { sender, stop, post } = asked;
    let (commands, received) = mpsc::channel(COMMANDS_QUEUED_MAX);
    let failure =
        |error| Failure::new(format!("cannot start the HTTP server: {error}"), "see the system's message");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    let (mut interrupt, mut terminate, mut hangup) = runtime
        .block_on(async {
            let kinds = (SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup());
            Ok((signal(kinds.0)?, signal(kinds.1)?, signal(kinds.2)?))
        })
        .map_err(failure)?;
    let keyring = serving.remote.as_ref().map(|(_, keyring)| Arc::clone(keyring));
    runtime.spawn(forward(sender, post.clone(), received, keyring));
    let reload = commands.clone();
    runtime.spawn(async move {
        while hangup.recv().await.is_some() {
            // One that waits already will read what there is then.
            let _ = reload.try_send(Command::ReloadPolicy);
        }
    });
    let body = move || {
        let shutdown = async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            info!("stopping");
            stop.store(true, Ordering::Relaxed);
            post.ring();
        };
        runtime.block_on(api::serve(serving, snapshots, commands, shutdown));
    };
    std::thread::Builder::new().name("sexton-api".into()).spawn(body).map_err(failure)
}
