//! What the limiter did not write is a failure with a reason under every algorithm: never repaired, never read as room (P3).
//! Here is what all algorithms share; `foreign.rs` has the fixed window, `foreign_texts.rs` the texts of the others.

use std::time::{Duration, Instant};

use crate::support::answer::{Answer, Outcome};
use crate::support::check::Check;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::{ALGORITHMS, Policy, Rule};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;
use crate::support::wait::wait_for;

const LIMIT: u64 = 5;
pub(super) const WINDOW_MS: u64 = 60_000;
/// The longest time to live that a bucket of ours may have: 366 days.
const LONGEST_MS: u64 = 366 * 24 * 3600 * 1000;

/// A store and a sidecar whose only policy has one rule.
pub(super) struct Bench {
    pub(super) redis: RedisServer,
    sidecar: Sidecar,
    rule: Rule,
}

impl Bench {
    pub(super) fn start(algorithm: &'static str) -> Self {
        Self::start_with(algorithm, WINDOW_MS)
    }

    fn start_with(algorithm: &'static str, window_ms: u64) -> Self {
        let (redis, rule) = (RedisServer::start(), Rule::new(algorithm, LIMIT, window_ms));
        let sidecar = Setup::redis(redis.port()).with(&Policy::only(algorithm, &rule.yaml)).start();
        Self { redis, sidecar, rule }
    }

    pub(super) fn key(&self, subject: &str) -> String {
        keys::lone(Scope { policy: self.rule.name, version: 1, shape: &self.rule.shape }, &acme(subject))
    }

    fn check(&self, subject: &str) -> Answer {
        self.sidecar.client().check(&Check::of(subject).path(&format!("/{}", self.rule.name)))
    }

    /// A sound state of `subject`, as the limiter itself writes it.
    #[track_caller]
    fn taken_once(&self, subject: &str) -> String {
        assert_eq!(self.check(subject).outcome(), Outcome::Allowed, "{subject}");
        self.key(subject)
    }

    /// Three checks of `subject`, whose key holds foreign state: each fails for `reason`, nothing is written, and one line is
    /// logged. With the key deleted the next check passes.
    #[track_caller]
    pub(super) fn fails_untouched(&self, subject: &str, reason: &str) {
        let (key, policy) = (self.key(subject), self.rule.name);
        let counted = self.sidecar.metrics();
        let before = (self.redis.snapshot(&key), self.redis.changes());
        for _ in 0..3 {
            let answer = self.check(subject);
            assert_eq!(answer.outcome(), Outcome::Failed, "{policy}, {subject}: {answer:?}");
            assert_eq!((answer.retry_after(), answer.metadata("reason")), (1, "foreign".into()), "{policy}, {subject}");
            let body = &answer.denied().body;
            assert!(!body.contains("ERR") && !body.contains("script"), "no Lua text, got {body:?}");
        }
        assert_eq!((self.redis.snapshot(&key), self.redis.changes()), before, "{policy}, {subject}: untouched");
        let now = self.sidecar.metrics();
        let named = now.foreign(policy, reason) - counted.foreign(policy, reason);
        assert_eq!(named, 3, "{policy}, {subject}: wanted {reason}, {:?}", self.logged(&key));

        wait_for("the line in the log", Duration::from_secs(5), || !self.logged(&key).is_empty());
        let [line] = &self.logged(&key)[..] else { panic!("one line a minute: {:?}", self.logged(&key)) };
        let told = [policy, "only", reason, "ERROR"];
        assert!(told.iter().all(|word| line.contains(&format!("\"{word}\""))), "{line}");

        self.redis.run(&["DEL", &key]);
        assert_eq!(self.check(subject).outcome(), Outcome::Allowed, "{policy}, {subject}: after DEL");
    }

    fn logged(&self, key: &str) -> Vec<String> {
        self.sidecar.log().lines().filter(|line| line.contains(key)).map(str::to_owned).collect()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.redis.now_us() / 1000
    }

    /// A log with these members and a sound expiry for its last score.
    #[track_caller]
    fn seed_log(&self, key: &str, members: &[(u64, u64)]) {
        let texts: Vec<_> = members.iter().map(|(at, label)| (at.to_string(), format!("{label:016}"))).collect();
        for chunk in texts.chunks(500) {
            let pairs = chunk.iter().flat_map(|(at, label)| [at.as_str(), label.as_str()]);
            self.redis.run(&["ZADD", key].into_iter().chain(pairs).collect::<Vec<_>>());
        }
        let last = members.iter().map(|(at, _)| at).max().expect("some members");
        self.expire_at(key, (last + WINDOW_MS * 1000).div_ceil(1000));
    }

