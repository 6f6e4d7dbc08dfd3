//! Other numbers for single tenants: larger, none, or without end; for the tenant with its evidence, and on live keys.

use crate::support::answer::{Answer, Outcome, count};
use crate::support::check::Check;
use crate::support::keys::{self, Scope, acme};
use crate::support::policy::{ALGORITHMS, Policy, Rule, SUBJECT, TENANT};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const HOUR_MS: u64 = 3_600_000;
const A_TEST_MS: u64 = 20_000;

/// A policy whose tenant `acme` has this instead of the limit's numbers.
fn acme_has(policy: Policy, set: &str) -> Policy {
    policy.more(&format!("overrides: [{{ tenant: {{ value: acme }}, set: {set} }}]"))
}

fn only(rule: &Rule) -> Policy {
    Policy::only("orders", &rule.yaml)
}

fn start(policy: &Policy) -> (RedisServer, Sidecar) {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).with(policy).start();
    redis.away_from_edge(HOUR_MS, A_TEST_MS);
    (redis, sidecar)
}

fn of(tenant: &str) -> Check {
    Check::get("/orders").route("tenant", tenant).route("subject", "ada")
}

/// How many of twenty checks at once pass; the others are refused.
#[track_caller]
fn passing(sidecar: &Sidecar, check: &Check) -> usize {
    let answers = sidecar.client().check_times(check, 20);
    let passed = count(&answers, Outcome::Allowed);
    assert_eq!(count(&answers, Outcome::Limited), 20 - passed);
    passed
}

/// The name that a rule's number has in an override.
fn number_of(rule: &Rule) -> &'static str {
    if rule.name == "token-bucket" { "burst" } else { "limit" }
}

#[test]
fn a_tenant_with_numbers_of_its_own_is_counted_by_them() {
    for rule in Rule::all(3, HOUR_MS) {
        let (_redis, sidecar) = start(&acme_has(only(&rule), &format!("{{ {}: 7 }}", number_of(&rule))));
        assert_eq!(passing(&sidecar, &of("acme")), 7, "{}", rule.name);
        assert_eq!(passing(&sidecar, &of("globex")), 3, "{}: others by the limit's", rule.name);
        let refused = sidecar.client().check(&of("acme"));
        assert_eq!(refused.metadata("remaining"), "0", "{}", rule.name);
        assert!(refused.all("ratelimit-policy")[0].contains(";q=7"), "{}: {refused:?}", rule.name);
    }
}

/// Refused, and no time to wait is named.
#[track_caller]
fn is_blocked(answer: &Answer) {
    assert_eq!(answer.outcome(), Outcome::Limited);
    assert_eq!(answer.all("retry-after"), [""; 0], "waiting does not help");
    assert_eq!((answer.metadata("limit"), answer.metadata("remaining")), ("only".into(), "0".into()));
}

#[test]
fn a_blocked_tenant_is_refused_without_a_wait_and_without_the_store() {
    for rule in Rule::all(3, HOUR_MS) {
        let (redis, sidecar) = start(&acme_has(only(&rule), "{ limit: 0 }"));
        let asked = || ["cmdstat_eval", "cmdstat_evalsha"].map(|command| redis.info("commandstats", command));
        let before = asked();
        sidecar.client().check_times(&of("acme"), 5).iter().for_each(is_blocked);
        assert_eq!((redis.keys(), asked()), (Vec::new(), before), "{}", rule.name);
        assert_eq!(passing(&sidecar, &of("globex")), 3, "{}", rule.name);
        assert_eq!(sidecar.metrics().verdicts("orders", "denied"), 5 + 17, "{}", rule.name);
    }
}

#[test]
fn a_tenant_without_a_limit_passes_uncounted() {
    for rule in Rule::all(3, HOUR_MS) {
        let (redis, sidecar) = start(&acme_has(only(&rule), "{ unlimited: true }"));
        assert_eq!(passing(&sidecar, &of("acme")), 20, "{}", rule.name);
        assert!(redis.keys().is_empty(), "{}", rule.name);
        assert_eq!(passing(&sidecar, &of("globex")), 3, "{}", rule.name);
    }
}

