//! A request takes its cost from every limit of its policy; what it costs is the operator's word, never the client's.

use crate::support::answer::{Outcome, count};
use crate::support::check::Check;
use crate::support::policy::{Policy, Rule, SUBJECT, TENANT};
use crate::support::redis::RedisServer;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

const HOUR_MS: u64 = 3_600_000;
const A_TEST_MS: u64 = 20_000;
const FROM_ROUTE: &str = "cost: { route: cost, default: 2, max: 9 }";

fn start(policy: &Policy) -> (RedisServer, Sidecar) {
    let redis = RedisServer::start();
    let sidecar = Setup::patient(redis.port()).with(policy).start();
    redis.away_from_edge(HOUR_MS, A_TEST_MS);
    (redis, sidecar)
}

fn of_cost(cost: &str) -> Check {
    Check::of("ada").route("cost", cost)
}

#[test]
fn a_request_passes_only_if_its_whole_cost_fits() {
    for rule in Rule::all(7, HOUR_MS) {
        let (_redis, sidecar) = start(&Policy::only("orders", &rule.yaml).more("cost: 3"));
        let client = sidecar.client();
        let answers = [(); 3].map(|()| client.check(&Check::of("ada")));
        let seen = answers.each_ref().map(|answer| (answer.outcome(), answer.metadata("remaining")));
        let left = |n: &str| n.to_owned();
        let expected = [(Outcome::Allowed, left("4")), (Outcome::Allowed, left("1")), (Outcome::Limited, left("1"))];
        assert_eq!(seen, expected, "{}: a refused request takes no part of its cost", rule.name);
        // The shortest is the sliding window's at the end of its hour: a third of one.
        assert!(answers[2].retry_after() > 1000, "{}", rule.name);
        assert_eq!(count(&client.check_times(&Check::of("grace"), 9), Outcome::Allowed), 2, "{}", rule.name);
    }
}

#[test]
fn a_cost_of_the_route_is_charged_to_every_limit() {
    for rule in Rule::all(10, HOUR_MS) {
        let policy = Policy::new("orders").limit("narrow", SUBJECT, &rule.yaml);
        let policy = policy.limit("broad", TENANT, &Rule::new(rule.name, 12, HOUR_MS).yaml).more(FROM_ROUTE);
        let (_redis, sidecar) = start(&policy);
        let client = sidecar.client();
        let remaining = |check: &Check| {
            let answer = client.check(check);
            (answer.outcome(), answer.metadata("limit"), answer.metadata("remaining"))
        };
        let at = |outcome, limit: &str, left: &str| (outcome, limit.to_owned(), left.to_owned());
        assert_eq!(remaining(&of_cost("5")), at(Outcome::Allowed, "narrow", "5"), "{}", rule.name);
        assert_eq!(remaining(&Check::of("ada")), at(Outcome::Allowed, "narrow", "3"), "{}: the default", rule.name);
        let grace = Check::of("grace").route("cost", "4");
        assert_eq!(remaining(&grace), at(Outcome::Allowed, "broad", "1"), "{}: 5 + 2 + 4 of 12", rule.name);
        assert_eq!(remaining(&grace), at(Outcome::Limited, "broad", "1"), "{}", rule.name);
        assert_eq!(remaining(&of_cost("1")), at(Outcome::Allowed, "broad", "0"), "{}", rule.name);
    }
}

#[test]
fn a_cost_above_the_limit_never_passes_and_names_no_time_to_wait() {
    for rule in Rule::all(5, HOUR_MS) {
        let (redis, sidecar) = start(&Policy::only("orders", &rule.yaml).more(FROM_ROUTE));
        let client = sidecar.client();
        for n in 0..2 {
            let answer = client.check(&of_cost("6"));
            assert_eq!(answer.outcome(), Outcome::Limited, "{}", rule.name);
            assert_eq!(answer.all("retry-after"), [""; 0], "{}: waiting does not help", rule.name);
            assert_eq!(answer.metadata("retry_after"), "", "{}", rule.name);
            assert_eq!(redis.keys().len(), n, "{}: nothing is charged", rule.name);
            assert_eq!(client.check(&Check::of("ada")).outcome(), Outcome::Allowed, "{}: others pass", rule.name);
        }
    }
}

// Of several limits that refuse, one that never lets this cost pass binds.
#[test]
fn never_is_the_longest_wait() {
    let (small, large) = ("fixed_window: { limit: 3, window: 1s }", "fixed_window: { limit: 5, window: 1h }");
    for (narrow, broad, binding) in [(small, large, "narrow"), (large, small, "broad")] {
        let policy = Policy::new("orders").limit("narrow", SUBJECT, narrow).limit("broad", SUBJECT, broad);
        let (_redis, sidecar) = start(&policy.more(FROM_ROUTE));
        let client = sidecar.client();
        client.check(&of_cost("3"));
        let answer = client.check(&of_cost("4"));
        assert_eq!((answer.outcome(), answer.metadata("limit")), (Outcome::Limited, binding.into()));
        assert_eq!(answer.all("retry-after"), [""; 0]);
    }
}

#[test]
fn a_cost_that_is_no_whole_number_within_bounds_fails_and_charges_nothing() {
    let (redis, sidecar) = start(&Policy::only("orders", "fixed_window: { limit: 100, window: 1h }").more(FROM_ROUTE));
    let client = sidecar.client();
    let costs = ["0", "10", "-1", "+1", "1.0", "1e0", "0x1", " 1", "1 ", "", "one", "18446744073709551617", "१"];
    for cost in costs {
        let answer = client.check(&of_cost(cost));
        assert_eq!(answer.outcome(), Outcome::Failed, "{cost:?}");
    }
    assert_eq!(redis.keys(), [""; 0]);
}

#[test]
fn a_clients_header_costs_nothing() {
    let (_redis, sidecar) = start(&Policy::only("orders", "fixed_window: { limit: 9, window: 1h }").more(FROM_ROUTE));
    let check = Check::of("ada").header("cost", "1").header("x-cost", "9");
    assert_eq!(sidecar.client().check(&check).metadata("remaining"), "7", "the default of 2, whatever a client writes");
}
