//! A client for the agent's HTTP API: one GET a connection, nothing more.

use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// No answer of the agent is nearly as long; more means that something else answers.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
/// The agent answers from memory, so a longer wait is an error.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The body of `GET path`; fails when the status is not 200.
pub fn get(address: SocketAddr, path: &str) -> Result<String> {
    let (status, body) = request(address, path)?;
    if status != 200 {
        bail!("GET {path} answered {status}: {body}");
    }
    Ok(body)
}

/// The body of `GET path`, parsed as JSON.
pub fn get_json(address: SocketAddr, path: &str) -> Result<serde_json::Value> {
    let body = get(address, path)?;
    serde_json::from_str(&body).with_context(|| format!("GET {path} answered no JSON: {body}"))
}

/// Status and body of `GET path`.
pub fn request(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let mut stream =
        TcpStream::connect_timeout(&address, TIMEOUT).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // HTTP/1.0: the body ends where the connection ends, with no chunks to put together.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut bytes).with_context(|| format!("reading {path}"))?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("GET {path}: no HTTP: {text}"))?;
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Ok((status.with_context(|| format!("GET {path}: no status: {head}"))?, body.to_owned()))
}

/// An address on the loopback interface that was free a moment ago.
pub fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr()?)
}
