//! `envoy/routes.yaml`: the operator's words on a route choose the policy, and preflights are not counted.

use std::fs;

use crate::support::http::{message, send};
use crate::support::pair::{LIMIT, Pair};
use crate::support::process::root;

const ORIGIN: (&str, &str) = ("origin", "https://shop.example");

#[test]
fn each_route_has_the_policy_and_the_cost_that_are_written_on_it() {
    let pair = Pair::start("routes.yaml");
    assert_eq!(pair.statuses(1, "/reports/7", &[]), [200], "two units");
    assert_eq!(pair.statuses(2, "/orders/7", &[]), [200, 429], "the third, of the same policy");
    assert_eq!(pair.statuses(1, "/reports", &[]), [429]);
    // orders-archive is no order.
    assert_eq!(pair.statuses(LIMIT, "/orders-archive", &[]), [200; LIMIT]);
    assert_eq!(pair.statuses(1, "/anything", &[]), [429], "the rest shares the policy of the host");
    assert_eq!(pair.redis.keys().len(), 2);
}

// What the guide says for an application that ignores case, or drops path parameters.
#[test]
fn a_route_can_take_what_a_lax_application_takes_for_the_same_path() {
    let guide = fs::read_to_string(root().join("envoy/README.md")).unwrap();
    let lax = "safe_regex: { regex: \"(?i)/orders([/;].*)?\" }";
    assert!(guide.contains(lax));
    let pair = Pair::edited("routes.yaml", &[("path_separated_prefix: /orders", lax)], &[]);
    pair.exhaust("/orders", &[]);
    for path in ["/ORDERS", "/Orders/1", "/orders;x", "/orders;x/1", "/oRDERS;x?y", "//%4frders"] {
        assert_eq!(pair.statuses(1, path, &[]), [429], "{path}");
    }
    assert_eq!(pair.statuses(1, "/orders2", &[]), [200]);
    assert_eq!(pair.redis.keys().len(), 2);
}

#[test]
fn a_route_without_a_check_is_exactly_that_path() {
    let pair = Pair::start("routes.yaml");
    pair.exhaust("/", &[]);
    assert_eq!(pair.statuses(10, "/healthz", &[]), [200; 10]);
    for path in ["/healthz/", "/healthz/..", "/healthz;x", "/HEALTHZ", "/healthz/../orders2"] {
        assert_eq!(pair.statuses(1, path, &[]), [429], "{path}");
    }
    assert_eq!(pair.application.requests().len(), LIMIT + 10);
}

#[test]
fn preflights_are_answered_and_not_counted_and_a_script_can_read_a_refusal() {
    let pair = Pair::start("routes.yaml");
    let preflight = message("OPTIONS", "/orders", &[ORIGIN, ("access-control-request-method", "POST")]);
    for _ in 0..10 {
        let answer = send(pair.envoy.address(), &preflight).unwrap();
        assert_eq!((answer.status(), answer.one("access-control-allow-methods")), (200, "GET, POST"));
    }
    assert_eq!(pair.redis.keys(), [""; 0]);
    assert!(pair.application.requests().is_empty());

    let refused = pair.exhaust("/orders", &[ORIGIN]);
    assert_eq!(refused.one("access-control-allow-origin"), ORIGIN.1);
    let exposed = refused.one("access-control-expose-headers");
    for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
        assert!(!refused.one(name).is_empty() && exposed.contains(name), "{name}: {exposed}");
    }
    assert_eq!(send(pair.envoy.address(), &preflight).unwrap().status(), 200, "still");
    // Of a page from elsewhere it is a request like any other.
    let elsewhere = [("origin", "https://evil.example"), ("access-control-request-method", "POST")];
    assert_eq!(send(pair.envoy.address(), &message("OPTIONS", "/orders", &elsewhere)).unwrap().status(), 429);
}

#[test]
fn a_route_whose_policy_nobody_knows_is_refused_and_not_unlimited() {
    let pair = Pair::edited("routes.yaml", &[("{ policy: orders }", "{ policy: oders }")], &[]);
    assert_eq!(pair.envoy.get("/orders", &[]).status(), 403);
    assert_eq!(pair.envoy.get("/", &[]).status(), 200);
}
