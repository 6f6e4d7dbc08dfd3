//! Only verified evidence counts, and each kind has its own keys (P9). The keys are worked out from their description,
//! so these tests also hold what goes into them.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::envoy::service::auth::v3::CheckResponse;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};

use prost::Message;

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::grpc::CHECK;
use crate::support::keys::{self, Part};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const TENANT: Part<'static> = ("route/tenant", "", b"acme");
const IDP: &str = "https://idp.example";

/// A sidecar that takes the tenant from the route and the subject from `source`, limit 1.
fn subject_from(source: &str) -> (RedisServer, Sidecar) {
    let redis = RedisServer::start();
    let identity = format!("\n  tenant: [{{ route: tenant }}]\n  subject: [{source}]");
    let sidecar = Setup::redis(redis.port()).identity(&identity).policy("orders", 1, "60s", "closed").start();
    (redis, sidecar)
}

fn orders() -> Check {
    Check::get("/orders").route("tenant", "acme")
}

/// Each check is allowed once under the key of its evidence, then limited.
#[track_caller]
fn counts_under(redis: &RedisServer, sidecar: &Sidecar, check: &Check, subject: Part<'_>) {
    let client = sidecar.client();
    assert_eq!(client.check(check).outcome(), Outcome::Allowed);
    let key = keys::key("orders", 60_000, &[TENANT, subject]);
    assert_eq!(redis.get(&key).as_deref(), Some("1"), "counted under {key}, not {:?}", redis.keys());
    assert_eq!(client.check(check).outcome(), Outcome::Limited);
}

/// None of these is anybody: 401, again and again, and no key.
#[track_caller]
fn nobody(redis: &RedisServer, sidecar: &Sidecar, checks: &[Check]) {
    let client = sidecar.client();
    let (before, counted) = (redis.keys(), sidecar.metrics().verdicts("orders", "unidentified"));
    for (n, check) in checks.iter().enumerate() {
        for _ in 0..2 {
            assert_eq!(client.check(check).outcome(), Outcome::Unauthorized, "case {n}");
        }
    }
    assert_eq!(redis.keys(), before, "no shared bucket and no random one");
    let now = sidecar.metrics().verdicts("orders", "unidentified");
    assert_eq!(now - counted, 2 * checks.len() as u64);
}

#[test]
fn a_claim_of_a_verified_token_is_an_identity_with_its_issuer() {
    let source = format!("{{ jwt: {{ claim: sub, issuers: ['{IDP}', 'https://other.example'] }} }}");
    let (redis, sidecar) = subject_from(&source);
    let token = |issuer, subject| orders().claim("iss", issuer).claim("sub", subject);
    counts_under(&redis, &sidecar, &token(IDP, "ada"), ("jwt/sub", IDP, b"ada"));
    // The same name from another issuer is another subject.
    let other = "https://other.example";
    counts_under(&redis, &sidecar, &token(other, "ada"), ("jwt/sub", other, b"ada"));
    nobody(&redis, &sidecar, &[token("https://evil.example", "ada"), orders().claim("sub", "ada"), orders()]);
}

// RL-16: a claim of another type is refused, never printed into a key.
#[test]
fn only_a_text_is_a_claim() {
    let (redis, sidecar) = subject_from(&format!("{{ jwt: {{ claim: sub, issuers: ['{IDP}'] }} }}"));
    let with = |kind| orders().claim("iss", IDP).claim_of("sub", kind);
    let odd = [
        Kind::NumberValue(1.0),
        Kind::NumberValue(1.5),
        Kind::NumberValue(-1.0),
        Kind::NumberValue(1e30),
        // What Envoy makes of ...992 and of ...993.
        Kind::NumberValue(9_007_199_254_740_992.0),
        Kind::BoolValue(true),
        Kind::NullValue(0),
        Kind::ListValue(ListValue::default()),
        Kind::ListValue(ListValue { values: vec![Value { kind: Some(Kind::StringValue("u1".into())) }] }),
        Kind::StructValue(Struct::default()),
        Kind::StringValue(String::new()),
        Kind::StringValue("a".repeat(10 * 1024)),
    ];
    nobody(&redis, &sidecar, &odd.map(with));
    counts_under(&redis, &sidecar, &with(Kind::StringValue("1".into())), ("jwt/sub", IDP, b"1"));
}

