//! Overrides that could never do what they say are refused.

use super::{VALID, load};
use crate::decision::overrides::Set;

/// What is said of the valid file with `limit` as its limit and these overrides.
fn problems(limit: &str, overrides: &str) -> String {
    let text = VALID.replace("fixed_window: { limit: 3, window: 10s }", limit);
    let text = format!("{text}    overrides: [{overrides}]\n");
    load(&text).map_or_else(|problems| problems, |_| "none".to_owned())
}

const WINDOW: &str = "fixed_window: { limit: 3, window: 10s }";
const BUCKET: &str = "token_bucket: { rate: 5, per: 1s, burst: 10 }";

// A limit on a token bucket was accepted once, and did nothing.
#[test]
fn an_override_sets_what_its_algorithm_has() {
    let set = |limit: &str, set: &str| problems(limit, &format!("{{ tenant: {{ value: a }}, set: {set} }}"));
    for good in ["{ limit: 500 }", "{ limit: 0 }", "{ unlimited: true }"] {
        assert_eq!(set(WINDOW, good), "none", "{good}");
    }
    for good in ["{ rate: 7 }", "{ burst: 20 }", "{ rate: 7, burst: 20 }", "{ limit: 0 }", "{ unlimited: true }"] {
        assert_eq!(set(BUCKET, good), "none", "{good}");
    }
    assert!(set(BUCKET, "{ limit: 500 }").contains("set.limit: a token bucket has rate and burst"));
    assert!(set(BUCKET, "{ limit: 0, rate: 7 }").contains("a token bucket has rate and burst"));
    assert!(set(BUCKET, "{}").contains("nothing is set"));
    assert!(set(WINDOW, "{}").contains("\"limit\" is missing"));
    assert!(set(WINDOW, "{ limit: 5, rate: 7 }").contains("unknown key \"rate\""));
    for numbers in ["limit: 5", "limit: 0"] {
        let both = format!("{{ unlimited: true, {numbers} }}");
        assert!(set(WINDOW, &both).contains("unlimited stands beside numbers"), "{numbers}");
    }
}

// The first that fits rules: one behind another that fits whatever it does was accepted once, and did nothing.
#[test]
fn an_override_that_is_never_reached_is_refused() {
    let jwt = "jwt: { claim: tid, issuers: [a, b] }";
    let entries = |tenants: &[&str]| {
        let entry = |tenant: &&str| format!("{{ tenant: {{ {tenant} }}, set: {{ limit: 5 }} }}");
        let text = VALID.replace("route: tenant", jwt);
        let text = format!("{text}    overrides: [{}]\n", tenants.iter().map(entry).collect::<Vec<_>>().join(", "));
        load(&text).err().unwrap_or_default()
    };
    for reached in [
        &["value: t, issuer: a", "value: t, issuer: b"],
        &["value: t, issuer: a", "value: t"],
        &["value: t, issuer: a", "value: u, issuer: a"],
    ] {
        assert_eq!(entries(reached), "", "{reached:?}");
    }
    for hidden in [&["value: t", "value: t"], &["value: t", "value: t, issuer: a"], &["value: t, source: jwt/tid"; 2]] {
        assert!(entries(hidden).contains("overrides[1]: is never reached"), "{hidden:?}");
    }
}

#[test]
fn an_override_names_an_issuer_that_some_source_accepts() {
    let by = |sources: &str, tenant: &str| {
        let text = VALID.replace("[{ route: tenant }]", sources);
        let text = format!("{text}    overrides: [{{ tenant: {{ {tenant} }}, set: {{ limit: 5 }} }}]\n");
        load(&text).err().unwrap_or_default()
    };
    let listed = "[{ jwt: { claim: tid, issuers: [a] } }]";
    assert_eq!(by(listed, "value: t, issuer: a"), "");
    assert!(by(listed, "value: t, issuer: b").contains("tenant.issuer: no source of identity.tenant accepts this"));
    assert_eq!(by("[{ jwt: { claim: tid } }]", "value: t, issuer: b"), "");
    assert!(by("[{ route: t }]", "value: t, issuer: a").contains("tenant.issuer: only a jwt source has an issuer"));
    let two = "[{ jwt: { claim: tid } }, { route: t }]";
    assert!(by(two, "value: t, source: route/t, issuer: a").contains("only a jwt source has an issuer"));
    assert!(by(two, "value: t").contains("say which with source: one of jwt/tid, route/t"));
    let alike = "[{ jwt: { claim: tid, issuers: [a] } }, { jwt: { claim: tid, issuers: [b] } }]";
    assert_eq!(by(alike, "value: t, issuer: b"), "", "sources of one kind need no telling apart");
}

#[test]
fn what_costs_more_than_passes_at_once_never_passes() {
    let never = |from: &str, to: &str| {
        let text = format!("{}    cost: 3\n", VALID.replace(from, to));
        load(&text).err().unwrap_or_default()
    };
    assert_eq!(never("limit: 3", "limit: 3"), "");
    assert!(never("limit: 3", "limit: 2").contains("limits[0]: lets 2 pass at once, and a request costs 3, so none"));
    let over = "on_failure: closed\n    overrides: [{ tenant: { value: a }, set: { limit: 2 } }]";
    assert!(never("on_failure: closed", over).contains("overrides[0].set: lets 2 pass at once"));
    let open = "on_failure: { open: { fixed_window: { limit: 9, window: 1s }, replicas: 4 } }";
    assert!(never("on_failure: closed", open).contains("on_failure.open: lets 2 pass at once"), "its share is 2");
    let by_route = format!("{VALID}    cost: {{ route: cost, default: 4 }}\n");
    assert!(load(&by_route).err().unwrap().contains("a request costs 4 where its route does not say"));
}

#[test]
fn a_broken_limit_does_not_hide_what_is_wrong_with_the_overrides() {
    let found = problems("fixed_window: { limit: 0, window: 10s }", "{ tenant: { vale: a }, set: { lmit: 2 } }");
    for part in ["fixed_window.limit", "tenant: unknown key \"vale\"", "set: unknown key \"lmit\""] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

#[test]
fn an_override_that_sets_numbers_keeps_the_window() {
    let text = format!("{VALID}    overrides: [{{ tenant: {{ value: a }}, set: {{ limit: 5 }} }}]\n");
    let config = load(&text).unwrap();
    let tenant = crate::decision::identity::Evidence { kind: "route/tenant", issuer: "", value: b"a".into() };
    let Some(Set::Numbers(algorithm)) = config.rules.policies[0].overrides.find(&tenant, 0) else { panic!("numbers") };
    assert_eq!((algorithm.quota(), algorithm.window_ms()), (5, Some(10_000)));
}
