//! A client for the agent's own HTTP API.
//!
//! What answers is believed to be JSON of ours only after it has been parsed as such.

use crate::failure::Failure;
use crate::snapshot::{RANGES_PUBLISHED_MAX, RangeView, TargetView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sexton_journal::Event;
use sexton_tuner::advice::Advice;
use std::io::ErrorKind;
use std::time::Duration;
use thiserror::Error;
use ureq::Agent;
use ureq::http::Uri;

/// No answer of an agent is nearly as long; more means that something else answers.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The agent answers from memory: a longer wait is an error, and longer than that nobody looks at a screen.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Characters of a foreign answer that are repeated in a message.
const SHOWN_CHARACTERS_MAX: usize = 120;

/// Why there is nothing to show; [`TopError::remedy`] says what to do.
#[derive(Debug, Error)]
pub enum TopError {
    #[error("{url:?} is no URL of an agent")]
    Url { url: String },
    #[error("no agent answers at {url}: {source}")]
    Unreachable { url: String, source: Box<ureq::Error> },
    #[error("what answers at {url} is no agent that this version understands: {what}")]
    NoAgent { url: String, what: String },
    #[error("the agent at {url} refuses: {message}")]
    Refused { url: String, message: String },
}

impl TopError {
    /// What an operator can do about it, in one sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            TopError::Url { .. } => "give it as http://HOST:PORT, for example http://127.0.0.1:9776",
            TopError::Unreachable { .. } => {
                "start an agent with `sexton run`, or name another one with --url"
            }
            TopError::NoAgent { .. } => {
                "give the address of `sexton run --listen` with --url, and use the same version of both"
            }
            TopError::Refused { .. } => "see the agent's log",
        }
    }
}

impl From<TopError> for Failure {
    fn from(error: TopError) -> Failure {
        match error {
            TopError::Url { .. } => Failure::usage(&error, error.remedy()),
            _ => Failure::new(&error, error.remedy()),
        }
    }
}

/// Targets and ranges of an agent as of one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When the agent made it, RFC 3339.
    pub at: String,
    pub cycles: u64,
    pub targets: Vec<TargetView>,
    /// Ranked ranges of all targets, most pain relieved per byte first.
    pub ranges: Vec<RangeView>,
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

#[derive(Debug, Deserialize)]
pub struct EventsPage {
    /// Id of the oldest event that the agent still has at hand.
    pub oldest_id: Option<u64>,
    /// Oldest first.
    pub events: Vec<Event>,
}

/// What an agent advises.
#[derive(Debug, Deserialize, Serialize)]
pub struct AdvicePage {
    /// When, RFC 3339.
    pub at: String,
    pub advice: Vec<Advice>,
}

/// A name as a URL's query takes it.
fn encoded(name: &str) -> String {
    let one = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(one).collect()
}

#[derive(Clone, Debug)]
pub struct Client {
    http: Agent,
    /// `http://HOST:PORT`.
    url: String,
}

impl Client {
    /// A client for `url`: `http://HOST:PORT`, with or without the scheme. Nothing is asked yet.
    pub fn new(url: &str) -> Result<Client, TopError> {
        let authority = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
        let is_plain = |uri: &Uri| {
            uri.port_u16().is_some()
                && uri.path() == "/"
                && uri.query().is_none()
                && !authority.contains(['@', '#'])
        };
        let plain = format!("http://{authority}");
        if !plain.parse().is_ok_and(|uri| is_plain(&uri)) {
            return Err(TopError::Url { url: url.to_owned() });
        }
        let http = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            // The agent is asked directly, whatever the environment says of proxies.
            .proxy(None)
            .max_redirects(0)
            .build();
        Ok(Client { http: http.into(), url: plain })
    }

    /// Whom it asks, for people.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The agent's state now.
    /// Errors: [`TopError::Unreachable`] when nothing answers, [`TopError::NoAgent`] when something else
    /// does, [`TopError::Refused`] with the agent's own words.
    pub fn snapshot(&self) -> Result<Snapshot, TopError> {
        let health: Health = self.get("/healthz")?;
        let Targets { at, targets } = self.get("/api/v1/targets")?;
        let Ranges { ranges } = self.get(&format!("/api/v1/ranges?limit={RANGES_PUBLISHED_MAX}"))?;
        Ok(Snapshot { at, cycles: health.cycles, targets, ranges })
    }

    /// The events with a greater id than `since`, as many as the agent gives at a time.
    pub fn events(&self, since: u64) -> Result<EventsPage, TopError> {
        self.get(&format!("/api/v1/events?since={since}"))
    }

    /// What the agent advises, on one target where it is named.
    pub fn advice(&self, target: Option<&str>) -> Result<AdvicePage, TopError> {
        match target {
            None => self.get("/api/v1/advice"),
            Some(name) => self.get(&format!("/api/v1/advice?target={}", encoded(name))),
        }
    }

    /// What the agent answers on a path.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, TopError> {
        let mut answer =
            self.http.get(format!("{}{path}", self.url)).call().map_err(|error| self.failed(error))?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let body = body.map_err(|error| self.failed(error))?;
        if status != 200 {
            let shown = body.chars().filter(|character| !character.is_control());
            let message = format!("{path} answered {}: ", status.as_u16());
            return Err(TopError::Refused {
                url: self.url.clone(),
                message: message.chars().chain(shown.take(SHOWN_CHARACTERS_MAX)).collect(),
            });
        }
        serde_json::from_str(&body).map_err(|error| self.no_agent(format!("{path}: {error}")))
    }

    fn failed(&self, error: ureq::Error) -> TopError {
        match error {
            // Who hangs up without a word, or says something else, does not speak HTTP.
            ureq::Error::Io(error) if error.kind() != ErrorKind::UnexpectedEof => {
                TopError::Unreachable { url: self.url.clone(), source: Box::new(error.into()) }
            }
            ureq::Error::Timeout(_) | ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
                TopError::Unreachable { url: self.url.clone(), source: Box::new(error) }
            }
            error => self.no_agent(format!("it does not speak HTTP as an agent does: {error}")),
        }
    }

    fn no_agent(&self, what: String) -> TopError {
        TopError::NoAgent { url: self.url.clone(), what }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use std::io::{Read, Write};
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

    /// Answers one connection with `answer` and asks it for a snapshot.
    fn asked(answer: &'static str) -> TopError {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::new(&listener.local_addr().unwrap().to_string()).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 256];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = client.snapshot().unwrap_err();
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
        assert!(matches!(client.snapshot(), Err(TopError::Unreachable { .. })));
    }
}
