//! Shadow counts and never refuses, off counts nothing: of a limit, and of a whole policy.

use crate::support::answer::{Answer, Outcome, count};
use crate::support::check::Check;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::{Policy, Rule, SUBJECT};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const HOUR_MS: u64 = 3_600_000;
const A_TEST_MS: u64 = 20_000;

fn start(policy: &Policy) -> (RedisServer, Sidecar) {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).with(policy).start();
    (redis, sidecar)
}

/// `n` checks of `ada`, one after another.
fn checks(sidecar: &Sidecar, n: usize) -> Vec<Answer> {
    let client = sidecar.client();
    (0..n).map(|_| client.check(&Check::of("ada"))).collect()
}

fn metadata(answers: &[Answer], field: &str) -> Vec<String> {
    answers.iter().map(|answer| answer.metadata(field)).collect()
}

fn shadow_denied(sidecar: &Sidecar, limit: &str) -> u64 {
    sidecar.metrics().count("tallygate_shadow_limit_denied_total", &[("policy", "orders"), ("limit", limit)])
}

/// An enforced limit of five, and a shadow limit of two.
fn five_and_a_shadow_of_two(rule: &Rule) -> (Policy, String) {
    let (five, shadow) = (Rule::new(rule.name, 5, HOUR_MS).yaml, format!("{}, mode: shadow", rule.yaml));
    let policy = Policy::new("orders").limit("five", SUBJECT, &five).limit("two", SUBJECT, &shadow);
    let (scope, ada) = (Scope { policy: "orders", version: 1, shape: &rule.shape }, acme("ada"));
    (policy, keys::joint(scope, "two", &ada, &ada))
}

#[test]
fn a_shadow_limit_lets_pass_what_it_would_refuse_and_says_so() {
    for rule in Rule::all(2, HOUR_MS) {
        let (redis, sidecar) = start(&five_and_a_shadow_of_two(&rule).0);
        redis.away_from_edge(HOUR_MS, A_TEST_MS);
        let answers = checks(&sidecar, 7);
        let outcomes = (count(&answers, Outcome::Allowed), count(&answers[5..], Outcome::Limited));
        assert_eq!(outcomes, (5, 2), "{}", rule.name);
        let would_be = ["", "", "two", "two", "two", "", ""];
        assert_eq!(metadata(&answers, "shadow_denied"), would_be, "{}: only for what passed", rule.name);
        assert_eq!(metadata(&answers, "limit"), ["five"; 7], "{}: a shadow limit never binds", rule.name);
        assert_eq!(metadata(&answers, "remaining"), ["4", "3", "2", "1", "0", "0", "0"], "{}", rule.name);
        assert_eq!(shadow_denied(&sidecar, "two"), 3, "{}", rule.name);
        assert_eq!(sidecar.metrics().verdicts("orders", "allowed"), 5, "{}", rule.name);
    }
}

#[test]
fn a_shadow_limit_is_charged_only_while_it_has_room_and_the_request_passes() {
    for rule in Rule::all(2, HOUR_MS) {
        let (policy, shadow_key) = five_and_a_shadow_of_two(&rule);
        let (redis, sidecar) = start(&policy);
        redis.away_from_edge(HOUR_MS, A_TEST_MS);
        checks(&sidecar, 2);
        let full = redis.snapshot(&shadow_key);
        assert!(full.expires_at_ms > 0, "{}: charged: {:?}", rule.name, redis.keys());
        checks(&sidecar, 3);
        assert_eq!(redis.snapshot(&shadow_key), full, "{}: full, so as it was", rule.name);

        redis.run(&["DEL", &shadow_key]);
        let refused = checks(&sidecar, 3);
        assert_eq!(count(&refused, Outcome::Limited), 3, "{}", rule.name);
        assert_eq!(redis.keys().len(), 1, "{}: a refused request charges no shadow", rule.name);
        assert_eq!(shadow_denied(&sidecar, "two"), 3, "{}: nor is it one that a shadow would have refused", rule.name);
    }
}

