//! Accepts connections, within limits of number and time. A new connection takes the place of the oldest one
//! where there are too many: all answers are quick, so that who holds connections keeps nobody else out.

use super::control::may_ask;
use super::error::ApiError;
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Connections at one time: Prometheus, a dashboard in some browsers, a few command lines.
pub const CONNECTIONS_MAX: usize = 64;
/// Of them those of one address elsewhere: as many as two browsers open.
const CONNECTIONS_PER_PEER_MAX: usize = 16;
/// How long a connection may wait for the headers of its next request; also ends idle connections.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(30);
/// After this a connection is closed with the answer under way; a client makes a new one.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(600);
/// For the answers under way when a connection or the server ends.
const LAST_ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Request line and headers together; hyper wants 8 KiB at least.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Pause after a failed `accept`, which means that descriptors or memory have run out.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// A connection, and who has opened it, where it matters how many of these he has.
pub struct Accepted<S> {
    pub stream: S,
    pub peer: Option<IpAddr>,
}

/// Where connections come from.
pub trait Listener {
    type Stream: Send + 'static;
    /// The next connection; `None` for one that may not be served.
    fn accept(&self) -> impl Future<Output = io::Result<Option<Accepted<Self::Stream>>>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<Accepted<TcpStream>>> {
        let (stream, _) = TcpListener::accept(self).await?;
        Ok(Some(Accepted { stream, peer: None }))
    }
}

/// A bound listener as the runtime wants it. Must be called within it.
pub fn tcp(listener: std::net::TcpListener) -> Result<TcpListener, ApiError> {
    let unusable = |source| ApiError::Listener { source };
    listener.set_nonblocking(true).map_err(unusable)?;
    TcpListener::from_std(listener).map_err(unusable)
}

/// Serves those who may ask for changes.
pub struct Control(pub UnixListener);

impl Listener for Control {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<Option<Accepted<UnixStream>>> {
        let (stream, _) = self.0.accept().await?;
        let peer = stream.peer_cred()?;
        if may_ask(peer.uid(), peer.gid()) {
            return Ok(Some(Accepted { stream, peer: None }));
        }
        tracing::warn!(user = peer.uid(), "a user who may not ask for changes has tried to");
        Ok(None)
    }
}

/// Serves each connection until `shutdown` is ready, then waits for the answers under way. `establish` makes
/// of a connection what HTTP is spoken on, and what is served there.
pub async fn accept_until<L: Listener, S, F>(
    listener: L,
    establish: impl Fn(L::Stream) -> F,
    shutdown: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Option<(S, Router)>> + Send + 'static,
{
    let mut open = Open::default();
    let (stop, stopped) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(Some(Accepted { stream, peer })) => {
                open.make_room(peer);
                let (established, stopped) = (establish(stream), stopped.clone());
                let connection = async move {
                    if let Some((stream, router)) = established.await {
                        serve_connection(stream, router, stopped).await;
                    }
                };
                open.connections.push_back((peer, tokio::spawn(connection).abort_handle()));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the API");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    drop(stopped);
    // Wakes every connection; each lets go of its receiver when it ends.
    let _ = stop.send(());
    let _ = tokio::time::timeout(LAST_ANSWER_TIME_MAX, stop.closed()).await;
}

/// Connections, the oldest first, with those who have opened them.
#[derive(Default)]
struct Open {
    connections: VecDeque<(Option<IpAddr>, AbortHandle)>,
}

impl Open {
    /// Closes what is too much with one more of this peer.
    fn make_room(&mut self, peer: Option<IpAddr>) {
        self.connections.retain(|(_, connection)| !connection.is_finished());
        let is_of_peer = |of: &Option<IpAddr>| peer.is_some() && *of == peer;
        if self.connections.iter().filter(|(of, _)| is_of_peer(of)).count() >= CONNECTIONS_PER_PEER_MAX {
            let oldest = self.connections.iter().position(|(of, _)| is_of_peer(of));
            self.close(oldest.unwrap_or_default());
        } else if self.connections.len() >= CONNECTIONS_MAX {
            self.close(0);
        }
    }

    fn close(&mut self, number: usize) {
        if let Some((_, connection)) = self.connections.remove(number) {
            connection.abort();
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    mut stopped: watch::Receiver<()>,
) {
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_TIME_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        // An error is the client's: it has gone, or what it sent is not HTTP.
        _ = connection.as_mut() => return,
        _ = stopped.changed() => {}
        () = tokio::time::sleep(CONNECTION_TIME_MAX) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LAST_ANSWER_TIME_MAX, connection).await;
}
