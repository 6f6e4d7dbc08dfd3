//! What an operator sees instead of names (P10): keys, policies and reasons. Series follow from the configuration and not
//! from traffic (P11).

use std::collections::BTreeSet;

use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

// RL-35: what an operator needs to find the counter is logged all the same.
#[test]
fn foreign_state_is_logged_with_its_policy_and_key_and_not_once_a_check() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start();
    let key = keys::orders("ada");
    redis.run(&["SET", &key, "3"]);
    sidecar.client().check_times(&Check::of("ada"), 50);
    let log = sidecar.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(&key)).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("orders") && lines[0].contains("no_expiry"), "{}", lines[0]);
}

#[test]
fn traffic_makes_no_series() {
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start();
    let names =
        |sidecar: &Sidecar| -> BTreeSet<String> { sidecar.metrics().names().into_iter().map(str::to_owned).collect() };
    let before = names(&sidecar);
    let client = sidecar.client();
    for n in 0..200 {
        client.check(&Check::of(&format!("subject-{n}")).path(&format!("/orders/{n}")).header("host", "x"));
        client.check(&Check::get(&format!("/{n}")));
    }
    redis.run(&["SET", &keys::orders("ada"), "3"]);
    client.check(&Check::of("ada"));
    redis.kill9();
    client.check(&Check::of("ada"));
    assert_eq!(names(&sidecar), before);
}

#[test]
fn metrics_tell_each_kind_of_verdict_apart_and_time_every_decision() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    client.check_times(&Check::of("ada"), 5);
    client.check(&Check::get("/orders"));
    client.check(&Check::get("/elsewhere"));
    let metrics = sidecar.metrics();
    for (verdict, n) in [("allowed", 3), ("denied", 2), ("unidentified", 1), ("failed", 0)] {
        assert_eq!(metrics.verdicts("orders", verdict), n, "{verdict}");
    }
    assert_eq!(metrics.count("tallygate_verdicts_total", &[("verdict", "unmatched_allowed")]), 1);
    assert_eq!(metrics.count("tallygate_decision_seconds_count", &[]), 7);
    assert_eq!(metrics.count("tallygate_decision_seconds_bucket", &[("le", "+Inf")]), 7);
    assert!(metrics.value("tallygate_decision_seconds_sum", &[]) > 0.0);
    assert_eq!(metrics.count("tallygate_store_up", &[]), 1);
    assert_eq!(metrics.count("tallygate_store_shared", &[]), 1);
    assert!(metrics.count("tallygate_config_generation", &[]) >= 1);
    for class in ["timeout", "disconnected", "late", "busy", "loading", "readonly", "oom", "permission", "cluster"] {
        assert_eq!(metrics.store_errors(class), 0, "{class}");
    }
}
