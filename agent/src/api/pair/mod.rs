//! What the agent and its listener tell each other: the listener has no right and speaks HTTP with whoever
//! comes, the agent has rights and speaks with the listener alone.
//!
//! A request has a pair of sockets of its own, whose end comes with it: so requests do not wait for each
//! other, what is under way is bounded by what the kernel keeps of a socket, and a request whose end is
//! closed is given up. Each side takes the other's messages for hostile: they are bounded, and what is
//! malformed ends the talk.

pub mod answer;
pub mod request;
pub mod socket;
pub mod tls;

use request::Asked;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A message that none of ours is.
#[derive(Debug, Error)]
#[error("a malformed message: {0}")]
pub struct Malformed(pub String);

impl Malformed {
    /// For this reason.
    pub fn of(error: impl std::fmt::Display) -> Malformed {
        Malformed(error.to_string())
    }
}

/// Where somebody has come in; each has a listening socket, and its own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    /// The loopback interface, for reading.
    Reading,
    /// The unix socket.
    Control,
    /// TLS.
    Remote,
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToListener {
    /// Accept connections at the socket that comes with it.
    Listen(Door),
    /// Speak TLS from here on by what is in the file that comes with it.
    Tls,
    /// Accept nobody any more, and end when the answers under way have ended.
    Stop,
}

/// What the listener says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Somebody asks. With it comes the end of a pair for the rest of the request and the answer, and from
    /// [`Door::Control`] the connection besides.
    Request(Asked),
    /// It cannot do its work, and ends.
    Failed { reason: String },
}

/// The message's bytes.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, Malformed> {
    serde_json::to_vec(message).map_err(Malformed::of)
}

/// What the bytes of a message say.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    serde_json::from_slice(bytes).map_err(Malformed::of)
}

/// Bytes of HTTP as a text, a character each: JSON takes no other bytes than those of texts.
fn text_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn bytes_of(text: &str) -> Result<Vec<u8>, Malformed> {
    let bytes = text.chars().map(u8::try_from).collect::<Result<_, _>>();
    bytes.map_err(|_| Malformed("a character that is no byte".to_owned()))
}

#[cfg(test)]
mod tests;
