//! The process that listens: it accepts connections, speaks TLS and HTTP there, and asks the agent for each
//! request what to answer.
//!
//! It has no capability, no file, and no socket but those that the agent has handed over. It ends with the
//! agent, and the agent starts another one where it ends alone.

mod connection;
mod relay;
mod tls;

pub use connection::CONNECTIONS_MAX;

use super::pair::socket::{Message, Socket};
use super::pair::tls::TlsFiles;
use super::pair::{Door, ToAgent, ToListener, decode, encode};
use connection::{Accepted, Listener, accept_until};
use relay::{Origin, Relay};
use rustix::net::{SendFlags, send};
use sexton_sandbox::{Files, Limits, Sandbox, User, Work};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tls::{Remote, establish};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The hidden subcommand.
pub const CHILD_SUBCOMMAND: &str = "internal-listen";

/// Signals that a terminal or a service manager sends to all processes of the agent: it is the agent that
/// tells when to end.
const NOT_FOR_IT: [i32; 3] =
    [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];

/// What it may use. Each of three listeners has 64 connections at most, and each connection two descriptors
/// of its own and two of the request under way. Its memory is the program's own code and some KiB a
/// connection.
const LIMITS: Limits = Limits {
    processor_time_seconds: None,
    address_space_bytes: 1 << 30,
    open_files: 1024,
    has_children: false,
};

/// Entry point of the hidden subcommand; standard input is its end of the pair with the agent. Must run
/// before the process has started a thread.
pub fn main() -> ExitCode {
    let Ok(agent) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    match confine().and_then(|()| run(&agent)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let said = encode(&ToAgent::Failed { reason });
            let _ = said.map(|said| send(&agent, &said, SendFlags::DONTWAIT | SendFlags::NOSIGNAL));
            ExitCode::FAILURE
        }
    }
}

/// Gives up all that serving does not need.
fn confine() -> Result<(), String> {
    sexton_sandbox::end_with_parent().map_err(|error| error.to_string())?;
    for signal in NOT_FOR_IT {
        let ignored = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
        ignored.map_err(|error| error.to_string())?;
    }
    let sandbox = Sandbox {
        limits: Some(LIMITS),
        user: User::NobodyIfPossible,
        files: Some(Files::default()),
        work: Some(Work::Serves),
        // The key of the certificate.
        has_secrets: true,
        ..Sandbox::default()
    };
    sandbox.enter().map_err(|error| error.to_string())
}

fn run(agent: &OwnedFd) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let agent = agent.try_clone().map_err(|error| error.to_string())?;
    runtime.block_on(listen(agent)).map_err(|error| error.to_string())
}

/// Listens by the agent's word, until it says that it is enough, or has ended.
pub async fn listen(agent: OwnedFd) -> io::Result<()> {
    let relay = Relay(Arc::new(Socket::new(agent)?));
    let (acceptor, acceptors) = watch::channel(None);
    let (stop, stopped) = watch::channel(());
    let mut accepting = JoinSet::new();
    loop {
        let Some(Message { bytes, descriptors }) = relay.0.receive().await? else { return Ok(()) };
        let descriptor = descriptors.into_iter().next();
        match (decode(&bytes).map_err(io::Error::other)?, descriptor) {
            (ToListener::Listen(door), Some(socket)) => {
                let (relay, mut stopped) = (relay.clone(), stopped.clone());
                let shutdown = async move {
                    let _ = stopped.changed().await;
                };
                accept_at(&mut accepting, door, socket, relay, acceptors.clone(), shutdown)?;
            }
            (ToListener::Tls, Some(file)) => {
                let config = TlsFiles::taken_over(file)?.config().map_err(io::Error::other)?;
                acceptor.send_replace(Some(TlsAcceptor::from(Arc::new(config))));
            }
            (ToListener::Stop, _) => break,
            (_, None) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    let _ = stop.send(());
    let ending = async { while accepting.join_next().await.is_some() {} };
    tokio::select! {
        () = ending => {}
        // The agent has no patience any more.
        _ = relay.0.receive() => {}
    }
    Ok(())
}

fn accept_at(
    accepting: &mut JoinSet<()>,
    door: Door,
    socket: OwnedFd,
    relay: Relay,
    acceptors: watch::Receiver<Option<TlsAcceptor>>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    rustix::fs::fcntl_setfl(&socket, rustix::fs::OFlags::NONBLOCK)?;
    match door {
        Door::Reading => {
            let listener = TcpListener::from_std(socket.into())?;
            let establish = move |stream| {
                std::future::ready(Some((stream, Origin { door, peer: None, connection: None })))
            };
            accepting.spawn(accept_until(listener, relay, establish, shutdown));
        }
        Door::Control => {
            let listener = UnixListener::from_std(socket.into())?;
            let establish = |stream: UnixStream| std::future::ready(of_control(stream));
            accepting.spawn(accept_until(listener, relay, establish, shutdown));
        }
        Door::Remote => {
            let listener = Remote(TcpListener::from_std(socket.into())?);
            let establish = move |accepted| establish(accepted, acceptors.borrow().clone());
            accepting.spawn(accept_until(listener, relay, establish, shutdown));
        }
    }
    Ok(())
}

/// The connection goes to the agent with each request.
fn of_control(stream: UnixStream) -> Option<(UnixStream, Origin)> {
    let connection = stream.as_fd().try_clone_to_owned().ok()?;
    Some((stream, Origin { door: Door::Control, peer: None, connection: Some(connection) }))
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Accepted<TcpStream>> {
        let (stream, _) = TcpListener::accept(self).await?;
        Ok(Accepted { stream, peer: None })
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<Accepted<UnixStream>> {
        let (stream, _) = UnixListener::accept(self).await?;
        Ok(Accepted { stream, peer: None })
    }
}
