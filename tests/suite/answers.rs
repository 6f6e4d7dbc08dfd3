//! Every field of an answer says the same: code, body and headers (RL-12). Read from the message itself, since an
//! all-default reply would read as *allowed* in Envoy.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;

#[track_caller]
fn code(answer: &Answer) -> i32 {
    answer.message.status.as_ref().expect("every answer has a status").code
}

/// What holds for every denial: headers that Envoy writes as meant, a short body, nothing to split a response with.
#[track_caller]
fn is_a_sound_denial(answer: &Answer) {
    let mut names = HashMap::new();
    for option in answer.headers() {
        let header = option.header.as_ref().expect("an entry has a header");
        *names.entry(header.key.to_ascii_lowercase()).or_insert(0) += 1;
        assert_eq!(option.append_action(), HeaderAppendAction::OverwriteIfExistsOrAdd, "{}", header.key);
        assert!(header.raw_value.is_empty(), "{} is sent as text, which every Envoy reads", header.key);
        assert!(!header.value.is_empty() && !header.value.contains(['\r', '\n', '\0']), "{}", header.key);
        assert!(!header.key.is_empty() && !header.key.starts_with(':'), "{}", header.key);
    }
    assert!(names.values().all(|&n| n == 1), "one entry a name: {names:?}");
    let body = &answer.denied().body;
    assert!(!body.is_empty() && body.len() <= 256, "{body:?}");
}

// RL-12
#[test]
fn an_allowed_answer_has_code_0_and_an_ok_response_that_changes_nothing() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start();
    let answer = sidecar.client().check(&Check::of("ada"));
    assert_eq!(code(&answer), 0);
    let Some(HttpResponse::OkResponse(ok)) = &answer.message.http_response else { panic!("{answer:?}") };
    assert!(ok.headers.is_empty() && ok.headers_to_remove.is_empty(), "{ok:?}");
    assert!(ok.response_headers_to_add.is_empty(), "the application's own headers stay as they are: {ok:?}");
    assert!(ok.query_parameters_to_set.is_empty() && ok.query_parameters_to_remove.is_empty(), "{ok:?}");
    for (field, value) in [("policy", "orders"), ("limit", "only"), ("verdict", "allowed"), ("remaining", "2")] {
        assert_eq!(answer.metadata(field), value, "{field}");
    }
}

// RL-12
#[test]
fn a_denied_answer_has_code_8_and_a_429_with_one_retry_after() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    client.check(&Check::of("ada"));
    let answer = client.check(&Check::of("ada"));
    assert_eq!((code(&answer), answer.outcome()), (8, Outcome::Limited));
    is_a_sound_denial(&answer);
    assert!((59..=60).contains(&answer.retry_after()));
    assert_eq!(answer.all("x-envoy-ratelimited"), ["true"]);
    assert_eq!(answer.all("grpc-status"), [""; 0], "not for a plain HTTP caller");
    for (field, value) in [("policy", "orders"), ("limit", "only"), ("verdict", "denied"), ("remaining", "0")] {
        assert_eq!(answer.metadata(field), value, "{field}");
    }
    assert_eq!(answer.metadata("retry_after"), answer.retry_after().to_string());
}

// RL-12: without it a gRPC caller would be told UNAVAILABLE, which meshes repeat.
#[test]
fn a_denied_grpc_caller_is_told_resource_exhausted() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    client.check(&Check::of("ada"));
    let with = |content_type| client.check(&Check::of("ada").header("content-type", content_type));
    for content_type in ["application/grpc", "application/grpc+proto"] {
        let answer = with(content_type);
        assert_eq!(answer.outcome(), Outcome::Limited, "{content_type}");
        assert_eq!(answer.all("grpc-status"), ["8"], "{content_type}");
        is_a_sound_denial(&answer);
    }
    for content_type in ["application/json", "application/grpc-web", "application/grpcx", "text/plain"] {
        assert_eq!(with(content_type).all("grpc-status"), [""; 0], "{content_type}");
    }
    let raw = client.check(&Check::of("ada").raw_header("content-type", b"application/grpc"));
    assert_eq!(raw.all("grpc-status"), ["8"], "where Envoy sends raw headers");
}

