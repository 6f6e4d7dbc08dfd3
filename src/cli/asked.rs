//! A request as an operator describes it: in short form, or as the JSON of the CheckRequest that Envoy sent. `explain` judges it,
//! `probe` sends it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use clap::Args;
use serde_json::Value;

use super::pair;
use crate::decision::attributes::{Attributes, Claim, Headers, Metadata};

#[derive(Args)]
pub struct RequestArguments {
    /// A CheckRequest as JSON, in place of the options below ('-' reads standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["path", "method", "host", "header", "route", "claim", "principal", "source_address", "call"])]
    request: Option<PathBuf>,
    /// The request's path
    #[arg(long, default_value = "/")]
    path: String,
    /// The request's method
    #[arg(long, default_value = "GET")]
    method: String,
    /// The request's host
    #[arg(long, default_value = "localhost")]
    host: String,
    /// A request header
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::header)]
    header: Vec<(String, String)>,
    /// A value of the route's context_extensions
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    route: Vec<(String, String)>,
    /// A claim of a token that Envoy checked (iss is its issuer)
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    claim: Vec<(String, String)>,
    /// Where --claim stands in dynamic metadata
    #[arg(long, default_value = "envoy.filters.http.jwt_authn/jwt_payload", value_name = "NAMESPACE/PAYLOAD")]
    claims_at: String,
    /// The client certificate's identity, as Envoy sends it
    #[arg(long, default_value = "")]
    principal: String,
    /// The address of the TCP peer
    #[arg(long, value_name = "IP")]
    source_address: Option<IpAddr>,
    /// A value of the check's own gRPC metadata
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    call: Vec<(String, String)>,
}

/// A request, owned.
#[derive(Default)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub host: String,
    pub headers: HashMap<String, String>,
    /// Header lines with their exact bytes, where Envoy sent those instead.
    pub lines: Vec<(String, Vec<u8>)>,
    pub route: HashMap<String, String>,
    pub principal: String,
    pub source: Option<IpAddr>,
    pub metadata: Value,
    pub call: HashMap<String, String>,
}

impl RequestArguments {
    pub fn read(self) -> Result<Asked, String> {
        if let Some(file) = &self.request {
            return from_json(file);
        }
        let (namespace, payload) = self.claims_at.split_once('/').ok_or("write --claims-at as NAMESPACE/PAYLOAD")?;
        let claims: serde_json::Map<_, _> = self.claim.into_iter().map(|(k, v)| (k, Value::String(v))).collect();
        let metadata =
            if claims.is_empty() { Value::Null } else { serde_json::json!({ namespace: { payload: claims } }) };
        Ok(Asked {
            method: self.method,
            path: self.path,
            host: self.host,
            headers: joined(self.header),
            lines: Vec::new(),
            route: self.route.into_iter().collect(),
            principal: self.principal,
            source: self.source_address,
            metadata,
            call: self.call.into_iter().collect(),
        })
    }
}

impl Asked {
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes {
            method: &self.method,
            host: &self.host,
            path: &self.path,
            headers: Headers {
                joined: Some(&self.headers),
                lines: self.lines.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect(),
            },
            source: self.source,
            principal: &self.principal,
            route: &self.route,
            metadata: self,
        }
    }
}

impl Metadata for Asked {
    fn claim(&self, namespace: &str, path: &[&str]) -> Option<Claim<'_>> {
        let start = self.metadata.get(namespace)?;
        Some(match path.iter().try_fold(start, |value, step| value.get(step))? {
            Value::String(text) => Claim::Text(text),
            Value::Number(number) => Claim::Number(number.as_f64()?),
            _ => Claim::Other,
        })
    }

    fn call(&self, key: &str) -> Option<&str> {
        self.call.get(key).map(String::as_str)
    }
}

