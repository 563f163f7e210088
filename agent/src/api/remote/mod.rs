//! The API for whoever is elsewhere: over TLS, to callers that the access file names, each with scopes.
//!
//! Reading takes the scope `read`, asking for changes `act`, and whole keys are shown only where the policy
//! shows them and the caller has the scope `keys`: all others get the [`veiled`] snapshots. The paths are
//! those of the other listeners.

mod access_file;
mod admission;
mod keyring;
mod rates;
mod replays;
mod veiled;

pub use keyring::{Keyring, KeyringFiles};

use super::connection::{self, Accepted, Listener};
use super::error::ApiError;
use super::guard::{self, Hosts};
use super::routes::{self, Access};
use super::shared::Shared;
use crate::snapshot::{Command, Snapshot};
use access_file::Caller;
use admission::{Admission, Peer, admit};
use axum::Router;
use axum::extract::{Extension, Request};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower_service::Service;

/// For the handshake of a connection: two ways there and back, over a slow line.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether certificate or access file have changed: they are replaced days ahead.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// Serves the whole API over TLS, until `shutdown` is ready.
/// Errors: [`ApiError::Listener`], before anything is served.
pub async fn serve_remote(
    listener: std::net::TcpListener,
    keyring: Arc<Keyring>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: mpsc::Sender<Command>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ApiError> {
    let listener = connection::tcp(listener)?;
    let (veiled, feeding) = veiled::follow(snapshots.clone());
    let router = router(&keyring, (snapshots, veiled), &commands);
    let accepted = {
        let keyring = Arc::clone(&keyring);
        connection::accept_until(
            Remote(listener),
            move |(stream, address)| {
                let (router, acceptor) =
                    (router.clone(), TlsAcceptor::from(Arc::clone(&keyring.keys().config)));
                establish(stream, address, acceptor, router)
            },
            shutdown,
        )
    };
    tokio::select! {
        () = accepted => {}
        () = renew(&keyring) => {}
        () = feeding => {}
    }
    Ok(())
}

/// Accepts whoever comes; who it is comes out later.
struct Remote(tokio::net::TcpListener);

impl Listener for Remote {
    type Stream = (TcpStream, IpAddr);

    async fn accept(&self) -> io::Result<Option<Accepted<Self::Stream>>> {
        let (stream, address) = self.0.accept().await?;
        let address = SocketAddr::ip(&address);
        Ok(Some(Accepted { stream: (stream, address), peer: Some(rates::network(address)) }))
    }
}

/// The handshake; `None`: the other end does not speak TLS, or takes too long.
async fn establish(
    stream: TcpStream,
    address: IpAddr,
    acceptor: TlsAcceptor,
    router: Router,
) -> Option<(TlsStream<TcpStream>, Router)> {
    let stream = tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream)).await.ok()?.ok()?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let names = certificate.map(keyring::names_of).unwrap_or_default();
    Some((stream, router.layer(Extension(Peer { address, names }))))
}

async fn renew(keyring: &Keyring) {
    loop {
        tokio::time::sleep(RENEWAL_INTERVAL).await;
        keyring.renew(false);
    }
}

/// All paths behind who asks. `snapshots`: with whole keys, where the policy shows them, and without.
fn router(
    keyring: &Arc<Keyring>,
    snapshots: (watch::Receiver<Arc<Snapshot>>, watch::Receiver<Arc<Snapshot>>),
    commands: &mpsc::Sender<Command>,
) -> Router {
    let paths = |snapshots| routes::paths(Shared::new(snapshots, commands.clone()), Access::Everything);
    let (whole, veiled) = (paths(snapshots.0), paths(snapshots.1));
    let admission = Arc::new(Admission::new(Arc::clone(keyring)));
    Router::new()
        .fallback(move |Extension(caller): Extension<Caller>, request: Request| {
            dispatch(if caller.scopes.keys { whole.clone() } else { veiled.clone() }, request)
        })
        .layer(from_fn_with_state(admission, admit))
        .layer(from_fn(routes::limit_time))
        .layer(from_fn_with_state(Hosts::OfCertificate(Arc::clone(keyring)), guard::keep_browsers_out))
}

async fn dispatch(mut router: Router, request: Request) -> Response {
    match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests;
