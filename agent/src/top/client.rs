//! A client for the agent's own HTTP API: one GET a connection, a limit on time and size, nothing more.
//!
//! Not a general one: no redirects, no encryption, no chunks. What answers is believed to be JSON of ours
//! only after it has been parsed as such.

use super::TopError;
use super::picture::Picture;
use crate::snapshot::{RANGES_PUBLISHED_MAX, RangeView, TargetView};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sexton_journal::Event;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// No answer of an agent is nearly as long; more means that something else answers.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The agent answers from memory: a longer wait is an error, and longer than that nobody looks at a screen.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Characters of a foreign answer that are repeated in a message.
const SHOWN_CHARACTERS_MAX: usize = 120;

/// Asks one agent.
#[derive(Clone, Debug)]
pub struct Client {
    /// `HOST:PORT`, as it stands in the `Host` header.
    authority: String,
}

#[derive(Deserialize)]
struct Health {
    cycles: u64,
}

#[derive(Deserialize)]
struct Targets {
    at: String,
    targets: Vec<TargetView>,
}

#[derive(Deserialize)]
struct Ranges {
    ranges: Vec<RangeView>,
}

/// A page of events.
#[derive(Debug, Deserialize)]
pub struct EventsPage {
    /// Id of the oldest event that the agent still has at hand.
    pub oldest_id: Option<u64>,
    /// Oldest first.
    pub events: Vec<Event>,
}

impl Client {
    /// A client for `url`: `http://HOST:PORT`, with or without the scheme. Nothing is asked yet.
    ///
    /// # Errors
    /// [`TopError::Url`].
    pub fn new(url: &str) -> Result<Client, TopError> {
        let authority = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let is_plain = !authority.contains(['/', '@', '?', '#']) && !authority.contains(char::is_whitespace);
        match port {
            Some(_) if is_plain => Ok(Client { authority: authority.to_owned() }),
            _ => Err(TopError::Url { url: url.to_owned() }),
        }
    }

    /// Whom it asks, for people.
    pub fn url(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// The agent's state now.
    ///
    /// # Errors
    /// [`TopError::Unreachable`] when nothing answers, [`TopError::NoAgent`] when something else does,
    /// [`TopError::Refused`] with the agent's own words.
    pub fn picture(&self) -> Result<Picture, TopError> {
        let health: Health = self.get("/healthz")?;
        let Targets { at, targets } = self.get("/api/v1/targets")?;
        let Ranges { ranges } = self.get(&format!("/api/v1/ranges?limit={RANGES_PUBLISHED_MAX}"))?;
        Ok(Picture { at, cycles: health.cycles, targets, ranges })
    }

    /// The events with a greater id than `since`, as many as the agent gives at a time.
    ///
    /// # Errors
    /// As [`Client::picture`].
    pub fn events(&self, since: u64) -> Result<EventsPage, TopError> {
        self.get(&format!("/api/v1/events?since={since}"))
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, TopError> {
        let answer =
            self.exchange(path).map_err(|source| TopError::Unreachable { url: self.url(), source })?;
        let no_agent = |what: String| TopError::NoAgent { url: self.url(), what };
        let (status, body) = split(&answer).ok_or_else(|| no_agent("it does not speak HTTP".to_owned()))?;
        if status != 200 {
            let shown = body.chars().filter(|character| !character.is_control());
            let message = format!("{path} answered {status}: ");
            return Err(TopError::Refused {
                url: self.url(),
                message: message.chars().chain(shown.take(SHOWN_CHARACTERS_MAX)).collect(),
            });
        }
        serde_json::from_str(body).map_err(|error| no_agent(format!("{path}: {error}")))
    }

    fn exchange(&self, path: &str) -> std::io::Result<String> {
        let mut addresses = self.authority.to_socket_addrs()?;
        let address = addresses.next().ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        // HTTP/1.0: the body ends where the connection ends, with no chunks to put together.
        let authority = &self.authority;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Status and body of an HTTP answer.
fn split(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut words = head.split_ascii_whitespace();
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    Some((words.next()?.parse().ok()?, body))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn urls_of_an_agent() {
        for url in ["http://127.0.0.1:9776", "127.0.0.1:9776", "http://[::1]:9776/", "localhost:1"] {
            assert!(Client::new(url).is_ok(), "{url}");
        }
        for url in ["", "127.0.0.1", "https://127.0.0.1:9776", "http://h:1/x", "a b:1", "u@h:1", "h:99999"] {
            assert!(matches!(Client::new(url), Err(TopError::Url { .. })), "{url}");
        }
        assert_eq!(Client::new("localhost:1/").unwrap().url(), "http://localhost:1");
    }

    /// Answers one connection with `answer` and asks it for a picture.
    fn asked(answer: &'static str) -> TopError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = client.picture().unwrap_err();
        server.join().unwrap();
        error
    }

    #[test]
    fn what_is_no_agent_is_told_so() {
        assert!(matches!(asked("SSH-2.0-OpenSSH\r\n\r\n"), TopError::NoAgent { .. }));
        assert!(matches!(asked(""), TopError::NoAgent { .. }));
        assert!(matches!(asked("HTTP/1.1 200 OK\r\n\r\n<html>"), TopError::NoAgent { .. }));
        let refused = asked("HTTP/1.1 503 Service Unavailable\r\n\r\n{\"title\":\"engine\u{1b}_stopped\"}");
        assert!(matches!(&refused, TopError::Refused { message, .. } if message.contains("503")
            && message.contains("engine_stopped")));
    }

    #[test]
    fn nobody_listening_is_unreachable() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let client = Client::new(&address.to_string()).unwrap();
        assert!(matches!(client.picture(), Err(TopError::Unreachable { .. })));
    }
}
