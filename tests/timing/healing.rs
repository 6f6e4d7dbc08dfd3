//! After an outage the shared limit decides again, soon, and through few new connections.

use std::time::{Duration, Instant};

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::proxy::{Fault, FaultProxy};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::wait::wait_for;
use crate::timing::soak::lasts;
use crate::timing::stall::StallProbe;

/// Asks until `condition` of the outcome holds; how long it took.
#[track_caller]
fn until(what: &str, client: &Client, condition: impl Fn(Outcome) -> bool) -> Duration {
    let started = Instant::now();
    wait_for(what, Duration::from_secs(10), || condition(client.check(&Check::of("ada")).outcome()));
    started.elapsed()
}

/// Every check of an outage fails, and there is always an answer.
#[track_caller]
fn fails_for(client: &Client, outage: Duration) {
    let end = Instant::now() + outage;
    while Instant::now() < end {
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Failed);
    }
}

#[track_caller]
fn recovers_within(client: &Client, promised: Duration, stall: &StallProbe) {
    let took = until("a check to pass again", client, |outcome| outcome == Outcome::Allowed);
    let bound = stall.bound(promised);
    assert!(took <= bound, "recovered after {took:?}, more than {bound:?}");
    for _ in 0..20 {
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "and stays well");
    }
}

// RL-21: old connections are dead for good and never say so; only a new one helps.
#[test]
fn a_connection_that_fell_silent_is_replaced_within_3_s_of_healing() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::redis(proxy.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let client = sidecar.client();
    until("a first check to pass", &client, |outcome| outcome == Outcome::Allowed);

    proxy.set(Fault::Swallow);
    let outage = lasts(2, 60);
    fails_for(&client, outage);
    let attempts = u64::try_from(proxy.accepted()).unwrap();
    proxy.set(Fault::Pass);
    recovers_within(&client, Duration::from_secs(3), &stall);
    assert!(attempts <= 10 + 5 * outage.as_secs(), "no storm of reconnects: {attempts} in {outage:?}");
}

// RL-21: the fault is over before anybody looked: only time-outs can tell that the connection is dead.
#[test]
fn a_connection_that_fell_silent_while_idle_costs_few_failures() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::redis(proxy.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let client = sidecar.client();
    until("a first check to pass", &client, |outcome| outcome == Outcome::Allowed);
    proxy.set(Fault::Swallow);
    until("a check to fail", &client, |outcome| outcome == Outcome::Failed);
    proxy.set(Fault::Pass);
    recovers_within(&client, Duration::from_secs(3), &stall);
}

// RL-21
#[test]
fn a_redis_that_hung_is_used_again_within_2_s_of_waking() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let client = sidecar.client();
    until("a first check to pass", &client, |outcome| outcome == Outcome::Allowed);
    redis.pause();
    fails_for(&client, lasts(2, 20));
    redis.resume();
    recovers_within(&client, Duration::from_secs(2), &stall);
}

#[test]
fn a_redis_that_died_is_used_again_within_2_s_of_its_return() {
    let stall = StallProbe::start();
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let client = sidecar.client();
    until("a first check to pass", &client, |outcome| outcome == Outcome::Allowed);
    redis.kill9();
    // Long enough for the pause between attempts to have grown to its longest.
    fails_for(&client, lasts(3, 60));
    redis.restart();
    recovers_within(&client, Duration::from_secs(2), &stall);
}

#[test]
fn a_connection_that_was_cut_is_replaced_within_2_s() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::redis(proxy.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let client = sidecar.client();
    until("a first check to pass", &client, |outcome| outcome == Outcome::Allowed);
    proxy.set(Fault::Cut);
    until("a check to fail", &client, |outcome| outcome == Outcome::Failed);
    proxy.set(Fault::Pass);
    recovers_within(&client, Duration::from_secs(2), &stall);
}

// However long an outage, Redis is looked for often enough to be in use again within 2 s.
#[test]
fn a_redis_that_stays_away_is_looked_for_some_times_a_second_and_not_much_more() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::redis(proxy.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let client = sidecar.client();
    proxy.set(Fault::Cut);
    // The pauses between attempts grow.
    fails_for(&client, lasts(3, 60));
    let before = proxy.accepted();
    fails_for(&client, Duration::from_secs(2));
    let attempts = proxy.accepted() - before;
    assert!((3..=20).contains(&attempts), "{attempts} attempts in 2 s");
}
