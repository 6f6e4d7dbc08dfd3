//! Check requests as Envoy sends them.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::service::auth::v3::{AttributeContext, CheckRequest, attribute_context as parts};
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};

/// A request to ask about, built step by step.
#[derive(Clone, Default)]
pub struct Check {
    http: parts::HttpRequest,
    source: parts::Peer,
    route: HashMap<String, String>,
    claims: HashMap<String, Value>,
}

impl Check {
    /// A request from nobody.
    pub fn get(path: &str) -> Self {
        let mut check = Self::default();
        check.http.method = "GET".into();
        check.http.path = path.into();
        check.http.host = "localhost".into();
        check
    }

    /// A request for `/orders` by a subject of tenant `acme`, both named by the route.
    pub fn of(subject: &str) -> Self {
        Self::get("/orders").route("tenant", "acme").route("subject", subject)
    }

    pub fn path(mut self, path: &str) -> Self {
        self.http.path = path.into();
        self
    }

    pub fn method(mut self, method: &str) -> Self {
        self.http.method = method.into();
        self
    }

    pub fn host(mut self, host: &str) -> Self {
        self.http.host = host.into();
        self
    }

    /// A header in the form that Envoy uses by default: one entry a name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.http.headers.insert(name.into(), value.into());
        self
    }

    /// A header line in the form of `encode_raw_headers`: exact bytes, one entry a line.
    pub fn raw_header(mut self, name: &str, value: &[u8]) -> Self {
        let line = core::HeaderValue { key: name.into(), raw_value: value.into(), ..Default::default() };
        self.http.header_map.get_or_insert_default().headers.push(line);
        self
    }

    /// An entry of the route's context extensions.
    pub fn route(mut self, key: &str, value: &str) -> Self {
        self.route.insert(key.into(), value.into());
        self
    }

    /// The peer's IP address; its port is of no account.
    pub fn source(mut self, address: &str) -> Self {
        let port = core::socket_address::PortSpecifier::PortValue(4711);
        let socket = core::SocketAddress { address: address.into(), port_specifier: Some(port), ..Default::default() };
        self.source.address = Some(core::Address { address: Some(core::address::Address::SocketAddress(socket)) });
        self
    }

    /// A peer behind a Unix socket.
    pub fn source_pipe(mut self, path: &str) -> Self {
        let pipe = core::Pipe { path: path.into(), ..Default::default() };
        self.source.address = Some(core::Address { address: Some(core::address::Address::Pipe(pipe)) });
        self
    }

    /// The identity of the peer's certificate.
    pub fn principal(mut self, principal: &str) -> Self {
        self.source.principal = principal.into();
        self
    }

    /// A claim of a token that `jwt_authn` verified.
    pub fn claim(self, name: &str, value: &str) -> Self {
        self.claim_of(name, Kind::StringValue(value.into()))
    }

    /// The same, of any JSON type.
    pub fn claim_of(mut self, name: &str, kind: Kind) -> Self {
        self.claims.insert(name.into(), Value { kind: Some(kind) });
        self
    }

    /// The message.
    pub fn build(self) -> CheckRequest {
        let attributes = AttributeContext {
            source: Some(self.source),
            request: Some(parts::Request { http: Some(self.http), ..Default::default() }),
            context_extensions: self.route,
            // Envoy sends this field empty where no filter wrote anything.
            metadata_context: Some(if self.claims.is_empty() { core::Metadata::default() } else { jwt(self.claims) }),
            ..Default::default()
        };
        CheckRequest { attributes: Some(attributes) }
    }
}

/// What Envoy's `jwt_authn` leaves behind with `payload_in_metadata: jwt_payload`.
fn jwt(claims: HashMap<String, Value>) -> core::Metadata {
    let payload = Value { kind: Some(Kind::StructValue(Struct { fields: claims })) };
    let fields = HashMap::from([("jwt_payload".into(), payload)]);
    let namespace = "envoy.filters.http.jwt_authn".into();
    core::Metadata { filter_metadata: HashMap::from([(namespace, Struct { fields })]), ..Default::default() }
}