// RL-16: the claim's way ends half-way down, or the filter left its namespace empty.
#[test]
fn a_claim_that_is_not_at_its_place_is_absent() {
    let (redis, sidecar) = subject_from("{ jwt: { claim: [realm, user, id] } }");
    let object = |name: &str, value| {
        let fields = [(name.to_owned(), Value { kind: Some(value) })].into();
        Kind::StructValue(Struct { fields })
    };
    let text = || Kind::StringValue("ada".into());
    let there = orders().claim_of("realm", object("user", object("id", text())));
    counts_under(&redis, &sidecar, &there, ("jwt/realm/user/id", "", b"ada"));
    let cases = [
        orders().claim_of("realm", object("user", object("name", text()))),
        orders().claim_of("realm", object("user", text())),
        orders().claim_of("realm", object("id", text())),
        orders().claim_of("realm", text()),
        orders().claim("realm/user/id", "ada"),
        orders().claim("realm.user.id", "ada"),
        orders().claim("other", "ada"),
        orders(),
    ];
    nobody(&redis, &sidecar, &cases);
}

// RL-16: what stands where the token's payload should be is no payload.
#[test]
fn metadata_without_a_payload_is_nobody() {
    let (redis, sidecar) = subject_from("{ jwt: { claim: sub } }");
    let fields = |name: &str, kind| Struct { fields: [(name.to_owned(), Value { kind: Some(kind) })].into() };
    let payload = || Kind::StructValue(fields("sub", Kind::StringValue("ada".into())));
    let jwt_authn = "envoy.filters.http.jwt_authn";
    for (namespace, found) in [
        (jwt_authn, Struct::default()),
        (jwt_authn, fields("jwt_payload", Kind::StructValue(Struct::default()))),
        (jwt_authn, fields("jwt_payload", Kind::StringValue("ada".into()))),
        (jwt_authn, fields("jwt_payload", Kind::NullValue(0))),
        (jwt_authn, fields("other_payload", payload())),
        (jwt_authn, fields("sub", Kind::StringValue("ada".into()))),
        ("envoy.filters.http.lua", fields("jwt_payload", payload())),
    ] {
        let mut request = orders().build();
        let filter_metadata = [(namespace.to_owned(), found)].into();
        let attributes = request.attributes.as_mut().unwrap();
        attributes.metadata_context = Some(Metadata { filter_metadata, ..Default::default() });
        let reply = sidecar.client().raw(CHECK, request.encode_to_vec()).unwrap();
        let answer = Answer { message: CheckResponse::decode(&*reply).unwrap(), took: Duration::ZERO };
        assert_eq!(answer.outcome(), Outcome::Unauthorized, "{namespace}: {:?}", request.attributes);
    }
    assert_eq!(redis.keys(), [""; 0]);
}

// RL-16: exact, apart from texts, and only where the operator said so.
#[test]
fn an_integer_is_an_identity_by_a_setting_and_never_the_text_that_looks_like_it() {
    let (redis, sidecar) = subject_from("{ jwt: { claim: sub, integers: true } }");
    let with = |kind| orders().claim_of("sub", kind);
    counts_under(&redis, &sidecar, &with(Kind::NumberValue(1.0)), ("jwt/sub", "", b"\x001"));
    counts_under(&redis, &sidecar, &with(Kind::StringValue("1".into())), ("jwt/sub", "", b"1"));
    let odd = [9_007_199_254_740_992.0, 1.5, -1.0, 1e30, f64::NAN].map(Kind::NumberValue).map(with);
    nobody(&redis, &sidecar, &odd);
    nobody(&redis, &sidecar, &[with(Kind::StringValue("\x001".into()))]);
}

// RL-15
#[test]
fn a_spiffe_id_of_the_trust_domain_is_an_identity_and_no_other_principal_is() {
    let (redis, sidecar) = subject_from("{ mtls: { trust_domain: td.example } }");
    let id = "spiffe://td.example/ns/a/sa/b";
    counts_under(&redis, &sidecar, &orders().principal(id), ("mtls", "", id.as_bytes()));
    let others = [
        "spiffe://other.example/ns/a/sa/b",
        "SPIFFE://td.example/ns/a/sa/b",
        "spiffe://td.example",
        "spiffe://td.example/ns/a/sa/b/",
        "spiffe://td.example/ns/a/../c",
        "spiffe://td.example.evil/ns/a",
        "schemexyz://td.example/a",
        "a.example",
        "CN=spiffe://td.example/ns/a/sa/b,O=x",
        "spiffe://td.example/a,spiffe://td.example/b",
        "",
    ];
    nobody(&redis, &sidecar, &others.map(|principal| orders().principal(principal)));
}

