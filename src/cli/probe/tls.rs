//! How `probe` speaks TLS, where the sidecar's listener wants it (`server.tls`).

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::tls::provider;

#[derive(Args)]
pub struct TlsArguments {
    /// Speak TLS, and believe a sidecar that this authority vouches for (PEM)
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The client certificate to show (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_private_key"])]
    tls_certificate: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_private_key: Option<PathBuf>,
    /// The name in the sidecar's certificate, where it is not the address
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_server_name: Option<String>,
}

impl TlsArguments {
    /// What to look at where no answer came, by what was tried.
    pub fn remedy(&self) -> &'static str {
        match (&self.tls_ca, &self.tls_certificate) {
            (None, _) => {
                "check that it runs and that --address is its server.listen; where server.tls is set, say --tls-ca"
            }
            (Some(_), None) => {
                "--tls-ca has to vouch for its server.tls.certificate_file; where client_ca_file is set, say --tls-certificate \
                 and --tls-private-key; without server.tls none of them"
            }
            (Some(_), Some(_)) => {
                "its log says why it refused; --tls-ca has to vouch for its server.tls.certificate_file, and client_ca_file \
                 for --tls-certificate"
            }
        }
    }

    /// `None` for plain HTTP/2.
    pub fn read(&self) -> Result<Option<ClientTlsConfig>, String> {
        let Some(ca) = &self.tls_ca else { return Ok(None) };
        provider();
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_private_key) {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        if let Some(name) = &self.tls_server_name {
            tls = tls.domain_name(name);
        }
        Ok(Some(tls))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}
