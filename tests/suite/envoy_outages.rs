//! End to end through a real Envoy with the shipped configuration: what a client gets while Redis, or Tallygate
//! itself, cannot decide.

use std::time::Duration;

use crate::support::http::Response;
use crate::support::keys;
use crate::support::stack::{Stack, USER};
use crate::support::wait::wait_for;

const LOCAL: &str = "{ open: { per: [tenant, subject], fixed_window: { limit: 2, window: 60s } } }";

// RL-01
#[test]
fn a_foreign_counter_is_503_until_an_operator_removes_it() {
    let stack = Stack::start(3, "closed");
    stack.redis.run(&["SET", &keys::demo("ada"), "1"]);
    let before = stack.redis.snapshot(&keys::demo("ada"));
    let response = stack.orders("ada");
    assert_eq!(response.status_line, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(response.one("retry-after"), "1");
    assert_eq!(response.one("x-envoy-ratelimited"), "true");
    assert_eq!(stack.redis.snapshot(&keys::demo("ada")), before);
    assert!(stack.upstream.requests().is_empty());
    assert_eq!(stack.envoy.counter("http.edge.ext_authz.tallygate.denied"), 1, "final, not an error of the check");

    stack.redis.run(&["DEL", &keys::demo("ada")]);
    assert_eq!(stack.orders("ada").status(), 200);
}

#[test]
fn without_redis_a_closed_policy_is_503_and_an_open_one_keeps_its_local_limit() {
    let mut stack = Stack::start(3, LOCAL);
    assert_eq!(stack.catalog("ada").status(), 200);
    assert_eq!(stack.orders("ada").status(), 200);
    stack.redis.stop();

    let closed = stack.orders("ada");
    assert_eq!(closed.status_line, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(closed.one("retry-after"), "1");
    let open: Vec<_> = (0..4).map(|_| stack.catalog("ada")).collect();
    let statuses: Vec<_> = open.iter().map(Response::status).collect();
    assert_eq!(statuses, [200, 200, 429, 429], "local allowances, then 429 in the same outage");
    assert!(["59", "60"].contains(&open[3].one("retry-after")));
    assert_eq!(stack.catalog("grace").status(), 200, "for each subject");

    stack.redis.restart();
    wait_for("the closed policy to pass again", Duration::from_secs(5), || stack.orders("ada").status() == 200);
    assert_eq!(stack.catalog("ada").status(), 200, "the shared limit decides again");
}

// RL-28: the shipped time-outs let Tallygate's answer come first.
#[test]
fn a_redis_that_hangs_is_answered_by_tallygate_and_not_by_envoys_time_out() {
    let stack = Stack::start(3, LOCAL);
    assert_eq!(stack.orders("ada").status(), 200);
    stack.redis.pause();
    for _ in 0..5 {
        let response = stack.orders("ada");
        assert_eq!(response.status(), 503);
        assert!(!response.body.is_empty(), "Tallygate's own answer has a body; Envoy's has none");
    }
    let statuses: Vec<_> = (0..3).map(|_| stack.catalog("ada").status()).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(stack.envoy.counter("http.edge.ext_authz.tallygate.error"), 0);
    stack.redis.resume();
    wait_for("a request to pass again", Duration::from_secs(5), || stack.orders("ada").status() == 200);
}

#[test]
fn without_tallygate_envoy_answers_503_with_retry_after() {
    let mut stack = Stack::start(3, "closed");
    stack.kill_sidecar();
    let response = stack.envoy.get("/orders", &[(USER, "ada")]);
    assert_eq!(response.status_line, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(response.one("retry-after"), "1");
    assert!(stack.upstream.requests().is_empty());
}
