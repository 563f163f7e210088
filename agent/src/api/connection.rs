//! Accepts connections, within limits of number and time.

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

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

/// Serves `router` on each connection until `shutdown` is ready, then waits for the answers under way.
pub async fn accept_until(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (stop, stopped) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        // A slot first: with all taken, further connections wait in the kernel's queue.
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = next => accepted,
        };
        match accepted {
            (Ok(slot), Ok((stream, _))) => {
                let connection = serve_connection(stream, router.clone(), stopped.clone());
                tokio::spawn(async move {
                    connection.await;
                    drop(slot);
                });
            }
            (Ok(_), Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection to the API");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
            // The semaphore is never closed.
            (Err(_), _) => break,
        }
    }
    drop(listener);
    drop(stopped);
    // Wakes every connection; each lets go of its receiver when it ends.
    let _ = stop.send(());
    let _ = tokio::time::timeout(LAST_ANSWER_TIME_MAX, stop.closed()).await;
}

async fn serve_connection(stream: TcpStream, router: Router, mut stopped: watch::Receiver<()>) {
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
