//! A refused request changes nothing: no counter, no expiry (P2).

use std::collections::HashSet;

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;

#[test]
fn a_refusal_leaves_the_key_byte_identical() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    client.check_times(&Check::of("ada"), 3);
    let before = (redis.snapshot(&keys::orders("ada")), redis.changes());
    assert!(before.0.expires_at_ms > 0, "the counter has an expiry: {before:?}");

    let refused = client.check_times(&Check::of("ada"), 50);
    assert_eq!(count(&refused, Outcome::Limited), 50);
    for _ in 0..10 {
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Limited);
    }
    assert_eq!((redis.snapshot(&keys::orders("ada")), redis.changes()), before);
}

#[test]
fn a_count_above_the_limit_is_refused_and_left_alone() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start();
    let key = keys::orders("ada");
    // What a limit that was lowered leaves behind.
    redis.seed(&key, "1000000000", 45_500);
    let before = redis.snapshot(&key);
    let answer = sidecar.client().check(&Check::of("ada"));
    assert_eq!(answer.outcome(), Outcome::Limited);
    assert_eq!(answer.metadata("remaining"), "0");
    assert_eq!(redis.snapshot(&key), before);
}

#[test]
fn an_allowed_request_changes_the_count_and_not_the_windows_end() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", "closed").start();
    let client = sidecar.client();
    let mut ends = HashSet::new();
    for n in 1..=5 {
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
        assert_eq!(redis.get(&keys::orders("ada")), Some(n.to_string()));
        ends.insert(redis.snapshot(&keys::orders("ada")).expires_at_ms);
    }
    assert_eq!(ends.len(), 1, "the first request alone sets the end: {ends:?}");
}
