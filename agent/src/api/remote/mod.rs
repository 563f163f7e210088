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

pub use keyring::{Keyring, KeyringFiles, Keys};
pub use rates::network;

use super::guard::{self, Hosts};
use super::routes::{self, Access};
use super::shared::Shared;
use crate::snapshot::{Command, Snapshot};
use access_file::Caller;
use admission::{Admission, admit};
use axum::Router;
use axum::extract::{Extension, Request};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tower_service::Service;

/// How often it is looked whether certificate or access file have changed: they are replaced days ahead.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// What is served over TLS, and what keeps it up as long as it is waited for. Requests come with their
/// [`Peer`](super::pair::request::Peer).
pub fn served(
    keyring: Arc<Keyring>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: &mpsc::Sender<Command>,
) -> (Router, impl Future<Output = ()> + Send + 'static) {
    let (veiled, feeding) = veiled::follow(snapshots.clone());
    let router = router(&keyring, (snapshots, veiled), commands);
    let upkeep = async move {
        tokio::select! {
            () = renew(&keyring) => {}
            () = feeding => {}
        }
    };
    (router, upkeep)
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
