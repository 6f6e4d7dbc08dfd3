//! Every check is answered within its budget, whatever Redis does; in a known outage at once (P7).

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::ports;
use crate::support::proxy::{Fault, FaultProxy};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::tls::pem;
use crate::timing::stall::StallProbe;

/// The default decision budget.
const BUDGET: Duration = Duration::from_millis(250);
const LOCAL: &str = "{ open: { per: [tenant, subject], fixed_window: { limit: 2, window: 60s } } }";

/// `orders` closed and `catalog` open, on this Redis.
fn setup(port: u16) -> Setup {
    Setup::redis(port).policy("orders", 100_000, "60s", "closed").policy("catalog", 100_000, "60s", LOCAL)
}

/// A TCP peer that accepts and never answers, for as long as the test process lives.
fn silent_peer() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        // Kept, so that the connections stay open.
        let _silent: Vec<_> = listener.incoming().collect();
    });
    port
}

fn catalog(subject: &str) -> Check {
    Check::of(subject).path("/catalog")
}

/// `n` checks one after another.
fn one_by_one(client: &Client, check: &Check, n: usize) -> Vec<Answer> {
    (0..n).map(|_| client.check(check)).collect()
}

/// Closed: 503. Open: two local allowances for a subject, then 429. Each within the budget.
#[track_caller]
fn holds_in_the_outage(client: &Client, stall: &StallProbe) {
    let closed = one_by_one(client, &Check::of("ada"), 20);
    let crowd = client.check_times(&Check::of("grace"), 100);
    for answer in closed.iter().chain(&crowd) {
        assert_eq!(answer.outcome(), Outcome::Failed);
    }
    let open = one_by_one(client, &catalog("ada"), 6);
    let outcomes: Vec<_> = open.iter().map(Answer::outcome).collect();
    assert_eq!(outcomes[..2], [Outcome::Allowed; 2]);
    assert_eq!(outcomes[2..], [Outcome::Limited; 4]);
    let slowest = closed.iter().chain(&crowd).chain(&open).map(|answer| answer.took).max().unwrap();
    let bound = stall.bound(BUDGET);
    assert!(slowest <= bound, "an answer took {slowest:?}, more than {bound:?}");
}

/// The outage is known: nobody waits.
#[track_caller]
fn answers_at_once(client: &Client, stall: &StallProbe) {
    let mut took: Vec<_> = one_by_one(client, &Check::of("ada"), 500).iter().map(|answer| answer.took).collect();
    took.sort();
    let (most, bound) = (took[494], Duration::from_millis(5) + stall.longest());
    assert!(most <= bound, "1 % of the answers took more than {most:?}; wanted {bound:?}");
}

#[test]
fn a_peer_that_accepts_and_never_answers_delays_nobody_beyond_the_budget() {
    let stall = StallProbe::start();
    let sidecar = setup(silent_peer()).start_without_store();
    let client = sidecar.client();
    holds_in_the_outage(&client, &stall);
    answers_at_once(&client, &stall);
}

#[test]
fn a_redis_that_refuses_connections_delays_nobody() {
    let stall = StallProbe::start();
    let sidecar = setup(ports::free()).start_without_store();
    let client = sidecar.client();
    holds_in_the_outage(&client, &stall);
    answers_at_once(&client, &stall);
}

// RL-21: a connection that was good and falls silent.
#[test]
fn a_connection_that_falls_silent_delays_nobody_beyond_the_budget() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = setup(proxy.port()).start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    proxy.set(Fault::Swallow);
    holds_in_the_outage(&client, &stall);
    answers_at_once(&client, &stall);
}

#[test]
fn a_redis_that_hangs_delays_nobody_beyond_the_budget() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let sidecar = setup(redis.port()).start();
    let client = sidecar.client();
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    redis.pause();
    holds_in_the_outage(&client, &stall);
    answers_at_once(&client, &stall);
    redis.resume();
}

// RL-28: Envoy always says how long it will wait. The sidecar answers before that.
#[test]
fn a_check_is_answered_before_its_grpc_timeout_ends() {
    let stall = StallProbe::start();
    // A connection is given up after some time-outs, and then checks fail at once: the first is the hard one.
    for order in [[200, 100, 50], [50, 100, 200]] {
        let redis = RedisServer::start();
        let sidecar = setup(redis.port()).start();
        let client = sidecar.client();
        assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
        redis.pause();
        for ms in order {
            match client.check_within(&Check::of("ada"), Duration::from_millis(ms)) {
                Ok(answer) => assert_eq!(answer.outcome(), Outcome::Failed, "{ms} ms"),
                // The sidecar keeps 15 ms for the way back. A machine that stalls for most of that proves nothing.
                Err(status) => assert!(stall.longest() > Duration::from_millis(10), "{ms} ms: {status:?}"),
            }
        }
        redis.resume();
    }
}

// A slow Redis that still answers in time is no outage.
#[test]
fn a_redis_that_takes_a_tenth_of_a_second_still_decides() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = setup(proxy.port()).start();
    let client = sidecar.client();
    // The first check of all finds Redis without our script and takes two round trips.
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    proxy.delay(Duration::from_millis(100));
    for answer in one_by_one(&client, &Check::of("ada"), 5) {
        assert_eq!(answer.outcome(), Outcome::Allowed, "{}", answer.metadata("reason"));
    }
}

// TLS is one more reason to wait, and none to wait longer.
#[test]
fn a_redis_that_hangs_delays_nobody_beyond_the_budget_over_tls_either() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let [chain, key, ca] = ["sidecar", "sidecar-key", "mesh"].map(|name| pem(name).display().to_string());
    let tls = format!("certificate_file: '{chain}', private_key_file: '{key}', client_ca_file: '{ca}'");
    let sidecar = setup(redis.port()).tls(&tls).start();
    let client = Client::over_tls(sidecar.grpc(), "mesh", Some("envoy")).expect("one of the mesh");
    assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    redis.pause();
    holds_in_the_outage(&client, &stall);
    answers_at_once(&client, &stall);
    redis.resume();
}
