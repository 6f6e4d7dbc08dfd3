//! Nobody home: a request without a verified identity meets an explicit answer, never a shared or a random bucket (P9, RL-17).

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const IDENTITY: &str = "
  tenant: [{ route: tenant }]
  subject: [{ jwt: { claim: sub } }, { mtls: { trust_domain: td.example } }, address]";

/// A policy with limit 5 and this answer for strangers.
fn start(redis: &RedisServer, identity: &str, on_unidentified: &str) -> Sidecar {
    let policy = format!(
        "
  - name: orders
    version: 1
    match: {{ path: {{ prefix: /orders }} }}
    limits: [{{ name: only, per: [tenant, subject], fixed_window: {{ limit: 5, window: 60s }} }}]
    on_unidentified: {on_unidentified}
    on_failure: closed"
    );
    Setup::redis(redis.port()).identity(identity).policies(&policy).start()
}

fn orders() -> Check {
    Check::get("/orders").route("tenant", "acme")
}

#[test]
fn nobody_is_refused_each_time_and_no_key_is_written() {
    let redis = RedisServer::start();
    for (on_unidentified, outcome, verdict) in [
        ("deny", Outcome::Unauthorized, "unidentified"),
        ("{ deny: { status: 403 } }", Outcome::Forbidden, "unidentified"),
        ("allow", Outcome::Allowed, "unidentified_allowed"),
    ] {
        let sidecar = start(&redis, IDENTITY, on_unidentified);
        let client = sidecar.client();
        // No metadata, no principal, no address; then a token that nobody verified, another one each time.
        let mut checks = vec![orders(); 20];
        checks.extend((0..20).map(|n| orders().header("authorization", &format!("Bearer {n}"))));
        for check in &checks {
            assert_eq!(client.check(check).outcome(), outcome, "{on_unidentified}");
        }
        assert_eq!(sidecar.metrics().verdicts("orders", verdict), 40);
        let labels = [("part", "subject"), ("reason", "absent")];
        assert_eq!(sidecar.metrics().count("tallygate_unidentified_total", &labels), 40);
        assert_eq!(redis.keys(), [""; 0], "{on_unidentified}");
    }
}

#[test]
fn an_unverified_token_has_no_influence() {
    let redis = RedisServer::start();
    let sidecar = start(&redis, IDENTITY, "deny");
    let client = sidecar.client();
    let with = |n: usize| orders().source("203.0.113.7").header("authorization", &format!("Bearer token-{n}"));
    let answers: Vec<_> = (0..20).map(|n| client.check(&with(n))).collect();
    assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (5, 15));
    assert_eq!(redis.keys().len(), 1);
}

#[test]
fn an_address_never_meets_a_token_or_a_certificate_of_the_same_bytes() {
    let redis = RedisServer::start();
    let sidecar = start(&redis, IDENTITY, "deny");
    let client = sidecar.client();
    // The bytes that stand for an address in a key, as the subject of a token.
    let bytes = String::from_utf8(vec![4, 32, 65, 66, 67, 68]).unwrap();
    for check in [
        orders().source("65.66.67.68"),
        orders().claim("sub", &bytes),
        orders().claim("sub", "65.66.67.68"),
        orders().claim("sub", "spiffe://td.example/a"),
        orders().principal("spiffe://td.example/a"),
    ] {
        let answers = client.check_times(&check, 6);
        assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (5, 1));
    }
    assert_eq!(redis.keys().len(), 5);
}

#[test]
fn strangers_can_be_counted_by_address_under_keys_of_their_own() {
    let redis = RedisServer::start();
    let identity = "
  tenant: [{ route: tenant }]
  subject: [{ jwt: { claim: sub } }]";
    let sidecar = start(&redis, identity, "{ address: { fixed_window: { limit: 2, window: 60s } } }");
    let client = sidecar.client();
    for address in ["203.0.113.7", "203.0.113.8"] {
        let answers = client.check_times(&orders().source(address), 4);
        assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (2, 2), "{address}");
    }
    assert_eq!(client.check(&orders().source("203.0.113.7").claim("sub", "ada")).outcome(), Outcome::Allowed);
    assert_eq!(redis.keys().len(), 3, "two strangers and ada");
    let ada = [("route/tenant", "", &b"acme"[..]), ("jwt/sub", "", b"ada")];
    assert_eq!(redis.get(&keys::key("orders", 60_000, &ada)).as_deref(), Some("1"), "ada's count is her own");
    // Without an address there is nothing left to count by.
    assert_eq!(client.check(&orders()).outcome(), Outcome::Unauthorized);
    assert_eq!(sidecar.metrics().verdicts("orders", "unidentified_denied"), 4);
}
