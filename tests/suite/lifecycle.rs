//! Start, health and end of the process: none of them depends on Redis (RL-30).

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use tonic_health::pb::health_check_response::ServingStatus;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::grpc::Watch;
use crate::support::keys;
use crate::support::proxy::FaultProxy;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::wait::wait_for;

const SERVICE: &str = "envoy.service.auth.v3.Authorization";

/// Longer than any test's drain, shorter than a test's patience.
const EXIT: Duration = Duration::from_secs(15);

/// A process that starts says *not serving* first; it must get beyond that by itself.
#[track_caller]
fn until_serving(health: &mut Watch) {
    let mut seen = health.next();
    while seen == Some(ServingStatus::NotServing) {
        seen = health.next();
    }
    assert_eq!(seen, Some(ServingStatus::Serving));
}

// RL-30
#[test]
fn a_sidecar_starts_and_answers_while_redis_is_down() {
    let mut redis = RedisServer::start();
    redis.stop();
    let started = Instant::now();
    let sidecar = Setup::redis(redis.port()).policy("orders", 3, "60s", "closed").start_without_store();
    assert!(started.elapsed() < Duration::from_secs(5));
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Failed);
    assert_eq!(sidecar.metrics().count("tallygate_store_up", &[]), 0);
    // Health is that of this process: a hiccup of Redis must not take a fleet of sidecars out of service.
    assert_eq!(sidecar.get("/livez").status(), 200);
    assert_eq!(sidecar.get("/readyz").status(), 200);
    assert_eq!(client.health("").unwrap(), ServingStatus::Serving);

    redis.restart();
    wait_for("the first allowed check", Duration::from_secs(5), || {
        client.check(&Check::of("ada")).outcome() == Outcome::Allowed
    });
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("1"), "what failed before is not replayed");
}

// A sidecar that replaces another under load would begin with a 503 for each check until Redis has been reached.
#[test]
fn the_first_check_of_a_fresh_sidecar_is_decided() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    // So that a connection takes its time, as over a real network.
    proxy.delay(Duration::from_millis(10));
    let sidecar = Setup::patient(proxy.port()).policy("orders", 3, "60s", "closed").start_without_store();
    assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
}

#[test]
fn health_says_serving_once_the_sidecar_answers() {
    let sidecar = Setup::memory().policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    until_serving(&mut client.watch_health());
    for service in ["", SERVICE] {
        assert_eq!(client.health(service).unwrap(), ServingStatus::Serving, "{service:?}");
    }
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    assert_eq!(client.health("no.such.Service").unwrap_err().code(), tonic::Code::NotFound);
}

#[test]
fn the_admin_port_answers_what_operators_ask_and_changes_nothing() {
    let sidecar = Setup::memory().policy("orders", 3, "60s", "closed").start();
    for path in ["/livez", "/readyz", "/metrics", "/config"] {
        assert_eq!(sidecar.get(path).status(), 200, "{path}");
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(sidecar.admin(method, path).status(), 405, "{method} {path}");
        }
    }
    let metrics = sidecar.get("/metrics");
    assert!(metrics.one("content-type").starts_with("application/openmetrics-text"));
    assert!(metrics.text().ends_with("# EOF\n"), "whole, as that format demands");
    for path in ["/", "/quit"] {
        let none = sidecar.get(path);
        assert_eq!(none.status(), 404);
        assert_eq!(none.text(), "no such page: there are /metrics, /livez, /readyz, /config\n");
    }
}

// RL-30
#[test]
fn sigterm_first_says_not_ready_then_answers_what_is_in_flight_and_exits_0() {
    let redis = RedisServer::start();
    // Time enough for everything below to happen while one check is in flight.
    let slow = format!(
        "{{ redis: {{ url: 'redis://127.0.0.1:{}', command_timeout: 2500ms }} }}\ndecision_budget: 3s",
        redis.port()
    );
    let mut sidecar = Setup::store(&slow).policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    let mut health = client.watch_health();
    until_serving(&mut health);

    redis.pause();
    let in_flight = client.start(&Check::of("ada"));
    // Nothing shows that a check waits for Redis; if it has not arrived yet it is answered all the same or refused.
    thread::sleep(Duration::from_millis(300));
    sidecar.sigterm();
    wait_for("readiness to end", Duration::from_secs(2), || sidecar.readiness() == Some(503));
    assert!(sidecar.get("/readyz").text().contains("drain"), "it says why");
    assert_eq!(sidecar.get("/livez").status(), 200, "it is alive");
    assert_eq!(health.next(), Some(ServingStatus::NotServing));
    redis.resume();

    let outcome = in_flight.join().outcome();
    assert_eq!(outcome, Outcome::Allowed);
    assert_eq!(redis.get(&keys::orders("ada")).as_deref(), Some("1"));
    drop(health);
    assert_eq!(sidecar.wait_exit(EXIT).code(), Some(0));
}

#[test]
fn an_idle_sidecar_exits_at_once_with_code_0() {
    let mut sidecar = Setup::memory().policy("orders", 3, "60s", "closed").start();
    // An open connection without calls is no work to wait for.
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
    sidecar.sigterm();
    assert_eq!(sidecar.wait_exit(EXIT).code(), Some(0));
}

// Probes and load balancers open connections and say nothing, or die in the middle of a handshake.
#[test]
fn a_connection_without_a_check_does_not_hold_up_the_end() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for said in [&b""[..], &preface[..]] {
        let mut sidecar = Setup::memory().policy("orders", 3, "60s", "closed").start();
        let mut silent = TcpStream::connect(sidecar.grpc()).expect("it listens");
        silent.write_all(said).expect("it reads");
        // A check on another connection shows that the silent one, which came first, was accepted.
        assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
        sidecar.sigterm();
        assert_eq!(
            sidecar.wait_exit(EXIT).code(),
            Some(0),
            "after {:?}:\n{}",
            said.escape_ascii().to_string(),
            sidecar.log()
        );
        drop(silent);
    }
}

#[test]
fn a_health_watcher_does_not_hold_up_the_end() {
    let mut sidecar = Setup::memory().policy("orders", 3, "60s", "closed").start();
    let client = sidecar.client();
    let mut health = client.watch_health();
    until_serving(&mut health);
    sidecar.sigterm();
    assert_eq!(health.next(), Some(ServingStatus::NotServing));
    assert_eq!(sidecar.wait_exit(EXIT).code(), Some(0), "although the stream is still open");
}
