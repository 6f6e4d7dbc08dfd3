//! The first policy whose conditions all hold decides.

use crate::support::answer::Outcome;
use crate::support::check::Check;
use crate::support::setup::Setup;
use crate::support::sidecar::Sidecar;

/// A policy with this `match` and a limit of 1.
fn policy(name: &str, conditions: &str) -> String {
    format!(
        "
  - name: {name}
    version: 1
    match: {conditions}
    limits: [{{ name: only, per: [tenant, subject], fixed_window: {{ limit: 1, window: 60s }} }}]
    on_failure: closed"
    )
}

fn start(policies: &[(&str, &str)]) -> Sidecar {
    let text: String = policies.iter().map(|(name, conditions)| policy(name, conditions)).collect();
    Setup::memory().policies(&text).more("unmatched: deny").start()
}

/// The policy that each check meets, or empty where none matches.
#[track_caller]
fn meets(sidecar: &Sidecar, cases: &[(Check, &str)]) {
    let client = sidecar.client();
    for (n, (check, policy)) in cases.iter().enumerate() {
        let answer = client.check(check);
        assert_eq!(answer.metadata("policy"), *policy, "case {n}");
        if policy.is_empty() {
            assert_eq!(answer.outcome(), Outcome::Forbidden, "case {n}");
        }
    }
}

fn at(path: &str) -> Check {
    Check::of("ada").path(path)
}

#[test]
fn a_prefix_ends_at_a_segment_and_an_exact_path_is_only_itself() {
    let sidecar = start(&[
        ("exact", "{ path: { exact: /orders/new } }"),
        ("template", "{ path: { template: '/users/{id}/orders' } }"),
        ("prefix", "{ path: { prefix: /orders } }"),
    ]);
    meets(
        &sidecar,
        &[
            (at("/orders/new"), "exact"),
            (at("/orders/new?x=1"), "exact"),
            (at("/orders/new/7"), "prefix"),
            (at("/orders"), "prefix"),
            (at("/orders/"), "prefix"),
            (at("/orders/7"), "prefix"),
            (at("/users/7/orders"), "template"),
            (at("/users/7/8/orders"), ""),
            (at("/users//orders"), ""),
            (at("/orders2"), ""),
            (at("/Orders"), ""),
            (at("/"), ""),
        ],
    );
}

#[test]
fn a_method_is_matched_as_sent() {
    let sidecar = start(&[
        ("reads", "{ path: { prefix: /orders }, methods: [GET, HEAD] }"),
        ("writes", "{ path: { prefix: /orders }, methods: [POST] }"),
    ]);
    let with = |method| at("/orders").method(method);
    meets(
        &sidecar,
        &[
            (with("GET"), "reads"),
            (with("HEAD"), "reads"),
            (with("POST"), "writes"),
            (with("DELETE"), ""),
            (with("get"), ""),
            (with(""), ""),
        ],
    );
}

#[test]
fn a_host_is_matched_whatever_its_case_and_port() {
    let sidecar = start(&[("one", "{ host: api.example.com }"), ("below", "{ host: '*.example.com' }")]);
    let with = |host| at("/orders").host(host);
    meets(
        &sidecar,
        &[
            (with("api.example.com"), "one"),
            (with("API.Example.COM:8443"), "one"),
            (with("api.example.com."), "one"),
            (with("www.example.com"), "below"),
            (with("example.com"), ""),
            (with("api.example.com.evil"), ""),
            (with("evilexample.com"), ""),
            (with(""), ""),
        ],
    );
}

#[test]
fn what_the_operator_wrote_on_the_route_chooses_a_policy_and_no_header_does() {
    let sidecar = start(&[("chosen", "{ route: { policy: catalog } }")]);
    meets(
        &sidecar,
        &[
            (at("/x").route("policy", "catalog"), "chosen"),
            // It needs no path, so an ambiguous one does no harm here.
            (at("/x%2fy").route("policy", "catalog"), "chosen"),
            (at("/x").route("policy", "other"), ""),
            (at("/x").header("policy", "catalog"), ""),
        ],
    );
}

#[test]
fn the_first_policy_that_matches_decides_alone() {
    let sidecar = start(&[("narrow", "{ path: { exact: /orders } }"), ("wide", "{ path: { prefix: / } }")]);
    let client = sidecar.client();
    assert_eq!(client.check(&at("/orders")).outcome(), Outcome::Allowed);
    assert_eq!(client.check(&at("/orders")).outcome(), Outcome::Limited);
    assert_eq!(client.check(&at("/elsewhere")).outcome(), Outcome::Allowed, "the other policy was not charged");
    assert_eq!(client.check(&at("/orders")).metadata("policy"), "narrow", "a refusal is final");
}
