//! `envoy/jwt.yaml`: who a token that Envoy verified says that the caller is, and nobody else.

use std::fs;

use crate::support::envoy::{Envoy, placed, substitute};
use crate::support::http::{Sent, message};
use crate::support::keys;
use crate::support::pair::{self, Edit, LIMIT, Pair};
use crate::support::process::root;
use crate::support::redis::RedisServer;
use crate::support::token::{jwks, signed, unsigned};
use crate::support::upstream::Upstream;
use crate::support::wait::wait_for;

const IDP: &str = "https://idp.example";
const PARTNER: &str = "https://partner.example";
const IDP_KEY: &[u8] = b"the key of the identity provider";
const PARTNER_KEY: &[u8] = b"the key of the partner's provider";
/// Headers that filters write, or that look as if.
const MADE_UP: [&str; 6] = ["x-jwt-payload", "x-jwt-sub", "sub", "x-user", "x-tenant", "jwt_payload"];

/// The file's own key sets, which nobody can sign for, and ours in their place.
fn own_keys<T>(then: impl FnOnce(&[Edit<'_>]) -> T) -> T {
    let text = fs::read_to_string(root().join("envoy/jwt.yaml")).unwrap();
    let sets = text.lines().filter_map(|line| line.trim().strip_prefix("inline_string: '")?.strip_suffix('\''));
    let [idp, partner] = sets.collect::<Vec<_>>()[..] else { panic!("two providers") };
    then(&[(idp, &jwks(IDP_KEY)), (partner, &jwks(PARTNER_KEY))])
}

fn start() -> Pair {
    own_keys(|keys| Pair::edited("jwt.yaml", keys, &[]))
}

fn claims(issuer: &str, subject: &str) -> String {
    format!(r#"{{"iss":"{issuer}","sub":"{subject}","aud":"https://api.example","exp":4102444800}}"#)
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn of_idp(subject: &str) -> String {
    bearer(&signed(IDP_KEY, &claims(IDP, subject)))
}

fn key(issuer: &str, subject: &str) -> String {
    keys::key("orders", 60_000, &[("route/tenant", "", b"shop"), ("jwt/sub", issuer, subject.as_bytes())])
}

#[test]
fn each_user_has_a_limit_of_their_own_and_each_issuer_its_own_users() {
    let pair = start();
    pair.exhaust("/orders", &[("authorization", &of_idp("ada"))]);
    pair.exhaust("/orders", &[("authorization", &of_idp("grace"))]);
    let elsewhere = bearer(&signed(PARTNER_KEY, &claims(PARTNER, "ada")));
    pair.exhaust("/orders", &[("authorization", &elsewhere)]);
    let mut wanted = [key(IDP, "ada"), key(IDP, "grace"), key(PARTNER, "ada")];
    wanted.sort();
    assert_eq!(pair.redis.keys(), wanted);
}

#[test]
fn a_token_that_envoy_does_not_believe_is_refused_and_counts_nothing() {
    let pair = start();
    let ada = claims(IDP, "ada");
    let past = ada.replace("4102444800", "1000000000");
    let other_service = signed(IDP_KEY, &ada.replace("api.example", "other.example"));
    let doubtful = [
        unsigned(&ada),
        signed(b"some other key", &ada),
        signed(PARTNER_KEY, &ada),
        signed(PARTNER_KEY, &claims("https://evil.example", "ada")),
        signed(IDP_KEY, &past),
        signed(IDP_KEY, &ada).replace('.', ".e30"),
        "ada".into(),
    ];
    for (token, status) in doubtful.map(|token| (token, 401)).into_iter().chain([(other_service, 403)]) {
        for path in ["/orders", "/catalog"] {
            let refused = pair.envoy.get(path, &[("authorization", &bearer(&token))]);
            assert_eq!(refused.status(), status, "{path} {token}");
        }
    }
    assert_eq!(pair.envoy.get("/orders", &[]).status(), 401, "no token, where one is required");
    assert_eq!(pair.redis.keys(), [""; 0]);
    assert_eq!(pair.envoy.counter("http.edge.ext_authz.tallygate.ok"), 0);
    assert_eq!(pair.envoy.counter("http.edge.ext_authz.tallygate.denied"), 0, "there was no check");
    assert!(pair.application.requests().is_empty());
}

#[test]
fn headers_that_a_client_made_up_neither_name_nor_rename_anybody() {
    let pair = start();
    let ada = of_idp("ada");
    let spoofed = |n: usize, token: Option<&str>, path| {
        let name = format!("spoofed-{n}");
        let mut headers = MADE_UP.map(|header| (header, &*name)).to_vec();
        headers.extend(token.map(|token| ("authorization", token)));
        pair.envoy.get(path, &headers).status()
    };
    let statuses: Vec<_> = (0..=LIMIT).map(|n| spoofed(n, Some(&ada), "/orders")).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(spoofed(9, None, "/orders"), 401);
    assert_eq!(pair.redis.keys(), [key(IDP, "ada")]);
}

#[test]
fn where_a_token_may_be_missing_strangers_are_counted_by_address_and_apart() {
    let pair = own_keys(|keys| Pair::edited("jwt.yaml", keys, &[("limit: 20,", "limit: 2,")]));
    let made_up = |n: usize| pair.envoy.get("/catalog", &[(MADE_UP[n], "ada")]).status();
    assert_eq!([0, 1, 2].map(made_up), [200, 200, 429]);
    pair.exhaust("/catalog", &[("authorization", &of_idp("ada"))]);
    assert_eq!(pair.redis.keys().len(), 2, "one for the address, one for ada");
}

#[test]
fn with_ext_authz_before_jwt_authn_nobody_is_identified_and_the_log_says_why() {
    let redis = RedisServer::start();
    let application = Upstream::start();
    let sidecar = pair::sidecar("jwt.yaml", redis.port(), &[]);
    let text = own_keys(|keys| substitute(&placed("jwt.yaml", sidecar.port(), application.port()), keys));
    // A crowd on a busy machine takes its time, and Envoy's patience is not the subject here.
    let text = substitute(&text, &[("timeout: 0.4s", "timeout: 30s")]);
    let at = |start: &str| text.find(start).unwrap_or_else(|| panic!("no {start}"));
    let jwt_authn = at("                  - name: envoy.filters.http.jwt_authn");
    let ext_authz = at("                  # README.md, \"The filter\".");
    let router = at("                  - name: envoy.filters.http.router");
    let (head, tail) = (&text[..jwt_authn], &text[router..]);
    let envoy = Envoy::start(&format!("{head}{}{}{tail}", &text[ext_authz..router], &text[jwt_authn..ext_authz]));

    let request = message("GET", "/orders", &[("authorization", &of_idp("ada"))]);
    for _ in 0..10 {
        let crowd: Vec<_> = (0..100).map(|_| Sent::start(envoy.address(), &request).unwrap()).collect();
        for refused in crowd.into_iter().map(Sent::join) {
            assert_eq!((refused.status(), &*refused.text()), (401, "no verified identity\n"));
        }
    }
    wait_for("the self-check", std::time::Duration::from_secs(5), || sidecar.log().contains("has not yielded once"));
    let log = sidecar.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("has not yielded once")).collect();
    assert_eq!(lines.len(), 1, "the tenant, which the route names, is found: {lines:#?}");
    for words in [r#""part":"subject""#, r#""source":"jwt/sub""#, "place jwt_authn before ext_authz"] {
        assert!(lines[0].contains(words), "{words}: {log}");
    }
    assert_eq!(redis.keys(), [""; 0]);
    assert!(application.requests().is_empty());
}
