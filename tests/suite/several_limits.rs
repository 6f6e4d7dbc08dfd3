//! Several limits in one policy are one decision: all admit and all are charged, or none is (P1, P2, P3).

use std::thread;

use crate::support::answer::{Answer, Outcome, count};
use crate::support::check::Check;
use crate::support::grpc::Client;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::{Policy, Rule, SUBJECT, TENANT};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const HOUR_MS: u64 = 3_600_000;
/// For windows that are aligned to the store's clock: no test here takes so long.
const A_TEST_MS: u64 = 20_000;

fn start(policy: &Policy) -> (RedisServer, Sidecar, Client) {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).with(policy).start();
    let client = sidecar.client();
    (redis, sidecar, client)
}

/// The keys of `ada` under the limits `narrow` (hers) and `broad` (her tenant's).
fn adas_keys(shape: &str) -> [String; 2] {
    let (scope, ada) = (Scope { policy: "orders", version: 1, shape }, acme("ada"));
    [keys::joint(scope, "narrow", &ada, &ada[..1]), keys::joint(scope, "broad", &ada[..1], &ada[..1])]
}

/// `narrow` for each subject, `broad` for all of a tenant's.
fn narrow_and_broad(narrow: &str, broad: &str) -> Policy {
    Policy::new("orders").limit("narrow", SUBJECT, narrow).limit("broad", TENANT, broad)
}

// RL-04
#[test]
fn what_a_narrow_limit_refuses_takes_nothing_from_a_broad_one() {
    for (narrow, broad) in Rule::all(3, HOUR_MS).into_iter().zip(Rule::all(10, HOUR_MS)) {
        let (redis, _sidecar, client) = start(&narrow_and_broad(&narrow.yaml, &broad.yaml));
        redis.away_from_edge(HOUR_MS, A_TEST_MS);
        for (subject, allowed) in [("ada", 3), ("grace", 3), ("edsger", 3), ("barbara", 1), ("tony", 0)] {
            let answers = client.check_times(&Check::of(subject), 8);
            assert_eq!(count(&answers, Outcome::Allowed), allowed, "{}: {subject}", narrow.name);
            assert_eq!(count(&answers, Outcome::Limited), 8 - allowed, "{}: {subject}", narrow.name);
        }
        let [_, broad_key] = adas_keys(&broad.shape);
        assert_eq!(broad.units(&redis, &broad_key), 10, "{}: exactly what passed", narrow.name);
        assert_eq!(redis.keys().len(), 5, "four subjects and their tenant: {:?}", redis.keys());
    }
}

