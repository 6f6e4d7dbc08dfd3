//! The manifests of `deploy/istio` do what they say: what Istio would make of them, run by a real Envoy, with a real
//! Tallygate that has the ConfigMap's own file.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::envoy::Envoy;
use crate::support::http;
use crate::support::kustomize::render;
use crate::support::manifests::{self, find};
use crate::support::mesh::{self, Proxy, filter, workload};
use crate::support::process::root;
use crate::support::redis::RedisServer;
use crate::support::sidecar::Sidecar;
use crate::support::token::{forged, token};
use crate::support::upstream::Upstream;
use crate::support::wait::wait_for;

/// Two at once, and none again while a test runs.
const TWO: (&str, &str) = ("rate: 50, per: 1s, burst: 100", "rate: 1, per: 60s, burst: 2");

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn claims(subject: &str) -> Value {
    json!({ "tid": "acme", "sub": subject, "aud": "orders" })
}

/// The port of the cluster in the manifests, replaced by that of a test.
fn port_of(sidecar: &Sidecar) -> String {
    format!(r#""port_value":{}"#, sidecar.port())
}

const SHIPPED_PORT: &str = r#""port_value":50051"#;

/// `jwt-sidecar`, whole or without its RequestAuthentication.
fn jwt_sidecar(redis: &RedisServer, is_authenticated: bool) -> (Sidecar, Upstream, Envoy) {
    let rendered = render("istio/jwt-sidecar");
    let sidecar = mesh::tallygate(&rendered, redis.port(), &[TWO]);
    let application = Upstream::start();
    let mut proxy = Proxy::new(application.port());
    if is_authenticated {
        proxy = proxy.authentication(find(&rendered, "RequestAuthentication", "idp"));
    }
    let proxy = proxy.patched(find(&rendered, "EnvoyFilter", "tallygate"), "SIDECAR_INBOUND");
    let envoy = proxy.start(&[(SHIPPED_PORT, &port_of(&sidecar))]);
    (sidecar, application, envoy)
}

#[test]
fn verified_claims_reach_the_policy_and_two_subjects_are_limited_apart() {
    let redis = RedisServer::start();
    let (_sidecar, application, envoy) = jwt_sidecar(&redis, true);
    let ask = |token: &str| envoy.get("/orders", &[("authorization", &bearer(token))]).status();
    let (ada, grace) = (token(&claims("ada")), token(&claims("grace")));
    assert_eq!([(); 3].map(|()| ask(&ada)), [200, 200, 429]);
    assert_eq!(ask(&grace), 200, "another subject");
    let another_tenant = token(&json!({ "tid": "umbrella", "sub": "ada", "aud": "orders" }));
    assert_eq!(ask(&another_tenant), 200, "of the same name in another tenant");
    assert_eq!(envoy.counter("http.inbound.ext_authz.tallygate.denied"), 1);
    wait_for("Tallygate's metadata in the access log", Duration::from_secs(10), || {
        envoy.access_log().contains("429 orders")
    });

    let checks = |what: &str| envoy.counter(&format!("http.inbound.ext_authz.tallygate.{what}"));
    let before = [checks("ok"), checks("denied")];
    assert_eq!(ask(&forged(&claims("mallory"))), 401, "refused by the token check");
    assert_eq!(ask(&token(&json!({ "sub": "ada", "aud": "billing" }))), 403, "made out for another service");
    assert_eq!([checks("ok"), checks("denied")], before, "and not asked about");
    assert_eq!(envoy.get("/orders", &[]).status(), 401, "without a token: refused by Tallygate");
    assert_eq!(application.requests().len(), 4);
}

#[test]
fn without_the_token_check_nobody_is_identified_and_nobody_unlimited() {
    let redis = RedisServer::start();
    let (sidecar, application, envoy) = jwt_sidecar(&redis, false);
    let valid = bearer(&token(&claims("ada")));
    for headers in [&[("authorization", valid.as_str())][..], &[("x-jwt-sub", "ada"), ("x-jwt-tid", "acme")], &[]] {
        assert_eq!(envoy.get("/orders", headers).status(), 401, "{headers:?}");
    }
    assert_eq!(sidecar.metrics().verdicts("orders", "unidentified"), 3);
    assert_eq!((application.requests().len(), redis.keys()), (0, vec![]));
}

#[test]
fn a_preflight_goes_on_uncounted_and_paths_in_disguise_are_counted() {
    let redis = RedisServer::start();
    let (_sidecar, _application, envoy) = jwt_sidecar(&redis, true);
    let preflight = [("origin", "https://shop.example"), ("access-control-request-method", "POST")];
    for _ in 0..3 {
        assert_eq!(http::request_as("OPTIONS", envoy.address(), "/orders", &preflight).status(), 200);
    }
    assert_eq!(http::request_as("PURGE", envoy.address(), "/orders", &[]).status(), 401, "no other method is let pass");
    let ada = bearer(&token(&claims("ada")));
    let paths = ["/orders", "//orders", "/x/../orders?a=b"];
    assert_eq!(paths.map(|path| envoy.get(path, &[("authorization", &ada)]).status()), [200, 200, 429]);
}

#[test]
fn a_tallygate_that_is_gone_is_503_and_not_an_open_door() {
    let redis = RedisServer::start();
    let (sidecar, application, envoy) = jwt_sidecar(&redis, true);
    drop(sidecar);
    let ada = bearer(&token(&claims("ada")));
    assert_eq!(envoy.get("/orders", &[("authorization", &ada)]).status(), 503);
    assert!(application.requests().is_empty());
}

#[test]
fn the_unix_socket_serves_the_same() {
    let redis = RedisServer::start();
    let rendered = render("istio/unix-socket");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("authz.sock").display().to_string();
    // The test is no member of the proxy's group.
    let own = [TWO, ("unix:/run/tallygate/authz.sock", &format!("unix:{socket}")), ("\n  socket_group: 1337", "")];
    let _sidecar = mesh::tallygate(&rendered, redis.port(), &own);
    let application = Upstream::start();
    let proxy = Proxy::new(application.port()).authentication(find(&rendered, "RequestAuthentication", "idp"));
    let proxy = proxy.patched(find(&rendered, "EnvoyFilter", "tallygate"), "SIDECAR_INBOUND");
    let envoy = proxy.start(&[("/run/tallygate/authz.sock", &socket)]);
    let ada = bearer(&token(&claims("ada")));
    assert_eq!([(); 3].map(|()| envoy.get("/orders", &[("authorization", &ada)]).status()), [200, 200, 429]);
}

/// As pilot names clusters. No server would take it for a host.
const CUSTOM_CLUSTER: &str = "outbound|50051||tallygate.local";

/// What pilot makes of a CUSTOM policy and its provider: a rule that only marks requests, and an ext_authz that asks about
/// the marked ones. Ahead of the token check.
fn custom(rendered: &[Value]) -> [Value; 2] {
    let policy = &find(rendered, "AuthorizationPolicy", "tallygate")["spec"];
    let operation = &policy["rules"][0]["to"][0]["operation"];
    let list = |field: &str| operation[field].as_array().cloned().unwrap_or_default();
    let ports = list("notPorts")
        .into_iter()
        .map(|port| json!({ "destination_port": port.as_str().unwrap().parse::<u16>().unwrap() }));
    let methods = list("notMethods")
        .into_iter()
        .map(|method| json!({ "header": { "name": ":method", "string_match": { "exact": method } } }));
    let not =
        |rules: Vec<Value>| (!rules.is_empty()).then(|| json!({ "not_rule": { "or_rules": { "rules": rules } } }));
    let rules: Vec<_> = [not(ports.collect()), not(methods.collect())].into_iter().flatten().collect();
    assert!(!rules.is_empty(), "the policy says what it is not about");

    let mesh = manifests::read_one(&root().join("deploy/istio/mesh-config.yaml"));
    let providers = mesh["spec"]["meshConfig"]["extensionProviders"].as_array().unwrap().clone();
    let provider = providers.into_iter().find(|provider| provider["name"] == policy["provider"]["name"]).unwrap();
    let (name, grpc) = (provider["name"].as_str().unwrap(), &provider["envoyExtAuthzGrpc"]);
    let mark = format!("istio-ext-authz-{name}-ns[orders]-policy[tallygate]-rule[0]");
    let marking = json!({
        "shadow_rules": { "action": "DENY", "policies": { mark: {
            "permissions": [{ "and_rules": { "rules": rules } }],
            "principals": [{ "and_ids": { "ids": [{ "any": true }] } }],
        } } },
        "shadow_rules_stat_prefix": "istio_ext_authz_",
    });
    let asking = json!({
        "transport_api_version": "V3",
        "grpc_service": {
            "envoy_grpc": { "cluster_name": CUSTOM_CLUSTER, "authority": grpc["service"] },
            "timeout": grpc["timeout"],
        },
        "failure_mode_allow": grpc["failOpen"],
        "status_on_error": { "code": grpc["statusOnError"].as_str().unwrap().parse::<u16>().unwrap() },
        "filter_enabled_metadata": {
            "filter": "envoy.filters.http.rbac",
            "path": [{ "key": "istio_ext_authz_shadow_effective_policy_id" }],
            "value": { "string_match": { "prefix": format!("istio-ext-authz-{name}") } },
        },
    });
    [
        filter("envoy.filters.http.rbac", "rbac.v3.RBAC", marking),
        filter("envoy.filters.http.ext_authz", "ext_authz.v3.ExtAuthz", asking),
    ]
}

#[track_caller]
fn limits_workloads_apart(folder: &str) {
    let redis = RedisServer::start();
    let rendered = render(folder);
    let one = ("sliding_window: { limit: 600, window: 1m }", "fixed_window: { limit: 2, window: 1m }");
    let sidecar = mesh::tallygate(&rendered, redis.port(), &[one]);
    let application = Upstream::start();
    let mut proxy = Proxy::new(application.port()).strict();
    proxy.filters.splice(..0, custom(&rendered));
    proxy.clusters.push(mesh::grpc_cluster(CUSTOM_CLUSTER, sidecar.port()));
    let envoy = proxy.start(&[]);

    let (shop, jobs) = (workload("mesh-shop", &envoy), workload("mesh-jobs", &envoy));
    let preflight = |from: &Envoy| http::request_as("OPTIONS", from.address(), "/orders", &[]).status();
    assert_eq!([(); 3].map(|()| preflight(&shop)), [200; 3], "preflights are not asked about");
    assert_eq!([(); 3].map(|()| shop.get("/orders", &[]).status()), [200, 200, 429]);
    assert_eq!(jobs.get("/orders", &[]).status(), 200, "another workload");
    // A token is of no use in this mode, and neither is a header.
    let ada = bearer(&token(&claims("ada")));
    let claimed =
        [("authorization", ada.as_str()), ("x-forwarded-client-cert", "URI=spiffe://cluster.local/ns/a/sa/b")];
    assert_eq!(shop.get("/orders", &claimed).status(), 429);
    let foreign = workload("mesh-foreign", &envoy);
    assert_eq!(foreign.get("/orders", &[]).status(), 401, "of another trust domain");
    assert!(http::try_get(envoy.address(), "/orders").is_err(), "plaintext is not served");

    drop(sidecar);
    assert_eq!(jobs.get("/orders", &[]).status(), 503, "and not 403");
}

#[test]
fn custom_mode_beside_the_proxy_limits_each_calling_workload() {
    limits_workloads_apart("istio/custom-sidecar");
}

#[test]
fn custom_mode_with_a_service_limits_each_calling_workload() {
    limits_workloads_apart("istio/custom-central");
}

#[test]
fn a_gateway_counts_strangers_by_the_address_that_it_knows() {
    let redis = RedisServer::start();
    let rendered = render("istio/gateway");
    let two = ("fixed_window: { limit: 30, window: 1m }", "fixed_window: { limit: 2, window: 1m }");
    let logins = ("limit: 10, window: 1m } }\n    on_failure", "limit: 2, window: 1m } }\n    on_failure");
    let sidecar = mesh::tallygate(&rendered, redis.port(), &[TWO, two, logins]);
    let application = Upstream::start();
    let proxy = Proxy::new(application.port()).gateway(1);
    let mut proxy = proxy.authentication(find(&rendered, "RequestAuthentication", "idp"));
    let name = "outbound|50051||tallygate.tallygate.svc.cluster.local";
    proxy.clusters.push(mesh::grpc_cluster(name, sidecar.port()));
    let envoy = proxy.patched(find(&rendered, "EnvoyFilter", "tallygate"), "GATEWAY").start(&[]);

    // One balancer in front appends the address that it saw; whatever stands before that is the client's own.
    let from = |address: &str| format!("192.0.2.1, {address}");
    let ask = |address: &str| envoy.get("/catalog", &[("x-forwarded-for", &from(address))]).status();
    assert_eq!([(); 3].map(|()| ask("203.0.113.7")), [200, 200, 429]);
    assert_eq!(ask("203.0.113.8"), 200, "another client");
    let forged_too = [("x-forwarded-for", "198.51.100.1, 203.0.113.7"), ("x-clientip", "198.51.100.1")];
    assert_eq!(envoy.get("/catalog", &forged_too).status(), 429, "the client's own word changes nothing");

    let login = |address: &str| {
        http::request_as("POST", envoy.address(), "/login", &[("x-forwarded-for", &from(address))]).status()
    };
    assert_eq!([(); 3].map(|()| login("203.0.113.7")), [200, 200, 429]);
    assert_eq!(login("203.0.113.8"), 200);

    let ada = bearer(&token(&claims("ada")));
    let known = [("x-forwarded-for", "192.0.2.1, 203.0.113.7"), ("authorization", &ada)];
    assert_eq!([(); 3].map(|()| envoy.get("/catalog", &known).status()), [200, 200, 429], "counted as somebody");
}

// What a CUSTOM policy at a gateway can go by, and none in a sidecar may.
#[test]
fn the_header_of_the_clients_address_is_the_gateways_word_and_in_a_sidecar_anybodys() {
    let application = Upstream::start();
    let made_up = [("x-forwarded-for", "192.0.2.1, 10.0.0.7"), ("x-envoy-external-address", "8.8.8.8")];
    let seen = |proxy: Proxy| {
        proxy.start(&[]).get("/", &made_up);
        application.requests().last().unwrap().all("x-envoy-external-address").join(" and ")
    };
    assert_eq!(seen(Proxy::new(application.port()).gateway(1)), "10.0.0.7");
    assert_eq!(seen(Proxy::new(application.port())), "8.8.8.8");
}
