//! The flags of `sexton run` for callers elsewhere.

use crate::api::{ApiError, Keyring, KeyringFiles};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Where others ask, and how they are told from each other.
#[derive(Args, Debug)]
pub struct RemoteArguments {
    /// Where to serve the whole HTTP API to others, over TLS 1.3 only: they need a line in the access file.
    #[arg(long, value_name = "ADDRESS", requires_all = ["tls_certificate", "tls_key", "access"])]
    listen_tls: Option<SocketAddr>,
    /// The certificate chain for --listen-tls, PEM. It, its key and the access file are read again when they
    /// change, and with the policy.
    #[arg(long, value_name = "FILE", requires = "listen_tls")]
    tls_certificate: Option<PathBuf>,
    /// The private key for --listen-tls, PEM; nobody but root and the agent's user may read it.
    #[arg(long, value_name = "FILE", requires = "listen_tls")]
    tls_key: Option<PathBuf>,
    /// Who may ask over TLS: a line each, NAME SCOPES PROOF. SCOPES: read (what changes nothing), act
    /// (changes), keys (whole keys, where the policy shows them), with commas. PROOF: sha256: and the SHA-256
    /// of a token, or certificate: and a DNS name in a client certificate.
    #[arg(long, value_name = "FILE", requires = "listen_tls")]
    access: Option<PathBuf>,
    /// The authorities whose client certificates are believed, PEM; without them there are only tokens.
    #[arg(long, value_name = "FILE", requires = "listen_tls")]
    tls_client_authority: Option<PathBuf>,
}

impl RemoteArguments {
    /// The address and what is needed there; `None`: nobody elsewhere may ask.
    /// Errors: [`ApiError::Keyring`].
    pub fn keyring(&self) -> Result<Option<(SocketAddr, Arc<Keyring>)>, ApiError> {
        let files = (&self.tls_certificate, &self.tls_key, &self.access);
        let (Some(address), (Some(certificate), Some(key), Some(access))) = (self.listen_tls, files) else {
            return Ok(None);
        };
        let files = KeyringFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            access: access.clone(),
            client_authority: self.tls_client_authority.clone(),
        };
        let keyring = Keyring::open(files).map_err(|reason| ApiError::Keyring { reason })?;
        Ok(Some((address, Arc::new(keyring))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use crate::command::Arguments;
    use clap::Parser;

    #[test]
    fn tls_takes_all_its_files_or_none() {
        let parse = |flags: &str| Arguments::try_parse_from(format!("sexton run {flags}").split_whitespace());
        let all = "--listen-tls 0.0.0.0:9777 --tls-certificate c --tls-key k --access a";
        assert!(parse("").is_ok() && parse(all).is_ok());
        for flags in [
            "--listen-tls 0.0.0.0:9777",
            "--access a",
            "--listen-tls 0.0.0.0:9777 --tls-certificate c --access a",
        ] {
            let error = parse(flags).unwrap_err().to_string();
            assert!(error.contains("--tls-key") || error.contains("--listen-tls"), "{error}");
        }
    }
}
