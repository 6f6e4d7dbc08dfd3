//! CheckRequest → Attributes: the only reader of Envoy's request types.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::LazyLock;

use envoy_types::pb::envoy::config::core::v3::{Metadata as EnvoyMetadata, address, socket_address};
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer};
use envoy_types::pb::envoy::service::auth::v3::{AttributeContext, CheckRequest};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};

use tonic::metadata::MetadataMap;

use super::response::Caller;
use crate::decision::attributes::{Attributes, Claim, Headers, Metadata};

static NOTHING: LazyLock<HashMap<String, String>> = LazyLock::new(HashMap::new);

/// A message with its optional layers taken off; every layer may be missing.
pub struct View<'a> {
    context: Option<&'a AttributeContext>,
    http: Option<&'a HttpRequest>,
    metadata: ForwardedMetadata<'a>,
}

impl<'a> View<'a> {
    /// `call` is the gRPC metadata that the message came with.
    pub fn of(message: &'a CheckRequest, call: &'a MetadataMap) -> Self {
        let context = message.attributes.as_ref();
        let http = context.and_then(|context| context.request.as_ref()?.http.as_ref());
        let dynamic = context.and_then(|context| context.metadata_context.as_ref());
        let metadata = ForwardedMetadata { dynamic, call };
        Self { context, http, metadata }
    }

    pub fn attributes(&self) -> Attributes<'_> {
        let source = self.context.and_then(|context| context.source.as_ref());
        Attributes {
            method: self.http.map_or("", |http| &http.method),
            host: self.http.map_or("", |http| &http.host),
            path: self.http.map_or("", |http| &http.path),
            headers: self.headers(),
            source: source.and_then(peer_address),
            principal: source.map_or("", |source| &source.principal),
            route: self.context.map_or(&*NOTHING, |context| &context.context_extensions),
            metadata: &self.metadata,
        }
    }

    /// Who gets the answer: Envoy makes a gRPC reply for these content types, compared as Envoy compares them.
    pub fn caller(&self) -> Caller {
        match self.headers().single("content-type") {
            Ok(Some(t)) if t == "application/grpc" || t.starts_with("application/grpc+") => Caller::Grpc,
            _ => Caller::Http,
        }
    }

    fn headers(&self) -> Headers<'_> {
        let Some(http) = self.http else {
            return Headers::default();
        };
        let lines = http.header_map.iter().flat_map(|map| &map.headers).map(|line| {
            // Envoy puts the value into one of the two, by its `encode_raw_headers`.
            let value = if line.raw_value.is_empty() { line.value.as_bytes() } else { &line.raw_value };
            (line.key.as_str(), value)
        });
        Headers { joined: Some(&http.headers), lines: lines.collect() }
    }
}

/// The peer's address; `None` for a Unix socket, an internal listener, or text that is no address.
fn peer_address(peer: &Peer) -> Option<IpAddr> {
    match peer.address.as_ref()?.address.as_ref()? {
        address::Address::SocketAddress(socket) if socket.protocol == socket_address::Protocol::Tcp as i32 => {
            socket.address.parse().ok()
        }
        _ => None,
    }
}

/// Dynamic metadata as Envoy forwards it, and the metadata of its call.
struct ForwardedMetadata<'a> {
    dynamic: Option<&'a EnvoyMetadata>,
    call: &'a MetadataMap,
}

