//! TLS towards Redis: which files, and whether they hold what they should.

use std::path::PathBuf;

use redis::{ClientTlsConfig, TlsCertificates};

use super::read;
use crate::decision::verdict::FailureClass;
use crate::store::StoreError;
use crate::tls::{BadPem, certificates, private_key, provider};

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
        // The redis crate leaves the choice of cryptography to the process.
        let _chosen = provider();
        let client_tls = match &self.identity {
            None => None,
            Some((certificate, key)) => {
                let client_cert = read_pem(certificate, is_certificate).await?;
                Some(ClientTlsConfig { client_cert, client_key: read_pem(key, is_key).await? })
            }
        };
        let root_cert = match &self.ca_file {
            None => None,
            Some(path) => Some(read_pem(path, is_certificate).await?),
        };
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

/// A PEM file with what is wanted in it: without it the TLS library would only say later that it trusts nobody. It was looked
/// at when the configuration was read, and may have been changed since.
async fn read_pem(path: &PathBuf, holds: fn(&[u8]) -> Result<(), BadPem>) -> Result<Vec<u8>, StoreError> {
    let bytes = read(path).await?;
    let failed = |bad| StoreError::new(FailureClass::Permission, format!("{}: {bad}", path.display()));
    holds(&bytes).map_err(failed)?;
    Ok(bytes)
}

fn is_certificate(pem: &[u8]) -> Result<(), BadPem> {
    certificates(pem).map(drop)
}

fn is_key(pem: &[u8]) -> Result<(), BadPem> {
    private_key(pem).map(drop)
}
