//! Certificates: what a PEM file holds, when it expires, whom it names, and how Tallygate itself is a TLS server.
//!
//! Called by `config` (files are judged when they are named), `server` (handshakes) and `store/redis` (clients of Redis). The
//! only room that reads X.509. It knows no clock: whether something has expired is the caller's question.

pub mod certificate;
pub mod server;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why a PEM file is of no use. Who put it in its place mends it; waiting helps only in the midst of a renewal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPem {
    #[error("holds no certificate in PEM form")]
    NoCertificate,
    #[error("holds no private key in PEM form")]
    NoPrivateKey,
    #[error("holds a private key with a passphrase, and nobody is there to type it: write the key without one")]
    Encrypted,
    /// Of those that were found, one is not X.509.
    #[error("holds a certificate that cannot be read")]
    Unreadable,
}

/// The cryptography of this process, for whoever asks rustls for its default too.
pub fn provider() -> Arc<CryptoProvider> {
    let provider = rustls::crypto::ring::default_provider();
    // The first choice stays.
    let _chosen_already = provider.clone().install_default();
    Arc::new(provider)
}

/// Every certificate of a PEM file, in its order: at least one.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadPem> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(BadPem::NoCertificate)
}

/// The first private key of a PEM file.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, BadPem> {
    // PKCS#8 says so in its label, the older forms in a header.
    let is_encrypted = || pem.windows(9).any(|text| text == b"ENCRYPTED");
    let key = PrivateKeyDer::from_pem_slice(pem);
    key.map_err(|_| if is_encrypted() { BadPem::Encrypted } else { BadPem::NoPrivateKey })
}