impl Metadata for ForwardedMetadata<'_> {
    fn claim(&self, namespace: &str, path: &[&str]) -> Option<Claim<'_>> {
        let fields: &Struct = self.dynamic?.filter_metadata.get(namespace)?;
        let (last, parents) = path.split_last()?;
        let parent =
            parents.iter().try_fold(fields, |fields, step| match fields.fields.get(*step)?.kind.as_ref()? {
                Kind::StructValue(inner) => Some(inner),
                _ => None,
            })?;
        let Value { kind } = parent.fields.get(*last)?;
        Some(match kind {
            Some(Kind::StringValue(text)) => Claim::Text(text),
            Some(Kind::NumberValue(number)) => Claim::Number(*number),
            _ => Claim::Other,
        })
    }

    /// Only a single text value: a repeated key is no certain one.
    fn call(&self, key: &str) -> Option<&str> {
        let mut values = self.call.get_all(key).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::core::v3::{Address, HeaderMap, HeaderValue, Pipe, SocketAddress};
    use envoy_types::pb::envoy::service::auth::v3::attribute_context;

    use super::*;

    fn with_http(http: HttpRequest) -> CheckRequest {
        let request = attribute_context::Request { http: Some(http), ..Default::default() };
        CheckRequest { attributes: Some(AttributeContext { request: Some(request), ..Default::default() }) }
    }

    #[test]
    fn a_message_with_nothing_in_it_is_a_request_with_nothing_in_it() {
        let empty = CheckRequest::default();
        let call = MetadataMap::new();
        let view = View::of(&empty, &call);
        let attributes = view.attributes();
        assert_eq!((attributes.path, attributes.principal, attributes.source), ("", "", None));
        assert_eq!(attributes.metadata.claim("ns", &["a"]), None);
        assert_eq!(view.caller(), Caller::Http);
    }

    #[test]
    fn both_header_forms_are_read() {
        let line = |value: &str, raw: &[u8]| HeaderValue {
            key: "x-user".into(),
            value: value.into(),
            raw_value: raw.to_vec(),
        };
        for line in [line("ada", b""), line("", b"ada")] {
            let header_map = Some(HeaderMap { headers: vec![line] });
            let message = with_http(HttpRequest { header_map, ..Default::default() });
            assert_eq!(View::of(&message, &MetadataMap::new()).attributes().headers.single("x-user"), Ok(Some("ada")));
        }
    }

    #[test]
    fn only_exact_grpc_content_types_are_grpc_callers() {
        for (content_type, caller) in [
            ("application/grpc", Caller::Grpc),
            ("application/grpc+proto", Caller::Grpc),
            ("application/grpc;charset=utf-8", Caller::Http),
            ("APPLICATION/GRPC", Caller::Http),
            ("application/grpc-web", Caller::Http),
            ("application/json", Caller::Http),
        ] {
            let headers = HashMap::from([("content-type".to_owned(), content_type.to_owned())]);
            let message = with_http(HttpRequest { headers, ..Default::default() });
            assert_eq!(View::of(&message, &MetadataMap::new()).caller(), caller, "{content_type}");
        }
    }

    #[test]
    fn only_a_tcp_peer_has_an_address() {
        let from = |address| {
            let peer = Peer { address: Some(Address { address: Some(address) }), ..Default::default() };
            peer_address(&peer)
        };
        let socket = |text: &str, protocol| {
            address::Address::SocketAddress(SocketAddress { address: text.into(), protocol, ..Default::default() })
        };
        assert_eq!(from(socket("203.0.113.7", 0)), "203.0.113.7".parse().ok());
        assert_eq!(from(socket("2001:db8::1", 0)), "2001:db8::1".parse().ok());
        assert_eq!(from(socket("203.0.113.7", 1)), None, "UDP");
        for text in ["203.0.113.007", "1.2.3", "unknown", "", "fe80::1%eth0", "203.0.113.7:80"] {
            assert_eq!(from(socket(text, 0)), None, "{text}");
        }
        assert_eq!(from(address::Address::Pipe(Pipe { path: "/x".into(), mode: 0 })), None);
        assert_eq!(from(address::Address::EnvoyInternalAddress(Default::default())), None);
    }

    #[test]
    fn claims_are_found_at_their_path_and_keep_their_type() {
        let value = |kind| Value { kind: Some(kind) };
        let object = |fields: Vec<(&str, Value)>| Struct {
            fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        };
        let payload = object(vec![
            ("sub", value(Kind::StringValue("ada".into()))),
            ("n", value(Kind::NumberValue(1.0))),
            ("list", value(Kind::ListValue(Default::default()))),
            ("realm", value(Kind::StructValue(object(vec![("id", value(Kind::StringValue("r".into())))])))),
        ]);
        let namespace = object(vec![("jwt_payload", value(Kind::StructValue(payload)))]);
        let metadata =
            EnvoyMetadata { filter_metadata: HashMap::from([("ns".to_owned(), namespace)]), ..Default::default() };
        let found = |path: &[&str]| {
            let call = MetadataMap::new();
            let metadata = ForwardedMetadata { dynamic: Some(&metadata), call: &call };
            match metadata.claim("ns", path) {
                Some(Claim::Text(text)) => text.to_owned(),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(found(&["jwt_payload", "sub"]), "ada");
        assert_eq!(found(&["jwt_payload", "realm", "id"]), "r");
        assert_eq!(found(&["jwt_payload", "n"]), "Some(Number(1.0))");
        assert_eq!(found(&["jwt_payload", "list"]), "Some(Other)");
        assert_eq!(found(&["jwt_payload", "realm"]), "Some(Other)");
        for missing in [&["jwt_payload", "x"][..], &["x", "sub"], &["jwt_payload", "sub", "y"], &[]] {
            assert_eq!(found(missing), "None", "{missing:?}");
        }
    }
}