fn from_json(file: &Path) -> Result<Asked, String> {
    let read =
        if file == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let text = read.map_err(|error| format!("{}: {error}", file.display()))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let attributes = at(&json, &["attributes"]).ok_or("the JSON has no \"attributes\": it is no CheckRequest")?;
    let http = at(attributes, &["request", "http"]).unwrap_or(&Value::Null);
    let text = |value: &Value, path: &[&str]| at(value, path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let texts = |value: Option<&Value>| {
        let entries = value.and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    Ok(Asked {
        method: text(http, &["method"]),
        path: text(http, &["path"]),
        host: text(http, &["host"]),
        headers: texts(at(http, &["headers"])),
        lines: at(http, &["header_map", "headers"]).map_or_else(|| Ok(Vec::new()), lines)?,
        route: texts(at(attributes, &["context_extensions"])),
        principal: text(attributes, &["source", "principal"]),
        source: text(attributes, &["source", "address", "socket_address", "address"]).parse().ok(),
        metadata: at(attributes, &["metadata_context", "filter_metadata"]).cloned().unwrap_or_default(),
        call: HashMap::new(),
    })
}

/// Headers as Envoy sends them by default: the lines of one name become one, with commas.
fn joined(lines: Vec<(String, String)>) -> HashMap<String, String> {
    lines.into_iter().fold(HashMap::new(), |mut headers, (name, value)| {
        headers.entry(name).and_modify(|joined: &mut String| *joined += &format!(",{value}")).or_insert(value);
        headers
    })
}

/// The lines of `header_map` (`encode_raw_headers: true`), whose bytes stand in JSON as base64.
fn lines(list: &Value) -> Result<Vec<(String, Vec<u8>)>, String> {
    let lines = list.as_array().into_iter().flatten().map(|line| {
        let text = |name| at(line, &[name]).and_then(Value::as_str).unwrap_or_default();
        let raw = base64(text("raw_value")).ok_or("a rawValue in headerMap is not base64")?;
        let value = if raw.is_empty() { text("value").as_bytes().to_vec() } else { raw };
        Ok((text("key").to_ascii_lowercase(), value))
    });
    lines.collect()
}

/// Base64 of either alphabet, with or without padding, as protobuf's JSON takes it.
fn base64(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    GeneralPurpose::new(alphabet, config).decode(text).ok()
}

/// The value at a path of snake_case names, which protobuf's JSON writes in lowerCamelCase too.
fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, name| value.get(name).or_else(|| value.get(lower_camel(name))))
}

fn lower_camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |text, word| {
        let (head, tail) = word.split_at(word.len().min(1));
        text + &head.to_ascii_uppercase() + tail
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_headers_are_read_with_their_bytes() {
        let list = serde_json::json!([
            { "key": "x-user", "rawValue": "dXPpcg==" }, { "key": "X-Tenant", "raw_value": "YWNtZQ" }, { "key": "x", "value": "y" }
        ]);
        let line = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        assert_eq!(lines(&list), Ok(vec![line("x-user", b"us\xe9r"), line("x-tenant", b"acme"), line("x", b"y")]));
        assert!(lines(&serde_json::json!([{ "key": "x", "rawValue": "?" }])).is_err());
        assert_eq!(base64("A"), None);
        assert_eq!(base64("-_8"), Some(vec![0xfb, 0xff]));
    }

    #[test]
    fn lines_of_one_header_are_joined_as_envoy_joins_them() {
        let typed =
            [("x-user", "a"), ("x", "y"), ("x-user", "b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(joined(typed.into())["x-user"], "a,b");
    }

    #[test]
    fn both_spellings_of_protobufs_json_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("request.json");
        for text in [
            r#"{"attributes":{"source":{"principal":"spiffe://td/a","address":{"socketAddress":{"address":"203.0.113.7"}}},
                "request":{"http":{"method":"GET","path":"/orders","host":"h","headers":{"x-user":"ada"}}},
                "contextExtensions":{"tenant":"acme"},"metadataContext":{"filterMetadata":{"ns":{"p":{"sub":"ada","n":1}}}}}}"#,
            r#"{"attributes":{"source":{"principal":"spiffe://td/a","address":{"socket_address":{"address":"203.0.113.7"}}},
                "request":{"http":{"method":"GET","path":"/orders","host":"h","headers":{"x-user":"ada"}}},
                "context_extensions":{"tenant":"acme"},"metadata_context":{"filter_metadata":{"ns":{"p":{"sub":"ada","n":1}}}}}}"#,
        ] {
            std::fs::write(&file, text).unwrap();
            let asked = from_json(&file).unwrap();
            let attributes = asked.attributes();
            assert_eq!((attributes.path, attributes.principal), ("/orders", "spiffe://td/a"));
            assert_eq!(attributes.source, "203.0.113.7".parse().ok());
            assert_eq!(attributes.route["tenant"], "acme");
            assert_eq!(attributes.headers.single("x-user"), Ok(Some("ada")));
            assert_eq!(attributes.metadata.claim("ns", &["p", "sub"]), Some(Claim::Text("ada")));
            assert_eq!(attributes.metadata.claim("ns", &["p", "n"]), Some(Claim::Number(1.0)));
        }
    }
}
