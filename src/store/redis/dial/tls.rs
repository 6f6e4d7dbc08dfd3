//! TLS towards Redis: which files, and whether they hold what they should.

use std::path::PathBuf;

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::read;
use crate::decision::verdict::FailureClass;
use crate::store::StoreError;

/// TLS towards Redis. Paths are to PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who may vouch for the server; the system's certificates where there is none.
    pub ca_file: Option<PathBuf>,
    /// The client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, where it is not the host.
    pub server_name: Option<String>,
}

impl Tls {
    /// Reads the files.
    pub(super) async fn read(&self) -> Result<TlsCertificates, StoreError> {
        // The redis crate leaves the choice of cryptography to the process; the first choice stays.
        let _chosen_already = rustls::crypto::ring::default_provider().install_default();
        let client_tls = match &self.identity {
            None => None,
            Some((certificate, key)) => {
                let client_cert = read_pem(certificate, "certificate", is_certificate).await?;
                Some(ClientTlsConfig { client_cert, client_key: read_pem(key, "private key", is_key).await? })
            }
        };
        let root_cert = match &self.ca_file {
            None => None,
            Some(path) => Some(read_pem(path, "certificate", is_certificate).await?),
        };
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

/// A PEM file with what is wanted in it: without it the TLS library would only say later that it trusts nobody.
async fn read_pem(path: &PathBuf, wanted: &str, holds: fn(&[u8]) -> bool) -> Result<Vec<u8>, StoreError> {
    let bytes = read(path).await?;
    if holds(&bytes) {
        return Ok(bytes);
    }
    let detail = format!("{}: holds no {wanted} in PEM form", path.display());
    Err(StoreError::new(FailureClass::Permission, detail))
}

fn is_certificate(pem: &[u8]) -> bool {
    CertificateDer::from_pem_slice(pem).is_ok()
}

fn is_key(pem: &[u8]) -> bool {
    PrivateKeyDer::from_pem_slice(pem).is_ok()
}