// RL-04, with the checks of all subjects at once, through two sidecars.
#[test]
fn totals_are_exact_when_subjects_crowd_together() {
    let policy = narrow_and_broad("fixed_window: { limit: 3, window: 1h }", "fixed_window: { limit: 10, window: 1h }");
    let (redis, _first, client) = start(&policy);
    let second = Setup::patient(redis.port()).with(&policy).start();
    let subjects = ["ada", "grace", "edsger", "barbara", "tony"];
    let checks: Vec<_> = (0..100).map(|n| Check::of(subjects[n % 5])).collect();
    let answers: Vec<Answer> = thread::scope(|scope| {
        let halves = [client, second.client()].map(|client| {
            scope.spawn({
                let checks = &checks;
                move || client.check_all(checks)
            })
        });
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (10, 190));
    let by_limit = |limit: &str| -> Vec<u64> {
        let keys = redis.keys().into_iter().filter(|key| key.contains(&format!("}}:{limit}:")));
        keys.map(|key| redis.get(&key).unwrap().parse().unwrap()).collect()
    };
    assert_eq!(by_limit("broad"), [10]);
    let narrow = by_limit("narrow");
    assert_eq!(narrow.iter().sum::<u64>(), 10, "{narrow:?}");
    assert!(narrow.iter().all(|&n| n <= 3), "{narrow:?}");
}

#[test]
fn all_keys_of_a_tenants_request_have_one_tag() {
    let rules = Rule::all(5, HOUR_MS);
    let policy = rules.iter().fold(Policy::new("orders"), |policy, rule| policy.limit(rule.name, SUBJECT, &rule.yaml));
    let (redis, _sidecar, client) = start(&policy.limit("broad", TENANT, "fixed_window: { limit: 9, window: 1h }"));
    client.check(&Check::of("ada"));
    let (ada, fixed) = (acme("ada"), "fixed_window/3600000ms");
    let key = |limit: &str, shape: &str, parts| {
        keys::joint(Scope { policy: "orders", version: 1, shape }, limit, parts, &ada[..1])
    };
    let mut expected: Vec<_> = rules.iter().map(|rule| key(rule.name, &rule.shape, &ada[..])).collect();
    expected.push(key("broad", fixed, &ada[..1]));
    expected.sort();
    assert_eq!(redis.keys(), expected);
    // A Cluster places a key by what stands between its braces.
    let tag = |key: &str| key[key.find('{').unwrap()..=key.find('}').unwrap()].to_owned();
    assert!(expected.iter().all(|key| tag(key) == tag(&expected[0])), "{expected:?}");

    client.check(&Check::get("/orders").route("tenant", "globex").route("subject", "ada"));
    let others: Vec<_> = redis.keys().into_iter().filter(|key| !expected.contains(key)).collect();
    assert_eq!(others.len(), 5);
    assert!(others.iter().all(|key| tag(key) == tag(&others[0]) && tag(key) != tag(&expected[0])), "{others:?}");
}

// P2
#[test]
fn a_refusal_by_either_limit_leaves_both_keys_byte_identical() {
    for (narrow, broad) in [(2, 5), (5, 2)] {
        for (narrow, broad) in Rule::all(narrow, HOUR_MS).into_iter().zip(Rule::all(broad, HOUR_MS)) {
            let (redis, _sidecar, client) = start(&narrow_and_broad(&narrow.yaml, &broad.yaml));
            redis.away_from_edge(HOUR_MS, A_TEST_MS);
            client.check_times(&Check::of("ada"), 2);
            let keys = adas_keys(&narrow.shape);
            let seen = || (keys.each_ref().map(|key| redis.snapshot(key)), redis.changes());
            let before = seen();
            assert!(before.0.iter().all(|snapshot| snapshot.expires_at_ms > 0), "{before:?}");
            assert_eq!(count(&client.check_times(&Check::of("ada"), 20), Outcome::Limited), 20, "{}", narrow.name);
            assert_eq!(seen(), before, "{}", narrow.name);
        }
    }
}

// P3, P4: everything is checked before anything is written.
#[test]
fn foreign_state_under_one_limit_charges_none_of_the_others() {
    for rule in Rule::all(5, HOUR_MS) {
        for foreign in [0, 1] {
            let (redis, sidecar, client) = start(&narrow_and_broad(&rule.yaml, &rule.yaml));
            let keys = adas_keys(&rule.shape);
            let (bad, good) = (&keys[foreign], &keys[1 - foreign]);
            redis.run(&["HSET", bad, "count", "1"]);
            let failed = client.check_times(&Check::of("ada"), 3);
            assert_eq!(count(&failed, Outcome::Failed), 3, "{}", rule.name);
            assert_eq!(redis.keys(), std::slice::from_ref(bad), "{}: nothing was charged", rule.name);
            assert_eq!(sidecar.metrics().foreign("orders", "wrong_type"), 3, "{}", rule.name);

            redis.run(&["DEL", bad]);
            assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "{}", rule.name);
            redis.run(&["PERSIST", bad]);
            let before = redis.snapshot(good);
            assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Failed, "{}", rule.name);
            assert_eq!(redis.snapshot(good), before, "{}: nothing more was charged", rule.name);
        }
    }
}

#[test]
fn a_refusal_names_the_limit_that_asks_for_the_longest_wait() {
    let (short, long) = ("fixed_window: { limit: 1, window: 60s }", "fixed_window: { limit: 1, window: 1h }");
    for (narrow, broad, binding) in [(short, long, "broad"), (long, short, "narrow")] {
        let (_redis, _sidecar, client) = start(&narrow_and_broad(narrow, broad));
        assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed);
        let answer = client.check(&Check::of("ada"));
        assert_eq!((answer.outcome(), answer.metadata("limit")), (Outcome::Limited, binding.into()));
        assert!((3590..=3600).contains(&answer.retry_after()), "{answer:?}");
        assert_eq!(answer.metadata("retry_after"), answer.retry_after().to_string());
        assert!(answer.all("ratelimit")[0].starts_with(&format!("\"{binding}\";r=0;t=3")), "{answer:?}");
    }
}

// A limit that refuses binds before one that has room, whatever their order and windows.
#[test]
fn a_refusal_never_names_a_limit_that_has_room() {
    let roomy = "fixed_window: { limit: 100, window: 1h }";
    for rule in Rule::all(1, 60_000) {
        for (narrow, broad, binding) in [(rule.yaml.as_str(), roomy, "narrow"), (roomy, &rule.yaml, "broad")] {
            let (redis, _sidecar, client) = start(&narrow_and_broad(narrow, broad));
            redis.away_from_edge(60_000, 5_000);
            client.check(&Check::of("ada"));
            let answer = client.check(&Check::of("ada"));
            assert_eq!(
                (answer.outcome(), answer.metadata("limit")),
                (Outcome::Limited, binding.into()),
                "{}",
                rule.name
            );
            assert!((1..=120).contains(&answer.retry_after()), "{}: {answer:?}", rule.name);
        }
    }
}

#[test]
fn an_allowance_names_the_limit_with_the_smallest_share_left() {
    let (small, large) = ("fixed_window: { limit: 4, window: 1h }", "fixed_window: { limit: 100, window: 1h }");
    for (narrow, broad, binding) in [(small, large, "narrow"), (large, small, "broad"), (small, small, "narrow")] {
        let (_redis, _sidecar, client) = start(&narrow_and_broad(narrow, broad));
        let answer = client.check(&Check::of("ada"));
        assert_eq!((answer.metadata("limit"), answer.metadata("remaining")), (binding.into(), "3".into()));
    }
}
