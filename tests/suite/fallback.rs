//! `on_failure: open`: while the store cannot, this process decides by a bounded limit of its own.

use std::time::Duration;

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::keys;
use crate::support::ports;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::wait::wait_for;

const LOCAL: &str = "{ open: { per: [tenant, subject], fixed_window: { limit: 2, window: 60s } } }";

/// A `subject` gets the local allowance, then 429 in the same outage.
#[track_caller]
fn local_limit_decides(client: &Client, subject: &str) {
    let answers = client.check_times(&Check::of(subject), 10);
    assert_eq!(count(&answers, Outcome::Allowed), 2, "{subject}");
    assert_eq!(count(&answers, Outcome::Limited), 8, "{subject}");
    for answer in answers.iter().filter(|answer| answer.outcome() == Outcome::Limited) {
        assert!((59..=60).contains(&answer.retry_after()), "the local window's rest");
        assert_eq!(answer.all("x-envoy-ratelimited"), ["true"]);
        assert_eq!(answer.metadata("policy"), "orders");
        assert!(!answer.metadata("reason").is_empty(), "the metadata says that this was no ordinary refusal");
    }
}

#[test]
fn while_redis_is_down_each_subject_has_its_local_allowance_and_then_429() {
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", LOCAL).start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    redis.kill9();
    for subject in ["ada", "grace"] {
        local_limit_decides(&client, subject);
    }
    let metrics = sidecar.metrics();
    assert_eq!(metrics.verdicts("orders", "open_allowed"), 4);
    assert_eq!(metrics.verdicts("orders", "open_denied"), 16);
    assert_eq!(metrics.verdicts("orders", "allowed"), 1);
    assert_eq!(metrics.verdicts("orders", "denied"), 0);

    redis.restart();
    sidecar.wait_for_store();
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "the shared limit decides again");
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("1"));
}

#[test]
fn a_redis_that_comes_and_goes_does_not_refill_the_local_allowance() {
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 100, "60s", LOCAL).start();
    let client = sidecar.client();
    let check = Check::of("ada");
    redis.kill9();
    local_limit_decides(&client, "ada");
    for _ in 0..2 {
        redis.restart();
        sidecar.wait_for_store();
        assert_eq!(client.check(&check).outcome(), Outcome::Allowed);
        redis.kill9();
        wait_for("the outage to be noticed", Duration::from_secs(5), || {
            sidecar.metrics().count("tallygate_store_up", &[]) == 0
        });
        assert_eq!(client.check(&check).outcome(), Outcome::Limited, "its local window has not ended");
    }
}

#[test]
fn a_reload_during_an_outage_does_not_refill_the_local_allowance() {
    let port = ports::free();
    let sidecar = Setup::redis(port).policy("orders", 5, "60s", LOCAL).start_without_store();
    local_limit_decides(&sidecar.client(), "ada");
    for limit in [6, 7] {
        let generation = || sidecar.metrics().count("tallygate_config_generation", &[]);
        let before = generation();
        sidecar.rewrite(&Setup::redis(port).policy("orders", limit, "60s", LOCAL));
        sidecar.sighup();
        wait_for("the new configuration", Duration::from_secs(5), || generation() > before);
        assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Limited, "its window has not ended");
    }
}

// RL-29: what an outage took is given back, without a check that would ask for it.
#[test]
fn the_counters_of_an_outage_are_gone_after_their_window() {
    let short = "{ open: { per: [tenant, subject], fixed_window: { limit: 2, window: 3s } } }";
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", short).start();
    let client = sidecar.client();
    let held = || sidecar.metrics().count("tallygate_local_counters", &[]);
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    assert_eq!(held(), 0, "the shared limit takes none");
    redis.kill9();
    let checks: Vec<_> = (0..100).map(|n| Check::of(&format!("subject-{n}"))).collect();
    assert_eq!(count(&client.check_all(&checks), Outcome::Allowed), 100);
    assert_eq!(held(), 100);
    redis.restart();
    wait_for("the counters to leave", Duration::from_secs(10), || held() == 0);
}

#[test]
fn foreign_state_takes_the_policys_failure_mode() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", LOCAL).start();
    redis.run(&["SET", &keys::orders("ada"), "3"]);
    let before = redis.snapshot(&keys::orders("ada"));
    local_limit_decides(&sidecar.client(), "ada");
    assert_eq!(redis.snapshot(&keys::orders("ada")), before);
    assert_eq!(sidecar.metrics().foreign("orders", "no_expiry"), 10);
}

#[test]
fn unlimited_lets_everything_pass_where_the_operator_spelled_it_out() {
    let sidecar = Setup::redis(ports::free()).policy("orders", 1, "60s", "{ open: unlimited }").start_without_store();
    let answers = sidecar.client().check_times(&Check::of("ada"), 20);
    assert_eq!(count(&answers, Outcome::Allowed), 20);
    assert_eq!(sidecar.metrics().verdicts("orders", "open_allowed"), 20);
}

#[test]
fn each_policy_keeps_its_own_failure_mode_in_one_outage() {
    let setup = Setup::redis(ports::free()).policy("orders", 5, "60s", LOCAL).policy("catalog", 5, "60s", "closed");
    let sidecar = setup.start_without_store();
    let client = sidecar.client();
    local_limit_decides(&client, "ada");
    assert_eq!(client.check(&Check::of("ada").path("/catalog")).outcome(), Outcome::Failed);
}

// The same local limit counts per what it says, whatever the policy's own limit counts by.
#[test]
fn the_local_limit_counts_by_its_own_parts() {
    let per_tenant = "{ open: { per: [tenant], fixed_window: { limit: 2, window: 60s } } }";
    let sidecar = Setup::redis(ports::free()).policy("orders", 5, "60s", per_tenant).start_without_store();
    let client = sidecar.client();
    let outcomes = ["ada", "grace", "edsger"].map(|subject| client.check(&Check::of(subject)).outcome());
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Allowed, Outcome::Limited]);
}
