//! Certificate and key, as the agent has read them and as its listener speaks TLS by them.
//!
//! They are handed over in a file that is in memory only, and that nobody can change any more.

use rustix::fs::{MemfdFlags, SealFlags};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio_rustls::rustls;

/// The longest file of certificates: a chain of a few, or of authorities. Longer ones are no mistake that is
/// made by hand.
pub const PEM_BYTES_MAX: u64 = 1 << 20;
/// Three of them as JSON, whose line breaks take two bytes.
const HANDED_OVER_BYTES_MAX: u64 = 8 * PEM_BYTES_MAX;

/// All in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The server's certificate chain.
    pub chain: String,
    /// Its private key.
    pub key: String,
    /// Authorities whose client certificates count.
    pub authority: Option<String>,
}

impl fmt::Debug for TlsFiles {
    /// Nothing of a key is shown.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsFiles").finish_non_exhaustive()
    }
}

impl TlsFiles {
    /// A file of these, at its beginning.
    pub fn hand_over(&self) -> io::Result<OwnedFd> {
        let memory = rustix::fs::memfd_create("tls", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(memory);
        file.write_all(&serde_json::to_vec(self)?)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        file.rewind()?;
        Ok(file.into())
    }

    pub fn taken_over(file: OwnedFd) -> io::Result<TlsFiles> {
        let mut bytes = Vec::new();
        File::from(file).take(HANDED_OVER_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// How TLS is spoken by them. Nothing older than TLS 1.3: whoever asks is a program or a browser of
    /// today.
    pub fn config(&self) -> Result<ServerConfig, Box<dyn Error + Send + Sync>> {
        let chain = certificates(&self.chain)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
        let mut config = match &self.authority {
            None => builder.with_no_client_auth().with_single_cert(chain, key)?,
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                certificates(authority)?.into_iter().try_for_each(|certificate| roots.add(certificate))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                // Who has none may still have a token.
                let verifier = verifier.allow_unauthenticated().build()?;
                builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// All that are in a text.
pub fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(text.as_bytes()).collect()
}