    #[track_caller]
    fn expire_at(&self, key: &str, ms: u64) {
        assert_eq!(self.redis.run(&["PEXPIREAT", key, &ms.to_string()]).integer(), 1);
    }
}

// RL-03 a, and c with a string
#[test]
fn a_key_of_another_type_is_a_failure_under_every_algorithm() {
    let makers: [&[&str]; 6] = [
        &["SET", "KEY", "1"],
        &["HSET", "KEY", "count", "1"],
        &["RPUSH", "KEY", "1"],
        &["SADD", "KEY", "1"],
        &["ZADD", "KEY", "1", "1"],
        &["XADD", "KEY", "*", "count", "1"],
    ];
    for algorithm in ALGORITHMS {
        let bench = Bench::start(algorithm);
        let own = if algorithm == "sliding-log" { "ZADD" } else { "SET" };
        for maker in makers.iter().filter(|maker| maker[0] != own) {
            let key = bench.key(maker[0]);
            bench.redis.run(&maker.iter().map(|word| if *word == "KEY" { &key } else { *word }).collect::<Vec<_>>());
            bench.redis.run(&["PEXPIRE", &key, "60000"]);
            bench.fails_untouched(maker[0], "wrong_type");
        }
    }
}

// RL-01, its kind
#[test]
fn sound_state_that_lost_its_expiry_is_a_failure_under_every_algorithm() {
    for algorithm in ALGORITHMS {
        let bench = Bench::start(algorithm);
        let key = bench.taken_once("ada");
        bench.redis.run(&["PERSIST", &key]);
        bench.fails_untouched("ada", "no_expiry");
    }
}

#[test]
fn an_expiry_that_the_state_cannot_have_is_a_failure() {
    for (algorithm, shifts) in [("sliding-window", [-1, 1, 3_600_000]), ("sliding-log", [-1, 1, 3_600_000])] {
        let bench = Bench::start(algorithm);
        bench.redis.away_from_edge(WINDOW_MS, 5_000);
        for shift in shifts {
            let subject = format!("shifted by {shift}");
            let key = bench.taken_once(&subject);
            let end = bench.redis.snapshot(&key).expires_at_ms + shift;
            bench.expire_at(&key, end.try_into().expect("a time to come"));
            bench.fails_untouched(&subject, "wrong_expiry");
        }
    }
    let bench = Bench::start("token-bucket");
    let (now, key) = (bench.now_ms(), bench.key("beyond the longest fill"));
    bench.redis.run(&["SET", &key, &format!("0:{now}"), "PXAT", &(now + LONGEST_MS + 1).to_string()]);
    bench.fails_untouched("beyond the longest fill", "wrong_expiry");
}

// A bucket expires when it is full, which is never before its own instant.
#[test]
fn a_bucket_that_ends_before_its_own_time_is_a_failure() {
    let bench = Bench::start("token-bucket");
    // The state lives for less than a second: on a stalled machine it may end before it is seen.
    let seen = (0..20).any(|n| {
        let (subject, now, start) = (format!("subject-{n}"), bench.now_ms(), Instant::now());
        let ends = (now + 900).to_string();
        bench.redis.run(&["SET", &bench.key(&subject), &format!("0:{}", now + 950), "PXAT", &ends]);
        let answer = bench.check(&subject);
        let in_time = start.elapsed() < Duration::from_millis(800);
        assert!(!in_time || answer.outcome() == Outcome::Failed, "{answer:?}");
        in_time
    });
    assert!(seen, "one of twenty checks is quick enough");
    assert!(bench.sidecar.metrics().foreign("token-bucket", "wrong_expiry") > 0);
}

// RL-10; RL-03 c: ten windows in the future.
#[test]
fn state_ahead_of_the_stores_clock_is_a_failure() {
    let window = Bench::start("sliding-window");
    for ahead in [2, 10, 60] {
        let (subject, index) = (format!("{ahead} windows"), window.now_ms() / WINDOW_MS + ahead);
        let (text, ends) = (format!("{index}:0:1"), ((index + 2) * WINDOW_MS).to_string());
        window.redis.run(&["SET", &window.key(&subject), &text, "PXAT", &ends]);
        window.fails_untouched(&subject, "ahead_of_clock");
    }
    let bucket = Bench::start("token-bucket");
    for ahead in [5_000, 3_600_000] {
        let (subject, time) = (format!("{ahead} ms"), bucket.now_ms() + ahead);
        let ends = (time + WINDOW_MS).to_string();
        bucket.redis.run(&["SET", &bucket.key(&subject), &format!("0:{time}"), "PXAT", &ends]);
        bucket.fails_untouched(&subject, "ahead_of_clock");
    }
    let log = Bench::start("sliding-log");
    for ahead in [5_000, 10 * WINDOW_MS] {
        let (subject, at) = (format!("{ahead} ms"), log.redis.now_us() + ahead * 1000);
        log.seed_log(&log.key(&subject), &[(at - 1, at - 1), (at, at)]);
        log.fails_untouched(&subject, "ahead_of_clock");
    }
}

