//! Tallygate as a TLS server: its certificate, and who may ask.
//!
//! Whoever can ask can spend every limit, so a listener that others reach wants client certificates, and from a shared
//! authority (a mesh has one for all its workloads) only those whose SPIFFE ID is listed.

use std::io;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

pub use rustls::ServerConfig;

use super::certificate::spiffe_id;
use super::{BadPem, certificates, private_key, provider};

/// What the PEM files of a TLS listener hold.
pub struct Material<'a> {
    pub certificate: &'a [u8],
    pub private_key: &'a [u8],
    pub clients: Clients<'a>,
}

/// Who may ask.
pub enum Clients<'a> {
    /// Whoever reaches the listener.
    Anybody,
    /// Those with a certificate of these authorities; where IDs are listed, only these.
    Known { authorities: &'a [u8], allowed: Vec<String> },
}

/// Why there can be no TLS with these files; who wrote the named setting mends it.
#[derive(Debug, thiserror::Error)]
pub enum BadMaterial {
    #[error("{0}")]
    Certificate(BadPem),
    #[error("{0}")]
    PrivateKey(BadPem),
    /// As in the midst of a renewal, with one file new and one old.
    #[error("the private key does not belong to the certificate: write both anew")]
    Mismatch,
    #[error("{0}")]
    Authorities(BadPem),
    /// The library's own words.
    #[error("cannot be used: {0}")]
    Unusable(String),
}

/// What every handshake goes by.
pub fn server_config(material: Material<'_>) -> Result<ServerConfig, BadMaterial> {
    let chain = certificates(material.certificate).map_err(BadMaterial::Certificate)?;
    let key = private_key(material.private_key).map_err(BadMaterial::PrivateKey)?;
    let unusable = |error: Error| BadMaterial::Unusable(error.to_string());
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(unusable)?;
    let builder = match material.clients {
        Clients::Anybody => builder.with_no_client_auth(),
        Clients::Known { authorities, allowed } => builder.with_client_cert_verifier(known(authorities, allowed)?),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        Error::InconsistentKeys(_) => BadMaterial::Mismatch,
        other => unusable(other),
    })?;
    // gRPC is HTTP/2.
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A session that is resumed skips the look at the client's certificate, which may have expired since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn known(authorities: &[u8], allowed: Vec<String>) -> Result<Arc<dyn ClientCertVerifier>, BadMaterial> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities).map_err(BadMaterial::Authorities)? {
        roots.add(authority).map_err(|_| BadMaterial::Authorities(BadPem::Unreadable))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|error| BadMaterial::Unusable(error.to_string()))?;
    Ok(if allowed.is_empty() { verifier } else { Arc::new(Listed { verifier, allowed }) })
}

/// Why a handshake came to nothing, as metrics and log call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It did not end in time.
    Timeout,
    /// The connection was closed in its midst, as by a probe that only looks whether the port is open.
    Closed,
    NotTls,
    NoCertificate,
    UnknownAuthority,
    /// Expired, or not valid yet.
    OutOfDate,
    /// A server's certificate, as a rule.
    WrongPurpose,
    NotAllowed,
    /// No version of TLS, cipher or protocol that both sides speak.
    Incompatible,
    /// The client does not take our certificate.
    ByClient,
    Other,
}

impl Refusal {
    pub const ALL: [Self; 11] = [
        Self::Timeout,
        Self::Closed,
        Self::NotTls,
        Self::NoCertificate,
        Self::UnknownAuthority,
        Self::OutOfDate,
        Self::WrongPurpose,
        Self::NotAllowed,
        Self::Incompatible,
        Self::ByClient,
        Self::Other,
    ];

    /// Why a handshake ended with this error.
    pub fn of(error: &io::Error) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
        match cause {
            None if error.kind() == io::ErrorKind::TimedOut => Self::Timeout,
            None => Self::Closed,
            Some(Error::InvalidMessage(_)) => Self::NotTls,
            Some(Error::NoCertificatesPresented) => Self::NoCertificate,
            Some(Error::PeerIncompatible(_) | Error::NoApplicationProtocol) => Self::Incompatible,
            Some(Error::AlertReceived(_)) => Self::ByClient,
            Some(Error::InvalidCertificate(why)) => match why {
                CertificateError::UnknownIssuer => Self::UnknownAuthority,
                CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Self::WrongPurpose,
                CertificateError::ApplicationVerificationFailure => Self::NotAllowed,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::OutOfDate,
                _ => Self::Other,
            },
            Some(_) => Self::Other,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::NotTls => "not_tls",
            Self::NoCertificate => "no_certificate",
            Self::UnknownAuthority => "unknown_authority",
            Self::OutOfDate => "out_of_date",
            Self::WrongPurpose => "wrong_purpose",
            Self::NotAllowed => "not_allowed",
            Self::Incompatible => "incompatible",
            Self::ByClient => "by_client",
            Self::Other => "other",
        }
    }

    /// What an operator can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Timeout => "look at what lies between it and Tallygate",
            Self::Closed => "nothing, if it is a probe of the port",
            Self::NotTls => "give Envoy's cluster a TLS transport socket",
            Self::NoCertificate => "give Envoy's cluster a client certificate",
            Self::UnknownAuthority => "the authority that signed its certificate is not in server.tls.client_ca_file",
            Self::OutOfDate => "renew its certificate, or look at the clocks",
            Self::WrongPurpose => "its certificate is not for clients: the extended key usage lacks clientAuth",
            Self::NotAllowed => "if it may ask, write the SPIFFE ID of its certificate into server.tls.allowed_clients",
            Self::Incompatible => "it needs TLS 1.2 or 1.3, and h2 among its alpn_protocols if it names any",
            Self::ByClient => {
                "it does not believe server.tls.certificate_file: give it the authority and the name in it"
            }
            Self::Other => "",
        }
    }
}

/// Asks, beyond a valid certificate, for one of the listed IDs.
#[derive(Debug)]
struct Listed {
    verifier: Arc<dyn ClientCertVerifier>,
    allowed: Vec<String>,
}

impl ClientCertVerifier for Listed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now)?;
        let is_allowed = spiffe_id(end_entity).is_some_and(|id| self.allowed.contains(&id));
        // The client reads "access denied".
        let denied = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        is_allowed.then_some(verified).ok_or(denied)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
