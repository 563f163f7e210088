//! Accepts connections, within limits of number and time. A new connection takes the place of the oldest one
//! where there are too many: all answers are quick, so that who holds connections keeps nobody else out.

use super::relay::{Origin, Relay};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
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
    fn accept(&self) -> impl Future<Output = io::Result<Accepted<Self::Stream>>> + Send;
}

/// Serves each connection until `shutdown` is ready, then waits for the answers under way. `establish` makes
/// of a connection what HTTP is spoken on, and says where it came in.
pub async fn accept_until<L: Listener, S, F>(
    listener: L,
    relay: Relay,
    establish: impl Fn(L::Stream) -> F,
    shutdown: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Option<(S, Origin)>> + Send + 'static,
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
            Ok(Accepted { stream, peer }) => {
                open.make_room(peer);
                let (established, relay, stopped) = (establish(stream), relay.clone(), stopped.clone());
                let connection = async move {
                    if let Some((stream, origin)) = established.await {
                        serve_connection(stream, relay, origin, stopped).await;
                    }
                };
                open.connections.push_back((peer, tokio::spawn(connection).abort_handle()));
            }
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
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
    relay: Relay,
    origin: Origin,
    mut stopped: watch::Receiver<()>,
) {
    let service = service_fn(|request| relay.answer(&origin, request));
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
