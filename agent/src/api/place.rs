//! The places where the agent's listener listens. The agent binds each and hands the socket over: it says why
//! one cannot be had, and has none itself while the listener has it.

use super::control::bind_control;
use super::error::ApiError;
use super::pair::Door;
use rustix::net::sockopt;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use tracing::{info, warn};

/// A place, and the socket that listens there.
pub struct Place {
    pub door: Door,
    address: Address,
    /// Bound already, and not handed over.
    bound: Option<OwnedFd>,
    /// The service manager has it, who gives it once: it is kept for the next listener, and nobody is
    /// accepted on it here.
    kept: Option<OwnedFd>,
    is_handed_over: bool,
    /// That it cannot be had is said once.
    is_missed: bool,
}

enum Address {
    Loopback(SocketAddr),
    Any(SocketAddr),
    File(PathBuf),
}

impl Place {
    /// For reading; `bound`: where it could be had already.
    pub fn reading(address: SocketAddr, bound: Option<TcpListener>) -> Place {
        // Where the system was to choose the port, it has.
        let chosen = bound.as_ref().and_then(|listener| listener.local_addr().ok());
        Place::new(Door::Reading, Address::Loopback(chosen.unwrap_or(address)), bound.map(OwnedFd::from))
    }

    /// For reading, at the socket that the service manager has handed over.
    /// Errors: [`ApiError::NotLoopback`] and [`ApiError::Listener`].
    pub fn handed_over(listener: TcpListener) -> Result<Place, ApiError> {
        let unusable = |source| ApiError::Listener { source };
        let address = listener.local_addr().map_err(unusable)?;
        refuse_unless_loopback(address)?;
        let kept = Some(listener.into());
        Ok(Place { kept, ..Place::new(Door::Reading, Address::Loopback(address), None) })
    }

    /// For changes; `bound`: where it could be had already.
    pub fn control(path: PathBuf, bound: Option<UnixListener>) -> Place {
        Place::new(Door::Control, Address::File(path), bound.map(OwnedFd::from))
    }

    pub fn remote(address: SocketAddr) -> Place {
        Place::new(Door::Remote, Address::Any(address), None)
    }

    fn new(door: Door, address: Address, bound: Option<OwnedFd>) -> Place {
        Place { door, address, bound, kept: None, is_handed_over: false, is_missed: false }
    }

    /// Whether a listener has its socket.
    pub fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// The listener that had it is no more.
    pub fn take_back(&mut self) {
        self.is_handed_over = false;
    }

    /// Its socket, to be handed over; `None`: it cannot be had yet.
    pub fn socket(&mut self) -> Option<OwnedFd> {
        let socket = match (&self.kept, self.bound.take()) {
            (Some(kept), _) => kept.try_clone().map_err(|source| ApiError::Listener { source }),
            (None, Some(bound)) => Ok(bound),
            (None, None) => self.address.bind(),
        };
        match socket {
            Ok(socket) => {
                // Connections inherit it: what stands before an answer's body is sent ahead of it, and nobody
                // is to wait for an acknowledgement in between. A unix socket knows no such thing.
                let _ = sockopt::set_tcp_nodelay(&socket, true);
                (self.is_handed_over, self.is_missed) = (true, false);
                self.address.tell();
                Some(socket)
            }
            Err(error) => {
                if !self.is_missed {
                    warn!(%error, help = error.remedy(), "nobody is served there until that has changed");
                }
                self.is_missed = true;
                None
            }
        }
    }
}

impl Address {
    fn bind(&self) -> Result<OwnedFd, ApiError> {
        match self {
            Address::Loopback(address) => bind(*address).map(OwnedFd::from),
            Address::Any(address) => bind_any(*address).map(OwnedFd::from),
            Address::File(path) => {
                let failed = |source| ApiError::Control { path: path.clone(), source };
                bind_control(path).map(OwnedFd::from).map_err(failed)
            }
        }
    }

    fn tell(&self) {
        match self {
            Address::Loopback(address) => info!(%address, "serving the HTTP API"),
            Address::Any(address) => info!(%address, "serving the HTTP API over TLS"),
            Address::File(path) => info!(path = %path.display(), "taking requests for changes"),
        }
    }
}

/// Listens on `address`, which must be a loopback address; port 0 lets the system choose.
/// Errors: [`ApiError`], when the address is not loopback or cannot be listened on.
pub fn bind(address: SocketAddr) -> Result<TcpListener, ApiError> {
    refuse_unless_loopback(address)?;
    bind_any(address)
}

fn bind_any(address: SocketAddr) -> Result<TcpListener, ApiError> {
    TcpListener::bind(address).map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ApiError::PortInUse { address },
        _ => ApiError::Listen { address, source },
    })
}

fn refuse_unless_loopback(address: SocketAddr) -> Result<(), ApiError> {
    match address.ip().to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(ApiError::NotLoopback { address }),
    }
}
