//! An outage of Redis is none of Tallygate: it starts, stays healthy and ends as ever (RL-30).

use std::time::{Duration, Instant};

use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::proxy::{Fault, FaultProxy};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::wait::wait_for;
use crate::timing::load::{BUDGET, Load, RECOVERY, Stream, hold};
use crate::timing::soak::lasts;
use crate::timing::stall::StallProbe;

// RL-30
#[test]
fn every_probe_says_healthy_throughout_an_outage_under_load() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1_000_000, "60s", "closed").start();
    let (client, mut looks) = (sidecar.client(), 0);
    let load = Load::run(&client, Stream::of(500, 50), &stall, || {
        redis.pause();
        let end = Instant::now() + lasts(2, 60);
        while Instant::now() < end {
            assert_eq!(client.health("").unwrap(), ServingStatus::Serving);
            assert_eq!(client.health("envoy.service.auth.v3.Authorization").unwrap(), ServingStatus::Serving);
            assert_eq!((sidecar.get("/livez").status(), sidecar.readiness()), (200, Some(200)));
            looks += 1;
            hold(Duration::from_millis(50));
        }
        redis.resume();
    });
    assert!(looks >= 10, "{looks} looks");
    load.is_answered_in_time();
}

// RL-30: of all outages the one in which connecting itself hangs.
#[test]
fn a_sidecar_that_starts_while_redis_swallows_everything_serves_at_once() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    proxy.set(Fault::Swallow);
    let started = Instant::now();
    let sidecar = Setup::redis(proxy.port()).policy("orders", 3, "60s", "closed").start_without_store();
    let client = sidecar.client();
    let answer = client.check(&Check::of("ada"));
    assert_eq!((answer.outcome(), answer.metadata("reason").as_str()), (Outcome::Failed, "disconnected"));
    assert!(started.elapsed() <= stall.bound(Duration::from_secs(5)), "{:?}", started.elapsed());
    assert_eq!(client.health("").unwrap(), ServingStatus::Serving);
    assert_eq!((sidecar.get("/livez").status(), sidecar.readiness()), (200, Some(200)));

    proxy.set(Fault::Pass);
    wait_for("a check to pass", stall.bound(RECOVERY), || {
        client.check(&Check::of("ada")).outcome() == Outcome::Allowed
    });
}

/// SIGTERM amid 500 checks a second to a Redis behind this port: what had been sent is answered in time, what comes later may
/// be turned away, and the process ends by itself.
#[track_caller]
fn ends_in_order_under_load(port: u16, slow_down: impl FnOnce()) {
    let stall = StallProbe::start();
    let mut sidecar = Setup::redis(port).policy("orders", 1_000_000, "60s", "closed").start();
    let client = sidecar.client();
    for _ in 0..2 {
        assert_eq!(client.check(&Check::of("before")).outcome(), Outcome::Allowed);
    }
    slow_down();
    let send_for = |duration: Duration| {
        let end = Instant::now() + duration;
        let mut calls = Vec::new();
        while Instant::now() < end {
            calls.push((Instant::now(), client.start(&Check::of("ada"))));
            hold(Duration::from_millis(2));
        }
        calls
    };
    let before = send_for(Duration::from_millis(500));
    let terminated = Instant::now();
    sidecar.sigterm();
    let after = send_for(Duration::from_millis(500));
    for (sent, call) in before.into_iter().chain(after) {
        match call.try_join() {
            Ok(answer) => {
                // A busy machine may take more than a command has, where Redis takes most of that.
                assert!([Outcome::Allowed, Outcome::Failed].contains(&answer.outcome()), "{answer:?}");
                assert!(answer.took <= stall.bound(BUDGET), "an answer took {:?}", answer.took);
            }
            Err(status) => {
                // What was sent in the last moment may not have left this process.
                let ahead = terminated.saturating_duration_since(sent);
                assert!(ahead <= stall.bound(Duration::ZERO), "sent {ahead:?} before the end, and lost: {status:?}");
                // The client calls a GOAWAY that reports no error an internal one, if it comes while the check is being sent.
                let turned_away =
                    status.code() == Code::Internal && format!("{status:?}").contains("GoAway(b\"\", NO_ERROR");
                let codes = [Code::Unavailable, Code::Cancelled, Code::Unknown];
                assert!(turned_away || codes.contains(&status.code()), "{status:?}");
            }
        }
    }
    let status = sidecar.wait_exit(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0), "{}", sidecar.log());
    assert!(terminated.elapsed() <= stall.bound(Duration::from_secs(3)), "ended after {:?}", terminated.elapsed());
}

// RL-30
#[test]
fn sigterm_under_load_loses_no_check_that_was_sent_before_it() {
    let redis = RedisServer::start();
    ends_in_order_under_load(redis.port(), || {});
}

// RL-30: at any moment some 75 checks are waiting for Redis.
#[test]
fn sigterm_under_load_answers_the_checks_that_wait_for_a_slow_redis() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.port());
    ends_in_order_under_load(proxy.port(), || proxy.delay(Duration::from_millis(150)));
}
