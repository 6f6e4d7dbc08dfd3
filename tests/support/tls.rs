//! TLS in front of a Redis: none of the servers that `make parts` fetches speaks it, so a real Envoy ends it for them.
//!
//! The certificates lie in `certs/`, beside the script that made them.

use std::path::PathBuf;

use super::envoy::Envoy;
use super::process::root;

pub struct TlsFront(Envoy);

impl TlsFront {
    /// In front of this loopback port, with the server certificate of this name.
    #[track_caller]
    pub fn start(redis: u16, certificate: &str) -> Self {
        Self::launch(redis, certificate, false)
    }

    /// The same, for clients with a certificate of our authority only.
    #[track_caller]
    pub fn start_for_known_clients(redis: u16, certificate: &str) -> Self {
        Self::launch(redis, certificate, true)
    }

    #[track_caller]
    fn launch(redis: u16, certificate: &str, known_clients: bool) -> Self {
        let (chain, key, ca) = (pem(certificate), pem(&format!("{certificate}-key")), pem("ca"));
        Self(Envoy::start(&format!(
            "admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}
static_resources:
  listeners:
  - name: tls
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          require_client_certificate: {known_clients}
          common_tls_context:
            validation_context: {{ trusted_ca: {{ filename: '{}' }} }}
            tls_certificates:
            - certificate_chain: {{ filename: '{}' }}
              private_key: {{ filename: '{}' }}
      filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: tls
          cluster: redis
  clusters:
  - name: redis
    connect_timeout: 1s
    load_assignment:
      cluster_name: redis
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {redis} }} }} }}
",
            ca.display(),
            chain.display(),
            key.display()
        )))
    }

    pub fn port(&self) -> u16 {
        self.0.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a TCP listener")
    }
}

/// A file of `certs/`.
pub fn pem(name: &str) -> PathBuf {
    root().join("tests/support/certs").join(name).with_extension("pem")
}
