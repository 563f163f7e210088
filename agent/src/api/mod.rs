//! The HTTP API: what Sexton knows as JSON, its metrics for Prometheus, and two requests to the engine.
//!
//! It reads published [`Snapshot`]s and sends [`Command`]s; it never reaches into the engine nor into a
//! target. Reading is served on loopback addresses, without authentication: nobody but the users of this
//! machine may talk to it, and no web page that one of them has open (see [`guard`]). What changes something
//! is asked on a unix socket, whose other end is known (see [`control`]), or over TLS by whom the access file
//! lets (see [`remote`]).
//!
//! Invariant: nothing outside this module knows HTTP.

mod answers;
mod connection;
mod control;
mod dashboard;
mod drawings;
mod entity_tag;
mod error;
mod event_stream;
mod guard;
mod history;
pub mod metrics;
mod openapi;
mod policy_check;
mod problem;
mod ranges;
mod reading;
mod remote;
mod routes;
mod shared;

pub use control::bind_control;
pub use error::ApiError;
pub use remote::{Keyring, KeyringFiles, serve_remote};

use crate::snapshot::{Command, Snapshot};
use connection::Control;
use routes::Access;
use shared::Shared;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Listens on `address`, which must be a loopback address; port 0 lets the system choose.
/// Errors: [`ApiError`], when the address is not loopback or cannot be listened on.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ApiError> {
    refuse_unless_loopback(address)?;
    bind_any(address)
}

/// Listens on any address: for [`serve_remote`] only.
/// Errors: [`ApiError`], when it cannot be listened on.
pub fn bind_any(address: SocketAddr) -> Result<TcpListener, ApiError> {
    TcpListener::bind(address).map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ApiError::PortInUse { address },
        _ => ApiError::Listen { address, source },
    })
}

fn refuse_unless_loopback(address: SocketAddr) -> Result<(), ApiError> {
    match address.ip().to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(ApiError::NotLoopback { address }),
    }
}

/// Serves the whole API, with what changes something, to those who may ask for it. As [`serve`].
pub async fn serve_control(
    listener: UnixListener,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: mpsc::Sender<Command>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ApiError> {
    let unusable = |source| ApiError::Listener { source };
    let listener = tokio::net::UnixListener::from_std(listener).map_err(unusable)?;
    let router = routes::router(Shared::new(snapshots, commands), Access::Everything);
    let establish = move |stream| std::future::ready(Some((stream, router.clone())));
    connection::accept_until(Control(listener), establish, shutdown).await;
    Ok(())
}

/// Serves what can be read of the API on `listener` until `shutdown` is ready, then lets requests under way
/// finish. Must be called within a Tokio runtime with time and I/O enabled.
/// Errors: [`ApiError::NotLoopback`] and [`ApiError::Listener`], before anything is served.
pub async fn serve(
    listener: TcpListener,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: mpsc::Sender<Command>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ApiError> {
    let unusable = |source| ApiError::Listener { source };
    refuse_unless_loopback(listener.local_addr().map_err(unusable)?)?;
    let listener = connection::tcp(listener)?;
    let router = routes::router(Shared::new(snapshots, commands), Access::Reading);
    let establish = move |stream| std::future::ready(Some((stream, router.clone())));
    connection::accept_until(listener, establish, shutdown).await;
    Ok(())
}

#[cfg(test)]
mod tests;
