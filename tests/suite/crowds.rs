//! Very many checks at once: each gets an answer, whatever it is. A connection that breaks would be an error to Envoy,
//! and let all of them pass where Envoy is told to be tolerant (P8).

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;

/// More than the sidecar passes on to a Redis node at once, fewer than the shipped Envoy configuration lets through.
const CROWD: usize = 12_000;

#[test]
fn each_of_twelve_thousand_checks_on_one_connection_is_answered() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let answers = sidecar.client().check_times(&Check::of("ada"), CROWD);
    let allowed = count(&answers, Outcome::Allowed);
    assert_eq!(allowed + count(&answers, Outcome::Failed), CROWD);
    // A lost reply may have counted, a missing one may not.
    let counted = redis.get(&keys::orders("ada")).map_or(0, |text| text.parse().unwrap());
    assert!((allowed..=CROWD).contains(&counted), "{allowed} allowed, {counted} counted");
}

#[test]
fn a_crowd_is_answered_while_redis_hangs() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    redis.pause();
    let answers = client.check_times(&Check::of("ada"), CROWD);
    assert_eq!(count(&answers, Outcome::Failed), CROWD);
    redis.resume();
    sidecar.wait_for_store();
    assert_eq!(client.check(&Check::of("after")).outcome(), Outcome::Allowed);
    assert_eq!(redis.get(&keys::orders("ada")), None, "none of them is charged afterwards");
}
