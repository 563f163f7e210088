//! TLS: the handshake, and the names that the other end has shown a certificate for.

use super::connection::{Accepted, Listener};
use super::relay::Origin;
use crate::api::pair::Door;
use crate::api::pair::request::Peer;
use crate::api::remote::network;
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};
use webpki::EndEntityCert;

/// For the handshake of a connection: two ways there and back, over a slow line.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Names in a client's certificate that are looked at.
const NAMES_MAX: usize = 64;

/// Accepts whoever comes; who it is comes out later.
pub struct Remote(pub TcpListener);

impl Listener for Remote {
    type Stream = (TcpStream, IpAddr);

    async fn accept(&self) -> io::Result<Accepted<Self::Stream>> {
        let (stream, address) = self.0.accept().await?;
        let address = SocketAddr::ip(&address);
        Ok(Accepted { stream: (stream, address), peer: Some(network(address)) })
    }
}

/// The handshake; `None`: the other end does not speak TLS, or takes too long, or there is no certificate
/// yet.
pub async fn establish(
    (stream, address): (TcpStream, IpAddr),
    acceptor: Option<TlsAcceptor>,
) -> Option<(TlsStream<TcpStream>, Origin)> {
    let accepted = tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor?.accept(stream)).await;
    let stream = accepted.ok()?.ok()?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let names = certificate.map(names_of).unwrap_or_default();
    Some((stream, Origin { door: Door::Remote, peer: Some(Peer { address, names }), connection: None }))
}

/// DNS names of a client's certificate, which the handshake has checked.
fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    certificate.valid_dns_names().take(NAMES_MAX).map(str::to_owned).collect()
}
