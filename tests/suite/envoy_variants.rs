//! The shipped Envoy configuration with one change each that operators make.

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
