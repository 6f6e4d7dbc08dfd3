//! Messages to a running sidecar: each gets one explicit answer with gRPC status OK, and the process lives (P8).

use std::time::Duration;

use envoy_types::pb::envoy::service::auth::v3::CheckResponse;
use prost::Message;

use super::{driver, seeds};
use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::grpc::CHECK;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

/// What can be asked of a sidecar after everything that was done to it.
#[track_caller]
pub fn is_sound(sidecar: &Sidecar, redis: &RedisServer) {
    assert_eq!(sidecar.get("/livez").status(), 200);
    assert_eq!(sidecar.metrics().count("tallygate_guard_total", &[("cause", "panic")]), 0);
    assert!(!sidecar.log().contains("panic"), "{}", sidecar.log());
    let honest = Check::get("/orders").claim("tid", "acme").claim("sub", "an honest one");
    assert_eq!(sidecar.client().check(&honest).outcome(), Outcome::Allowed);
    for key in redis.keys() {
        let digest = key.strip_prefix("rl:orders:v1:").unwrap_or_default();
        let is_digest = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        assert!(is_digest, "{key:?}");
    }
}

pub fn start(redis: &RedisServer) -> Sidecar {
    let setup = Setup::patient(redis.port()).identity(seeds::IDENTITY).policy("orders", 1_000_000, "60s", "closed");
    setup.start()
}

#[test]
fn every_message_is_answered_and_the_sidecar_lives() {
    let redis = RedisServer::start();
    let sidecar = start(&redis);
    let (client, honest) = (sidecar.client(), seeds::requests());
    driver::run(
        "every_message_is_answered",
        |random| seeds::message(random, &honest),
        |message| {
            let reply = client.raw(CHECK, message.clone()).expect("the call itself succeeds");
            let message = CheckResponse::decode(&*reply).expect("a CheckResponse");
            let answer = Answer { message, took: Duration::ZERO };
            assert_ne!(answer.outcome(), Outcome::Odd, "{answer:?}");
        },
    );
    is_sound(&sidecar, &redis);
}
