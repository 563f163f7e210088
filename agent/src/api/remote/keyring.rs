//! Certificate, key and access file of the TLS listener: read at the start, and again when they have changed
//! or the policy is. What cannot be used never comes into force; the last good ones stay.

use super::access_file::{self, AccessFile};
use crate::guarded_file::{self, Others};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio_rustls::rustls;
use webpki::EndEntityCert;

/// A chain of a few certificates, or a file of authorities: longer ones are no mistake that is made by hand.
const PEM_BYTES_MAX: u64 = 1 << 20;
/// Names in a client's certificate that are looked at.
const NAMES_MAX: usize = 64;

/// Where everything is.
#[derive(Clone, Debug)]
pub struct KeyringFiles {
    /// The server's certificate chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// Who may ask.
    pub access: PathBuf,
    /// Authorities whose client certificates count, PEM; `None`: there are only tokens.
    pub client_authority: Option<PathBuf>,
}

/// What is in force.
#[derive(Debug)]
pub struct Keys {
    pub config: Arc<ServerConfig>,
    pub access: AccessFile,
    own: CertificateDer<'static>,
}

/// The files, and what was read of them.
#[derive(Debug)]
pub struct Keyring {
    files: KeyringFiles,
    in_force: RwLock<Arc<Keys>>,
    /// The files as they were last looked at.
    looked_at: Mutex<Vec<Option<Stamp>>>,
}

/// Tells one state of a file from another: inode, length, time of change, its mode and owner included.
type Stamp = (u64, u64, i64, i64);

impl Keyring {
    /// Errors: which file cannot be used, and why.
    pub fn open(files: KeyringFiles) -> Result<Keyring, String> {
        let looked_at = Mutex::new(files.stamps());
        let in_force = RwLock::new(Arc::new(Keys::read(&files)?));
        Ok(Keyring { files, in_force, looked_at })
    }

    /// What is in force now.
    pub fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads all files again where one has changed, or `at_once`.
    pub fn renew(&self, at_once: bool) {
        let stamps = self.files.stamps();
        let mut looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        if !at_once && *looked_at == stamps {
            return;
        }
        *looked_at = stamps;
        match Keys::read(&self.files) {
            Ok(keys) => {
                *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                tracing::info!("certificate and access file were read again");
            }
            Err(reason) => tracing::warn!(%reason, "the former certificate and access file stay in force"),
        }
    }
}

impl KeyringFiles {
    fn stamps(&self) -> Vec<Option<Stamp>> {
        let paths =
            [Some(&self.certificate), Some(&self.key), Some(&self.access), self.client_authority.as_ref()];
        let stamp = |path: &PathBuf| {
            let data = std::fs::metadata(path).ok()?;
            Some((data.ino(), data.len(), data.ctime(), data.ctime_nsec()))
        };
        paths.into_iter().flatten().map(stamp).collect()
    }
}

impl Keys {
    fn read(files: &KeyringFiles) -> Result<Keys, String> {
        let chain = certificates(&files.certificate)?;
        let own = chain.first().cloned().ok_or_else(|| no_certificate(&files.certificate))?;
        let key = guarded_file::read(&files.key, PEM_BYTES_MAX, Others::MayNothing)?;
        // What is wrong with a key is not repeated.
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|_| format!("{} has no private key in PEM", files.key.display()))?;
        let access = guarded_file::read(&files.access, access_file::FILE_BYTES_MAX, Others::MayNothing)?;
        let access = String::from_utf8(access).map_err(|_| "it is not UTF-8".to_owned());
        let access = access.and_then(|text| AccessFile::parse(&text));
        let access = access.map_err(|reason| format!("{}: {reason}", files.access.display()))?;
        if access.wants_certificates() && files.client_authority.is_none() {
            let path = files.access.display();
            return Err(format!("{path} names client certificates, but no authority for them is given"));
        }
        let authority = files.client_authority.as_deref().map(certificates).transpose()?;
        let mut config = config(chain, key, authority).map_err(|error| {
            format!("{} and its key cannot be used: {error}", files.certificate.display())
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Keys { config: Arc::new(config), access, own })
    }

    /// Whether the server's certificate is for this name or address, written without a port.
    pub fn is_for(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let (Ok(name), Ok(certificate)) = (ServerName::try_from(bare), EndEntityCert::try_from(&self.own))
        else {
            return false;
        };
        certificate.verify_is_valid_for_subject_name(&name).is_ok()
    }
}

/// Nothing older than TLS 1.3: whoever asks is a program or a browser of today.
fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authority: Option<Vec<CertificateDer<'static>>>,
) -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13])?;
    let Some(authority) = authority else {
        return Ok(builder.with_no_client_auth().with_single_cert(chain, key)?);
    };
    let mut roots = RootCertStore::empty();
    authority.into_iter().try_for_each(|certificate| roots.add(certificate))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    // Who has none may still have a token.
    let verifier = verifier.allow_unauthenticated().build()?;
    Ok(builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = guarded_file::read(path, PEM_BYTES_MAX, Others::MayRead)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read = read.map_err(|error| format!("{} is not PEM: {error}", path.display()))?;
    if read.is_empty() { Err(no_certificate(path)) } else { Ok(read) }
}

fn no_certificate(path: &Path) -> String {
    format!("{} has no certificate in PEM", path.display())
}

/// DNS names of a client's certificate, which the handshake has checked.
pub fn names_of(certificate: &CertificateDer<'_>) -> Arc<[String]> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Arc::default() };
    certificate.valid_dns_names().take(NAMES_MAX).map(str::to_owned).collect()
}