// RL-13
#[test]
fn a_source_address_is_an_identity_by_its_bits() {
    let (redis, sidecar) = subject_from("address");
    let from = |address| orders().source(address);
    counts_under(&redis, &sidecar, &from("203.0.113.7"), ("address", "", &[4, 32, 203, 0, 113, 7]));
    let client = sidecar.client();
    for (first, same, other) in [
        ("203.0.113.7", "::ffff:203.0.113.7", "203.0.113.8"),
        ("2001:db8:1:2::a", "2001:DB8:1:2:ffff::b", "2001:db8:1:3::a"),
    ] {
        client.check(&from(first));
        assert_eq!(client.check(&from(same)).outcome(), Outcome::Limited, "{same} is {first}");
        assert_eq!(client.check(&from(other)).outcome(), Outcome::Allowed, "{other} is not {first}");
    }
    nobody(&redis, &sidecar, &[orders().source_pipe("/run/peer.sock"), from("unknown"), from(""), orders()]);
}

#[test]
fn what_the_operator_wrote_on_the_route_is_an_identity() {
    let (redis, sidecar) = subject_from("{ route: caller }");
    counts_under(&redis, &sidecar, &orders().route("caller", "ada"), ("route/caller", "", b"ada"));
    nobody(&redis, &sidecar, &[orders(), orders().route("caller", ""), orders().header("caller", "ada")]);
}

const TRUSTED: &str = "{ header: { name: x-user, trusted_because: 'set by the filter of the edge' } }";

#[test]
fn a_trusted_header_is_an_identity_in_either_form_that_envoy_sends() {
    let (redis, sidecar) = subject_from(TRUSTED);
    counts_under(&redis, &sidecar, &orders().header("x-user", "ada"), ("header/x-user", "", b"ada"));
    let client = sidecar.client();
    assert_eq!(client.check(&orders().raw_header("x-user", b"ada")).outcome(), Outcome::Limited, "the same subject");
}

// RL-14
#[test]
fn a_trusted_header_that_is_not_one_certain_value_is_nobody() {
    let (redis, sidecar) = subject_from(TRUSTED);
    let cases = [
        orders().header("x-user", "a,b"),
        orders().header("x-user", "a, a"),
        orders().header("x-user", "us!r"),
        orders().header("x-user", ""),
        orders().header("x-user", &"a".repeat(64 * 1024)),
        orders().raw_header("x-user", b"a").raw_header("x-user", b"b"),
        orders().raw_header("x-user", b"a").raw_header("X-User", b"a"),
        orders().raw_header("x-user", b"a,b"),
        orders().raw_header("x-user", b"a, a"),
        orders().raw_header("x-user", b"us\xe9r"),
        orders().raw_header("x-user", b"us\xe8r"),
        orders().raw_header("x-user", b""),
        orders().raw_header("x-user", &[b'a'; 64 * 1024]),
        orders().raw_header("x-user", b"a").raw_header("x-user", b"a"),
        orders().header("x-user", "a").raw_header("x-user", b"b"),
        orders(),
    ];
    nobody(&redis, &sidecar, &cases);
}

// RL-14 h, RL-17: without the operator's word a header is nothing, and neither is an unverified token.
#[test]
fn a_header_that_nobody_declared_trusted_has_no_influence() {
    let (redis, sidecar) = subject_from("{ route: subject }");
    let forged = |n: usize| {
        let raw =
            if n.is_multiple_of(2) { orders() } else { orders().raw_header("x-user", format!("user-{n}").as_bytes()) };
        let check = raw.header("x-user", &format!("user-{n}")).header("x-tenant", &format!("tenant-{n}"));
        check.header("authorization", &format!("Bearer token-{n}")).header("x-forwarded-for", &format!("192.0.2.{n}"))
    };
    nobody(&redis, &sidecar, &(0..10).map(forged).collect::<Vec<_>>());
    let client = sidecar.client();
    assert_eq!(client.check(&forged(0).route("subject", "ada")).outcome(), Outcome::Allowed);
    for n in 1..10 {
        assert_eq!(client.check(&forged(n).route("subject", "ada")).outcome(), Outcome::Limited);
    }
}

#[test]
fn the_first_source_that_yields_decides_and_a_spoilt_one_is_not_passed_over() {
    let jwt = format!("{{ jwt: {{ claim: sub, issuers: ['{IDP}'] }} }}");
    let (redis, sidecar) = subject_from(&format!("{jwt}, {TRUSTED}"));
    let both = orders().claim("iss", IDP).claim("sub", "ada").header("x-user", "eve");
    counts_under(&redis, &sidecar, &both, ("jwt/sub", IDP, b"ada"));
    counts_under(&redis, &sidecar, &orders().header("x-user", "eve"), ("header/x-user", "", b"eve"));
    let spoilt = orders().claim("iss", IDP).claim_of("sub", Kind::NumberValue(1.0)).header("x-user", "mallory");
    nobody(&redis, &sidecar, &[spoilt]);
}
