//! Nobody's name, and no secret, leaves the process: not in keys, logs, metrics or answers (P10). Series follow from
//! the configuration and not from traffic (P11).

use std::collections::BTreeSet;

use crate::support::answer::Answer;
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::{SECRET, Setup};
use crate::support::sidecar::Sidecar;

const TENANT: &str = "TENANT-CANARY";
const SUBJECT: &str = "SUBJECT-CANARY";
const BEARER: &str = "BEARER-CANARY";

fn canary(path: &str) -> Check {
    let check = Check::get(path).route("tenant", TENANT).route("subject", SUBJECT);
    check.header("authorization", &format!("Bearer {BEARER}")).header("x-user", SUBJECT)
}

#[track_caller]
fn has_no_canary(where_: &str, text: &str) {
    for canary in ["CANARY", SECRET] {
        assert!(!text.contains(canary), "{canary} in {where_}:\n{text}");
    }
}

// RL-35
#[test]
fn no_name_and_no_secret_leaves_the_process() {
    let mut redis = RedisServer::start();
    let local = "{ open: { per: [tenant, subject], fixed_window: { limit: 1, window: 60s } } }";
    let setup = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").policy("catalog", 1, "60s", local);
    let sidecar = setup.start();
    let client = sidecar.client();
    let mut answers: Vec<Answer> = Vec::new();
    let mut ask = |check: Check| answers.push(client.check(&check));

    for path in ["/orders", "/orders", "/catalog", "/elsewhere", "/orders%2f"] {
        ask(canary(path));
    }
    ask(canary("/orders").route("subject", ""));
    ask(canary("/orders").route("subject", &format!("{SUBJECT}{}", "x".repeat(2000))));
    let evidence = [("route/tenant", "", TENANT.as_bytes()), ("route/subject", "", SUBJECT.as_bytes())];
    let key = keys::key("orders", 60_000, &evidence);
    assert!(redis.get(&key).is_some());
    redis.run(&["SET", &key, "foreign"]);
    ask(canary("/orders"));
    let keys = redis.keys().join("\n");
    redis.kill9();
    for path in ["/orders", "/catalog", "/catalog"] {
        ask(canary(path));
    }

    has_no_canary("Redis", &keys);
    has_no_canary("the log", &sidecar.log());
    has_no_canary("the metrics", &sidecar.get("/metrics").text());
    has_no_canary("the readiness page", &sidecar.get("/readyz").text());
    for answer in &answers {
        has_no_canary("an answer", &format!("{:?}", answer.message));
    }
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", sidecar.pid())).unwrap();
    has_no_canary("the arguments", &arguments);
}

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
