//! Why the API cannot be served.

use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// Why the API cannot be served; [`ApiError::remedy`] says what to do.
#[derive(Debug, Error)]
pub enum ApiError {
    #[error(
        "refusing to listen on {address}: --listen asks nobody who he is, so it takes only loopback addresses"
    )]
    NotLoopback { address: SocketAddr },
    #[error("cannot listen on {address}: the port is in use")]
    PortInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot serve on the listener that was handed over: {source}")]
    Listener { source: std::io::Error },
    #[error("cannot listen at {path}: {source}")]
    Control { path: PathBuf, source: std::io::Error },
    #[error("cannot serve over TLS: {reason}")]
    Keyring { reason: String },
}

impl ApiError {
    /// What an operator can do about it, in one sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            ApiError::NotLoopback { .. } => {
                "give the address to --listen-tls, with --tls-certificate, --tls-key and --access; or listen on 127.0.0.1"
            }
            ApiError::PortInUse { .. } => {
                "see who has it (`ss -ltnp`), perhaps another sexton; stop that, or choose another port with --listen"
            }
            ApiError::Listen { .. } => "choose another address or port with --listen",
            ApiError::Listener { .. } => "hand over a bound TCP socket",
            ApiError::Control { .. } => {
                "see whether another sexton listens there (`ss -lxp`), or choose another file with --control"
            }
            ApiError::Keyring { .. } => {
                "certificate and key are PEM; key and access file belong to root or the agent's user, mode 600; a line of the \
                 access file is NAME SCOPES PROOF"
            }
        }
    }
}
