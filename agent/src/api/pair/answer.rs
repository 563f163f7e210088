//! What goes over a request's own pair: the body to the agent, and the answer back, part by part.

use super::request::{Headers, headers, texts};
use super::socket::{MESSAGE_BYTES_MAX, Socket};
use super::{Malformed, decode, encode};
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::http::response::Parts;
use axum::response::Response;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::io;

/// The first byte of a message says what it is.
const HEAD: u8 = b'h';
const BODY: u8 = b'b';
const END: u8 = b'e';

/// What stands before an answer's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    status: u16,
    headers: Headers,
}

impl Answer {
    pub fn of(parts: &Parts) -> Answer {
        Answer { status: parts.status.as_u16(), headers: texts(&parts.headers) }
    }

    pub fn response(&self, body: Body) -> Result<Response, Malformed> {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).map_err(Malformed::of)?;
        *response.headers_mut() = headers(&self.headers)?;
        Ok(response)
    }
}

/// A part of a request or of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    Head(Answer),
    /// Bytes of the body.
    Body(Bytes),
    /// The body has ended, and was all there.
    End,
}

impl Part {
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        Ok(match self {
            Part::Head(answer) => [vec![HEAD], encode(answer)?].concat(),
            Part::Body(bytes) => [&[BODY], &bytes[..]].concat(),
            Part::End => vec![END],
        })
    }

    pub fn decode(message: Vec<u8>) -> Result<Part, Malformed> {
        match message.split_first() {
            Some((&HEAD, answer)) => Ok(Part::Head(decode(answer)?)),
            Some((&BODY, bytes)) if !bytes.is_empty() => Ok(Part::Body(Bytes::from(message).slice(1..))),
            Some((&END, [])) => Ok(Part::End),
            _ => Err(Malformed("no part of a request or an answer".to_owned())),
        }
    }
}

/// Sends a body to its end.
/// Errors: where the other end is closed, or the body breaks off.
pub async fn send_body(socket: &Socket, body: Body) -> io::Result<()> {
    let mut data = body.into_data_stream();
    while let Some(bytes) = data.next().await {
        let bytes = bytes.map_err(io::Error::other)?;
        for chunk in bytes.chunks(MESSAGE_BYTES_MAX - 1) {
            send(socket, &Part::Body(Bytes::copy_from_slice(chunk))).await?;
        }
    }
    send(socket, &Part::End).await
}

pub async fn send(socket: &Socket, part: &Part) -> io::Result<()> {
    socket.send(&part.encode().map_err(io::Error::other)?, &[]).await
}
