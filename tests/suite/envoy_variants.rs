//! The shipped Envoy configuration with one change each that operators make.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tempfile::TempDir;

use crate::support::envoy::Envoy;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

const TOLERANT: (&str, &str) = ("failure_mode_allow: false", "failure_mode_allow: true");

// P8: Envoy's own tolerance is for a Tallygate that is gone, not for a Redis that is.
#[test]
fn a_closed_policy_stays_closed_where_envoy_is_told_to_let_requests_pass_on_errors() {
    let mut redis = RedisServer::start();
    let application = Upstream::start();
    let per = "[tenant]";
    let setup = Setup::redis(redis.port()).policy_per("orders", per, 5, "60s", "closed");
    let sidecar = setup.policy_per("catalog", per, 5, "60s", "envoy").start();
    let envoy = Envoy::shipped_with(sidecar.port(), application.port(), &[TOLERANT]);
    assert_eq!(envoy.get("/orders", &[]).status(), 200);
    redis.kill9();
    assert_eq!(envoy.get("/orders", &[]).status(), 503, "final, whatever Envoy is told");
    assert_eq!(envoy.get("/catalog", &[]).status(), 200, "this policy left it to Envoy");
    assert_eq!(envoy.counter("http.edge.ext_authz.tallygate.failure_mode_allowed"), 1);

    let foreign = keys::key("orders", 60_000, &[("route/tenant", "", b"demo")]);
    redis.restart();
    sidecar.wait_for_store();
    redis.run(&["SET", &foreign, "1"]);
    assert_eq!(envoy.get("/orders", &[]).status(), 503);
}

#[test]
fn a_policy_that_leaves_failures_to_envoy_is_503_by_default() {
    let mut redis = RedisServer::start();
    let application = Upstream::start();
    let sidecar = Setup::redis(redis.port()).policy_per("orders", "[tenant]", 5, "60s", "envoy").start();
    let envoy = Envoy::shipped_with(sidecar.port(), application.port(), &[]);
    redis.kill9();
    let response = envoy.get("/orders", &[]);
    assert_eq!(response.status(), 503);
    assert_eq!(response.one("retry-after"), "1");
    assert_eq!(envoy.counter("http.edge.ext_authz.tallygate.error"), 1, "counted as an error, not as a denial");
}

#[test]
fn envoy_reaches_tallygate_through_a_unix_socket() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("authz.sock").display().to_string();
    let setup = Setup::memory().listen(&format!("unix:{socket}"));
    let _sidecar = setup.policy_per("orders", "[tenant]", 2, "60s", "closed").start();
    let application = Upstream::start();
    let tcp = "{ socket_address: { address: 127.0.0.1, port_value: 1 } }";
    let pipe = format!("{{ pipe: {{ path: '{socket}' }} }}");
    let envoy = Envoy::shipped_with(1, application.port(), &[(tcp, &pipe)]);
    let statuses = [(); 3].map(|()| envoy.get("/orders", &[]).status());
    assert_eq!(statuses, [200, 200, 429]);
}

const ISSUER: &str = "https://idp.example";
const JWT_KEY: &[u8] = b"the key of the identity provider";

/// A token as an identity provider signs it (RFC 7515, HS256).
fn token(key: &[u8], subject: &str) -> String {
    let head = base64url(br#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = base64url(format!(r#"{{"iss":"{ISSUER}","sub":"{subject}"}}"#).as_bytes());
    let signed = format!("{head}.{claims}");
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", base64url(&mac.finalize().into_bytes()))
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let word = chunk.iter().chain([&0; 2]).take(3).fold(0, |word, byte| word << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(ALPHABET[word >> shift & 63])).into_iter().take(chunk.len() + 1)
    });
    digits.collect()
}

#[test]
fn a_token_that_envoy_verified_names_the_subject_and_a_forged_one_names_nobody() {
    let redis = RedisServer::start();
    let identity =
        format!("\n  tenant: [{{ route: tenant }}]\n  subject: [{{ jwt: {{ claim: sub, issuers: ['{ISSUER}'] }} }}]");
    let sidecar = Setup::redis(redis.port()).identity(&identity).policy("orders", 2, "60s", "closed").start();
    let application = Upstream::start();
    let ext_authz = "                  - name: envoy.filters.http.ext_authz\n";
    let key = base64url(JWT_KEY);
    let jwt = format!(
        r#"                  - name: envoy.filters.http.jwt_authn
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
                      providers:
                        idp:
                          issuer: {ISSUER}
                          payload_in_metadata: jwt_payload
                          local_jwks: {{ inline_string: '{{"keys":[{{"kty":"oct","alg":"HS256","k":"{key}"}}]}}' }}
                      rules:
                        - match: {{ prefix: / }}
                          requires: {{ requires_any: {{ requirements: [{{ provider_name: idp }}, {{ allow_missing: {{}} }}] }} }}
{ext_authz}"#
    );
    let envoy = Envoy::shipped_with(sidecar.port(), application.port(), &[(ext_authz, &jwt)]);
    let with = |token: String| envoy.get("/orders", &[("authorization", &format!("Bearer {token}"))]).status();

    let statuses = [(); 3].map(|()| with(token(JWT_KEY, "ada")));
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(with(token(JWT_KEY, "grace")), 200, "another subject");
    let parts = [("route/tenant", "", &b"demo"[..]), ("jwt/sub", ISSUER, b"ada")];
    assert_eq!(redis.get(&keys::key("orders", 60_000, &parts)).as_deref(), Some("2"));

    let counted = redis.keys();
    assert_eq!(with(token(b"some other key", "mallory")), 401, "a forged token");
    assert_eq!(envoy.get("/orders", &[]).status(), 401, "no token");
    let made_up = [("x-jwt-payload", "ada"), ("x-jwt-sub", "ada"), ("sub", "ada")];
    assert_eq!(envoy.get("/orders", &made_up).status(), 401, "made-up headers");
    assert_eq!(redis.keys(), counted);
}
