//! Windows end, and Retry-After says when (P12).

use std::thread;
use std::time::{Duration, Instant};

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::wait::wait_for;

#[test]
fn a_new_window_starts_after_the_old_one_has_ended() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 2, "700ms", "closed").start();
    let client = sidecar.client();
    let key = keys::key("orders", 700, &[("route/tenant", "", b"acme"), ("route/subject", "", b"ada")]);
    let check = Check::of("ada");
    for _ in 0..2 {
        assert_eq!(client.check(&check).outcome(), Outcome::Allowed);
    }
    let end = redis.snapshot(&key).expires_at_ms;
    wait_for("the window to end", Duration::from_secs(5), || redis.pttl(&key) == -2);

    assert_eq!(client.check(&check).outcome(), Outcome::Allowed);
    assert_eq!(redis.get(&key).as_deref(), Some("1"), "counting starts anew");
    assert!(redis.snapshot(&key).expires_at_ms >= end + 700, "and so does the window");
}

// RL-11
#[test]
fn retry_after_is_the_remaining_time_in_whole_seconds_rounded_up() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", "closed").start();
    let client = sidecar.client();
    for (px, seconds) in [(30_500, 31), (1_100, 2), (400, 1), (60_000, 60)] {
        let answer = refused_at_once(&redis, &client, px);
        assert_eq!(answer.retry_after(), seconds, "with {px} ms left");
        assert_eq!(answer.metadata("retry_after"), seconds.to_string(), "with {px} ms left");
    }
}

// RL-11
#[test]
fn waiting_as_long_as_retry_after_says_is_enough() {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 1, "2500ms", "closed").start();
    let client = sidecar.client();
    thread::scope(|scope| {
        for n in 0..16 {
            let client = &client;
            scope.spawn(move || {
                let check = Check::of(&format!("subject-{n}"));
                assert_eq!(client.check(&check).outcome(), Outcome::Allowed);
                // Different ages of the window, so that different fractions are left.
                thread::sleep(Duration::from_millis(60 * n));
                let refused = client.check(&check);
                assert_eq!(refused.outcome(), Outcome::Limited, "subject {n}");
                thread::sleep(Duration::from_secs(refused.retry_after()));
                assert_eq!(client.check(&check).outcome(), Outcome::Allowed, "subject {n}");
            });
        }
    });
}

/// The refusal that a counter at its limit with `px` ms to live gets. On a busy machine the question may come too
/// late to say anything; then it is asked again.
fn refused_at_once(redis: &RedisServer, client: &Client, px: u64) -> Answer {
    for attempt in 0..50 {
        let subject = format!("subject-{px}-{attempt}");
        redis.seed(&keys::orders(&subject), "5", px);
        let seeded = Instant::now();
        let answer = client.check(&Check::of(&subject));
        if seeded.elapsed() < Duration::from_millis(80) {
            assert_eq!(answer.outcome(), Outcome::Limited, "with {px} ms left");
            return answer;
        }
    }
    panic!("no check was answered within 80 ms");
}
