//! Numbers that change while counters are live: never a failure (P14), and what was counted stays counted.

use crate::support::answer::{Answer, Outcome, count};
use crate::support::check::Check;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::{Policy, Rule};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const HOUR_MS: u64 = 3_600_000;
const A_TEST_MS: u64 = 30_000;
/// More would take a bucket of one an hour above 366 days to fill.
const MOST_TOKENS: u64 = 366 * 24;
const WINDOWS: [&str; 3] = ["fixed-window", "sliding-window", "sliding-log"];

/// A store, and a sidecar whose one policy can be written anew.
struct Bench {
    redis: RedisServer,
    sidecar: Sidecar,
}

impl Bench {
    #[track_caller]
    fn start(rule: &str) -> Self {
        let redis = RedisServer::start();
        let sidecar = setup(&redis, &Policy::only("orders", rule)).start();
        redis.away_from_edge(HOUR_MS, A_TEST_MS);
        Self { redis, sidecar }
    }

    /// The same policy with another rule.
    #[track_caller]
    fn change(&self, rule: &str) {
        self.replace(&Policy::only("orders", rule));
    }

    #[track_caller]
    fn replace(&self, policy: &Policy) {
        self.sidecar.reload(&setup(&self.redis, policy));
    }

    #[track_caller]
    fn check(&self) -> Answer {
        self.sidecar.client().check(&Check::of("ada"))
    }

    /// Takes `n` units, which must fit.
    #[track_caller]
    fn take(&self, n: usize) {
        assert_eq!(count(&self.sidecar.client().check_times(&Check::of("ada"), n), Outcome::Allowed), n);
    }

    /// What one check gets: its outcome, and what it says is left.
    #[track_caller]
    fn seen(&self) -> (Outcome, String) {
        let answer = self.check();
        (answer.outcome(), answer.metadata("remaining"))
    }
}

fn setup(redis: &RedisServer, policy: &Policy) -> Setup {
    let rails = "guard_rails: { max_limit: 1000000000, max_log_limit: 1000000000 }";
    Setup::patient(redis.port()).with(policy).more(rails)
}

fn left(outcome: Outcome, remaining: &str) -> (Outcome, String) {
    (outcome, remaining.to_owned())
}

fn key(version: u32, shape: &str) -> String {
    keys::lone(Scope { policy: "orders", version, shape }, &acme("ada"))
}

// RL-05 a, b
#[test]
fn a_lowered_limit_refuses_and_a_raised_one_admits_with_the_count_kept() {
    for name in WINDOWS {
        let limit = |limit| Rule::new(name, limit, HOUR_MS).yaml;
        let bench = Bench::start(&limit(100));
        bench.take(40);
        bench.change(&limit(10));
        let before = (bench.redis.keys(), bench.redis.changes());
        let answer = bench.check();
        assert_eq!((answer.outcome(), answer.metadata("remaining")), left(Outcome::Limited, "0"), "{name}");
        // A sliding window's units weigh until the end of the next window.
        let longest = if name == "sliding-window" { 7200 } else { 3600 };
        assert!((1..=longest).contains(&answer.retry_after()), "{name}: {answer:?}");
        assert_eq!((bench.redis.keys(), bench.redis.changes()), before, "{name}");

        bench.change(&limit(41));
        assert_eq!(bench.seen(), left(Outcome::Allowed, "0"), "{name}: the forty-first");
        assert_eq!(bench.seen(), left(Outcome::Limited, "0"), "{name}");
        bench.change(&limit(100));
        assert_eq!(bench.seen(), left(Outcome::Allowed, "58"), "{name}: 42 of 100");
        assert_eq!(bench.redis.keys().len(), 1, "{name}: one key all along");
    }
}

// RL-05 a, b: a bucket holds what is left and not what was taken.
#[test]
fn a_lowered_burst_clamps_the_level_and_a_raised_one_does_not_fill_it() {
    let burst = |burst| Rule::new("token-bucket", burst, HOUR_MS).yaml;
    let bench = Bench::start(&burst(100));
    bench.take(40);
    bench.change(&burst(10));
    assert_eq!(bench.seen(), left(Outcome::Allowed, "9"), "60 were left, 10 is today's burst");
    bench.change(&burst(100));
    assert_eq!(bench.seen(), left(Outcome::Allowed, "8"), "and not 98");
    bench.take(8);
    for size in [1, MOST_TOKENS, 3] {
        bench.change(&burst(size));
        let answer = bench.check();
        assert_eq!((answer.outcome(), answer.metadata("remaining")), left(Outcome::Limited, "0"), "burst {size}");
        assert!((3500..=3600).contains(&answer.retry_after()), "burst {size}: {answer:?}");
    }
}

