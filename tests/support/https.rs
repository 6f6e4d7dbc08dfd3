//! HTTP/1.1 over TLS, by a client with a certificate of `certs/` or without one.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::http::{Response, exchange, message};
use super::tls::pem;

/// A GET; the error may be that of the handshake, which a client of TLS 1.3 hears of only when it reads.
pub fn get(address: &str, path: &str, certificate: Option<&str>) -> io::Result<Response> {
    let connection = ClientConnection::new(Arc::new(config(certificate)), server()).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    exchange(&mut StreamOwned::new(connection, stream), &message("GET", path, &[]))
}

fn server() -> ServerName<'static> {
    ServerName::try_from("127.0.0.1").expect("an address is a name")
}

fn config(certificate: Option<&str>) -> ClientConfig {
    let mut authorities = RootCertStore::empty();
    let (added, _) = authorities.add_parsable_certificates(chain("ca"));
    assert_eq!(added, 1, "our authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring knows them");
    let builder = builder.with_root_certificates(authorities);
    match certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_file(pem(&format!("{name}-key"))).expect("a private key");
            builder.with_client_auth_cert(chain(name), key).expect("the key belongs to the certificate")
        }
    }
}

fn chain(name: &str) -> Vec<CertificateDer<'static>> {
    let certificates = CertificateDer::pem_file_iter(pem(name)).expect("a file of certificates");
    certificates.collect::<Result<_, _>>().expect("certificates")
}
