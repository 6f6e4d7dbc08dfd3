//! Honest inputs that the mutations start from.

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct};
use prost::Message;

use crate::support::check::Check;

/// The identity section under which each of [`requests`] names somebody.
pub const IDENTITY: &str = "
  tenant: [{ jwt: { claim: tid, integers: true } }, { route: tenant }]
  subject:
    - jwt: { claim: [realm, sub], issuers: [https://idp.example] }
    - jwt: { claim: sub }
    - mtls: { trust_domain: td.example }
    - header: { name: x-user, trusted_because: set by the edge }
    - address
  address: { source: { forwarded: { trusted_peers: [10.0.0.0/8], trusted_hops: 2 } } }";

/// Check requests in each form that Envoy sends.
pub fn requests() -> Vec<Vec<u8>> {
    let token = || Check::get("/orders/7?x=1").claim("iss", "https://idp.example").claim("tid", "acme");
    let checks = [
        Check::of("ada"),
        token().claim("sub", "ada"),
        token().claim_of("sub", Kind::NumberValue(9_007_199_254_740_993.0)),
        token().claim_of("tid", Kind::NumberValue(7.0)).claim_of("sub", Kind::ListValue(ListValue::default())),
        token().claim_of("realm", Kind::StructValue(Struct::default())).claim_of("sub", Kind::NullValue(0)),
        Check::of("ada").route("subject", "").principal("spiffe://td.example/ns/a/sa/b").method("POST"),
        Check::of("ada").route("subject", "").header("x-user", "ada").host("EXAMPLE.com:8080"),
        Check::of("ada").raw_header("x-user", b"us\xe9r").raw_header("content-type", b"application/grpc"),
        Check::of("ada").source("203.0.113.7"),
        Check::of("ada").source("10.0.0.9").header("x-forwarded-for", "203.0.113.7, 10.1.1.1:80, [2001:db8::1]:443"),
        Check::of("ada").source("2001:db8::1").path("//a/./b/../%6frders"),
        Check::of("ada").source_pipe("/run/peer.sock").path("/orders%2f1"),
        Check::get("*"),
    ];
    let mut seeds: Vec<_> = checks.into_iter().map(|check| check.build().encode_to_vec()).collect();
    seeds.extend([vec![], vec![0x0a, 0x00], vec![0x0a, 0x04, 0x22, 0x02, 0x12, 0x00]]);
    seeds
}

/// Words that mean something in a request.
pub const WORDS: [&[u8]; 20] = [
    b"/orders",
    b"/../",
    b"/./",
    b"//",
    b"%2f",
    b"%2e%2e",
    b"%00",
    b"%",
    b"\\",
    b";",
    b"x-user",
    b"jwt_payload",
    b"spiffe://td.example/a",
    b"::ffff:203.0.113.7",
    b"[::1]:80",
    b", ",
    b"\xc3\xa9",
    b"\xff",
    b"!",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
];
