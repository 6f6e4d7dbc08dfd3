//! State that the limiter did not write is a failure with a reason. It is never repaired and never read as room (P3).

use std::time::Duration;

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

fn start() -> (RedisServer, Sidecar) {
    let redis = RedisServer::start();
    let sidecar = Setup::redis(redis.port()).policy("orders", 5, "60s", "closed").start();
    (redis, sidecar)
}

/// Three checks of `subject`, whose key holds foreign state: each fails for `reason`, and nothing is written.
#[track_caller]
fn fails_untouched(redis: &RedisServer, sidecar: &Sidecar, subject: &str, reason: &str) {
    let key = keys::orders(subject);
    let client = sidecar.client();
    let counted = sidecar.metrics();
    let (before, changes) = (redis.snapshot(&key), redis.changes());
    for _ in 0..3 {
        let answer = client.check(&Check::of(subject));
        assert_eq!(answer.outcome(), Outcome::Failed, "{subject}");
        assert_eq!(answer.retry_after(), 1, "{subject}");
        assert!(answer.took < Duration::from_secs(2), "{subject}: {:?}", answer.took);
        let body = &answer.denied().body;
        assert!(!body.contains("ERR") && !body.contains("user_script"), "{subject}: no Lua text, got {body:?}");
    }
    assert_eq!((redis.snapshot(&key), redis.changes()), (before, changes), "{subject}: untouched");
    let now = sidecar.metrics();
    assert_eq!(now.foreign("orders", reason) - counted.foreign("orders", reason), 3, "{subject}: {reason}");
    assert_eq!(now.verdicts("orders", "failed") - counted.verdicts("orders", "failed"), 3, "{subject}");
    assert_eq!(now.store_errors("foreign") - counted.store_errors("foreign"), 3, "{subject}");
}

// RL-01
#[test]
fn a_counter_without_expiry_is_a_failure_until_an_operator_removes_it() {
    let (redis, sidecar) = start();
    for value in ["3", "5", "0"] {
        let subject = format!("seed-{value}");
        let key = keys::orders(&subject);
        redis.run(&["SET", &key, value]);
        // `0` is wrong twice; which of the two is named is not the point here.
        if value == "0" {
            let answer = sidecar.client().check(&Check::of(&subject));
            assert_eq!(answer.outcome(), Outcome::Failed);
            assert_eq!((redis.get(&key).as_deref(), redis.pttl(&key)), (Some("0"), -1));
        } else {
            fails_untouched(&redis, &sidecar, &subject, "no_expiry");
            assert_eq!(redis.pttl(&key), -1);
        }
        redis.run(&["DEL", &key]);
        assert_eq!(sidecar.client().check(&Check::of(&subject)).outcome(), Outcome::Allowed);
        let left = redis.pttl(&key);
        assert!((59_000..=60_000).contains(&left), "{left} ms to live");
    }
}

// RL-02: text that Lua takes for a number and Redis' own INCR does not, or the other way round.
#[test]
fn a_counter_that_is_not_a_positive_plain_integer_is_a_failure() {
    let (redis, sidecar) = start();
    let huge = "1".repeat(1024 * 1024);
    let cases = [
        "0",
        "00",
        "007",
        " 5",
        "5 ",
        "+5",
        "-0",
        "5.0",
        "1e2",
        "0x10",
        "-3",
        "",
        "nan",
        "inf",
        "5\n",
        "5\0",
        "५",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        &huge,
    ];
    for (n, value) in cases.iter().enumerate() {
        let subject = format!("case {n}: {:.30}", value.escape_debug().to_string());
        redis.seed(&keys::orders(&subject), value, 60_000);
        fails_untouched(&redis, &sidecar, &subject, "malformed");
    }
}

// RL-03 a
#[test]
fn a_key_of_another_type_is_a_failure() {
    let (redis, sidecar) = start();
    let makers: [&[&str]; 5] = [
        &["HSET", "KEY", "count", "1"],
        &["RPUSH", "KEY", "1"],
        &["SADD", "KEY", "1"],
        &["ZADD", "KEY", "1", "1"],
        &["XADD", "KEY", "*", "count", "1"],
    ];
    for maker in makers {
        let key = keys::orders(maker[0]);
        let command: Vec<_> = maker.iter().map(|word| if *word == "KEY" { &key } else { *word }).collect();
        redis.run(&command);
        redis.run(&["PEXPIRE", &key, "60000"]);
        fails_untouched(&redis, &sidecar, maker[0], "wrong_type");
    }
}

// RL-10, its quick form
#[test]
fn an_expiry_beyond_the_window_is_a_failure_and_one_within_a_second_of_it_is_not() {
    let (redis, sidecar) = start();
    for px in [61_500, 3_660_000, 86_400_000] {
        let subject = format!("far-{px}");
        redis.seed(&keys::orders(&subject), "5", px);
        fails_untouched(&redis, &sidecar, &subject, "wrong_expiry");
    }
    // Two clocks of a fail-over differ a little: clamped, never a wait above the window.
    redis.seed(&keys::orders("near"), "5", 60_900);
    let answer = sidecar.client().check(&Check::of("near"));
    assert_eq!((answer.outcome(), answer.retry_after()), (Outcome::Limited, 60));
}

#[test]
fn a_failure_on_one_subject_is_no_failure_on_another() {
    let (redis, sidecar) = start();
    redis.run(&["SET", &keys::orders("ada"), "3"]);
    let client = sidecar.client();
    let answers = client.check_all(&[Check::of("ada"), Check::of("grace"), Check::of("ada"), Check::of("edsger")]);
    let outcomes: Vec<_> = answers.iter().map(Answer::outcome).collect();
    assert_eq!(outcomes, [Outcome::Failed, Outcome::Allowed, Outcome::Failed, Outcome::Allowed]);
}
