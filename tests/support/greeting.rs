//! A client of TLS that can do less, or other, than a client should: what comes of its handshake, and of the first frames of
//! HTTP/2 behind it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};

use super::tls::pem;

pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// The preface of HTTP/2 with the client's settings, none.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// One client, which resumes its sessions where the server lets it.
pub struct Greeter {
    config: Arc<ClientConfig>,
    own: Arc<Always>,
}

/// How the handshake went.
#[derive(Debug, PartialEq, Eq)]
pub struct Greeting {
    pub is_resumed: bool,
    pub protocol: Option<String>,
    /// How many authorities the server named when it asked for a certificate: a client with several chooses by that.
    pub authorities: usize,
}

/// The certificate chain and the key of one who connects, as files of `certs/`.
pub struct Shown<'a> {
    pub chain: &'a [&'a str],
    pub key: &'a str,
}

impl Greeter {
    /// Believes the authority `ca`, and shows this.
    pub fn new(ca: &str, shown: &Shown<'_>, version: &'static SupportedProtocolVersion, protocols: &[&str]) -> Self {
        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::from_pem_file(pem(shown.key)).expect("a private key");
        let key = provider.key_provider.load_private_key(key).expect("a key of a known kind");
        let certificates = shown.chain.iter().flat_map(|name| chain(name)).collect();
        let mut authorities = RootCertStore::empty();
        authorities.add_parsable_certificates(chain(ca));
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
        let builder = builder.expect("ring knows it").with_root_certificates(authorities);
        // Unlike the usual way, this does not ask whether the two belong together.
        let own = Arc::new(Always { key: Arc::new(CertifiedKey::new(certificates, key)), asked: AtomicUsize::new(0) });
        let mut config = builder.with_client_cert_resolver(Arc::clone(&own) as Arc<dyn ResolvesClientCert>);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self { config: Arc::new(config), own }
    }

    /// What a client with this certificate does that has no wishes of its own.
    pub fn usual(ca: &str, name: &str, version: &'static SupportedProtocolVersion) -> Self {
        Self::new(ca, &Shown { chain: &[name], key: &format!("{name}-key") }, version, &["h2"])
    }

    /// Connects and waits for the server's first frame. TLS 1.3 lets a client speak before it hears that it is refused.
    pub fn greet(&self, address: &str) -> io::Result<Greeting> {
        let mut stream = self.connect(address)?;
        stream.write_all(HELLO)?;
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        assert_eq!(head[3], 4, "the first frame of a server is its settings");
        Ok(Greeting {
            is_resumed: stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
            protocol: stream.conn.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
            authorities: self.own.asked.load(Ordering::Relaxed),
        })
    }

    /// Says this behind the preface, and waits until the server closes the connection. The error is that of the handshake, or that it
    /// does not.
    pub fn say(&self, address: &str, words: &[u8]) -> io::Result<()> {
        let mut stream = self.connect(address)?;
        stream.write_all(HELLO)?;
        stream.read_exact(&mut [0; 9])?;
        stream.write_all(words)?;
        match stream.read_to_end(&mut Vec::new()) {
            Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) => Err(error),
            // However it is closed.
            _ => Ok(()),
        }
    }

    fn connect(&self, address: &str) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let server = ServerName::try_from("127.0.0.1").expect("an address is a name");
        let connection = ClientConnection::new(Arc::clone(&self.config), server).map_err(io::Error::other)?;
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(StreamOwned::new(connection, stream))
    }
}

/// Shows the same to every server.
#[derive(Debug)]
struct Always {
    key: Arc<CertifiedKey>,
    asked: AtomicUsize,
}

impl ResolvesClientCert for Always {
    fn resolve(&self, authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(authorities.len(), Ordering::Relaxed);
        Some(Arc::clone(&self.key))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn chain(name: &str) -> Vec<CertificateDer<'static>> {
    let certificates = CertificateDer::pem_file_iter(pem(name)).expect("a file of certificates");
    certificates.collect::<Result<_, _>>().expect("certificates")
}
