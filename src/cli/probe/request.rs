//! An operator's request as the check that Envoy would send.

use envoy_types::pb::envoy::config::core::v3::{Address, HeaderMap, HeaderValue, Metadata, SocketAddress, address};
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer, Request};
use envoy_types::pb::envoy::service::auth::v3::{AttributeContext, CheckRequest};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};
use serde_json::Value as Json;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};

use crate::cli::asked::Asked;

/// The message, with `call` in the metadata of the gRPC call.
pub fn check(asked: Asked) -> Result<tonic::Request<CheckRequest>, String> {
    let call = asked.call.clone();
    let mut request = tonic::Request::new(message(asked));
    for (key, value) in call {
        let wrong = || format!("--call {key}: a key is a lower-case header name, a value is printable ASCII");
        let name = AsciiMetadataKey::from_bytes(key.as_bytes()).map_err(|_| wrong())?;
        request.metadata_mut().insert(name, AsciiMetadataValue::try_from(value).map_err(|_| wrong())?);
    }
    Ok(request)
}

fn message(asked: Asked) -> CheckRequest {
    let line = |(key, raw_value)| HeaderValue { key, raw_value, ..Default::default() };
    let lines: Vec<_> = asked.lines.into_iter().map(line).collect();
    let http = HttpRequest {
        method: asked.method,
        path: asked.path,
        host: asked.host,
        headers: asked.headers,
        header_map: (!lines.is_empty()).then_some(HeaderMap { headers: lines }),
        ..Default::default()
    };
    let socket = |ip: std::net::IpAddr| SocketAddress { address: ip.to_string(), ..Default::default() };
    let address = |ip| Address { address: Some(address::Address::SocketAddress(socket(ip))) };
    let source = Peer { address: asked.source.map(address), principal: asked.principal, ..Default::default() };
    let namespaces = asked.metadata.as_object().into_iter().flatten();
    let fields = namespaces.filter_map(|(name, fields)| Some((name.clone(), structure(fields.as_object()?))));
    let metadata = Metadata { filter_metadata: fields.collect(), ..Default::default() };
    CheckRequest {
        attributes: Some(AttributeContext {
            source: Some(source),
            request: Some(Request { http: Some(http), ..Default::default() }),
            context_extensions: asked.route,
            metadata_context: Some(metadata),
            ..Default::default()
        }),
    }
}

fn structure(fields: &serde_json::Map<String, Json>) -> Struct {
    Struct { fields: fields.iter().map(|(name, field)| (name.clone(), value(field))).collect() }
}

fn value(json: &Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(truth) => Kind::BoolValue(*truth),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(list) => Kind::ListValue(ListValue { values: list.iter().map(value).collect() }),
        Json::Object(fields) => Kind::StructValue(structure(fields)),
    };
    Value { kind: Some(kind) }
}