#[test]
fn a_policy_of_shadow_limits_alone_counts_and_lets_everything_pass() {
    let shadow = "fixed_window: { limit: 2, window: 1h }, mode: shadow";
    let (redis, sidecar) = start(&Policy::only("orders", shadow));
    let answers = checks(&sidecar, 5);
    assert_eq!(count(&answers, Outcome::Allowed), 5);
    assert_eq!(metadata(&answers, "shadow_denied"), ["", "", "only", "only", "only"]);
    let key = keys::key("orders", HOUR_MS, &acme("ada"));
    assert_eq!(redis.get(&key).as_deref(), Some("2"));
}

#[test]
fn a_shadow_policy_allows_everything_and_charges_only_what_would_have_passed() {
    for rule in Rule::all(2, HOUR_MS) {
        let (redis, sidecar) = start(&Policy::only("orders", &rule.yaml).more("mode: shadow"));
        redis.away_from_edge(HOUR_MS, A_TEST_MS);
        let answers = checks(&sidecar, 2);
        let before = (redis.keys(), redis.snapshot(&redis.keys()[0]), redis.changes());
        let more = checks(&sidecar, 3);
        assert_eq!(count(&answers, Outcome::Allowed) + count(&more, Outcome::Allowed), 5, "{}", rule.name);
        assert_eq!((redis.keys(), redis.snapshot(&redis.keys()[0]), redis.changes()), before, "{}", rule.name);
        assert_eq!(metadata(&answers, "verdict"), ["allowed"; 2], "{}", rule.name);
        assert_eq!(metadata(&more, "verdict"), ["denied"; 3], "{}: what would have been", rule.name);
        assert_eq!(metadata(&more, "mode"), ["shadow"; 3], "{}", rule.name);
        let now = sidecar.metrics();
        let verdicts =
            ["shadow_allowed", "shadow_denied", "allowed", "denied"].map(|word| now.verdicts("orders", word));
        assert_eq!(verdicts, [2, 3, 0, 0], "{}", rule.name);
    }
}

#[test]
fn a_shadow_policy_fails_nobody() {
    let (redis, sidecar) =
        start(&Policy::only("orders", "fixed_window: { limit: 2, window: 1h }").more("mode: shadow"));
    let key = keys::key("orders", HOUR_MS, &acme("ada"));
    redis.run(&["SET", &key, "1"]);
    let answers = checks(&sidecar, 2);
    assert_eq!(count(&answers, Outcome::Allowed), 2);
    assert_eq!(metadata(&answers, "verdict"), ["failed"; 2]);
    assert_eq!(sidecar.client().check(&Check::get("/orders")).outcome(), Outcome::Allowed, "without identity too");
    let now = sidecar.metrics();
    let verdicts = ["shadow_failed", "shadow_unidentified", "failed"].map(|word| now.verdicts("orders", word));
    assert_eq!(verdicts, [2, 1, 0]);
}

#[test]
fn a_policy_that_is_off_counts_nothing_and_ends_the_search() {
    let redis = RedisServer::start();
    let off = Policy::only("orders", "fixed_window: { limit: 1, window: 1h }").more("mode: off");
    let setup = Setup::patient(redis.port()).with(&off).more("unmatched: deny");
    let sidecar = setup.start();
    let asked = || ["cmdstat_eval", "cmdstat_evalsha"].map(|command| redis.info("commandstats", command));
    // A sidecar asks what it may send before it uses a connection.
    let before = asked();
    let answers = checks(&sidecar, 5);
    assert_eq!(count(&answers, Outcome::Allowed), 5);
    assert_eq!(sidecar.client().check(&Check::get("/orders")).outcome(), Outcome::Allowed, "without identity too");
    assert_eq!((redis.keys(), asked()), (Vec::new(), before), "the store is not asked");
    assert_eq!(sidecar.metrics().verdicts("orders", "off"), 6);
}

#[test]
fn a_limit_that_is_off_counts_nothing_and_the_others_hold() {
    let off = "fixed_window: { limit: 1, window: 1h }, mode: off";
    let policy = Policy::new("orders").limit("none", SUBJECT, off);
    let (redis, sidecar) = start(&policy.limit("three", SUBJECT, "fixed_window: { limit: 3, window: 1h }"));
    let answers = checks(&sidecar, 5);
    assert_eq!((count(&answers, Outcome::Allowed), count(&answers, Outcome::Limited)), (3, 2));
    let [key] = &redis.keys()[..] else { panic!("{:?}", redis.keys()) };
    assert!(key.contains(":three:"), "{key}");
}
