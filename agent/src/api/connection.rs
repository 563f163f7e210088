//! Accepts connections, within limits of number and time. A new connection takes the place of the oldest one
//! where there are too many: all answers are quick, so that who holds connections keeps nobody else out.

use super::control::may_ask;
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Connections at one time: Prometheus, a dashboard in some browsers, a few command lines.
pub const CONNECTIONS_MAX: usize = 64;
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

/// Where connections come from.
pub trait Accept {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// The next connection; `None` for one that may not be served.
    fn accept(&self) -> impl Future<Output = io::Result<Option<Self::Stream>>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<TcpStream>> {
        TcpListener::accept(self).await.map(|(stream, _)| Some(stream))
    }
}

/// Serves those who may ask for changes.
pub struct Control(pub UnixListener);

impl Accept for Control {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.0.accept().await?;
        let peer = stream.peer_cred()?;
        if may_ask(peer.uid(), peer.gid()) {
            return Ok(Some(stream));
        }
        tracing::warn!(user = peer.uid(), "a user who may not ask for changes has tried to");
        Ok(None)
    }
}

/// Serves `router` on each connection until `shutdown` is ready, then waits for the answers under way.
pub async fn accept_until(listener: impl Accept, router: Router, shutdown: impl Future<Output = ()>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    let (stop, stopped) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(Some(stream)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= CONNECTIONS_MAX
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let connection = serve_connection(stream, router.clone(), stopped.clone());
                open.push_back(tokio::spawn(connection).abort_handle());
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
