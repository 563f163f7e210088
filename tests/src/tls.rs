//! What an agent needs to be asked over TLS: an authority, its certificates, and tokens.

use crate::http;
use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use sha2::{Digest, Sha256};
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Names of the callers, with their scopes; the name is the token's beginning.
const CALLERS: [(&str, &str); 3] = [("reader", "read"), ("actor", "act"), ("owner", "read,act,keys")];

/// Where an agent listens over TLS, and who may ask.
#[derive(Debug)]
pub struct Tls {
    pub address: SocketAddr,
    /// Whom clients have to trust, PEM.
    pub authority: PathBuf,
    directory: PathBuf,
}

impl Tls {
    /// Makes all files in `directory`, for an address on the loopback interface.
    pub fn make(directory: &Path) -> Result<Tls> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        // OpenSSL takes a certificate whose issuer has its own name for one that it has signed itself.
        parameters.distinguished_name.push(DnType::CommonName, "the authority of the tests");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names)?.signed_by(&key, &authority)?;
        let lines: Vec<String> = CALLERS.iter().map(|(name, scopes)| line(name, scopes)).collect();
        write(directory, "server.pem", &certificate.pem())?;
        write(directory, "server.key", &key.serialize_pem())?;
        write(directory, "access", &lines.concat())?;
        let authority = write(directory, "authority.pem", &authority.pem())?;
        Ok(Tls { address: http::free_address()?, authority, directory: directory.to_owned() })
    }

    /// Arguments of `sexton run`.
    pub fn arguments(&self) -> Vec<String> {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let files =
            [("--tls-certificate", "server.pem"), ("--tls-key", "server.key"), ("--access", "access")];
        let files = files.iter().flat_map(|(flag, name)| [(*flag).to_owned(), path(name)]);
        ["--listen-tls".to_owned(), self.address.to_string()].into_iter().chain(files).collect()
    }
}

/// The token of a caller.
pub fn token(name: &str) -> String {
    format!("{name}-0123456789abcdef0123456789abcdef")
}

fn line(name: &str, scopes: &str) -> String {
    let digits: String = Sha256::digest(token(name)).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} {scopes} sha256:{digits}\n")
}

/// A file that nobody else can read.
fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(path)
}