// A rate that changes on a live bucket: its expiry was computed with the rate before.
#[test]
fn a_changed_rate_refills_a_live_bucket_from_what_it_holds() {
    let rate = |rate: u64| format!("token_bucket: {{ rate: {rate}, per: 1h, burst: 5 }}");
    let bench = Bench::start(&rate(1));
    bench.take(5);
    assert_eq!(bench.seen(), left(Outcome::Limited, "0"));
    bench.change(&rate(3_600_000));
    assert_eq!(bench.check().outcome(), Outcome::Allowed, "a token a millisecond");
    bench.change(&rate(1));
    bench.take(1);
    bench.change(&rate(1_000_000_000));
    bench.take(5);
    bench.change(&rate(1));
    assert_ne!(bench.check().outcome(), Outcome::Failed);
}

// P14: whatever the order of the numbers.
#[test]
fn no_change_of_a_number_on_a_live_key_is_a_failure() {
    for name in ["fixed-window", "sliding-window", "sliding-log", "token-bucket"] {
        let bench = Bench::start(&Rule::new(name, 20, HOUR_MS).yaml);
        bench.take(20);
        let most = if name == "token-bucket" { MOST_TOKENS } else { 1_000_000_000 };
        for limit in [1, most, 19, 20, 21, most - 1, 2, 1000] {
            bench.change(&Rule::new(name, limit, HOUR_MS).yaml);
            for answer in bench.sidecar.client().check_times(&Check::of("ada"), 3) {
                assert_ne!(answer.outcome(), Outcome::Failed, "{name}, {limit}: {answer:?}");
                let remaining = answer.metadata("remaining").parse::<u64>();
                assert!(remaining.is_ok_and(|left| left < limit), "{name}, {limit}: {answer:?}");
            }
        }
        assert_eq!(bench.sidecar.metrics().store_errors("foreign"), 0, "{name}");
    }
}

// RL-05 c, d: window and algorithm are part of the key.
#[test]
fn another_window_or_algorithm_counts_afresh_and_leaves_the_old_key_alone() {
    let others = Rule::all(100, HOUR_MS).into_iter().chain(Rule::all(100, 60_000)).collect::<Vec<_>>();
    for from in Rule::all(100, HOUR_MS) {
        let bench = Bench::start(&from.yaml);
        bench.take(40);
        let old = key(1, &from.shape);
        let before = bench.redis.snapshot(&old);
        for to in others.iter().filter(|to| **to != from) {
            bench.change(&to.yaml);
            assert_eq!(bench.seen(), left(Outcome::Allowed, "99"), "{} to {}", from.yaml, to.yaml);
            let fresh = bench.redis.snapshot(&key(1, &to.shape));
            assert!(fresh.expires_at_ms > 0, "{} to {}: its own key", from.yaml, to.yaml);
        }
        assert_eq!(bench.redis.snapshot(&old), before, "{}", from.yaml);
        bench.change(&from.yaml);
        assert_eq!(bench.seen(), left(Outcome::Allowed, "59"), "{}: and back, its count goes on", from.yaml);
    }
}

// RL-05 c: no wait beyond the new window.
#[test]
fn the_wait_is_that_of_the_window_in_force() {
    for name in WINDOWS {
        let bench = Bench::start(&Rule::new(name, 2, HOUR_MS).yaml);
        bench.take(2);
        assert!(bench.check().retry_after() > 60, "{name}");
        bench.change(&Rule::new(name, 2, 10_000).yaml);
        let refused = (0..50).map(|_| bench.check()).find(|answer| answer.outcome() == Outcome::Limited);
        let wait = refused.expect("two pass in ten seconds").retry_after();
        assert!((1..=20).contains(&wait), "{name}: {wait}");
    }
}

// RL-05 e
#[test]
fn another_version_counts_afresh_and_leaves_the_old_key_to_run_out() {
    for rule in Rule::all(100, HOUR_MS) {
        let bench = Bench::start(&rule.yaml);
        bench.take(40);
        let before = bench.redis.snapshot(&key(1, &rule.shape));
        bench.replace(&Policy::only("orders", &rule.yaml).version(2));
        assert_eq!(bench.seen(), left(Outcome::Allowed, "99"), "{}", rule.name);
        assert_eq!(bench.redis.snapshot(&key(1, &rule.shape)), before, "{}", rule.name);
        assert!(bench.redis.pttl(&key(2, &rule.shape)) > 0, "{}", rule.name);
        assert_eq!(bench.redis.keys().len(), 2, "{}", rule.name);
    }
}
