//! One contract for every store: the embedded one and each Redis or Valkey version, for each algorithm.
//!
//! By default the embedded store and the one redis-server that all tests use; with `TALLYGATE_ALL_SERVERS` set also
//! each other version (`make test-extra` fetches and names them).

use std::thread;
use std::time::Duration;

use tallygate::decision::algorithm::{Algorithm, Role};
use tallygate::decision::sliding_log::SlidingLog;

use super::lua_equals_rust;
use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::{Policy, Rule, SUBJECT, TENANT};
use crate::support::process;
use crate::support::redis::RedisServer;
use crate::support::schedule::Slot;
use crate::support::script::{Subject, connect, script_of};
use crate::support::setup::Setup;

const HOUR_MS: u64 = 3_600_000;
const A_TEST_MS: u64 = 20_000;

/// The versions beside the usual one.
const OTHERS: [&str; 4] = ["redis-server-7.0", "redis-server-8.2", "valkey-server-8.1", "valkey-server-9.1"];

/// A store, and the configuration that uses it.
struct Store {
    name: &'static str,
    redis: Option<RedisServer>,
    setup: Setup,
}

impl Store {
    /// Its windows, which may be aligned to its clock, do not end within a test.
    fn settle(&self) {
        if let Some(redis) = &self.redis {
            redis.away_from_edge(HOUR_MS, A_TEST_MS);
        }
    }
}

fn servers() -> Vec<Store> {
    let mut parts = vec!["redis-server"];
    if std::env::var_os("TALLYGATE_ALL_SERVERS").is_some() {
        let missing = OTHERS.into_iter().find(|part| !process::is_there(part));
        assert!(
            missing.is_none(),
            "{} is missing: run `make test-extra`, which fetches it",
            missing.unwrap_or_default()
        );
        parts.extend(OTHERS);
    }
    let server = |name| {
        let redis = RedisServer::start_part(name);
        Store { name, setup: Setup::redis(redis.port()), redis: Some(redis) }
    };
    parts.into_iter().map(server).collect()
}

fn stores() -> Vec<Store> {
    let memory = Store { name: "memory", redis: None, setup: Setup::memory() };
    [memory].into_iter().chain(servers()).collect()
}

/// A policy for each algorithm, named for it: `limit` at once.
fn with_all(setup: &Setup, limit: u64, window_ms: u64) -> Setup {
    let rules = Rule::all(limit, window_ms);
    rules.iter().fold(setup.clone(), |setup, rule| setup.with(&Policy::only(rule.name, &rule.yaml)))
}

fn check(rule: &Rule, subject: &str) -> Check {
    Check::of(subject).path(&format!("/{}", rule.name))
}

fn key(rule: &Rule, subject: &str) -> String {
    keys::lone(Scope { policy: rule.name, version: 1, shape: &rule.shape }, &acme(subject))
}

#[test]
fn store_contract_exactly_the_limit_passes_of_checks_at_once() {
    for store in stores() {
        let sidecar = with_all(&store.setup, 3, HOUR_MS).start();
        let client = sidecar.client();
        store.settle();
        for rule in Rule::all(3, HOUR_MS) {
            for subject in ["ada", "grace"] {
                let answers = client.check_times(&check(&rule, subject), 40);
                assert_eq!(count(&answers, Outcome::Allowed), 3, "{}, {}", store.name, rule.name);
                assert_eq!(count(&answers, Outcome::Limited), 37, "{}, {}", store.name, rule.name);
            }
        }
    }
}

