//! Whatever arrives, the answer is an explicit one with gRPC status OK, so that a fail-closed policy holds even where
//! Envoy is told to let requests pass on errors (P8).

use envoy_types::pb::envoy::service::auth::v3::CheckResponse;
use prost::Message;
use std::time::Duration;

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::grpc::{CHECK, Client};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;

#[track_caller]
fn raw_check(client: &Client, message: Vec<u8>) -> Answer {
    let reply = client.raw(CHECK, message).expect("the call itself succeeds");
    Answer { message: CheckResponse::decode(&*reply).expect("a CheckResponse"), took: Duration::ZERO }
}

#[track_caller]
fn is_failed(answer: &Answer, reason: &str) {
    assert_eq!(answer.outcome(), Outcome::Failed, "{answer:?}");
    assert_eq!(answer.retry_after(), 1);
    assert_eq!(answer.metadata("reason"), reason);
}

#[test]
fn bytes_that_are_no_check_request_are_answered_503() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    let mut cut = Check::of("ada").build().encode_to_vec();
    cut.truncate(cut.len() - 3);
    for (n, message) in [vec![0xff; 40], vec![0x0a], b"GET / HTTP/1.1".to_vec(), cut].into_iter().enumerate() {
        let counted = sidecar.metrics().count("tallygate_guard_total", &[("cause", "undecodable")]);
        is_failed(&raw_check(&client, message), "undecodable");
        let now = sidecar.metrics().count("tallygate_guard_total", &[("cause", "undecodable")]);
        assert_eq!(now - counted, 1, "message {n}");
    }
    assert!(sidecar.log().contains("look at who calls this port"), "{}", sidecar.log());
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "the connection lives on");
}

// RL-34
#[test]
fn a_message_above_the_size_limit_is_answered_503() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    let oversize = Check::of("ada").header("x-padding", &"a".repeat(5 * 1024 * 1024)).build().encode_to_vec();
    is_failed(&raw_check(&client, oversize), "request_too_large");
    assert_eq!(sidecar.metrics().count("tallygate_guard_total", &[("cause", "request_too_large")]), 1);
    assert!(sidecar.log().contains("leave with_request_body out of Envoy's filter"), "{}", sidecar.log());
    assert_eq!(redis.keys(), [""; 0]);
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "the connection lives on");
}

// RL-34: up to 1 MiB a check is decided, whatever it consists of, and beyond it refused: none passes for its size.
#[test]
fn no_size_of_a_check_makes_it_unlimited() {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    let many = |check| (0..10_000).fold(check, |check: Check, n| check.header(&format!("x-{n}"), "a"));
    let long = |check: Check, length: usize| check.path(&format!("/orders/{}", "a".repeat(length)));
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    for decided in [many(Check::of("ada")), long(Check::of("ada"), 1_000_000)] {
        assert_eq!(client.check(&decided).outcome(), Outcome::Limited);
    }
    let padded = |length| Check::of("ada").header("x-padding", &"a".repeat(length));
    for refused in [long(Check::of("ada"), 1024 * 1024), padded(4_194_303), padded(4_194_305)] {
        is_failed(&client.check(&refused), "request_too_large");
    }
    assert_eq!(redis.keys().len(), 1);
}

// RL-17: no panic, and no allowance, without the parts that a request normally has.
#[test]
fn a_check_without_an_http_part_is_never_allowed() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").more("unmatched: deny").start();
    let client = sidecar.client();
    // No attributes; empty attributes; a source and nothing else.
    for message in [vec![], vec![0x0a, 0x00], vec![0x0a, 0x02, 0x0a, 0x00]] {
        let answer = raw_check(&client, message.clone());
        assert!(
            [Outcome::Forbidden, Outcome::Failed, Outcome::Unauthorized].contains(&answer.outcome()),
            "{message:?}: {answer:?}"
        );
    }
    assert_eq!(sidecar.metrics().count("tallygate_guard_total", &[("cause", "panic")]), 0);
    assert_eq!(redis.keys(), [""; 0]);
}

// The largest head that Envoy takes (60 KiB) is an ordinary request.
#[test]
fn a_large_but_honest_request_is_decided() {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    let large = (0..100).fold(Check::of("ada"), |check, n| check.header(&format!("x-{n}"), &"a".repeat(600)));
    assert_eq!(client.check(&large).outcome(), Outcome::Allowed);
    assert_eq!(client.check(&large).outcome(), Outcome::Limited);
}
