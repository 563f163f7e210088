//! A request, to the agent and back: nothing is answered here but what the agent cannot be asked.

use crate::api::pair::answer::{Part, send_body};
use crate::api::pair::request::{Asked, Peer};
use crate::api::pair::socket::{MESSAGE_BYTES_MAX, Socket, pair};
use crate::api::pair::{Door, Malformed, ToAgent, encode};
use crate::api::problem::Problem;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;

/// Where a connection came in, and what the agent has to know of it.
pub struct Origin {
    pub door: Door,
    pub peer: Option<Peer>,
    /// The connection itself, of which the agent asks the kernel whose it is.
    pub connection: Option<OwnedFd>,
}

/// The way to the agent.
#[derive(Clone)]
pub struct Relay(pub Arc<Socket>);

impl Relay {
    /// The agent's answer, whatever comes of it.
    pub async fn answer(
        &self,
        origin: &Origin,
        request: hyper::Request<Incoming>,
    ) -> Result<Response, Infallible> {
        let (parts, body) = request.into_parts();
        let message = match message(&Asked::of(&parts, origin.door, origin.peer.clone())) {
            Ok(message) => message,
            Err(malformed) => return Ok(not_understood(&malformed).into_response()),
        };
        let answer = self.ask(origin, &message, Body::new(body)).await;
        Ok(answer.unwrap_or_else(|_| not_answered().into_response()))
    }

    async fn ask(&self, origin: &Origin, message: &[u8], body: Body) -> io::Result<Response> {
        let (ours, theirs) = pair()?;
        let connection = origin.connection.as_ref().map(AsFd::as_fd);
        let descriptors: Vec<_> = [Some(theirs.as_fd()), connection].into_iter().flatten().collect();
        self.0.send(message, &descriptors).await?;
        drop(theirs);
        let socket = Socket::new(ours)?;
        let part = {
            // An answer may come before all of the body has been sent.
            let mut sending = pin!(send_request(&socket, body));
            tokio::select! {
                part = receive(&socket) => part?,
                () = sending.as_mut() => receive(&socket).await?,
            }
        };
        match part {
            Part::Head(answer) => answer.response(body_of(socket)).map_err(io::Error::other),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// What is said of a request. What the agent would take for malformed is not said at all.
fn message(asked: &Asked) -> Result<Vec<u8>, Malformed> {
    asked.request(Body::empty())?;
    let message = encode(&ToAgent::Request(asked.clone()))?;
    match message.len() <= MESSAGE_BYTES_MAX {
        true => Ok(message),
        false => Err(Malformed(format!("{} bytes of headers", message.len()))),
    }
}

/// Sends the request's body. Where it breaks off, the agent waits for more until the answer's time is over or
/// the connection has ended; where the agent has heard enough, it says so by its answer.
async fn send_request(socket: &Socket, body: Body) {
    let _ = send_body(socket, body).await;
}

async fn receive(socket: &Socket) -> io::Result<Part> {
    let message = socket.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Part::decode(message.bytes).map_err(io::Error::other)
}

/// The answer's body, as it comes. One that breaks off ends the connection.
fn body_of(socket: Socket) -> Body {
    Body::from_stream(stream::try_unfold(socket, |socket| async move {
        match receive(&socket).await? {
            Part::Body(bytes) => Ok(Some((bytes, socket))),
            Part::End => Ok(None::<(Bytes, Socket)>),
            Part::Head(_) => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }))
}

fn not_understood(malformed: &Malformed) -> Problem {
    let help = "send a request as RFC 9110 has it, with short headers";
    Problem::new(StatusCode::BAD_REQUEST, "bad_request", malformed.to_string(), help)
}

fn not_answered() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "not_answered",
        "the agent has not answered",
        "try again; if it happens again, the agent's log says why",
    )
}