#[test]
fn store_contract_waiting_as_long_as_retry_after_says_is_enough() {
    let stores = stores();
    thread::scope(|scope| {
        for Store { name, setup, .. } in &stores {
            let sidecar = with_all(setup, 2, 900).start();
            scope.spawn(move || {
                let client = sidecar.client();
                thread::scope(|scope| {
                    for rule in Rule::all(2, 900) {
                        let client = &client;
                        scope.spawn(move || {
                            let ada = check(&rule, "ada");
                            // On a stalled machine a window may end between the checks.
                            let asked = (0..100).map(|_| client.check(&ada));
                            let refused = asked.into_iter().find(|answer| answer.outcome() == Outcome::Limited);
                            let told = refused.expect("of a hundred checks one is refused").retry_after();
                            assert!((1..=2).contains(&told), "{name}, {}: {told} s", rule.name);
                            thread::sleep(Duration::from_secs(told));
                            assert_eq!(client.check(&ada).outcome(), Outcome::Allowed, "{name}, {}", rule.name);
                        });
                    }
                });
            });
        }
    });
}

#[test]
fn store_contract_remaining_counts_down_to_zero() {
    for store in stores() {
        let sidecar = with_all(&store.setup, 3, HOUR_MS).start();
        let client = sidecar.client();
        store.settle();
        for rule in Rule::all(3, HOUR_MS) {
            let remaining = [(); 4].map(|()| client.check(&check(&rule, "ada")).metadata("remaining"));
            assert_eq!(remaining, ["2", "1", "0", "0"], "{}, {}", store.name, rule.name);
        }
    }
}

#[test]
fn store_contract_several_limits_are_charged_all_or_none() {
    let shadow = "fixed_window: { limit: 1, window: 1h }, mode: shadow";
    for store in stores() {
        for (narrow, broad) in Rule::all(2, HOUR_MS).into_iter().zip(Rule::all(5, HOUR_MS)) {
            let policy = Policy::new("orders").limit("narrow", SUBJECT, &narrow.yaml);
            let policy = policy.limit("broad", TENANT, &broad.yaml).limit("seen", SUBJECT, shadow);
            let subjects = ["ada", "grace", "edsger", "barbara"];
            let sidecar = store.setup.clone().with(&policy).start();
            let client = sidecar.client();
            store.settle();
            let passed = subjects.map(|subject| {
                let answers = client.check_times(&Check::of(subject), 8);
                let seen = answers.iter().filter(|answer| answer.metadata("shadow_denied") == "seen").count();
                (count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited), seen)
            });
            let expected = [(2, 6, 1), (2, 6, 1), (1, 7, 0), (0, 8, 0)];
            assert_eq!(passed, expected, "{}, {}", store.name, narrow.name);
            if let Some(redis) = &store.redis {
                redis.run(&["FLUSHALL"]);
            }
        }
    }
}

#[test]
fn store_contract_a_refusal_and_foreign_state_are_left_as_they_were() {
    for store in servers() {
        let sidecar = with_all(&store.setup, 3, HOUR_MS).start();
        let (client, redis) = (sidecar.client(), store.redis.as_ref().expect("a server"));
        store.settle();
        for rule in Rule::all(3, HOUR_MS) {
            let seen = |subject: &str| (redis.snapshot(&key(&rule, subject)), redis.changes());
            let asked = |subject: &str| client.check(&check(&rule, subject)).outcome();
            let context = format!("{}, {}", store.name, rule.name);
            client.check_times(&check(&rule, "limited"), 3);
            let before = seen("limited");
            assert_eq!(asked("limited"), Outcome::Limited, "{context}");
            assert_eq!(seen("limited"), before, "{context}");

            redis.run(&["HSET", &key(&rule, "hash"), "count", "1"]);
            redis.run(&["PEXPIRE", &key(&rule, "hash"), "60000"]);
            match rule.name {
                "sliding-log" => redis.run(&["ZADD", &key(&rule, "malformed"), "1.5", "x"]),
                _ => redis.run(&["SET", &key(&rule, "malformed"), "x"]),
            };
            redis.run(&["PEXPIRE", &key(&rule, "malformed"), "60000"]);
            assert_eq!(asked("lasting"), Outcome::Allowed, "{context}");
            redis.run(&["PERSIST", &key(&rule, "lasting")]);
            for (subject, reason) in [("hash", "wrong_type"), ("malformed", "malformed"), ("lasting", "no_expiry")] {
                let before = seen(subject);
                assert_eq!(asked(subject), Outcome::Failed, "{context}: {subject}");
                assert_eq!(seen(subject), before, "{context}: {subject}");
                assert_eq!(sidecar.metrics().foreign(rule.name, reason), 1, "{context}");
            }
        }
    }
}

