//! Why the API cannot be served.

use std::net::SocketAddr;
use thiserror::Error;

/// Why the API cannot be served; [`ApiError::remedy`] says what to do.
#[derive(Debug, Error)]
pub enum ApiError {
    #[error(
        "refusing to listen on {address}: the API has no authentication yet, so only loopback addresses are served"
    )]
    NotLoopback { address: SocketAddr },
    #[error("cannot listen on {address}: the port is in use")]
    PortInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot serve on the listener that was handed over: {source}")]
    Listener { source: std::io::Error },
}

impl ApiError {
    /// What an operator can do about it, in one sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            ApiError::NotLoopback { .. } => {
                "listen on 127.0.0.1 (`--listen 127.0.0.1:9776`) and reach it from elsewhere through `ssh -L`"
            }
            ApiError::PortInUse { .. } => {
                "see who has it (`ss -ltnp`), perhaps another sexton; stop that, or choose another port with --listen"
            }
            ApiError::Listen { .. } => "choose another address or port with --listen",
            ApiError::Listener { .. } => "hand over a bound TCP socket",
        }
    }
}
