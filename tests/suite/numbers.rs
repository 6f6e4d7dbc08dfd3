//! Numbers keep every digit on their way through Lua, which has only doubles and prints 14 digits by itself.

use std::ops::RangeInclusive;

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::Policy;
use crate::support::redis::RedisServer;
use crate::support::resp::Value;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

/// Buckets as rate, period, and the cost of a request. One more than two costs do not fit, and a bucket that paid once is full
/// again after half a minute or later.
const BUCKETS: [(u64, u64, u64); 5] =
    [(3, 1000, 90), (7, 1000, 210), (9, 1000, 270), (1000, 1000, 30_000), (1, 30 * DAY_MS, 1)];
const DAY_MS: u64 = 24 * 3_600_000;
/// At once; so many that a mistake in the last digits shows.
const CROWD: usize = 100;

/// How many fresh subjects each bucket gets.
fn subjects() -> usize {
    if std::env::var_os("TALLYGATE_SOAK").is_some() { 100_000 } else { 2_000 }
}

fn burst(cost: u64) -> u64 {
    2 * cost - 1
}

fn start(policies: &[Policy]) -> (RedisServer, Sidecar) {
    let redis = RedisServer::start();
    let rails = "guard_rails: { max_window: 8784h, max_limit: 1000000000 }";
    let setup = policies.iter().fold(Setup::patient(redis.port()), Setup::with).more(rails);
    let sidecar = setup.start();
    (redis, sidecar)
}

fn now_ms(redis: &RedisServer) -> u64 {
    redis.now_us() / 1000
}

/// The state of a bucket, which is plain decimal integers: no sign, no point, no exponent.
#[track_caller]
fn parts<const N: usize>(state: &str) -> [u64; N] {
    let number = |text: &str| {
        assert!(text.bytes().all(|b| b.is_ascii_digit()), "{state}");
        text.parse::<u64>().unwrap_or_else(|_| panic!("{state}"))
    };
    let parts: Vec<_> = state.split(':').map(number).collect();
    parts.try_into().unwrap_or_else(|_| panic!("{state}"))
}

/// What each key holds.
#[track_caller]
fn states(redis: &RedisServer, keys: &[String]) -> Vec<String> {
    let command: Vec<_> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    let Value::Array(states) = redis.run(&command) else { panic!("MGET answers a list") };
    states.iter().map(Value::text).collect()
}

// RL-09
#[test]
fn a_fresh_bucket_admits_whatever_its_rate_and_stores_plain_integers() {
    let names = BUCKETS.map(|(rate, per, _)| format!("b{rate}-{per}"));
    let policy = |(name, (rate, per, cost)): (&String, (u64, u64, u64))| {
        let rule = format!("token_bucket: {{ rate: {rate}, per: {per}ms, burst: {} }}", burst(cost));
        Policy::only(name, &rule).more(&format!("cost: {cost}"))
    };
    let (redis, sidecar) = start(&names.iter().zip(BUCKETS).map(policy).collect::<Vec<_>>());
    let client = sidecar.client();
    for (name, (_, per, cost)) in names.iter().zip(BUCKETS) {
        let shape = format!("token_bucket/{per}ms");
        let check = |subject: &str| Check::of(subject).path(&format!("/{name}"));
        for first in (0..subjects()).step_by(CROWD) {
            let crowd: Vec<_> = (first..first + CROWD).map(|n| format!("subject-{n}")).collect();
            let checks: Vec<_> = crowd.iter().map(|subject| check(subject)).collect();
            let before = now_ms(&redis);
            let answers = client.check_all(&checks);
            let meanwhile: RangeInclusive<u64> = before..=now_ms(&redis);
            assert_eq!(count(&answers, Outcome::Allowed), CROWD, "{name}: the first of each subject");

            let key = |subject: &String| keys::lone(Scope { policy: name, version: 1, shape: &shape }, &acme(subject));
            for state in states(&redis, &crowd.iter().map(key).collect::<Vec<_>>()) {
                let [level, time] = parts(&state);
                assert_eq!(level, (burst(cost) - cost) * per, "{name}: {state}");
                assert!(meanwhile.contains(&time), "{name}: {state} while the server's clock was {meanwhile:?}");
            }
            // Its own state is one that it takes back.
            let again = client.check_all(&checks[..CROWD / 10]);
            assert_eq!(count(&again, Outcome::Failed), 0, "{name}");
        }
    }
    assert_eq!(sidecar.metrics().store_errors("foreign"), 0);
}