// RL-25, RL-26: the same for every algorithm.
#[test]
fn store_contract_a_server_that_cannot_write_gives_no_verdict() {
    for store in servers() {
        let sidecar = with_all(&store.setup, 3, HOUR_MS).start();
        let (client, redis) = (sidecar.client(), store.redis.as_ref().expect("a server"));
        store.settle();
        let rules = Rule::all(3, HOUR_MS);
        for rule in &rules {
            client.check_times(&check(rule, "limited"), 3);
            let answer = client.check(&check(rule, "limited"));
            assert_eq!(answer.outcome(), Outcome::Limited, "{}, {}", store.name, rule.name);
        }
        let keys = redis.keys();
        for fault in [["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "min-replicas-to-write", "1"]] {
            redis.run(&fault);
            for (rule, subject) in rules.iter().flat_map(|rule| [(rule, "limited"), (rule, "fresh")]) {
                let answer = client.check(&check(rule, subject));
                assert_eq!(answer.outcome(), Outcome::Failed, "{}, {}: {fault:?}", store.name, rule.name);
            }
            redis.run(&[fault[0], fault[1], fault[2], "0"]);
            sidecar.wait_for_store();
        }
        assert_eq!(redis.keys(), keys, "{}", store.name);
        redis.run(&["SCRIPT", "FLUSH"]);
        for rule in &rules {
            let answer = client.check(&check(rule, "fresh"));
            assert_eq!(answer.outcome(), Outcome::Allowed, "{}, {}", store.name, rule.name);
            assert!(redis.pttl(&key(rule, "fresh")) > 0, "{}, {}", store.name, rule.name);
        }
    }
}

#[test]
fn store_contract_the_script_says_what_the_rule_says() {
    for store in servers().into_iter().skip(1) {
        lua_equals_rust::drive(store.redis.as_ref().expect("a server"), 0..20);
    }
}

// On Redis 7.0 the clock runs on within a script, and an expiry that has passed by then deletes the key.
#[test]
fn store_contract_a_log_keeps_its_expiry_however_long_a_call_takes() {
    for store in servers() {
        let redis = store.redis.as_ref().expect("a server");
        let mut connection = connect(redis);
        for window_ms in [1, 3, 10] {
            // The second call needs longer than the window: with the key there already, or with room for just this.
            for (limit, quick) in [(1_000_000, 1), (30_000, 0)] {
                let rule = SlidingLog::try_new(limit, window_ms).expect("numbers within the hard ends");
                let slots = [Slot { algorithm: Algorithm::SlidingLog(rule), role: Role::Enforced }];
                let subject = Subject::new(&format!("w{window_ms}-{quick}"), &slots);
                let charges = [quick, 30_000].map(|cost| subject.charges(&slots, cost));
                let mut calls = redis::pipe();
                for charges in charges.iter().filter(|charges| charges[0].cost > 0) {
                    calls.add_command(script_of(charges).by_text(charges, 1 << 52, 1));
                }
                let context = format!("{}, {window_ms} ms, limit {limit}", store.name);
                let replies: Result<Vec<Vec<i64>>, _> = calls.query(&mut connection);
                assert!(
                    replies.as_ref().is_ok_and(|replies| replies.iter().all(|reply| reply[0] == 1)),
                    "{context}: {replies:?}"
                );
                assert_ne!(redis.pttl(&charges[0][0].key.text), -1, "{context}: a key that limits for ever");
            }
        }
    }
}