// RL-10: two clocks of a fail-over differ a little. Judged at the state's own instant, and never a wait beyond the longest.
#[test]
fn state_less_than_a_second_ahead_is_judged_at_its_own_instant() {
    let bucket = Bench::start("token-bucket");
    let time = bucket.now_ms() + 900;
    let state = ["SET", &bucket.key("ada"), &format!("0:{time}"), "PXAT", &(time + 5 * WINDOW_MS).to_string()];
    bucket.redis.run(&state);
    let log = Bench::start("sliding-log");
    let at = log.redis.now_us() + 900_000;
    log.seed_log(&log.key("ada"), &[0, 1, 2, 3, 4].map(|n| (at, at + n)));
    for bench in [&bucket, &log] {
        let answer = bench.check("ada");
        assert_eq!(answer.outcome(), Outcome::Limited, "{}", bench.rule.name);
        assert!((55..=60).contains(&answer.retry_after()), "{}: {answer:?}", bench.rule.name);
    }
}

// RL-10: the window that comes next is its own instant, and full.
#[test]
fn a_sliding_window_that_starts_within_a_second_is_judged_at_its_start() {
    const SHORT_MS: u64 = 900;
    let bench = Bench::start_with("sliding-window", SHORT_MS);
    // The state refuses for longer than a second: on a stalled machine it may end before it is seen.
    let seen = (0..20).any(|n| {
        let (subject, next, start) = (format!("subject-{n}"), bench.now_ms() / SHORT_MS + 1, Instant::now());
        let (key, ends) = (bench.key(&subject), ((next + 2) * SHORT_MS).to_string());
        bench.redis.run(&["SET", &key, &format!("{next}:0:{LIMIT}"), "PXAT", &ends]);
        let before = bench.redis.snapshot(&key);
        let answer = bench.check(&subject);
        let in_time = start.elapsed() < Duration::from_millis(800);
        if in_time {
            assert_eq!((answer.outcome(), bench.redis.snapshot(&key)), (Outcome::Limited, before), "{answer:?}");
            assert!((1..=2).contains(&answer.retry_after()), "{answer:?}");
        }
        in_time
    });
    assert!(seen, "one of twenty checks is quick enough");
}

// RL-03 d: a part that ran out reads as none; P14: a level above the burst is the burst.
#[test]
fn sound_state_that_looks_odd_is_no_failure() {
    let window = Bench::start("sliding-window");
    window.redis.away_from_edge(WINDOW_MS, 5_000);
    let index = window.now_ms() / WINDOW_MS;
    let seed = |subject: &str, index: u64, text: &str| {
        let ends = ((index + 2) * WINDOW_MS).to_string();
        window.redis.run(&["SET", &window.key(subject), &format!("{index}:{text}"), "PXAT", &ends]);
        window.check(subject)
    };
    let first = seed("no window before", index, "0:4");
    assert_eq!((first.outcome(), first.metadata("remaining")), (Outcome::Allowed, "0".into()));
    assert_eq!(seed("the last window's state", index - 1, "100:1").outcome(), Outcome::Allowed);
    assert_eq!(seed("far above the limit", index, "1000000:1000000").outcome(), Outcome::Limited);

    let bucket = Bench::start("token-bucket");
    let now = bucket.now_ms();
    let longest = (now + LONGEST_MS).to_string();
    bucket.redis.run(&["SET", &bucket.key("ada"), &format!("9007199254740991:{now}"), "PXAT", &longest]);
    let answer = bucket.check("ada");
    assert_eq!((answer.outcome(), answer.metadata("remaining")), (Outcome::Allowed, "4".into()));
}

// RL-03 c: the verdict of a log above its limit is *denied*, as after a limit that was lowered.
#[test]
fn a_log_with_a_thousand_members_too_many_is_refused_and_left_alone() {
    let bench = Bench::start("sliding-log");
    let (now, key) = (bench.redis.now_us(), bench.key("ada"));
    let members: Vec<_> = (0..LIMIT + 1000).map(|n| (now - 10_000_000 + n, now - 10_000_000 + n)).collect();
    bench.seed_log(&key, &members);
    let before = (bench.redis.snapshot(&key), bench.redis.changes());
    for _ in 0..3 {
        let answer = bench.check("ada");
        assert_eq!((answer.outcome(), answer.metadata("remaining")), (Outcome::Limited, "0".into()));
        assert!((1..=50).contains(&answer.retry_after()), "{answer:?}");
    }
    assert_eq!((bench.redis.snapshot(&key), bench.redis.changes()), before, "untouched");
}
