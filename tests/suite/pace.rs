//! How units come back: a bucket drop by drop, whoever asks and how often; a sliding window by the share that still overlaps.

use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::Policy;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

fn start(rule: &str) -> (RedisServer, Sidecar) {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).with(&Policy::only("orders", rule)).start();
    (redis, sidecar)
}

/// A client that asks every `pause` for `length`, refused or not, gets the burst and what the rate gives in that time: no
/// token less, for asking in vain, and none more.
#[track_caller]
fn keeps_its_pace((rate, per_ms, burst): (u64, u64, u64), pause: Duration, length: Duration) {
    let (redis, sidecar) = start(&format!("token_bucket: {{ rate: {rate}, per: {per_ms}ms, burst: {burst} }}"));
    let client = sidecar.client();
    let shape = format!("token_bucket/{per_ms}ms");
    let key = keys::lone(Scope { policy: "orders", version: 1, shape: &shape }, &acme("ada"));
    let (begin, mut passed, mut longest_gap) = (Instant::now(), 0, Duration::ZERO);
    let (mut last, mut left_behind) = (begin, redis.snapshot(&key));
    while begin.elapsed() < length {
        match client.check(&Check::of("ada")).outcome() {
            Outcome::Allowed => passed += 1,
            Outcome::Limited => {
                let now = redis.snapshot(&key);
                let has_run_out = now.expires_at_ms == -2;
                assert!(now == left_behind || has_run_out, "a refusal leaves no trace: {left_behind:?}, {now:?}");
            }
            other => panic!("{other:?}"),
        }
        left_behind = redis.snapshot(&key);
        longest_gap = longest_gap.max(last.elapsed());
        last = Instant::now();
        thread::sleep(pause);
    }
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap();
    let most = burst + (ms(begin.elapsed()) + 1) * rate / per_ms;
    // A token waits at most for the next time that somebody asks.
    let least = burst + ms(length) * rate / (per_ms + rate * ms(longest_gap + pause));
    assert!((least..=most).contains(&passed), "{passed} passed, wanted {least} to {most} (gaps of {longest_gap:?})");
}

// RL-08 a
#[test]
fn a_client_that_polls_four_times_a_token_gets_every_token() {
    keeps_its_pace((1, 200, 5), Duration::from_millis(50), Duration::from_secs(2));
}

// RL-08 b
#[test]
fn a_client_that_polls_sixty_times_a_token_gets_every_token() {
    keeps_its_pace((1, 1200, 1), Duration::from_millis(20), Duration::from_millis(2700));
}

// RL-08 c: not a full bucket every period.
#[test]
fn a_bucket_does_not_fill_up_by_the_period() {
    keeps_its_pace((3, 200, 3), Duration::from_millis(20), Duration::from_secs(2));
}

// RL-07 a
#[test]
fn a_sliding_window_of_one_refuses_the_second_and_admits_after_idling() {
    let (redis, sidecar) = start("sliding_window: { limit: 1, window: 1s }");
    let client = sidecar.client();
    let outcomes = [(); 2].map(|()| client.check(&Check::of("ada")).outcome());
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Limited]);
    let [key] = &redis.keys()[..] else { panic!("{:?}", redis.keys()) };
    wait_for("the state to run out", Duration::from_secs(5), || redis.pttl(key) == -2);
    assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
}

// RL-07 b, c: ten in the window before, twelve now, at every age of the window.
#[test]
fn what_passes_is_what_the_window_before_no_longer_covers() {
    const WINDOW_MS: u64 = 2000;
    let (redis, sidecar) = start("sliding_window: { limit: 10, window: 2s }");
    let client = sidecar.client();
    let scope = Scope { policy: "orders", version: 1, shape: "sliding_window/2000ms" };
    let (begin, mut seen) = (Instant::now(), HashSet::new());
    for n in 0.. {
        // Index of the window, and how many of the ten have left: whole ones, since nobody passes by half.
        let at = || {
            let now_ms = redis.now_us() / 1000;
            (now_ms / WINDOW_MS, now_ms % WINDOW_MS * 10 / WINDOW_MS)
        };
        let (subject, (index, room)) = (format!("subject-{n}"), at());
        let key = keys::lone(scope, &acme(&subject));
        let ends = ((index + 1) * WINDOW_MS).to_string();
        redis.run(&["SET", &key, &format!("{}:0:10", index - 1), "PXAT", &ends]);
        let passed = count(&client.check_times(&Check::of(&subject), 12), Outcome::Allowed);
        let snapshot = redis.snapshot(&key);
        let state = redis.get(&key);
        // It says nothing if the share changed while the twelve were under way.
        if at() == (index, room) {
            assert_eq!(u64::try_from(passed), Ok(room), "{room} of ten have left");
            if room == 0 {
                assert_eq!(state, Some(format!("{}:0:10", index - 1)), "refused ones add nothing");
            } else {
                assert_eq!(state, Some(format!("{index}:10:{room}")), "refused ones add nothing");
                let end = i64::try_from((index + 2) * WINDOW_MS).unwrap();
                assert_eq!(snapshot.expires_at_ms, end, "readable until the next window ends");
            }
            seen.insert(room);
        }
        if seen.len() == 10 {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "only these shares were seen: {seen:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
