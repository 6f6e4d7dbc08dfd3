//! The manifests of `deploy/envoy-gateway` do what they say: the filters that Envoy Gateway would make of them, in the order
//! that they ask for, run by a real Envoy, with a real Tallygate that has the ConfigMap's own file.

use serde_json::{Value, json};

use crate::support::envoy::Envoy;
use crate::support::kustomize::render;
use crate::support::manifests::find;
use crate::support::mesh::{self, Proxy, filter};
use crate::support::redis::RedisServer;
use crate::support::sidecar::Sidecar;
use crate::support::token::{key_set, token};
use crate::support::upstream::Upstream;

const ORDER: [&str; 2] = ["envoy.filters.http.ext_authz", "envoy.filters.http.jwt_authn"];

/// As Envoy Gateway names the cluster of a policy's backend.
const CLUSTER: &str = "securitypolicy/orders/orders/extauth/0";

/// The token check of a `SecurityPolicy`. Envoy Gateway names the place of the claims after the provider, and tells ext_authz
/// of no metadata.
fn authentication(policy: &Value) -> Value {
    let provider = &policy["spec"]["jwt"]["providers"][0];
    let claims = provider["claimToHeaders"].as_array().unwrap().iter();
    let claims = claims.map(|claim| json!({ "claim_name": claim["claim"], "header_name": claim["header"] }));
    let config = json!({
        "providers": { "idp": {
            "issuer": provider["issuer"], "audiences": provider["audiences"], "forward": true,
            "payload_in_metadata": provider["name"], "claim_to_headers": claims.collect::<Vec<_>>(),
            "local_jwks": { "inline_string": key_set() },
        } },
        "rules": [{ "match": { "prefix": "/" }, "requires": { "provider_name": "idp" } }],
    });
    filter(ORDER[1], "jwt_authn.v3.JwtAuthentication", config)
}

fn authorization(policy: &Value) -> Value {
    let own = &policy["spec"]["extAuth"];
    let headers = own["headersToExtAuth"].as_array().unwrap().iter();
    let patterns: Vec<_> = headers.map(|name| json!({ "exact": name, "ignore_case": true })).collect();
    // The filter takes 400 ms as 0.4s.
    let timeout =
        own["timeout"].as_str().and_then(|text| text.strip_suffix("ms")).and_then(|ms| ms.parse::<f64>().ok());
    let config = json!({
        "transport_api_version": "V3",
        "grpc_service": {
            "envoy_grpc": { "cluster_name": CLUSTER, "authority": "tallygate.tallygate:50051" },
            "timeout": format!("{}s", timeout.unwrap() / 1e3),
        },
        "failure_mode_allow": own["failOpen"],
        "status_on_error": { "code": own["statusOnError"] },
        "allowed_headers": { "patterns": patterns },
    });
    filter(ORDER[0], "ext_authz.v3.ExtAuthz", config)
}

/// Envoy Gateway's own order has ext_authz first; `filterOrder` moves it.
fn ordered(policy: &Value, order: &Value) -> Vec<Value> {
    let mut filters = vec![authorization(policy), authentication(policy)];
    for entry in order.as_array().into_iter().flatten() {
        assert_eq!([&entry["name"], &entry["after"]], ORDER);
        filters.reverse();
    }
    filters
}

struct Gateway {
    sidecar: Sidecar,
    application: Upstream,
    envoy: Envoy,
    _redis: RedisServer,
}

fn start(is_ordered: bool) -> Gateway {
    let redis = RedisServer::start();
    let rendered = render("envoy-gateway");
    let two = ("rate: 50, per: 1s, burst: 100", "rate: 1, per: 60s, burst: 2");
    let sidecar = mesh::tallygate(&rendered, redis.port(), &[two]);
    let application = Upstream::start();
    let policy = find(&rendered, "SecurityPolicy", "orders");
    let order = find(&rendered, "EnvoyProxy", "tallygate-example")["spec"]["filterOrder"].clone();
    let mut proxy = Proxy::new(application.port()).gateway(0);
    proxy.filters.splice(..0, ordered(policy, if is_ordered { &order } else { &Value::Null }));
    proxy.context(&policy["spec"]["extAuth"]["contextExtensions"]);
    proxy.clusters.push(mesh::grpc_cluster(CLUSTER, sidecar.port()));
    let envoy = proxy.start(&[]);
    Gateway { sidecar, application, envoy, _redis: redis }
}