#[test]
fn a_failed_answer_has_code_14_and_a_503_that_asks_to_come_back() {
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    redis.kill9();
    let answer = sidecar.client().check(&Check::of("ada"));
    assert_eq!((code(&answer), answer.outcome()), (14, Outcome::Failed));
    is_a_sound_denial(&answer);
    assert_eq!(answer.retry_after(), 1);
    assert_eq!(answer.all("x-envoy-ratelimited"), ["true"]);
    for (field, value) in [("policy", "orders"), ("verdict", "failed")] {
        assert_eq!(answer.metadata(field), value, "{field}");
    }
    assert!(!answer.metadata("reason").is_empty());
}

#[test]
fn a_failed_answer_of_the_envoy_mode_leaves_the_choice_to_envoy() {
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "envoy").start();
    redis.kill9();
    let answer = sidecar.client().check(&Check::of("ada"));
    assert_eq!(code(&answer), 14);
    match &answer.message.http_response {
        Some(HttpResponse::ErrorResponse(error)) => {
            assert_eq!(error.status.as_ref().unwrap().code, 503);
        }
        other => panic!("wanted an error_response, got {other:?}"),
    }
}

#[test]
fn a_request_without_identity_is_refused_with_401() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    let answer = sidecar.client().check(&Check::get("/orders"));
    assert_eq!((code(&answer), answer.outcome()), (16, Outcome::Unauthorized));
    is_a_sound_denial(&answer);
    assert_eq!(answer.all("retry-after"), [""; 0], "waiting does not help");
    assert_eq!(answer.metadata("verdict"), "unidentified");
}

#[test]
fn a_request_that_no_policy_matches_gets_the_operators_answer() {
    let redis = RedisServer::start();
    let setup = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed");
    let answers = [("allow", Outcome::Allowed, "unmatched_allowed"), ("deny", Outcome::Forbidden, "unmatched_denied")];
    for (word, outcome, counted) in answers {
        let yaml = format!("unmatched: {word}");
        let sidecar = setup.clone().more(&yaml).start();
        let client = sidecar.client();
        for path in ["/elsewhere", "/orders-archive", "/ORDERS", ""] {
            let answer = client.check(&Check::of("ada").path(path));
            assert_eq!(answer.outcome(), outcome, "{yaml}, {path:?}");
            assert_eq!(answer.metadata("verdict"), "unmatched", "{yaml}, {path:?}");
        }
        assert_eq!(sidecar.metrics().count("tallygate_verdicts_total", &[("verdict", counted)]), 4);
    }
    assert_eq!(redis.keys(), [""; 0]);
}

#[test]
fn a_path_that_servers_read_differently_is_refused() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "60s", "closed").start();
    let client = sidecar.client();
    for path in ["/orders%2F7", "/orders%5c7", "/orders\\7", "/orders%00", "/orders%zz", "/orders%2"] {
        let answer = client.check(&Check::of("ada").path(path));
        assert_eq!(answer.outcome(), Outcome::Forbidden, "{path}");
        assert_eq!(answer.metadata("verdict"), "ambiguous_path", "{path}");
    }
    assert_eq!(sidecar.metrics().count("tallygate_verdicts_total", &[("verdict", "ambiguous_path")]), 6);
    assert_eq!(redis.keys(), [""; 0]);
}

#[test]
fn every_spelling_of_a_path_meets_one_limit() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    let spellings = ["/orders", "//orders", "/%6frders", "/./orders", "/x/../orders", "/orders/?x=1", "/orders#a"];
    let outcomes: Vec<_> = spellings.iter().map(|path| client.check(&Check::of("ada").path(path)).outcome()).collect();
    assert_eq!(outcomes[..3], [Outcome::Allowed; 3]);
    assert_eq!(outcomes[3..], [Outcome::Limited; 4]);
}
