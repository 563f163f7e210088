//! Certificate, key and access file of the TLS listener: read at the start, and again when they have changed
//! or the policy is. What cannot be used never comes into force; the last good ones stay.

use super::access_file::{self, AccessFile};
use crate::api::pair::tls::{PEM_BYTES_MAX, TlsFiles, certificates};
use crate::guarded_file::{self, Others};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio_rustls::rustls;
use webpki::EndEntityCert;

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
    pub tls: TlsFiles,
    pub access: AccessFile,
    own: CertificateDer<'static>,
}

/// The files, and what was read of them.
#[derive(Debug)]
pub struct Keyring {
    files: KeyringFiles,
    in_force: watch::Sender<Arc<Keys>>,
    /// The files as they were last looked at.
    looked_at: Mutex<Vec<Option<Stamp>>>,
}

/// Tells one state of a file from another: inode, length, time of change, its mode and owner included.
type Stamp = (u64, u64, i64, i64);

impl Keyring {
    /// Errors: which file cannot be used, and why.
    pub fn open(files: KeyringFiles) -> Result<Keyring, String> {
        let looked_at = Mutex::new(files.stamps());
        let in_force = watch::Sender::new(Arc::new(Keys::read(&files)?));
        Ok(Keyring { files, in_force, looked_at })
    }

    /// What is in force now.
    pub fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.in_force.borrow())
    }

    /// What is in force, as it changes.
    pub fn changes(&self) -> watch::Receiver<Arc<Keys>> {
        self.in_force.subscribe()
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
                self.in_force.send_replace(Arc::new(keys));
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
        let (chain, read) = pem(&files.certificate)?;
        let own = read.first().cloned().ok_or_else(|| no_certificate(&files.certificate))?;
        let key = guarded_file::read(&files.key, PEM_BYTES_MAX, Others::MayNothing)?;
        // What is wrong with a key is not repeated.
        PrivateKeyDer::from_pem_slice(&key)
            .map_err(|_| format!("{} has no private key in PEM", files.key.display()))?;
        let access = guarded_file::read(&files.access, access_file::FILE_BYTES_MAX, Others::MayNothing)?;
        let access = String::from_utf8(access).map_err(|_| "it is not UTF-8".to_owned());
        let access = access.and_then(|text| AccessFile::parse(&text));
        let access = access.map_err(|reason| format!("{}: {reason}", files.access.display()))?;
        if access.wants_certificates() && files.client_authority.is_none() {
            let path = files.access.display();
            return Err(format!("{path} names client certificates, but no authority for them is given"));
        }
        let authority = files.client_authority.as_deref().map(pem).transpose()?.map(|(text, _)| text);
        let tls = TlsFiles { chain, key: text(&key), authority };
        // The listener makes the same of it.
        tls.config().map_err(|error| {
            format!("{} and its key cannot be used: {error}", files.certificate.display())
        })?;
        Ok(Keys { tls, access, own })
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

/// A file of certificates, and what is in it.
fn pem(path: &Path) -> Result<(String, Vec<CertificateDer<'static>>), String> {
    let text = text(&guarded_file::read(path, PEM_BYTES_MAX, Others::MayRead)?);
    let read = certificates(&text).map_err(|error| format!("{} is not PEM: {error}", path.display()))?;
    if read.is_empty() { Err(no_certificate(path)) } else { Ok((text, read)) }
}

/// What stands between the parts of a file in PEM may be anything, and means nothing.
fn text(pem: &[u8]) -> String {
    String::from_utf8_lossy(pem).into_owned()
}

fn no_certificate(path: &Path) -> String {
    format!("{} has no certificate in PEM", path.display())
}