// RL-09: one at a time, so that the server's clock is known closely.
#[test]
fn the_stored_time_is_the_servers_own() {
    let (redis, sidecar) = start(&[Policy::only("orders", "token_bucket: { rate: 1, per: 60s, burst: 2 }")]);
    let client = sidecar.client();
    let scope = Scope { policy: "orders", version: 1, shape: "token_bucket/60000ms" };
    let mut close = 0;
    for n in 0..500 {
        let subject = format!("subject-{n}");
        let before = now_ms(&redis);
        assert_eq!(client.check(&Check::of(&subject)).outcome(), Outcome::Allowed);
        let after = now_ms(&redis);
        let [_, time] = parts(&states(&redis, &[keys::lone(scope, &acme(&subject))])[0]);
        assert!((before..=after).contains(&time), "{time} is not within {before} to {after}");
        close += usize::from(after - before <= 2);
        if close == 5 {
            return;
        }
    }
    panic!("only {close} of 500 checks took no longer than 2 ms, too few to tell");
}

// RL-09: 14 digits are what Lua prints by itself; these have 16.
#[test]
fn a_level_next_to_the_largest_exact_number_keeps_every_digit() {
    let (per, burst) = (366 * DAY_MS, 284_833);
    let rule = format!("token_bucket: {{ rate: {burst}, per: {per}ms, burst: {burst} }}");
    let (redis, sidecar) = start(&[Policy::only("orders", &rule)]);
    let shape = format!("token_bucket/{per}ms");
    let key = keys::lone(Scope { policy: "orders", version: 1, shape: &shape }, &acme("ada"));
    let mut last: Option<[u64; 2]> = None;
    for taken in 1..=50 {
        assert_eq!(sidecar.client().check(&Check::of("ada")).outcome(), Outcome::Allowed);
        let [level, time] = parts(&redis.get(&key).expect("a state"));
        let refilled = last.map_or(0, |[_, before]| (time - before) * burst);
        let expected = last.map_or(burst * per, |[level, _]| level) + refilled - per;
        assert_eq!(level, expected, "after {taken} tokens");
        assert!(level > 9_000_000_000_000_000, "{level}");
        let fill_ms = (burst * per - level).div_ceil(burst);
        assert_eq!(redis.snapshot(&key).expires_at_ms.cast_unsigned(), time + fill_ms, "full then, to the millisecond");
        last = Some([level, time]);
    }
}

#[test]
fn windows_and_logs_store_plain_integers() {
    let window = Policy::only("window", "sliding_window: { limit: 1000000000, window: 2h }").more("cost: 1000000");
    let log = Policy::only("log", "sliding_log: { limit: 100, window: 2h }").more("cost: 7");
    let (redis, sidecar) = start(&[window, log]);
    redis.away_from_edge(7_200_000, 20_000);
    let client = sidecar.client();
    let before = redis.now_us();
    for path in ["/window", "/log"] {
        assert_eq!(count(&client.check_times(&Check::of("ada").path(path), 10), Outcome::Allowed), 10);
    }
    let meanwhile = before..=redis.now_us();
    let key = |policy, shape| keys::lone(Scope { policy, version: 1, shape }, &acme("ada"));
    let state = redis.get(&key("window", "sliding_window/7200000ms")).expect("a state");
    assert_eq!(parts(&state), [before / 7_200_000_000, 0, 10_000_000]);
    let log = key("log", "sliding_log/7200000ms");
    let Value::Array(items) = redis.run(&["ZRANGE", &log, "0", "-1", "WITHSCORES"]) else { panic!("a list") };
    assert_eq!(items.len(), 2 * 70, "a member a unit");
    for pair in items.chunks(2) {
        let ([label], [score]) = (parts(&pair[0].text()), parts(&pair[1].text()));
        assert!(
            pair[0].text().len() == 16 && label >= score && meanwhile.contains(&score),
            "{pair:?} in {meanwhile:?}"
        );
    }
}