impl Gateway {
    fn ask(&self, claims: &Value, more: &[(&str, &str)]) -> u16 {
        let bearer = format!("Bearer {}", token(claims));
        self.envoy.get("/orders", &[&[("authorization", bearer.as_str())], more].concat()).status()
    }
}

fn claims(subject: &str) -> Value {
    json!({ "tid": "acme", "sub": subject, "aud": "orders" })
}

#[test]
fn verified_claims_reach_the_policy_and_a_client_cannot_write_them() {
    let gateway = start(true);
    assert_eq!([(); 3].map(|()| gateway.ask(&claims("ada"), &[])), [200, 200, 429]);
    assert_eq!(gateway.ask(&claims("grace"), &[]), 200, "another subject");
    let borrowed = [("x-jwt-sub", "mallory"), ("x-jwt-tid", "umbrella")];
    assert_eq!(gateway.ask(&claims("ada"), &borrowed), 429, "headers of the client's own change nothing");
    let nameless = json!({ "tid": "acme", "aud": "orders" });
    assert_eq!(gateway.ask(&nameless, &borrowed), 401, "nor where the token does not have the claim");
    assert_eq!(gateway.envoy.get("/orders", &borrowed).status(), 401, "nor without a token");
    assert_eq!(gateway.application.requests().len(), 3);
}

// The reason for `filterOrder`. Should this fail one day, Envoy Gateway's order is harmless and the entry may go.
#[test]
fn in_the_order_that_envoy_gateway_has_by_itself_a_client_would_choose_who_it_is() {
    let gateway = start(false);
    let names = ["a", "b", "c", "d"].map(|name| [("x-jwt-sub", name), ("x-jwt-tid", "acme")]);
    assert_eq!(names.map(|headers| gateway.ask(&claims("ada"), &headers)), [200; 4]);
}

#[test]
fn a_tallygate_that_is_gone_is_503_and_not_an_open_door() {
    let gateway = start(true);
    drop(gateway.sidecar);
    let bearer = format!("Bearer {}", token(&claims("ada")));
    assert_eq!(gateway.envoy.get("/orders", &[("authorization", &bearer)]).status(), 503);
    assert!(gateway.application.requests().is_empty());
}

// A SecurityPolicy can name a Service of another namespace only by leave of that namespace.
#[test]
fn the_service_that_the_policy_names_is_there_and_may_be_named() {
    let rendered = render("envoy-gateway");
    let policy = find(&rendered, "SecurityPolicy", "orders");
    let backend = &policy["spec"]["extAuth"]["grpc"]["backendRefs"][0];
    let service = find(&rendered, "v1/Service", backend["name"].as_str().unwrap());
    assert_eq!(service["metadata"]["namespace"], backend["namespace"]);
    assert_eq!(service["spec"]["ports"][0]["port"], backend["port"]);
    let grant = find(&rendered, "ReferenceGrant", "tallygate");
    assert_eq!(grant["metadata"]["namespace"], backend["namespace"]);
    let from = json!([{ "group": "gateway.envoyproxy.io", "kind": "SecurityPolicy", "namespace": policy["metadata"]["namespace"] }]);
    assert_eq!(grant["spec"]["from"], from);
    assert_eq!(grant["spec"]["to"], json!([{ "group": "", "kind": "Service", "name": backend["name"] }]));
    let class = find(&rendered, "GatewayClass", "tallygate-example");
    let proxy = find(&rendered, "EnvoyProxy", class["spec"]["parametersRef"]["name"].as_str().unwrap());
    assert_eq!(proxy["metadata"]["namespace"], class["spec"]["parametersRef"]["namespace"]);
}
