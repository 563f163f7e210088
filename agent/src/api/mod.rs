//! The HTTP API: what Sexton knows as JSON, its metrics for Prometheus, and two requests to the engine.
//!
//! It reads published [`Snapshot`]s and sends [`Command`]s; it never reaches into the engine nor into a
//! target. Reading is served on loopback addresses, without authentication: nobody but the users of this
//! machine may talk to it, and no web page that one of them has open (see [`guard`]). What changes something
//! is asked on a unix socket, whose other end is known (see [`control`]), or over TLS by whom the access file
//! lets (see [`remote`]).
//!
//! Connections are accepted, and TLS and HTTP spoken, by a process without rights (see [`listener`]), which
//! asks for each request what to answer. Here nothing listens, and nothing foreign is parsed but what the
//! listener sends (see [`pair`]).
//!
//! Invariant: nothing outside this module knows HTTP.

mod answers;
mod attend;
mod child;
mod control;
mod dashboard;
mod drawings;
mod entity_tag;
mod error;
mod event_stream;
mod gate;
mod guard;
mod history;
pub mod listener;
pub mod metrics;
mod openapi;
mod pair;
mod place;
mod policy_check;
mod problem;
mod ranges;
mod reading;
mod remote;
mod routes;
mod shared;

pub use control::bind_control;
pub use error::ApiError;
pub use place::{Place, bind};
pub use remote::{Keyring, KeyringFiles};

use crate::snapshot::{Command, Snapshot};
use attend::Attendant;
use child::Running;
use gate::Gate;
use routes::Access;
use shared::Shared;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Where the API is served.
pub struct Serving {
    /// For reading, to whoever is on this node.
    pub reading: Place,
    /// The unix socket for changes: its file, and the socket where it could be had; `None`: there is none.
    pub control: Option<(PathBuf, Option<UnixListener>)>,
    /// Over TLS; `None`: nobody elsewhere may ask.
    pub remote: Option<(SocketAddr, Arc<Keyring>)>,
}

/// Serves the API until `shutdown` is ready, then lets requests under way finish. The listener is a process
/// of its own, which ends with the calling thread; what cannot be listened at yet is tried again. Must be
/// called within a Tokio runtime with time and I/O enabled.
pub async fn serve(
    serving: Serving,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: mpsc::Sender<Command>,
    shutdown: impl Future<Output = ()>,
) {
    serve_by(child::start, serving, snapshots, commands, shutdown).await;
}

/// As [`serve`], with another way to a listener.
async fn serve_by(
    start: impl Fn() -> io::Result<Running>,
    serving: Serving,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: mpsc::Sender<Command>,
    shutdown: impl Future<Output = ()>,
) {
    let Serving { reading, control, remote } = serving;
    let local = |access| routes::router(Shared::new(snapshots.clone(), commands.clone()), access);
    let mut gate = Gate { reading: local(Access::Reading), control: None, remote: None };
    let mut places = vec![reading];
    if let Some((path, bound)) = control {
        gate.control = Some((local(Access::Everything), path.clone()));
        places.push(Place::control(path, bound));
    }
    let mut upkeep = None;
    let keyring = remote.map(|(address, keyring)| {
        let (router, future) = remote::served(Arc::clone(&keyring), snapshots.clone(), &commands);
        gate.remote = Some(router);
        places.push(Place::remote(address));
        upkeep = Some(future);
        keyring
    });
    let attendant = Attendant { places, gate: Arc::new(gate), keyring, start };
    let upkeep = async {
        match upkeep {
            Some(upkeep) => upkeep.await,
            None => std::future::pending().await,
        }
    };
    let shutdown = pin!(shutdown);
    tokio::select! {
        () = attendant.attend(shutdown) => {}
        () = upkeep => {}
    }
}

#[cfg(test)]
mod tests;
