//! A Redis that is slow, or whose replies break off, while checks arrive at a steady rate.

use std::time::{Duration, Instant};

use crate::support::proxy::{Fault, FaultProxy};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::timing::load::{Load, RECOVERY, Stream, all_failed, are_decided, hold, outcomes};
use crate::timing::soak::lasts;
use crate::timing::stall::StallProbe;

const STREAM: Stream = Stream::of(500, 50);
/// So many that none is refused.
const LIMIT: u64 = 1_000_000;

/// Breaks the connection for a while; what was sent meanwhile, and the whole.
fn with_fault(redis: &RedisServer, fault: impl FnOnce(&FaultProxy)) -> (Load, [Instant; 2]) {
    let stall = StallProbe::start();
    let proxy = FaultProxy::start(redis.port());
    let sidecar = Setup::redis(proxy.port()).policy("orders", LIMIT, "60s", "closed").start();
    let mut span = [Instant::now(); 2];
    let load = Load::run(&sidecar.client(), STREAM, &stall, || {
        hold(Duration::from_millis(300));
        fault(&proxy);
        // A reply that left the proxy before is no part of it.
        hold(Duration::from_millis(50));
        span[0] = Instant::now();
        hold(lasts(2, 60));
        span[1] = Instant::now();
        proxy.set(Fault::Pass);
        proxy.delay(Duration::ZERO);
        hold(stall.bound(RECOVERY) + Duration::from_millis(300));
    });
    load.is_answered_in_time();
    load.explains(redis, load.started, LIMIT);
    let recovered = Instant::now() - Duration::from_millis(300);
    are_decided(load.since(recovered));
    (load, span)
}

// RL-29 d: as slow as a command may be, and no outage. Some may come too late on a busy machine, and those fail.
#[test]
fn a_redis_that_answers_after_190_ms_still_decides() {
    let redis = RedisServer::start();
    let (load, [from, to]) = with_fault(&redis, |proxy| proxy.delay(Duration::from_millis(190)));
    let during = outcomes(load.between(from, to));
    assert!(during.get("Allowed") > during.get("Failed timeout"), "{during:?}");
    assert!(!during.contains_key("Limited"), "{during:?}");
}

// RL-29 e
#[test]
fn a_redis_that_answers_after_210_ms_decides_nothing_and_delays_nobody_beyond_the_budget() {
    let redis = RedisServer::start();
    let (load, [from, to]) = with_fault(&redis, |proxy| proxy.delay(Duration::from_millis(210)));
    let during = outcomes(load.between(from, to));
    // A machine that lets the sidecar sleep over both shows it the reply together with the time-out.
    let may_be_in_time = load.stall >= Duration::from_millis(10);
    let failed = |word: &String| word.starts_with("Failed") || (may_be_in_time && word == "Allowed");
    assert!(during.keys().all(failed), "{during:?}");
    assert!(during.get("Failed disconnected") > during.get("Allowed"), "{during:?}");
}

// RL-20
#[test]
fn a_redis_whose_replies_break_off_half_way_decides_nothing_and_delays_nobody() {
    let redis = RedisServer::start();
    let (load, [from, to]) = with_fault(&redis, |proxy| proxy.set(Fault::HalveReplies));
    all_failed(load.between(from, to));
}
