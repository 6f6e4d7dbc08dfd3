//! Redis dies and returns, or is stopped and woken, while 500 checks a second arrive.

use std::time::{Duration, Instant};

use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::timing::load::{Load, NOTICED, RECOVERY, Stream, all_failed, are_decided, hold, key};
use crate::timing::soak::lasts;
use crate::timing::stall::StallProbe;

const STREAM: Stream = Stream::of(500, 50);
const LIMIT: u64 = 15;
/// How long the time after a recovery is looked at.
const LOOK: Duration = Duration::from_millis(300);

/// What one outage was, by this process' clock.
struct Outage {
    /// From the moment before the fault to the one when it was surely there.
    begins: [Instant; 2],
    /// From the moment before its end to the one when it was surely over.
    ends: [Instant; 2],
    /// By when everything must be well again.
    recovered: Instant,
}

impl Outage {
    /// Lets the time after the outage pass in which Redis comes into use again, and some more to look at.
    fn over(begins: [Instant; 2], ended: Instant, stall: &StallProbe) -> Self {
        let over = Instant::now();
        let recovery = stall.bound(RECOVERY);
        hold(recovery + LOOK);
        Self { begins, ends: [ended, over], recovered: over + recovery }
    }
}

/// Before and after it the shared limit decides, meanwhile nobody passes, and soon nobody waits.
#[track_caller]
fn is_weathered(load: &Load, outage: &Outage, well_since: Instant) -> Instant {
    are_decided(load.between(well_since, outage.begins[0]));
    all_failed(load.between(outage.begins[1], outage.ends[0]));
    load.came_at_once(load.between(outage.begins[1] + NOTICED, outage.ends[0]));
    are_decided(load.between(outage.recovered, outage.recovered + LOOK));
    outage.recovered
}

// RL-20, RL-29 a
#[test]
fn a_redis_that_is_killed_and_restarted_under_load_costs_failures_and_nothing_else() {
    let stall = StallProbe::start();
    let mut redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", LIMIT, "60s", "closed").start();
    let mut outages = Vec::new();
    let load = Load::run(&sidecar.client(), STREAM, &stall, || {
        hold(Duration::from_secs(1));
        for _ in 0..2 {
            let before = Instant::now();
            redis.kill9();
            let begins = [before, Instant::now()];
            hold(lasts(1, 20));
            let before = Instant::now();
            redis.restart();
            outages.push(Outage::over(begins, before, &stall));
        }
    });
    load.is_answered_in_time();
    let mut well_since = load.started;
    for outage in &outages {
        well_since = is_weathered(&load, outage, well_since);
    }
    // Each restart emptied it.
    load.explains(&redis, outages[1].begins[1], LIMIT);
}

// RL-21, RL-29 b
#[test]
fn a_redis_that_is_stopped_and_woken_under_load_counts_each_check_once_at_most() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", LIMIT, "60s", "closed").start();
    let mut outage = None;
    let load = Load::run(&sidecar.client(), STREAM, &stall, || {
        hold(Duration::from_millis(500));
        let before = Instant::now();
        redis.pause();
        let begins = [before, Instant::now()];
        hold(lasts(1, 20));
        let before = Instant::now();
        redis.resume();
        outage = Some(Outage::over(begins, before, &stall));
    });
    load.is_answered_in_time();
    is_weathered(&load, &outage.expect("there was one"), load.started);
    load.explains(&redis, load.started, LIMIT);
}

// RL-20
#[test]
fn a_redis_that_pauses_its_clients_under_load_charges_no_check_that_had_failed() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", LIMIT, "60s", "closed").start();
    let pause = lasts(1, 5) + Duration::from_millis(500);
    let mut outage = None;
    // A subject a check: whatever is counted for one was counted for that check.
    let load = Load::run(&sidecar.client(), Stream { subjects: usize::MAX, ..STREAM }, &stall, || {
        hold(Duration::from_millis(500));
        let before = Instant::now();
        redis.run(&["CLIENT", "PAUSE", &pause.as_millis().to_string(), "ALL"]);
        let begins = [before, Instant::now()];
        // Answered when the pause is over.
        redis.run(&["PING"]);
        outage = Some(Outage::over(begins, before + pause, &stall));
    });
    let outage = outage.expect("there was one");
    load.is_answered_in_time();
    is_weathered(&load, &outage, load.started);
    load.explains(&redis, load.started, LIMIT);
    let counted = redis.keys();
    for sent in load.between(outage.begins[1], outage.ends[0]) {
        assert!(
            counted.binary_search(&key(sent.subject)).is_err(),
            "subject {} was charged after its check had failed",
            sent.subject
        );
    }
}

// RL-23
#[test]
fn a_redis_that_forgets_its_scripts_again_and_again_under_load_decides_every_check_in_time() {
    let stall = StallProbe::start();
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", LIMIT, "60s", "closed").start();
    let load = Load::run(&sidecar.client(), STREAM, &stall, || {
        let end = Instant::now() + lasts(2, 20);
        while Instant::now() < end {
            redis.run(&["SCRIPT", "FLUSH"]);
            hold(Duration::from_millis(5));
        }
    });
    load.is_answered_in_time();
    are_decided(load.sent.iter());
    load.explains(&redis, load.started, LIMIT);
}