#[test]
fn an_override_of_one_limit_leaves_the_others_in_force() {
    let five = "fixed_window: { limit: 5, window: 1h }";
    let policy = Policy::new("orders").limit("narrow", SUBJECT, five);
    let policy = policy.limit("broad", TENANT, "fixed_window: { limit: 8, window: 1h }");
    let of = |tenant: &str, subject: &str| Check::get("/orders").route("tenant", tenant).route("subject", subject);
    for (set, first, second) in [("{ unlimited: true }", 8, 0), ("{ limit: 6 }", 6, 2), ("{ limit: 0 }", 0, 0)] {
        let line = format!("overrides: [{{ tenant: {{ value: acme }}, limit: narrow, set: {set} }}]");
        let (redis, sidecar) = start(&policy.clone().more(&line));
        assert_eq!(passing(&sidecar, &of("acme", "ada")), first, "{set}");
        assert_eq!(passing(&sidecar, &of("acme", "grace")), second, "{set}");
        let broad: Vec<_> = redis.keys().into_iter().filter(|key| key.contains(":broad:")).collect();
        let counted: Vec<_> = broad.iter().map(|key| redis.get(key).unwrap()).collect();
        let total = first + second;
        assert_eq!(counted, if total > 0 { vec![total.to_string()] } else { vec![] }, "{set}");
        assert_eq!(passing(&sidecar, &of("globex", "ada")), 5, "{set}");
    }
}

// P9: the same name from other evidence is another tenant.
#[test]
fn an_override_is_for_the_tenant_of_its_source_and_issuer() {
    let redis = RedisServer::start();
    let identity = "
  tenant: [{ jwt: { claim: tid, issuers: ['https://a.example', 'https://b.example'] } }, { route: tenant }]
  subject: [{ route: subject }]";
    let overrides = "overrides:
      - { tenant: { value: acme, source: jwt/tid, issuer: 'https://a.example' }, set: { limit: 6 } }
      - { tenant: { value: acme, source: jwt/tid }, set: { limit: 4 } }
      - { tenant: { value: acme, source: route/tenant }, set: { limit: 0 } }";
    let policy = Policy::only("orders", "fixed_window: { limit: 2, window: 1h }").more(overrides);
    let sidecar = Setup::patient(redis.port()).identity(identity).with(&policy).start();
    let nobody = Check::get("/orders").route("subject", "ada");
    let token = |issuer: &str, tenant: &str| nobody.clone().claim("iss", issuer).claim("tid", tenant);
    assert_eq!(passing(&sidecar, &token("https://a.example", "acme")), 6);
    assert_eq!(passing(&sidecar, &token("https://b.example", "acme")), 4);
    assert_eq!(passing(&sidecar, &token("https://a.example", "globex")), 2);
    is_blocked(&sidecar.client().check(&of("acme")));
    assert_eq!(passing(&sidecar, &of("globex")), 2);
    assert_eq!(passing(&sidecar, &of("acme").header("tid", "globex").header("iss", "https://a.example")), 0);
}

#[test]
fn a_reload_gives_and_takes_an_override_on_a_live_key() {
    for name in ALGORITHMS {
        let rule = Rule::new(name, 10, HOUR_MS);
        let (redis, sidecar) = start(&only(&rule));
        let scope = Scope { policy: "orders", version: 1, shape: &rule.shape };
        let (ada, key) = (of("acme"), keys::lone(scope, &acme("ada")));
        let reload = |set: &str| sidecar.reload(&Setup::patient(redis.port()).with(&acme_has(only(&rule), set)));
        assert_eq!(count(&sidecar.client().check_times(&ada, 6), Outcome::Allowed), 6, "{name}");
        let before = (redis.snapshot(&key), redis.changes());

        reload("{ limit: 0 }");
        is_blocked(&sidecar.client().check(&ada));
        reload("{ unlimited: true }");
        assert_eq!(passing(&sidecar, &ada), 20, "{name}");
        assert_eq!((redis.snapshot(&key), redis.changes()), before, "{name}: neither touches the key");

        if name != "token-bucket" {
            reload("{ limit: 6 }");
            assert_eq!(passing(&sidecar, &ada), 0, "{name}");
            assert_eq!((redis.snapshot(&key), redis.changes()), before, "{name}");
        }
        reload(&format!("{{ {}: 8 }}", number_of(&rule)));
        // A bucket holds what is left, 4 of it; the others what was taken, 6 of 8.
        assert_eq!(passing(&sidecar, &ada), if name == "token-bucket" { 4 } else { 2 }, "{name}");
        sidecar.reload(&Setup::patient(redis.port()).with(&only(&rule)));
        assert_eq!(passing(&sidecar, &ada), if name == "token-bucket" { 0 } else { 2 }, "{name}: 10 again");
        assert_eq!(redis.keys(), std::slice::from_ref(&key), "{name}: one key all along");
    }
}
