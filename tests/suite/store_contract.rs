//! One contract for every store: the embedded one and each Redis or Valkey version.
//!
//! By default the embedded store and the one redis-server that all tests use; with `TALLYGATE_ALL_SERVERS` set also
//! each other version (`make test-extra` fetches and names them).

use std::thread;
use std::time::Duration;

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::keys;
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;

/// A store, and the configuration that uses it.
struct Store {
    name: &'static str,
    redis: Option<RedisServer>,
    setup: Setup,
}

fn servers() -> Vec<Store> {
    let mut parts = vec!["redis-server"];
    if std::env::var_os("TALLYGATE_ALL_SERVERS").is_some() {
        parts.extend(["redis-server-8.2", "valkey-server-8.1", "valkey-server-9.1"]);
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

#[test]
fn store_contract_exactly_the_limit_passes_of_checks_at_once() {
    for Store { name, setup, .. } in stores() {
        let sidecar = setup.policy("orders", 3, "60s", "closed").start();
        let client = sidecar.client();
        for subject in ["ada", "grace"] {
            let answers = client.check_times(&Check::of(subject), 40);
            assert_eq!(count(&answers, Outcome::Allowed), 3, "{name}");
            assert_eq!(count(&answers, Outcome::Limited), 37, "{name}");
        }
    }
}

#[test]
fn store_contract_waiting_as_long_as_retry_after_says_is_enough() {
    for Store { name, setup, .. } in stores() {
        let sidecar = setup.policy("orders", 2, "900ms", "closed").start();
        let client = sidecar.client();
        // On a stalled machine a window may end between the checks; then another subject is tried.
        let refused = (0..20).find_map(|n| {
            let check = Check::of(&format!("subject-{n}"));
            client.check_times(&check, 2);
            let answer = client.check(&check);
            (answer.outcome() == Outcome::Limited).then_some((check, answer))
        });
        let (check, answer) = refused.expect("one of twenty subjects is refused in time");
        assert_eq!(answer.retry_after(), 1, "{name}");
        thread::sleep(Duration::from_secs(1));
        assert_eq!(client.check(&check).outcome(), Outcome::Allowed, "{name}");
    }
}

#[test]
fn store_contract_remaining_counts_down_to_zero() {
    for Store { name, setup, .. } in stores() {
        let sidecar = setup.policy("orders", 3, "60s", "closed").start();
        let client = sidecar.client();
        let remaining = [(); 4].map(|()| client.check(&Check::of("ada")).metadata("remaining"));
        assert_eq!(remaining, ["2", "1", "0", "0"], "{name}");
    }
}

#[test]
fn store_contract_a_refusal_and_foreign_state_are_left_as_they_were() {
    for Store { name, redis, setup } in servers() {
        let redis = redis.expect("a server");
        let sidecar = setup.policy("orders", 3, "60s", "closed").start();
        let client = sidecar.client();
        let seeds = [
            ("3", Some("60000"), Outcome::Limited),
            ("x", Some("60000"), Outcome::Failed),
            ("1", None, Outcome::Failed),
        ];
        for (value, px, outcome) in seeds {
            let key = keys::orders(value);
            redis.run(&["SET", &key, value]);
            if let Some(px) = px {
                redis.run(&["PEXPIRE", &key, px]);
            }
            let before = (redis.snapshot(&key), redis.changes());
            assert_eq!(client.check(&Check::of(value)).outcome(), outcome, "{name}: {value}");
            assert_eq!((redis.snapshot(&key), redis.changes()), before, "{name}: {value}");
        }
        redis.run(&["HSET", &keys::orders("hash"), "count", "1"]);
        assert_eq!(client.check(&Check::of("hash")).outcome(), Outcome::Failed, "{name}");
    }
}

#[test]
fn store_contract_a_server_that_cannot_write_gives_no_verdict() {
    for Store { name, redis, setup } in servers() {
        let redis = redis.expect("a server");
        let sidecar = setup.policy("orders", 3, "60s", "closed").start();
        let client = sidecar.client();
        redis.seed(&keys::orders("limited"), "3", 60_000);
        assert_eq!(client.check(&Check::of("limited")).outcome(), Outcome::Limited, "{name}");
        for fault in [["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "min-replicas-to-write", "1"]] {
            redis.run(&fault);
            for subject in ["limited", "fresh"] {
                assert_eq!(client.check(&Check::of(subject)).outcome(), Outcome::Failed, "{name}: {fault:?}");
            }
            redis.run(&[fault[0], fault[1], fault[2], "0"]);
            sidecar.wait_for_store();
        }
        redis.run(&["SCRIPT", "FLUSH"]);
        assert_eq!(client.check(&Check::of("fresh")).outcome(), Outcome::Allowed, "{name}");
        assert_eq!(redis.get(&keys::orders("fresh")).as_deref(), Some("1"), "{name}");
    }
}
