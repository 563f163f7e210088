//! Where a request that the listener passes on goes, and whether it may: what the agent does not take the
//! listener's word for is looked at here, or in the router that the request goes to.

use super::control;
use super::pair::answer::{Answer, Part, send, send_body};
use super::pair::request::Asked;
use super::pair::socket::Socket;
use super::pair::{Door, Malformed};
use super::problem::Problem;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use tokio::sync::mpsc;
use tower_service::Service;

/// What is served at each door; `None`: it is closed.
pub struct Gate {
    pub reading: Router,
    /// With the socket's path.
    pub control: Option<(Router, PathBuf)>,
    pub remote: Option<Router>,
}

impl Gate {
    /// Answers a request over the end of a pair that came with it.
    /// Errors: what the listener would not send if it was itself. That somebody has gone is none.
    pub async fn answer(&self, asked: Asked, descriptors: Vec<OwnedFd>) -> Result<(), Malformed> {
        let mut descriptors = descriptors.into_iter();
        let (end, connection) = (descriptors.next(), descriptors.next());
        let end = end.ok_or_else(|| Malformed("a request without its pair".to_owned()))?;
        let socket = Socket::new(end).map_err(Malformed::of)?;
        let router = self.router(&asked, connection)?;
        let (bytes, receiver) = mpsc::channel::<Bytes>(1);
        let mut request = asked.request(body_of(receiver))?;
        if let Some(peer) = asked.peer {
            request.extensions_mut().insert(peer);
        }
        let answering = async {
            let response = match router {
                Some(router) => dispatch(router, request).await,
                None => may_not_ask().into_response(),
            };
            // Where it cannot be sent, nobody is there any more.
            let _ = send_answer(&socket, response).await;
        };
        tokio::select! {
            () = answering => Ok(()),
            ended = receive_body(&socket, bytes) => ended,
        }
    }

    /// `None`: who asks may not.
    fn router(&self, asked: &Asked, connection: Option<OwnedFd>) -> Result<Option<Router>, Malformed> {
        match (asked.door, connection, &asked.peer) {
            (Door::Reading, None, None) => Ok(Some(self.reading.clone())),
            (Door::Control, Some(connection), None) => {
                let (router, path) = self.control.as_ref().ok_or_else(closed)?;
                let may_ask = control::is_of_who_may_ask(connection, path)?;
                Ok(may_ask.then(|| router.clone()))
            }
            (Door::Remote, None, Some(_)) => self.remote.clone().ok_or_else(closed).map(Some),
            (door, ..) => Err(Malformed(format!("a request at the wrong door {door:?}"))),
        }
    }
}

fn closed() -> Malformed {
    Malformed("a request where nobody listens".to_owned())
}

/// Takes a request's body in, until the other end is closed: then nobody waits for the answer.
async fn receive_body(socket: &Socket, bytes: mpsc::Sender<Bytes>) -> Result<(), Malformed> {
    let mut bytes = Some(bytes);
    loop {
        let message = match socket.receive().await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Malformed(error.to_string())),
        };
        match (Part::decode(message.bytes)?, &bytes) {
            // What the path does not read is left out.
            (Part::Body(part), Some(sender)) => drop(sender.send(part).await),
            (Part::End, Some(_)) => bytes = None,
            _ => return Err(Malformed("a part behind the end of a body".to_owned())),
        }
    }
}

/// The body of a request, which is no longer than its path allows: the router sees to that.
fn body_of(receiver: mpsc::Receiver<Bytes>) -> Body {
    Body::from_stream(stream::unfold(receiver, |mut receiver| async {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(bytes), receiver))
    }))
}

async fn dispatch(mut router: Router, request: Request) -> Response {
    match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

async fn send_answer(socket: &Socket, response: Response) -> io::Result<()> {
    let (parts, body) = response.into_parts();
    send(socket, &Part::Head(Answer::of(&parts))).await?;
    send_body(socket, body).await
}

fn may_not_ask() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "user_may_not_ask",
        "only root, the agent's user and its group may ask here",
        "ask as one of these; what is read is read on the loopback interface",
    )
}
