//! A listener that somebody else has taken over: what it says in place of requests ends it, and another one
//! takes its place.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::api::pair::Door;
use crate::api::pair::answer::Part;
use crate::api::pair::request::{Asked, Peer};
use crate::api::pair::socket::{Socket, pair};
use crate::api::routes::{self, Access};
use crate::api::shared::Shared;
use crate::snapshot::Snapshot;
use axum::body::Bytes;
use axum::http::Request;
use tokio::sync::{mpsc, oneshot};

/// Longer than a pause.
const LIMIT: Duration = Duration::from_secs(20);

fn router(access: Access) -> axum::Router {
    let snapshots = watch::Sender::new(Arc::new(Snapshot::default()));
    let shared = Shared::new(snapshots.subscribe(), mpsc::channel(1).0);
    // The engine goes on.
    std::mem::forget(snapshots);
    routes::router(shared, access)
}

/// A gate without TLS.
fn gate() -> Arc<Gate> {
    let control = Some((router(Access::Everything), "/nowhere/control.sock".into()));
    Arc::new(Gate { reading: router(Access::Reading), control, remote: None })
}

/// Attends to listeners whose other ends come out here.
fn attend(gate: Arc<Gate>) -> (mpsc::UnboundedReceiver<OwnedFd>, oneshot::Sender<()>) {
    let (sender, ends) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let start = move || {
        let (ours, theirs) = pair()?;
        sender.send(theirs).map_err(io::Error::other)?;
        Running::new(ours, None)
    };
    let attendant = Attendant { places: Vec::new(), gate, keyring: None, start };
    tokio::spawn(async move {
        let shutdown = std::pin::pin!(async {
            let _ = stopped.await;
        });
        attendant.attend(shutdown).await;
    });
    (ends, stop)
}

async fn next(ends: &mut mpsc::UnboundedReceiver<OwnedFd>) -> Socket {
    Socket::new(timeout(LIMIT, ends.recv()).await.unwrap().unwrap()).unwrap()
}

/// A path whose answer has no end.
const ENDLESS: &str = "/api/v1/events/stream";

fn asked(door: Door, peer: Option<Peer>) -> Vec<u8> {
    asked_for("/api/v1/build", door, peer)
}

fn asked_for(path: &str, door: Door, peer: Option<Peer>) -> Vec<u8> {
    let request = Request::builder().uri(path).header("host", "localhost").body(()).unwrap();
    encode(&ToAgent::Request(Asked::of(&request.into_parts().0, door, peer))).unwrap()
}

/// What comes back over the pair of a request.
async fn answer(agent: &Socket, message: &[u8], parts: &[Part]) -> Option<u16> {
    let (ours, theirs) = pair().unwrap();
    agent.send(message, &[theirs.as_fd()]).await.unwrap();
    drop(theirs);
    let socket = Socket::new(ours).unwrap();
    for part in parts {
        let _ = socket.send(&part.encode().unwrap(), &[]).await;
    }
    let received = timeout(LIMIT, socket.receive()).await.unwrap().ok()??;
    match Part::decode(received.bytes).unwrap() {
        Part::Head(answer) => Some(answer.response(axum::body::Body::empty()).unwrap().status().as_u16()),
        _ => None,
    }
}

#[tokio::test]
async fn what_no_listener_says_ends_it_and_another_one_is_asked() {
    let peer = Peer { address: [127, 0, 0, 1].into(), names: Vec::new() };
    let files = |count: usize| -> Vec<OwnedFd> {
        (0..count).map(|_| std::fs::File::open("/").unwrap().into()).collect()
    };
    let own_pair = || vec![pair().unwrap().0];
    let with_connection = || {
        let connection = std::os::unix::net::UnixStream::pair().unwrap().0;
        vec![pair().unwrap().0, connection.into()]
    };
    let wrong: [(Vec<u8>, Vec<OwnedFd>); 9] = [
        (b"{}".to_vec(), Vec::new()),
        (vec![0xff; 100], files(2)),
        (encode(&ToAgent::Failed { reason: "unconfined".to_owned() }).unwrap(), Vec::new()),
        (asked(Door::Reading, None), Vec::new()),
        (asked(Door::Reading, None), files(1)),
        (asked(Door::Reading, Some(peer.clone())), own_pair()),
        (asked(Door::Remote, Some(peer)), own_pair()),
        (asked(Door::Control, None), own_pair()),
        (asked(Door::Control, None), with_connection()),
    ];
    for (message, descriptors) in wrong {
        let (mut ends, _stop) = attend(gate());
        let agent = next(&mut ends).await;
        let passed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        agent.send(&message, &passed).await.unwrap();
        assert!(timeout(LIMIT, agent.receive()).await.unwrap().unwrap().is_none(), "it goes on");
        let another = next(&mut ends).await;
        assert_eq!(answer(&another, &asked(Door::Reading, None), &[Part::End]).await, Some(200));
    }
    let (mut ends, _stop) = attend(gate());
    let agent = next(&mut ends).await;
    let parts = [Part::End, Part::Body(Bytes::from_static(b"more"))];
    answer(&agent, &asked_for(ENDLESS, Door::Reading, None), &parts).await;
    assert!(timeout(LIMIT, agent.receive()).await.unwrap().unwrap().is_none(), "it goes on");
}

/// Method: the route that never ends is asked as often as there is room, and nobody reads.
#[tokio::test]
async fn no_more_requests_are_under_way_than_there_may_be() {
    let (mut ends, _stop) = attend(gate());
    let agent = next(&mut ends).await;
    let message = asked_for(ENDLESS, Door::Reading, None);
    let mut held = Vec::new();
    for _ in 0..REQUESTS_MAX {
        let (ours, theirs) = pair().unwrap();
        agent.send(&message, &[theirs.as_fd()]).await.unwrap();
        held.push(Socket::new(ours).unwrap());
    }
    let last = asked(Door::Reading, None);
    let waiting = answer(&agent, &last, &[Part::End]);
    let mut waiting = std::pin::pin!(waiting);
    assert!(timeout(Duration::from_millis(500), waiting.as_mut()).await.is_err(), "one more is answered");
    // Whoever goes away is waited for no more.
    held.pop();
    assert_eq!(waiting.await, Some(200));
}

#[tokio::test]
async fn who_stops_waits_for_the_listener_and_not_for_ever() {
    let (mut ends, stop) = attend(gate());
    let agent = next(&mut ends).await;
    stop.send(()).unwrap();
    let message = timeout(LIMIT, agent.receive()).await.unwrap().unwrap().unwrap();
    assert_eq!(decode::<ToListener>(&message.bytes).unwrap(), ToListener::Stop);
    assert_eq!(answer(&agent, &asked(Door::Reading, None), &[Part::End]).await, Some(200));
    drop(agent);
    assert!(timeout(LIMIT, ends.recv()).await.unwrap().is_none(), "another one is started");
}
