//! Honest inputs that the mutations start from.

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};
use prost::Message;

use super::driver::Random;
use super::mutate;
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

/// A message for the targets that read requests: one of odd texts in its right form, or an honest one with changed bytes,
/// which mostly breaks its form.
pub fn message(random: &mut Random, honest: &[Vec<u8>]) -> Vec<u8> {
    match random.below(3) {
        0 => mutate::mutated(random, honest, &WORDS),
        1 => odd(random),
        _ => {
            let odd = odd(random);
            mutate::mutated(random, &[odd], &WORDS)
        }
    }
}

/// A request whose form is right and whose texts are not.
fn odd(random: &mut Random) -> Vec<u8> {
    let mut check = Check::get(&text(random)).host(&text(random)).method(&text(random));
    for _ in 0..random.below(8) {
        check = match random.below(8) {
            0 => check.route(random.word(&["tenant", "subject", "cost"]), &text(random)),
            1 => check.header(random.word(&["x-user", "x-forwarded-for", "content-type"]), &text(random)),
            2 => check.raw_header(random.word(&["x-user", "X-Forwarded-For", "content-type"]), &bytes(random)),
            3 => check.principal(&format!("{}{}", random.word(&["", "spiffe://td.example/"]), text(random))),
            4 => check.source(&format!("{}{}", random.word(&["", "203.0.113.7", "10.0.0.9", "::ffff:"]), text(random))),
            5 => check.path(&format!("/orders{}", text(random))),
            _ => {
                let name = random.word(&["tid", "sub", "iss", "realm"]);
                let kind = kind(random, 0);
                check.claim_of(name, kind)
            }
        };
    }
    check.build().encode_to_vec()
}

fn kind(random: &mut Random, depth: usize) -> Kind {
    let value = |random: &mut Random| Value { kind: Some(kind(random, depth + 1)) };
    match random.below(if depth > 8 { 4 } else { 6 }) {
        0 => Kind::NullValue(i32::from(random.byte())),
        1 => Kind::BoolValue(true),
        2 => Kind::NumberValue(f64::from_bits(random.next())),
        3 => Kind::StringValue(text(random)),
        4 => Kind::ListValue(ListValue { values: vec![value(random)] }),
        _ => {
            let name = random.word(&["sub", "user", ""]).to_string();
            Kind::StructValue(Struct { fields: [(name, value(random))].into() })
        }
    }
}

fn text(random: &mut Random) -> String {
    String::from_utf8_lossy(&bytes(random)).into_owned()
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(5) {
        match random.below(4) {
            0 => bytes.extend(*random.one_of::<&[u8]>(&WORDS)),
            1 => {
                let c = char::from_u32(
                    u32::from_le_bytes(random.next().to_le_bytes()[..4].try_into().expect("four")) >> 11,
                );
                bytes.extend(c.unwrap_or('\u{fffd}').to_string().into_bytes());
            }
            2 => bytes.push(random.byte()),
            _ => bytes.extend(random.word(&["ada", "acme", "7", "a"]).repeat(1 + random.below(3)).bytes()),
        }
    }
    // Now and then beyond every bound.
    let times = if random.below(50) == 0 { 400 } else { 1 };
    bytes.repeat(times)
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
